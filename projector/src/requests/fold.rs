//! The fold: one row for the opening of a call and one for its end. Both are only ever inserted, so no event depends on
//! another.

use chrono::{DateTime, Utc};
use farthing_core::command::service_charge_payer;
use farthing_core::event::{
    Charge, Event, FailureReason, ProviderKeyType, Recorded, RequestEvent, RequestFailed, RequestMetered,
    RequestOpened,
};
use farthing_core::ids::{CustomerId, MerchantId, MeterId, RequestId};
use farthing_core::meter::Payer;
use farthing_core::usage::Usage;
use farthing_schema::read_model::ReadModel;
use rust_decimal::Decimal;

use super::filter::{Pair, digest};
use super::query::{RequestStatus, ShownTerms};
use crate::column::{Jsonb, json, storable};
use crate::engine::Projection;

/// New rows.
#[derive(Debug, Default)]
pub(crate) struct RequestBatch {
    pub(super) opened: Vec<Opened>,
    pub(super) pairs: Vec<MetadataPair>,
    pub(super) ended: Vec<Ended>,
}

/// A row of the table `opened`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Opened {
    pub(super) request_id: RequestId,
    pub(super) merchant_id: MerchantId,
    pub(super) connection_id: Option<CustomerId>,
    pub(super) product_id: Option<MeterId>,
    pub(super) created_at: DateTime<Utc>,
    pub(super) charge: Charge,
    pub(super) provider: String,
    pub(super) provider_key_type: ProviderKeyType,
    pub(super) endpoint: String,
    pub(super) model: Option<String>,
    pub(super) terms: Option<ShownTerms>,
    pub(super) service_charge_payer: Payer,
    /// None of a call without metadata, as most are.
    pub(super) metadata: Option<Jsonb>,
    pub(super) reported_id: Option<String>,
}

/// A row of the table `metadata_pairs`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MetadataPair {
    pub(super) pair: Pair,
    pub(super) created_at: DateTime<Utc>,
    pub(super) request_id: RequestId,
    pub(super) connection_id: Option<CustomerId>,
    pub(super) product_id: Option<MeterId>,
}

/// A row of the table `ended`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) request_id: RequestId,
    pub(super) status: RequestStatus,
    pub(super) at: DateTime<Utc>,
    pub(super) http_status: Option<i32>,
    pub(super) failure_reason: Option<FailureReason>,
    pub(super) raw_usage: Option<String>,
    pub(super) response_id: Option<String>,
    pub(super) model: Option<String>,
    pub(super) metered: Option<Metered>,
}

/// The columns of `ended` that only a metered call fills.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Metered {
    pub(super) provider_timestamp: Option<DateTime<Utc>>,
    pub(super) usage: String,
    pub(super) total_tokens: i64,
    pub(super) units: Decimal,
    pub(super) breakdown: Option<String>,
    pub(super) marks: Option<String>,
    pub(super) service_charge_payer: Payer,
    pub(super) input_cost: Decimal,
    pub(super) output_cost: Decimal,
    pub(super) model_cost: Decimal,
    pub(super) fee_amount: Decimal,
    pub(super) service_charge_amount: Decimal,
    pub(super) total_request_cost: Decimal,
    pub(super) total_wallet_cost: Decimal,
    pub(super) total_merchant_cost: Decimal,
    pub(super) overrun: Decimal,
}

/// Tokens of both directions: at most twice the largest count that is accepted.
fn total_tokens(usage: &Usage) -> i64 {
    i64::try_from(usage.tokens.input.saturating_add(usage.tokens.output)).unwrap_or(i64::MAX)
}

impl Opened {
    fn new(event: &RequestOpened, merchant_id: MerchantId, created_at: DateTime<Utc>) -> Self {
        let price = event.terms.as_ref().map(|terms| &terms.price);
        Self {
            request_id: event.request_id,
            merchant_id,
            connection_id: event.parties.customer_id,
            product_id: event.terms.as_ref().map(|terms| terms.meter_id),
            created_at,
            charge: event.charge,
            provider: storable(&event.provider),
            provider_key_type: event.provider_key_type,
            endpoint: storable(&event.endpoint),
            model: event.model.as_deref().map(storable),
            terms: price.map(ShownTerms::of),
            // The payer of a service charge, by the rule of the settlement.
            service_charge_payer: service_charge_payer(event.charge, event.terms.as_ref()),
            metadata: (!event.metadata.is_empty()).then(|| Jsonb(json(&event.metadata))),
            reported_id: event.reported_id.as_deref().map(storable),
        }
    }
}

impl Ended {
    fn metered(event: &RequestMetered, at: DateTime<Utc>) -> Self {
        Self {
            request_id: event.request_id,
            status: RequestStatus::Completed,
            at,
            http_status: Some(event.http_status).filter(|status| *status != 0).map(i32::from),
            failure_reason: None,
            raw_usage: event.raw_usage.as_deref().map(storable),
            response_id: event.response_id.as_deref().map(storable),
            model: event.model.as_deref().map(storable),
            metered: Some(Metered {
                provider_timestamp: event.provider_timestamp,
                usage: json(&event.usage),
                total_tokens: total_tokens(&event.usage),
                units: event.units,
                breakdown: (!event.fee.breakdown.is_empty()).then(|| json(&event.fee.breakdown)),
                marks: (!event.marks.is_empty()).then(|| json(&event.marks)),
                service_charge_payer: event.service_charge.payer,
                input_cost: event.model_cost.input.decimal(),
                output_cost: event.model_cost.output.decimal(),
                model_cost: event.model_cost.total.decimal(),
                fee_amount: event.fee.amount.decimal(),
                service_charge_amount: event.service_charge.amount.decimal(),
                total_request_cost: event.total_request_cost.decimal(),
                total_wallet_cost: event.total_wallet_cost.decimal(),
                total_merchant_cost: event.total_merchant_cost.decimal(),
                overrun: event.overrun.decimal(),
            }),
        }
    }

    fn failed(event: &RequestFailed, at: DateTime<Utc>) -> Self {
        Self {
            request_id: event.request_id,
            status: RequestStatus::Error,
            at,
            http_status: event.http_status.map(i32::from),
            failure_reason: Some(event.reason),
            raw_usage: event.raw_usage.as_deref().map(storable),
            response_id: event.response_id.as_deref().map(storable),
            model: event.model.as_deref().map(storable),
            metered: None,
        }
    }
}

impl Projection for RequestBatch {
    const MODEL: ReadModel = ReadModel::Requests;

    fn fold(&mut self, recorded: &Recorded) {
        let fact = &recorded.fact;
        match &fact.event {
            Event::Request(RequestEvent::Opened(event)) => {
                self.pairs.extend(event.metadata.iter().map(|(key, value)| MetadataPair {
                    pair: digest(fact.merchant_id, key, value),
                    created_at: fact.occurred_at,
                    request_id: event.request_id,
                    connection_id: event.parties.customer_id,
                    product_id: event.terms.as_ref().map(|terms| terms.meter_id),
                }));
                self.opened.push(Opened::new(event, fact.merchant_id, fact.occurred_at));
            }
            Event::Request(RequestEvent::Metered(event)) => {
                self.ended.push(Ended::metered(event, fact.occurred_at));
            }
            Event::Request(RequestEvent::Failed(event)) => {
                self.ended.push(Ended::failed(event, fact.occurred_at));
            }
            Event::Merchant(_)
            | Event::SecretKey(_)
            | Event::Customer(_)
            | Event::Meter(_)
            | Event::SpendKey(_)
            | Event::Wallet(_)
            | Event::Plan(_)
            | Event::Subscription(_)
            | Event::Payment(_)
            | Event::Checkout(_)
            | Event::Webhook(_) => {}
        }
    }

    fn is_empty(&self) -> bool {
        self.opened.is_empty() && self.ended.is_empty()
    }

    fn rows(&self) -> usize {
        self.pairs.len()
    }
}

#[cfg(test)]
mod tests {
    use farthing_core::ids::Mint;
    use farthing_core::meter::{OnDisconnect, Price, RateType, Terms, Tier, TierType, Tiers, TokenBasis};

    use super::*;
    use crate::sample;

    fn terms() -> Terms {
        let tiers = vec![Tier { start: Decimal::ZERO, rate: "0.1".parse().unwrap() }];
        Terms {
            meter_id: MeterId::new(Mint::default().next(DateTime::UNIX_EPOCH)),
            price: Price {
                rate_type: RateType::Fixed,
                tier_type: TierType::Requests,
                tiers: Tiers::new(tiers).unwrap(),
                token_basis: TokenBasis::Output,
                base_cost_payer: Payer::Merchant,
                service_charge_payer: Payer::Wallet,
                on_disconnect: OnDisconnect::Complete,
                max_fee: None,
            },
            service_charge_rate: Decimal::ZERO,
        }
    }

    fn opened(event: RequestOpened) -> Opened {
        let mut batch: RequestBatch = sample::fold(vec![Event::from(Box::new(event))]);
        assert!(batch.ended.is_empty());
        batch.opened.pop().unwrap()
    }

    #[test]
    fn a_pending_call_shows_who_would_bear_the_service_charge() {
        let with = |charge, terms| opened(RequestOpened { charge, terms, ..sample::opened() });
        assert_eq!(with(Charge::CustomerBilling, Some(terms())).service_charge_payer, Payer::Wallet);
        assert_eq!(with(Charge::Recorded, Some(terms())).service_charge_payer, Payer::Merchant);
        assert_eq!(with(Charge::Customer, None).service_charge_payer, Payer::Merchant);
        assert_eq!(with(Charge::Customer, None).terms, None);
    }

    #[test]
    fn nul_is_replaced_because_postgres_refuses_it() {
        let metadata = [("a".to_owned(), "\0".to_owned())].into();
        let row = opened(RequestOpened { endpoint: "GET \0".to_owned(), metadata, ..sample::opened() });
        assert_eq!(row.endpoint, "GET \u{FFFD}");
        assert_eq!(row.metadata, Some(Jsonb("{\"a\":\"\u{FFFD}\"}".to_owned())));
        assert_eq!(opened(sample::opened()).metadata, None);
    }

    #[test]
    fn a_failed_call_has_no_amounts() {
        let open = sample::opened();
        let failed = RequestFailed {
            request_id: open.request_id,
            parties: open.parties,
            hold: open.hold,
            reason: FailureReason::ProviderStatus,
            http_status: Some(500),
            raw_usage: None,
            response_id: None,
            model: None,
            spend_key: None,
        };
        let batch: RequestBatch = sample::fold(vec![Event::from(Box::new(failed))]);
        let row = batch.ended.first().unwrap();
        assert_eq!((row.status, row.http_status, &row.metered), (RequestStatus::Error, Some(500), &None));
        assert_eq!(row.failure_reason, Some(FailureReason::ProviderStatus));
    }
}
