//! Events for the unit tests of the folds.

use std::collections::BTreeMap;

use chrono::DateTime;
use farthing_core::event::{
    Charge, Event, Fact, Hold, Parties, ProviderKeyType, Recorded, RequestOpened, codec,
};
use farthing_core::ids::{GatewayId, MerchantId, Mint, RequestId, WalletId};
use farthing_core::partition::Partition;

use crate::engine::Projection;

/// Folds `events` of one merchant into a batch.
pub(crate) fn fold<P: Projection>(events: Vec<Event>) -> P {
    let merchant_id = MerchantId::new(Mint::default().next(DateTime::UNIX_EPOCH));
    let mut batch = P::default();
    for (position, event) in (1..).zip(events) {
        let fact = Fact { merchant_id, occurred_at: DateTime::UNIX_EPOCH, event };
        batch.fold(&Recorded { partition: Partition::new(0), position, fact });
    }
    batch
}

/// An event, decoded from its form in the log.
pub(crate) fn event(kind: &str, body: &serde_json::Value) -> Event {
    codec::decode(kind, 1, &body.to_string()).unwrap()
}

/// A call without customer and meter.
pub(crate) fn opened() -> RequestOpened {
    let ulid = Mint::default().next(DateTime::UNIX_EPOCH);
    RequestOpened {
        request_id: RequestId::new(ulid),
        gateway_id: GatewayId::new(ulid),
        charge: Charge::Merchant,
        parties: Parties { customer_id: None, wallet_id: None, merchant_wallet_id: WalletId::new(ulid) },
        provider: "other".to_owned(),
        provider_key_type: ProviderKeyType::Unmanaged,
        endpoint: "GET http://provider.example/".to_owned(),
        model: None,
        metadata: BTreeMap::new(),
        model_price: None,
        terms: None,
        period_start: None,
        hold: Hold::default(),
        reported_id: None,
        spend_key: None,
    }
}
