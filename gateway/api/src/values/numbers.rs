//! Amounts, counts and other numbers. They are read from their own digits: no number passes through a float.

use farthing_core::metadata::MetadataValue;
use farthing_core::money::{self, Amount};
use rust_decimal::Decimal;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::json;
use serde_json::value::RawValue;
use utoipa::openapi::schema::{KnownFormat, OneOfBuilder, SchemaFormat, SchemaType, Type};
use utoipa::openapi::{Object, ObjectBuilder, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::{integer, string, text};
use crate::rules;

/// The highest price of a cycle or a bundle, in dollars.
const MAX_PRICE: u32 = 10_000;

/// The most credit of a cycle or a bundle, in dollars.
const MAX_AMOUNT: u32 = 1_000_000;

/// The highest rate of a tier, in dollars or percent points.
const MAX_RATE: u64 = 1_000_000_000_000;

/// The longest decimal string, in characters.
const MAX_DECIMAL_STRING: usize = 64;

/// More zeros than a number that is read may end with: each of them is beyond every bound.
const MAX_ZEROS: usize = MAX_DECIMAL_STRING;

/// The highest position that can be asked for: beyond any log, and exact in every JSON reader.
const MAX_POSITION: i64 = 9_007_199_254_740_991;

/// Fractional digits of seconds that are kept.
const MAX_SECONDS_SCALE: u32 = 9;

/// A JSON string or number, in its own digits: no number passes through a float.
#[derive(Debug)]
enum Literal {
    /// The content of a string.
    Text(String),
    /// Another value, as it is written.
    Written(String),
}

/// Reads a string or a number by `rule`.
fn literal<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    rule: impl FnOnce(Literal) -> Result<T, String>,
) -> Result<T, D::Error> {
    let raw = Box::<RawValue>::deserialize(deserializer)?;
    let written = raw.get();
    let literal = if written.starts_with('"') {
        Literal::Text(serde_json::from_str(written).map_err(|_| D::Error::custom("must be a string"))?)
    } else {
        Literal::Written(written.to_owned())
    };
    rule(literal).map_err(D::Error::custom)
}

value! {
    /// The number of items on a page.
    PageLimit(u16) = text(page_limit),
    integer().format(Some(SchemaFormat::KnownFormat(KnownFormat::Int32))).minimum(Some(1)).maximum(Some(100)).default(Some(json!(10)))
}

value! {
    /// A position in the log, from 1 on.
    LogPosition(i64) = text(log_position),
    integer().format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64))).minimum(Some(1)).maximum(Some(MAX_POSITION))
}

value! {
    /// A dollar amount from 0 to 1,000,000: a decimal string with up to ten fractional digits, or an integer.
    AmountInput(Amount) = literal(|it| in_range(amount(it)?, 0, MAX_AMOUNT)),
    OneOfBuilder::new()
        .item(decimal_string(r"^0*([0-9]{1,6}(\.[0-9]{1,10}0*)?|1000000(\.0+)?)$"))
        .item(integer().minimum(Some(0)).maximum(Some(1_000_000)))
        .examples([json!("12.5")])
}

value! {
    /// A rate from 0 to 10^12: a decimal string with up to ten fractional digits, or an integer.
    RateInput(Amount) = literal(|it| in_range(amount(it)?, 0, MAX_RATE)),
    OneOfBuilder::new()
        .item(decimal_string(r"^0*([0-9]{1,12}(\.[0-9]{1,10}0*)?|1000000000000(\.0+)?)$"))
        .item(integer().minimum(Some(0)).maximum(Some(MAX_RATE)))
        .examples([json!("12.5")])
}

value! {
    /// A dollar amount above zero: a decimal string with up to ten fractional digits, or an integer.
    PositiveAmountInput(Amount) = literal(|it| positive(amount(it)?)),
    OneOfBuilder::new()
        .item(decimal_string(
            r"^0*([1-9][0-9]{0,11}(\.[0-9]{1,10}0*)?|0\.[0-9]{0,9}[1-9]0*|1000000000000(\.0+)?)$",
        ))
        .item(integer().minimum(Some(1)).maximum(Some(1_000_000_000_000_u64)))
        .examples([json!("12.5")])
}

value! {
    /// A dollar amount from 10 to 10,000, in whole cents: a decimal string, or an integer.
    FundingAmount(Amount) = literal(|it| in_range(payable(it)?, rules::MIN_FUNDING, rules::MAX_FUNDING)),
    OneOfBuilder::new()
        .item(decimal_string(r"^0*([1-9][0-9]{1,3}(\.[0-9]{1,2}0*)?|10000(\.0+)?)$"))
        .item(integer().minimum(Some(rules::MIN_FUNDING)).maximum(Some(rules::MAX_FUNDING)))
        .examples([json!("25")])
}

value! {
    /// A dollar amount from 0 to 10,000, in whole cents: a decimal string, or an integer.
    PriceInput(Amount) = literal(|it| in_range(payable(it)?, 0, MAX_PRICE)),
    OneOfBuilder::new()
        .item(decimal_string(r"^0*([0-9]{1,4}(\.[0-9]{1,2}0*)?|10000(\.0+)?)$"))
        .item(integer().minimum(Some(0)).maximum(Some(10_000)))
        .examples([json!("12.5")])
}

value! {
    /// A dollar amount above zero, at most 10,000, in whole cents: a decimal string, or an integer.
    BundlePriceInput(Amount) = literal(|it| above_zero(payable(it)?, MAX_PRICE)),
    OneOfBuilder::new()
        .item(decimal_string(
            r"^0*([1-9][0-9]{0,3}(\.[0-9]{1,2}0*)?|0\.(0[1-9]|[1-9][0-9]?)0*|10000(\.0+)?)$",
        ))
        .item(integer().minimum(Some(1)).maximum(Some(10_000)))
        .examples([json!("12.5")])
}

value! {
    /// A dollar amount above zero, at most 1,000,000: a decimal string with up to ten fractional digits, or an integer.
    CreditInput(Amount) = literal(|it| above_zero(amount(it)?, MAX_AMOUNT)),
    OneOfBuilder::new()
        .item(decimal_string(r"^0*([1-9][0-9]{0,5}(\.[0-9]{1,10}0*)?|0\.[0-9]{0,9}[1-9]0*|1000000(\.0+)?)$"))
        .item(integer().minimum(Some(1)).maximum(Some(1_000_000)))
        .examples([json!("12.5")])
}

value! {
    /// A value of a customer's metadata: a string of 1 to 255 characters, a number of at most 255 characters, or a boolean.
    MetadataValueInput(MetadataValue) = literal(metadata_value),
    OneOfBuilder::new()
        .item(super::text_schema())
        .item(Object::builder().schema_type(SchemaType::Type(Type::Number)))
        .item(Object::builder().schema_type(SchemaType::Type(Type::Boolean)))
        .examples([json!("gold")])
}

value! {
    /// A position in counted units: a whole number, or the same as a string.
    PositionInput(Decimal) = literal(whole),
    OneOfBuilder::new()
        .item(integer().minimum(Some(0)).maximum(Some(1_000_000_000_000_000_u64)))
        .item(decimal_string(r"^0*([0-9]{1,15}|1000000000000000)(\.0+)?$"))
        .examples([json!(1_000_000)])
}

value! {
    /// A number of any precision, or the same as a string.
    Number(Decimal) = literal(number),
    OneOfBuilder::new()
        .item(
            Object::builder()
                .schema_type(SchemaType::Type(Type::Number))
                .minimum(Some(0))
                .maximum(Some(1_000_000_000_000_u64)),
        )
        .item(string().pattern(Some(r"^[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$")))
        .examples([json!(0.002)])
}

value! {
    /// A count from 1 to 10^12.
    Count(u64) = literal(count), integer().minimum(Some(1)).maximum(Some(1_000_000_000_000_u64))
}

value! {
    /// A usage count from 0 to 10^12: a whole number, or the same as a string.
    UsageCount(Decimal) = literal(|it| usage(it, 0)),
    usage_schema(Type::Integer, r"^0*([0-9]{1,12}|1000000000000)(\.0+)?$")
}

value! {
    /// Seconds from 0 to 10^12, with at most nine fractional digits: a number, or the same as a string.
    UsageSeconds(Decimal) = literal(|it| usage(it, MAX_SECONDS_SCALE)),
    usage_schema(Type::Number, r"^0*([0-9]{1,12}(\.[0-9]{1,9}0*)?|1000000000000(\.0+)?)$")
}

/// The schema of a usage count, as a number of type `number` or as a string.
fn usage_schema(number: Type, pattern: &str) -> OneOfBuilder {
    let number = Object::builder().schema_type(SchemaType::Type(number));
    OneOfBuilder::new()
        .item(number.minimum(Some(0)).maximum(Some(1_000_000_000_000_u64)))
        .item(decimal_string(pattern))
}

/// The schema of a decimal string of at most 64 characters, as `money::parse_decimal` reads it.
fn decimal_string(pattern: &str) -> ObjectBuilder {
    string().max_length(Some(MAX_DECIMAL_STRING)).pattern(Some(pattern))
}

#[expect(clippy::needless_pass_by_value, reason = "rules take what they may keep")]
fn page_limit(text: String) -> Result<u16, String> {
    let limit = text.parse().ok().filter(|limit| (1..=100).contains(limit));
    limit.ok_or_else(|| "must be an integer between 1 and 100".to_owned())
}

#[expect(clippy::needless_pass_by_value, reason = "rules take what they may keep")]
fn log_position(text: String) -> Result<i64, String> {
    let position = text.parse().ok().filter(|position| (1..=MAX_POSITION).contains(position));
    position.ok_or_else(|| "must be a positive integer".to_owned())
}

/// Reads an amount: a decimal string, or a number that is an integer.
fn amount(literal: Literal) -> Result<Amount, String> {
    decimal_text(literal)?.parse().map_err(|error: money::Error| error.to_string())
}

/// Reads an amount that a card can pay.
fn payable(literal: Literal) -> Result<Amount, String> {
    let amount = amount(literal)?;
    if rules::is_payable(amount) { Ok(amount) } else { Err("must be in whole cents".to_owned()) }
}

fn positive(amount: Amount) -> Result<Amount, String> {
    if amount.is_positive() { Ok(amount) } else { Err("must be above zero".to_owned()) }
}

fn in_range<N: Into<Decimal> + Copy + std::fmt::Display>(
    amount: Amount,
    min: N,
    max: N,
) -> Result<Amount, String> {
    if (min.into()..=max.into()).contains(&amount.decimal()) {
        Ok(amount)
    } else {
        Err(format!("must be between {min} and {max}"))
    }
}

fn above_zero(amount: Amount, max: u32) -> Result<Amount, String> {
    if amount.is_positive() && amount.decimal() <= max.into() {
        Ok(amount)
    } else {
        Err(format!("must be above 0, at most {max}"))
    }
}

/// Reads a whole number, as a string or a number.
fn whole(literal: Literal) -> Result<Decimal, String> {
    money::parse_decimal(&decimal_text(literal)?, 0).map_err(|_| "must be a whole number".to_owned())
}

/// Reads a value of a customer's metadata.
fn metadata_value(literal: Literal) -> Result<MetadataValue, String> {
    match literal {
        Literal::Text(text) => rules::text(text, rules::MAX_TEXT).map(MetadataValue::Text),
        Literal::Written(written) if written.len() <= rules::MAX_TEXT => MetadataValue::literal(&written)
            .ok_or_else(|| "must be a string, a number or a boolean".to_owned()),
        Literal::Written(_) => Err("must have at most 255 characters".to_owned()),
    }
}

/// Reads a number of any precision exactly, or a decimal string.
fn number(literal: Literal) -> Result<Decimal, String> {
    let (Literal::Text(text) | Literal::Written(text)) = literal;
    let exact = Decimal::from_str_exact(&text).or_else(|_| Decimal::from_scientific(&text));
    exact.ok().filter(|_| is_number(&text)).ok_or_else(|| "must be a number".to_owned())
}

/// Whether `text` is `-?digits[.digits][e[+-]digits]`. The parser of decimals takes more.
fn is_number(text: &str) -> bool {
    let (number, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let number = number.strip_prefix('-').unwrap_or(number);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    [whole, fraction, exponent]
        .iter()
        .all(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

fn count(literal: Literal) -> Result<u64, String> {
    let count = match literal {
        Literal::Written(written) => integer_text(written).and_then(|digits| digits.parse().ok()),
        Literal::Text(_) => None,
    };
    rules::count(count.unwrap_or(0))
}

/// Reads a usage count of at most `scale` fractional digits.
fn usage(literal: Literal, scale: u32) -> Result<Decimal, String> {
    let number = number(literal)?.normalize();
    let in_range = !number.is_sign_negative() && number <= Decimal::from(farthing_core::usage::MAX_COUNT);
    if in_range && number.scale() <= scale || number.is_zero() {
        return Ok(number.abs());
    }
    let kind = if scale == 0 { "whole number" } else { "number of at most nine fractional digits" };
    Err(format!("must be a {kind} from 0 to 10^12"))
}

/// The text of a decimal string, or of a number that is an integer.
fn decimal_text(literal: Literal) -> Result<String, String> {
    match literal {
        Literal::Text(text) => Ok(text),
        Literal::Written(written) => {
            integer_text(written).ok_or_else(|| "must be a decimal string".to_owned())
        }
    }
}

/// The plain digits of a JSON number whose value is an integer, with its sign: `60` for `60.0`, `1000` for `1e3`. A huge
/// exponent adds no more than [`MAX_ZEROS`], so that it costs nothing; the number is out of range all the same.
fn integer_text(written: String) -> Option<String> {
    let (sign, unsigned) = written.strip_prefix('-').map_or(("", written.as_str()), |rest| ("-", rest));
    if unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(written);
    }
    if !is_number(&written) {
        return None;
    }
    let (number, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() {
        return Some(format!("{sign}0"));
    }
    let beyond = if exponent.starts_with('-') { i64::MIN } else { i64::MAX };
    let exponent = exponent.parse().unwrap_or(beyond);
    let trimmed = i64::try_from(digits.len() - significant.len()).ok()?;
    let after_point = i64::try_from(fraction.len()).ok()?;
    // The zeros that follow the significant digits. If there are fewer than none, the last digits are after the point.
    let zeros = exponent.saturating_add(trimmed - after_point);
    if zeros < 0 {
        return None;
    }
    let zeros = usize::try_from(zeros).map_or(MAX_ZEROS, |zeros| zeros.min(MAX_ZEROS));
    Some(format!("{sign}{}{}", significant.trim_start_matches('0'), "0".repeat(zeros)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read<'a, T: Deserialize<'a>>(json: &'a str) -> Option<T> {
        serde_json::from_str(json).ok()
    }

    /// The strings that the schema of a type documents, and those that its reader takes.
    struct Strings {
        documented: regex::Regex,
        is_read: fn(&str) -> bool,
    }

    impl Strings {
        fn of<T: PartialSchema + for<'de> Deserialize<'de>>() -> Self {
            let schema = serde_json::to_value(T::schema()).unwrap();
            let mut forms = schema["oneOf"].as_array().unwrap().iter();
            let pattern = forms.find_map(|form| form["pattern"].as_str()).unwrap();
            let is_read = |text: &str| read::<T>(&json!(text).to_string()).is_some();
            Self { documented: regex::Regex::new(pattern).unwrap(), is_read }
        }

        /// Whether the text is documented, and whether it is read.
        fn has(&self, text: &str) -> (bool, bool) {
            (self.documented.is_match(text), (self.is_read)(text))
        }
    }

    #[test]
    fn the_documented_strings_are_those_that_are_read() {
        let exact = [
            Strings::of::<AmountInput>(),
            Strings::of::<RateInput>(),
            Strings::of::<PositiveAmountInput>(),
            Strings::of::<FundingAmount>(),
            Strings::of::<PriceInput>(),
            Strings::of::<BundlePriceInput>(),
            Strings::of::<CreditInput>(),
        ];
        // These read other forms of numbers too, such as "1e3".
        let lenient = [
            Strings::of::<Number>(),
            Strings::of::<UsageCount>(),
            Strings::of::<UsageSeconds>(),
            Strings::of::<PositionInput>(),
        ];
        let config = ProptestConfig::with_source_file(file!());
        let decimals = r"0{0,2}(1?0{0,13}|[0-9]{1,14})(\.[0-9]{0,2}[0-9]{0,9}0{0,3})?";
        proptest!(config, |(text in decimals)| {
            for strings in &exact {
                let (documented, is_read) = strings.has(&text);
                prop_assert_eq!(documented, is_read, "{} and {}", text, strings.documented);
            }
            for strings in &lenient {
                let (documented, is_read) = strings.has(&text);
                prop_assert!(is_read || !documented, "{} and {}", text, strings.documented);
            }
        });
    }

    #[test]
    fn the_examples_of_the_document_are_read() {
        let (amount, positive) = (Strings::of::<AmountInput>(), Strings::of::<PositiveAmountInput>());
        for text in ["12.5", "1.5000000000", "0.5000000000"] {
            for strings in [&amount, &positive, &Strings::of::<CreditInput>()] {
                assert_eq!(strings.has(text), (true, true), "{text}");
            }
        }
        for text in ["10000", "10000.0000000000", "25.5"] {
            assert_eq!(Strings::of::<FundingAmount>().has(text), (true, true), "{text}");
        }
        assert_eq!(Strings::of::<UsageSeconds>().has("1.5"), (true, true));
        assert_eq!(Strings::of::<UsageCount>().has("1.5"), (false, false));
    }

    #[test]
    fn a_number_for_an_amount_must_be_an_integer() {
        let shown = |json| read::<AmountInput>(json).map(|amount| amount.0.to_string());
        assert_eq!(shown("5").as_deref(), Some("5.0000000000"));
        assert_eq!(shown("\"0.0000000001\"").as_deref(), Some("0.0000000001"));
        for (json, value) in
            [("5.0", "5"), ("1e3", "1000"), ("1.20E+1", "12"), ("2000e-3", "2"), ("0.0", "0")]
        {
            assert_eq!(shown(json), shown(value), "{json}");
            assert!(shown(json).is_some(), "{json}");
        }
        let no_integers =
            ["0.5", "true", "null", "[5]", "\"1e3\"", "15e-1", "5.0000000000000000000000000000001"];
        let out_of_range = ["-1", "-1.0", "1e7", "99999999999999999999999999999999999999"];
        let huge = ["1e99999999999999999999", "1e2147483648", "1e-99999999999999999999", "-1e400"];
        for json in no_integers.into_iter().chain(out_of_range).chain(huge) {
            assert_eq!(shown(json), None, "{json}");
        }
        assert_eq!(shown("0e99999999999999999999"), shown("0"));
        assert_eq!(read::<PositionInput>("1.0e6"), read::<PositionInput>("1000000"));
        assert_eq!(read::<PositionInput>("1.5"), None);
    }

    #[test]
    fn the_integer_of_a_number_is_its_exact_value() {
        let config = ProptestConfig::with_source_file(file!());
        let numbers = r"-?(0|[1-9][0-9]{0,5})(\.[0-9]{0,3}0{0,3}[0-9])?([eE][+-]?0?[0-9])?";
        proptest!(config, |(text in numbers)| {
            let exact = number(Literal::Written(text.clone())).unwrap().normalize();
            let integer = integer_text(text.clone());
            prop_assert_eq!(integer.is_some(), exact.scale() == 0, "{}", text);
            if let Some(integer) = integer {
                prop_assert_eq!(Decimal::from_str_exact(&integer), Ok(exact), "{}", text);
            }
        });
        assert_eq!(integer_text("1e999999999".to_owned()).unwrap().len(), 1 + MAX_ZEROS);
    }

    #[test]
    fn a_number_keeps_every_digit() {
        for (json, text) in
            [("12345678.0123456789", "12345678.0123456789"), ("5e-7", "0.0000005"), ("\"0.30\"", "0.30")]
        {
            assert_eq!(read::<Number>(json).unwrap().0.to_string(), text);
        }
        let no_numbers =
            ["x", "+1", "1_000", "1.", ".5", "-", "-.5", "1e", "e3", "1e+", "1.e3", "1e1_0", " 1", "1 "];
        for json in
            no_numbers.map(|text| format!("\"{text}\"")).iter().map(String::as_str).chain(["[]", "true"])
        {
            assert_eq!(read::<Number>(json), None, "{json}");
            assert_eq!(read::<UsageCount>(json), None, "{json}");
            assert_eq!(read::<UsageSeconds>(json), None, "{json}");
        }
    }

    #[test]
    fn counts_are_above_zero_and_page_limits_between_1_and_100() {
        assert_eq!(read::<Count>("1000000000000").unwrap().0, 1_000_000_000_000);
        for (json, count) in [("60.0", 60), ("1e3", 1000), ("1E12", 1_000_000_000_000), ("70e-1", 7)] {
            assert_eq!(read::<Count>(json), Some(Count(count)), "{json}");
        }
        for json in ["0", "-1", "1.5", "\"1\"", "1000000000001", "99999999999999999999"] {
            assert_eq!(read::<Count>(json), None, "{json}");
        }
        for json in
            ["0.0", "-1.0", "\"1.0\"", "15e-1", "1e13", "1e999999999", "1e99999999999999999999", "true"]
        {
            assert_eq!(read::<Count>(json), None, "{json}");
        }
        for bad in ["0", "101", "-1", "1.5", "ten", "", "99999999999", "\0"] {
            assert!(page_limit(bad.to_owned()).is_err(), "{bad:?}");
        }
        assert_eq!((page_limit("1".to_owned()), page_limit("100".to_owned())), (Ok(1), Ok(100)));
    }
}
