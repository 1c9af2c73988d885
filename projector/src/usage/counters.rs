//! The counters of a usage report.

use chrono::{DateTime, TimeDelta, Utc};
use farthing_core::money::exact_sum;
use farthing_core::wide_sum::WideSum;
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
    pub model_cost: WideSum,
    /// Fees by the meters, in dollars.
    pub fee_amount: WideSum,
    /// Service charges, in dollars.
    pub service_charge_amount: WideSum,
    /// The parts of customers' wallets and of the merchant, in dollars.
    pub total_request_cost: WideSum,
    /// The part of customers' wallets, in dollars.
    pub total_wallet_cost: WideSum,
    /// The part of the merchant, in dollars.
    pub total_merchant_cost: WideSum,
}

impl Counters {
    /// The sum of both, or none if it is out of range.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Option<Self> {
        let sum = |one: WideSum, other| one.plus(other).ok();
        Some(Self {
            requests: self.requests.checked_add(other.requests)?,
            tokens: exact_sum(self.tokens, other.tokens).ok()?,
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
            model_cost: row.wide_sum("model_cost")?,
            fee_amount: row.wide_sum("fee_amount")?,
            service_charge_amount: row.wide_sum("service_charge_amount")?,
            total_request_cost: row.wide_sum("total_request_cost")?,
            total_wallet_cost: row.wide_sum("total_wallet_cost")?,
            total_merchant_cost: row.wide_sum("total_merchant_cost")?,
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
