//! Usage: what a provider reported of a call. Invariant: counts are never negative, never above
//! [`MAX_COUNT`], and nothing here is an estimate.

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use crate::meter::{TierType, TokenBasis};

/// A reported count above this is not believed (completion.md section 5).
pub const MAX_COUNT: u64 = 1_000_000_000_000;

/// What went in and what came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Split<T> {
    /// What the caller sent.
    pub input: T,
    /// What the provider produced.
    pub output: T,
}

/// Input tokens that went through the provider's cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Cached {
    /// Read from it.
    pub read: u64,
    /// Written into it.
    pub write: u64,
}

impl Cached {
    /// Neither read nor written?
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// The reported usage of one call. Invariant: the cached tokens are among the input tokens, and the reasoning tokens
/// among the output tokens, whichever way the provider counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens.
    pub tokens: Split<u64>,
    /// The part of the input tokens that is priced otherwise.
    #[serde(default, skip_serializing_if = "Cached::is_none")]
    pub cached: Cached,
    /// The part of the output tokens that the model thought with.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reasoning_tokens: u64,
    /// Characters.
    pub characters: Split<u64>,
    /// Seconds, which may be fractional.
    pub seconds: Split<Decimal>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Usage {
    /// The units that a meter counts of this call.
    pub fn units(&self, tier_type: TierType, basis: TokenBasis) -> Decimal {
        let pick = |input: Decimal, output: Decimal| match basis {
            TokenBasis::InputOutput => input + output,
            TokenBasis::Output => output,
        };
        match tier_type {
            TierType::Tokens1m => pick(self.tokens.input.into(), self.tokens.output.into()),
            TierType::Characters1m => pick(self.characters.input.into(), self.characters.output.into()),
            TierType::Minutes => pick(self.seconds.input, self.seconds.output),
            TierType::Requests => Decimal::ONE,
        }
    }
}
