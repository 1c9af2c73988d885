//! The written form of an event: one line of JSON, in a record batch of the log and of the feed. Its hash covers these
//! exact bytes, so a line is stored and published as it was first written.

use std::io::Write as _;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::Deserialize;
use serde_json::value::RawValue;

use farthing_core::event::{Event, Fact, RequestEvent, WalletEvent, codec};
use farthing_core::ids::{self, MerchantId};

/// An event as it is written, not decoded yet.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Record<'a> {
    /// The name of its kind.
    pub kind: &'a str,
    /// The version of the body's shape.
    pub version: i32,
    /// The fact's key.
    pub key: &'a str,
    /// The id of its merchant.
    pub merchant: &'a str,
    /// When it happened.
    pub occurred_at: DateTime<Utc>,
    /// The body, JSON.
    #[serde(borrow)]
    body: &'a RawValue,
}

/// Why this program cannot read an event. It stops every consumer that must know the event.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// Its line is not a record.
    #[error("the record: {0}")]
    Record(#[from] serde_json::Error),
    /// Its kind or version is unknown, or its body is malformed.
    #[error(transparent)]
    Codec(#[from] codec::Error),
    /// Its merchant id is malformed.
    #[error("merchant {0}")]
    Merchant(#[from] ids::Malformed),
}

impl<'a> Record<'a> {
    /// Reads a line.
    pub fn parse(line: &'a str) -> Result<Self, Unreadable> {
        Ok(serde_json::from_str(line)?)
    }

    /// The exact text of the body.
    pub fn body(&self) -> &'a str {
        self.body.get()
    }

    /// Decodes the event.
    pub fn fact(&self) -> Result<Fact, Unreadable> {
        let merchant_id: MerchantId = self.merchant.parse()?;
        let event = codec::decode(self.kind, self.version, self.body())?;
        Ok(Fact { merchant_id, occurred_at: self.occurred_at, event })
    }
}

/// Decodes the event in `line`.
pub(crate) fn decode(line: &str) -> Result<Fact, Unreadable> {
    decode_with_key(line).map(|(_, fact)| fact)
}

/// Decodes the event in `line`, with the key that is stored with it.
pub(crate) fn decode_with_key(line: &str) -> Result<(&str, Fact), Unreadable> {
    if let Some(decoded) = decode_written(line) {
        return Ok(decoded);
    }
    let record = Record::parse(line)?;
    Ok((record.key, record.fact()?))
}

/// Decodes the event in a line with the members in the order in which [`write`] writes them. `None` for any other line, and
/// for one that cannot be read. A JSON parser reads the body only: of a whole line it would read it twice, once to find
/// its end.
fn decode_written(line: &str) -> Option<(&str, Fact)> {
    let (kind, rest) = line.strip_prefix(r#"{"kind":""#)?.split_once('"')?;
    let (version, rest) = rest.strip_prefix(r#","version":"#)?.split_once(',')?;
    let (key, rest) = rest.strip_prefix(r#""key":""#)?.split_once('"')?;
    let (merchant, rest) = rest.strip_prefix(r#","merchant":""#)?.split_once('"')?;
    let (occurred_at, rest) = rest.strip_prefix(r#","occurred_at":""#)?.split_once('"')?;
    let body = rest.strip_prefix(r#","body":"#)?.strip_suffix('}')?;
    let [version @ b'1'..=b'9'] = version.as_bytes() else { return None };
    if key.bytes().any(|byte| matches!(byte, b'\\' | ..b' ')) {
        return None;
    }
    let event = codec::decode(kind, i32::from(version - b'0'), body).ok()?;
    let fact = Fact { merchant_id: merchant.parse().ok()?, occurred_at: occurred_at.parse().ok()?, event };
    Some((key, fact))
}

/// The merchant and the time of the event in `line`, without decoding its body. `None` if the line is not a record.
pub(crate) fn merchant_and_time(line: &str) -> Option<(MerchantId, DateTime<Utc>)> {
    // As in a written line; a value of another member would be escaped, or come later.
    let written = line.split_once(r#","merchant":""#).and_then(|(_, rest)| {
        let (merchant, rest) = rest.split_once('"')?;
        let (occurred_at, _) = rest.strip_prefix(r#","occurred_at":""#)?.split_once('"')?;
        Some((merchant.parse().ok()?, occurred_at.parse().ok()?))
    });
    written.or_else(|| {
        let record = Record::parse(line).ok()?;
        Some((record.merchant.parse().ok()?, record.occurred_at))
    })
}

/// The kind of the event in `line`; empty if the line is not a record.
pub(crate) fn kind(line: &str) -> &str {
    let written = line.strip_prefix(r#"{"kind":""#).and_then(|rest| rest.split_once('"'));
    written.map_or_else(|| Record::parse(line).map_or("", |record| record.kind), |(kind, _)| kind)
}

/// The bytes of most lines, or more.
const USUAL_BYTES: usize = 1024;

/// Writes events, a line each. The events of one decision follow each other and have one merchant and one time: this
/// part of their lines is made once.
#[derive(Debug, Default)]
pub(crate) struct LineWriter {
    /// The merchant and the time of the last event.
    last: Option<(MerchantId, DateTime<Utc>)>,
    /// What is between its key and its body.
    about: String,
}

impl LineWriter {
    /// Adds the line of `fact` to `lines`, and returns the fact's key. What it adds is UTF-8.
    pub(crate) fn write(&mut self, fact: &Fact, lines: &mut Vec<u8>) -> String {
        let Fact { merchant_id, occurred_at, event } = fact;
        let key = event.key();
        lines.reserve(USUAL_BYTES);
        // Kinds, keys and ids are letters, digits and `._-/`: JSON escapes none of them.
        write!(lines, r#"{{"kind":"{}","version":{},"key":""#, event.kind(), event.schema_version())
            .expect("a vector takes all bytes");
        lines.extend_from_slice(key.as_bytes());
        lines.extend_from_slice(self.about(*merchant_id, *occurred_at).as_bytes());
        event.write_body(lines);
        lines.push(b'}');
        key
    }

    fn about(&mut self, merchant_id: MerchantId, occurred_at: DateTime<Utc>) -> &str {
        let now = Some((merchant_id, occurred_at));
        if self.last != now {
            let time = occurred_at.to_rfc3339_opts(SecondsFormat::Micros, true);
            self.about = format!(r#"","merchant":"{merchant_id}","occurred_at":"{time}","body":"#);
            self.last = now;
        }
        &self.about
    }
}

/// Adds the line of `fact` to `lines`, and returns the fact's key.
pub fn write(fact: &Fact, lines: &mut String) -> String {
    let mut line = Vec::new();
    let key = LineWriter::default().write(fact, &mut line);
    lines.push_str(std::str::from_utf8(&line).expect("a line is UTF-8"));
    key
}

/// Whether `ledger.facts` has the event's key: it keeps a fact from being recorded twice, and finds the event. The events
/// of calls are many and have no row there: a call's id is made for one opening, and its open state lets it end only once. A
/// merchant's own report of a call is made and found by a name of the merchant's, so its opening has a row.
pub(crate) fn is_indexed(event: &Event) -> bool {
    match event {
        Event::Request(RequestEvent::Opened(opened)) => opened.reported_id.is_some(),
        Event::Request(RequestEvent::Metered(_) | RequestEvent::Failed(_))
        | Event::Wallet(WalletEvent::Debited(_)) => false,
        Event::Merchant(_)
        | Event::SecretKey(_)
        | Event::Customer(_)
        | Event::Meter(_)
        | Event::SpendKey(_)
        | Event::Wallet(WalletEvent::Credited(_) | WalletEvent::AutopayChanged(_))
        | Event::Plan(_)
        | Event::Subscription(_)
        | Event::Payment(_)
        | Event::Checkout(_)
        | Event::Webhook(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farthing_core::event::{ClockAdvanced, MerchantEvent};
    use ulid::Ulid;

    /// The line of `fact` and its key, written part by part.
    fn written_by_parts(fact: &Fact) -> (String, String) {
        let Fact { merchant_id, occurred_at, event } = fact;
        let codec::Encoded { kind, schema_version, body } = codec::encode(event);
        let key = event.key();
        let parts = [
            r#"{"kind":""#,
            kind,
            r#"","version":"#,
            &schema_version.to_string(),
            r#","key":""#,
            &key,
            r#"","merchant":""#,
            &merchant_id.to_string(),
            r#"","occurred_at":""#,
            &occurred_at.to_rfc3339_opts(SecondsFormat::Micros, true),
            r#"","body":"#,
            &body,
            "}",
        ];
        (parts.concat(), key)
    }

    /// An event of each kind.
    fn events() -> Vec<Event> {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/tests/golden");
        let read = |kind: &str| std::fs::read_to_string(folder.join(format!("{kind}.v1.json"))).unwrap();
        codec::kinds().map(|kind| codec::decode(kind, 1, &read(kind)).unwrap()).collect()
    }

    #[test]
    fn every_line_of_a_batch_is_written_as_it_is_alone() {
        let mut random = fastrand::Rng::with_seed(7);
        let merchants = [0, u128::MAX, random.u128(..)].map(|id| MerchantId::new(Ulid(id)));
        let micros = [0, -1, 1_777_000_000_000_000, 1_777_000_000_000_001, -62_135_596_800_000_000];
        let mut times: Vec<DateTime<Utc>> =
            micros.into_iter().map(|micros| DateTime::from_timestamp_micros(micros).unwrap()).collect();
        // Within a microsecond, after the year 9999, before the year 0, and in a leap second.
        let others = [(7, 999), (253_402_300_800, 0), (-62_167_219_201, 1), (59, 1_999_999_999)];
        times.extend(others.map(|(seconds, nanos)| DateTime::from_timestamp(seconds, nanos).unwrap()));
        let (mut writer, mut lines, mut expected) = (LineWriter::default(), Vec::new(), String::new());
        let mut alone = String::new();
        for event in events().into_iter().cycle().take(2_000) {
            let merchant_id = merchants[random.usize(..merchants.len())];
            let occurred_at = times[random.usize(..times.len())];
            let fact = Fact { merchant_id, occurred_at, event };
            // As the events of one decision.
            for _ in 0..random.usize(1..4) {
                let (line, key) = written_by_parts(&fact);
                expected.push_str(&line);
                assert_eq!(writer.write(&fact, &mut lines), key);
                assert_eq!(write(&fact, &mut alone), key);
            }
        }
        assert!(lines == expected.as_bytes() && alone == expected);
    }

    #[test]
    fn a_written_event_reads_back_the_same() {
        let merchant_id: MerchantId = "mer_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap();
        let event = Event::Merchant(MerchantEvent::ClockAdvanced(ClockAdvanced {
            merchant_id,
            seconds: 7,
            ahead_seconds: 7,
        }));
        let occurred_at = DateTime::from_timestamp_micros(1_777_000_000_000_001).unwrap();
        let fact = Fact { merchant_id, occurred_at, event };
        let mut line = String::new();
        let key = write(&fact, &mut line);
        let record = Record::parse(&line).unwrap();
        assert_eq!((record.kind, record.version, record.key), ("clock.advanced", 1, key.as_str()));
        assert_eq!(record.fact().unwrap(), fact);
        assert_eq!(record.body(), codec::encode(&fact.event).body);
        assert!(!line.contains('\n'));
        assert_eq!(decode_written(&line), Some((key.as_str(), fact)));
    }

    #[test]
    fn a_line_of_another_form_is_read_by_the_parser_of_json_alone() {
        let line = |key: &str, version: &str, body: &str| {
            let about =
                r#""merchant":"mer_01ARZ3NDEKTSV4RRFFQ69G5FAV","occurred_at":"2026-11-22T01:02:03.000004Z""#;
            format!(r#"{{"kind":"clock.advanced","version":{version},"key":"{key}",{about},"body":{body}}}"#)
        };
        let body = r#"{"merchant_id":"mer_01ARZ3NDEKTSV4RRFFQ69G5FAV","seconds":7,"ahead_seconds":7}"#;
        let fact = decode(&line("a", "1", body)).unwrap();
        assert_eq!(decode_written(&line("a", "1", body)), Some(("a", fact.clone())));
        let other_forms = [
            line("a", "1", body).replace(r#""version":1,"#, r#""version": 1, "#),
            line("a", "1", &format!(r#"{body},"more":{{}}"#)),
            line("a", "1", body).replace(r#""kind""#, r#""more":1,"kind""#),
        ];
        for line in other_forms {
            assert_eq!(decode_written(&line), None, "{line}");
            assert_eq!(decode(&line).unwrap(), fact, "{line}");
        }
        for line in [
            line("a\n", "1", body),
            line("a\\\\", "1", body),
            line("a", "01", body),
            line("a", "1", &body[1..]),
            line("a", "1", &format!("{body}}}")),
            format!("{} ", line("a", "1", body)) + "x",
            line(r#"a","merchant":"b"#, "1", body),
        ] {
            assert_eq!(decode_written(&line), None, "{line}");
            assert!(decode(&line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_line_that_is_no_record_is_unreadable() {
        for line in ["", "{}", r#"{"kind":"a","version":1}"#, "null"] {
            assert!(matches!(decode(line), Err(Unreadable::Record(_))), "{line}");
        }
    }
}
