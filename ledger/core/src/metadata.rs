//! The metadata of customers: free key-value pairs whose values are strings, numbers or booleans (completion.md section
//! 10). The metadata of requests are strings alone.
//!
//! Events and commands hold every value as text, and beside it the keys of those that are JSON literals: that way a
//! number keeps its digits, and no float is made of it.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Error as _, Serialize, Serializer};
use serde_json::value::RawValue;

/// A value of a customer's metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetadataValue {
    /// A string.
    Text(String),
    /// A number or a boolean, as JSON has it.
    Literal(String),
}

impl MetadataValue {
    /// The value of a JSON number, `true` or `false`, in its own digits.
    pub fn literal(written: &str) -> Option<Self> {
        let is_literal = serde_json::from_str::<bool>(written).is_ok()
            || (serde_json::from_str::<&RawValue>(written).is_ok()
                && written.starts_with(|first: char| first == '-' || first.is_ascii_digit()));
        (is_literal && written.trim() == written).then(|| Self::Literal(written.to_owned()))
    }
}

impl Serialize for MetadataValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Literal(written) => {
                RawValue::from_string(written.clone()).map_err(S::Error::custom)?.serialize(serializer)
            }
        }
    }
}

impl<'de> Deserialize<'de> for MetadataValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        if raw.get().starts_with('"') {
            return serde_json::from_str(raw.get()).map(Self::Text).map_err(D::Error::custom);
        }
        Self::literal(raw.get()).ok_or_else(|| D::Error::custom("must be a string, a number or a boolean"))
    }
}

/// The values by their keys.
pub type Metadata = BTreeMap<String, MetadataValue>;

/// The texts of all values, and the keys of those that are literals, as events and commands hold them.
pub fn split(metadata: Metadata) -> (BTreeMap<String, String>, BTreeSet<String>) {
    let (mut texts, mut literals) = (BTreeMap::new(), BTreeSet::new());
    for (key, value) in metadata {
        let text = match value {
            MetadataValue::Text(text) => text,
            MetadataValue::Literal(written) => {
                literals.insert(key.clone());
                written
            }
        };
        texts.insert(key, text);
    }
    (texts, literals)
}

/// The values of an event or a command. A text that is no literal, though its key is listed, stays a string.
pub fn join(texts: &BTreeMap<String, String>, literals: &BTreeSet<String>) -> Metadata {
    let value = |(key, text): (&String, &String)| {
        let literal = literals.contains(key).then(|| MetadataValue::literal(text)).flatten();
        (key.clone(), literal.unwrap_or_else(|| MetadataValue::Text(text.clone())))
    };
    texts.iter().map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_written_as_it_was_read() {
        let json = r#"{"a":"1.50","b":1.50,"c":true,"d":-0,"e":123456789012345678901234567890,"f":1e400,"g":"true"}"#;
        let metadata: Metadata = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&metadata).unwrap(), json);
        let (texts, literals) = split(metadata.clone());
        assert_eq!(literals.iter().map(String::as_str).collect::<Vec<_>>(), ["b", "c", "d", "e", "f"]);
        assert_eq!((texts["a"].as_str(), texts["b"].as_str()), ("1.50", "1.50"));
        assert_eq!(join(&texts, &literals), metadata);
    }

    #[test]
    fn nothing_but_strings_numbers_and_booleans_is_a_value() {
        for json in ["null", "[]", "{}", "[1]"] {
            assert!(serde_json::from_str::<MetadataValue>(json).is_err(), "{json}");
        }
        for written in ["null", "\"x\"", "", " 1", "1 ", "01", "1.", "+1", "NaN", "truey", "1]"] {
            assert_eq!(MetadataValue::literal(written), None, "{written:?}");
        }
    }
}
