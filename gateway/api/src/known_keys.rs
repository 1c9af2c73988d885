//! Secret keys and spend keys that exist, so that no unknown key reaches the appender's queue. Invariant: a key is never
//! accepted because it is here; the ledger decides. So a deleted key stops at once on every gateway, and a new one works
//! at once: the absence of a key is not kept.

use std::time::Duration;

use farthing_core::command::Caller;
use farthing_core::state::StateKey;
use farthing_log::reads::ReadPool;
use quick_cache::sync::Cache;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::error::{ApiError, AuthError};

/// The most keys that are remembered; of the others, each call costs a look-up.
const MAX_KEYS: usize = 65_536;

/// The most concurrent look-ups of keys that are not known to exist: half of the connections for reads, so that
/// strangers leave the other half to everyone else.
const LOOKUPS: usize = 4;

/// The longest wait for a look-up.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// The keys that were found of late.
pub(crate) struct KnownKeys {
    found: Cache<StateKey, ()>,
    lookups: Semaphore,
}

impl Default for KnownKeys {
    fn default() -> Self {
        Self { found: Cache::new(MAX_KEYS), lookups: Semaphore::new(LOOKUPS) }
    }
}

impl KnownKeys {
    /// Refuses a caller whose key does not exist.
    pub(crate) async fn check(&self, caller: &Caller, reads: &ReadPool) -> Result<(), ApiError> {
        let (key, unknown) = match caller {
            Caller::SecretKey(hash) => (StateKey::SecretKey(hash.clone()), AuthError::SecretKeyInvalid),
            Caller::SpendKey(hash) => (StateKey::SpendKeyHash(hash.clone()), AuthError::SpendKeyInvalid),
        };
        let Some(_turn) = self.turn(&key).await? else { return Ok(()) };
        if reads.state(key.clone()).await?.is_none() {
            return Err(ApiError::Auth(unknown));
        }
        self.found(key);
        Ok(())
    }

    /// Waits for permission to look `key` up; `None` if it is known to exist, so that nobody needs to wait.
    pub(crate) async fn turn(&self, key: &StateKey) -> Result<Option<SemaphorePermit<'_>>, ApiError> {
        if self.found.get(key).is_some() {
            return Ok(None);
        }
        match tokio::time::timeout(LOOKUP_TIMEOUT, self.lookups.acquire()).await {
            Ok(Ok(turn)) => Ok(Some(turn)),
            Ok(Err(_)) | Err(_) => Err(ApiError::overloaded("look-ups of keys")),
        }
    }

    /// Remembers that `key` exists.
    pub(crate) fn found(&self, key: StateKey) {
        self.found.insert(key, ());
    }

    /// Forgets a caller whose key the ledger does not know any more.
    pub(crate) fn forget(&self, caller: &Caller) {
        let _ = match caller {
            Caller::SecretKey(hash) => self.found.remove(&StateKey::SecretKey(hash.clone())),
            Caller::SpendKey(hash) => self.found.remove(&StateKey::SpendKeyHash(hash.clone())),
        };
    }
}

#[cfg(test)]
mod tests {
    use farthing_core::secret::ServerKey;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn look_ups_of_unknown_keys_are_bounded_and_a_known_key_needs_none() {
        let (keys, server_key) = (KnownKeys::default(), ServerKey::random());
        let key = |raw| StateKey::SecretKey(server_key.hash(raw));
        keys.found(key("known"));
        let mut turns = Vec::new();
        for _ in 0..LOOKUPS {
            turns.push(keys.turn(&key("unknown")).await.unwrap().unwrap());
        }
        let overloaded = keys.turn(&key("unknown")).await;
        assert_eq!(overloaded.unwrap_err(), ApiError::overloaded("look-ups of keys"));
        assert!(keys.turn(&key("known")).await.unwrap().is_none());
        drop(turns);
        assert!(keys.turn(&key("unknown")).await.unwrap().is_some());
        keys.forget(&Caller::SecretKey(server_key.hash("known")));
        assert!(keys.turn(&key("known")).await.unwrap().is_some(), "it is looked up again");
    }
}
