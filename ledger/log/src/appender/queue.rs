//! The bounds of the appender's queue. Invariant: a command is refused at once when there is no place for it, and a
//! settlement always has a place.
//!
//! A place is kept from the submission of a command to its answer, so commands in the batch under way count too.
//! Merchants share the places and the bytes: one alone has half of them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use farthing_core::ids::MerchantId;
use farthing_shares::{Division, Shares};
use farthing_telemetry::{Age, Ages};
use tokio::time::Instant;

use super::Error;
use crate::metrics::LedgerMetrics;

/// The bytes that a command counts for beside its text.
const COMMAND_BYTES: usize = 2 * 1024;

/// Places of settlements beside those of all other commands. If they are taken too, a settlement waits for one.
pub(super) const SETTLEMENTS: usize = 8_192;

/// The bounds of the queue. They do not apply to settlements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    /// The most commands that are not answered yet.
    pub commands: usize,
    /// The most bytes that these commands hold.
    pub bytes: usize,
    /// The longest time until a command is taken into a batch.
    pub timeout: Duration,
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self { commands: 4_096, bytes: 32 * 1024 * 1024, timeout: Duration::from_secs(5) }
    }
}

/// Whose command it is: a merchant's, or one of the program or the operator that names none.
pub(super) type Owner = Option<MerchantId>;

/// The places of a queue.
#[derive(Debug, Clone)]
pub(super) struct Places {
    timeout: Duration,
    taken: Arc<Mutex<Taken>>,
    unanswered: Ages,
    metrics: Arc<LedgerMetrics>,
}

/// What commands that are not answered yet have taken.
#[derive(Debug)]
struct Taken {
    commands: Shares<MerchantId>,
    bytes: Shares<MerchantId>,
    /// Those of no merchant, which have places of their own: few wait at once, and they are short.
    of_none: usize,
    most_of_none: usize,
}

impl Taken {
    /// Takes a place and its bytes, or nothing.
    fn take(&mut self, owner: Owner, bytes: usize) -> Option<()> {
        let Some(merchant_id) = owner else {
            let is_free = self.of_none < self.most_of_none;
            self.of_none += usize::from(is_free);
            return is_free.then_some(());
        };
        self.commands.take(merchant_id, 1).ok()?;
        let taken = self.bytes.take(merchant_id, bytes).ok();
        if taken.is_none() {
            self.commands.give_back(&merchant_id, 1);
        }
        taken
    }

    fn give_back(&mut self, owner: Owner, bytes: usize) {
        match owner {
            None => self.of_none -= 1,
            Some(merchant_id) => {
                self.commands.give_back(&merchant_id, 1);
                self.bytes.give_back(&merchant_id, bytes);
            }
        }
    }
}

impl Places {
    pub(super) fn new(limits: QueueLimits, metrics: Arc<LedgerMetrics>) -> Self {
        let QueueLimits { commands, bytes, timeout } = limits;
        let shares = |all: usize| Shares::new(Division::of(all, all.div_ceil(2)));
        let taken =
            Taken { commands: shares(commands), bytes: shares(bytes), of_none: 0, most_of_none: commands };
        Self { timeout, taken: Arc::new(Mutex::new(taken)), unanswered: Ages::default(), metrics }
    }

    /// The place of a command of `owner` with `text_bytes` bytes of text.
    pub(super) fn take(&self, owner: Owner, text_bytes: usize) -> Result<Place, Error> {
        let units = self.units(owner, text_bytes.saturating_add(COMMAND_BYTES)).ok_or_else(|| {
            self.metrics.shed_full.inc();
            Error::Overloaded
        })?;
        let expires_at = Some(Instant::now() + self.timeout);
        Ok(Place { expires_at, _units: Some(units), _age: Some(self.unanswered.begin()) })
    }

    fn units(&self, owner: Owner, bytes: usize) -> Option<Units> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).take(owner, bytes)?;
        Some(Units { taken: Arc::clone(&self.taken), owner, bytes })
    }

    /// The place of a settlement. It does not expire.
    pub(super) fn of_settlement(&self) -> Place {
        Place { expires_at: None, _units: None, _age: Some(self.unanswered.begin()) }
    }

    /// The commands that are not answered yet.
    pub(super) fn unanswered(&self) -> Ages {
        self.unanswered.clone()
    }
}

/// One command and its bytes, until they are dropped.
#[derive(Debug)]
struct Units {
    taken: Arc<Mutex<Taken>>,
    owner: Owner,
    bytes: usize,
}

impl Drop for Units {
    fn drop(&mut self) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.give_back(self.owner, self.bytes);
    }
}

/// A command's place in the queue; dropping it makes it free.
#[derive(Debug)]
pub(super) struct Place {
    expires_at: Option<Instant>,
    _units: Option<Units>,
    _age: Option<Age>,
}

impl Place {
    /// A place of no queue.
    #[cfg(test)]
    pub(super) const fn unbounded() -> Self {
        Self { expires_at: None, _units: None, _age: None }
    }

    /// Whether the command has waited for too long.
    pub(super) fn has_expired(&self, now: Instant) -> bool {
        self.expires_at.is_some_and(|expires_at| expires_at <= now)
    }
}

#[cfg(test)]
mod tests {
    use ulid::Ulid;

    use super::*;

    fn merchant(number: u128) -> MerchantId {
        MerchantId::new(Ulid(number))
    }

    fn places(commands: usize, bytes: usize) -> Places {
        Places::new(QueueLimits { commands, bytes, timeout: Duration::from_secs(5) }, Arc::default())
    }

    #[tokio::test]
    async fn a_queue_is_full_by_commands_until_one_is_answered() {
        let places = places(2, usize::MAX);
        let first = places.take(Some(merchant(1)), 0).unwrap();
        let _second = places.take(Some(merchant(2)), 0).unwrap();
        assert_eq!(places.take(Some(merchant(3)), 0).unwrap_err(), Error::Overloaded);
        drop(first);
        places.take(Some(merchant(3)), 0).unwrap();
    }

    #[tokio::test]
    async fn what_no_merchant_asked_for_has_places_of_its_own() {
        let places = places(2, 4 * COMMAND_BYTES);
        let _merchants = [1, 2].map(|number| places.take(Some(merchant(number)), 0).unwrap());
        let first = places.take(None, 0).unwrap();
        let _second = places.take(None, 0).unwrap();
        assert_eq!(places.take(None, 0).unwrap_err(), Error::Overloaded);
        drop(first);
        places.take(None, 0).unwrap();
    }

    #[tokio::test]
    async fn a_queue_is_full_by_bytes_until_a_command_is_answered() {
        let places = places(100, 4 * COMMAND_BYTES);
        let first = places.take(Some(merchant(1)), COMMAND_BYTES).unwrap();
        assert_eq!(places.take(Some(merchant(1)), 0).unwrap_err(), Error::Overloaded, "more than half");
        drop(first);
        assert_eq!(
            places.take(Some(merchant(1)), COMMAND_BYTES + 1).unwrap_err(),
            Error::Overloaded,
            "one byte too many"
        );
        assert_eq!(places.take(Some(merchant(1)), usize::MAX).unwrap_err(), Error::Overloaded);
        let _refused_ones_take_nothing = places.take(Some(merchant(1)), COMMAND_BYTES).unwrap();
    }

    #[tokio::test]
    async fn a_merchant_leaves_places_and_bytes_to_others() {
        let limits = [(4_096, usize::MAX, 0), (usize::MAX, 4_096 * (COMMAND_BYTES + 50_000), 50_000)];
        for (commands, bytes, text_bytes) in limits {
            let places = places(commands, bytes);
            let all_of =
                |owner| std::iter::from_fn(|| places.take(Some(owner), text_bytes).ok()).collect::<Vec<_>>();
            let first = all_of(merchant(1));
            assert_eq!(first.len(), 2_048, "{commands}");
            let second = all_of(merchant(2));
            assert!((100..2_048).contains(&second.len()), "{}", second.len());
            let others: Vec<_> = (3..33).map(|number| all_of(merchant(number))).collect();
            assert!(others.iter().all(|places| places.len() >= 32), "{commands}");
            drop(first);
            assert!(all_of(merchant(40)).len() > 100);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_expires_and_that_of_a_settlement_does_not() {
        let places = places(1, usize::MAX);
        let place = places.take(None, 0).unwrap();
        assert!(!place.has_expired(Instant::now()));
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(place.has_expired(Instant::now()));
        assert!(!places.of_settlement().has_expired(Instant::now() + Duration::from_hours(1)));
    }
}
