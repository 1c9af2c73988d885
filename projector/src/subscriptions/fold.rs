//! The fold: one row per subscription. New rows are inserted with their first values; all later events of a batch, also
//! of a new row, become one change of the row. Invariant: remaining credit = granted - used (the sources of debits) -
//! expired.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use farthing_core::event::{
    Event, Recorded, Source, SubscriptionEvent, SubscriptionStarted, SubscriptionUpdated, WalletEvent,
    WalletSource,
};
use farthing_core::ids::{MerchantId, PlanId, SubscriptionId, WalletId};
use farthing_core::money::Amount;
use farthing_core::plan::{BillingCycle, PlanTerms};
use farthing_schema::read_model::ReadModel;
use rust_decimal::Decimal;

use crate::column::{NewValue, json};
use crate::engine::Projection;

/// New rows, the changes of rows, and the change of each wallet's bundle credit.
#[derive(Debug, Default)]
pub(crate) struct SubscriptionBatch {
    pub(super) new: BTreeMap<SubscriptionId, NewSubscription>,
    pub(super) changed: BTreeMap<SubscriptionId, SubscriptionChange>,
    pub(super) bundles: BTreeMap<WalletId, Decimal>,
}

/// A row of the table `subscriptions` with its first values.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NewSubscription {
    pub(super) merchant_id: String,
    pub(super) customer_id: String,
    pub(super) wallet_id: String,
    pub(super) cycle: PlanCycle,
    pub(super) auto_top_up_bundle_id: Option<String>,
    pub(super) credit: Amount,
    pub(super) started_at: DateTime<Utc>,
}

/// A cycle and its plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlanCycle {
    pub(super) plan_id: String,
    /// JSON text.
    pub(super) terms: String,
    /// The instant from which cycles are counted; `None` keeps it.
    pub(super) anchor: Option<DateTime<Utc>>,
    pub(super) start: DateTime<Utc>,
    pub(super) end: DateTime<Utc>,
}

impl PlanCycle {
    fn of(plan_id: PlanId, terms: &PlanTerms, cycle: BillingCycle) -> Self {
        Self {
            plan_id: plan_id.to_string(),
            terms: json(terms),
            anchor: (cycle.number == 0).then_some(cycle.start),
            start: cycle.start,
            end: cycle.end,
        }
    }
}

/// The change of a row. A field that is `None` does not change.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SubscriptionChange {
    pub(super) cycle: Option<PlanCycle>,
    pub(super) auto_top_up: Option<NewValue<String>>,
    pub(super) pending: Option<NewValue<String>>,
    pub(super) cancelled_at: Option<DateTime<Utc>>,
    /// Added to the remaining credit of the plan.
    pub(super) credit: Decimal,
}

impl SubscriptionBatch {
    fn start(&mut self, event: &SubscriptionStarted, merchant_id: MerchantId, started_at: DateTime<Utc>) {
        let subscriber = event.subscriber;
        let row = NewSubscription {
            merchant_id: merchant_id.to_string(),
            customer_id: subscriber.customer_id.to_string(),
            wallet_id: subscriber.wallet_id.to_string(),
            cycle: PlanCycle::of(event.plan_id, &event.terms, event.cycle),
            auto_top_up_bundle_id: event.auto_top_up_bundle_id.map(|id| id.to_string()),
            credit: event.granted,
            started_at,
        };
        self.new.insert(subscriber.subscription_id, row);
    }

    fn change(&mut self, id: SubscriptionId) -> &mut SubscriptionChange {
        self.changed.entry(id).or_default()
    }

    fn update(&mut self, event: &SubscriptionUpdated) {
        let change = self.change(event.subscriber.subscription_id);
        change.auto_top_up = Some(NewValue(event.auto_top_up_bundle_id.map(|id| id.to_string())));
        change.pending = Some(NewValue(event.pending_change.as_ref().map(json)));
    }

    /// Begins a cycle. Its credit is added to the remaining credit.
    fn begin_cycle(&mut self, id: SubscriptionId, cycle: PlanCycle, granted: Amount) {
        let change = self.change(id);
        let anchor = cycle.anchor.or(change.cycle.as_ref().and_then(|before| before.anchor));
        change.cycle = Some(PlanCycle { anchor, ..cycle });
        change.pending = Some(NewValue(None));
        change.credit += granted.decimal();
    }

    fn add_bundle_credit(&mut self, wallet_id: WalletId, amount: Decimal) {
        *self.bundles.entry(wallet_id).or_default() += amount;
    }

    fn debit(&mut self, wallet_id: WalletId, sources: &[WalletSource]) {
        for WalletSource { source, amount } in sources {
            match source {
                Source::Balance => {}
                Source::PlanCredit(id) => self.change(*id).credit -= amount.decimal(),
                Source::BundleCredit(_) => self.add_bundle_credit(wallet_id, -amount.decimal()),
            }
        }
    }
}

impl Projection for SubscriptionBatch {
    const MODEL: ReadModel = ReadModel::Subscriptions;

    fn fold(&mut self, recorded: &Recorded) {
        let fact = &recorded.fact;
        match &fact.event {
            Event::Subscription(SubscriptionEvent::Started(event)) => {
                self.start(event, fact.merchant_id, fact.occurred_at);
            }
            Event::Subscription(SubscriptionEvent::Updated(event)) => self.update(event),
            Event::Subscription(SubscriptionEvent::CycleEnded(event)) => {
                self.change(event.subscriber.subscription_id).credit -= event.expired.decimal();
                for bundle in &event.expired_bundles {
                    self.add_bundle_credit(event.subscriber.wallet_id, -bundle.amount.decimal());
                }
            }
            Event::Subscription(SubscriptionEvent::Renewed(event)) => {
                let cycle = PlanCycle::of(event.plan_id, &event.terms, event.cycle);
                self.begin_cycle(event.subscriber.subscription_id, cycle, event.granted);
            }
            Event::Subscription(SubscriptionEvent::Upgraded(event)) => {
                let cycle = PlanCycle::of(event.plan_id, &event.terms, event.cycle);
                self.begin_cycle(event.subscriber.subscription_id, cycle, event.granted);
            }
            Event::Subscription(SubscriptionEvent::Cancelled(event)) => {
                let change = self.change(event.subscriber.subscription_id);
                change.credit -= event.expired.decimal();
                change.pending = Some(NewValue(None));
                change.cancelled_at = Some(fact.occurred_at);
            }
            Event::Subscription(SubscriptionEvent::BundlePurchased(event)) => {
                self.add_bundle_credit(event.wallet_id, event.granted.decimal());
            }
            Event::Wallet(WalletEvent::Debited(event)) => self.debit(event.wallet_id, &event.sources),
            Event::Merchant(_)
            | Event::SecretKey(_)
            | Event::Customer(_)
            | Event::Meter(_)
            | Event::SpendKey(_)
            | Event::Wallet(WalletEvent::Credited(_) | WalletEvent::AutopayChanged(_))
            | Event::Request(_)
            | Event::Plan(_)
            | Event::Subscription(SubscriptionEvent::RenewalFailed(_))
            | Event::Payment(_)
            | Event::Checkout(_)
            | Event::Webhook(_) => {}
        }
    }

    fn is_empty(&self) -> bool {
        self.new.is_empty() && self.changed.is_empty() && self.bundles.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use farthing_core::event::{
        BundlePurchased, CancelReason, CycleEnded, PendingChange, Subscriber, SubscriptionCancelled,
        SubscriptionRenewed, SubscriptionUpgraded, WalletDebited,
    };
    use farthing_core::ids::{CreditBundleId, CustomerId, Mint, PaymentId, RequestId};
    use farthing_core::plan::{BillingInterval, Rollover};

    use super::*;
    use crate::sample;

    fn amount(text: &str) -> Amount {
        text.parse().unwrap()
    }

    fn subscriber() -> Subscriber {
        let ulid = Mint::default().next(DateTime::UNIX_EPOCH);
        Subscriber {
            subscription_id: SubscriptionId::new(ulid),
            customer_id: CustomerId::new(ulid),
            wallet_id: WalletId::new(ulid),
        }
    }

    fn terms() -> PlanTerms {
        PlanTerms {
            name: "Free".to_owned(),
            period_amount: Amount::ZERO,
            included_credit: amount("5"),
            billing_interval: BillingInterval::Month,
            rollover_type: Rollover::None,
            bundle_rollover_type: Rollover::Full,
            meter_ids: Vec::new(),
            default_auto_top_up_bundle_id: None,
        }
    }

    fn cycle(number: u32) -> BillingCycle {
        BillingCycle::of(BillingInterval::Month, DateTime::UNIX_EPOCH, number)
    }

    fn started(subscriber: Subscriber) -> Event {
        Event::from(Box::new(SubscriptionStarted {
            subscriber,
            plan_id: PlanId::new(subscriber.customer_id.ulid()),
            terms: terms(),
            cycle: cycle(0),
            granted: amount("5"),
            payment_id: None,
            payment_method_id: None,
            auto_top_up_bundle_id: None,
            auto_top_up_chosen: None,
        }))
    }

    fn debited(subscriber: Subscriber, sources: Vec<WalletSource>) -> Event {
        Event::from(WalletDebited {
            request_id: RequestId::new(subscriber.customer_id.ulid()),
            wallet_id: subscriber.wallet_id,
            customer_id: Some(subscriber.customer_id),
            amount: Amount::sum(sources.iter().map(|part| part.amount)).unwrap(),
            sources,
            balance_after: Amount::ZERO,
        })
    }

    #[test]
    fn remaining_credit_is_granted_less_used_less_expired() {
        let who = subscriber();
        let payment_id = PaymentId::new(who.customer_id.ulid());
        let part = |source, text: &str| WalletSource { source, amount: amount(text) };
        let events = vec![
            started(who),
            debited(
                who,
                vec![
                    part(Source::PlanCredit(who.subscription_id), "1.5"),
                    part(Source::BundleCredit(payment_id), "0.25"),
                    part(Source::Balance, "7"),
                ],
            ),
            Event::from(CycleEnded {
                subscriber: who,
                cycle_number: 0,
                ended_at: cycle(0).end,
                carried_over: Amount::ZERO,
                expired: amount("3.5"),
                expired_bundles: Vec::new(),
            }),
            Event::from(Box::new(SubscriptionRenewed {
                subscriber: who,
                plan_id: PlanId::new(who.customer_id.ulid()),
                terms: terms(),
                cycle: cycle(1),
                granted: amount("5"),
                payment_id: None,
                outlasts: None,
            })),
        ];
        let batch: SubscriptionBatch = sample::fold(events);
        let (row, change) = (&batch.new[&who.subscription_id], &batch.changed[&who.subscription_id]);
        assert_eq!(row.credit.decimal() + change.credit, Decimal::from(5));
        assert_eq!(batch.bundles[&who.wallet_id], "-0.25".parse().unwrap());
        let now = change.cycle.as_ref().unwrap();
        assert_eq!((now.anchor, now.start, now.end), (None, cycle(1).start, cycle(1).end));
    }

    #[test]
    fn a_pending_change_is_removed_when_it_is_made() {
        let who = subscriber();
        let effective_at = cycle(0).end;
        let updated = Event::from(Box::new(SubscriptionUpdated {
            subscriber: who,
            revision: 1,
            auto_top_up_bundle_id: None,
            auto_top_up_chosen: None,
            payment_method_id: None,
            pending_change: Some(PendingChange::Cancellation { effective_at, outlasts: None }),
        }));
        let batch: SubscriptionBatch = sample::fold(vec![updated.clone()]);
        let Some(NewValue(Some(pending))) = &batch.changed[&who.subscription_id].pending else {
            panic!("nothing pending")
        };
        assert!(pending.contains("cancellation"), "{pending}");
        let cancelled = Event::from(SubscriptionCancelled {
            subscriber: who,
            plan_id: PlanId::new(who.customer_id.ulid()),
            reason: CancelReason::Requested,
            expired: amount("5"),
        });
        let batch: SubscriptionBatch = sample::fold(vec![updated, cancelled]);
        let change = &batch.changed[&who.subscription_id];
        assert_eq!((&change.pending, change.credit), (&Some(NewValue(None)), Decimal::from(-5)));
        assert_eq!(change.cancelled_at, Some(DateTime::UNIX_EPOCH));
    }

    #[test]
    fn an_upgrade_starts_a_cycle_keeps_credit_and_removes_the_pending_change() {
        let who = subscriber();
        let plan_id = PlanId::new(who.customer_id.ulid());
        let updated = Event::from(Box::new(SubscriptionUpdated {
            subscriber: who,
            revision: 1,
            auto_top_up_bundle_id: None,
            auto_top_up_chosen: None,
            payment_method_id: None,
            pending_change: Some(PendingChange::Cancellation { effective_at: cycle(0).end, outlasts: None }),
        }));
        let upgraded = Event::from(Box::new(SubscriptionUpgraded {
            subscriber: who,
            revision: 2,
            from_plan_id: plan_id,
            plan_id,
            terms: PlanTerms { included_credit: amount("25"), ..terms() },
            cycle: BillingCycle::of(BillingInterval::Month, cycle(3).start, 0),
            granted: amount("25"),
            payment_id: None,
            payment_method_id: None,
        }));
        let bought = Event::from(BundlePurchased {
            payment_id: PaymentId::new(who.customer_id.ulid()),
            customer_id: who.customer_id,
            wallet_id: who.wallet_id,
            credit_bundle_id: CreditBundleId::new(who.customer_id.ulid()),
            cost: amount("5"),
            granted: amount("4"),
        });
        let batch: SubscriptionBatch = sample::fold(vec![updated, bought.clone(), upgraded, bought]);
        let change = &batch.changed[&who.subscription_id];
        assert_eq!((&change.pending, change.credit), (&Some(NewValue(None)), Decimal::from(25)));
        let now = change.cycle.as_ref().unwrap();
        assert_eq!(
            (now.anchor, now.start),
            (Some(cycle(3).start), cycle(3).start),
            "it anchors the next ones"
        );
        assert!(now.terms.contains("25.0000000000"), "{}", now.terms);
        assert_eq!(batch.bundles[&who.wallet_id], Decimal::from(8));
    }
}
