//! Plans and subscriptions in a year.

use farthing_core::command::{
    AdvanceSubscription, Advanced, CreatePlan, CustomerRef, NewBundle, PlanRefusal, Purchase, Refusal,
    StartSubscription, SubscriptionEdit, SubscriptionRefusal, UpdateSubscription,
};
use farthing_core::event::BundleOffer;
use farthing_core::ids::{CreditBundleId, CustomerId, PaymentId, PlanId, SubscriptionId};
use farthing_core::plan::{BillingInterval, PlanTerms, Rollover};
use farthing_core::state::State;

use super::happening::Happening;
use super::{Years, cents};

impl Years {
    pub(super) fn create_plan(&mut self, happening: &Happening) {
        let Happening::Plan { cents: price, credit, interval, rollovers, only_first_meter, bundle } =
            happening
        else {
            return;
        };
        let plan_id = PlanId::new(self.ulid());
        let credit_bundle_id = CreditBundleId::new(self.ulid());
        let rollover = |bit: u8| if rollovers & bit == 0 { Rollover::None } else { Rollover::Full };
        let offer = BundleOffer { name: "more".into(), cost: cents(*bundle), credit_amount: cents(*bundle) };
        let terms = PlanTerms {
            name: "plan".into(),
            period_amount: cents(*price),
            included_credit: cents(*credit),
            billing_interval: BillingInterval::ALL[usize::from(*interval)],
            rollover_type: rollover(1),
            bundle_rollover_type: rollover(2),
            meter_ids: if *only_first_meter { vec![self.meters[0]] } else { Vec::new() },
            default_auto_top_up_bundle_id: (*bundle > 0 && bundle % 2 == 0).then_some(credit_bundle_id),
        };
        let bundles = vec![NewBundle { credit_bundle_id, offer }];
        let create = CreatePlan { merchant_id: self.merchant, plan_id, terms, bundles, now: self.machine };
        self.execute(&create).unwrap();
        self.plans.push(plan_id);
        self.bundles.push(credit_bundle_id);
    }

    pub(crate) fn subscribe(&mut self, customer: CustomerId, plan_id: PlanId) {
        let before = self.subscription(customer);
        let subscription_id = SubscriptionId::new(self.ulid());
        let start = StartSubscription {
            merchant_id: self.merchant,
            customer: CustomerRef::Id(customer),
            subscription_id,
            plan_id,
            auto_top_up_bundle_id: None,
            now: self.machine,
        };
        match self.execute(&start) {
            Ok(_) => assert!(before.is_none()),
            Err(Refusal::Plan(PlanRefusal::NotFound)) => {}
            Err(
                Refusal::Plan(PlanRefusal::NotFree)
                | Refusal::Subscription(SubscriptionRefusal::AlreadyActive),
            ) => {
                self.pay_for(customer, Purchase::Plan(plan_id, subscription_id));
            }
            Err(refusal) => panic!("{refusal:?}"),
        }
    }

    pub(crate) fn edit(&mut self, customer: CustomerId, edit: SubscriptionEdit) {
        let Some(subscription) = self.subscription(customer) else { return };
        let update = UpdateSubscription {
            merchant_id: self.merchant,
            subscription_id: subscription.subscriber.subscription_id,
            edit,
            now: self.machine,
        };
        match self.execute(&update) {
            Ok(())
            | Err(Refusal::Plan(
                PlanRefusal::NotFound | PlanRefusal::BundleNotFound | PlanRefusal::BundlePlanMismatch,
            )) => {}
            Err(refusal) => panic!("{refusal:?}"),
        }
    }

    /// Two schedulers do all due work, one after the other: the second finds nothing to do.
    pub(crate) fn schedule(&mut self) {
        let subscriptions = self.till.stored("subscription");
        for state in subscriptions {
            let State::Subscription(subscription) = state else {
                panic!("{state:?} under a subscription's key")
            };
            let subscription_id = subscription.subscriber.subscription_id;
            // The maximum number of days that pass in one test.
            for _ in 0..4_000 {
                let payment_id = PaymentId::new(self.ulid());
                let advance = AdvanceSubscription { subscription_id, payment_id, now: self.machine };
                match self.execute(&advance) {
                    Ok(Advanced::Done) => {}
                    Ok(Advanced::NothingDue | Advanced::PaymentRequested(_))
                    | Err(Refusal::Subscription(SubscriptionRefusal::NotFound)) => {
                        break;
                    }
                    Err(refusal) => panic!("{refusal:?}"),
                }
            }
            let payment_id = PaymentId::new(self.ulid());
            let again = AdvanceSubscription { subscription_id, payment_id, now: self.machine };
            assert!(matches!(
                self.execute(&again),
                Ok(Advanced::NothingDue) | Err(Refusal::Subscription(SubscriptionRefusal::NotFound))
            ));
        }
    }
}
