//! Which payments a runner leaves alone for a while: those that it has tried in vain, for longer each time. They have places of
//! their own in a round, in the order of their last try: so however many cannot be carried out, and however long each try
//! takes, each further payment gets its turn, and so does each of them again.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use farthing_core::ids::PaymentId;

/// After the first try in vain; each further one doubles it.
const FIRST: Duration = Duration::from_secs(1);

/// The longest wait.
const LONGEST: Duration = Duration::from_mins(5);

/// How many are remembered: beyond that it begins anew.
const MOST: usize = 20_000;

#[derive(Debug)]
struct Tried {
    times: u32,
    again_at: Instant,
}

/// The payments that were tried in vain and have not ended since, as far as is known.
#[derive(Debug, Default)]
pub(super) struct RetryBackoff {
    tried: HashMap<PaymentId, Tried>,
}

impl RetryBackoff {
    /// All of them.
    pub(super) fn tried(&self) -> Vec<String> {
        self.tried.keys().map(ToString::to_string).collect()
    }

    /// Those that have waited long enough at `now`, at most so many, the one that has waited longest first.
    pub(super) fn due(&self, now: Instant, most: usize) -> Vec<PaymentId> {
        let due = self.tried.iter().filter(|(_, tried)| tried.again_at <= now);
        let mut due: Vec<_> = due.map(|(id, tried)| (tried.again_at, *id)).collect();
        due.sort_unstable();
        due.into_iter().take(most).map(|(_, id)| id).collect()
    }

    /// It was tried in vain at `now`.
    pub(super) fn failed(&mut self, payment_id: PaymentId, now: Instant) {
        if self.tried.len() >= MOST {
            self.tried.clear();
        }
        let times = self.tried.get(&payment_id).map_or(0, |tried| tried.times);
        let wait = FIRST.saturating_mul(1 << times.min(16)).min(LONGEST);
        self.tried.insert(payment_id, Tried { times: times + 1, again_at: now + wait });
    }

    /// It has ended.
    pub(super) fn ended(&mut self, payment_id: PaymentId) {
        self.tried.remove(&payment_id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payment(number: u128) -> PaymentId {
        PaymentId::new(ulid::Ulid(number))
    }

    /// A round: so many of those that were never tried, the oldest first, and so many of the others.
    fn round(backoff: &RetryBackoff, open: u128, places: usize, now: Instant) -> Vec<PaymentId> {
        let tried = backoff.tried();
        let fresh = (0..open).map(payment).filter(|id| !tried.contains(&id.to_string()));
        fresh.take(places).chain(backoff.due(now, places)).collect()
    }

    #[test]
    fn payments_that_cannot_be_carried_out_keep_no_other_waiting() {
        let (mut backoff, mut now) = (RetryBackoff::default(), Instant::now());
        // 250 fail whenever they are tried, and each round takes so long that all of them are due again by its end.
        let mut rounds = Vec::new();
        for number in 0..50 {
            let tried = round(&backoff, 250, 10, now);
            now += 2 * LONGEST;
            for id in &tried {
                backoff.failed(*id, now);
            }
            if number < 25 {
                let fresh = (number * 10..number * 10 + 10).map(payment);
                assert!(fresh.eq(tried.iter().copied().take(10)), "what is new is not kept waiting");
            } else {
                rounds.extend(tried);
            }
        }
        assert_eq!(
            rounds.iter().collect::<std::collections::HashSet<_>>().len(),
            250,
            "each again in its turn"
        );
        // A new one is tried in the next round.
        assert_eq!(round(&backoff, 251, 10, now).first(), Some(&payment(250)));
    }

    #[test]
    fn each_is_tried_again_after_longer_and_longer_but_always_again() {
        let (mut backoff, mut now) = (RetryBackoff::default(), Instant::now());
        let mut waits = Vec::new();
        for _ in 0..12 {
            backoff.failed(payment(0), now);
            let mut wait = Duration::ZERO;
            while backoff.due(now + wait, 1).is_empty() {
                wait += Duration::from_secs(1);
            }
            waits.push(wait.as_secs());
            now += wait;
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
        backoff.ended(payment(0));
        assert!(backoff.tried().is_empty() && backoff.due(now + LONGEST, 1).is_empty());
    }
}
