//! Which key a call is made with, where only its being another one or the same matters. A copy costs nothing.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use farthing_core::command::Caller;
use farthing_core::secret::KeyHash;

/// The secret key or spend key of a call, as a number. Nobody can choose a key with the number of another one: it is made
/// from the key's hash, which depends on the instance's server key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct CallerKey(u64);

impl From<&KeyHash> for CallerKey {
    fn from(hash: &KeyHash) -> Self {
        let mut hasher = DefaultHasher::new();
        hash.hash(&mut hasher);
        Self(hasher.finish())
    }
}

impl From<&Caller> for CallerKey {
    fn from(caller: &Caller) -> Self {
        match caller {
            Caller::SecretKey(hash) | Caller::SpendKey(hash) => hash.into(),
        }
    }
}

#[cfg(test)]
impl CallerKey {
    /// The key with this number.
    pub(crate) const fn of_test(number: u64) -> Self {
        Self(number)
    }
}
