//! Usage: the counts that a provider reported for a call. Invariant: counts are never negative, never above
//! [`MAX_COUNT`], and never estimated.

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use crate::meter::{TierType, TokenBasis};

/// The maximum plausible count: usage with a higher one is rejected (completion.md section 5).
pub const MAX_COUNT: u64 = 1_000_000_000_000;

/// A quantity of input and of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Split<T> {
    /// Sent by the caller.
    pub input: T,
    /// Produced by the provider.
    pub output: T,
}

/// Input tokens that used the provider's cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Cached {
    /// Read from the cache.
    pub read: u64,
    /// Written to the cache.
    pub write: u64,
}

impl Cached {
    /// Returns true if no token was read or written.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// The reported usage of one call. Invariant: the input tokens include the cached tokens, and the output tokens include
/// the reasoning tokens, whichever way the provider counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens.
    pub tokens: Split<u64>,
    /// The input tokens with a cache price.
    #[serde(default, skip_serializing_if = "Cached::is_none")]
    pub cached: Cached,
    /// The output tokens used for reasoning.
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

/// What is known of a call whose usage stays unknown and whose hold may be less than its cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counted {
    /// An upper bound of the tokens of its input: the bytes of its body, up to its model's limit.
    pub input: u64,
    /// An upper bound of the tokens of its output: the bytes of the text that was streamed, up to its limits.
    pub output: u64,
    /// The characters of its input, where its provider bills by them. They are exact.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub characters: u64,
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
