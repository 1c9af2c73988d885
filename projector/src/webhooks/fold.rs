//! The fold: the deliveries of each event to webhooks. Pure; it starts from the webhooks at the cursor.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use farthing_core::event::{Event, Recorded, Topic, WebhookEvent, WebhookSettings};
use farthing_core::ids::{MerchantId, WebhookEventId, WebhookId};
use farthing_core::partition::Partition;
use ulid::Ulid;

/// The webhooks of some merchants; of each merchant all of them.
pub(super) type Known = BTreeMap<MerchantId, BTreeMap<WebhookId, WebhookSettings>>;

/// A new delivery: one event for one webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NewDelivery {
    pub(super) webhook_id: WebhookId,
    pub(super) position: i64,
    pub(super) event_id: WebhookEventId,
    pub(super) topic: Topic,
    /// The queue: the customer's id, or nothing. Within a queue, events are delivered in order.
    pub(super) queue: String,
    pub(super) created_at: DateTime<Utc>,
}

/// The changes of a batch of one partition.
#[derive(Debug, Default)]
pub(super) struct OutboxBatch {
    pub(super) deliveries: Vec<NewDelivery>,
    /// Current settings of webhooks, with their merchants; `None` for a deleted webhook.
    pub(super) webhooks: BTreeMap<WebhookId, Option<(MerchantId, WebhookSettings)>>,
}

impl OutboxBatch {
    /// Whether it changes nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.deliveries.is_empty() && self.webhooks.is_empty()
    }

    /// The queues with new deliveries, always in the same order.
    pub(super) fn queues(&self) -> BTreeSet<(String, &str)> {
        self.deliveries.iter().map(|new| (new.webhook_id.to_string(), new.queue.as_str())).collect()
    }

    /// Takes in one event. Events come in the order of their partition.
    pub(super) fn fold(&mut self, known: &mut Known, recorded: &Recorded) {
        let fact = &recorded.fact;
        let merchant_id = fact.merchant_id;
        match &fact.event {
            Event::Webhook(WebhookEvent::Created(event)) => {
                self.keep(known, merchant_id, event.webhook_id, &event.settings);
            }
            Event::Webhook(WebhookEvent::Updated(event)) => {
                self.keep(known, merchant_id, event.webhook_id, &event.settings);
            }
            Event::Webhook(WebhookEvent::Deleted(event)) => {
                known.entry(merchant_id).or_default().remove(&event.webhook_id);
                self.webhooks.insert(event.webhook_id, None);
            }
            other => self.deliver(known, recorded, other),
        }
    }

    fn keep(
        &mut self,
        known: &mut Known,
        merchant_id: MerchantId,
        id: WebhookId,
        settings: &WebhookSettings,
    ) {
        known.entry(merchant_id).or_default().insert(id, settings.clone());
        self.webhooks.insert(id, Some((merchant_id, settings.clone())));
    }

    fn deliver(&mut self, known: &Known, recorded: &Recorded, event: &Event) {
        let Some(notice) = event.webhook_notice() else { return };
        let Some(webhooks) = known.get(&recorded.fact.merchant_id) else { return };
        let queue = notice.customer_id.map(|id| id.to_string()).unwrap_or_default();
        for (webhook_id, _) in webhooks.iter().filter(|(_, settings)| settings.wants(notice.topic)) {
            self.deliveries.push(NewDelivery {
                webhook_id: *webhook_id,
                position: recorded.position,
                event_id: event_id(*webhook_id, recorded.position, recorded.fact.occurred_at),
                topic: notice.topic,
                queue: queue.clone(),
                created_at: recorded.fact.occurred_at,
            });
        }
    }
}

/// The merchant whose webhooks are needed to fold `recorded`, with its partition.
pub(super) fn merchant_of(recorded: &Recorded) -> Option<(Partition, MerchantId)> {
    let event = &recorded.fact.event;
    let is_needed = matches!(event, Event::Webhook(_)) || event.webhook_notice().is_some();
    is_needed.then_some((recorded.partition, recorded.fact.merchant_id))
}

/// The id of an event for one webhook. It is the same for every attempt and every process. Its random part is that of
/// the webhook's id plus the position: no two webhooks share an event id, since the ids of a mint are far apart.
fn event_id(webhook_id: WebhookId, position: i64, occurred_at: DateTime<Utc>) -> WebhookEventId {
    let ms = u64::try_from(occurred_at.timestamp_millis()).unwrap_or(0);
    let random = webhook_id.ulid().random().wrapping_add(u128::from(position.unsigned_abs()));
    WebhookEventId::new(Ulid::from_parts(ms, random))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sample;
    use farthing_core::event::Fact;
    use farthing_core::ids::Mint;

    const PARTITION: Partition = Partition::new(3);
    const CUSTOMER: &str = "con_01ARZ3NDEKTSV4RRFFQ69G5FAV";
    const WEBHOOK: &str = "wh_01ARZ3NDEKTSV4RRFFQ69G5FAV";

    fn fold(events: Vec<Event>) -> OutboxBatch {
        let merchant_id = MerchantId::new(Ulid::from_parts(1, 1));
        let (mut batch, mut known) = (OutboxBatch::default(), Known::new());
        for (position, event) in (1..).zip(events) {
            let fact = Fact { merchant_id, occurred_at: DateTime::UNIX_EPOCH, event };
            batch.fold(&mut known, &Recorded { partition: PARTITION, position, fact });
        }
        batch
    }

    fn deleted(customer: &str) -> Event {
        let body = json!({"customer_id": customer, "wallet_id": "wal_01ARZ3NDEKTSV4RRFFQ69G5FAV", "reference_id": null});
        sample::event("customer.deleted", &body)
    }

    fn webhook(topics: &[&str], enabled: bool) -> Event {
        webhook_of(WEBHOOK, topics, enabled)
    }

    fn webhook_of(id: &str, topics: &[&str], enabled: bool) -> Event {
        let body = json!({"webhook_id": id, "url": "http://a", "topics": topics, "enabled": enabled});
        sample::event("webhook.created", &body)
    }

    #[test]
    fn a_webhook_receives_its_topics_from_its_creation_to_its_deletion() {
        let deletion = sample::event("webhook.deleted", &json!({"webhook_id": WEBHOOK}));
        let batch = fold(vec![
            deleted(CUSTOMER),
            webhook(&["customer.deleted"], true),
            deleted(CUSTOMER),
            sample::event(
                "secret_key.revoked",
                &json!({"secret_key_id": "key_01ARZ3NDEKTSV4RRFFQ69G5FAV", "key_hash": ""}),
            ),
            deleted(CUSTOMER),
            deletion,
            deleted(CUSTOMER),
        ]);
        let delivered: Vec<_> =
            batch.deliveries.iter().map(|new| (new.position, new.queue.as_str())).collect();
        assert_eq!(delivered, [(3, CUSTOMER), (5, CUSTOMER)]);
        assert_ne!(batch.deliveries[0].event_id, batch.deliveries[1].event_id);
        assert_eq!(batch.webhooks.values().collect::<Vec<_>>(), [&None]);
        assert_eq!(batch.queues().len(), 1);
    }

    #[test]
    fn webhooks_that_were_made_in_one_millisecond_share_no_event_id() {
        const WEBHOOKS: usize = 16;
        const EVENTS: usize = 50;
        let mint = Mint::default();
        let made = (0..WEBHOOKS).map(|_| WebhookId::new(mint.next(DateTime::UNIX_EPOCH)).to_string());
        let made = made.map(|id| webhook_of(&id, &["customer.deleted"], true));
        let events = made.chain((0..EVENTS).map(|_| deleted(CUSTOMER))).collect();
        let ids: BTreeSet<_> = fold(events).deliveries.iter().map(|new| new.event_id.to_string()).collect();
        assert_eq!(ids.len(), WEBHOOKS * EVENTS);
    }

    /// A delivery that is repeated after an upgrade or a rebuild has its former id.
    #[test]
    fn the_id_of_an_event_never_changes() {
        let batch = fold(vec![webhook(&["customer.deleted"], true), deleted(CUSTOMER)]);
        assert_eq!(batch.deliveries[0].event_id.to_string(), "evt_0000000000TSV4RRFFQ69G5FAX");
    }

    #[test]
    fn the_webhooks_of_a_merchant_are_needed_before_one_of_them_changes() {
        let needs = |event| {
            let merchant_id = MerchantId::new(Ulid::from_parts(1, 1));
            let fact = Fact { merchant_id, occurred_at: DateTime::UNIX_EPOCH, event };
            merchant_of(&Recorded { partition: PARTITION, position: 1, fact })
                == Some((PARTITION, merchant_id))
        };
        assert!(needs(webhook(&[], true)) && needs(deleted(CUSTOMER)));
        let revoked = json!({"secret_key_id": "key_01ARZ3NDEKTSV4RRFFQ69G5FAV", "key_hash": ""});
        assert!(!needs(sample::event("secret_key.revoked", &revoked)));
    }

    #[test]
    fn a_disabled_webhook_and_one_of_other_topics_receive_nothing() {
        assert!(fold(vec![webhook(&["customer.deleted"], false), deleted(CUSTOMER)]).deliveries.is_empty());
        assert!(fold(vec![webhook(&["customer.created"], true), deleted(CUSTOMER)]).deliveries.is_empty());
    }
}
