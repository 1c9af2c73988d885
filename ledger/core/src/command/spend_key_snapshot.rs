//! A spend key with its counters.

use crate::spending::Spending;
use crate::state::SpendKey;

/// A spend key with its counters, after a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpendKeySnapshot {
    /// The key.
    pub key: SpendKey,
    /// Its counters.
    pub spending: Spending,
}
