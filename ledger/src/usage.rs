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

/// The reported usage of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens.
    pub tokens: Split<u64>,
    /// Characters.
    pub characters: Split<u64>,
    /// Seconds, which may be fractional.
    pub seconds: Split<Decimal>,
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
