//! Messages of the feed: which events one carries, its headers and its body.
//!
//! A message carries whole record batches, as many as fit in [`MAX_MESSAGE_BYTES`] and [`MAX_HEADER_BYTES`].
//! A record batch that is larger than the server or the headers allow is split between two events.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use async_nats::header::{NATS_EXPECTED_LAST_SEQUENCE, NATS_MESSAGE_ID};
use async_nats::{HeaderMap, HeaderName, HeaderValue};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use farthing_core::partition::Partition;
use serde::Serialize;

use crate::chain::{HASH_BYTES, Hash};
use crate::record_batch::RecordBatch;

/// The header with the message's number in the stream, from 1.
pub const NUMBER_HEADER: HeaderName = HeaderName::from_static("farthing-message");
/// The header with the position of the first event.
pub const POSITION_HEADER: HeaderName = HeaderName::from_static("farthing-position");
/// The header with the number of events.
pub const COUNT_HEADER: HeaderName = HeaderName::from_static("farthing-count");
/// The header with the hashes of the events, 32 bytes each, in base64.
pub const HASHES_HEADER: HeaderName = HeaderName::from_static("farthing-hashes");
/// The header with the record batches, a JSON array of [`BatchHeader`].
pub const BATCHES_HEADER: HeaderName = HeaderName::from_static("farthing-batches");

/// The most bytes of a message with several record batches, headers included.
const MAX_MESSAGE_BYTES: usize = 512 * 1024;
/// The most bytes of the headers. JetStream refuses more than 65,535.
const MAX_HEADER_BYTES: usize = 60 * 1024;
/// An upper bound of the headers without hashes and record batches.
const FIXED_HEADER_BYTES: usize = 512;
/// An upper bound of a hash in the headers: base64 has 4 digits for 3 bytes.
const HASH_DIGITS: usize = HASH_BYTES.div_ceil(3) * 4;
/// An upper bound of a record batch in the headers, without its writer.
const BATCH_HEADER_BYTES: usize = 80;
/// The most bytes of JSON for a byte of text (`\u0000`).
const ESCAPED_BYTES: usize = 6;

/// A record batch in the headers: what the hashes of its events cover besides position and line.
#[derive(Debug, Serialize)]
struct BatchHeader<'a> {
    /// The number of its events in this message.
    count: usize,
    /// When it was appended, in microseconds of Unix time.
    recorded_at_us: i64,
    /// The process that appended it.
    writer: &'a str,
}

/// Consecutive events, to be published as one message.
#[derive(Debug)]
pub(super) struct Message {
    parts: Vec<Part>,
    size: Size,
}

/// Consecutive events of a record batch: all of them, unless the batch is split.
#[derive(Debug)]
struct Part {
    batch: Arc<RecordBatch>,
    events: Range<usize>,
}

/// Upper bounds of the bytes of a message.
#[derive(Debug, Clone, Copy)]
struct Size {
    headers: usize,
    body: usize,
}

/// Packs the events of `batches` into messages. An item is a record batch and the index of its first event to
/// publish. A message has at most `max_payload` bytes, unless one event alone is larger.
pub(super) fn pack(
    batches: impl IntoIterator<Item = (Arc<RecordBatch>, usize)>,
    max_payload: usize,
) -> VecDeque<Message> {
    let mut messages: VecDeque<Message> = VecDeque::new();
    for (batch, first) in batches {
        let part = Part { events: first..batch.len(), batch };
        match messages.back_mut() {
            Some(last) if last.has_room_for(&part, max_payload.min(MAX_MESSAGE_BYTES)) => last.push(part),
            _ => messages.extend(part.split(max_payload).into_iter().map(Message::from)),
        }
    }
    messages
}

impl From<Part> for Message {
    fn from(part: Part) -> Self {
        let size = Size::EMPTY.plus(part.size());
        Self { parts: vec![part], size }
    }
}

impl Message {
    fn has_room_for(&self, part: &Part, max_bytes: usize) -> bool {
        self.size.plus(part.size()).is_within(max_bytes)
    }

    fn push(&mut self, part: Part) {
        self.size = self.size.plus(part.size());
        self.parts.push(part);
    }

    /// The position of the first event.
    pub(super) fn first_position(&self) -> i64 {
        self.parts.first().map_or(0, |part| part.batch.position_of(part.events.start))
    }

    /// The position of the last event.
    pub(super) fn last_position(&self) -> i64 {
        self.parts.last().map_or(0, |part| part.batch.position_of(part.events.end) - 1)
    }

    /// The headers of the message with `number` in the stream of `partition`. It must follow the message of
    /// sequence `previous`.
    pub(super) fn headers(&self, partition: Partition, number: u64, previous: u64) -> HeaderMap {
        let first_position = self.first_position();
        let mut hashes = Vec::new();
        let mut batches = Vec::with_capacity(self.parts.len());
        for Part { batch, events } in &self.parts {
            hashes.extend_from_slice(batch.hashes(events.clone()));
            batches.push(BatchHeader {
                count: events.len(),
                recorded_at_us: batch.recorded_at().timestamp_micros(),
                writer: batch.writer(),
            });
        }
        let batches = serde_json::to_string(&batches).expect("texts and integers are written as JSON");
        let mut headers = HeaderMap::new();
        headers.insert(NATS_MESSAGE_ID, format!("{partition}-{first_position}"));
        headers.insert(NATS_EXPECTED_LAST_SEQUENCE, previous.to_string());
        headers.insert(NUMBER_HEADER, number.to_string());
        headers.insert(POSITION_HEADER, first_position.to_string());
        headers.insert(COUNT_HEADER, (hashes.len() / HASH_BYTES).to_string());
        headers.insert(HASHES_HEADER, BASE64_STANDARD.encode(hashes));
        headers.insert(BATCHES_HEADER, batches);
        headers
    }

    /// The body: the lines of the events, separated by line feeds.
    pub(super) fn body(&self) -> Bytes {
        let mut body = Vec::with_capacity(self.size.body);
        for Part { batch, events } in &self.parts {
            if !body.is_empty() {
                body.push(b'\n');
            }
            body.extend_from_slice(batch.lines(events.clone()).as_bytes());
        }
        body.into()
    }
}

impl Part {
    fn size(&self) -> Size {
        let lines = self.batch.lines(self.events.clone()).len() + 1;
        let header = BATCH_HEADER_BYTES + ESCAPED_BYTES * self.batch.writer().len();
        Size { headers: header + HASH_DIGITS * self.events.len(), body: lines }
    }

    /// The parts that fit in a message of `max_bytes` each: this one, if it does. A part has at least one
    /// event.
    fn split(self, max_bytes: usize) -> Vec<Self> {
        let part = |events| Self { batch: Arc::clone(&self.batch), events };
        let mut parts = Vec::new();
        let mut start = self.events.start;
        let mut size = Size::EMPTY.plus(part(start..start).size());
        let empty = size;
        for index in self.events.clone() {
            let event = Size { headers: HASH_DIGITS, body: self.batch.line(index).len() + 1 };
            if index > start && !size.plus(event).is_within(max_bytes) {
                parts.push(part(start..index));
                (start, size) = (index, empty);
            }
            size = size.plus(event);
        }
        parts.push(part(start..self.events.end));
        parts
    }
}

impl Size {
    /// A message without events.
    const EMPTY: Self = Self { headers: FIXED_HEADER_BYTES, body: 0 };

    const fn plus(self, other: Self) -> Self {
        Self { headers: self.headers + other.headers, body: self.body + other.body }
    }

    const fn is_within(self, max_bytes: usize) -> bool {
        self.headers <= MAX_HEADER_BYTES && self.headers + self.body <= max_bytes
    }
}

/// What the headers of a message in the stream say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Published {
    /// The message's number in the stream, from 1.
    pub(super) number: u64,
    /// The position of the first event.
    pub(super) first_position: i64,
    /// The position of the last event.
    pub(super) last_position: i64,
    /// The hash of the last event.
    pub(super) last_hash: Hash,
}

impl Published {
    /// Whether it comes directly after `before`.
    pub(super) fn follows(&self, before: &Self) -> bool {
        before.number.checked_add(1) == Some(self.number)
            && before.last_position.checked_add(1) == Some(self.first_position)
    }

    /// Reads the headers; `None` if they are not those of a relay.
    pub(super) fn read(headers: &HeaderMap) -> Option<Self> {
        let text = |name: HeaderName| headers.get(name).map(HeaderValue::as_str);
        let first_position: i64 = text(POSITION_HEADER)?.parse().ok()?;
        let count: usize = text(COUNT_HEADER)?.parse().ok()?;
        let hashes = BASE64_STANDARD.decode(text(HASHES_HEADER)?).ok()?;
        let (hashes, rest) = hashes.as_chunks::<HASH_BYTES>();
        if first_position < 1 || hashes.len() != count || !rest.is_empty() {
            return None;
        }
        Some(Self {
            number: text(NUMBER_HEADER)?.parse().ok()?,
            first_position,
            last_position: first_position.checked_add(i64::try_from(count).ok()?)? - 1,
            last_hash: *hashes.last()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::DateTime;

    const PARTITION: Partition = Partition::new(3);

    /// A record batch of `count` lines of `length` bytes each. The bytes of a hash are the position of its
    /// event.
    fn batch(first_position: i64, count: u8, length: usize) -> Arc<RecordBatch> {
        let lines: Vec<String> = (0..count).map(|_| "x".repeat(length)).collect();
        let hashes = (0..count).flat_map(|at| [u8::try_from(first_position).unwrap() + at; HASH_BYTES]);
        let recorded_at = DateTime::from_timestamp_micros(1_777_000_000_000_000 + first_position).unwrap();
        let events = lines.join("\n").into_bytes();
        let writer = "w\u{1}".to_owned();
        let batch = RecordBatch::new(
            (PARTITION, first_position),
            count.into(),
            recorded_at,
            writer,
            events,
            hashes.collect(),
        );
        Arc::new(batch.unwrap())
    }

    /// The first and last position of each message.
    fn packed(batches: &[Arc<RecordBatch>], first: usize, max_payload: usize) -> Vec<(i64, i64)> {
        let items = batches
            .iter()
            .enumerate()
            .map(|(at, batch)| (Arc::clone(batch), if at == 0 { first } else { 0 }));
        let messages = pack(items, max_payload);
        for message in &messages {
            let headers = message.headers(PARTITION, 1, 0);
            let texts = headers.iter().map(|(name, values)| {
                values.iter().map(|value| name.to_string().len() + value.as_str().len() + 4).sum::<usize>()
            });
            let (header_bytes, body) = (texts.sum::<usize>() + 12, message.body().len());
            let alone = message.first_position() == message.last_position();
            assert!(header_bytes <= message.size.headers && body <= message.size.body, "an upper bound");
            assert!(header_bytes <= MAX_HEADER_BYTES && (header_bytes + body <= max_payload || alone));
        }
        messages.iter().map(|message| (message.first_position(), message.last_position())).collect()
    }

    #[test]
    fn a_message_carries_the_lines_hashes_and_batches_of_its_events() {
        let (one, two) = (batch(7, 3, 4), batch(10, 1, 2));
        let messages = pack([(one, 1), (two, 0)], 1 << 20);
        assert_eq!(messages.len(), 1);
        let message = &messages[0];
        assert_eq!(message.body().as_ref(), b"xxxx\nxxxx\nxx");
        let headers = message.headers(PARTITION, 5, 41);
        let header = |name: &str| headers.get(name).unwrap().as_str().to_owned();
        assert_eq!(header("Nats-Msg-Id"), "3-8");
        assert_eq!(header("Nats-Expected-Last-Sequence"), "41");
        assert_eq!([header("farthing-position"), header("farthing-count")], ["8", "3"]);
        let hashes = BASE64_STANDARD.decode(header("farthing-hashes")).unwrap();
        assert_eq!(hashes, [[8; HASH_BYTES], [9; HASH_BYTES], [10; HASH_BYTES]].concat());
        assert_eq!(
            header("farthing-batches"),
            r#"[{"count":2,"recorded_at_us":1777000000000007,"writer":"w\u0001"},"#.to_owned()
                + r#"{"count":1,"recorded_at_us":1777000000000010,"writer":"w\u0001"}]"#
        );
        let published =
            Published { number: 5, first_position: 8, last_position: 10, last_hash: [10; HASH_BYTES] };
        assert_eq!(Published::read(&headers), Some(published));
    }

    #[test]
    fn whole_batches_share_a_message_up_to_512_kilobytes() {
        let batches: Vec<_> = (0..6).map(|at| batch(1 + 10 * at, 10, 20_000)).collect();
        assert_eq!(packed(&batches, 0, 1 << 20), [(1, 20), (21, 40), (41, 60)]);
        let large = [batch(1, 40, 20_000), batch(41, 1, 1)];
        assert_eq!(packed(&large, 0, 1 << 20), [(1, 40), (41, 41)], "a larger batch is alone and whole");
    }

    #[test]
    fn headers_stay_below_the_bound_of_jetstream() {
        let short: Vec<_> = (0..8).map(|at| batch(1 + 30 * at, 30, 1)).collect();
        let many: Vec<_> = short.iter().cycle().take(100).cloned().collect();
        let messages = packed(&many, 0, 1 << 20);
        assert!(messages.len() > 1, "3,000 events are too many hashes for one message");
    }

    #[test]
    fn a_batch_that_is_larger_than_the_server_allows_is_split_between_events() {
        let limit = 1_000 + FIXED_HEADER_BYTES;
        assert_eq!(packed(&[batch(1, 5, 300)], 0, limit), [(1, 2), (3, 4), (5, 5)]);
        assert_eq!(packed(&[batch(1, 5, 300)], 1, limit), [(2, 3), (4, 5)], "from the second event on");
        assert_eq!(packed(&[batch(1, 2, 3_000)], 0, limit), [(1, 1), (2, 2)], "an event is never split");
        assert_eq!(
            packed(&[batch(1, 3, 300), batch(4, 1, 300)], 0, limit),
            [(1, 2), (3, 4)],
            "the next batch fills the last message"
        );
    }

    #[test]
    fn headers_that_no_relay_wrote_say_nothing() {
        let good = pack([(batch(1, 2, 1), 0)], 1 << 20)[0].headers(PARTITION, 1, 0);
        assert!(Published::read(&good).is_some());
        assert_eq!(Published::read(&HeaderMap::new()), None);
        let past_the_end = i64::MAX.to_string();
        for (name, value) in [
            (NUMBER_HEADER, "-1"),
            (POSITION_HEADER, "0"),
            (POSITION_HEADER, past_the_end.as_str()),
            (COUNT_HEADER, "3"),
            (COUNT_HEADER, "0"),
            (HASHES_HEADER, "AAAA"),
            (HASHES_HEADER, "?"),
        ] {
            let mut headers = good.clone();
            headers.insert(name.clone(), value);
            assert_eq!(Published::read(&headers), None, "{name} {value}");
        }
    }
}
