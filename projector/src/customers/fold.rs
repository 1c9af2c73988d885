//! The fold: one row per customer. A customer that is created and changed within one batch is written once.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use farthing_core::event::{
    CustomerCreated, CustomerEvent, CustomerUpdated, Event, Recorded, Subscriber, SubscriptionEvent,
};
use farthing_core::ids::{CustomerId, MerchantId, PlanId};
use farthing_core::plan::PlanTerms;
use farthing_schema::read_model::ReadModel;

use super::query::Subscribed;
use crate::column::{json, storable};
use crate::engine::Projection;
use crate::writer::Writer;

/// New rows, and what changes in rows that are there.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(super) new: BTreeMap<CustomerId, New>,
    pub(super) changed: BTreeMap<CustomerId, Change>,
}

/// A row of the table `customers`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct New {
    pub(super) merchant_id: String,
    pub(super) wallet_id: String,
    pub(super) reference_id: Option<String>,
    pub(super) metadata: String,
    pub(super) created_at: DateTime<Utc>,
    pub(super) deleted_at: Option<DateTime<Utc>>,
    /// JSON text of a [`Subscribed`].
    pub(super) subscription: Option<String>,
}

/// What changes in a row; what is none stays.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) reference_id: Option<Reference>,
    pub(super) metadata: Option<String>,
    pub(super) deleted_at: Option<DateTime<Utc>>,
    pub(super) subscription: Option<Current>,
}

/// The active subscription from now on, as the JSON text of a [`Subscribed`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Current(pub(super) Option<String>);

/// A reference id as it is from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reference(pub(super) Option<String>);

/// The text of metadata that is empty.
const NO_METADATA: &str = "{}";

impl New {
    fn of(event: &CustomerCreated, merchant_id: MerchantId, created_at: DateTime<Utc>) -> Self {
        Self {
            merchant_id: merchant_id.to_string(),
            wallet_id: event.wallet_id.to_string(),
            reference_id: event.reference_id.as_deref().map(|id| storable(id).into_owned()),
            metadata: json(&event.metadata),
            created_at,
            deleted_at: None,
            subscription: None,
        }
    }
}

impl Batch {
    fn change(&mut self, id: CustomerId, change: Change) {
        let Change { reference_id, metadata, deleted_at, subscription } = change;
        if let Some(row) = self.new.get_mut(&id) {
            if let Some(Reference(reference_id)) = reference_id {
                row.reference_id = reference_id;
            }
            row.metadata = metadata.unwrap_or_else(|| std::mem::take(&mut row.metadata));
            row.deleted_at = deleted_at.or(row.deleted_at);
            if let Some(Current(subscription)) = subscription {
                row.subscription = subscription;
            }
        } else {
            let row = self.changed.entry(id).or_default();
            row.reference_id = reference_id.or(row.reference_id.take());
            row.metadata = metadata.or(row.metadata.take());
            row.deleted_at = deleted_at.or(row.deleted_at);
            row.subscription = subscription.or(row.subscription.take());
        }
    }

    /// The customer's active subscription is this from now on.
    fn subscribe(&mut self, who: Subscriber, plan: Option<(PlanId, &PlanTerms)>) {
        let now = plan.map(|(plan_id, terms)| {
            json(&Subscribed { subscription_id: who.subscription_id, plan_id, name: terms.name.clone() })
        });
        self.change(who.customer_id, Change { subscription: Some(Current(now)), ..Change::default() });
    }

    fn update(&mut self, event: &CustomerUpdated) {
        let reference_id = event.reference_id.as_ref().map(|change| {
            let to = change.to.as_deref().map(|id| storable(id).into_owned());
            Reference(to)
        });
        let metadata = event.metadata.as_ref().map(json);
        if reference_id.is_some() || metadata.is_some() {
            self.change(event.customer_id, Change { reference_id, metadata, ..Change::default() });
        }
    }
}

impl Projection for Batch {
    const MODEL: ReadModel = ReadModel::Customers;

    fn fold(&mut self, recorded: &Recorded) {
        let fact = &recorded.fact;
        match &fact.event {
            Event::Customer(CustomerEvent::Created(event)) => {
                self.new.insert(event.customer_id, New::of(event, fact.merchant_id, fact.occurred_at));
            }
            Event::Customer(CustomerEvent::Updated(event)) => self.update(event),
            Event::Customer(CustomerEvent::Deleted(event)) => {
                // The row stays as a place in the list, so that a cursor on it stays good; all else goes.
                let gone = Change {
                    reference_id: Some(Reference(None)),
                    metadata: Some(NO_METADATA.to_owned()),
                    deleted_at: Some(fact.occurred_at),
                    subscription: Some(Current(None)),
                };
                self.change(event.customer_id, gone);
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
                self.subscribe(event.subscriber, None)
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

    async fn write(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        self.insert(db).await?;
        self.update_rows(db).await
    }
}

#[cfg(test)]
mod tests {
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
            metadata: [("team".to_owned(), "blue".to_owned())].into(),
        })
    }

    fn renamed(customer_id: CustomerId, revision: u32, to: Option<&str>) -> Event {
        let change = ReferenceChange { from: None, to: to.map(str::to_owned) };
        let reference_id = Some(change);
        let contact = Vec::new();
        Event::from(CustomerUpdated { customer_id, revision, reference_id, metadata: None, contact })
    }

    fn deleted(customer_id: CustomerId) -> Event {
        let wallet_id = WalletId::new(customer_id.ulid());
        Event::from(CustomerDeleted { customer_id, wallet_id, reference_id: None })
    }

    #[test]
    fn a_customer_is_one_row_and_a_call_is_none() {
        let opened = Event::from(Box::new(sample::opened()));
        let id = id();
        let batch: Batch = sample::fold(vec![created(id), opened]);
        let row = &batch.new[&id];
        assert_eq!(row.reference_id.as_deref(), Some("a\u{FFFD}b"));
        assert_eq!(row.metadata, r#"{"team":"blue"}"#);
        assert!(sample::fold::<Batch>(vec![Event::from(Box::new(sample::opened()))]).is_empty());
    }

    #[test]
    fn changes_within_the_batch_of_the_creation_go_into_the_new_row() {
        let id = id();
        let batch: Batch =
            sample::fold(vec![created(id), renamed(id, 1, Some("new")), renamed(id, 2, None), deleted(id)]);
        assert!(batch.changed.is_empty());
        let row = &batch.new[&id];
        assert_eq!((&row.reference_id, row.metadata.as_str()), (&None, "{}"));
        assert_eq!(row.deleted_at, Some(DateTime::UNIX_EPOCH));
    }

    #[test]
    fn what_an_update_does_not_name_stays() {
        let id = id();
        let metadata = Some([("a".to_owned(), "b".to_owned())].into());
        let update = CustomerUpdated {
            customer_id: id,
            revision: 2,
            reference_id: None,
            metadata,
            contact: Vec::new(),
        };
        let batch: Batch = sample::fold(vec![renamed(id, 1, None), Event::from(update.clone())]);
        let change = Change {
            reference_id: Some(Reference(None)),
            metadata: Some(r#"{"a":"b"}"#.to_owned()),
            ..Change::default()
        };
        assert_eq!(batch.changed[&id], change);
        let contact = CustomerUpdated { metadata: None, contact: vec![ContactPart::Email], ..update };
        assert!(sample::fold::<Batch>(vec![Event::from(contact)]).is_empty());
    }
}
