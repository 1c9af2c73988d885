//! The JetStream stream of a partition's feed: its configuration, and the checks that it holds the whole log.

use std::time::Duration;

use async_nats::jetstream::stream::{Config, State, StorageType};

use farthing_core::partition::Partition;

use super::feed::MAX_AWAITED;
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

/// The messages at the end of a stream that are compared with each other: more than a relay sends before it knows that
/// the first of them was refused.
pub(super) const LOOK_BACK: usize = 2 * MAX_AWAITED;

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

    /// Whether the stream holds all messages up to its last one, and no other. `newest` are its newest messages, the last one
    /// first: all, or [`LOOK_BACK`].
    ///
    /// A relay publishes directly behind a message that passed this check, and then behind its own; the server refuses
    /// the rest. A message of another client at the end has a wrong number, or it repeats or skips positions. So does one of a
    /// relay that stood still while another one took over: the server refuses its first message, whose place is taken,
    /// but those that it sent before it knew follow the other relay's by their sequences.
    pub(super) fn holds_all_up_to(self, newest: &[Published]) -> bool {
        let (Some(last), Some(oldest)) = (newest.first(), newest.last()) else { return false };
        let begins = newest.len() < LOOK_BACK || self.messages == LOOK_BACK as u64;
        let begins_right = !begins || (oldest.number == 1 && oldest.first_position == 1);
        let follow = newest.windows(2).all(|pair| pair[0].follows(&pair[1]));
        self.is_gapless_from(self.first_message()) && self.messages == last.number && begins_right && follow
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
        let (first, second, third) = (published(1, 1, 3), published(2, 4, 6), published(3, 7, 7));
        let all = [third, second, first];
        assert!(extent(3, 1, 3).holds_all_up_to(&all));
        assert!(extent(3, 8, 10).holds_all_up_to(&all), "the sequence need not begin at 1");
        assert!(extent(1, 1, 1).holds_all_up_to(&[first]));
        assert!(!extent(2, 2, 3).holds_all_up_to(&[third, second]), "the beginning was cut off");
        assert!(!extent(2, 1, 3).holds_all_up_to(&[third, first]), "a message was deleted");
        let behind = |last| [last, third, second, first];
        assert!(extent(4, 1, 4).holds_all_up_to(&behind(published(4, 8, 9))));
        assert!(!extent(4, 1, 4).holds_all_up_to(&behind(third)), "the last message was published twice");
        assert!(!extent(4, 1, 4).holds_all_up_to(&behind(published(4, 7, 7))), "a position is repeated");
        assert!(!extent(4, 1, 4).holds_all_up_to(&behind(published(4, 9, 9))), "a position is missing");
        assert!(!extent(1, 3, 3).holds_all_up_to(&[third]), "only the last message is left");
        assert!(!extent(1, 1, 1).holds_all_up_to(&[published(1, 2, 2)]), "it begins behind the first event");
        assert!(!extent(1, 1, 1).holds_all_up_to(&[]));
    }

    /// A relay that stood still sent as many messages as may be under way at once. The first one was refused.
    #[test]
    fn a_gap_before_all_messages_that_were_under_way_is_noticed() {
        let stream = |gap: i64, length: u64| -> Vec<Published> {
            let message = |number: u64| {
                let position = i64::try_from(number).unwrap();
                let skipped = if length - number < MAX_AWAITED as u64 - 1 { gap } else { 0 };
                published(number, position + skipped, position + skipped)
            };
            (1..=length).rev().map(message).take(LOOK_BACK).collect()
        };
        for length in [LOOK_BACK as u64 - 1, LOOK_BACK as u64, LOOK_BACK as u64 + 1, 1_000] {
            assert!(extent(length, 1, length).holds_all_up_to(&stream(0, length)), "{length}");
            for gap in [587, -1] {
                assert!(!extent(length, 1, length).holds_all_up_to(&stream(gap, length)), "{length}, {gap}");
            }
        }
    }

    #[test]
    fn the_first_message_of_an_empty_stream_is_the_next_one() {
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
