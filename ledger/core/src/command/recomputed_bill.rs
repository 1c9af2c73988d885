//! The bill of a metered call, computed again from its events alone: the price, the terms and the payers that its opening
//! recorded, and the usage and the tier usage that its end recorded.

use rust_decimal::Decimal;
use serde::Serialize;

use super::bill::{Bill, Conditions, bill, cost_alone};
use crate::event::{Mark, RequestMetered, RequestOpened};
use crate::money::{Amount, Error};
use crate::pricing::{Fee, ModelCost};

/// The amounts of a bill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecomputedBill {
    /// The units counted on the meter.
    pub units: Decimal,
    /// The provider's cost.
    pub model_cost: ModelCost,
    /// The fee.
    pub fee: Fee,
    /// The service charge.
    pub service_charge: Amount,
    /// The part of the cost that the customer's wallet is asked for.
    pub on_wallet: Amount,
    /// The part that the merchant is asked for.
    pub on_merchant: Amount,
}

impl RecomputedBill {
    /// The bill that the event records.
    pub fn recorded(metered: &RequestMetered) -> Result<Self, Error> {
        Ok(Self {
            units: metered.units,
            model_cost: metered.model_cost,
            fee: metered.fee.clone(),
            service_charge: metered.service_charge.amount,
            on_wallet: metered.total_wallet_cost.plus(metered.overrun)?,
            on_merchant: metered.total_merchant_cost.minus(metered.overrun)?,
        })
    }

    /// Computes the bill again. It differs from [`Self::recorded`] only if the log or the program is wrong.
    pub fn of(opened: &RequestOpened, metered: &RequestMetered) -> Result<Self, Error> {
        let conditions = Conditions::of(opened);
        // Fees that are too large are left out. A fee without lines has no units, so the bill is the cost alone.
        let lacks_fees = metered.marks.contains(&Mark::UsageInvalid) && metered.fee == Fee::default();
        let mut bill = if lacks_fees {
            cost_alone(conditions, &metered.usage)?
        } else {
            bill(conditions, &metered.usage, metered.tier_position)?
        };
        if metered.marks.contains(&Mark::HoldCharged) {
            bill.raise_to_hold(opened, metered.counted)?;
        }
        Ok(Self::from(bill))
    }
}

impl From<Bill> for RecomputedBill {
    fn from(bill: Bill) -> Self {
        let Bill { units, model_cost, fee, service_charge, on_wallet, on_merchant } = bill;
        Self { units, model_cost, fee, service_charge: service_charge.amount, on_wallet, on_merchant }
    }
}
