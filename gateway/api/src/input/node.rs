//! The input as a tree of values, with the values to skip. Objects and lists are parsed once, when they are
//! first read.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// One value of the input. An input may have very many, so a node is small until its members or items are read.
pub(super) struct Node<'a> {
    value: Value<'a>,
    members: OnceCell<Option<Box<Members<'a>>>>,
    items: OnceCell<Option<Box<Items<'a>>>>,
}

/// The source of a value.
#[derive(Clone)]
pub(super) enum Value<'a> {
    /// A JSON text.
    Json(&'a RawValue),
    /// The whole query.
    Query,
    /// A query parameter that occurs once.
    Parameter(String),
    /// A query parameter that occurs several times.
    Repeated,
    /// An absent member.
    Absent,
}

/// The members of an object. Of members with the same name, the last counts.
pub(super) struct Members<'a> {
    /// In the order of their names, each name once.
    nodes: Vec<(String, Node<'a>)>,
    /// A name that occurs several times.
    repeated: Option<String>,
    skipped: RefCell<BTreeSet<String>>,
}

/// The items of a list.
pub(super) struct Items<'a> {
    raw: Vec<&'a RawValue>,
    /// Made when the first item is read, so that a list that is refused for its length needs none.
    nodes: OnceCell<Vec<Node<'a>>>,
    skipped: RefCell<BTreeSet<usize>>,
}

impl<'a> Node<'a> {
    pub(super) fn json(raw: &'a RawValue) -> Self {
        Self::of(Value::Json(raw))
    }

    pub(super) fn absent() -> Self {
        Self::of(Value::Absent)
    }

    /// The object of a query's parameters.
    pub(super) fn query(pairs: Vec<(String, String)>) -> Self {
        let mut pairs: Vec<_> =
            pairs.into_iter().map(|(name, value)| (name, Value::Parameter(value))).collect();
        pairs.sort_by(|(one, _), (other, _)| one.cmp(other));
        pairs.dedup_by(|(later, _), (kept, value)| {
            let is_repeated = later == kept;
            if is_repeated {
                *value = Value::Repeated;
            }
            is_repeated
        });
        let nodes = pairs.into_iter().map(|(name, value)| (name, Self::of(value))).collect();
        let node = Self::of(Value::Query);
        let members =
            node.members.set(Some(Box::new(Members { nodes, repeated: None, skipped: RefCell::default() })));
        debug_assert!(members.is_ok(), "the cell is new");
        node
    }

    fn of(value: Value<'a>) -> Self {
        Self { value, members: OnceCell::new(), items: OnceCell::new() }
    }

    pub(super) fn value(&self) -> &Value<'a> {
        &self.value
    }

    /// The members, if this is an object.
    pub(super) fn members(&self) -> Option<&Members<'a>> {
        let parse = || {
            let Value::Json(raw) = self.value else { return None };
            serde_json::from_str(raw.get()).ok().map(Box::new)
        };
        self.members.get_or_init(parse).as_deref()
    }

    /// The items, if this is a list.
    pub(super) fn items(&self) -> Option<&Items<'a>> {
        let parse = || {
            let Value::Json(raw) = self.value else { return None };
            let raw = serde_json::from_str(raw.get()).ok()?;
            Some(Box::new(Items { raw, nodes: OnceCell::new(), skipped: RefCell::default() }))
        };
        self.items.get_or_init(parse).as_deref()
    }
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Vec<(String, Node<'de>)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
                let mut nodes = Vec::new();
                while let Some((name, raw)) = members.next_entry()? {
                    nodes.push((name, Node::json(raw)));
                }
                Ok(nodes)
            }
        }

        let mut nodes = deserializer.deserialize_map(Object)?;
        // The sort is stable: after the reversal, the last member of a name comes first and is kept.
        nodes.reverse();
        nodes.sort_by(|(one, _), (other, _)| one.cmp(other));
        let mut repeated = None;
        nodes.dedup_by(|(later, _), (kept, _)| {
            let is_repeated = later == kept;
            if is_repeated && repeated.is_none() {
                repeated = Some(kept.clone());
            }
            is_repeated
        });
        Ok(Self { nodes, repeated, skipped: RefCell::default() })
    }
}

impl<'a> Members<'a> {
    pub(super) fn get(&self, name: &str) -> Option<&Node<'a>> {
        let index = self.nodes.binary_search_by(|(known, _)| known.as_str().cmp(name)).ok()?;
        self.nodes.get(index).map(|(_, node)| node)
    }

    /// A name that occurs several times.
    pub(super) fn repeated(&self) -> Option<&str> {
        self.repeated.as_deref()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &Node<'a>)> {
        self.nodes.iter().map(|(name, node)| (name, node))
    }

    /// The number of members, skipped ones included.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Skips the member `name` from now on. Returns whether it was not skipped before.
    pub(super) fn skip(&self, name: &str) -> bool {
        self.skipped.borrow_mut().insert(name.to_owned())
    }

    pub(super) fn is_skipped(&self, name: &str) -> bool {
        self.skipped.borrow().contains(name)
    }
}

impl<'a> Items<'a> {
    pub(super) fn get(&self, index: usize) -> Option<&Node<'a>> {
        let nodes = self.nodes.get_or_init(|| self.raw.iter().copied().map(Node::json).collect());
        nodes.get(index)
    }

    /// The number of items, skipped ones included.
    pub(super) fn len(&self) -> usize {
        self.raw.len()
    }

    /// Skips the item at `index` from now on.
    pub(super) fn skip(&self, index: usize) {
        self.skipped.borrow_mut().insert(index);
    }

    pub(super) fn is_skipped(&self, index: usize) -> bool {
        self.skipped.borrow().contains(&index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_of_many_values_needs_little_memory() {
        assert!(size_of::<Node<'_>>() <= 64, "{} bytes", size_of::<Node<'_>>());
        let json: Box<RawValue> = serde_json::from_str("[7,7,7]").unwrap();
        let list = Node::json(&json);
        let items = list.items().unwrap();
        assert_eq!((items.len(), items.nodes.get().is_none()), (3, true), "the length needs no nodes");
        assert!(items.get(2).is_some() && items.get(3).is_none());
    }

    #[test]
    fn members_are_found_by_name_and_the_last_of_a_name_counts() {
        let json: Box<RawValue> = serde_json::from_str(r#"{"b":1,"a":2,"b":3,"\u0063":4}"#).unwrap();
        let object = Node::json(&json);
        let members = object.members().unwrap();
        let found = |name: &str| match members.get(name)?.value() {
            Value::Json(raw) => Some(raw.get()),
            Value::Query | Value::Parameter(_) | Value::Repeated | Value::Absent => None,
        };
        assert_eq!(["a", "b", "c", "d"].map(found), [Some("2"), Some("3"), Some("4"), None]);
        assert_eq!((members.len(), members.repeated()), (3, Some("b")));
    }
}
