//! A spend key with its counters.

use serde::{Deserialize, Serialize};

use crate::spending::Spending;
use crate::state::SpendKey;

/// A spend key with its counters, after a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpendKeySnapshot {
    /// The key.
    pub key: SpendKey,
    /// Its counters.
    pub spending: Spending,
}
