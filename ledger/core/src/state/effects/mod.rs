//! The effects of each event on the states, by area.

mod customer;
mod merchant;
mod meter;
mod payment;
mod plan;
mod request;
mod spend_key;
mod subscription;
mod wallet;
mod webhook;

use super::effect::Effect;
use super::kinds::StateKey;
use crate::event::{Event, Fact};

/// The effects of `fact`, state by state, in order.
pub fn effects(fact: &Fact) -> Vec<(StateKey, Effect)> {
    match &fact.event {
        Event::Merchant(event) => merchant::effects(fact, event),
        Event::SecretKey(event) => merchant::secret_key_effects(fact, event),
        Event::Customer(event) => customer::effects(fact, event),
        Event::Meter(event) => meter::effects(fact, event),
        Event::SpendKey(event) => spend_key::effects(fact, event),
        Event::Wallet(event) => wallet::effects(event),
        Event::Request(event) => request::effects(fact, event),
        Event::Plan(event) => plan::effects(fact, event),
        Event::Subscription(event) => subscription::effects(fact, event),
        Event::Payment(event) => payment::effects(fact, event),
        Event::Checkout(event) => payment::checkout_effects(fact, event),
        Event::Webhook(event) => webhook::effects(fact, event),
    }
}
