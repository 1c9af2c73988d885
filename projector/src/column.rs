//! How our values travel into columns and out of them. Invariant: exact decimals stay exact, and no text is
//! written that Postgres would refuse.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::str::FromStr;

use farthing_core::money::{self, Amount};
use rust_decimal::Decimal;
use serde::de::value::StrDeserializer;
use serde::de::{DeserializeOwned, IntoDeserializer as _};
use serde::{Deserialize, Serialize};
use tokio_postgres::Row;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

/// A column holds what no projection writes.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// Not of the column's SQL type.
    #[error(transparent)]
    Column(#[from] tokio_postgres::Error),
    /// Not of the domain's type.
    #[error("column {column}: {text:?} is not a value of this column")]
    Value {
        /// The column's number.
        column: usize,
        /// What it holds.
        text: String,
    },
}

/// An exact decimal in a `numeric` column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numeric(pub Decimal);

impl From<Amount> for Numeric {
    fn from(amount: Amount) -> Self {
        Self(amount.decimal())
    }
}

/// A `numeric` on the wire is a list of base-10000 digits with the weight of the first.
const BASE: u32 = 10_000;
const NEGATIVE: u16 = 0x4000;

impl ToSql for Numeric {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        let scale = self.0.scale();
        let fraction_digits = scale.div_ceil(4);
        let padding = 10_u128.pow(fraction_digits * 4 - scale);
        let mut rest = self.0.mantissa().unsigned_abs() * padding;
        // Lowest digit first; 2^96 with padding needs at most nine.
        let mut digits = [0_u16; 12];
        let mut count = 0_usize;
        while rest > 0 {
            digits[count] = u16::try_from(rest % u128::from(BASE))?;
            rest /= u128::from(BASE);
            count += 1;
        }
        let lowest = digits[..count].iter().take_while(|digit| **digit == 0).count();
        let weight = i16::try_from(count)? - i16::try_from(fraction_digits)? - 1;
        let sign = if self.0.is_sign_negative() && count > 0 { NEGATIVE } else { 0 };
        let header = [u16::try_from(count - lowest)?, weight.cast_unsigned(), sign, u16::try_from(scale)?];
        for word in header.iter().chain(digits[lowest..count].iter().rev()) {
            out.extend_from_slice(&word.to_be_bytes());
        }
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::NUMERIC
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Numeric {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        let (words, _) = raw.as_chunks::<2>();
        let words: Vec<u16> = words.iter().map(|word| u16::from_be_bytes(*word)).collect();
        let [count, weight, sign, _scale, digits @ ..] = words.as_slice() else {
            return Err("a numeric is shorter than its header".into());
        };
        if usize::from(*count) != digits.len() || *sign & !NEGATIVE != 0 {
            return Err("a numeric that is not a number".into());
        }
        let mut mantissa = 0_i128;
        for digit in digits {
            let shifted = mantissa.checked_mul(i128::from(BASE)).ok_or("a numeric is out of range")?;
            mantissa = shifted + i128::from(*digit);
        }
        let fraction_digits = i32::from(*count) - 1 - i32::from(weight.cast_signed());
        if fraction_digits < 0 {
            let factor = i128::from(BASE).checked_pow(fraction_digits.unsigned_abs());
            mantissa = factor.and_then(|f| mantissa.checked_mul(f)).ok_or("a numeric is out of range")?;
        }
        if *sign == NEGATIVE {
            mantissa = -mantissa;
        }
        let scale = u32::try_from(fraction_digits.max(0))? * 4;
        Ok(Self(Decimal::try_from_i128_with_scale(mantissa, scale)?.normalize()))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::NUMERIC
    }
}

/// JSON text for a `jsonb` column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Jsonb(pub(crate) String);

/// The version that a `jsonb` begins with on the wire.
const JSONB_VERSION: u8 = 1;

impl ToSql for Jsonb {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        out.extend_from_slice(&[JSONB_VERSION]);
        out.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::JSONB
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Jsonb {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        let text = raw.strip_prefix(&[JSONB_VERSION]).ok_or("a jsonb of an unknown version")?;
        Ok(Self(std::str::from_utf8(text)?.to_owned()))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::JSONB
    }
}

/// The text without NUL, which Postgres refuses: U+FFFD stands for it.
pub(crate) fn storable(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "\u{FFFD}")) } else { Cow::Borrowed(text) }
}

/// JSON text of a value, free of NUL.
pub(crate) fn json<T: Serialize>(value: &T) -> String {
    let text = serde_json::to_string(value).expect("rows have string keys and finite numbers");
    if text.contains("\\u0000") { without_escaped_nul(&text) } else { text }
}

/// Replaces the escape of NUL, but not a backslash before the plain text `u0000`.
fn without_escaped_nul(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("\\u0000") {
            out.push('\u{FFFD}');
            rest = after;
        } else {
            out.push_str(&rest[..2]);
            rest = &rest[2..];
        }
    }
    out.push_str(rest);
    out
}

/// The word of a variant, as it stands in the log.
pub(crate) fn word<T: Serialize>(variant: T) -> String {
    let mut text = serde_json::to_string(&variant).expect("a unit variant is a string");
    text.pop();
    text.remove(0);
    text
}

/// Reads the columns of a row in turn, from the first.
pub(crate) struct Columns<'a> {
    row: &'a Row,
    next: usize,
}

impl<'a> Columns<'a> {
    pub(crate) const fn of(row: &'a Row) -> Self {
        Self { row, next: 0 }
    }

    /// A column as it is.
    pub(crate) fn plain<T: FromSql<'a>>(&mut self) -> Result<T, Unreadable> {
        let column = self.next;
        self.next += 1;
        Ok(self.row.try_get(column)?)
    }

    fn text<T>(&mut self, read: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>, Unreadable> {
        let column = self.next;
        let Some(text) = self.plain::<Option<&str>>()? else { return Ok(None) };
        let unreadable = || Unreadable::Value { column, text: text.to_owned() };
        read(text).map(Some).ok_or_else(unreadable)
    }

    fn present<T>(&self, value: Option<T>) -> Result<T, Unreadable> {
        value.ok_or_else(|| Unreadable::Value { column: self.next - 1, text: "null".to_owned() })
    }

    /// An id.
    pub(crate) fn id<T: FromStr>(&mut self) -> Result<T, Unreadable> {
        let id = self.id_or_null()?;
        self.present(id)
    }

    /// An id, or none.
    pub(crate) fn id_or_null<T: FromStr>(&mut self) -> Result<Option<T>, Unreadable> {
        self.text(|text| text.parse().ok())
    }

    /// A variant of an enum, by its word.
    pub(crate) fn word<T: DeserializeOwned>(&mut self) -> Result<T, Unreadable> {
        let word = self.word_or_null()?;
        self.present(word)
    }

    /// A variant of an enum, or none.
    pub(crate) fn word_or_null<T: DeserializeOwned>(&mut self) -> Result<Option<T>, Unreadable> {
        self.text(|text| {
            let word: StrDeserializer<'_, serde::de::value::Error> = text.into_deserializer();
            T::deserialize(word).ok()
        })
    }

    /// JSON text.
    pub(crate) fn json<T: DeserializeOwned>(&mut self) -> Result<T, Unreadable> {
        let value = self.json_or_null()?;
        self.present(value)
    }

    /// JSON text, or none.
    pub(crate) fn json_or_null<T: DeserializeOwned>(&mut self) -> Result<Option<T>, Unreadable> {
        self.text(|text| serde_json::from_str(text).ok())
    }

    /// A `jsonb` value.
    pub(crate) fn jsonb<T: for<'de> Deserialize<'de>>(&mut self) -> Result<T, Unreadable> {
        let column = self.next;
        let Jsonb(text) = self.plain()?;
        serde_json::from_str(&text).map_err(|_| Unreadable::Value { column, text })
    }

    /// An amount of money.
    pub(crate) fn amount(&mut self) -> Result<Amount, Unreadable> {
        let amount = self.amount_or_null()?;
        self.present(amount)
    }

    /// An amount of money, or none.
    pub(crate) fn amount_or_null(&mut self) -> Result<Option<Amount>, Unreadable> {
        let column = self.next;
        let Some(Numeric(decimal)) = self.plain()? else { return Ok(None) };
        let unreadable = |_: money::Error| Unreadable::Value { column, text: decimal.to_string() };
        money::round_line(decimal).map(Some).map_err(unreadable)
    }
}

#[cfg(test)]
mod tests {
    use farthing_core::meter::{TierType, TokenBasis};

    use super::*;

    #[test]
    fn decimals_survive_the_wire() {
        for text in [
            "0",
            "1",
            "-1",
            "10000",
            "9999",
            "0.1",
            "0.0001",
            "0.00001",
            "-0.0000000001",
            "1000000000000",
            "999999999999.9999999999",
            "123456789.0123456789",
            "100000000",
            "79228162514264337593543950335",
            "0.0000000000000000000000000001",
        ] {
            let decimal = Decimal::from_str_exact(text).unwrap();
            let mut wire = BytesMut::new();
            Numeric(decimal).to_sql(&Type::NUMERIC, &mut wire).unwrap();
            assert_eq!(Numeric::from_sql(&Type::NUMERIC, &wire).unwrap().0, decimal, "{text}");
        }
    }

    #[test]
    fn what_is_not_a_number_is_refused() {
        let nan = [0, 0, 0, 0, 0xC0, 0, 0, 0];
        assert!(Numeric::from_sql(&Type::NUMERIC, &nan).is_err());
        assert!(Numeric::from_sql(&Type::NUMERIC, &[0, 1]).is_err());
    }

    #[test]
    fn a_variant_is_written_as_its_word() {
        assert_eq!(word(TierType::Tokens1m), "tokens_1m");
        assert_eq!(word(TokenBasis::InputOutput), "input+output");
    }

    #[test]
    fn no_nul_reaches_a_column() {
        assert_eq!(storable("a\0b"), "a\u{FFFD}b");
        assert_eq!(json(&"a\0b\\u0000\\\0"), "\"a\u{FFFD}b\\\\u0000\\\\\u{FFFD}\"");
    }
}
