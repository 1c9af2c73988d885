//! The Meter resource; a meter is also a product and carries both names.

#![expect(clippy::struct_field_names, reason = "the interface names the fields")]

use farthing_core::ids::MeterId;
use farthing_core::meter::{OnDisconnect, Payer, Price, RateType, Tier, TierType, TokenBasis};
use farthing_core::money::Amount;
use farthing_core::secret::ServerKey;
use farthing_core::state;
use farthing_projector::meters::query::MeterRow;
use serde::Serialize;
use utoipa::ToSchema;

use crate::rest::body::{ExactNumber, Timestamp};

/// The version of a product secret before its first rotation.
const FIRST_SECRET: u32 = 1;

/// A meter.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::rest) struct Meter {
    meter_id: MeterId,
    product_id: MeterId,
    meter_slug: String,
    product_secret: String,
    name: String,
    rate_type: RateType,
    tier_type: TierType,
    tiers: Vec<ShownTier>,
    token_basis: TokenBasis,
    base_cost_payer: Payer,
    service_charge_payer: Payer,
    on_disconnect: OnDisconnect,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_fee: Option<Amount>,
    created_at: Timestamp,
}

/// A tier of the price.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = MeterTier)]
struct ShownTier {
    start: ExactNumber,
    rate: Amount,
    /// The unit that the meter counts, its `tier_type`.
    #[serde(rename = "type")]
    tier_type: TierType,
}

impl Meter {
    /// The meter of `row`.
    pub(super) fn of_row(row: MeterRow, server_key: &ServerKey) -> Self {
        let MeterRow { meter_id, meter_slug, name, price, created_at } = row;
        Self::new(meter_id, meter_slug, name, price, Timestamp(created_at), server_key)
    }

    /// The meter of a state.
    pub(super) fn of_state(meter_id: MeterId, meter: state::Meter, server_key: &ServerKey) -> Self {
        let created_at = Timestamp(meter.created_at);
        Self::new(meter_id, meter.meter_slug, meter.name, meter.price, created_at, server_key)
    }

    /// The meter of these parts.
    pub(super) fn new(
        meter_id: MeterId,
        meter_slug: String,
        name: String,
        price: Price,
        created_at: Timestamp,
        server_key: &ServerKey,
    ) -> Self {
        let Price {
            rate_type,
            tier_type,
            tiers,
            token_basis,
            base_cost_payer,
            service_charge_payer,
            on_disconnect,
            max_fee,
        } = price;
        let shown = |tier: Tier| ShownTier { start: ExactNumber(tier.start), rate: tier.rate, tier_type };
        Self {
            meter_id,
            product_id: meter_id,
            meter_slug,
            product_secret: server_key.product_secret(meter_id, FIRST_SECRET),
            name,
            rate_type,
            tier_type,
            tiers: Vec::from(tiers).into_iter().map(shown).collect(),
            token_basis,
            base_cost_payer,
            service_charge_payer,
            on_disconnect,
            max_fee,
            created_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use farthing_core::ids::Mint;
    use farthing_core::meter::Tiers;

    use super::*;

    #[test]
    fn starts_are_numbers_and_rates_are_strings() {
        let now = chrono::DateTime::from_timestamp_millis(1_767_225_600_000).unwrap();
        let tier = |start: i64, rate: &str| Tier { start: start.into(), rate: rate.parse().unwrap() };
        let price = Price {
            rate_type: RateType::Fixed,
            tier_type: TierType::Tokens1m,
            tiers: Tiers::new(vec![tier(0, "5"), tier(1_000_000, "3")]).unwrap(),
            token_basis: TokenBasis::InputOutput,
            base_cost_payer: Payer::Wallet,
            service_charge_payer: Payer::Merchant,
            on_disconnect: OnDisconnect::Cancel,
            max_fee: None,
        };
        let id = MeterId::new(Mint::default().next(now));
        let key = ServerKey::random();
        let meter = Meter::new(id, "chat".into(), "Chat".into(), price, Timestamp(now), &key);
        let shown = serde_json::to_value(meter).unwrap();
        assert_eq!(
            shown,
            serde_json::json!({
                "meter_id": id, "product_id": id, "meter_slug": "chat", "name": "Chat",
                "product_secret": key.product_secret(id, 1), "rate_type": "fixed", "tier_type": "tokens_1m",
                "tiers": [
                    {"start": 0, "rate": "5.0000000000", "type": "tokens_1m"},
                    {"start": 1_000_000, "rate": "3.0000000000", "type": "tokens_1m"},
                ],
                "token_basis": "input+output", "base_cost_payer": "wallet", "service_charge_payer": "merchant",
                "on_disconnect": "cancel", "created_at": "2026-01-01T00:00:00.000Z",
            })
        );
    }
}
