//! The counters of a usage report.

use chrono::{DateTime, TimeDelta, Utc};
use farthing_core::money::exact_sum;
use rust_decimal::Decimal;
use tokio_postgres::Row;

use crate::row::{ReadColumn as _, Unreadable};

/// The sums of several requests. They may exceed the range of a single amount.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counters {
    /// Requests, however they ended.
    pub requests: i64,
    /// Tokens, of both directions.
    pub tokens: Decimal,
    /// The cost of the usage at the providers' list prices, in dollars.
    pub model_cost: Decimal,
    /// Fees by the meters, in dollars.
    pub fee_amount: Decimal,
    /// Service charges, in dollars.
    pub service_charge_amount: Decimal,
    /// The parts of customers' wallets and of the merchant, in dollars.
    pub total_request_cost: Decimal,
    /// The part of customers' wallets, in dollars.
    pub total_wallet_cost: Decimal,
    /// The part of the merchant, in dollars.
    pub total_merchant_cost: Decimal,
}

impl Counters {
    /// The sum of both, or none beyond 28 digits.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Option<Self> {
        let sum = |one, other| exact_sum(one, other).ok();
        Some(Self {
            requests: self.requests.checked_add(other.requests)?,
            tokens: sum(self.tokens, other.tokens)?,
            model_cost: sum(self.model_cost, other.model_cost)?,
            fee_amount: sum(self.fee_amount, other.fee_amount)?,
            service_charge_amount: sum(self.service_charge_amount, other.service_charge_amount)?,
            total_request_cost: sum(self.total_request_cost, other.total_request_cost)?,
            total_wallet_cost: sum(self.total_wallet_cost, other.total_wallet_cost)?,
            total_merchant_cost: sum(self.total_merchant_cost, other.total_merchant_cost)?,
        })
    }

    /// Reads a row of a day and its counters, and adds it to that day of `days`, which begin at `midnight`.
    pub(crate) fn add_day(row: &Row, midnight: DateTime<Utc>, days: &mut [Self]) -> Result<(), Unreadable> {
        let day: DateTime<Utc> = row.plain("day")?;
        let counters = Self {
            requests: i64::try_from(row.decimal("requests")?).unwrap_or(i64::MAX),
            tokens: row.decimal("tokens")?,
            model_cost: row.decimal("model_cost")?,
            fee_amount: row.decimal("fee_amount")?,
            service_charge_amount: row.decimal("service_charge_amount")?,
            total_request_cost: row.decimal("total_request_cost")?,
            total_wallet_cost: row.decimal("total_wallet_cost")?,
            total_merchant_cost: row.decimal("total_merchant_cost")?,
        };
        let number = usize::try_from((day - midnight).num_seconds() / TimeDelta::days(1).num_seconds());
        let slot = number.ok().and_then(|number| days.get_mut(number));
        let sum = slot.as_deref().and_then(|before| before.plus(&counters));
        match (slot, sum) {
            (Some(slot), Some(sum)) => {
                *slot = sum;
                Ok(())
            }
            _ => Err(Unreadable::Value { column: "day", text: day.to_string() }),
        }
    }
}
