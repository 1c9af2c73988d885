//! The JetStream stream of a partition's feed: its configuration, and the checks that it holds the whole log.

use std::time::Duration;

use async_nats::jetstream::stream::{Config, State, StorageType};

use farthing_core::partition::Partition;

use super::message::Published;
use crate::nats_names::NatsNames;

/// How long the server remembers message ids. The sequence keeps the order; a longer window would only cost memory.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(5);

/// The configuration under which a missing stream is created.
pub(super) fn config(names: &NatsNames, partition: Partition, replicas: usize) -> Config {
    Config {
        name: names.stream(partition),
        subjects: vec![names.subject(partition)],
        storage: StorageType::File,
        num_replicas: replicas,
        duplicate_window: DUPLICATE_WINDOW,
        deny_delete: true,
        deny_purge: true,
        allow_direct: true,
        description: Some(
            "A partition of the ledger's log, in order. The log in Postgres is the source of truth."
                .to_owned(),
        ),
        ..Config::default()
    }
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
    /// The sequence of the first message, or of the next one in an empty stream.
    pub(super) const fn first_message(self) -> u64 {
        if self.messages == 0 { self.last + 1 } else { self.first }
    }

    /// Whether the stream has every message from sequence `first` to the last, and no other.
    const fn is_gapless_from(self, first: u64) -> bool {
        self.messages + first == self.last + 1
    }

    /// Whether the stream holds all messages up to `last`, its last message, and no other. `before` is the
    /// message before it; `None` if there is none.
    ///
    /// A relay publishes only directly behind a message that passed this check or that it published itself;
    /// the server refuses the rest. So if no sequence is missing and the number of the last message is the
    /// number of messages, the stream begins with message 1, and each message but the last follows the one
    /// before. The last one may be of another client, even a copy of one of the relay's: then its number is
    /// wrong, or it repeats or skips positions.
    pub(super) fn holds_all_up_to(self, last: &Published, before: Option<&Published>) -> bool {
        let follows = match before {
            None => last.number == 1 && last.first_position == 1,
            Some(before) => {
                before.number.checked_add(1) == Some(last.number)
                    && before.last_position + 1 == last.first_position
            }
        };
        self.is_gapless_from(self.first_message()) && self.messages == last.number && follows
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

    const fn published(number: u64, first_position: i64, last_position: i64) -> Published {
        Published { number, first_position, last_position, last_hash: [0; 32] }
    }

    #[test]
    fn a_stream_is_complete_with_every_message_from_the_first_to_the_last() {
        let (before, last) = (published(2, 4, 6), published(3, 7, 7));
        assert!(extent(3, 1, 3).holds_all_up_to(&last, Some(&before)));
        assert!(extent(3, 8, 10).holds_all_up_to(&last, Some(&before)), "the sequence need not begin at 1");
        assert!(extent(1, 1, 1).holds_all_up_to(&published(1, 1, 3), None));
        assert!(!extent(2, 2, 3).holds_all_up_to(&last, Some(&before)), "the beginning was cut off");
        assert!(!extent(2, 1, 3).holds_all_up_to(&last, Some(&before)), "a message was deleted");
        assert!(!extent(4, 1, 4).holds_all_up_to(&last, Some(&last)), "the last message was published twice");
        assert!(!extent(4, 1, 4).holds_all_up_to(&published(4, 7, 7), Some(&last)), "a position is repeated");
        assert!(!extent(4, 1, 4).holds_all_up_to(&published(4, 9, 9), Some(&last)), "a position is missing");
        assert!(!extent(1, 3, 3).holds_all_up_to(&last, None), "only the last message is left");
        assert!(
            !extent(1, 1, 1).holds_all_up_to(&published(1, 2, 2), None),
            "it begins behind the first event"
        );
        assert_eq!(extent(0, 0, 0).first_message(), 1);
        assert_eq!(extent(0, 0, 7).first_message(), 8);
        assert_eq!(extent(3, 8, 10).first_message(), 8);
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
}
