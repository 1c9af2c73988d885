//! The Request resource, with older and newer names.

#![expect(clippy::struct_field_names, reason = "the interface names the fields")]

use std::collections::BTreeMap;

use farthing_core::event::{FailureReason, Mark, ProviderKeyType};
use farthing_core::ids::{CustomerId, MeterId};
use farthing_core::meter::{Payer, RateType, TierType, TokenBasis};
use farthing_core::money::Amount;
use farthing_core::pricing::FeeLine;
use farthing_core::usage::{Split, Usage};
use farthing_projector::requests::query::{RequestRow, RequestStatus};
use rust_decimal::prelude::ToPrimitive as _;
use rust_decimal::{Decimal, RoundingStrategy};
use serde::Serialize;
use utoipa::ToSchema;

use crate::rest::body::{ExactNumber, Timestamp};

/// A request.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::rest) struct Request {
    pub(super) request_id: String,
    status: RequestStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    connection_id: Option<CustomerId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    customer_id: Option<CustomerId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    product_id: Option<MeterId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    meter_id: Option<MeterId>,
    provider: String,
    endpoint: String,
    provider_key_type: ProviderKeyType,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_id: Option<String>,
    model_usage: ModelUsage,
    fee: Fee,
    service_charge: ServiceCharge,
    cost: Amount,
    charge: Charge,
    total_request_cost: Amount,
    total_wallet_cost: Amount,
    total_merchant_cost: Amount,
    #[serde(skip_serializing_if = "Option::is_none")]
    overrun: Option<Amount>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    marks: Vec<ShownMark>,
    #[serde(skip_serializing_if = "Option::is_none")]
    http_status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure_reason: Option<FailureReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    raw_usage: Option<String>,
    metadata: BTreeMap<String, String>,
    created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    completed_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<Timestamp>,
}

/// A note about the metering of a request, or why it failed.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = RequestMark)]
enum ShownMark {
    Metered(Mark),
    Failed(FailureReason),
}

/// The provider's reported usage and its cost at list price.
#[derive(Debug, Serialize, ToSchema)]
struct ModelUsage {
    input_tokens: u64,
    output_tokens: u64,
    total_tokens: u64,
    input_characters: u64,
    output_characters: u64,
    total_characters: u64,
    input_seconds: u64,
    output_seconds: u64,
    total_seconds: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_read_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_write_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_tokens: Option<u64>,
    input_cost: Amount,
    output_cost: Amount,
    total_cost: Amount,
    payer: &'static str,
}

/// The meter's fee for the usage.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RequestFee)]
struct Fee {
    amount: Amount,
    rate_type: RateType,
    token_basis: TokenBasis,
    breakdown: Vec<Line>,
}

/// The fee in the newer form.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RequestCharge)]
struct Charge {
    amount: Amount,
    rate_type: RateType,
    breakdown: Vec<Line>,
}

/// The units of a call in one tier. Units of other kinds are 0.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = FeeLine)]
struct Line {
    tier: Tier,
    tokens: ExactNumber,
    characters: ExactNumber,
    seconds: ExactNumber,
    requests: ExactNumber,
    cost: Amount,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = FeeTier)]
struct Tier {
    start: ExactNumber,
    rate: Amount,
    #[serde(rename = "type")]
    tier_type: TierType,
}

#[derive(Debug, Serialize, ToSchema)]
struct ServiceCharge {
    amount: Amount,
    payer: Payer,
}

impl From<RequestRow> for Request {
    fn from(row: RequestRow) -> Self {
        let payer = match row.model_cost_payer() {
            Some(Payer::Wallet) => "wallet",
            Some(Payer::Merchant) => "merchant",
            None => "none",
        };
        let model_usage = ModelUsage {
            input_cost: row.model_cost.input,
            output_cost: row.model_cost.output,
            total_cost: row.model_cost.total,
            payer,
            ..ModelUsage::counts(&row.usage)
        };
        // A call without a meter has no fee; these values only fill the fields.
        let rate_type = row.terms.map_or(RateType::Fixed, |terms| terms.rate_type);
        let token_basis = row.terms.map_or(TokenBasis::InputOutput, |terms| terms.token_basis);
        let tier_type = row.terms.map_or(TierType::Requests, |terms| terms.tier_type);
        let breakdown: Vec<_> = row.fee.breakdown.iter().map(|line| Line::new(tier_type, line)).collect();
        let mut marks: Vec<_> = row.marks.into_iter().map(ShownMark::Metered).collect();
        if row.failure_reason == Some(FailureReason::UsageInvalid) {
            marks.push(ShownMark::Failed(FailureReason::UsageInvalid));
        }
        Self {
            request_id: row.reported_id.unwrap_or_else(|| row.request_id.to_string()),
            status: row.status,
            connection_id: row.connection_id,
            customer_id: row.connection_id,
            product_id: row.product_id,
            meter_id: row.product_id,
            provider: row.provider,
            endpoint: row.endpoint,
            provider_key_type: row.provider_key_type,
            model: row.model,
            response_id: row.response_id,
            model_usage,
            cost: row.model_cost.total,
            charge: Charge { amount: row.fee.amount, rate_type, breakdown: breakdown.clone() },
            fee: Fee { amount: row.fee.amount, rate_type, token_basis, breakdown },
            service_charge: ServiceCharge {
                amount: row.service_charge.amount,
                payer: row.service_charge.payer,
            },
            total_request_cost: row.total_request_cost,
            total_wallet_cost: row.total_wallet_cost,
            total_merchant_cost: row.total_merchant_cost,
            overrun: Some(row.overrun).filter(|overrun| overrun.is_positive()),
            marks,
            http_status: row.http_status,
            failure_reason: row.failure_reason,
            raw_usage: row.raw_usage,
            metadata: row.metadata,
            created_at: Timestamp(row.created_at),
            completed_at: row.ended_at.map(Timestamp),
            timestamp: row.provider_timestamp.map(Timestamp),
        }
    }
}

impl ModelUsage {
    /// The counts of `usage`, without cost.
    fn counts(usage: &Usage) -> Self {
        let sum = |split: Split<u64>| split.input + split.output;
        let some = |count: u64| Some(count).filter(|count| *count > 0);
        Self {
            input_tokens: usage.tokens.input,
            output_tokens: usage.tokens.output,
            total_tokens: sum(usage.tokens),
            input_characters: usage.characters.input,
            output_characters: usage.characters.output,
            total_characters: sum(usage.characters),
            input_seconds: whole(usage.seconds.input),
            output_seconds: whole(usage.seconds.output),
            total_seconds: whole(usage.seconds.input + usage.seconds.output),
            cache_read_tokens: some(usage.cached.read),
            cache_write_tokens: some(usage.cached.write),
            reasoning_tokens: some(usage.reasoning_tokens),
            input_cost: Amount::ZERO,
            output_cost: Amount::ZERO,
            total_cost: Amount::ZERO,
            payer: "none",
        }
    }
}

/// Rounds to whole seconds, half away from zero. The breakdown has the exact seconds.
fn whole(seconds: Decimal) -> u64 {
    seconds.round_dp_with_strategy(0, RoundingStrategy::MidpointAwayFromZero).to_u64().unwrap_or(0)
}

impl Line {
    fn new(tier_type: TierType, line: &FeeLine) -> Self {
        let none = || ExactNumber(Decimal::ZERO);
        let units = || ExactNumber(line.units);
        let (tokens, characters, seconds, requests) = match tier_type {
            TierType::Tokens1m => (units(), none(), none(), none()),
            TierType::Characters1m => (none(), units(), none(), none()),
            TierType::Minutes => (none(), none(), units(), none()),
            TierType::Requests => (none(), none(), none(), units()),
        };
        let tier = Tier { start: ExactNumber(line.tier.start), rate: line.tier.rate, tier_type };
        Self { tier, tokens, characters, seconds, requests, cost: line.cost }
    }
}

#[cfg(test)]
mod tests {
    use farthing_core::event;
    use farthing_core::ids::Mint;
    use farthing_core::pricing::ModelCost;
    use farthing_core::{meter, pricing};
    use farthing_projector::requests::query::ShownTerms;

    use super::*;

    fn row() -> RequestRow {
        let created_at = "2026-01-01T00:00:00.5Z".parse().unwrap();
        RequestRow {
            request_id: farthing_core::ids::RequestId::new(Mint::default().next(created_at)),
            reported_id: None,
            connection_id: None,
            product_id: None,
            created_at,
            status: RequestStatus::Pending,
            charge: event::Charge::Merchant,
            provider: "other".to_owned(),
            provider_key_type: ProviderKeyType::Managed,
            endpoint: "POST https://example.org/v1".to_owned(),
            model: None,
            terms: None,
            metadata: BTreeMap::new(),
            ended_at: None,
            http_status: None,
            failure_reason: None,
            raw_usage: None,
            response_id: None,
            provider_timestamp: None,
            usage: Usage::default(),
            units: Decimal::ZERO,
            marks: Vec::new(),
            model_cost: ModelCost::default(),
            fee: pricing::Fee::default(),
            service_charge: event::ServiceCharge { amount: Amount::ZERO, payer: Payer::Wallet },
            total_request_cost: Amount::ZERO,
            total_wallet_cost: Amount::ZERO,
            total_merchant_cost: Amount::ZERO,
            overrun: Amount::ZERO,
        }
    }

    #[test]
    fn a_pending_request_has_every_required_field_and_no_optional_one() {
        let shown = serde_json::to_value(Request::from(row())).unwrap();
        let zero = "0.0000000000";
        assert_eq!(
            shown,
            serde_json::json!({
                "request_id": shown["request_id"], "status": "pending", "provider": "other",
                "endpoint": "POST https://example.org/v1", "provider_key_type": "managed",
                "model_usage": {
                    "input_tokens": 0, "output_tokens": 0, "total_tokens": 0,
                    "input_characters": 0, "output_characters": 0, "total_characters": 0,
                    "input_seconds": 0, "output_seconds": 0, "total_seconds": 0,
                    "input_cost": zero, "output_cost": zero, "total_cost": zero, "payer": "merchant",
                },
                "fee": {"amount": zero, "rate_type": "fixed", "token_basis": "input+output", "breakdown": []},
                "charge": {"amount": zero, "rate_type": "fixed", "breakdown": []},
                "cost": zero, "service_charge": {"amount": zero, "payer": "wallet"},
                "total_request_cost": zero, "total_wallet_cost": zero, "total_merchant_cost": zero,
                "metadata": {}, "created_at": "2026-01-01T00:00:00.500Z",
            })
        );
    }

    #[test]
    fn seconds_are_rounded_in_the_usage_and_exact_in_the_breakdown() {
        let seconds = Split { input: "0.5".parse().unwrap(), output: "90.25".parse().unwrap() };
        let tier = meter::Tier { start: Decimal::ZERO, rate: "0.06".parse().unwrap() };
        let line = FeeLine { tier, units: "90.75".parse().unwrap(), cost: "0.09075".parse().unwrap() };
        let terms = ShownTerms {
            rate_type: RateType::Fixed,
            tier_type: TierType::Minutes,
            token_basis: TokenBasis::InputOutput,
            base_cost_payer: Payer::Wallet,
        };
        let row = RequestRow {
            usage: Usage { seconds, ..Usage::default() },
            fee: pricing::Fee { amount: line.cost, breakdown: vec![line] },
            terms: Some(terms),
            ..row()
        };
        let shown = serde_json::to_value(Request::from(row)).unwrap();
        assert_eq!(shown["model_usage"]["input_seconds"], 1);
        assert_eq!(shown["model_usage"]["output_seconds"], 90);
        assert_eq!(shown["model_usage"]["total_seconds"], 91);
        let text = shown["fee"]["breakdown"].to_string();
        assert!(text.contains("\"seconds\":90.75"), "{text}");
        assert!(text.contains("\"type\":\"minutes\""), "{text}");
    }

    #[test]
    fn unbelievable_usage_is_marked_and_kept() {
        let row = RequestRow {
            status: RequestStatus::Error,
            failure_reason: Some(FailureReason::UsageInvalid),
            raw_usage: Some("{\"tokens\":-1}".to_owned()),
            ..row()
        };
        let shown = serde_json::to_value(Request::from(row)).unwrap();
        assert_eq!(shown["status"], "error");
        assert_eq!(shown["marks"], serde_json::json!(["usage_invalid"]));
        assert_eq!(shown["raw_usage"], "{\"tokens\":-1}");
    }
}
