//! The effects of the events of subscriptions.

use crate::event::{Fact, SubscriptionEvent};
use crate::state::effect::Effect;
use crate::state::kinds::{State, StateKey};
use crate::state::subscription::{Phase, Subscription, SubscriptionChange};
use crate::state::wallet::{BundleCredit, PlanCredit};
use crate::state::wallet_change::WalletChange;

pub(super) fn effects(fact: &Fact, event: &SubscriptionEvent) -> Vec<(StateKey, Effect)> {
    let Fact { merchant_id, occurred_at: created_at, .. } = *fact;
    match event {
        SubscriptionEvent::Started(event) => {
            let subscriber = event.subscriber;
            let subscription = Subscription {
                merchant_id,
                subscriber,
                plan_id: event.plan_id,
                terms: event.terms.clone(),
                started_at: created_at,
                anchor: event.cycle.start,
                cycle: event.cycle,
                phase: Phase::Running,
                payment_method_id: event.payment_method_id,
                auto_top_up_bundle_id: event.auto_top_up_bundle_id,
                auto_top_up_chosen: event.auto_top_up_chosen,
                pending_change: None,
                outlasts: None,
                revision: 0,
                due_ms: None,
            };
            let id = subscriber.subscription_id;
            let credit = PlanCredit {
                subscription_id: id,
                cycle_start: event.cycle.start,
                remaining: event.granted,
                meter_ids: event.terms.meter_ids.clone(),
                auto_top_up_bundle_id: event.auto_top_up_bundle_id,
            };
            let subscription = Box::new(subscription.scheduled());
            vec![
                (StateKey::Subscription(id), Effect::Create(State::Subscription(subscription))),
                (StateKey::Customer(subscriber.customer_id), Effect::Subscribe(Some(id))),
                (StateKey::Wallet(subscriber.wallet_id), Effect::Wallet(WalletChange::GrantPlan(credit))),
            ]
        }
        SubscriptionEvent::Updated(event) => {
            let top_up = WalletChange::TopUpWith(event.auto_top_up_bundle_id);
            vec![
                (
                    StateKey::Subscription(event.subscriber.subscription_id),
                    Effect::Subscription(SubscriptionChange::Update(event.clone())),
                ),
                (StateKey::Wallet(event.subscriber.wallet_id), Effect::Wallet(top_up)),
            ]
        }
        SubscriptionEvent::CycleEnded(event) => {
            let wallet = StateKey::Wallet(event.subscriber.wallet_id);
            let expired_bundles = WalletChange::ExpireBundles(event.expired_bundles.clone());
            vec![
                (
                    StateKey::Subscription(event.subscriber.subscription_id),
                    Effect::Subscription(SubscriptionChange::EndCycle(event.ended_at)),
                ),
                (wallet.clone(), Effect::Wallet(WalletChange::ExpirePlan(event.expired))),
                (wallet, Effect::Wallet(expired_bundles)),
            ]
        }
        SubscriptionEvent::Renewed(event) => {
            let id = event.subscriber.subscription_id;
            let credit = PlanCredit {
                subscription_id: id,
                cycle_start: event.cycle.start,
                remaining: event.granted,
                meter_ids: event.terms.meter_ids.clone(),
                // The present bundle stays.
                auto_top_up_bundle_id: None,
            };
            vec![
                (StateKey::Subscription(id), Effect::Subscription(SubscriptionChange::Renew(event.clone()))),
                (
                    StateKey::Wallet(event.subscriber.wallet_id),
                    Effect::Wallet(WalletChange::GrantPlan(credit)),
                ),
            ]
        }
        SubscriptionEvent::RenewalFailed(event) => {
            let change = SubscriptionChange::Fail(event.attempt, event.retry_at);
            vec![(StateKey::Subscription(event.subscriber.subscription_id), Effect::Subscription(change))]
        }
        SubscriptionEvent::Upgraded(event) => {
            let id = event.subscriber.subscription_id;
            let credit = PlanCredit {
                subscription_id: id,
                cycle_start: event.cycle.start,
                remaining: event.granted,
                meter_ids: event.terms.meter_ids.clone(),
                auto_top_up_bundle_id: None,
            };
            vec![
                (
                    StateKey::Subscription(id),
                    Effect::Subscription(SubscriptionChange::Upgrade(event.clone())),
                ),
                (
                    StateKey::Wallet(event.subscriber.wallet_id),
                    Effect::Wallet(WalletChange::GrantPlan(credit)),
                ),
            ]
        }
        SubscriptionEvent::Cancelled(event) => {
            let wallet = StateKey::Wallet(event.subscriber.wallet_id);
            vec![
                (StateKey::Subscription(event.subscriber.subscription_id), Effect::Remove),
                (StateKey::Customer(event.subscriber.customer_id), Effect::Subscribe(None)),
                (wallet.clone(), Effect::Wallet(WalletChange::ExpirePlan(event.expired))),
                (wallet, Effect::Wallet(WalletChange::EndPlan)),
            ]
        }
        SubscriptionEvent::BundlePurchased(event) => {
            let credit = BundleCredit { payment_id: event.payment_id, remaining: event.granted };
            vec![(StateKey::Wallet(event.wallet_id), Effect::Wallet(WalletChange::GrantBundle(credit)))]
        }
    }
}
