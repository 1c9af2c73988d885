//! `AlreadyApplied`: appends nothing. Used to store a response under an idempotency key if nothing changes.

use serde::{Deserialize, Serialize};

use super::decision::{Command, DecideError, Decision};
use crate::state::StateCache;

/// A no-op: the requested change was applied before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlreadyApplied;

impl Command for AlreadyApplied {
    type Outcome = ();

    fn decide(&self, _: &StateCache) -> Result<Decision<()>, DecideError> {
        Ok(Decision::already(()))
    }
}
