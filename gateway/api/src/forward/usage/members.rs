//! Reads an object of a request body in one pass, whatever its members are called. Pure.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::any_case::first_read_as;

/// The most members of an object that is read. Reading one costs much more than its bytes do, and no format has nearly as many.
pub(crate) const MAX_MEMBERS: usize = 10_000;

/// A member whose name may be read as a known one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member<'a> {
    /// The known name.
    pub(super) name: &'static str,
    /// Whether it has exactly this spelling.
    pub(super) is_exact: bool,
    /// Its value.
    pub(super) value: &'a RawValue,
}

/// The members of an object.
#[derive(Debug, Default)]
pub(super) struct Members<'a> {
    /// Those that are known, in their order, repeated ones included.
    pub(super) known: Vec<Member<'a>>,
    /// The number of all of them.
    pub(super) count: usize,
}

/// Why an object is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unread {
    /// It is no JSON object.
    NoObject,
    /// It has more than [`MAX_MEMBERS`].
    TooManyMembers,
}

/// Reads the members of a JSON object, and keeps those whose names may be read as one of `names`.
pub(super) fn read_members<'a>(json: &'a str, names: &[&'static str]) -> Result<Members<'a>, Unread> {
    let mut members = Members::default();
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let read = deserializer.deserialize_map(Reader { members: &mut members, names });
    match read.and_then(|()| deserializer.end()) {
        Ok(()) => Ok(members),
        Err(_) if members.count > MAX_MEMBERS => Err(Unread::TooManyMembers),
        Err(_) => Err(Unread::NoObject),
    }
}

struct Reader<'r, 'a> {
    members: &'r mut Members<'a>,
    names: &'r [&'static str],
}

impl<'de> Visitor<'de> for Reader<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(known) = map.next_key_seed(Name { names: self.names })? {
            self.members.count += 1;
            if self.members.count > MAX_MEMBERS {
                return Err(A::Error::custom("too many members"));
            }
            match known {
                Some((name, is_exact)) => {
                    let value = map.next_value()?;
                    self.members.known.push(Member { name, is_exact, value });
                }
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// A name that may be known. It is not kept.
struct Name<'r> {
    names: &'r [&'static str],
}

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = Option<(&'static str, bool)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = Option<(&'static str, bool)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, given: &str) -> Result<Self::Value, E> {
        #[cfg(test)]
        tests::NAMES_READ.set(tests::NAMES_READ.get() + 1);
        Ok(first_read_as(given, self.names).map(|name| (name, given == name)))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        /// The names of members that this thread has read.
        pub(in super::super) static NAMES_READ: Cell<usize> = const { Cell::new(0) };
    }

    fn known(json: &str) -> Vec<(&'static str, bool, &str)> {
        let members = read_members(json, &["model", "n"]).unwrap();
        members.known.iter().map(|member| (member.name, member.is_exact, member.value.get())).collect()
    }

    #[test]
    fn known_members_are_kept_in_their_order_however_they_are_spelled() {
        let json = r#"{"n":1,"x":[{"n":9}],"Model" : "a","\u006e":2,"model":{"n":3},"":null}"#;
        let expected =
            [("n", true, "1"), ("model", false, "\"a\""), ("n", true, "2"), ("model", true, r#"{"n":3}"#)];
        assert_eq!(known(json), expected);
        assert_eq!(read_members(json, &["n"]).unwrap().count, 6);
        assert!(known("{}").is_empty());
    }

    #[test]
    fn what_is_no_object_is_not_read() {
        for json in ["", "[]", "1", "null", "{", "{} {}", r#"{"n":}"#, r#"{"\ud800":1}"#, r#"{"n":1,}"#] {
            let count = read_members(json, &["n"]).map(|members| members.count);
            assert_eq!(count, Err(Unread::NoObject), "{json}");
        }
    }

    #[test]
    fn an_object_of_too_many_members_is_read_no_further() {
        let of = |members: usize| {
            let json = format!("{{{}}}", vec![r#""":0"#; members].join(","));
            let before = NAMES_READ.get();
            let count = read_members(&json, &["n"]).map(|members| members.count);
            (count, NAMES_READ.get() - before)
        };
        assert_eq!(of(MAX_MEMBERS), (Ok(MAX_MEMBERS), MAX_MEMBERS));
        assert_eq!(of(52_000), (Err(Unread::TooManyMembers), MAX_MEMBERS + 1));
    }
}
