//! The Connection resource; a connection is also a customer and carries both names.

#![expect(clippy::struct_field_names, reason = "the interface names the fields")]

use chrono::{DateTime, Utc};
use farthing_core::ids::{CustomerId, WalletId};
use farthing_core::money::Amount;
use farthing_core::period::period_around;
use farthing_core::secret::ServerKey;
use farthing_projector::connections::query::ConnectionRow;
use serde::Serialize;
use utoipa::ToSchema;

use crate::rest::body::Timestamp;
use crate::rest::customers::resource::Contact;

/// The version of a connection secret before its first rotation.
const FIRST_SECRET: u32 = 1;

/// A connection.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::rest) struct Connection {
    connection_id: CustomerId,
    customer_id: CustomerId,
    connection_secret: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    reference_id: Option<String>,
    wallet: Wallet,
    customer: Contact,
    has_credit_balance: bool,
    previous_usage_reset: Timestamp,
    next_usage_reset: Timestamp,
    created_at: Timestamp,
}

/// The wallet of a connection, with the contact of its owner.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ConnectionWallet)]
struct Wallet {
    wallet_id: WalletId,
    balance: Amount,
    #[serde(flatten)]
    owner: Contact,
    autopay_enabled: bool,
}

impl Connection {
    /// The connection of `row` at the instant `now`.
    pub(super) fn new(row: ConnectionRow, now: DateTime<Utc>, server_key: &ServerKey) -> Self {
        let period = row.cycle.unwrap_or_else(|| period_around(row.created_at, now));
        let contact = Contact::from(row.contact);
        Self {
            connection_id: row.connection_id,
            customer_id: row.connection_id,
            connection_secret: server_key.connection_secret(row.connection_id, FIRST_SECRET),
            reference_id: row.reference_id,
            wallet: Wallet {
                wallet_id: row.wallet_id,
                balance: row.balance,
                owner: contact.clone(),
                autopay_enabled: row.autopay_enabled,
            },
            customer: contact,
            has_credit_balance: row.credit.is_positive(),
            previous_usage_reset: Timestamp(period.start),
            next_usage_reset: Timestamp(period.end),
            created_at: Timestamp(row.created_at),
        }
    }
}

#[cfg(test)]
mod tests {
    use farthing_core::ids::Mint;
    use farthing_projector::customers::query;

    use super::*;

    #[test]
    fn a_connection_shows_its_wallet_its_secret_and_its_usage_period() {
        let created_at: DateTime<Utc> = "2026-01-31T10:00:00Z".parse().unwrap();
        let now = "2026-03-01T00:00:00Z".parse().unwrap();
        let mint = Mint::default();
        let id = CustomerId::new(mint.next(created_at));
        let wallet_id = WalletId::new(mint.next(created_at));
        let key = ServerKey::random();
        let row = ConnectionRow {
            connection_id: id,
            wallet_id,
            balance: "4.9".parse().unwrap(),
            credit: Amount::ZERO,
            cycle: None,
            autopay_enabled: true,
            reference_id: None,
            created_at,
            contact: query::Contact { first_name: Some("Ada".to_owned()), ..query::Contact::default() },
        };
        let shown = serde_json::to_value(Connection::new(row, now, &key)).unwrap();
        assert_eq!(
            shown,
            serde_json::json!({
                "connection_id": id, "customer_id": id, "connection_secret": key.connection_secret(id, 1),
                "wallet": {"wallet_id": wallet_id, "balance": "4.9000000000", "phone": null, "email": null,
                    "first_name": "Ada", "last_name": null, "autopay_enabled": true},
                "customer": {"phone": null, "email": null, "first_name": "Ada", "last_name": null},
                "has_credit_balance": false, "previous_usage_reset": "2026-02-28T10:00:00.000Z",
                "next_usage_reset": "2026-03-31T10:00:00.000Z", "created_at": "2026-01-31T10:00:00.000Z",
            })
        );
    }
}
