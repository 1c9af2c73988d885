//! Conversions of domain values into columns. Invariant: exact decimals stay exact, and no text is written
//! that Postgres refuses.

use std::error::Error as StdError;
use std::fmt;

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

/// The name of a variant, as it is written in the log.
pub(crate) fn variant_name<T: Serialize>(variant: T) -> String {
    struct Name<T>(T);

    impl<T: Serialize> fmt::Display for Name<T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.serialize(f)
        }
    }

    Name(variant).to_string()
}

#[cfg(test)]
mod tests {
    use farthing_core::meter::{TierType, TokenBasis};
    use rust_decimal::Decimal;

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
        }
    }

    #[test]
    fn a_numeric_that_is_not_a_number_is_refused() {
        let nan = [0, 0, 0, 0, 0xC0, 0, 0, 0];
        assert!(Decimal::from_sql(&Type::NUMERIC, &nan).is_err());
        assert!(Decimal::from_sql(&Type::NUMERIC, &[0, 1]).is_err());
    }

    #[test]
    fn a_variant_is_written_by_its_name_in_the_log() {
        assert_eq!(variant_name(TierType::Tokens1m), "tokens_1m");
        assert_eq!(variant_name(TokenBasis::InputOutput), "input+output");
    }

    #[test]
    fn no_nul_reaches_a_column() {
        assert_eq!(storable("a\0b"), "a\u{FFFD}b");
        assert_eq!(json(&"a\0b\\u0000\\\0"), "\"a\u{FFFD}b\\\\u0000\\\\\u{FFFD}\"");
    }
}
