//! The JetStream stream of the feed: its name, configuration and headers, and the checks that it holds the whole log.

use std::time::Duration;

use async_nats::header::{NATS_EXPECTED_LAST_SEQUENCE, NATS_MESSAGE_ID};
use async_nats::jetstream::stream::{Config, State, StorageType};
use async_nats::{HeaderMap, HeaderName};

use crate::reader::Entry;
use crate::record::Record;
use farthing_core::secret::hex;

/// The stream's name.
pub const STREAM: &str = "LEDGER";
/// The subjects of the stream: `ledger.<merchant>.<kind>`.
pub const SUBJECTS: &str = "ledger.>";
/// The header with the event's position.
pub const POSITION_HEADER: HeaderName = HeaderName::from_static("farthing-position");
/// The header with the event's hash, hexadecimal.
pub const HASH_HEADER: HeaderName = HeaderName::from_static("farthing-hash");

/// How long the server remembers message ids. The sequence keeps the order; a longer window would only cost memory.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(5);

/// The configuration under which a missing stream is created.
pub(super) fn config() -> Config {
    Config {
        name: STREAM.to_owned(),
        subjects: vec![SUBJECTS.to_owned()],
        storage: StorageType::File,
        duplicate_window: DUPLICATE_WINDOW,
        deny_delete: true,
        deny_purge: true,
        allow_direct: true,
        description: Some(
            "The ledger's events in order. The log in Postgres is the source of truth.".to_owned(),
        ),
        ..Config::default()
    }
}

/// The headers of the message for `entry`, which must follow the message of sequence `previous`.
pub(super) fn headers(entry: &Entry, record: &Record<'_>, previous: u64) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(NATS_MESSAGE_ID, record.key);
    headers.insert(NATS_EXPECTED_LAST_SEQUENCE, previous.to_string());
    headers.insert(POSITION_HEADER, entry.position().to_string());
    headers.insert(HASH_HEADER, hex(entry.hash()));
    headers
}

/// The position in the headers of a message.
pub(super) fn position(headers: &HeaderMap) -> Option<i64> {
    headers.get(POSITION_HEADER).and_then(|value| value.as_str().parse().ok())
}

/// The number of messages in the stream and their first and last sequence.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    pub(super) messages: u64,
    pub(super) first: u64,
    pub(super) last: u64,
}

impl From<&State> for Extent {
    fn from(state: &State) -> Self {
        Self { messages: state.messages, first: state.first_sequence, last: state.last_sequence }
    }
}

impl Extent {
    /// The sequence of the first event: that of the first message, or of the next one in an empty stream.
    pub(super) const fn first_event(self) -> u64 {
        if self.messages == 0 { self.last + 1 } else { self.first }
    }

    /// Whether the stream has every message from sequence `first` to the last, and no other.
    const fn is_gapless_from(self, first: u64) -> bool {
        self.messages + first == self.last + 1
    }

    /// Whether the stream holds exactly one message per event up to `position`, the position in its last message.
    pub(super) fn holds_all_up_to(self, position: i64) -> bool {
        self.is_gapless_from(self.first_event()) && u64::try_from(position) == Ok(self.messages)
    }

    /// Whether the stream still begins at the sequence `first`, has no gap and ends at `last`, the sequence published
    /// last. Messages that are not acknowledged yet may be missing at the end.
    pub(super) const fn is_intact(self, first: u64, last: u64, all_acknowledged: bool) -> bool {
        let ends_right = self.last == last || (!all_acknowledged && self.last < last);
        let begins_right = self.messages == 0 || self.first == first;
        ends_right && begins_right && self.is_gapless_from(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn extent(messages: u64, first: u64, last: u64) -> Extent {
        Extent { messages, first, last }
    }

    #[test]
    fn a_stream_is_complete_with_one_message_per_event() {
        assert!(extent(3, 1, 3).holds_all_up_to(3));
        assert!(extent(3, 8, 10).holds_all_up_to(3), "the sequence need not begin at 1");
        assert!(!extent(3, 1, 3).holds_all_up_to(4), "an event is missing");
        assert!(!extent(3, 1, 3).holds_all_up_to(2), "a message is not of the log");
        assert!(!extent(2, 1, 3).holds_all_up_to(2), "a message was deleted");
        assert!(!extent(1, 1, 1).holds_all_up_to(-1));
        assert_eq!(extent(0, 0, 0).first_event(), 1);
        assert_eq!(extent(0, 0, 7).first_event(), 8);
        assert_eq!(extent(3, 8, 10).first_event(), 8);
    }

    #[test]
    fn a_stream_is_intact_while_it_holds_what_was_published_and_nothing_else() {
        assert!(extent(3, 1, 3).is_intact(1, 3, true));
        assert!(extent(0, 0, 0).is_intact(1, 0, true), "nothing was published yet");
        assert!(extent(2, 1, 2).is_intact(1, 3, false), "a message may be under way");
        assert!(!extent(2, 1, 2).is_intact(1, 3, true), "an acknowledged message is missing");
        assert!(!extent(4, 1, 4).is_intact(1, 3, false), "another client published");
        assert!(!extent(2, 2, 3).is_intact(1, 3, true), "the beginning was cut off");
        assert!(!extent(2, 1, 3).is_intact(1, 3, true), "a message was deleted");
        assert!(!extent(0, 4, 3).is_intact(1, 3, true), "it was purged");
        assert!(!extent(0, 0, 0).is_intact(8, 9, false), "it was created again");
    }

    #[test]
    fn a_message_without_a_position_has_none() {
        let mut headers = HeaderMap::new();
        assert_eq!(position(&headers), None);
        headers.insert(POSITION_HEADER, "a");
        assert_eq!(position(&headers), None);
        headers.insert(POSITION_HEADER, "17");
        assert_eq!(position(&headers), Some(17));
    }
}
