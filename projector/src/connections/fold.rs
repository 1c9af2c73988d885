//! The fold: one row per connection and one per wallet. A wallet that moves often within a batch is written once,
//! with the balance of its last event and the sum of what came to its credit or left it; a connection that changes
//! often, as it is in the end.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use farthing_core::event::{
    CustomerEvent, Event, MerchantEvent, Recorded, Source, SubscriptionEvent, WalletDebited, WalletEvent,
    WalletSource,
};
use farthing_core::ids::{CustomerId, WalletId};
use farthing_core::money::Amount;
use farthing_core::plan::BillingCycle;
use farthing_schema::read_model::ReadModel;
use rust_decimal::Decimal;

use crate::column::storable;
use crate::engine::Projection;
use crate::writer::Writer;

/// New rows, and what changes in rows that are there.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(super) new: BTreeMap<CustomerId, New>,
    pub(super) changed: BTreeMap<CustomerId, Change>,
    pub(super) wallets: Wallets,
    /// In the order of their ids, so that two writers could never wait for each other crosswise.
    pub(super) moved: BTreeMap<WalletId, Moved>,
}

/// What changes in a wallet; what is none stays.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Moved {
    pub(super) balance: Option<Amount>,
    /// Added to the credit of plan and bundles.
    pub(super) credit: Decimal,
    pub(super) cycle: Option<Current>,
    /// Is it filled up by itself?
    pub(super) autopay: Option<bool>,
}

/// The cycle of the wallet's subscription from now on; none without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Current(pub(super) Option<BillingCycle>);

/// A row of the table `connections`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct New {
    pub(super) merchant_id: String,
    pub(super) wallet_id: String,
    pub(super) created_at: DateTime<Utc>,
    /// What may change later.
    pub(super) present: Change,
}

/// What may change in a row, as it is from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) reference_id: Option<String>,
    pub(super) deleted_at: Option<DateTime<Utc>>,
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

impl Change {
    fn named(reference_id: Option<&str>) -> Self {
        Self { reference_id: reference_id.map(|id| storable(id).into_owned()), deleted_at: None }
    }
}

impl Batch {
    fn change(&mut self, id: CustomerId, change: Change) {
        match self.new.get_mut(&id) {
            Some(row) => row.present = change,
            None => drop(self.changed.insert(id, change)),
        }
    }

    fn wallet(&mut self, id: WalletId) -> &mut Moved {
        self.moved.entry(id).or_default()
    }

    /// A cycle begins, with its credit.
    fn cycle(&mut self, id: WalletId, cycle: BillingCycle, granted: Amount) {
        let moved = self.wallet(id);
        moved.cycle = Some(Current(Some(cycle)));
        moved.credit += granted.decimal();
    }

    fn drawn(&mut self, event: &WalletDebited) {
        let moved = self.wallet(event.wallet_id);
        moved.balance = Some(event.balance_after);
        for WalletSource { source, amount } in &event.sources {
            match source {
                Source::Balance => {}
                Source::PlanCredit(_) | Source::BundleCredit(_) => moved.credit -= amount.decimal(),
            }
        }
    }
}

impl Projection for Batch {
    const MODEL: ReadModel = ReadModel::Connections;

    fn fold(&mut self, recorded: &Recorded) {
        let fact = &recorded.fact;
        match &fact.event {
            Event::Merchant(MerchantEvent::Registered(event)) => {
                self.wallets.push(event.wallet_id, event.merchant_id.to_string(), None);
            }
            Event::Customer(CustomerEvent::Created(event)) => {
                let merchant_id = fact.merchant_id.to_string();
                let connection_id = event.customer_id.to_string();
                self.wallets.push(event.wallet_id, merchant_id.clone(), Some(connection_id));
                let row = New {
                    merchant_id,
                    wallet_id: event.wallet_id.to_string(),
                    created_at: fact.occurred_at,
                    present: Change::named(event.reference_id.as_deref()),
                };
                self.new.insert(event.customer_id, row);
            }
            Event::Customer(CustomerEvent::Updated(event)) => {
                if let Some(change) = &event.reference_id {
                    self.change(event.customer_id, Change::named(change.to.as_deref()));
                }
            }
            Event::Customer(CustomerEvent::Deleted(event)) => {
                let gone = Change { reference_id: None, deleted_at: Some(fact.occurred_at) };
                self.change(event.customer_id, gone);
            }
            Event::Wallet(WalletEvent::Credited(event)) => {
                self.wallet(event.wallet_id).balance = Some(event.balance_after);
            }
            Event::Wallet(WalletEvent::Debited(event)) => self.drawn(event),
            Event::Subscription(SubscriptionEvent::Started(event)) => {
                self.cycle(event.subscriber.wallet_id, event.cycle, event.granted);
            }
            Event::Subscription(SubscriptionEvent::Renewed(event)) => {
                self.cycle(event.subscriber.wallet_id, event.cycle, event.granted);
            }
            Event::Subscription(SubscriptionEvent::Upgraded(event)) => {
                self.cycle(event.subscriber.wallet_id, event.cycle, event.granted);
            }
            Event::Subscription(SubscriptionEvent::CycleEnded(event)) => {
                let moved = self.wallet(event.subscriber.wallet_id);
                moved.credit -= event.expired.decimal();
                for bundle in &event.expired_bundles {
                    moved.credit -= bundle.amount.decimal();
                }
            }
            Event::Subscription(SubscriptionEvent::Cancelled(event)) => {
                let moved = self.wallet(event.subscriber.wallet_id);
                moved.credit -= event.expired.decimal();
                moved.cycle = Some(Current(None));
            }
            Event::Subscription(SubscriptionEvent::BundlePurchased(event)) => {
                self.wallet(event.wallet_id).credit += event.granted.decimal()
            }
            Event::Wallet(WalletEvent::AutopayChanged(event)) => {
                self.wallet(event.wallet_id).autopay = Some(event.autopay.is_some());
            }
            Event::Merchant(MerchantEvent::ClockAdvanced(_))
            | Event::SecretKey(_)
            | Event::Meter(_)
            | Event::SpendKey(_)
            | Event::Request(_)
            | Event::Plan(_)
            | Event::Subscription(SubscriptionEvent::Updated(_) | SubscriptionEvent::RenewalFailed(_))
            | Event::Payment(_)
            | Event::Checkout(_)
            | Event::Webhook(_) => {}
        }
    }

    fn is_empty(&self) -> bool {
        self.wallets.ids.is_empty() && self.moved.is_empty() && self.changed.is_empty()
    }

    async fn write(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        self.insert_connections(db).await?;
        self.update_connections(db).await?;
        self.insert_wallets(db).await?;
        self.update_wallets(db).await
    }
}

#[cfg(test)]
mod tests {
    use farthing_core::event::{Autopay, AutopayChanged, CustomerCreated, CustomerDeleted, WalletCredited};
    use farthing_core::ids::{CreditId, Mint};

    use super::*;
    use crate::sample;

    fn credited(wallet_id: WalletId, balance_after: &str) -> Event {
        Event::from(WalletCredited {
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
        let moved = |balance: &str| Moved { balance: Some(balance.parse().unwrap()), ..Moved::default() };
        assert_eq!(batch.moved, [(one, moved("1.5")), (other, moved("7"))].into());
        assert!(batch.wallets.ids.is_empty() && !batch.is_empty());
    }

    #[test]
    fn a_customer_comes_with_a_connection_and_a_wallet() {
        let ulid = Mint::default().next(DateTime::UNIX_EPOCH);
        let (customer_id, wallet_id) = (CustomerId::new(ulid), WalletId::new(ulid));
        let reference_id = Some("ada".to_owned());
        let created = CustomerCreated { customer_id, wallet_id, reference_id, metadata: BTreeMap::new() };
        let created = Event::from(created);
        let batch: Batch = sample::fold(vec![created.clone()]);
        let row = &batch.new[&customer_id];
        assert_eq!(row.present, Change { reference_id: Some("ada".to_owned()), deleted_at: None });
        assert_eq!(batch.wallets.connections, [Some(customer_id.to_string())]);
        assert_eq!(batch.wallets.ids.first(), Some(&row.wallet_id));

        let deleted = Event::from(CustomerDeleted { customer_id, wallet_id, reference_id: None });
        let gone = Change { reference_id: None, deleted_at: Some(DateTime::UNIX_EPOCH) };
        let batch: Batch = sample::fold(vec![created, deleted.clone()]);
        assert_eq!((&batch.new[&customer_id].present, batch.changed.len()), (&gone, 0));
        assert_eq!(sample::fold::<Batch>(vec![deleted]).changed, [(customer_id, gone)].into());
    }

    #[test]
    fn a_wallet_is_filled_up_by_itself_as_it_was_last_said() {
        let wallet_id = WalletId::new(Mint::default().next(DateTime::UNIX_EPOCH));
        let changed = |revision, autopay: Option<&str>| {
            let autopay = autopay
                .map(|amount| Autopay { threshold: "1".parse().unwrap(), amount: amount.parse().unwrap() });
            Event::from(AutopayChanged { wallet_id, customer_id: None, revision, autopay })
        };
        for (events, now) in [
            (vec![changed(1, Some("10"))], Some(true)),
            (vec![changed(1, Some("10")), changed(2, None)], Some(false)),
            (vec![changed(1, Some("10")), changed(2, None), credited(wallet_id, "1")], Some(false)),
            (vec![credited(wallet_id, "1")], None),
        ] {
            assert_eq!(sample::fold::<Batch>(events).moved[&wallet_id].autopay, now);
        }
    }
}
