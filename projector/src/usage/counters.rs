//! The counters of a report of usage.

use chrono::{DateTime, TimeDelta, Utc};
use rust_decimal::Decimal;

use crate::column::{Columns, Numeric, Unreadable};

/// What a number of requests comes to. Sums go beyond the range of a single amount.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counters {
    /// Requests, however they ended.
    pub requests: i64,
    /// Tokens, of both directions.
    pub tokens: Decimal,
    /// What the providers' list prices make of the usage, in dollars.
    pub model_cost: Decimal,
    /// Fees by the meters, in dollars.
    pub fee_amount: Decimal,
    /// Service charges, in dollars.
    pub service_charge_amount: Decimal,
    /// Wallets' and merchant's parts together, in dollars.
    pub total_request_cost: Decimal,
    /// What customers' wallets bear, in dollars.
    pub total_wallet_cost: Decimal,
    /// What the merchant bears, in dollars.
    pub total_merchant_cost: Decimal,
}

impl Counters {
    /// Adds `other`; none beyond 28 digits.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Option<Self> {
        Some(Self {
            requests: self.requests.checked_add(other.requests)?,
            tokens: self.tokens.checked_add(other.tokens)?,
            model_cost: self.model_cost.checked_add(other.model_cost)?,
            fee_amount: self.fee_amount.checked_add(other.fee_amount)?,
            service_charge_amount: self.service_charge_amount.checked_add(other.service_charge_amount)?,
            total_request_cost: self.total_request_cost.checked_add(other.total_request_cost)?,
            total_wallet_cost: self.total_wallet_cost.checked_add(other.total_wallet_cost)?,
            total_merchant_cost: self.total_merchant_cost.checked_add(other.total_merchant_cost)?,
        })
    }

    /// Reads a row of a day and its counters, and adds it to that day of `days`, which begin at `midnight`.
    pub(crate) fn add_day(
        columns: &mut Columns<'_>,
        midnight: DateTime<Utc>,
        days: &mut [Self],
    ) -> Result<(), Unreadable> {
        let day: DateTime<Utc> = columns.plain()?;
        let mut decimal = || columns.plain::<Numeric>().map(|Numeric(decimal)| decimal);
        let counters = Self {
            requests: i64::try_from(decimal()?).unwrap_or(i64::MAX),
            tokens: decimal()?,
            model_cost: decimal()?,
            fee_amount: decimal()?,
            service_charge_amount: decimal()?,
            total_request_cost: decimal()?,
            total_wallet_cost: decimal()?,
            total_merchant_cost: decimal()?,
        };
        let number = usize::try_from((day - midnight).num_seconds() / TimeDelta::days(1).num_seconds());
        let slot = number.ok().and_then(|number| days.get_mut(number));
        let sum = slot.as_deref().and_then(|before| before.plus(&counters));
        match (slot, sum) {
            (Some(slot), Some(sum)) => {
                *slot = sum;
                Ok(())
            }
            _ => Err(Unreadable::Value { column: 0, text: day.to_string() }),
        }
    }
}
