//! Published heads: the position and the hash of each partition at an instant, signed by an operator and kept outside of
//! the database. They prove later that nothing up to them was removed or rewritten, not even by the database's owner.
//!
//! A file has a line for each publication, `{"head":…,"public_key":…,"signature":…}`. The signature is Ed25519 over the
//! exact bytes of the member `head`. Each head names the SHA-256 of the line before it, so that no line is removed
//! unnoticed.

use std::sync::Arc;

use chrono::{DateTime, SecondsFormat, Utc};
use farthing_core::partition::Partition;
use farthing_core::secret::hex;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};
use tokio_postgres::Client;

use crate::chain::Hash;

/// The heads of all partitions, as of one instant.
const HEADS: &str = "SELECT partition, position, hash FROM ledger.heads ORDER BY partition";

/// The most bytes of a line. 1,024 partitions need less.
const MAX_LINE: usize = 512 * 1_024;

/// Why a file of published heads is not one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A line is no published head.
    #[error("line {line} is no published head: {source}")]
    Malformed {
        /// The number of the line.
        line: usize,
        /// Why it cannot be read.
        source: serde_json::Error,
    },
    /// A hash is no hash.
    #[error("line {line}: the hash of partition {partition} is not 64 hexadecimal digits")]
    Hash {
        /// The number of the line.
        line: usize,
        /// The partition.
        partition: Partition,
    },
    /// A line is too long.
    #[error("line {line} has more than {MAX_LINE} bytes")]
    Long {
        /// The number of the line.
        line: usize,
    },
    /// A line does not follow from the line before it.
    #[error("line {line} does not follow the line before it: a line was changed, removed or inserted")]
    Order {
        /// The number of the line.
        line: usize,
    },
    /// A signature is missing or wrong.
    #[error("line {line}: {what}")]
    Signature {
        /// The number of the line.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// The file has no line.
    #[error("the file has no published head")]
    Empty,
}

/// What is published.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    published_at: String,
    /// SHA-256 of the line before, in hexadecimal; `null` in the first line.
    previous: Option<String>,
    partitions: Vec<PartitionHead>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PartitionHead {
    partition: Partition,
    position: i64,
    hash: String,
}

#[derive(Serialize)]
struct WrittenLine<'a> {
    head: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    public_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signature: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    #[serde(borrow)]
    head: &'a RawValue,
    #[serde(default)]
    public_key: Option<String>,
    #[serde(default)]
    signature: Option<String>,
}

/// Signs heads. The key is the operator's.
pub trait Signer {
    /// Its public key in hexadecimal, and the signature of `message` in hexadecimal.
    fn sign(&self, message: &[u8]) -> (String, String);
}

/// Verifies the signatures of heads.
pub trait SignatureCheck {
    /// Verifies that the key `public_key`, in hexadecimal, made `signature`, in hexadecimal, and may be trusted; says what is
    /// wrong if not.
    fn verify(&self, public_key: Option<&str>, signature: Option<&str>, message: &[u8])
    -> Result<(), String>;
}

/// The position and the hash of an event that were published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedPosition {
    /// The line of the file.
    pub line: usize,
    /// When it was published, as the line says.
    pub published_at: Arc<str>,
    /// The position.
    pub position: i64,
    /// Its hash.
    pub hash: Hash,
}

/// All published heads of a file.
#[derive(Debug, Clone, Default)]
pub struct PublishedHeads(Vec<(Partition, PublishedPosition)>);

impl PublishedHeads {
    /// Reads a file's `text` and verifies its lines.
    pub fn read(text: &str, signatures: &impl SignatureCheck) -> Result<Self, Error> {
        let mut heads = Vec::new();
        let mut previous: Option<String> = None;
        for (line, text) in (1..).zip(text.lines()) {
            if text.len() > MAX_LINE {
                return Err(Error::Long { line });
            }
            let malformed = |source| Error::Malformed { line, source };
            let Line { head: raw, public_key, signature } = serde_json::from_str(text).map_err(malformed)?;
            signatures
                .verify(public_key.as_deref(), signature.as_deref(), raw.get().as_bytes())
                .map_err(|what| Error::Signature { line, what })?;
            let head: Head = serde_json::from_str(raw.get()).map_err(malformed)?;
            if head.previous != previous {
                return Err(Error::Order { line });
            }
            previous = Some(digest(text));
            let published_at = Arc::<str>::from(head.published_at);
            for PartitionHead { partition, position, hash } in head.partitions {
                let hash = hash_of(&hash).ok_or(Error::Hash { line, partition })?;
                // Nothing was published of an empty partition.
                if position > 0 {
                    let published_at = Arc::clone(&published_at);
                    heads.push((partition, PublishedPosition { line, published_at, position, hash }));
                }
            }
        }
        if previous.is_none() { Err(Error::Empty) } else { Ok(Self(heads)) }
    }

    /// Whether a line of a file's `text` has a signature.
    pub fn is_signed(text: &str) -> bool {
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Line<'_>>(line).ok());
        lines.into_iter().any(|line| line.signature.is_some())
    }

    /// The highest partition that a head was published of.
    pub(super) fn last_partition(&self) -> Option<Partition> {
        self.0.iter().map(|(partition, _)| *partition).max()
    }

    /// Those of `partition`.
    pub(super) fn of(&self, partition: Partition) -> Vec<PublishedPosition> {
        let own = self.0.iter().filter(|(of, _)| *of == partition);
        own.map(|(_, published)| published.clone()).collect()
    }
}

/// The line that publishes the heads of the log now. `before` is the last line of the file.
pub async fn line(
    client: &Client,
    published_at: DateTime<Utc>,
    before: Option<&str>,
    signer: Option<&impl Signer>,
) -> Result<String, tokio_postgres::Error> {
    let mut partitions = Vec::new();
    for row in client.query(HEADS, &[]).await? {
        let hash: &[u8] = row.try_get("hash")?;
        partitions.push(PartitionHead {
            partition: Partition::new(row.try_get("partition")?),
            position: row.try_get("position")?,
            hash: hex(hash),
        });
    }
    let published_at = published_at.to_rfc3339_opts(SecondsFormat::Millis, true);
    Ok(write(&Head { published_at, previous: before.map(digest), partitions }, signer))
}

fn write(head: &Head, signer: Option<&impl Signer>) -> String {
    let head = serde_json::to_string(head).expect("a head has string keys");
    let seal = signer.map(|signer| signer.sign(head.as_bytes()));
    let (public_key, signature) = seal.map_or((None, None), |(key, signature)| (Some(key), Some(signature)));
    let head = RawValue::from_string(head).expect("it is JSON");
    let line = WrittenLine { head: &head, public_key, signature };
    serde_json::to_string(&line).expect("a line has string keys")
}

fn digest(line: &str) -> String {
    hex(&Sha256::digest(line))
}

/// The hash of 64 hexadecimal digits.
pub(super) fn hash_of(text: &str) -> Option<Hash> {
    let digits = text.as_bytes();
    let mut hash = Hash::default();
    if digits.len() != 2 * hash.len() {
        return None;
    }
    for (byte, pair) in hash.iter_mut().zip(digits.chunks(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16);
        *byte = u8::try_from(digit(0)? * 16 + digit(1)?).ok()?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Signs by hashing with a secret, as a stand-in for a key pair.
    struct Seal(&'static str);

    impl Seal {
        fn of(&self, message: &[u8]) -> String {
            hex(&Sha256::new_with_prefix(self.0).chain_update(message).finalize())
        }
    }

    impl Signer for Seal {
        fn sign(&self, message: &[u8]) -> (String, String) {
            ("key".to_owned(), self.of(message))
        }
    }

    impl SignatureCheck for Seal {
        fn verify(&self, _: Option<&str>, signature: Option<&str>, message: &[u8]) -> Result<(), String> {
            if signature == Some(&self.of(message)) { Ok(()) } else { Err("wrong".to_owned()) }
        }
    }

    const SEAL: Seal = Seal("secret");

    /// A file of two publications.
    fn file() -> [String; 2] {
        let head = |position: i64, previous: Option<&str>| {
            let hash = hex(&[u8::try_from(position).unwrap(); 32]);
            let head = |partition, position| PartitionHead {
                partition: Partition::new(partition),
                position,
                hash: hash.clone(),
            };
            let published_at = "2026-11-24T00:00:00.000Z".to_owned();
            let partitions = vec![head(0, position), head(1, 0)];
            write(&Head { published_at, previous: previous.map(digest), partitions }, Some(&SEAL))
        };
        let first = head(5, None);
        let second = head(9, Some(&first));
        [first, second]
    }

    fn read(lines: &[&str]) -> Result<PublishedHeads, Error> {
        PublishedHeads::read(&lines.join("\n"), &SEAL)
    }

    #[test]
    fn what_is_written_is_read() {
        let [first, second] = file();
        let heads = read(&[&first, &second]).unwrap();
        let published_at = Arc::<str>::from("2026-11-24T00:00:00.000Z");
        let published = |line, position, byte| {
            let published_at = Arc::clone(&published_at);
            PublishedPosition { line, published_at, position, hash: [byte; 32] }
        };
        assert_eq!(heads.of(Partition::new(0)), [published(1, 5, 5), published(2, 9, 9)]);
        assert_eq!(heads.of(Partition::new(1)), [], "an empty partition");
    }

    #[test]
    fn a_file_that_was_changed_is_refused() {
        let [first, second] = file();
        assert!(matches!(read(&[&second]), Err(Error::Order { line: 1 })));
        assert!(matches!(read(&[&second, &first]), Err(Error::Order { line: 1 })));
        assert!(matches!(read(&[&first, &first]), Err(Error::Order { line: 2 })));
        assert!(matches!(read(&[&first, "", &second]), Err(Error::Malformed { line: 2, .. })));
        assert!(matches!(read(&[]), Err(Error::Empty)));
        let moved = first.replace(r#""position":5"#, r#""position":4"#);
        assert!(matches!(read(&[&moved]), Err(Error::Signature { line: 1, .. })));
        let unsigned = first.split_once(r#","public_key"#).unwrap().0.to_owned() + "}";
        assert!(matches!(read(&[&unsigned]), Err(Error::Signature { line: 1, .. })));
        assert!(matches!(read(&[&"x".repeat(MAX_LINE + 1)]), Err(Error::Long { line: 1 })));
        let head = Head {
            published_at: String::new(),
            previous: None,
            partitions: vec![PartitionHead {
                partition: Partition::new(3),
                position: 1,
                hash: "0g".repeat(32),
            }],
        };
        let short = write(&head, Some(&SEAL));
        assert!(matches!(read(&[&short]), Err(Error::Hash { line: 1, .. })));
    }
}
