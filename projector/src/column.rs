//! Conversions of domain values into columns. Invariant: exact decimals stay exact, and no text is written
//! that Postgres refuses.

use std::error::Error as StdError;
use std::fmt::{self, Write as _};

use farthing_core::money::SCALE;
use farthing_core::wide_sum::WideSum;
use rust_decimal::Decimal;
use serde::Serialize;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

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

/// A value for a `text` column, which is written there without a copy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Text<T>(pub(crate) T);

impl<T: fmt::Display + fmt::Debug> ToSql for Text<T> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        write!(out, "{}", self.0)?;
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TEXT
    }

    to_sql_checked!();
}

/// The new value of a column that may be null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NewValue<T>(pub(crate) Option<T>);

impl NewValue<String> {
    /// The new text; `None` if the column becomes null or does not change.
    pub(crate) fn text(change: Option<&Self>) -> Option<&str> {
        change.and_then(|Self(text)| text.as_deref())
    }
}

/// Replaces NUL, which Postgres refuses, by U+FFFD.
pub(crate) fn storable(text: &str) -> String {
    if text.contains('\0') { text.replace('\0', "\u{FFFD}") } else { text.to_owned() }
}

/// A decimal for a column in which null is zero. Most are zero, and Postgres reads and stores nothing for a null.
pub(crate) fn nonzero(decimal: Decimal) -> Option<Decimal> {
    (!decimal.is_zero()).then_some(decimal)
}

/// The JSON text of a value, without NUL.
pub(crate) fn json<T: Serialize>(value: &T) -> String {
    let text = serde_json::to_string(value).expect("rows have string keys and finite numbers");
    if text.contains("\\u0000") { without_escaped_nul(&text) } else { text }
}

/// Replaces the escape of NUL by U+FFFD. An escaped backslash before the plain text `u0000` stays.
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

/// A variant that is shown by its name, as it is written in the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Named<T>(T);

impl<T: Serialize> fmt::Display for Named<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.serialize(f)
    }
}

/// The name of a variant, as it is written in the log.
pub(crate) fn variant_name<T: Serialize>(variant: T) -> String {
    Named(variant).to_string()
}

/// The same for a column, without a copy.
pub(crate) const fn variant<T: Copy>(variant: T) -> Text<Named<T>> {
    Text(Named(variant))
}

/// A decimal of a numeric column, which may have more digits than [`Decimal`] holds. It is exact, or an error.
pub(crate) struct Exact(pub(crate) Decimal);

impl<'a> FromSql<'a> for Exact {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        // It rounds what has too many digits.
        let decimal = Decimal::from_sql(kind, raw)?;
        let mut written = BytesMut::new();
        let _ = decimal.to_sql(kind, &mut written)?;
        if digits(raw) == digits(&written) {
            Ok(Self(decimal))
        } else {
            Err("the number has more than 28 digits".into())
        }
    }

    fn accepts(kind: &Type) -> bool {
        <Decimal as FromSql<'_>>::accepts(kind)
    }
}

/// A sum of a numeric column, which may have more digits than [`Decimal`] holds. It is exact, or an error.
pub(crate) struct Wide(pub(crate) WideSum);

/// The sign of a negative numeric on the wire.
const MINUS: u16 = 0x4000;

impl<'a> FromSql<'a> for Wide {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        let (weight, sign, groups) = digits(raw).ok_or("the number is cut off")?;
        let sign = match sign {
            0 => 1,
            MINUS => -1,
            _ => return Err("not a number".into()),
        };
        let units = (0..).zip(groups).try_fold(0_i128, |sum, (at, group)| {
            sum.checked_add(last_digits(sign * i128::from(group), weight - at)?)
        });
        let units = units.ok_or("the number cannot be held exactly")?;
        Ok(Self(WideSum::last_digits(units)))
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::NUMERIC
    }
}

/// A group of four digits with `place` groups between it and the point, in units of the last digit of a sum; `None` if that is not
/// exact.
fn last_digits(group: i128, place: i32) -> Option<i128> {
    let zeros = 4 * place + SCALE.cast_signed();
    let power = 10_i128.checked_pow(zeros.unsigned_abs())?;
    if zeros >= 0 { group.checked_mul(power) } else { (group % power == 0).then(|| group / power) }
}

/// The weight, the sign and the groups of four digits of a numeric on the wire, without zeros around them.
fn digits(raw: &[u8]) -> Option<(i32, u16, Vec<u16>)> {
    let mut words = raw.chunks_exact(2).map(|word| u16::from_be_bytes([word[0], word[1]]));
    let (_, weight, sign, _) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let groups: Vec<u16> = words.collect();
    let first = groups.iter().position(|group| *group != 0).unwrap_or(groups.len());
    let last = groups.iter().rposition(|group| *group != 0).map_or(first, |last| last + 1);
    if first == last {
        return Some((0, sign, Vec::new()));
    }
    let leading = i32::try_from(first).ok()?;
    Some((i32::from(weight.cast_signed()) - leading, sign, groups[first..last].to_vec()))
}

#[cfg(test)]
mod tests {
    use farthing_core::meter::{TierType, TokenBasis};

    use super::*;

    #[test]
    fn a_decimal_is_read_from_a_numeric_column_as_it_was_written() {
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
            decimal.to_sql(&Type::NUMERIC, &mut wire).unwrap();
            let read = Decimal::from_sql(&Type::NUMERIC, &wire).unwrap();
            assert_eq!(read.normalize().to_string(), text);
            assert_eq!(Exact::from_sql(&Type::NUMERIC, &wire).unwrap().0, decimal);
        }
    }

    /// A numeric of Postgres with ten fractional digits: groups of four digits, of which so many stand before the point.
    fn numeric(before: i16, groups: &[u16]) -> Vec<u8> {
        let count = u16::try_from(groups.len()).unwrap();
        let head = [count.to_be_bytes(), (before - 1).to_be_bytes(), [0, 0], 10_u16.to_be_bytes()];
        head.into_iter().chain(groups.iter().map(|group| group.to_be_bytes())).flatten().collect()
    }

    #[test]
    fn a_numeric_with_too_many_digits_is_refused_and_not_rounded() {
        let exact =
            |wire: &[u8]| Exact::from_sql(&Type::NUMERIC, wire).map(|exact| exact.0.normalize().to_string());
        // 9 * 10^20, which Postgres writes with ten zeros after the point.
        assert_eq!(exact(&numeric(6, &[9])).unwrap(), "900000000000000000000");
        assert_eq!(exact(&numeric(5, &[7, 0, 0, 0, 0, 5000])).unwrap(), "70000000000000000.5");
        assert_eq!(exact(&numeric(5, &[7, 0, 0, 0, 0, 0, 0, 100])).unwrap(), "70000000000000000.0000000001");
        let rounded = numeric(6, &[9, 0, 0, 0, 0, 0, 0, 0, 100]);
        assert!(Decimal::from_sql(&Type::NUMERIC, &rounded).is_ok());
        let error = exact(&rounded).unwrap_err();
        assert_eq!(error.to_string(), "the number has more than 28 digits");
    }

    #[test]
    fn a_numeric_that_is_not_a_number_is_refused() {
        let nan = [0, 0, 0, 0, 0xC0, 0, 0, 0];
        assert!(Decimal::from_sql(&Type::NUMERIC, &nan).is_err());
        assert!(Decimal::from_sql(&Type::NUMERIC, &[0, 1]).is_err());
        assert!(Wide::from_sql(&Type::NUMERIC, &nan).is_err());
        assert!(Wide::from_sql(&Type::NUMERIC, &[0, 1]).is_err());
    }

    #[test]
    fn a_sum_is_read_with_all_its_digits() {
        let text_of = |wire: &[u8]| Wide::from_sql(&Type::NUMERIC, wire).map(|sum| sum.0.to_string());
        assert_eq!(text_of(&numeric(6, &[9])).unwrap(), "900000000000000000000.0000000000");
        let large = numeric(6, &[9, 0, 0, 0, 0, 0, 0, 0, 100]);
        assert_eq!(text_of(&large).unwrap(), "900000000000000000000.0000000001");
        let mut negative = large;
        negative[4] = 0x40;
        assert_eq!(text_of(&negative).unwrap(), "-900000000000000000000.0000000001");
        let largest = numeric(7, &[9999, 9999, 9999, 9999, 9999, 9999, 9999, 9999, 9999, 9900]);
        assert_eq!(text_of(&largest).unwrap(), "9999999999999999999999999999.9999999999");
        for text in ["0", "-1", "10000", "0.0001", "-0.0000000001", "1000000000000", "12345.0123456789"] {
            let decimal = Decimal::from_str_exact(text).unwrap();
            let mut wire = BytesMut::new();
            decimal.to_sql(&Type::NUMERIC, &mut wire).unwrap();
            assert_eq!(text_of(&wire).unwrap(), format!("{decimal:.10}"));
        }
        for too_long in [numeric(8, &[2]), numeric(i16::MAX, &[1]), numeric(1, &[1, 0, 0, 1])] {
            text_of(&too_long).unwrap_err();
        }
    }

    #[test]
    fn a_variant_is_written_by_its_name_in_the_log() {
        assert_eq!(variant_name(TierType::Tokens1m), "tokens_1m");
        assert_eq!(variant_name(TokenBasis::InputOutput), "input+output");
        let mut wire = BytesMut::new();
        variant(TierType::Tokens1m).to_sql(&Type::TEXT, &mut wire).unwrap();
        Text(12).to_sql(&Type::TEXT, &mut wire).unwrap();
        assert_eq!(wire[..], b"tokens_1m12"[..]);
    }

    #[test]
    fn only_zero_is_left_out() {
        for zero in ["0", "0.0000000000", "-0"] {
            assert_eq!(nonzero(zero.parse().unwrap()), None, "{zero}");
        }
        for other in ["0.0000000001", "-0.0000000001", "1"] {
            assert_eq!(nonzero(other.parse().unwrap()), Some(other.parse().unwrap()));
        }
    }

    #[test]
    fn no_nul_reaches_a_column() {
        assert_eq!(storable("a\0b"), "a\u{FFFD}b");
        assert_eq!(json(&"a\0b\\u0000\\\0"), "\"a\u{FFFD}b\\\\u0000\\\\\u{FFFD}\"");
    }
}
