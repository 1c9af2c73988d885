//! The hash chain: each event's hash is SHA-256 over the previous hash and the event's fields, each preceded by its
//! length. Invariant: no two different events are hashed from the same bytes, and an event that is changed, moved or
//! removed breaks the chain.
//!
//! Fields, in order, each preceded by its length as 4 bytes big-endian: position (8 bytes big-endian), recorded at
//! (microseconds since 1970, 8 bytes big-endian), writer, record (the exact bytes of the line). The first event's
//! previous hash is 32 zero bytes.

use chrono::{DateTime, Utc};
use sha2::{Digest as _, Sha256};

/// The hash of an event.
pub type Hash = [u8; HASH_BYTES];

/// The previous hash of the first event.
pub const GENESIS: Hash = [0; HASH_BYTES];

/// The length of a hash.
pub const HASH_BYTES: usize = 32;

/// The fields of an event that its hash covers.
#[derive(Debug, Clone, Copy)]
pub struct Link<'a> {
    /// The event's position in the log.
    pub position: i64,
    /// When it was appended.
    pub recorded_at: DateTime<Utc>,
    /// The process that appended it.
    pub writer: &'a str,
    /// The exact text of its line: kind, version, key, merchant, time and body.
    pub record: &'a str,
}

/// The hash of the event `link` after the event with hash `previous`.
pub fn hash(previous: &Hash, link: &Link<'_>) -> Hash {
    let mut digest = Sha256::new_with_prefix(previous);
    let fields: [&[u8]; 4] = [
        &link.position.to_be_bytes(),
        &link.recorded_at.timestamp_micros().to_be_bytes(),
        link.writer.as_bytes(),
        link.record.as_bytes(),
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
        let link = Link { position: 1, recorded_at: at, writer: "writer", record: "{}" };
        let variants = [
            link,
            Link { position: 2, ..link },
            Link { recorded_at: later, ..link },
            Link { writer: "writer{", record: "}", ..link },
            Link { record: "{ }", ..link },
        ];
        let mut hashes: Vec<_> = variants.iter().map(|link| hash(&GENESIS, link)).collect();
        hashes.push(hash(&hashes[0], &link));
        let distinct: std::collections::HashSet<_> = hashes.iter().collect();
        assert_eq!(distinct.len(), hashes.len());
    }
}
