//! The fold: one row per customer. A customer that is created and changed within one batch is written once.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use farthing_core::event::{
    CustomerCreated, CustomerEvent, CustomerUpdated, Event, Recorded, Subscriber, SubscriptionEvent,
};
use farthing_core::ids::{CustomerId, MerchantId, PlanId};
use farthing_core::metadata;
use farthing_core::plan::PlanTerms;
use farthing_schema::read_model::ReadModel;

use super::query::Subscribed;
use crate::column::{NewValue, json, storable};
use crate::engine::Projection;
use crate::row_changes::{self, Change};

/// New rows, and the changes of existing ones.
#[derive(Debug, Default)]
pub(crate) struct CustomerBatch {
    pub(super) new: BTreeMap<CustomerId, NewCustomer>,
    pub(super) changed: BTreeMap<CustomerId, CustomerChange>,
}

/// A row of the table `customers`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NewCustomer {
    pub(super) merchant_id: String,
    pub(super) wallet_id: String,
    pub(super) reference_id: Option<String>,
    pub(super) metadata: String,
    pub(super) created_at: DateTime<Utc>,
    pub(super) deleted_at: Option<DateTime<Utc>>,
    /// JSON text of a [`Subscribed`].
    pub(super) subscription: Option<String>,
}

/// The change of a row. A field that is `None` does not change.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CustomerChange {
    pub(super) reference_id: Option<NewValue<String>>,
    pub(super) metadata: Option<String>,
    pub(super) deleted_at: Option<DateTime<Utc>>,
    pub(super) subscription: Option<NewValue<String>>,
}

/// The JSON text of empty metadata.
const NO_METADATA: &str = "{}";

impl NewCustomer {
    fn of(event: &CustomerCreated, merchant_id: MerchantId, created_at: DateTime<Utc>) -> Self {
        Self {
            merchant_id: merchant_id.to_string(),
            wallet_id: event.wallet_id.to_string(),
            reference_id: event.reference_id.as_deref().map(storable),
            metadata: json(&metadata::join(&event.metadata, &event.metadata_literals)),
            created_at,
            deleted_at: None,
            subscription: None,
        }
    }
}

impl Change<NewCustomer> for CustomerChange {
    fn apply(self, row: &mut NewCustomer) {
        if let Some(NewValue(reference_id)) = self.reference_id {
            row.reference_id = reference_id;
        }
        if let Some(metadata) = self.metadata {
            row.metadata = metadata;
        }
        row.deleted_at = self.deleted_at.or(row.deleted_at);
        if let Some(NewValue(subscription)) = self.subscription {
            row.subscription = subscription;
        }
    }

    fn merge(&mut self, later: Self) {
        self.reference_id = later.reference_id.or(self.reference_id.take());
        self.metadata = later.metadata.or(self.metadata.take());
        self.deleted_at = later.deleted_at.or(self.deleted_at);
        self.subscription = later.subscription.or(self.subscription.take());
    }
}

impl CustomerBatch {
    fn change(&mut self, id: CustomerId, change: CustomerChange) {
        row_changes::change(&mut self.new, &mut self.changed, id, change);
    }

    /// Sets the customer's active subscription, or removes it.
    fn subscribe(&mut self, who: Subscriber, plan: Option<(PlanId, &PlanTerms)>) {
        let now = plan.map(|(plan_id, terms)| {
            json(&Subscribed { subscription_id: who.subscription_id, plan_id, name: terms.name.clone() })
        });
        self.change(
            who.customer_id,
            CustomerChange { subscription: Some(NewValue(now)), ..CustomerChange::default() },
        );
    }

    fn update(&mut self, event: &CustomerUpdated) {
        let reference_id = event.reference_id.as_ref().map(|change| {
            let to = change.to.as_deref().map(storable);
            NewValue(to)
        });
        let metadata = event.metadata.as_ref();
        let metadata = metadata.map(|texts| json(&metadata::join(texts, &event.metadata_literals)));
        if reference_id.is_some() || metadata.is_some() {
            self.change(
                event.customer_id,
                CustomerChange { reference_id, metadata, ..CustomerChange::default() },
            );
        }
    }
}

impl Projection for CustomerBatch {
    const MODEL: ReadModel = ReadModel::Customers;

    fn fold(&mut self, recorded: &Recorded) {
        let fact = &recorded.fact;
        match &fact.event {
            Event::Customer(CustomerEvent::Created(event)) => {
                self.new
                    .insert(event.customer_id, NewCustomer::of(event, fact.merchant_id, fact.occurred_at));
            }
            Event::Customer(CustomerEvent::Updated(event)) => self.update(event),
            Event::Customer(CustomerEvent::Deleted(event)) => {
                // The row keeps its place in the list, so that a cursor on it stays valid. Its data is erased.
                let deletion = CustomerChange {
                    reference_id: Some(NewValue(None)),
                    metadata: Some(NO_METADATA.to_owned()),
                    deleted_at: Some(fact.occurred_at),
                    subscription: Some(NewValue(None)),
                };
                self.change(event.customer_id, deletion);
            }
            Event::Subscription(SubscriptionEvent::Started(event)) => {
                self.subscribe(event.subscriber, Some((event.plan_id, &event.terms)));
            }
            Event::Subscription(SubscriptionEvent::Renewed(event)) => {
                self.subscribe(event.subscriber, Some((event.plan_id, &event.terms)));
            }
            Event::Subscription(SubscriptionEvent::Upgraded(event)) => {
                self.subscribe(event.subscriber, Some((event.plan_id, &event.terms)));
            }
            Event::Subscription(SubscriptionEvent::Cancelled(event)) => {
                self.subscribe(event.subscriber, None);
            }
            Event::Merchant(_)
            | Event::SecretKey(_)
            | Event::Meter(_)
            | Event::SpendKey(_)
            | Event::Wallet(_)
            | Event::Request(_)
            | Event::Plan(_)
            | Event::Subscription(
                SubscriptionEvent::Updated(_)
                | SubscriptionEvent::CycleEnded(_)
                | SubscriptionEvent::RenewalFailed(_)
                | SubscriptionEvent::BundlePurchased(_),
            )
            | Event::Payment(_)
            | Event::Checkout(_)
            | Event::Webhook(_) => {}
        }
    }

    fn is_empty(&self) -> bool {
        self.new.is_empty() && self.changed.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use farthing_core::event::{ContactPart, CustomerDeleted, ReferenceChange};
    use farthing_core::ids::{Mint, WalletId};

    use super::*;
    use crate::sample;

    fn id() -> CustomerId {
        CustomerId::new(Mint::default().next(DateTime::UNIX_EPOCH))
    }

    fn created(customer_id: CustomerId) -> Event {
        Event::from(CustomerCreated {
            customer_id,
            wallet_id: WalletId::new(customer_id.ulid()),
            reference_id: Some("a\0b".to_owned()),
            metadata: [("size".to_owned(), "1.50".to_owned()), ("team".to_owned(), "blue".to_owned())].into(),
            metadata_literals: ["size".to_owned()].into(),
        })
    }

    fn renamed(customer_id: CustomerId, revision: u32, to: Option<&str>) -> Event {
        let change = ReferenceChange { from: None, to: to.map(str::to_owned) };
        let reference_id = Some(change);
        let contact = Vec::new();
        Event::from(CustomerUpdated {
            customer_id,
            revision,
            reference_id,
            metadata: None,
            metadata_literals: BTreeSet::new(),
            contact,
        })
    }

    fn deleted(customer_id: CustomerId) -> Event {
        let wallet_id = WalletId::new(customer_id.ulid());
        Event::from(CustomerDeleted { customer_id, wallet_id, reference_id: None })
    }

    #[test]
    fn a_customer_is_one_row_and_a_call_changes_nothing() {
        let opened = Event::from(Box::new(sample::opened()));
        let id = id();
        let batch: CustomerBatch = sample::fold(vec![created(id), opened]);
        let row = &batch.new[&id];
        assert_eq!(row.reference_id.as_deref(), Some("a\u{FFFD}b"));
        assert_eq!(row.metadata, r#"{"size":1.50,"team":"blue"}"#);
        assert!(sample::fold::<CustomerBatch>(vec![Event::from(Box::new(sample::opened()))]).is_empty());
    }

    #[test]
    fn changes_in_the_batch_of_the_creation_are_made_in_the_new_row() {
        let id = id();
        let batch: CustomerBatch =
            sample::fold(vec![created(id), renamed(id, 1, Some("new")), renamed(id, 2, None), deleted(id)]);
        assert!(batch.changed.is_empty());
        let row = &batch.new[&id];
        assert_eq!((&row.reference_id, row.metadata.as_str()), (&None, "{}"));
        assert_eq!(row.deleted_at, Some(DateTime::UNIX_EPOCH));
    }

    #[test]
    fn a_field_that_an_update_does_not_name_does_not_change() {
        let id = id();
        let metadata = Some([("a".to_owned(), "b".to_owned())].into());
        let update = CustomerUpdated {
            customer_id: id,
            revision: 2,
            reference_id: None,
            metadata,
            metadata_literals: BTreeSet::new(),
            contact: Vec::new(),
        };
        let batch: CustomerBatch = sample::fold(vec![renamed(id, 1, None), Event::from(update.clone())]);
        let change = CustomerChange {
            reference_id: Some(NewValue(None)),
            metadata: Some(r#"{"a":"b"}"#.to_owned()),
            ..CustomerChange::default()
        };
        assert_eq!(batch.changed[&id], change);
        let contact = CustomerUpdated { metadata: None, contact: vec![ContactPart::Email], ..update };
        assert!(sample::fold::<CustomerBatch>(vec![Event::from(contact)]).is_empty());
    }
}
