//! `AlreadyApplied`: nothing to decide; for an answer that is kept under an idempotency key without being news.

use super::decision::{Command, DecideError, Decision};
use crate::state::StateCache;

/// What is wanted is so already.
#[derive(Debug, Clone, Copy)]
pub struct AlreadyApplied;

impl Command for AlreadyApplied {
    type Outcome = ();

    fn decide(&self, _: &StateCache) -> Result<Decision<()>, DecideError> {
        Ok(Decision::already(()))
    }
}
