//! The effects of the events of webhooks.

use crate::event::{Fact, WebhookEvent};
use crate::state::effect::Effect;
use crate::state::kinds::{State, StateKey};
use crate::state::webhook::Webhook;

pub(super) fn effects(fact: &Fact, event: &WebhookEvent) -> Vec<(StateKey, Effect)> {
    let Fact { merchant_id, occurred_at: created_at, .. } = *fact;
    match event {
        WebhookEvent::Created(event) => {
            let settings = event.settings.clone();
            let webhook = Box::new(Webhook { merchant_id, settings, revision: 0, created_at });
            vec![
                (StateKey::Webhook(event.webhook_id), Effect::Create(State::Webhook(webhook))),
                (StateKey::Webhooks(merchant_id), Effect::ListWebhook(event.webhook_id)),
            ]
        }
        WebhookEvent::Updated(event) => {
            vec![(StateKey::Webhook(event.webhook_id), Effect::UpdateWebhook(Box::new(event.clone())))]
        }
        WebhookEvent::Deleted(event) => vec![
            (StateKey::Webhook(event.webhook_id), Effect::Remove),
            (StateKey::Webhooks(merchant_id), Effect::UnlistWebhook(event.webhook_id)),
        ],
    }
}
