//! The written form of an event in the log, and [`area!`], which declares the events of an area.
//!
//! Adding an optional field keeps a version. Any other change is a new version: the old struct is frozen in the file of
//! its area, and [`Kind::read`] lifts it to the present one.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Event;
use crate::money;

/// An event that this program cannot read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A kind that this program does not know.
    #[error("event kind {0:?} is unknown")]
    UnknownKind(String),
    /// A version of a known kind that this program does not know.
    #[error("version {version} of event kind {kind:?} is unknown")]
    UnknownVersion {
        /// The kind.
        kind: &'static str,
        /// The version found.
        version: i32,
    },
    /// The body does not have the shape of its kind and version.
    #[error("body of {kind:?} version {version}: {source}")]
    Body {
        /// The kind.
        kind: &'static str,
        /// The version found.
        version: i32,
        /// The error of serde.
        source: serde_json::Error,
    },
    /// The parts of an amount of money add up to none.
    #[error("body of {kind:?}: the sum of its parts {source}")]
    Parts {
        /// The kind.
        kind: String,
        /// What is wrong with the sum.
        source: money::Error,
    },
}

/// A kind of event: its name in the log and the version it is written in today.
pub(super) trait Kind: Serialize + DeserializeOwned {
    /// The name in the log.
    const NAME: &'static str;
    /// The version written today.
    const VERSION: i32 = 1;

    /// Reads a body of any version ever written, lifting old ones to today's shape.
    fn read(version: i32, body: &str) -> Result<Self, Error> {
        if version != Self::VERSION {
            return Err(Error::UnknownVersion { kind: Self::NAME, version });
        }
        parse::<Self, Self>(version, body)
    }
}

/// Parses `body` as the frozen shape `Shape` of the kind `K`.
fn parse<K: Kind, Shape: DeserializeOwned>(version: i32, body: &str) -> Result<Shape, Error> {
    serde_json::from_str(body).map_err(|source| Error::Body { kind: K::NAME, version, source })
}

/// An event as it is written in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// The kind's name.
    pub kind: &'static str,
    /// The version of the body's shape.
    pub schema_version: i32,
    /// JSON text; these exact bytes are stored and hashed.
    pub body: String,
}

/// The bytes of most bodies, or more.
const USUAL_BYTES: usize = 1024;

/// Writes `body` in the present version of its kind.
pub(super) fn write<K: Kind>(body: &K) -> Encoded {
    let mut json = Vec::with_capacity(USUAL_BYTES);
    write_to(body, &mut json);
    let body = String::from_utf8(json).expect("JSON is UTF-8");
    Encoded { kind: K::NAME, schema_version: K::VERSION, body }
}

/// Adds the JSON of `body` to `lines`.
pub(super) fn write_to<K: Kind>(body: &K, lines: &mut Vec<u8>) {
    serde_json::to_writer(lines, body).expect("event bodies have string keys and finite numbers");
}

/// Runs an expression on the events of an area, whichever it is.
macro_rules! in_its_area {
    ($event:ident, $of_area:ident => $result:expr) => {
        match $event {
            Event::Merchant($of_area) => $result,
            Event::SecretKey($of_area) => $result,
            Event::Customer($of_area) => $result,
            Event::Meter($of_area) => $result,
            Event::SpendKey($of_area) => $result,
            Event::Wallet($of_area) => $result,
            Event::Request($of_area) => $result,
            Event::Plan($of_area) => $result,
            Event::Subscription($of_area) => $result,
            Event::Payment($of_area) => $result,
            Event::Checkout($of_area) => $result,
            Event::Webhook($of_area) => $result,
        }
    };
}

impl Event {
    /// The version that its kind is written in today.
    pub const fn schema_version(&self) -> i32 {
        in_its_area!(self, event => event.schema_version())
    }

    /// Adds its body in the present version of its kind to `lines`: the JSON text of [`codec::encode`](super::codec::encode).
    pub fn write_body(&self, lines: &mut Vec<u8>) {
        in_its_area!(self, event => event.write_body(lines));
    }
}

/// Declares the events of one area: their enum, their names in the log and their conversion into an `Event`.
macro_rules! area {
    ($(#[$doc:meta])* Event::$area:ident($events:ident) {
        $($variant:ident($body:ty) = $name:literal,)+
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[expect(missing_docs, reason = "each variant holds the struct that documents it")]
        pub enum $events {
            $($variant($body),)+
        }

        impl $events {
            /// The names of the area's kinds in the log.
            pub(super) const KINDS: &[&str] = &[$($name),+];

            /// The name of its kind in the log.
            pub(super) const fn kind(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $name,)+
                }
            }

            /// Writes an event in the present version of its kind.
            pub(super) fn encode(&self) -> $crate::event::codec::Encoded {
                match self {
                    $(Self::$variant(body) => $crate::event::kind::write(body),)+
                }
            }

            /// The version that its kind is written in today.
            pub(super) const fn schema_version(&self) -> i32 {
                match self {
                    $(Self::$variant(_) => <$body as $crate::event::kind::Kind>::VERSION,)+
                }
            }

            /// Adds its body in the present version of its kind to `lines`.
            pub(super) fn write_body(&self, lines: &mut Vec<u8>) {
                match self {
                    $(Self::$variant(body) => $crate::event::kind::write_to(body, lines),)+
                }
            }

            /// Reads an event of any version ever written; `None` for a kind of another area.
            pub(super) fn decode(
                kind: &str,
                version: i32,
                body: &str,
            ) -> Option<Result<Self, $crate::event::codec::Error>> {
                match kind {
                    $($name => {
                        let body = <$body as $crate::event::kind::Kind>::read(version, body);
                        Some(body.map(Self::$variant))
                    })+
                    _ => None,
                }
            }
        }

        $(
            impl $crate::event::kind::Kind for $body {
                const NAME: &'static str = $name;
            }

            impl From<$body> for $crate::event::Event {
                fn from(event: $body) -> Self {
                    Self::$area($events::$variant(event))
                }
            }
        )+
    };
}

pub(super) use area;

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::super::codec;
    use super::*;

    /// A kind whose first version had another name for its field, to test the reading of old versions.
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Renamed {
        amount: String,
    }

    #[derive(Deserialize)]
    struct RenamedV1 {
        sum: String,
    }

    impl Kind for Renamed {
        const NAME: &'static str = "test.renamed";
        const VERSION: i32 = 2;

        fn read(version: i32, body: &str) -> Result<Self, Error> {
            match version {
                1 => parse::<Self, RenamedV1>(version, body).map(|old| Self { amount: old.sum }),
                2 => parse::<Self, Self>(version, body),
                version => Err(Error::UnknownVersion { kind: Self::NAME, version }),
            }
        }
    }

    #[test]
    fn a_body_is_added_to_lines_as_it_is_encoded() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
        let (mut lines, mut encoded) = (b"{".to_vec(), "{".to_owned());
        for kind in codec::kinds() {
            let golden = std::fs::read_to_string(folder.join(format!("{kind}.v1.json"))).unwrap();
            let event = codec::decode(kind, 1, &golden).unwrap();
            event.write_body(&mut lines);
            let Encoded { kind: name, schema_version, body } = codec::encode(&event);
            encoded.push_str(&body);
            assert_eq!((event.kind(), event.schema_version()), (name, schema_version), "{kind}");
            assert_eq!(lines, encoded.as_bytes(), "{kind}");
        }
    }

    #[test]
    fn an_old_version_is_lifted_and_an_unknown_one_refused() {
        let now = Renamed { amount: "1".into() };
        assert_eq!(Renamed::read(1, r#"{"sum":"1"}"#).unwrap(), now);
        assert_eq!(Renamed::read(2, &write(&now).body).unwrap(), now);
        assert!(matches!(Renamed::read(3, "{}"), Err(Error::UnknownVersion { version: 3, .. })));
    }
}
