//! The hash chain: each event's hash is SHA-256 over the previous hash and the event's fields, each preceded by its
//! length. Invariant: no two different events are hashed from the same bytes, and an event that is changed, moved or
//! removed breaks the chain.
//!
//! Fields, in order, each preceded by its length as 4 bytes big-endian: position (8 bytes big-endian), kind,
//! schema version (4 bytes big-endian), key, merchant id, occurred at and recorded at (microseconds since 1970,
//! 8 bytes big-endian each), body, metadata. The first event's previous hash is 32 zero bytes.

use chrono::{DateTime, Utc};
use sha2::{Digest as _, Sha256};

/// The hash of an event.
pub type Hash = [u8; 32];

/// The previous hash of the first event.
pub const GENESIS: Hash = [0; 32];

/// The fields of an event that its hash covers.
#[derive(Debug, Clone, Copy)]
pub struct Link<'a> {
    /// The event's position in the log.
    pub position: i64,
    /// The name of its kind.
    pub kind: &'a str,
    /// The version of the body's shape.
    pub schema_version: i32,
    /// The fact's key.
    pub key: &'a str,
    /// The merchant that it belongs to.
    pub merchant_id: &'a str,
    /// When it happened.
    pub occurred_at: DateTime<Utc>,
    /// When it was appended.
    pub recorded_at: DateTime<Utc>,
    /// The exact text of the body.
    pub body: &'a str,
    /// The exact text of the metadata.
    pub metadata: &'a str,
}

/// The hash of the event `link` after the event with hash `previous`.
pub fn hash(previous: &Hash, link: &Link<'_>) -> Hash {
    let mut digest = Sha256::new_with_prefix(previous);
    let fields: [&[u8]; 9] = [
        &link.position.to_be_bytes(),
        link.kind.as_bytes(),
        &link.schema_version.to_be_bytes(),
        link.key.as_bytes(),
        link.merchant_id.as_bytes(),
        &link.occurred_at.timestamp_micros().to_be_bytes(),
        &link.recorded_at.timestamp_micros().to_be_bytes(),
        link.body.as_bytes(),
        link.metadata.as_bytes(),
    ];
    for field in fields {
        let length = u32::try_from(field.len()).expect("a field is shorter than 4 GiB");
        digest.update(length.to_be_bytes());
        digest.update(field);
    }
    digest.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_changes_the_hash() {
        let at = DateTime::<Utc>::UNIX_EPOCH;
        let later = at + chrono::TimeDelta::microseconds(1);
        let link = Link {
            position: 1,
            kind: "k",
            schema_version: 1,
            key: "key",
            merchant_id: "m",
            occurred_at: at,
            recorded_at: at,
            body: "{}",
            metadata: "{}",
        };
        let variants = [
            link,
            Link { position: 2, ..link },
            Link { kind: "kk", key: "ey", ..link },
            Link { schema_version: 2, ..link },
            Link { key: "keym", merchant_id: "", ..link },
            Link { occurred_at: later, ..link },
            Link { recorded_at: later, ..link },
            Link { body: "{ }", ..link },
            Link { metadata: "{ }", ..link },
        ];
        let mut hashes: Vec<_> = variants.iter().map(|link| hash(&GENESIS, link)).collect();
        hashes.push(hash(&hashes[0], &link));
        let distinct: std::collections::HashSet<_> = hashes.iter().collect();
        assert_eq!(distinct.len(), hashes.len());
    }
}
