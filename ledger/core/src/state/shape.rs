//! The shape of states, and their generation.
//!
//! The **shape** is the number of the form in which this program stores states. A state of an older shape is upcast when
//! it is read, like an event. The **generation** is the shape since which the same events fold to the same states. When a
//! fold changes, the states of an older generation cannot be read: a new one is built from the log beside it.

use serde_json::Value;

use crate::release::{self, Change};

/// The shape of this program's states. Increment it with every change of a stored form or of a fold. Changes between two
/// releases share one number.
const SHAPE: i16 = 3;

/// The generation of this program's states. Set it to the new [`SHAPE`] when the same events fold to other states than
/// before; when a stored form changes alone, add an upcast to [`UPCASTS`] instead.
const GENERATION: i16 = 3;

/// A change of the stored form of a kind of states.
struct Upcast {
    /// The shape that it leads to.
    to: i16,
    /// The kind, as it is stored.
    kind: &'static str,
    /// Changes a state of the shape before.
    change: fn(Value) -> Value,
}

/// The changes of stored forms since [`GENERATION`], in the order of their shapes.
const UPCASTS: &[Upcast] = &[];

/// The change of the next release in tests: a wallet is stored within an object.
const NEXT_FORM: &[Upcast] =
    &[Upcast { to: SHAPE + 1, kind: "wallet", change: |wallet| serde_json::json!({ "wallet": wallet }) }];

/// The shape in which this program stores states.
pub fn shape() -> i16 {
    if release::next().is_some() { SHAPE + 1 } else { SHAPE }
}

/// The generation of the states that this program keeps.
pub fn generation() -> i16 {
    if release::next() == Some(Change::Fold) { SHAPE + 1 } else { GENERATION }
}

/// A stored state of an older `shape`, in this program's shape; `None` if it is in this program's shape already. One of
/// a newer shape is read as it is: whether it can be, its own members decide.
pub(super) fn upcast(kind: &str, shape: i16, json: &str) -> Result<Option<Value>, serde_json::Error> {
    let of_tests = if release::next() == Some(Change::Form) { NEXT_FORM } else { &[] };
    upcast_by(UPCASTS.iter().chain(of_tests), kind, shape, json)
}

fn upcast_by<'a>(
    upcasts: impl Iterator<Item = &'a Upcast>,
    kind: &str,
    shape: i16,
    json: &str,
) -> Result<Option<Value>, serde_json::Error> {
    let mut upcasts = upcasts.filter(|upcast| upcast.kind == kind && upcast.to > shape).peekable();
    if upcasts.peek().is_none() {
        return Ok(None);
    }
    let state = serde_json::from_str(json)?;
    Ok(Some(upcasts.fold(state, |state, upcast| (upcast.change)(state))))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const CHANGES: [Upcast; 3] = [
        Upcast { to: 4, kind: "wallet", change: |wallet| json!({ "first": wallet }) },
        Upcast { to: 5, kind: "meter", change: |_| Value::Null },
        Upcast { to: 6, kind: "wallet", change: |wallet| json!({ "second": wallet }) },
    ];

    fn read(kind: &str, shape: i16) -> Option<Value> {
        upcast_by(CHANGES.iter(), kind, shape, "7").unwrap()
    }

    #[test]
    fn a_state_goes_through_every_change_of_its_kind_since_its_shape() {
        assert_eq!(read("wallet", 3), Some(json!({"second": {"first": 7}})));
        assert_eq!(read("wallet", 4), Some(json!({"second": 7})));
        assert_eq!(read("wallet", 5), Some(json!({"second": 7})));
        assert_eq!(read("wallet", 6), None);
        assert_eq!(read("wallet", 7), None, "a newer one is read as it is");
        assert_eq!((read("meter", 4), read("meter", 5)), (Some(Value::Null), None));
        assert_eq!(read("plan", 1), None);
    }

    #[test]
    fn every_change_follows_the_generation_and_leads_to_a_shape_of_this_program() {
        const { assert!(GENERATION <= SHAPE) };
        assert!(UPCASTS.is_sorted_by_key(|upcast| upcast.to));
        let (after, last) = (GENERATION, SHAPE);
        assert!(UPCASTS.iter().all(|upcast| after < upcast.to && upcast.to <= last));
    }
}
