//! A JSON document whose members keep their order.
//!
//! The order of a schema's properties is the order in which a model writes them, so it is carried over. A document is
//! refused if an object has a member twice: two readers could take different ones.

use std::cell::Cell;
use std::fmt;

use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use serde_json::Number;

/// The most values of a document, which bounds its memory. Depth is bounded by `serde_json`, at 128.
const MAX_VALUES: u32 = 1_000_000;

/// From here on, a number has no 64-bit integer, and digits of it would be lost.
const TOO_LARGE_TO_BE_EXACT: f64 = 18_446_744_073_709_551_616.0;

/// The values that further documents of one conversion may have: arguments of calls are documents within texts.
#[derive(Debug)]
pub(crate) struct ValuesLeft(Cell<u32>);

impl Default for ValuesLeft {
    fn default() -> Self {
        Self(Cell::new(MAX_VALUES))
    }
}

/// The members of an object in their order.
pub(crate) type Members = Vec<(String, Json)>;

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Json>),
    Object(Members),
}

impl Json {
    /// Parses a whole document. The error says what is wrong, and where.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        Self::parse_within(bytes, &ValuesLeft::default())
    }

    /// As [`Self::parse`], for one of several documents that may have so many values together.
    pub(crate) fn parse_within(bytes: &[u8], left: &ValuesLeft) -> Result<Self, String> {
        let mut deserializer = serde_json::Deserializer::from_slice(bytes);
        let document = Document { values_left: &left.0 }.deserialize(&mut deserializer);
        let document = document.map_err(|error| error.to_string())?;
        deserializer.end().map_err(|error| error.to_string())?;
        Ok(document)
    }

    /// The document as text.
    pub(crate) fn to_text(&self) -> String {
        serde_json::to_string(self).expect("a JSON value is written to memory")
    }

    /// The member of an object.
    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        let Self::Object(members) = self else { return None };
        members.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// The text of a string.
    pub(crate) fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// The value of a whole number.
    pub(crate) fn as_unsigned(&self) -> Option<u64> {
        if let Self::Number(number) = self { number.as_u64() } else { None }
    }

    /// Whether the value is an object.
    pub(crate) fn is_object(&self) -> bool {
        matches!(self, Self::Object(_))
    }
}

/// Builds an object member by member.
#[derive(Debug, Default)]
pub(crate) struct ObjectBuilder(Members);

impl ObjectBuilder {
    /// Adds a member.
    pub(crate) fn with(mut self, name: &str, value: impl Into<Json>) -> Self {
        self.set(name, value);
        self
    }

    /// Adds a member if it has a value.
    pub(crate) fn with_some(mut self, name: &str, value: Option<impl Into<Json>>) -> Self {
        if let Some(value) = value {
            self.set(name, value);
        }
        self
    }

    /// Adds a member.
    pub(crate) fn set(&mut self, name: &str, value: impl Into<Json>) {
        self.0.push((name.to_owned(), value.into()));
    }

    /// Whether it has no members.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// An object with the given members, as `object! { "type": "text", "text": text }`.
macro_rules! object {
    ($($name:literal : $value:expr),* $(,)?) => {
        $crate::json::Json::Object(vec![$(($name.to_owned(), $crate::json::Json::from($value))),*])
    };
}
pub(crate) use object;

impl From<ObjectBuilder> for Json {
    fn from(object: ObjectBuilder) -> Self {
        Self::Object(object.0)
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Json {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<bool> for Json {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<u64> for Json {
    fn from(value: u64) -> Self {
        Self::Number(value.into())
    }
}

impl From<Number> for Json {
    fn from(value: Number) -> Self {
        Self::Number(value)
    }
}

impl From<Vec<Json>> for Json {
    fn from(values: Vec<Json>) -> Self {
        Self::List(values)
    }
}

impl<T: Into<Json>> From<Option<T>> for Json {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Number(number) => number.serialize(serializer),
            Self::Text(text) => serializer.serialize_str(text),
            Self::List(values) => {
                let mut list = serializer.serialize_seq(Some(values.len()))?;
                for value in values {
                    list.serialize_element(value)?;
                }
                list.end()
            }
            Self::Object(members) => {
                let mut map = serializer.serialize_map(Some(members.len()))?;
                for (name, value) in members {
                    map.serialize_entry(name, value)?;
                }
                map.end()
            }
        }
    }
}

/// Reads a value, and counts it.
#[derive(Clone, Copy)]
struct Document<'a> {
    values_left: &'a Cell<u32>,
}

impl<'de> DeserializeSeed<'de> for Document<'_> {
    type Value = Json;

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<Json, D::Error> {
        let left = self.values_left.get().checked_sub(1);
        let left = left.ok_or_else(|| de::Error::custom(format!("more than {MAX_VALUES} values")))?;
        self.values_left.set(left);
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Document<'_> {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Json, E> {
        let number = Number::from_f64(value).filter(|_| value.abs() < TOO_LARGE_TO_BE_EXACT);
        number.map(Json::Number).ok_or_else(|| E::custom("a number is too large to be carried over exactly"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json, E> {
        Ok(Json::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Json, E> {
        Ok(Json::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Json, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element_seed(self)? {
            values.push(value);
        }
        Ok(Json::List(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut members = Members::new();
        while let Some(name) = map.next_key::<String>()? {
            members.push((name, map.next_value_seed(self)?));
        }
        let mut names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        if let Some([twice, ..]) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(de::Error::custom(format!("the member `{twice}` is there twice")));
        }
        Ok(Json::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Json, String> {
        Json::parse(text.as_bytes())
    }

    #[test]
    fn members_keep_their_order_and_numbers_their_value() {
        for text in [
            r#"{"b":1,"a":[null,true,"\u0001"],"c":{}}"#,
            "[18446744073709551615,-9223372036854775808,0.1,1.7976931348623155]",
            r#""text""#,
        ] {
            assert_eq!(parse(text).unwrap().to_text(), text);
        }
    }

    #[test]
    fn a_member_that_is_there_twice_is_refused_at_any_depth() {
        for text in [r#"{"a":1,"a":1}"#, r#"[{"x":{"a":1,"b":2,"\u0061":3}}]"#] {
            assert!(parse(text).unwrap_err().contains("`a` is there twice"), "{text}");
        }
    }

    #[test]
    fn a_document_that_is_too_deep_or_has_too_many_values_is_refused() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        assert!(parse(&deep).unwrap_err().contains("recursion limit"));
        let many = format!("[{}0]", "0,".repeat(MAX_VALUES as usize));
        assert!(parse(&many).unwrap_err().contains("more than 1000000 values"));
    }

    #[test]
    fn what_is_no_json_or_would_lose_digits_is_refused() {
        for text in ["", "{", "{}{}", "nul", "[1,]", "1e400", "123456789012345678901234567890", "\"\u{1}\""] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(Json::parse(b"\"\xff\"").is_err());
    }
}
