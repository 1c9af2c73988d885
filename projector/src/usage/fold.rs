//! The fold: sums by merchant, customer, meter and quarter of an hour.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use farthing_core::event::{Event, Recorded, RequestEvent};
use farthing_core::ids::{CustomerId, MerchantId, MeterId};
use farthing_schema::read_model::ReadModel;
use rust_decimal::Decimal;

use super::Counters;
use crate::engine::Projection;

/// The length of a quarter. Quarters begin at whole multiples of it, in UTC.
pub(super) const QUARTER: TimeDelta = TimeDelta::minutes(15);

/// The key of a row. No customer means all customers, no meter means all meters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Scope {
    pub(super) merchant_id: MerchantId,
    pub(super) customer_id: Option<CustomerId>,
    pub(super) meter_id: Option<MeterId>,
    pub(super) starts_at: DateTime<Utc>,
}

/// The sums that the events add to each row.
#[derive(Debug, Default)]
pub(crate) struct UsageBatch {
    pub(super) rows: BTreeMap<Scope, Counters>,
}

/// The quarter of an hour that `at` is in.
pub(super) fn quarter(at: DateTime<Utc>) -> DateTime<Utc> {
    let seconds = QUARTER.num_seconds();
    let start = at.timestamp().div_euclid(seconds) * seconds;
    DateTime::from_timestamp(start, 0).unwrap_or(at)
}

impl UsageBatch {
    /// Adds to every row that includes a call of this customer and meter, opened at `at`.
    fn add(
        &mut self,
        merchant_id: MerchantId,
        customer_id: Option<CustomerId>,
        meter_id: Option<MeterId>,
        at: DateTime<Utc>,
        counters: &Counters,
    ) {
        let customers = [None, customer_id];
        let meters = [None, meter_id];
        for customer_id in &customers[..=usize::from(customer_id.is_some())] {
            for meter_id in &meters[..=usize::from(meter_id.is_some())] {
                let (customer_id, meter_id) = (*customer_id, *meter_id);
                let row =
                    self.rows.entry(Scope { merchant_id, customer_id, meter_id, starts_at: quarter(at) });
                let sum = row.or_default();
                // A batch has a few thousand events of at most 10^12 dollars and tokens each.
                *sum = sum.plus(counters).expect("the sums of a batch are in range");
            }
        }
    }
}

impl Projection for UsageBatch {
    const MODEL: ReadModel = ReadModel::Usage;

    fn fold(&mut self, recorded: &Recorded) {
        let fact = &recorded.fact;
        match &fact.event {
            Event::Request(RequestEvent::Opened(event)) => {
                let meter_id = event.terms.as_ref().map(|terms| terms.meter_id);
                let counted = Counters { requests: 1, ..Counters::default() };
                self.add(fact.merchant_id, event.parties.customer_id, meter_id, fact.occurred_at, &counted);
            }
            Event::Request(RequestEvent::Metered(event)) => {
                // Early events do not contain the instant of the opening; the id was made at that instant.
                let opened_at = event.opened_at.unwrap_or_else(|| event.request_id.made_at());
                let tokens = event.usage.tokens;
                let counted = Counters {
                    requests: 0,
                    tokens: Decimal::from(tokens.input) + Decimal::from(tokens.output),
                    model_cost: event.model_cost.total.into(),
                    fee_amount: event.fee.amount.into(),
                    service_charge_amount: event.service_charge.amount.into(),
                    total_request_cost: event.total_request_cost.into(),
                    total_wallet_cost: event.total_wallet_cost.into(),
                    total_merchant_cost: event.total_merchant_cost.into(),
                };
                self.add(fact.merchant_id, event.parties.customer_id, event.meter_id, opened_at, &counted);
            }
            Event::Merchant(_)
            | Event::SecretKey(_)
            | Event::Customer(_)
            | Event::Meter(_)
            | Event::SpendKey(_)
            | Event::Wallet(_)
            | Event::Request(RequestEvent::Failed(_))
            | Event::Plan(_)
            | Event::Subscription(_)
            | Event::Payment(_)
            | Event::Checkout(_)
            | Event::Webhook(_) => {}
        }
    }

    fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use farthing_core::event::{Parties, RequestOpened};
    use farthing_core::ids::Mint;

    use super::*;
    use crate::sample;

    #[test]
    fn a_call_counts_in_the_quarter_of_its_opening_and_in_each_of_its_scopes() {
        let customer_id = Some(CustomerId::new(Mint::default().next(DateTime::UNIX_EPOCH)));
        let open = sample::opened();
        let parties = Parties { customer_id, ..open.parties };
        let calls = [open.clone(), RequestOpened { parties, ..open }];
        let batch: UsageBatch = sample::fold(calls.map(|call| Event::from(Box::new(call))).to_vec());
        let rows: Vec<_> = batch
            .rows
            .iter()
            .map(|(scope, sum)| (scope.customer_id, sum.requests, scope.starts_at))
            .collect();
        assert_eq!(rows, [(None, 2, DateTime::UNIX_EPOCH), (customer_id, 1, DateTime::UNIX_EPOCH)]);
    }

    #[test]
    fn quarters_begin_at_whole_quarters_before_and_after_the_epoch() {
        for (at, start) in [
            ("2026-11-21T09:59:59.999Z", "2026-11-21T09:45:00Z"),
            ("2026-11-21T10:00:00Z", "2026-11-21T10:00:00Z"),
            ("1969-12-31T23:59:59.999Z", "1969-12-31T23:45:00Z"),
        ] {
            assert_eq!(quarter(at.parse().unwrap()), start.parse::<DateTime<Utc>>().unwrap());
        }
    }
}
