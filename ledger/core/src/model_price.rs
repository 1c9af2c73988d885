//! Model prices: a provider's list prices. Like a meter's terms, a price is frozen into each request at
//! admission, so replay never needs the current catalogue (completion.md sections 3 and 5).

use chrono::NaiveDate;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::money::Amount;
use crate::secret::hex;
use crate::usage::Usage;

/// Dollars per 1,000,000 tokens of each kind. An unlisted cache rate falls back to the input rate; an unlisted rate
/// above a threshold falls back to the model's base rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TokenRates {
    /// Input tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_per_1m: Option<Amount>,
    /// Output tokens, including reasoning tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_per_1m: Option<Amount>,
    /// Input tokens read from the provider's cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read_per_1m: Option<Amount>,
    /// Input tokens written to the provider's cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_per_1m: Option<Amount>,
}

/// Rates of a whole call whose input tokens, including cached ones, exceed a threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Above {
    /// The threshold; a call with exactly this many input tokens does not exceed it.
    pub input_tokens: u64,
    /// The rates.
    #[serde(flatten)]
    pub rates: TokenRates,
}

/// The file of list prices that a price comes from, for audits: nothing is charged by it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriceFile {
    /// The day on which its prices were taken, as the file says.
    pub taken: NaiveDate,
    /// The SHA-256 of its bytes, in lower-case hexadecimal digits, as `sha256sum` prints it.
    pub sha256: String,
}

impl PriceFile {
    /// The file of this text.
    pub fn new(taken: NaiveDate, text: &str) -> Self {
        Self { taken, sha256: hex(&Sha256::digest(text)) }
    }
}

/// A provider's list price of a model, in US dollars. Anything that is not listed is free.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ModelPrice {
    /// Per 1,000,000 tokens.
    #[serde(flatten)]
    pub rates: TokenRates,
    /// Per call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_request: Option<Amount>,
    /// Per character, in either direction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_character: Option<Amount>,
    /// Per second, in either direction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_second: Option<Amount>,
    /// Higher rates for long calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub above: Vec<Above>,
    /// Where the price comes from; `None` in requests from before this was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PriceFile>,
}

/// The token rates of one call, with all fallbacks applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallRates {
    pub(crate) input: Amount,
    pub(crate) output: Amount,
    pub(crate) cache_read: Amount,
    pub(crate) cache_write: Amount,
}

impl CallRates {
    fn new(rates: TokenRates, own: TokenRates) -> Self {
        let input = rates.input_per_1m.or(own.input_per_1m).unwrap_or_default();
        Self {
            input,
            output: rates.output_per_1m.or(own.output_per_1m).unwrap_or_default(),
            cache_read: rates.cache_read_per_1m.or(own.cache_read_per_1m).unwrap_or(input),
            cache_write: rates.cache_write_per_1m.or(own.cache_write_per_1m).unwrap_or(input),
        }
    }

    /// The highest rate of any input token.
    pub(crate) fn highest_input(self) -> Amount {
        self.input.max(self.cache_read).max(self.cache_write)
    }
}

impl ModelPrice {
    /// The token rates of a call that reports `usage`: those of the highest threshold it exceeds.
    pub(crate) fn rates_of(&self, usage: &Usage) -> CallRates {
        let exceeded = self.above.iter().filter(|above| usage.tokens.input > above.input_tokens);
        let step = exceeded.max_by_key(|above| above.input_tokens).map(|above| above.rates);
        CallRates::new(step.unwrap_or_default(), self.rates)
    }

    /// The token rates of every step, including the base rates.
    pub(crate) fn steps(&self) -> impl Iterator<Item = CallRates> {
        let further = self.above.iter().map(|above| CallRates::new(above.rates, self.rates));
        std::iter::once(CallRates::new(TokenRates::default(), self.rates)).chain(further)
    }

    /// Whether every token is free.
    pub(crate) fn has_no_token_rates(&self) -> bool {
        self.steps().all(|rates| rates.highest_input().is_zero() && rates.output.is_zero())
    }

    /// Whether characters are priced.
    pub(crate) fn is_by_character(&self) -> bool {
        self.per_character.is_some_and(Amount::is_positive)
    }

    /// Whether seconds are priced. Their number has no known limit before the call.
    pub(crate) fn is_by_second(&self) -> bool {
        self.per_second.is_some_and(Amount::is_positive)
    }
}

/// The list price of a call, as known before the call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ListPrice {
    /// No price: a call to the provider `other`, or one that uses no model.
    Nothing,
    /// The listed price.
    Listed(ModelPrice),
    /// The provider is built in, but the catalogue has no price for the call.
    Unlisted,
}
