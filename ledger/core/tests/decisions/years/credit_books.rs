//! Books of credit, kept from the facts alone.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use farthing_core::event::{
    CustomerEvent, Event, Fact, PaymentEvent, Purpose, RequestEvent, Source, SubscriptionEvent, WalletEvent,
};
use farthing_core::ids::{CustomerId, MeterId, PaymentId, RequestId, SubscriptionId, WalletId};
use farthing_core::money::Amount;
use rust_decimal::Decimal;

/// The sums of one wallet by source of the money.
#[derive(Debug, Default)]
pub(super) struct Account {
    pub(super) balance: Decimal,
    pub(super) plan: Decimal,
    pub(super) bundles: BTreeMap<PaymentId, Decimal>,
    /// In the order they were bought.
    pub(super) bought: Vec<PaymentId>,
    pub(super) granted: Decimal,
    pub(super) used: Decimal,
    pub(super) expired: Decimal,
    /// The meters of the plan, if it names any.
    pub(super) meters: Vec<MeterId>,
}

#[derive(Debug, Default)]
pub(crate) struct CreditBooks {
    pub(super) accounts: BTreeMap<WalletId, Account>,
    /// The meter of each request.
    pub(super) meters: BTreeMap<RequestId, Option<MeterId>>,
    /// Deleted customers.
    pub(super) deleted: BTreeSet<CustomerId>,
    /// The end of each subscription's present cycle.
    pub(super) cycles: BTreeMap<SubscriptionId, DateTime<Utc>>,
    /// When each subscription's renewal last failed, since its cycle ended.
    pub(super) unpaid: BTreeMap<SubscriptionId, DateTime<Utc>>,
    /// When the payment of each subscription's renewal was last requested, since its cycle ended.
    pub(super) asked: BTreeMap<SubscriptionId, DateTime<Utc>>,
    /// Ended payments, and whether they succeeded.
    pub(super) payments: BTreeMap<PaymentId, bool>,
}

impl CreditBooks {
    pub(super) fn enter(&mut self, facts: &[Fact]) {
        for fact in facts {
            self.enter_one(fact);
        }
        for (id, account) in &self.accounts {
            let bundles: Decimal = account.bundles.values().sum();
            assert!(account.balance >= Decimal::ZERO && account.plan >= Decimal::ZERO, "{id}: {account:?}");
            assert!(account.bundles.values().all(|left| *left >= Decimal::ZERO), "{id}: {account:?}");
            assert_eq!(
                account.granted,
                account.used + account.expired + account.plan + bundles,
                "granted = used + expired + remaining of {id}"
            );
        }
    }

    fn account(&mut self, id: WalletId) -> &mut Account {
        self.accounts.entry(id).or_default()
    }

    fn grant_plan(&mut self, id: WalletId, amount: Amount, meters: &[MeterId]) {
        let account = self.account(id);
        account.plan += amount.decimal();
        account.granted += amount.decimal();
        account.meters = meters.to_vec();
    }

    fn expire_plan(&mut self, id: WalletId, amount: Amount) {
        let account = self.account(id);
        account.plan -= amount.decimal();
        account.expired += amount.decimal();
    }

    fn enter_one(&mut self, fact: &Fact) {
        match &fact.event {
            Event::Wallet(WalletEvent::Credited(event)) if event.customer_id.is_some() => {
                self.account(event.wallet_id).balance += event.amount.decimal();
            }
            Event::Subscription(SubscriptionEvent::Started(event)) => {
                let old = self.cycles.insert(event.subscriber.subscription_id, event.cycle.end);
                assert!(old.is_none(), "a subscription starts once");
                self.grant_plan(event.subscriber.wallet_id, event.granted, &event.terms.meter_ids);
            }
            Event::Subscription(SubscriptionEvent::Renewed(event)) => {
                let id = event.subscriber.subscription_id;
                let end = self.cycles.insert(id, event.cycle.end).unwrap();
                // Only cycles that ended while unpaid, or while their payment was open, are skipped.
                let failed = self.unpaid.remove(&id).is_some();
                let began = event.cycle.start;
                let late = self.asked.remove(&id).is_some_and(|asked_at| began > asked_at);
                let follows = began == end || began > end && (failed || late);
                assert!(follows, "cycles have no gap except unpaid ones: {event:?}");
                assert!(began <= fact.occurred_at, "no cycle begins early: {event:?}");
                assert!(event.cycle.end > event.cycle.start);
                self.grant_plan(event.subscriber.wallet_id, event.granted, &event.terms.meter_ids);
            }
            Event::Subscription(SubscriptionEvent::Upgraded(event)) => {
                self.cycles.insert(event.subscriber.subscription_id, event.cycle.end);
                self.grant_plan(event.subscriber.wallet_id, event.granted, &event.terms.meter_ids);
            }
            Event::Subscription(SubscriptionEvent::RenewalFailed(event)) if event.awaits.is_none() => {
                self.unpaid.insert(event.subscriber.subscription_id, fact.occurred_at);
            }
            Event::Subscription(SubscriptionEvent::CycleEnded(event)) => {
                let id = event.subscriber.wallet_id;
                assert_eq!(self.cycles[&event.subscriber.subscription_id], event.ended_at);
                assert_eq!(
                    self.account(id).plan,
                    event.carried_over.plus(event.expired).unwrap().decimal(),
                    "the rest is carried over or expires"
                );
                self.expire_plan(id, event.expired);
                let account = self.account(id);
                for bundle in &event.expired_bundles {
                    *account.bundles.get_mut(&bundle.payment_id).unwrap() -= bundle.amount.decimal();
                    account.expired += bundle.amount.decimal();
                }
            }
            Event::Subscription(SubscriptionEvent::Cancelled(event)) => {
                self.expire_plan(event.subscriber.wallet_id, event.expired);
                assert_eq!(
                    self.account(event.subscriber.wallet_id).plan,
                    Decimal::ZERO,
                    "nothing outlives it"
                );
            }
            Event::Subscription(SubscriptionEvent::BundlePurchased(event)) => {
                let account = self.account(event.wallet_id);
                account.bundles.insert(event.payment_id, event.granted.decimal());
                account.bought.push(event.payment_id);
                account.granted += event.granted.decimal();
            }
            Event::Payment(PaymentEvent::Requested(event)) => {
                if let Purpose::Renewal { subscription_id, .. } = event.purpose {
                    self.asked.insert(subscription_id, fact.occurred_at);
                }
            }
            Event::Payment(PaymentEvent::Succeeded(event)) => {
                let customer = event.customer_id.unwrap();
                assert!(!self.deleted.contains(&customer), "money of a deleted customer is kept");
                assert_eq!(self.payments.insert(event.payment_id, true), None, "a payment ends once");
            }
            Event::Payment(PaymentEvent::Declined(event)) => {
                assert_eq!(self.payments.insert(event.payment_id, false), None, "a payment ends once");
            }
            Event::Payment(PaymentEvent::Voided(event)) => {
                assert_eq!(self.payments.insert(event.payment_id, false), None, "a payment ends once");
                assert!(self.deleted.contains(&event.customer_id.unwrap()), "its customer is not deleted");
            }
            Event::Customer(CustomerEvent::Deleted(event)) => {
                self.deleted.insert(event.customer_id);
            }
            Event::Request(RequestEvent::Opened(event)) => {
                self.meters.insert(event.request_id, event.terms.as_ref().map(|terms| terms.meter_id));
            }
            Event::Wallet(WalletEvent::Debited(event)) if event.customer_id.is_some() => {
                let meter = self.meters[&event.request_id];
                let account = self.account(event.wallet_id);
                let may_draw_plan =
                    account.meters.is_empty() || meter.is_some_and(|meter| account.meters.contains(&meter));
                let mut left = event.amount.decimal();
                let mut expected = Vec::new();
                let plan = account.plan.min(left);
                if may_draw_plan && plan > Decimal::ZERO {
                    left -= plan;
                    expected.push(plan);
                }
                for id in &account.bought {
                    let part = account.bundles[id].min(left);
                    if part > Decimal::ZERO {
                        left -= part;
                        expected.push(part);
                    }
                }
                if left > Decimal::ZERO {
                    expected.push(left);
                }
                let drawn: Vec<_> = event.sources.iter().map(|part| part.amount.decimal()).collect();
                assert_eq!(drawn, expected, "plan credit, then bundles, oldest first, then the balance");
                for part in &event.sources {
                    let amount = part.amount.decimal();
                    match part.source {
                        Source::Balance => account.balance -= amount,
                        Source::PlanCredit(_) => {
                            account.plan -= amount;
                            account.used += amount;
                        }
                        Source::BundleCredit(id) => {
                            *account.bundles.get_mut(&id).unwrap() -= amount;
                            account.used += amount;
                        }
                    }
                }
            }
            _ => {}
        }
    }
}
