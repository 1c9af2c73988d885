//! The form of an archive file: a record batch per line as JSON, in order, compressed with zstd. Standard tools read it; see
//! `docs/archive.md`. Invariant: reading a file gives the exact bytes that were stored.

use std::io::Read as _;
use std::sync::Arc;

use chrono::{DateTime, SecondsFormat, Utc};
use farthing_core::partition::Partition;
use farthing_core::secret::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::range::ArchivedRange;
use crate::batch_pages::BatchRow;
use crate::chain::{self, HASH_BYTES, Hash, Link};
use crate::record_batch::RecordBatch;

/// The format, in manifests.
pub(super) const FORMAT: &str = "farthing-archive";

/// The version of the format, in manifests. A file that this program cannot read has another one.
pub(super) const VERSION: u8 = 1;

/// The end of the name of a file.
pub(super) const SUFFIX: &str = ".ndjson.zst";

/// Compresses the text of a log to about a tenth, at about 100 MB a second.
const LEVEL: i32 = 6;

/// A record batch in a file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    partition: i16,
    first_position: i64,
    recorded_at: String,
    writer: String,
    /// The exact text of each event.
    events: Vec<String>,
    /// The hash of each event, in hexadecimal digits.
    hashes: Vec<String>,
}

/// The record batches of a file, as far as it can be read.
#[derive(Debug, Clone)]
pub(crate) struct Content {
    pub(crate) batches: Arc<Vec<BatchRow>>,
    /// Why the file is not the one that was archived. The batches may be fewer or others then.
    pub(crate) damage: Option<String>,
}

/// A file, before it is written.
#[derive(Debug)]
pub(super) struct File {
    pub(super) bytes: Vec<u8>,
    pub(super) text_bytes: i64,
    pub(super) sha256: [u8; HASH_BYTES],
}

/// Makes the file of `batches`, none of which is damaged.
pub(super) fn write(batches: &[BatchRow]) -> Result<File, String> {
    let mut text = Vec::new();
    for batch in batches {
        let events = std::str::from_utf8(&batch.events).map_err(|error| error.to_string())?;
        let line = Line {
            partition: batch.partition.number(),
            first_position: batch.first_position,
            recorded_at: batch.recorded_at.to_rfc3339_opts(SecondsFormat::Micros, true),
            writer: batch.writer.clone(),
            events: events.split('\n').map(str::to_owned).collect(),
            hashes: batch.hashes.chunks(HASH_BYTES).map(hex).collect(),
        };
        serde_json::to_writer(&mut text, &line).map_err(|error| error.to_string())?;
        text.push(b'\n');
    }
    let text_bytes = i64::try_from(text.len()).map_err(|error| error.to_string())?;
    let compressed = || {
        let mut encoder = zstd::stream::Encoder::new(Vec::new(), LEVEL)?;
        encoder.include_checksum(true)?;
        std::io::Write::write_all(&mut encoder, &text)?;
        encoder.finish()
    };
    let bytes = compressed().map_err(|error: std::io::Error| error.to_string())?;
    let sha256 = Sha256::digest(&bytes).into();
    Ok(File { bytes, text_bytes, sha256 })
}

/// The most bytes that the file of `range` can have, however its text was compressed: zstd adds less than a 128th and a few
/// bytes. A file of another size than the recorded one is read up to here, to find what was changed in it.
pub(super) fn most_bytes(range: &ArchivedRange) -> u64 {
    let [bytes, text] = [range.bytes, range.text_bytes].map(|bytes| u64::try_from(bytes).unwrap_or(0));
    bytes.max(text + text / 128 + 1_024)
}

impl Content {
    /// The content of a file that was not read, because of `damage`.
    pub(super) fn unread(damage: String) -> Self {
        Self { batches: Arc::default(), damage: Some(damage) }
    }

    /// Reads the file of `range` as far as possible.
    pub(super) fn read(range: &ArchivedRange, bytes: &[u8]) -> Self {
        let mut damage = None;
        let mut found = |what: String| {
            damage.get_or_insert(what);
        };
        let sha256 = Sha256::digest(bytes);
        if *sha256 != range.sha256 {
            found(format!("its SHA-256 is {}, recorded was {}", hex(&sha256), hex(&range.sha256)));
        }
        let (text, end) = decompress(bytes, range.text_bytes);
        let mut batches = Vec::new();
        for (line, number) in text.split_inclusive(|byte| *byte == b'\n').zip(1..) {
            match batch(line, range.partition) {
                Ok(batch) => batches.push(batch),
                Err(error) => {
                    found(format!("line {number} is no record batch: {error}"));
                    break;
                }
            }
        }
        if let Err(error) = end {
            found(format!("it cannot be decompressed: {error}"));
        }
        let first = batches.first().map(|batch| batch.first_position);
        let last = batches.last().map(BatchRow::last_position);
        if first != Some(range.first_position) || last != Some(range.last_position) {
            found("it does not hold the positions that were archived".to_owned());
        }
        Self { batches: Arc::new(batches), damage }
    }
}

/// The text of a file, or its beginning and why there is no more.
fn decompress(bytes: &[u8], text_bytes: i64) -> (Vec<u8>, std::io::Result<()>) {
    let limit = u64::try_from(text_bytes).unwrap_or(0);
    let mut text = Vec::new();
    let read = zstd::stream::Decoder::with_buffer(bytes)
        .and_then(|decoder| decoder.take(limit + 1).read_to_end(&mut text));
    let end = read.and_then(|_| match u64::try_from(text.len()).unwrap_or(u64::MAX).cmp(&limit) {
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Less => Err(std::io::Error::other("it is too short")),
        std::cmp::Ordering::Greater => Err(std::io::Error::other("it is too long")),
    });
    (text, end)
}

fn batch(line: &[u8], partition: Partition) -> Result<BatchRow, String> {
    let line = line.strip_suffix(b"\n").ok_or("it has no end")?;
    let line: Line = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    if line.partition != partition.number() {
        return Err(format!("it is of partition {}", line.partition));
    }
    let recorded_at = DateTime::parse_from_rfc3339(&line.recorded_at).map_err(|error| error.to_string())?;
    let hashes: Option<Vec<Hash>> = line.hashes.iter().map(|digits| unhex(digits)).collect();
    Ok(BatchRow {
        partition,
        first_position: line.first_position,
        count: i32::try_from(line.events.len()).map_err(|error| error.to_string())?,
        recorded_at: recorded_at.with_timezone(&Utc),
        writer: line.writer,
        events: line.events.join("\n").into_bytes(),
        hashes: hashes.ok_or("a hash is not 64 hexadecimal digits")?.concat(),
    })
}

fn unhex(digits: &str) -> Option<Hash> {
    let mut hash = Hash::default();
    if digits.len() != 2 * HASH_BYTES || !digits.is_ascii() {
        return None;
    }
    for (index, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(hash)
}

/// Follows the chain through `batches` from `previous` on, and the positions from `first` on. Gives the last hash, or the
/// first position that does not follow and why.
pub(super) fn follow(batches: &[BatchRow], first: i64, previous: Hash) -> Result<Hash, (i64, String)> {
    let (mut expected, mut hash) = (first, previous);
    for row in batches {
        if row.first_position != expected {
            return Err((expected, format!("position {} follows", row.first_position)));
        }
        let batch: RecordBatch = row.clone().decode().map_err(|error| (expected, error.to_string()))?;
        for index in 0..batch.len() {
            let (position, record) = (batch.position_of(index), batch.line(index));
            let link = Link { position, recorded_at: batch.recorded_at(), writer: batch.writer(), record };
            hash = chain::hash(&hash, &link);
            if batch.hash(index) != hash {
                let what = "the hash does not follow from the event and the previous hash";
                return Err((position, what.to_owned()));
            }
        }
        expected = batch.last_position() + 1;
    }
    Ok(hash)
}

#[cfg(test)]
pub(super) mod tests {
    use chrono::TimeDelta;

    use super::*;
    use crate::chain::GENESIS;

    const PARTITION: Partition = Partition::new(3);

    /// Record batches of these records, one event each or two, from position 1 on.
    pub(in crate::archive) fn batches() -> Vec<BatchRow> {
        let (mut hash, mut position, mut batches) = (GENESIS, 1, Vec::new());
        for records in [["{\"a\":1}"].as_slice(), &["{\"b\":\"\u{1f600} \\\" \\n\"}", "c"], &["\tx\u{7f}"]] {
            let recorded_at =
                DateTime::UNIX_EPOCH + TimeDelta::microseconds(1_700_000_000_123_456 + position);
            let (first_position, mut hashes) = (position, Vec::new());
            for record in records {
                hash = chain::hash(&hash, &Link { position, recorded_at, writer: "gw \"1\"", record });
                hashes.extend(hash);
                position += 1;
            }
            batches.push(BatchRow {
                partition: PARTITION,
                first_position,
                count: i32::try_from(records.len()).unwrap(),
                recorded_at,
                writer: "gw \"1\"".to_owned(),
                events: records.join("\n").into_bytes(),
                hashes,
            });
        }
        batches
    }

    /// The range of `file`, which has all of `batches`.
    pub(in crate::archive) fn range(batches: &[BatchRow], file: &File) -> ArchivedRange {
        let (first, last) = (batches.first().unwrap(), batches.last().unwrap());
        ArchivedRange {
            partition: PARTITION,
            number: 1,
            first_position: first.first_position,
            last_position: last.last_position(),
            batches: i32::try_from(batches.len()).unwrap(),
            previous_hash: GENESIS,
            last_hash: *last.hashes.last_chunk().unwrap(),
            first_recorded_at: first.recorded_at,
            last_recorded_at: last.recorded_at,
            location: "memory:".to_owned(),
            object: format!("partition-0003/1-4{SUFFIX}"),
            bytes: i64::try_from(file.bytes.len()).unwrap(),
            text_bytes: file.text_bytes,
            sha256: file.sha256,
        }
    }

    fn compressed(text: &str) -> Vec<u8> {
        zstd::stream::encode_all(text.as_bytes(), 1).unwrap()
    }

    #[test]
    fn a_file_gives_the_exact_batches_that_went_into_it() {
        let batches = batches();
        let file = write(&batches).unwrap();
        let range = range(&batches, &file);
        let content = Content::read(&range, &file.bytes);
        assert_eq!((&*content.batches, &content.damage), (&batches, &None));
        assert_eq!(range.check(&content.batches), Ok(()));
        assert_eq!(write(&batches).unwrap().sha256, file.sha256, "the same batches make the same file");
    }

    #[test]
    fn a_change_is_found_at_its_position_whoever_compressed_it_again() {
        let batches = batches();
        let file = write(&batches).unwrap();
        let range = range(&batches, &file);
        let text = String::from_utf8(zstd::stream::decode_all(&*file.bytes).unwrap()).unwrap();
        for (from, to, position) in [
            (r#"{\"a\":1}"#, r#"{\"a\":2}"#, 1),
            (r#""c""#, r#""d""#, 3),
            (r"\tx", r"\ty", 4),
            (r#""first_position":4"#, r#""first_position":5"#, 4),
            ("123460Z", "123461Z", 4),
        ] {
            let changed = text.replacen(from, to, 1);
            assert_ne!(changed, text, "{from}");
            let content = Content::read(&range, &compressed(&changed));
            assert!(content.damage.is_some_and(|damage| damage.contains("SHA-256")), "{from}");
            assert_eq!(range.check(&content.batches).unwrap_err().0, position, "{from}");
        }
        let without: String =
            text.lines().filter(|line| !line.contains("first_position\":2")).collect::<Vec<_>>().join("\n");
        let content = Content::read(&range, &compressed(&(without + "\n")));
        assert_eq!(range.check(&content.batches).unwrap_err().0, 2);
    }

    #[test]
    fn a_file_that_is_cut_off_or_corrupt_gives_what_can_be_read() {
        let batches = batches();
        let file = write(&batches).unwrap();
        let range = range(&batches, &file);
        for end in [0, 1, 20, file.bytes.len() - 1] {
            let content = Content::read(&range, &file.bytes[..end]);
            assert!(content.damage.is_some(), "{end}");
            assert!(content.batches.len() <= batches.len());
        }
        let mut corrupt = file.bytes.clone();
        *corrupt.last_mut().unwrap() ^= 1;
        assert!(Content::read(&range, &corrupt).damage.is_some());
        let longer = [file.bytes.clone(), compressed("x\n")].concat();
        assert!(Content::read(&range, &longer).damage.is_some());
        let half = compressed("{\"partition\":3");
        assert!(Content::read(&range, &half).batches.is_empty());
    }
}
