//! The response that is stored under an idempotency key, sealed ([`crate::secret::ServerKey::seal`]).

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A sealed response. Its copies share the bytes: it is up to 256 KiB long, and each attempt to store it has one.
#[derive(Clone, PartialEq, Eq)]
pub struct SealedAnswer(Arc<Vec<u8>>);

impl From<Vec<u8>> for SealedAnswer {
    fn from(sealed: Vec<u8>) -> Self {
        Self(Arc::new(sealed))
    }
}

impl Deref for SealedAnswer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SealedAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealedAnswer({} bytes)", self.len())
    }
}

/// As a list of numbers, which gateways of earlier builds read. Once all read base64, which is a third as long, it can be
/// written.
impl Serialize for SealedAnswer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// From a list of numbers, or from base64.
impl<'de> Deserialize<'de> for SealedAnswer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SealedVisitor)
    }
}

struct SealedVisitor;

impl<'de> Visitor<'de> for SealedVisitor {
    type Value = SealedAnswer;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("base64, or a list of bytes")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<SealedAnswer, E> {
        BASE64_STANDARD.decode(text).map(SealedAnswer::from).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut bytes: A) -> Result<SealedAnswer, A::Error> {
        let mut sealed = Vec::new();
        while let Some(byte) = bytes.next_element::<u8>()? {
            sealed.push(byte);
        }
        Ok(sealed.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_as_a_list_of_numbers_and_read_from_base64_too() {
        let sealed = SealedAnswer::from(vec![0, 127, 255, 16]);
        assert_eq!(serde_json::to_string(&sealed).unwrap(), "[0,127,255,16]");
        for json in [r#""AH//EA==""#, "[0,127,255,16]"] {
            assert_eq!(serde_json::from_str::<SealedAnswer>(json).unwrap(), sealed, "{json}");
        }
        for wrong in [r#""AH//EA""#, r#""AH//E===""#, "[0, 256]", "[-1]", "{}", "null", "7"] {
            serde_json::from_str::<SealedAnswer>(wrong).unwrap_err();
        }
    }

    #[test]
    fn copies_share_the_bytes() {
        let sealed = SealedAnswer::from(vec![1; 100]);
        assert_eq!(sealed.clone().as_ptr(), sealed.as_ptr());
    }
}
