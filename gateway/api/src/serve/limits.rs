//! The limits of a gateway's connections and calls in flight.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use farthing_core::ids::MerchantId;
use farthing_telemetry::{Counted, Gauge};
use http::Extensions;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::ApiError;

/// How much a gateway takes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerLimits {
    /// The most connections of callers. Further ones wait until they are accepted.
    pub connections: usize,
    /// The most connections of one address. Further ones are closed at once. `None` is no limit.
    pub connections_per_address: Option<usize>,
    /// The most calls in flight. Further ones are answered with 503 at once.
    pub calls: usize,
    /// The most calls in flight of one merchant. Further ones are answered with 503 at once. `None` is no limit.
    pub calls_per_merchant: Option<usize>,
    /// For the other gateways: the most connections that have not shown the token, besides those that have. A further one
    /// closes the oldest. `None` for callers of the API, who need no token.
    pub strangers: Option<usize>,
}

/// A call in flight, until all its copies are dropped.
#[derive(Debug, Clone)]
pub(crate) struct CallInFlight(Arc<Place>);

impl CallInFlight {
    /// Counts the call of a request as one of this merchant's. Refuses it if the merchant has too many.
    pub(crate) fn belongs_to(merchant_id: MerchantId, request: &Extensions) -> Result<(), ApiError> {
        if request.get::<Self>().is_none_or(|call| call.count_for(merchant_id)) {
            Ok(())
        } else {
            Err(ApiError::overloaded_by_merchant("calls of one merchant in flight"))
        }
    }

    fn count_for(&self, merchant_id: MerchantId) -> bool {
        let Place { of_merchants, merchant, .. } = &*self.0;
        of_merchants.as_ref().is_none_or(|of_merchants| {
            merchant.get().is_some() || (of_merchants.take(merchant_id) && merchant.set(merchant_id).is_ok())
        })
    }
}

/// The place of a call among all, and among those of its merchant once that is known.
#[derive(Debug)]
struct Place {
    of_merchants: Option<Arc<OfMerchants>>,
    merchant: OnceLock<MerchantId>,
    _permit: OwnedSemaphorePermit,
    _counted: Counted,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let (Some(of_merchants), Some(merchant_id)) = (&self.of_merchants, self.merchant.get()) {
            of_merchants.free(*merchant_id);
        }
    }
}

/// The calls in flight.
#[derive(Debug, Clone)]
pub(super) struct CallsInFlight {
    all: Arc<Semaphore>,
    of_merchants: Option<Arc<OfMerchants>>,
}

impl CallsInFlight {
    /// At most `most` calls, and `per_merchant` of one merchant.
    pub(super) fn new(most: usize, per_merchant: Option<usize>) -> Self {
        let of_merchants = per_merchant.map(|most| Arc::new(OfMerchants { most, taken: Mutex::default() }));
        Self { all: Arc::new(Semaphore::new(most)), of_merchants }
    }

    /// Another call, which `in_flight` counts; `None` if there are too many.
    pub(super) fn begin(&self, in_flight: &Gauge) -> Option<CallInFlight> {
        let permit = Arc::clone(&self.all).try_acquire_owned().ok()?;
        let of_merchants = self.of_merchants.clone();
        let place = Place {
            of_merchants,
            merchant: OnceLock::new(),
            _permit: permit,
            _counted: Counted::new(in_flight),
        };
        Some(CallInFlight(Arc::new(place)))
    }
}

/// The number of calls of each merchant.
#[derive(Debug)]
struct OfMerchants {
    most: usize,
    /// Holds no merchant without a call.
    taken: Mutex<HashMap<MerchantId, usize>>,
}

impl OfMerchants {
    fn take(&self, merchant_id: MerchantId) -> bool {
        let mut taken = self.lock();
        let of_merchant = taken.get(&merchant_id).copied().unwrap_or(0);
        if of_merchant >= self.most {
            return false;
        }
        taken.insert(merchant_id, of_merchant + 1);
        true
    }

    fn free(&self, merchant_id: MerchantId) {
        let mut taken = self.lock();
        if let Some(of_merchant) = taken.get_mut(&merchant_id) {
            *of_merchant -= 1;
            if *of_merchant == 0 {
                taken.remove(&merchant_id);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<MerchantId, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use ulid::Ulid;

    use super::*;

    #[test]
    fn a_call_ends_with_its_last_copy() {
        let calls = CallsInFlight::new(1, None);
        let first = calls.begin(&Gauge::default()).unwrap();
        let copy = first.clone();
        drop(first);
        assert!(calls.begin(&Gauge::default()).is_none());
        drop(copy);
        assert!(calls.begin(&Gauge::default()).is_some());
    }

    #[test]
    fn a_merchant_has_a_limit_of_its_own_and_is_forgotten_without_a_call() {
        let [one, other] = [1, 2].map(|number| MerchantId::new(Ulid::from_parts(1, number)));
        let calls = CallsInFlight::new(5, Some(1));
        let first = calls.begin(&Gauge::default()).unwrap();
        assert!(first.count_for(one));
        assert!(first.clone().count_for(one), "a call counts once");
        let second = calls.begin(&Gauge::default()).unwrap();
        assert!(!second.count_for(one));
        assert!(second.count_for(other));
        drop(first);
        let third = calls.begin(&Gauge::default()).unwrap();
        assert!(third.count_for(one), "a call has ended");
        drop((second, third));
        assert!(calls.of_merchants.unwrap().lock().is_empty());
    }
}
