//! `CreateWebhook`: creates a webhook, up to [`MAX_WEBHOOKS`] of a merchant (completion.md section 9).

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::decision::{Command, DecideError, Decision};
use super::refusal::WebhookRefusal;
use crate::event::{Event, WebhookCreated, WebhookSettings};
use crate::ids::{MerchantId, WebhookId};
use crate::state::{StateCache, Webhook};

/// The maximum number of webhooks of a merchant.
pub(super) const MAX_WEBHOOKS: usize = 3;

/// Creates a webhook and returns it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateWebhook {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// A new id.
    pub webhook_id: WebhookId,
    /// Its URL and topics.
    pub settings: WebhookSettings,
    /// The current time, to the millisecond.
    pub now: DateTime<Utc>,
}

impl Command for CreateWebhook {
    type Outcome = Webhook;

    fn decide(&self, states: &StateCache) -> Result<Decision<Webhook>, DecideError> {
        let (merchant_id, settings) = (self.merchant_id, self.settings.clone());
        if states.webhooks(merchant_id)?.map_or(0, Vec::len) >= MAX_WEBHOOKS {
            return Err(WebhookRefusal::LimitReached.into());
        }
        let created_at = states.now(merchant_id, self.now)?;
        let event = Event::from(WebhookCreated { webhook_id: self.webhook_id, settings: settings.clone() });
        let webhook = Webhook { merchant_id, settings, revision: 0, created_at };
        Ok(Decision::append(merchant_id, self.now, vec![event], webhook))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{DeleteWebhook, Refusal, decide};
    use crate::event::Topic;
    use crate::state::{EvolveError, StateKey};

    /// States in which neither the merchant nor a webhook exists.
    fn no_states(merchant_id: MerchantId) -> StateCache {
        let mut states = StateCache::default();
        states.load(StateKey::Merchant(merchant_id), None);
        states.load(StateKey::Webhooks(merchant_id), None);
        states
    }

    fn create(merchant_id: MerchantId, number: u128) -> CreateWebhook {
        let settings = WebhookSettings {
            name: None,
            url: "https://example.com/".to_owned(),
            topics: Some(vec![Topic::CustomerCreated]),
            enabled: true,
        };
        let webhook_id = WebhookId::new(ulid::Ulid::from_parts(1, number));
        CreateWebhook { merchant_id, webhook_id, settings, now: DateTime::UNIX_EPOCH }
    }

    fn execute<C: Command>(states: &mut StateCache, command: &C) -> Result<(), DecideError> {
        let decision = decide(command, states)?;
        states.evolve(&decision.facts).map_err(|error| match error {
            EvolveError::Missing(missing) => missing.into(),
            EvolveError::InvariantBroken(broken) => panic!("{broken}"),
        })
    }

    #[test]
    fn a_fourth_webhook_is_refused_until_one_is_deleted() {
        let merchant_id = MerchantId::new(ulid::Ulid::from_parts(1, 1));
        let mut states = no_states(merchant_id);
        for number in 0..3 {
            execute(&mut states, &create(merchant_id, number)).unwrap();
        }
        let fourth = create(merchant_id, 3);
        let refused = Err(DecideError::Refused(Refusal::Webhook(WebhookRefusal::LimitReached)));
        assert_eq!(execute(&mut states, &fourth), refused);
        let webhook_id = create(merchant_id, 1).webhook_id;
        let delete = DeleteWebhook { merchant_id, webhook_id, now: DateTime::UNIX_EPOCH };
        execute(&mut states, &delete).unwrap();
        execute(&mut states, &fourth).unwrap();
        assert_eq!(execute(&mut states, &create(merchant_id, 4)), refused);
    }

    #[test]
    fn a_webhook_of_another_merchant_is_not_found() {
        let [own, other] = [1, 2].map(|number| MerchantId::new(ulid::Ulid::from_parts(1, number)));
        let mut states = no_states(own);
        let made = create(own, 1);
        execute(&mut states, &made).unwrap();
        let delete =
            DeleteWebhook { merchant_id: other, webhook_id: made.webhook_id, now: DateTime::UNIX_EPOCH };
        assert_eq!(
            execute(&mut states, &delete),
            Err(DecideError::Refused(Refusal::Webhook(WebhookRefusal::NotFound)))
        );
    }
}
