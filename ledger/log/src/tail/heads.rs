//! The heads of the log as a tail has read them, and since when each event is known: how far behind a reader is, in
//! events and in time.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::positions::Positions;

/// The shortest time between two heads that are remembered.
const INTERVAL: Duration = Duration::from_secs(1);

/// The most heads that are remembered. Then every other one is forgotten: the older a lag, the less exact its time.
const MAX_REMEMBERED: usize = 512;

/// How far a reader is behind the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lag {
    /// The events that it has not reached.
    pub events: i64,
    /// The time since the first of them is known to be in the log.
    pub time: Duration,
}

/// The heads that were read.
#[derive(Debug, Default)]
pub struct SeenHeads(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    newest: Option<(Instant, Positions)>,
    /// Some of the heads, the oldest first.
    remembered: VecDeque<(Instant, Positions)>,
}

impl SeenHeads {
    /// Takes note of heads that were read now.
    pub(super) fn saw(&self, heads: &Positions) {
        let (mut seen, now) = (self.lock(), Instant::now());
        let last = seen.remembered.back();
        if last.is_none_or(|(at, last)| now.duration_since(*at) >= INTERVAL && last != heads) {
            seen.remembered.push_back((now, heads.clone()));
        }
        if seen.remembered.len() > MAX_REMEMBERED {
            let mut is_kept = false;
            seen.remembered.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
        }
        seen.newest = Some((now, heads.clone()));
    }

    /// How far a reader at `reached` is behind.
    pub fn lag(&self, reached: &Positions) -> Lag {
        let seen = self.lock();
        let Some((at, newest)) = &seen.newest else { return Lag::default() };
        let events = newest.events_after(reached);
        if events == 0 {
            return Lag::default();
        }
        let mut remembered = seen.remembered.iter();
        let first = remembered.find(|(_, heads)| heads.events_after(reached) > 0);
        Lag { events, time: first.map_or(at, |(at, _)| at).elapsed() }
    }

    /// The heads that were read last.
    pub fn newest(&self) -> Option<Positions> {
        self.lock().newest.as_ref().map(|(_, heads)| heads.clone())
    }

    /// The time since heads were read.
    pub fn age(&self) -> Option<Duration> {
        self.lock().newest.as_ref().map(|(at, _)| at.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use farthing_core::partition::Partition;
    use tokio::time::advance;

    use super::*;

    fn at(position: i64) -> Positions {
        [(Partition::new(0), position)].into_iter().collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_lag_is_as_old_as_the_first_event_that_is_not_reached() {
        let heads = SeenHeads::default();
        assert_eq!((heads.lag(&at(0)), heads.age()), (Lag::default(), None));
        for position in 1..=10 {
            heads.saw(&at(position));
            advance(INTERVAL).await;
        }
        assert_eq!(heads.lag(&at(10)), Lag::default());
        assert_eq!(heads.lag(&at(4)), Lag { events: 6, time: INTERVAL * 6 });
        assert_eq!(heads.age(), Some(INTERVAL));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_remembered_is_bounded_and_a_long_lag_is_still_known() {
        let heads = SeenHeads::default();
        for position in 1..=5_000 {
            heads.saw(&at(position));
            advance(INTERVAL).await;
        }
        assert!(heads.lock().remembered.len() <= MAX_REMEMBERED);
        assert_eq!(heads.lag(&at(0)), Lag { events: 5_000, time: INTERVAL * 5_000 });
    }
}
