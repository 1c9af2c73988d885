//! `CompletePayment`: records the processor's result of a payment and its effect, in one append. A second completion is
//! refused because the payment has ended. Money that was taken is never lost: if its purpose is no longer possible, it
//! is added to the wallet's balance; if the customer was deleted, it is refunded before the payment ends.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::advance_subscription::{Next, unpaid};
use super::auto_recharge::PAUSE_AFTER_DECLINE;
use super::decision::{Command, DecideError, Decision};
use super::refusal::{CustomerRefusal, PaymentRefusal};
use super::start_subscription::Start;
use super::update_subscription::settings_after;
use crate::event::{
    BundlePurchased, CheckoutSessionCompleted, DeclineReason, Event, PaymentDeclined, PaymentMethodAdded,
    PaymentRequested, PaymentSucceeded, PaymentVoided, Purpose, Subscriber, SubscriptionUpgraded,
    WalletCredited,
};
use crate::ids::{CreditId, PaymentId, SubscriptionId};
use crate::plan::BillingCycle;
use crate::state::{OpenPayment, Phase, StateCache, Subscription};

/// The processor's result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Paid {
    /// The processor took the money. The value is the processor's id of the payment.
    Accepted(String),
    /// The processor declined the payment.
    Declined(DeclineReason),
    /// The payment's customer was deleted: the processor takes no money and has refunded any money taken; with its own
    /// id of the refund, if any.
    Voided(Option<String>),
}

/// Ends a payment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompletePayment {
    /// The payment.
    pub payment_id: PaymentId,
    /// The processor's result.
    pub paid: Paid,
    /// The current time, to the millisecond.
    pub now: DateTime<Utc>,
}

/// Adds the card that came with a payment to the wallet, unless the customer was deleted.
fn brought(states: &StateCache, payment: &PaymentRequested) -> Result<Option<Event>, DecideError> {
    let (Some(brought), Some(customer_id)) = (payment.brings.clone(), payment.customer_id) else {
        return Ok(None);
    };
    if states.customer(customer_id)?.is_none() {
        return Ok(None);
    }
    Ok(Some(Event::from(PaymentMethodAdded {
        payment_method_id: payment.payment_method_id,
        wallet_id: payment.wallet_id,
        customer_id: payment.customer_id,
        processor: brought.processor,
        token: brought.token,
        card: brought.card,
    })))
}

impl CompletePayment {
    fn accepted(
        &self,
        states: &StateCache,
        open: &OpenPayment,
        reference: &str,
        now: DateTime<Utc>,
    ) -> Result<Vec<Event>, DecideError> {
        let payment = &open.requested;
        let mut events: Vec<_> = brought(states, payment)?.into_iter().collect();
        events.push(Event::from(PaymentSucceeded {
            payment_id: self.payment_id,
            wallet_id: payment.wallet_id,
            customer_id: payment.customer_id,
            amount: payment.amount,
            reference: reference.to_owned(),
        }));
        match self.purchased(states, open, now)? {
            Some(purchased) => events.extend(purchased),
            None => events.push(self.credited(states, payment)?),
        }
        if let (Some(checkout_session_id), Some(customer_id)) =
            (payment.checkout_session_id, payment.customer_id)
        {
            let completed = CheckoutSessionCompleted { checkout_session_id, customer_id };
            events.push(Event::from(completed));
        }
        Ok(events)
    }

    /// The effect of the payment; `None` if it is no longer possible, or if the payment adds money to the balance.
    fn purchased(
        &self,
        states: &StateCache,
        open: &OpenPayment,
        now: DateTime<Utc>,
    ) -> Result<Option<Vec<Event>>, DecideError> {
        let payment = &open.requested;
        let Some(customer_id) = payment.customer_id else { return Ok(None) };
        let customer = states.customer(customer_id)?.ok_or(CustomerRefusal::NotFound)?;
        let subscription = |id: SubscriptionId| -> Result<Option<&Subscription>, DecideError> {
            Ok(states.subscription(id)?.filter(|found| found.subscriber.customer_id == customer_id))
        };
        match &payment.purpose {
            Purpose::Fund | Purpose::Autopay => Ok(None),
            Purpose::Bundle { credit_bundle_id, credit_amount }
            | Purpose::AutoTopUp { credit_bundle_id, credit_amount } => {
                Ok(Some(vec![Event::from(BundlePurchased {
                    payment_id: self.payment_id,
                    customer_id,
                    wallet_id: payment.wallet_id,
                    credit_bundle_id: *credit_bundle_id,
                    cost: payment.amount,
                    granted: *credit_amount,
                })]))
            }
            Purpose::Subscribe { subscription_id, plan_id, terms } => {
                if customer.subscription_id != Some(*subscription_id) {
                    return Ok(None);
                }
                let start = Start {
                    subscriber: Subscriber {
                        subscription_id: *subscription_id,
                        customer_id,
                        wallet_id: payment.wallet_id,
                    },
                    plan_id: *plan_id,
                    terms,
                    payment: Some((self.payment_id, payment.payment_method_id)),
                    auto_top_up_bundle_id: None,
                };
                Ok(Some(vec![start.event(now)]))
            }
            Purpose::Upgrade { subscription_id, plan_id, terms } => {
                let active = subscription(*subscription_id)?;
                let Some(active) = active.filter(|active| terms.costs_more_than(&active.terms)) else {
                    return Ok(None);
                };
                let revision = active.revision + 1;
                let paid_by = Some(payment.payment_method_id);
                let cycle = BillingCycle::of(terms.billing_interval, now, 0);
                let pending = active.outlasting_upgrade(self.payment_id, *plan_id, cycle.end);
                let settings = settings_after(active, revision + 1, (*plan_id, terms), pending, paid_by);
                let upgraded = Event::from(Box::new(SubscriptionUpgraded {
                    subscriber: active.subscriber,
                    revision,
                    from_plan_id: active.plan_id,
                    plan_id: *plan_id,
                    terms: (**terms).clone(),
                    cycle,
                    granted: terms.included_credit,
                    payment_id: Some(self.payment_id),
                    payment_method_id: paid_by,
                }));
                Ok(Some([upgraded].into_iter().chain(settings).collect()))
            }
            Purpose::Renewal { subscription_id, plan_id, terms, attempt, .. } => {
                let renewing = subscription(*subscription_id)?.filter(|found| self.pays_for(found));
                let Some(found) = renewing else { return Ok(None) };
                let next = Next::on(*plan_id, (**terms).clone(), found, *attempt, (open.requested_at, now));
                Ok(Some(next.renewed(states, found, Some(self.payment_id))?))
            }
        }
    }

    /// Returns true if the subscription awaits this payment.
    fn pays_for(&self, subscription: &Subscription) -> bool {
        match subscription.phase {
            Phase::Dunning { payment_id, .. } => payment_id == Some(self.payment_id),
            Phase::Running => false,
        }
    }

    /// Adds the money to the balance.
    fn credited(&self, states: &StateCache, payment: &PaymentRequested) -> Result<Event, DecideError> {
        let wallet = states.wallet(payment.wallet_id)?.expect("a payment has a wallet");
        let reason = match &payment.purpose {
            Purpose::Fund => "funding",
            Purpose::Autopay => "autopay",
            Purpose::Bundle { .. } | Purpose::AutoTopUp { .. } => {
                "payment for a credit bundle that is no longer available"
            }
            Purpose::Subscribe { .. } | Purpose::Upgrade { .. } | Purpose::Renewal { .. } => {
                "payment for a subscription that is no longer available"
            }
        };
        Ok(Event::from(WalletCredited {
            credit_id: CreditId::new(self.payment_id.ulid()),
            wallet_id: payment.wallet_id,
            customer_id: payment.customer_id,
            amount: payment.amount,
            reason: reason.to_owned(),
            balance_after: wallet.balance.plus(payment.amount)?,
        }))
    }

    /// Voids the payment: its customer was deleted and the money refunded.
    fn voided(&self, payment: &PaymentRequested, refund: Option<String>) -> Event {
        Event::from(PaymentVoided {
            payment_id: self.payment_id,
            wallet_id: payment.wallet_id,
            customer_id: payment.customer_id,
            amount: payment.amount,
            refund,
            checkout_session_id: payment.checkout_session_id,
        })
    }

    fn declined(
        &self,
        states: &StateCache,
        payment: &PaymentRequested,
        reason: DeclineReason,
        now: DateTime<Utc>,
    ) -> Result<Vec<Event>, DecideError> {
        let (not_again_before, not_started, renewal) = match &payment.purpose {
            Purpose::Fund | Purpose::Bundle { .. } | Purpose::Upgrade { .. } => (None, None, None),
            Purpose::Autopay | Purpose::AutoTopUp { .. } => {
                let wallet = states.wallet(payment.wallet_id)?.expect("a payment has a wallet");
                // A card that was added meanwhile was not declined.
                let is_present = wallet.payment_method_id == Some(payment.payment_method_id);
                (now.checked_add_signed(PAUSE_AFTER_DECLINE).filter(|_| is_present), None, None)
            }
            Purpose::Subscribe { subscription_id, .. } => (None, Some(*subscription_id), None),
            Purpose::Renewal { subscription_id, attempt, .. } => {
                (None, None, Some((*subscription_id, *attempt)))
            }
        };
        let mut events = vec![Event::from(PaymentDeclined {
            payment_id: self.payment_id,
            wallet_id: payment.wallet_id,
            customer_id: payment.customer_id,
            reason,
            not_again_before,
            not_started,
            checkout_session_id: payment.checkout_session_id,
        })];
        if let Some((subscription_id, attempt)) = renewal
            && let Some(subscription) = states.subscription(subscription_id)?
            && self.pays_for(subscription)
        {
            events.extend(unpaid(states, subscription, attempt, Some(self.payment_id), now)?);
        }
        Ok(events)
    }
}

/// Refuses money taken from a deleted customer with [`CustomerRefusal::NotFound`]: it must be refunded.
impl Command for CompletePayment {
    type Outcome = Paid;

    fn decide(&self, states: &StateCache) -> Result<Decision<Paid>, DecideError> {
        let open = states.payment(self.payment_id)?.ok_or(PaymentRefusal::NotOpen)?;
        let OpenPayment { merchant_id, requested, .. } = open;
        let now = states.now(*merchant_id, self.now)?;
        let events = match &self.paid {
            Paid::Accepted(reference) => self.accepted(states, open, reference, now)?,
            Paid::Declined(reason) => self.declined(states, requested, *reason, now)?,
            Paid::Voided(refund) => vec![self.voided(requested, refund.clone())],
        };
        Ok(Decision::append(*merchant_id, self.now, events, self.paid.clone()))
    }
}
