//! The rate limit of the hosted pages: views and forms of one link at this gateway. A link that is opened again and again
//! costs no reads, and no other page has to wait for it.

use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, Utc};
use farthing_core::event::RateLimit;
use farthing_core::ids::CheckoutSessionId;
use farthing_core::token_bucket::Bucket;
use quick_cache::sync::Cache;

/// Views and forms of a link: one a second, and so many at once. A page whose payment is pending reloads every two
/// seconds, and people have it open in several windows.
const LIMIT: RateLimit = RateLimit { rpm: 60, burst: 120 };

/// The most links that are remembered. One that is forgotten starts again.
const MAX_LINKS: usize = 65_536;

/// The visits of the links that were opened of late.
pub(crate) struct Visits(Cache<CheckoutSessionId, Arc<Mutex<Bucket>>>);

impl Default for Visits {
    fn default() -> Self {
        Self(Cache::new(MAX_LINKS))
    }
}

impl Visits {
    /// Counts a visit at `now`. Refuses one beyond the limit with the seconds until the next.
    pub(super) fn count(&self, id: CheckoutSessionId, now: DateTime<Utc>) -> Result<(), u64> {
        let full = || Ok::<_, std::convert::Infallible>(Arc::new(Mutex::new(Bucket::full(LIMIT, now))));
        let Ok(bucket) = self.0.get_or_insert_with(&id, full);
        let mut bucket = bucket.lock().unwrap_or_else(PoisonError::into_inner);
        match bucket.wait_ms(now) {
            0 => {
                bucket.take(now);
                Ok(())
            }
            wait => Err(wait.div_ceil(1_000)),
        }
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    #[test]
    fn a_link_is_limited_and_no_other_link() {
        let [one, other] = [1, 2].map(|number| CheckoutSessionId::new(ulid::Ulid(number)));
        let (visits, now) = (Visits::default(), DateTime::UNIX_EPOCH);
        for _ in 0..LIMIT.burst {
            assert_eq!(visits.count(one, now), Ok(()));
        }
        assert_eq!(visits.count(one, now), Err(1));
        assert_eq!(visits.count(other, now), Ok(()));
        let later = now + TimeDelta::seconds(2);
        assert_eq!([(); 3].map(|()| visits.count(one, later)), [Ok(()), Ok(()), Err(1)]);
    }
}
