//! The input as a tree of values, with the values to skip. Objects and lists are parsed once, when they are
//! first read.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use serde_json::value::RawValue;

/// One value of the input.
pub(super) struct Node<'a> {
    value: Value<'a>,
    members: OnceCell<Option<Members<'a>>>,
    items: OnceCell<Option<Items<'a>>>,
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
    nodes: BTreeMap<String, Node<'a>>,
    skipped: RefCell<BTreeSet<String>>,
}

/// The items of a list.
pub(super) struct Items<'a> {
    nodes: Vec<Node<'a>>,
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
        let mut nodes = BTreeMap::new();
        for (name, value) in pairs {
            let value = if nodes.contains_key(&name) { Value::Repeated } else { Value::Parameter(value) };
            nodes.insert(name, Self::of(value));
        }
        let node = Self::of(Value::Query);
        let members = node.members.set(Some(Members { nodes, skipped: RefCell::default() }));
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
            let members: BTreeMap<String, &RawValue> = serde_json::from_str(raw.get()).ok()?;
            let nodes = members.into_iter().map(|(name, raw)| (name, Node::json(raw))).collect();
            Some(Members { nodes, skipped: RefCell::default() })
        };
        self.members.get_or_init(parse).as_ref()
    }

    /// The items, if this is a list.
    pub(super) fn items(&self) -> Option<&Items<'a>> {
        let parse = || {
            let Value::Json(raw) = self.value else { return None };
            let items: Vec<&RawValue> = serde_json::from_str(raw.get()).ok()?;
            Some(Items { nodes: items.into_iter().map(Node::json).collect(), skipped: RefCell::default() })
        };
        self.items.get_or_init(parse).as_ref()
    }
}

impl<'a> Members<'a> {
    pub(super) fn get(&self, name: &str) -> Option<&Node<'a>> {
        self.nodes.get(name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &Node<'a>)> {
        self.nodes.iter()
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
        self.nodes.get(index)
    }

    /// The number of items, skipped ones included.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Skips the item at `index` from now on.
    pub(super) fn skip(&self, index: usize) {
        self.skipped.borrow_mut().insert(index);
    }

    pub(super) fn is_skipped(&self, index: usize) -> bool {
        self.skipped.borrow().contains(&index)
    }
}
