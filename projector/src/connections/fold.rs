//! The fold: one row per connection and one per wallet. A wallet that moves often within a batch is written once,
//! with the balance of its last event.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use farthing_ledger::event::{Event, Recorded};
use farthing_ledger::ids::WalletId;
use farthing_ledger::money::Amount;
use farthing_schema::read_model::ReadModel;

use crate::column::storable;
use crate::engine::Projection;
use crate::writer::Writer;

/// New rows, column by column, and the last balance of each wallet that moved.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(super) connections: Connections,
    pub(super) wallets: Wallets,
    /// In the order of their ids, so that two writers could never wait for each other crosswise.
    pub(super) balances: BTreeMap<WalletId, Amount>,
}

#[derive(Debug, Default)]
pub(super) struct Connections {
    pub(super) connection_id: Vec<String>,
    pub(super) merchant_id: Vec<String>,
    pub(super) wallet_id: Vec<String>,
    pub(super) reference_id: Vec<Option<String>>,
    pub(super) created_at: Vec<DateTime<Utc>>,
}

#[derive(Debug, Default)]
pub(super) struct Wallets {
    pub(super) ids: Vec<String>,
    pub(super) merchants: Vec<String>,
    pub(super) connections: Vec<Option<String>>,
}

impl Wallets {
    fn push(&mut self, wallet_id: WalletId, merchant_id: String, connection_id: Option<String>) {
        self.ids.push(wallet_id.to_string());
        self.merchants.push(merchant_id);
        self.connections.push(connection_id);
    }
}

impl Projection for Batch {
    const MODEL: ReadModel = ReadModel::Connections;

    fn fold(&mut self, recorded: &Recorded) {
        let fact = &recorded.fact;
        match &fact.event {
            Event::MerchantRegistered(event) => {
                self.wallets.push(event.wallet_id, event.merchant_id.to_string(), None);
            }
            Event::CustomerCreated(event) => {
                let (id, merchant_id) = (event.customer_id.to_string(), fact.merchant_id.to_string());
                self.wallets.push(event.wallet_id, merchant_id.clone(), Some(id.clone()));
                let reference_id = event.reference_id.as_deref().map(|id| storable(id).into_owned());
                self.connections.connection_id.push(id);
                self.connections.merchant_id.push(merchant_id);
                self.connections.wallet_id.push(event.wallet_id.to_string());
                self.connections.reference_id.push(reference_id);
                self.connections.created_at.push(fact.occurred_at);
            }
            Event::WalletCredited(event) => {
                self.balances.insert(event.wallet_id, event.balance_after);
            }
            Event::WalletDebited(event) => {
                self.balances.insert(event.wallet_id, event.balance_after);
            }
            Event::SecretKeyIssued(_)
            | Event::MeterDefined(_)
            | Event::SpendKeyCreated(_)
            | Event::KeyRotated(_)
            | Event::RequestOpened(_)
            | Event::RequestMetered(_)
            | Event::RequestFailed(_) => {}
        }
    }

    fn is_empty(&self) -> bool {
        self.wallets.ids.is_empty() && self.balances.is_empty()
    }

    async fn write(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        self.insert_connections(db).await?;
        self.insert_wallets(db).await?;
        self.update_balances(db).await
    }
}

#[cfg(test)]
mod tests {
    use farthing_ledger::event::{CustomerCreated, WalletCredited};
    use farthing_ledger::ids::{CreditId, CustomerId, Mint};

    use super::*;
    use crate::sample;

    fn credited(wallet_id: WalletId, balance_after: &str) -> Event {
        Event::WalletCredited(WalletCredited {
            credit_id: CreditId::new(wallet_id.ulid()),
            wallet_id,
            customer_id: None,
            amount: "1".parse().unwrap(),
            reason: String::new(),
            balance_after: balance_after.parse().unwrap(),
        })
    }

    #[test]
    fn a_wallet_that_moves_often_is_written_once_with_its_last_balance() {
        let mint = Mint::default();
        let [one, other] = [(); 2].map(|()| WalletId::new(mint.next(DateTime::UNIX_EPOCH)));
        let events = vec![credited(one, "1"), credited(other, "7"), credited(one, "2"), credited(one, "1.5")];
        let batch: Batch = sample::fold(events);
        assert_eq!(batch.balances, [(one, "1.5".parse().unwrap()), (other, "7".parse().unwrap())].into());
        assert!(batch.wallets.ids.is_empty() && !batch.is_empty());
    }

    #[test]
    fn a_customer_comes_with_a_connection_and_a_wallet() {
        let ulid = Mint::default().next(DateTime::UNIX_EPOCH);
        let created = CustomerCreated {
            customer_id: CustomerId::new(ulid),
            wallet_id: WalletId::new(ulid),
            reference_id: None,
            metadata: BTreeMap::new(),
        };
        let batch: Batch = sample::fold(vec![Event::CustomerCreated(created)]);
        assert_eq!(batch.connections.connection_id, [CustomerId::new(ulid).to_string()]);
        assert_eq!(batch.wallets.connections, [Some(CustomerId::new(ulid).to_string())]);
        assert_eq!(batch.connections.wallet_id, batch.wallets.ids);
    }
}
