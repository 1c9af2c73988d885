//! A limit for each owner, such as an address or a merchant, of what they use at the same time.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::Semaphore;

/// A limit for each owner.
#[derive(Debug)]
pub(crate) struct LimitPer<K> {
    most: usize,
    in_use: Mutex<InUse<K>>,
}

#[derive(Debug)]
struct InUse<K> {
    by_owner: HashMap<K, Weak<Semaphore>>,
    /// Owners without use are removed once there are so many.
    purge_at: usize,
}

/// The least number of owners at which those without use are removed.
const MIN_PURGE: usize = 1_024;

impl<K: Eq + Hash> LimitPer<K> {
    /// At most `most` for each owner.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, in_use: Mutex::new(InUse { by_owner: HashMap::new(), purge_at: MIN_PURGE }) }
    }

    /// What `owner` shares.
    pub(crate) fn of(&self, owner: K) -> Arc<Semaphore> {
        let mut in_use = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = in_use.by_owner.get(&owner).and_then(Weak::upgrade) {
            return shared;
        }
        if in_use.by_owner.len() >= in_use.purge_at {
            in_use.by_owner.retain(|_, shared| shared.strong_count() > 0);
            in_use.purge_at = MIN_PURGE.max(in_use.by_owner.len() * 2);
        }
        let shared = Arc::new(Semaphore::new(self.most));
        in_use.by_owner.insert(owner, Arc::downgrade(&shared));
        shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_owner_has_a_limit_of_its_own_and_none_is_kept_without_use() {
        let limits = LimitPer::new(1);
        let permit = limits.of(1).try_acquire_owned().unwrap();
        assert!(limits.of(1).try_acquire_owned().is_err());
        assert!(limits.of(2).try_acquire_owned().is_ok());
        drop(permit);
        assert!(limits.of(1).try_acquire_owned().is_ok());
        for owner in 0..10 * MIN_PURGE {
            limits.of(owner);
        }
        assert!(limits.in_use.lock().unwrap().by_owner.len() <= MIN_PURGE);
    }
}
