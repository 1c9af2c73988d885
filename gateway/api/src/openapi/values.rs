//! The values of bodies and queries. Each type is declared once: its schema documents it, and its `Deserialize` reads and
//! checks it by the rules of [`crate::rules`]. The conformance run compares the two.

use std::collections::BTreeMap;

use chrono::{DateTime, Datelike as _, FixedOffset, TimeDelta, Utc};
use farthing_core::command::{MeterRef, to_millisecond};
use farthing_core::ids::CustomerId;
use farthing_core::money::{self, Amount};
use rust_decimal::Decimal;
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::json;
use serde_json::value::RawValue;
use utoipa::openapi::schema::{
    AdditionalProperties, ArrayBuilder, KnownFormat, OneOfBuilder, SchemaFormat, SchemaType, Type,
};
use utoipa::openapi::{Object, ObjectBuilder, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::rules;

/// The schema pattern of a string without NUL.
const NO_NUL: &str = r"^[^\u0000]*$";

/// The last year that a date-time can have.
const MAX_YEAR: i32 = 9999;

/// The longest value of a query parameter, in characters.
const MAX_FILTER: usize = 64 * 1024;

/// The longest URL of a request and its method, in characters.
const MAX_ENDPOINT: usize = 8 * 1024;

/// The longest part of a card that is read, in characters.
const MAX_CARD_TEXT: usize = 64;

/// The most names in one list of models or providers.
const MAX_NAMES: usize = 1_000;

/// The most meters of one plan.
const MAX_METERS: usize = 100;

/// The highest price of a cycle or a bundle, in dollars.
const MAX_PRICE: u32 = 10_000;

/// The least that is paid into a wallet at once, in dollars.
const MIN_FUNDING: u32 = 10;

/// The most that is paid into a wallet at once, in dollars.
const MAX_FUNDING: u32 = 10_000;

/// The highest rate of a tier and the most credit of a cycle or a bundle, in dollars.
const MAX_AMOUNT: u32 = 1_000_000;

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

/// Declares a type of values: `Name(Inner) = source(rule), schema`.
macro_rules! value {
    ($(#[doc = $doc:literal])+ $name:ident($inner:ty) = $source:ident($rule:expr), $schema:expr) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub(crate) struct $name(pub(crate) $inner);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $source(deserializer, $rule).map(Self)
            }
        }

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                $schema.into()
            }
        }

        impl ToSchema for $name {}
    };
}

/// Declares a schema that no type of ours has.
macro_rules! document {
    ($(#[doc = $doc:literal])+ $name:ident = $schema:expr) => {
        $(#[doc = $doc])+
        pub(crate) struct $name;

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                $schema.into()
            }
        }

        impl ToSchema for $name {}
    };
}

/// Reads a string by `rule`.
fn text<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    rule: impl FnOnce(String) -> Result<T, String>,
) -> Result<T, D::Error> {
    rule(String::deserialize(deserializer)?).map_err(D::Error::custom)
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

/// Reads a list of at most `max` items.
fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
    max: usize,
) -> Result<Vec<T>, D::Error> {
    struct Items<T>(usize, std::marker::PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
            if items.size_hint().is_some_and(|length| length > self.0) {
                return Err(A::Error::custom(format!("must have at most {} items", self.0)));
            }
            let mut values = Vec::new();
            while let Some(value) = items.next_element()? {
                values.push(value);
            }
            Ok(values)
        }
    }

    deserializer.deserialize_seq(Items(max, std::marker::PhantomData))
}

/// Reads an object of [`MetadataKey`]s and [`Text`]s.
fn pairs<'de, D: Deserializer<'de>>(
    deserializer: D,
    max: usize,
) -> Result<BTreeMap<String, String>, D::Error> {
    struct Pairs(usize);

    impl<'de> Visitor<'de> for Pairs {
        type Value = BTreeMap<String, String>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Self::Value, A::Error> {
            if pairs.size_hint().is_some_and(|length| length > self.0) {
                return Err(A::Error::custom(rules::TOO_MANY_PAIRS));
            }
            let mut metadata = BTreeMap::new();
            while let Some((MetadataKey(key), Text(value))) = pairs.next_entry()? {
                metadata.insert(key, value);
            }
            Ok(metadata)
        }
    }

    deserializer.deserialize_map(Pairs(max))
}

fn string() -> ObjectBuilder {
    Object::builder().schema_type(SchemaType::Type(Type::String))
}

fn integer() -> ObjectBuilder {
    Object::builder().schema_type(SchemaType::Type(Type::Integer))
}

fn text_schema() -> ObjectBuilder {
    string().min_length(Some(1)).max_length(Some(rules::MAX_TEXT)).pattern(Some(NO_NUL))
}

fn date_time() -> ObjectBuilder {
    string().format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
}

document! {
    /// Any JSON object.
    AnyObject = Object::builder().schema_type(SchemaType::Type(Type::Object))
}

value! {
    /// A text of 1 to 255 characters.
    Text(String) = text(|text| rules::text(text, rules::MAX_TEXT)), text_schema()
}

value! {
    /// A text to search for.
    Filter(String) = text(|text| rules::text(text, MAX_FILTER)), text_schema().max_length(None)
}

value! {
    /// The number of items on a page.
    PageLimit(u16) = text(page_limit),
    integer().format(Some(SchemaFormat::KnownFormat(KnownFormat::Int32))).minimum(Some(1)).maximum(Some(100)).default(Some(json!(10)))
}

value! {
    /// A merchant's own identifier of a customer. It is accepted wherever a customer's id is.
    ReferenceId(String) = text(rules::reference_id), text_schema().pattern(Some(r"^(?!con_)[^\u0000]*$"))
}

value! {
    /// A customer's id or the merchant's own identifier of the customer.
    ReferenceOrId(String) = text(|name| rules::text(name, rules::MAX_TEXT)),
    text_schema().pattern(Some(r"^(con_[0-7][0-9A-HJKMNP-TV-Z]{25}|(?!con_)[^\u0000]*)$"))
}

/// A customer, as a filter names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CustomerName {
    /// By its id.
    Id(CustomerId),
    /// By the merchant's own identifier.
    Reference(String),
}

value! {
    /// A customer's id or the merchant's own identifier of the customer.
    CustomerFilter(CustomerName) = text(|name| match name.parse() {
        Ok(id) => Ok(CustomerName::Id(id)),
        Err(_) => rules::reference_id(name).map(CustomerName::Reference),
    }),
    ReferenceOrId::schema()
}

value! {
    /// An e-mail address.
    Email(String) = text(rules::email),
    string().max_length(Some(rules::MAX_EMAIL)).pattern(Some(
        r"^[^@\s\u0000-\u001f\u007f-\u009f]+@[^@\s\u0000-\u001f\u007f-\u009f]+$",
    ))
}

value! {
    /// An http or https URL with a host name.
    OriginUrl(String) = text(rules::origin_url),
    string().max_length(Some(rules::MAX_URL)).pattern(Some(
        r"^https?://[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?(:[1-9][0-9]{0,3})?(/[A-Za-z0-9._~/-]*)?$",
    ))
}

value! {
    /// The http or https URL of a webhook, without user information and fragment.
    WebhookUrl(String) = text(rules::webhook_url),
    string().max_length(Some(rules::MAX_WEBHOOK_URL)).pattern(Some(r"^https?://[A-Za-z0-9][!-\x22$-\[\]-~]*$"))
}

value! {
    /// The method and full URL of a call.
    Endpoint(String) = text(|text| rules::text(text, MAX_ENDPOINT)),
    string().min_length(Some(1)).max_length(Some(MAX_ENDPOINT))
}

value! {
    /// A merchant's own id of a call. It must not have the form `req_<ULID>`.
    ReportedId(String) = text(rules::reported_id), text_schema()
}

value! {
    /// A part of a card that is passed to the payment processor.
    CardText(String) = text(|text| rules::text(text, MAX_CARD_TEXT)), text_schema()
}

document! {
    /// A plan's id.
    PlanName = string().pattern(Some("^sc_[0-7][0-9A-HJKMNP-TV-Z]{25}$"))
}

document! {
    /// A credit bundle's id.
    CreditBundleName = string().pattern(Some("^cb_[0-7][0-9A-HJKMNP-TV-Z]{25}$"))
}

value! {
    /// A phone number in E.164.
    Phone(String) = text(rules::phone), string().pattern(Some(r"^\+[1-9][0-9]{1,14}$"))
}

value! {
    /// A meter's slug. It is accepted wherever a meter's id is.
    MeterSlug(String) = text(rules::slug), string().pattern(Some("^(?!prd_)[A-Za-z0-9_-]{1,255}$"))
}

value! {
    /// A meter's id or slug.
    SlugOrId(MeterRef) = text(rules::meter),
    string().pattern(Some("^(prd_[0-7][0-9A-HJKMNP-TV-Z]{25}|(?!prd_)[A-Za-z0-9_-]{1,255})$"))
}

value! {
    /// A key of metadata.
    MetadataKey(String) = text(|key| rules::metadata_key(&key).map(|()| key)),
    string().pattern(Some("^[A-Za-z0-9_]{1,255}$"))
}

value! {
    /// Key-value pairs: at most 100, keys of ASCII letters, digits and underscores, values of 1 to 255 characters.
    Metadata(BTreeMap<String, String>) = pairs(rules::MAX_METADATA_PAIRS),
    Object::builder()
        .schema_type(SchemaType::Type(Type::Object))
        .property_names(Some(MetadataKey::schema()))
        .additional_properties(Some(AdditionalProperties::RefOr(text_schema().into())))
        .max_properties(Some(rules::MAX_METADATA_PAIRS))
}

value! {
    /// A dollar amount from 0 to 1,000,000: a decimal string with up to ten fractional digits, or an integer.
    AmountInput(Amount) = literal(|it| in_range(amount(it)?, 0, MAX_AMOUNT)),
    OneOfBuilder::new()
        .item(string().pattern(Some(r"^[0-9]{1,6}(\.[0-9]{1,10})?$")))
        .item(integer().minimum(Some(0)).maximum(Some(1_000_000)))
        .examples([json!("12.5")])
}

value! {
    /// A dollar amount above zero: a decimal string with up to ten fractional digits, or an integer.
    PositiveAmountInput(Amount) = literal(|it| positive(amount(it)?)),
    OneOfBuilder::new()
        .item(string().pattern(Some(r"^([1-9][0-9]{0,11}|0\.[0-9]{0,9}[1-9])$")))
        .item(integer().minimum(Some(1)).maximum(Some(1_000_000_000_000_u64)))
        .examples([json!("12.5")])
}

value! {
    /// A dollar amount from 10 to 10,000, in whole cents: a decimal string, or an integer.
    FundingAmount(Amount) = literal(|it| in_range(payable(it)?, MIN_FUNDING, MAX_FUNDING)),
    OneOfBuilder::new()
        .item(string().pattern(Some(r"^([1-9][0-9]{1,3}(\.[0-9]{1,2}0{0,8})?|10000)$")))
        .item(integer().minimum(Some(10)).maximum(Some(10_000)))
        .examples([json!("25")])
}

value! {
    /// A dollar amount from 0 to 10,000, in whole cents: a decimal string, or an integer.
    PriceInput(Amount) = literal(|it| in_range(payable(it)?, 0, MAX_PRICE)),
    OneOfBuilder::new()
        .item(string().pattern(Some(r"^([0-9]{1,4}(\.[0-9]{1,2}0{0,8})?|10000)$")))
        .item(integer().minimum(Some(0)).maximum(Some(10_000)))
        .examples([json!("12.5")])
}

value! {
    /// A dollar amount above zero, at most 10,000, in whole cents: a decimal string, or an integer.
    BundlePriceInput(Amount) = literal(|it| above_zero(payable(it)?, MAX_PRICE)),
    OneOfBuilder::new()
        .item(string().pattern(Some(r"^([1-9][0-9]{0,3}(\.[0-9]{1,2}0{0,8})?|0\.(0[1-9]|[1-9][0-9]?)0{0,8}|10000)$")))
        .item(integer().minimum(Some(1)).maximum(Some(10_000)))
        .examples([json!("12.5")])
}

value! {
    /// A dollar amount above zero, at most 1,000,000: a decimal string with up to ten fractional digits, or an integer.
    CreditInput(Amount) = literal(|it| above_zero(amount(it)?, MAX_AMOUNT)),
    OneOfBuilder::new()
        .item(string().pattern(Some(r"^([1-9][0-9]{0,5}(\.[0-9]{1,10})?|0\.[0-9]{0,9}[1-9])$")))
        .item(integer().minimum(Some(1)).maximum(Some(1_000_000)))
        .examples([json!("12.5")])
}

value! {
    /// A position in counted units: a whole number, or the same as a string.
    PositionInput(Decimal) = literal(whole),
    OneOfBuilder::new()
        .item(integer().minimum(Some(0)).maximum(Some(1_000_000_000_000_000_u64)))
        .item(string().pattern(Some("^[0-9]{1,15}$")))
        .examples([json!(1_000_000)])
}

value! {
    /// A number of any precision, or a decimal string.
    Number(Decimal) = literal(number),
    Object::builder()
        .schema_type(SchemaType::Type(Type::Number))
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::Double)))
        .minimum(Some(0))
        .maximum(Some(1_000_000))
}

value! {
    /// A count from 1 to 10^12.
    Count(u64) = literal(count), integer().minimum(Some(1)).maximum(Some(1_000_000_000_000_u64))
}

value! {
    /// A usage count from 0 to 10^12.
    UsageCount(Decimal) = literal(|it| usage(it, 0)), usage_schema()
}

value! {
    /// Seconds from 0 to 10^12, with at most nine fractional digits.
    UsageSeconds(Decimal) = literal(|it| usage(it, MAX_SECONDS_SCALE)), usage_schema()
}

value! {
    /// A date-time in ISO 8601 with its offset, rounded down to the millisecond.
    Instant(DateTime<Utc>) = text(instant), date_time()
}

value! {
    /// A date-time in ISO 8601, rounded down to the millisecond, with its offset.
    LocalInstant(DateTime<FixedOffset>) = text(local_instant), date_time()
}

value! {
    /// At most 1,000 names of 1 to 255 characters.
    Names(Vec<Text>) = list(MAX_NAMES), ArrayBuilder::new().items(text_schema()).max_items(Some(MAX_NAMES))
}

value! {
    /// At most 100 meters, each by its id or its slug.
    Meters(Vec<SlugOrId>) = list(MAX_METERS),
    ArrayBuilder::new().items(SlugOrId::schema()).max_items(Some(MAX_METERS))
}

value! {
    /// A JSON array of [key, value] pairs of strings. An item matches if it has all pairs.
    MetadataFilters(Vec<(String, String)>) = text(metadata_filters),
    string().content_media_type("application/json").examples([json!(r#"[["team","search"]]"#)])
}

fn usage_schema() -> ObjectBuilder {
    let int64 = SchemaFormat::KnownFormat(KnownFormat::Int64);
    integer().format(Some(int64)).minimum(Some(0)).maximum(Some(1_000_000_000_000_u64))
}

#[expect(clippy::needless_pass_by_value, reason = "rules take what they may keep")]
fn page_limit(text: String) -> Result<u16, String> {
    let limit = text.parse().ok().filter(|limit| (1..=100).contains(limit));
    limit.ok_or_else(|| "must be an integer between 1 and 100".to_owned())
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

fn in_range(amount: Amount, min: u32, max: u32) -> Result<Amount, String> {
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

/// Reads a number of any precision exactly, or a decimal string.
fn number(literal: Literal) -> Result<Decimal, String> {
    let (Literal::Text(text) | Literal::Written(text)) = literal;
    let exact = Decimal::from_str_exact(&text).or_else(|_| Decimal::from_scientific(&text));
    let plain = text.starts_with(|first: char| first == '-' || first.is_ascii_digit());
    exact.ok().filter(|_| plain).ok_or_else(|| "must be a number".to_owned())
}

fn count(literal: Literal) -> Result<u64, String> {
    let count = match literal {
        Literal::Written(written) => serde_json::from_str(&written).ok(),
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
            let digits = written.strip_prefix('-').unwrap_or(&written);
            let is_integer = digits.bytes().all(|byte| byte.is_ascii_digit());
            if is_integer { Ok(written) } else { Err("must be a decimal string".to_owned()) }
        }
    }
}

const NO_INSTANT: &str = "must be an ISO 8601 date-time with its offset";

#[expect(clippy::needless_pass_by_value, reason = "rules take what they may keep")]
fn instant(text: String) -> Result<DateTime<Utc>, String> {
    let instant = DateTime::parse_from_rfc3339(&text).ok().map(|instant| instant.with_timezone(&Utc));
    let shown = instant.filter(|instant| instant.year() <= MAX_YEAR).map(to_millisecond);
    shown.ok_or_else(|| NO_INSTANT.to_owned())
}

/// Reads a date-time of a query, where a `+` that was not encoded arrives as a blank.
fn local_instant(text: String) -> Result<DateTime<FixedOffset>, String> {
    let repaired = match text.rsplit_once(' ') {
        Some((instant, offset)) if offset.len() == 5 && instant.len() >= 19 => format!("{instant}+{offset}"),
        Some(_) | None => text,
    };
    // A year on each side is left for the days around the instant.
    let instant =
        DateTime::parse_from_rfc3339(&repaired).ok().filter(|at| (1..MAX_YEAR).contains(&at.year()));
    let instant = instant.ok_or_else(|| NO_INSTANT.to_owned())?;
    Ok(instant - TimeDelta::nanoseconds(i64::from(instant.timestamp_subsec_nanos() % 1_000_000)))
}

fn metadata_filters(text: String) -> Result<Vec<(String, String)>, String> {
    let text = rules::text(text, MAX_FILTER)?;
    let pairs: Vec<(String, String)> = serde_json::from_str(&text)
        .map_err(|_| "must be a JSON array of [key, value] pairs of strings".to_owned())?;
    if pairs.len() > rules::MAX_METADATA_PAIRS { Err(rules::TOO_MANY_PAIRS.to_owned()) } else { Ok(pairs) }
}

impl Names {
    /// The names as strings.
    pub(crate) fn into_strings(self) -> Vec<String> {
        self.0.into_iter().map(|Text(name)| name).collect()
    }
}

impl Meters {
    /// The meters as commands name them.
    pub(crate) fn into_refs(self) -> Vec<MeterRef> {
        self.0.into_iter().map(|SlugOrId(meter)| meter).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<'a, T: Deserialize<'a>>(json: &'a str) -> Option<T> {
        serde_json::from_str(json).ok()
    }

    #[test]
    fn a_number_for_an_amount_must_be_an_integer() {
        let shown = |json| read::<AmountInput>(json).map(|amount| amount.0.to_string());
        assert_eq!(shown("5").as_deref(), Some("5.0000000000"));
        assert_eq!(shown("\"0.0000000001\"").as_deref(), Some("0.0000000001"));
        for json in ["0.5", "5.0", "1e3", "true", "\"1e3\"", "-1", "99999999999999999999999999999999999999"] {
            assert_eq!(shown(json), None, "{json}");
        }
    }

    #[test]
    fn a_number_keeps_every_digit() {
        for (json, text) in
            [("12345678.0123456789", "12345678.0123456789"), ("5e-7", "0.0000005"), ("\"0.30\"", "0.30")]
        {
            assert_eq!(read::<Number>(json).unwrap().0.to_string(), text);
        }
        for json in ["\"x\"", "[]", "\"+1\"", "true"] {
            assert_eq!(read::<Number>(json), None, "{json}");
        }
    }

    #[test]
    fn texts_are_measured_in_characters_and_have_no_nul() {
        let text = |content: &str| read::<Text>(&serde_json::json!(content).to_string());
        assert!(text(&"é".repeat(255)).is_some());
        for content in ["é".repeat(256).as_str(), "x\0y", ""] {
            assert_eq!(text(content), None);
        }
        assert_eq!(read::<Text>(r#""\ud800""#), None);
    }

    #[test]
    fn metadata_has_few_pairs_with_plain_keys() {
        assert_eq!(read::<Metadata>(r#"{"a_1": "v"}"#).unwrap().0.len(), 1);
        for json in
            [r#"{"a-b": "v"}"#, r#"{"": "v"}"#, r#"{"c": 5}"#, r#"{"d": ""}"#, r#"{"e": "\u0000"}"#, "[]"]
        {
            assert_eq!(read::<Metadata>(json), None, "{json}");
        }
    }

    #[test]
    fn counts_are_above_zero_and_page_limits_between_1_and_100() {
        assert_eq!(read::<Count>("1000000000000").unwrap().0, 1_000_000_000_000);
        for json in ["0", "-1", "1.5", "\"1\"", "1000000000001", "99999999999999999999"] {
            assert_eq!(read::<Count>(json), None, "{json}");
        }
        for bad in ["0", "101", "-1", "1.5", "ten", "", "99999999999", "\0"] {
            assert!(page_limit(bad.to_owned()).is_err(), "{bad:?}");
        }
        assert_eq!((page_limit("1".to_owned()), page_limit("100".to_owned())), (Ok(1), Ok(100)));
    }

    #[test]
    fn metadata_filters_are_pairs_of_strings() {
        assert_eq!(metadata_filters(r#"[["a","b"],["c","d"]]"#.to_owned()).unwrap().len(), 2);
        for bad in ["{}", "[[\"a\"]]", "[[\"a\",1]]", "x"] {
            assert!(metadata_filters(bad.to_owned()).is_err(), "{bad}");
        }
    }
}
