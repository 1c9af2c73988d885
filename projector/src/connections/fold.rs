//! The fold: one row per connection and one per wallet. Each is written once per batch: a wallet with the balance of
//! its last event and the sum of the changes of its credit, a connection with its last values.

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

use crate::column::{NewValue, storable};
use crate::engine::Projection;
use crate::row_changes::{self, Change};

/// New rows, and the changes of existing ones.
#[derive(Debug, Default)]
pub(crate) struct ConnectionBatch {
    pub(super) new: BTreeMap<CustomerId, NewConnection>,
    pub(super) changed: BTreeMap<CustomerId, ConnectionChange>,
    pub(super) wallets: Vec<NewWallet>,
    /// In the order of their ids, so that two writers cannot deadlock.
    pub(super) moved: BTreeMap<WalletId, WalletChange>,
}

/// The change of a wallet. A field that is `None` does not change.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct WalletChange {
    pub(super) balance: Option<Amount>,
    /// Added to the credit of plan and bundles.
    pub(super) credit: Decimal,
    pub(super) cycle: Option<NewValue<BillingCycle>>,
    /// Whether it recharges automatically.
    pub(super) autopay: Option<bool>,
}

/// A row of the table `connections`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NewConnection {
    pub(super) merchant_id: String,
    pub(super) wallet_id: String,
    pub(super) created_at: DateTime<Utc>,
    /// The columns that may change later.
    pub(super) current: ConnectionChange,
}

/// The new values of the columns that may change.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ConnectionChange {
    pub(super) reference_id: Option<String>,
    pub(super) deleted_at: Option<DateTime<Utc>>,
}

/// A row of the table `wallets`. Its balance and its credit are zero.
#[derive(Debug)]
#[expect(clippy::struct_field_names, reason = "fields are named as their columns")]
pub(super) struct NewWallet {
    pub(super) wallet_id: WalletId,
    pub(super) merchant_id: String,
    pub(super) connection_id: Option<String>,
}

impl ConnectionChange {
    fn named(reference_id: Option<&str>) -> Self {
        Self { reference_id: reference_id.map(storable), deleted_at: None }
    }
}

impl Change<NewConnection> for ConnectionChange {
    fn apply(self, row: &mut NewConnection) {
        row.current = self;
    }

    fn merge(&mut self, later: Self) {
        *self = later;
    }
}

impl ConnectionBatch {
    fn change(&mut self, id: CustomerId, change: ConnectionChange) {
        row_changes::change(&mut self.new, &mut self.changed, id, change);
    }

    fn wallet(&mut self, id: WalletId) -> &mut WalletChange {
        self.moved.entry(id).or_default()
    }

    /// Begins a cycle and adds its credit.
    fn begin_cycle(&mut self, id: WalletId, cycle: BillingCycle, granted: Amount) {
        let moved = self.wallet(id);
        moved.cycle = Some(NewValue(Some(cycle)));
        moved.credit += granted.decimal();
    }

    fn debit(&mut self, event: &WalletDebited) {
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

impl Projection for ConnectionBatch {
    const MODEL: ReadModel = ReadModel::Connections;

    fn fold(&mut self, recorded: &Recorded) {
        let fact = &recorded.fact;
        match &fact.event {
            Event::Merchant(MerchantEvent::Registered(event)) => {
                let merchant_id = event.merchant_id.to_string();
                self.wallets.push(NewWallet { wallet_id: event.wallet_id, merchant_id, connection_id: None });
            }
            Event::Customer(CustomerEvent::Created(event)) => {
                let merchant_id = fact.merchant_id.to_string();
                self.wallets.push(NewWallet {
                    wallet_id: event.wallet_id,
                    merchant_id: merchant_id.clone(),
                    connection_id: Some(event.customer_id.to_string()),
                });
                let row = NewConnection {
                    merchant_id,
                    wallet_id: event.wallet_id.to_string(),
                    created_at: fact.occurred_at,
                    current: ConnectionChange::named(event.reference_id.as_deref()),
                };
                self.new.insert(event.customer_id, row);
            }
            Event::Customer(CustomerEvent::Updated(event)) => {
                if let Some(change) = &event.reference_id {
                    self.change(event.customer_id, ConnectionChange::named(change.to.as_deref()));
                }
            }
            Event::Customer(CustomerEvent::Deleted(event)) => {
                let deletion = ConnectionChange { reference_id: None, deleted_at: Some(fact.occurred_at) };
                self.change(event.customer_id, deletion);
            }
            Event::Wallet(WalletEvent::Credited(event)) => {
                self.wallet(event.wallet_id).balance = Some(event.balance_after);
            }
            Event::Wallet(WalletEvent::Debited(event)) => self.debit(event),
            Event::Subscription(SubscriptionEvent::Started(event)) => {
                self.begin_cycle(event.subscriber.wallet_id, event.cycle, event.granted);
            }
            Event::Subscription(SubscriptionEvent::Renewed(event)) => {
                self.begin_cycle(event.subscriber.wallet_id, event.cycle, event.granted);
            }
            Event::Subscription(SubscriptionEvent::Upgraded(event)) => {
                self.begin_cycle(event.subscriber.wallet_id, event.cycle, event.granted);
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
                moved.cycle = Some(NewValue(None));
            }
            Event::Subscription(SubscriptionEvent::BundlePurchased(event)) => {
                self.wallet(event.wallet_id).credit += event.granted.decimal();
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
        self.wallets.is_empty() && self.moved.is_empty() && self.changed.is_empty()
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
    fn a_wallet_is_written_once_per_batch_with_its_last_balance() {
        let mint = Mint::default();
        let [one, other] = [(); 2].map(|()| WalletId::new(mint.next(DateTime::UNIX_EPOCH)));
        let events = vec![credited(one, "1"), credited(other, "7"), credited(one, "2"), credited(one, "1.5")];
        let batch: ConnectionBatch = sample::fold(events);
        let moved = |balance: &str| WalletChange {
            balance: Some(balance.parse().unwrap()),
            ..WalletChange::default()
        };
        assert_eq!(batch.moved, [(one, moved("1.5")), (other, moved("7"))].into());
        assert!(batch.wallets.is_empty() && !batch.is_empty());
    }

    #[test]
    fn a_new_customer_has_a_connection_and_a_wallet() {
        let ulid = Mint::default().next(DateTime::UNIX_EPOCH);
        let (customer_id, wallet_id) = (CustomerId::new(ulid), WalletId::new(ulid));
        let reference_id = Some("ada".to_owned());
        let created = CustomerCreated {
            customer_id,
            wallet_id,
            reference_id,
            metadata: BTreeMap::new(),
            metadata_literals: std::collections::BTreeSet::new(),
        };
        let created = Event::from(created);
        let batch: ConnectionBatch = sample::fold(vec![created.clone()]);
        let row = &batch.new[&customer_id];
        assert_eq!(row.current, ConnectionChange { reference_id: Some("ada".to_owned()), deleted_at: None });
        let wallet = batch.wallets.first().unwrap();
        assert_eq!(wallet.connection_id, Some(customer_id.to_string()));
        assert_eq!(wallet.wallet_id.to_string(), row.wallet_id);

        let deleted = Event::from(CustomerDeleted { customer_id, wallet_id, reference_id: None });
        let deletion = ConnectionChange { reference_id: None, deleted_at: Some(DateTime::UNIX_EPOCH) };
        let batch: ConnectionBatch = sample::fold(vec![created, deleted.clone()]);
        assert_eq!((&batch.new[&customer_id].current, batch.changed.len()), (&deletion, 0));
        assert_eq!(sample::fold::<ConnectionBatch>(vec![deleted]).changed, [(customer_id, deletion)].into());
    }

    #[test]
    fn the_last_change_decides_whether_a_wallet_recharges() {
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
            assert_eq!(sample::fold::<ConnectionBatch>(events).moved[&wallet_id].autopay, now);
        }
    }
}
