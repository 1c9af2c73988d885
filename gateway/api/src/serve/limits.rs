//! The limits of a gateway's connections and calls in flight.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use farthing_core::ids::MerchantId;
use farthing_shares::{Division, Full, Shares};
use farthing_telemetry::{Counted, Gauge};
use http::Extensions;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::call_rate::{CallRate, TooFast};
use crate::caller_key::CallerKey;
use crate::error::{ApiError, GatewayLimit};

/// While several keys of a merchant call, one with calls in flight gets at most so many times what it leaves free to the
/// others: the first three quarters of the merchant's calls, and each further one three quarters of what is left.
const TIMES_FREE: usize = 3;

/// A key of which there was no call for so long does not count as one that calls.
const CALLS_WITHIN: Duration = Duration::from_mins(10);

/// The least number of merchants at which those without calls are removed.
const MIN_PURGE: usize = 1_024;

/// How much a gateway takes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerLimits {
    /// The most connections of callers. Further ones wait until they are accepted.
    pub connections: usize,
    /// The most connections of one address. Further ones are closed at once. `None` is no limit.
    pub connections_per_address: Option<usize>,
    /// The most calls in flight. Further ones are answered with 503 at once.
    pub calls: usize,
    /// The most calls in flight of one merchant, which are fewer while others call. Further ones are answered with 503 at
    /// once. `None` is no limit.
    pub calls_per_merchant: Option<usize>,
    /// The most calls of one merchant that begin in a second. Further ones wait for up to a second, and are answered with 503
    /// then. `None` is no limit.
    pub call_rate_per_merchant: Option<NonZeroU32>,
    /// For the other gateways: the most connections that have not shown the token, besides those that have. A further one
    /// closes the oldest. `None` for callers of the API, who need no token.
    pub strangers: Option<usize>,
}

/// A call in flight, until all its copies are dropped.
#[derive(Debug, Clone)]
pub(crate) struct CallInFlight(Arc<Place>);

impl CallInFlight {
    /// Counts the call of a request as one of this merchant's, made with the key of `caller`, and waits for its turn. Refuses
    /// it if the merchant, or the key beside its other ones, has too many.
    pub(crate) async fn belongs_to(
        merchant_id: MerchantId,
        caller: CallerKey,
        request: &Extensions,
    ) -> Result<(), ApiError> {
        let Some(call) = request.get::<Self>() else { return Ok(()) };
        call.count_for(merchant_id, caller).map_err(ApiError::overloaded_by_merchant)?;
        let Some(rate) = &call.0.rate else { return Ok(()) };
        let too_fast = |TooFast| ApiError::overloaded_by_merchant(GatewayLimit::CallRateOfMerchant);
        rate.wait(merchant_id, caller).await.map_err(too_fast)
    }

    fn count_for(&self, merchant_id: MerchantId, caller: CallerKey) -> Result<(), GatewayLimit> {
        let Place { of_merchants, owner, .. } = &*self.0;
        if let Some(of_merchants) = of_merchants
            && owner.get().is_none()
        {
            of_merchants.take(merchant_id, caller)?;
            // Nobody else counts this call.
            let _ = owner.set((merchant_id, caller));
        }
        Ok(())
    }
}

/// The place of a call among all, and among those of its merchant and key once they are known.
#[derive(Debug)]
struct Place {
    of_merchants: Option<Arc<OfMerchants>>,
    rate: Option<Arc<CallRate>>,
    owner: OnceLock<(MerchantId, CallerKey)>,
    _permit: OwnedSemaphorePermit,
    _counted: Counted,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let (Some(of_merchants), Some((merchant_id, caller))) = (&self.of_merchants, self.owner.get()) {
            of_merchants.free(*merchant_id, *caller);
        }
    }
}

/// The calls in flight.
#[derive(Debug, Clone)]
pub(super) struct CallsInFlight {
    all: Arc<Semaphore>,
    of_merchants: Option<Arc<OfMerchants>>,
    rate: Option<Arc<CallRate>>,
}

impl CallsInFlight {
    /// As many as `limits` admit.
    pub(super) fn new(limits: ServerLimits) -> Self {
        let ServerLimits { calls, calls_per_merchant, call_rate_per_merchant, .. } = limits;
        let of_merchants = calls_per_merchant.map(|of_one| Arc::new(OfMerchants::new(calls, of_one)));
        let rate = call_rate_per_merchant.map(|rate| Arc::new(CallRate::new(rate)));
        Self { all: Arc::new(Semaphore::new(calls)), of_merchants, rate }
    }

    /// Another call, which `in_flight` counts; `None` if there are too many.
    pub(super) fn begin(&self, in_flight: &Gauge) -> Option<CallInFlight> {
        let permit = Arc::clone(&self.all).try_acquire_owned().ok()?;
        let place = Place {
            of_merchants: self.of_merchants.clone(),
            rate: self.rate.clone(),
            owner: OnceLock::new(),
            _permit: permit,
            _counted: Counted::new(in_flight),
        };
        Some(CallInFlight(Arc::new(place)))
    }
}

/// The calls of each merchant.
#[derive(Debug)]
struct OfMerchants {
    taken: Mutex<Taken>,
}

#[derive(Debug)]
struct Taken {
    shares: Shares<MerchantId>,
    by_merchant: HashMap<MerchantId, OfMerchant>,
    /// Merchants that do not call are removed once there are so many.
    purge_at: usize,
}

/// The calls of one merchant.
#[derive(Debug, Default)]
struct OfMerchant {
    /// Holds no key without a call.
    by_caller: HashMap<CallerKey, usize>,
    /// The key of the last call, and its time.
    last: Option<(CallerKey, Instant)>,
    /// The time of the last call of any other key.
    last_of_others: Option<Instant>,
}

impl OfMerchants {
    /// Of `all` calls, at most `most` of one merchant.
    fn new(all: usize, most: usize) -> Self {
        let shares = Shares::new(Division::of(all, most));
        Self { taken: Mutex::new(Taken { shares, by_merchant: HashMap::new(), purge_at: MIN_PURGE }) }
    }

    fn take(&self, merchant_id: MerchantId, caller: CallerKey) -> Result<(), GatewayLimit> {
        let now = Instant::now();
        let mut taken = self.lock();
        if taken.by_merchant.len() >= taken.purge_at {
            taken.by_merchant.retain(|_, merchant| merchant.calls_lately(now));
            taken.purge_at = MIN_PURGE.max(taken.by_merchant.len() * 2);
        }
        let Taken { shares, by_merchant, .. } = &mut *taken;
        let left = shares.room(&merchant_id).checked_sub(1);
        let of_merchant = by_merchant.entry(merchant_id).or_default();
        if !of_merchant.admits(caller, left, now) {
            return Err(GatewayLimit::CallsOfMerchant);
        }
        shares.take(merchant_id, 1).map_err(|full| match full {
            Full::All => GatewayLimit::CallsLeftToMerchant,
            Full::Owner => GatewayLimit::CallsOfMerchant,
        })?;
        of_merchant.count(caller);
        Ok(())
    }

    fn free(&self, merchant_id: MerchantId, caller: CallerKey) {
        let mut taken = self.lock();
        taken.shares.give_back(&merchant_id, 1);
        if let Some(of_merchant) = taken.by_merchant.get_mut(&merchant_id) {
            of_merchant.free(caller);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OfMerchant {
    /// Whether `caller` gets another call, after which the merchant's keys have so many `left`.
    fn admits(&mut self, caller: CallerKey, left: Option<usize>, now: Instant) -> bool {
        // Also a call that is refused is one that its key wants.
        let is_shared = self.others_call(caller, now);
        // What others do not leave is refused by the merchant's share.
        let Some(left) = left else { return true };
        let own = self.by_caller.get(&caller).map_or(1, |calls| calls + 1);
        !is_shared || own == 1 || own <= TIMES_FREE * left
    }

    fn count(&mut self, caller: CallerKey) {
        *self.by_caller.entry(caller).or_default() += 1;
    }

    fn free(&mut self, caller: CallerKey) {
        if let Some(calls) = self.by_caller.get_mut(&caller) {
            *calls -= 1;
            if *calls == 0 {
                self.by_caller.remove(&caller);
            }
        }
    }

    /// Whether another key of the merchant calls as well. Notes the call of `caller`.
    fn others_call(&mut self, caller: CallerKey, now: Instant) -> bool {
        if let Some((last, at)) = self.last.replace((caller, now))
            && last != caller
        {
            self.last_of_others = Some(at);
        }
        self.last_of_others.is_some_and(|at| now.duration_since(at) < CALLS_WITHIN)
    }

    fn calls_lately(&self, now: Instant) -> bool {
        !self.by_caller.is_empty() || self.last.is_some_and(|(_, at)| now.duration_since(at) < CALLS_WITHIN)
    }
}

#[cfg(test)]
mod tests {
    use ulid::Ulid;

    use super::*;

    fn calls(calls: usize, calls_per_merchant: Option<usize>) -> CallsInFlight {
        CallsInFlight::new(ServerLimits {
            connections: 1,
            connections_per_address: None,
            calls,
            calls_per_merchant,
            call_rate_per_merchant: None,
            strangers: None,
        })
    }

    #[test]
    fn a_call_ends_with_its_last_copy() {
        let calls = calls(1, None);
        let first = calls.begin(&Gauge::default()).unwrap();
        let copy = first.clone();
        drop(first);
        assert!(calls.begin(&Gauge::default()).is_none());
        drop(copy);
        assert!(calls.begin(&Gauge::default()).is_some());
    }

    fn merchant(number: u128) -> MerchantId {
        MerchantId::new(Ulid::from_parts(1, number))
    }

    const FIRST: CallerKey = CallerKey::of_test(1);
    const SECOND: CallerKey = CallerKey::of_test(2);

    #[test]
    fn a_merchant_has_a_limit_of_its_own() {
        let [one, other] = [1, 2].map(merchant);
        let calls = calls(5, Some(1));
        let first = calls.begin(&Gauge::default()).unwrap();
        assert_eq!(first.count_for(one, FIRST), Ok(()));
        assert_eq!(first.clone().count_for(one, FIRST), Ok(()), "a call counts once");
        let second = calls.begin(&Gauge::default()).unwrap();
        assert_eq!(second.count_for(one, FIRST), Err(GatewayLimit::CallsOfMerchant));
        assert_eq!(second.count_for(other, FIRST), Ok(()));
        drop(first);
        let third = calls.begin(&Gauge::default()).unwrap();
        assert_eq!(third.count_for(one, FIRST), Ok(()), "a call has ended");
        drop((second, third));
        let of_merchants = calls.of_merchants.unwrap();
        let taken = of_merchants.lock();
        assert_eq!(taken.shares.taken(), 0);
        assert!(taken.by_merchant.values().all(|merchant| merchant.by_caller.is_empty()));
    }

    /// Takes as many calls as the key gets, and returns their number.
    fn take_all(of: &OfMerchants, caller: CallerKey) -> usize {
        (0..10_000).take_while(|_| of.take(merchant(1), caller).is_ok()).count()
    }

    #[tokio::test(start_paused = true)]
    async fn one_key_gets_all_calls_of_its_merchant_unless_others_call_too() {
        const MOST: usize = 64;
        let of = OfMerchants::new(4 * MOST, MOST);
        assert_eq!(take_all(&of, FIRST), MOST, "it is the only one");
        assert_eq!(take_all(&of, SECOND), 0);
        // The second one is known to want calls, so what ends is left to it.
        (0..MOST / 2).for_each(|_| of.free(merchant(1), FIRST));
        assert_eq!(take_all(&of, FIRST), MOST / 4);
        assert_eq!(take_all(&of, SECOND), MOST / 4 * 3 / 4);
        // Each further key gets at least one call, as long as there is any.
        let further: Vec<_> = (3..10).map(|number| take_all(&of, CallerKey::of_test(number))).collect();
        assert_eq!(further, [3, 1, 0, 0, 0, 0, 0]);
        (0..MOST / 4 * 3).for_each(|_| of.free(merchant(1), FIRST));
        tokio::time::advance(CALLS_WITHIN).await;
        assert_eq!(take_all(&of, FIRST), MOST / 4 * 3, "the others have not called for long");
    }

    #[test]
    fn merchants_that_hold_all_calls_they_get_leave_some_to_others() {
        const CALLS: usize = 4_096;
        let of = OfMerchants::new(CALLS, CALLS / 2);
        let got = |number| (0..CALLS).take_while(|_| of.take(merchant(number), FIRST).is_ok()).count();
        assert_eq!(got(1), CALLS / 2);
        let further: Vec<_> = (2..=32).map(got).collect();
        assert!(further.iter().all(|calls| *calls >= 32), "{further:?}");
        assert_eq!(of.take(merchant(2), FIRST), Err(GatewayLimit::CallsLeftToMerchant));
    }

    #[tokio::test(start_paused = true)]
    async fn the_keys_of_a_merchant_share_what_other_merchants_leave_to_it() {
        let of = OfMerchants::new(2_048, 1_024);
        (0..1_024).for_each(|_| of.take(merchant(2), FIRST).unwrap());
        of.take(merchant(1), SECOND).unwrap();
        let greedy = take_all(&of, FIRST);
        assert!((250..300).contains(&greedy), "three quarters of 362: {greedy}");
        assert_eq!(of.take(merchant(1), SECOND), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn merchants_that_do_not_call_are_forgotten() {
        let of = OfMerchants::new(4, 1);
        of.take(merchant(0), FIRST).unwrap();
        for number in 1..10 * MIN_PURGE as u128 {
            of.take(merchant(number), FIRST).unwrap();
            of.free(merchant(number), FIRST);
            tokio::time::advance(CALLS_WITHIN / 256).await;
        }
        let taken = of.lock();
        assert!(taken.by_merchant.len() <= MIN_PURGE, "{}", taken.by_merchant.len());
        assert!(taken.by_merchant.contains_key(&merchant(0)), "its call is in flight");
    }
}
