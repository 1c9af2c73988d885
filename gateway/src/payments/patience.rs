//! Which payments a runner leaves alone for a while: those that it has tried in vain, for longer each time. So however many
//! cannot be carried out, each further one gets its turn, and so does each of them again.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use farthing_ledger::ids::PaymentId;

/// After the first try in vain; each further one doubles it.
const FIRST: Duration = Duration::from_secs(1);

/// The longest wait.
const LONGEST: Duration = Duration::from_secs(300);

/// How many are remembered: beyond that it begins anew.
const MOST: usize = 20_000;

#[derive(Debug)]
struct Tried {
    times: u32,
    again_at: Instant,
    /// May it be tried now?
    is_due: bool,
}

/// The payments that were tried in vain.
#[derive(Debug, Default)]
pub(super) struct Patience {
    tried: HashMap<PaymentId, Tried>,
}

impl Patience {
    /// What has waited long enough at `now` is due; how often it was tried stays known until it is tried again.
    pub(super) fn look(&mut self, now: Instant) {
        for tried in self.tried.values_mut() {
            tried.is_due = tried.again_at <= now;
        }
        // One that was carried out elsewhere never comes again.
        self.tried.retain(|_, tried| now.saturating_duration_since(tried.again_at) < LONGEST);
    }

    /// Those that are not to be tried yet.
    pub(super) fn waiting(&self) -> Vec<String> {
        self.tried.iter().filter(|(_, tried)| !tried.is_due).map(|(id, _)| id.to_string()).collect()
    }

    /// It was tried in vain at `now`.
    pub(super) fn failed(&mut self, payment_id: PaymentId, now: Instant) {
        if self.tried.len() >= MOST {
            self.tried.clear();
        }
        let times = self.tried.get(&payment_id).map_or(0, |tried| tried.times);
        let wait = FIRST.saturating_mul(1 << times.min(16)).min(LONGEST);
        let tried = Tried { times: times + 1, again_at: now + wait, is_due: false };
        self.tried.insert(payment_id, tried);
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

    /// A round: the first `places` payments, oldest first, that need not wait.
    fn round(patience: &mut Patience, open: u128, places: usize, now: Instant) -> Vec<PaymentId> {
        patience.look(now);
        let waiting = patience.waiting();
        let due = (0..open).map(payment).filter(|id| !waiting.contains(&id.to_string()));
        due.take(places).collect()
    }

    #[test]
    fn payments_that_cannot_be_carried_out_keep_no_other_waiting() {
        let (mut patience, now) = (Patience::default(), Instant::now());
        // 250 fail whenever they are tried; the newest of all is tried in the third round at the latest.
        for number in 0..2 {
            let tried = round(&mut patience, 251, 100, now);
            assert_eq!(tried.first(), Some(&payment(number * 100)), "those that failed wait");
            tried.into_iter().for_each(|id| patience.failed(id, now));
        }
        assert!(round(&mut patience, 251, 100, now).contains(&payment(250)));
    }

    #[test]
    fn each_is_tried_again_after_longer_and_longer_but_always_again() {
        let (mut patience, mut now) = (Patience::default(), Instant::now());
        let mut waits = Vec::new();
        for _ in 0..12 {
            patience.failed(payment(0), now);
            let mut wait = Duration::ZERO;
            while round(&mut patience, 1, 1, now + wait).is_empty() {
                wait += Duration::from_secs(1);
            }
            waits.push(wait.as_secs());
            now += wait;
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
        patience.ended(payment(0));
        assert_eq!(round(&mut patience, 1, 1, now), [payment(0)]);
    }
}
