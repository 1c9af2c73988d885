//! The serde deserializer of a [`Node`]. It words type errors as the interface does, locates each problem, and marks
//! the member or item that caused it, which later passes skip.

use std::fmt;

use serde::de::value::StringDeserializer;
use serde::de::{self, DeserializeSeed, Deserializer, IntoDeserializer as _, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;

use super::node::{Items, Members, Node, Value};

/// Why a pass stopped.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// An issue that no earlier pass found.
    New {
        /// Names and indices, the innermost first.
        path: Vec<String>,
        message: String,
        /// Whether the value that caused it is skipped from now on.
        skipped: bool,
    },
    /// A required member is absent; serde says so at the end of an object.
    Missing(&'static str),
    /// An object lacks a required member because the member is skipped. Its issue was noted before.
    Known {
        /// Whether the object is skipped from now on.
        skipped: bool,
    },
}

impl Problem {
    fn new(message: impl Into<String>) -> Self {
        Self::New { path: Vec::new(), message: message.into(), skipped: false }
    }

    /// The same problem with the path of the object or list around it. `skip` marks the value there as skipped.
    fn within(self, part: impl Into<String>, skip: impl FnOnce()) -> Self {
        match self {
            Self::New { mut path, message, skipped } => {
                if !skipped {
                    skip();
                }
                path.push(part.into());
                Self::New { path, message, skipped: true }
            }
            Self::Known { skipped } => {
                if !skipped {
                    skip();
                }
                Self::Known { skipped: true }
            }
            Self::Missing(_) => Self::new(REQUIRED).within(part, skip),
        }
    }

    /// Adds the path of an absent member in its object, unless its issue was noted before.
    fn missing_in(self, members: &Members<'_>) -> Self {
        match self {
            Self::Missing(name) if members.skip(name) => {
                Self::New { path: vec![name.to_owned()], message: REQUIRED.to_owned(), skipped: true }
            }
            Self::Missing(_) => Self::Known { skipped: false },
            other @ (Self::New { .. } | Self::Known { .. }) => other,
        }
    }
}

const REQUIRED: &str = "is required";

/// The name by which [`super::Given`] asks for a value that may be absent but not `null`.
pub(super) const GIVEN: &str = "farthing::Given";

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::New { message, .. } => f.write_str(message),
            Self::Missing(_) | Self::Known { .. } => f.write_str(REQUIRED),
        }
    }
}

impl std::error::Error for Problem {}

impl de::Error for Problem {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message.to_string())
    }

    fn missing_field(field: &'static str) -> Self {
        Self::Missing(field)
    }

    fn unknown_variant(_variant: &str, expected: &'static [&'static str]) -> Self {
        Self::new(format!("must be one of: {}", expected.join(", ")))
    }
}

/// Reads one value.
pub(super) struct Reader<'n, 'a> {
    node: &'n Node<'a>,
    /// Whether an issue was found before. Absent members are then read as `null`, so that every required one is
    /// reported.
    searching: bool,
}

impl<'n, 'a> Reader<'n, 'a> {
    /// The reader of the first pass.
    pub(super) fn new(node: &'n Node<'a>) -> Self {
        Self { node, searching: false }
    }

    /// The reader of the passes after an issue was found.
    pub(super) fn searching(node: &'n Node<'a>) -> Self {
        Self { node, searching: true }
    }

    fn is_null(&self) -> bool {
        match self.node.value() {
            Value::Json(raw) => raw.get() == "null",
            Value::Absent => true,
            Value::Query | Value::Parameter(_) | Value::Repeated => false,
        }
    }

    /// The problem of a value of the wrong type; `otherwise` is the message unless the value is null or repeated.
    fn refused(&self, otherwise: &str) -> Problem {
        match self.node.value() {
            _ if self.is_null() => Problem::new(REQUIRED),
            Value::Repeated => Problem::new("must be given once"),
            Value::Json(_) | Value::Query | Value::Parameter(_) | Value::Absent => Problem::new(otherwise),
        }
    }

    fn string(&self) -> Result<String, Problem> {
        let text = match self.node.value() {
            Value::Json(raw) => serde_json::from_str(raw.get()).ok(),
            Value::Parameter(text) => Some(text.clone()),
            Value::Query | Value::Repeated | Value::Absent => None,
        };
        text.ok_or_else(|| self.refused("must be a string"))
    }
}

impl<'de> Deserializer<'de> for Reader<'_, 'de> {
    type Error = Problem;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        match self.node.value() {
            Value::Json(raw) if !self.is_null() => {
                let mut json = serde_json::Deserializer::from_str(raw.get());
                Deserializer::deserialize_any(&mut json, visitor).map_err(|_| self.refused("is not valid"))
            }
            Value::Json(_) | Value::Query | Value::Parameter(_) | Value::Repeated | Value::Absent => {
                Err(self.refused("is not valid"))
            }
        }
    }

    /// Reads a newtype struct. `serde_json` requests its `RawValue` as one, by a private name, so it reads the text
    /// itself.
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Problem> {
        if name == GIVEN {
            return match self.node.value() {
                Value::Absent => visitor.visit_none(),
                Value::Json(raw) if raw.get() == "null" => Err(Problem::new("must not be null")),
                Value::Json(_) | Value::Query | Value::Parameter(_) | Value::Repeated => {
                    visitor.visit_newtype_struct(self)
                }
            };
        }
        match self.node.value() {
            Value::Json(raw) if !self.is_null() => {
                let mut json = serde_json::Deserializer::from_str(raw.get());
                Deserializer::deserialize_newtype_struct(&mut json, name, visitor)
                    .map_err(|_| self.refused("is not valid"))
            }
            Value::Json(_) | Value::Query | Value::Parameter(_) | Value::Repeated | Value::Absent => {
                Err(self.refused("is not valid"))
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        if self.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        let written = match self.node.value() {
            Value::Json(raw) => serde_json::from_str(raw.get()).ok(),
            Value::Query | Value::Parameter(_) | Value::Repeated | Value::Absent => None,
        };
        visitor.visit_bool(written.ok_or_else(|| self.refused("must be true or false"))?)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        visitor.visit_string(self.string()?)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        visitor.visit_string(self.string()?)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        let variant: StringDeserializer<Problem> = self.string()?.into_deserializer();
        visitor.visit_enum(variant)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        let members = self.node.members().ok_or_else(|| self.refused("must be an object"))?;
        let access = FieldAccess { members, searching: self.searching, names: fields.iter(), current: None };
        visitor.visit_map(access).map_err(|problem| problem.missing_in(members))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        let members = self.node.members().ok_or_else(|| self.refused("must be an object"))?;
        visitor.visit_map(EntryAccess { members, entries: members.iter(), current: None })
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        let items = self.node.items().ok_or_else(|| self.refused("must be a list"))?;
        visitor.visit_seq(ItemAccess { items, searching: self.searching, next: 0 })
    }

    /// Reads several structs from the same object.
    fn deserialize_tuple<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, Problem> {
        visitor.visit_seq(SameNode(self))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct tuple_struct identifier
    }
}

/// The fields of a struct, in the order of their declaration.
struct FieldAccess<'n, 'a> {
    members: &'n Members<'a>,
    searching: bool,
    names: std::slice::Iter<'static, &'static str>,
    current: Option<&'static str>,
}

impl<'de> MapAccess<'de> for FieldAccess<'_, 'de> {
    type Error = Problem;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Problem> {
        let (members, searching) = (self.members, self.searching);
        let is_read = |name: &str| !members.is_skipped(name) && (searching || members.get(name).is_some());
        self.current = self.names.by_ref().copied().find(|name| is_read(name));
        self.current.map(|name| seed.deserialize(name.into_deserializer())).transpose()
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Problem> {
        let name = self.current.expect("a key comes before its value");
        let absent = Node::absent();
        let node = self.members.get(name).unwrap_or(&absent);
        let value = seed.deserialize(Reader { node, searching: self.searching });
        value.map_err(|problem| {
            problem.within(name, || {
                self.members.skip(name);
            })
        })
    }
}

/// All members of an object.
struct EntryAccess<'n, 'a, I> {
    members: &'n Members<'a>,
    entries: I,
    current: Option<(&'n String, &'n Node<'a>)>,
}

impl<'n, 'de, I: Iterator<Item = (&'n String, &'n Node<'de>)>> MapAccess<'de> for EntryAccess<'n, 'de, I> {
    type Error = Problem;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Problem> {
        self.current = self.entries.by_ref().find(|(name, _)| !self.members.is_skipped(name));
        let Some((name, _)) = self.current else { return Ok(None) };
        let key: StringDeserializer<Problem> = name.clone().into_deserializer();
        let key = seed.deserialize(key).map(Some);
        key.map_err(|problem| {
            problem.within(name, || {
                self.members.skip(name);
            })
        })
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Problem> {
        let (name, node) = self.current.expect("a key comes before its value");
        let value = seed.deserialize(Reader { node, searching: false });
        value.map_err(|problem| {
            problem.within(name, || {
                self.members.skip(name);
            })
        })
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.members.len())
    }
}

/// The items of a list.
struct ItemAccess<'n, 'a> {
    items: &'n Items<'a>,
    searching: bool,
    next: usize,
}

impl<'de> SeqAccess<'de> for ItemAccess<'_, 'de> {
    type Error = Problem;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Problem> {
        while self.items.is_skipped(self.next) {
            self.next += 1;
        }
        let index = self.next;
        let Some(node) = self.items.get(index) else { return Ok(None) };
        self.next += 1;
        let item = seed.deserialize(Reader { node, searching: self.searching }).map(Some);
        item.map_err(|problem| problem.within(index.to_string(), || self.items.skip(index)))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

/// The same value for each element of a tuple.
struct SameNode<'n, 'a>(Reader<'n, 'a>);

impl<'de> SeqAccess<'de> for SameNode<'_, 'de> {
    type Error = Problem;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Problem> {
        let Reader { node, searching } = self.0;
        seed.deserialize(Reader { node, searching }).map(Some)
    }
}
