//! `AlreadySo`: nothing to decide; for an answer that is kept under an idempotency key without being news.

use super::{Command, Decision, Stop};
use crate::state::World;

/// What is wanted is so already.
#[derive(Debug, Clone, Copy)]
pub struct AlreadySo;

impl Command for AlreadySo {
    type Outcome = ();

    fn decide(&self, _: &World) -> Result<Decision<()>, Stop> {
        Ok(Decision::already(()))
    }
}
