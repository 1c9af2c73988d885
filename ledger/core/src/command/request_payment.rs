//! `RequestPayment`: requests a payment: for money in a wallet, a bundle, a subscription or an upgrade. Its effect
//! happens when the payment succeeds (completion.md sections 7 and 8). A customer has at most one open
//! payment of an upgrade.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::complete_checkout_session::open_session;
use super::decision::{Command, DecideError, Decision};
use super::payee::Payee;
use super::refusal::{PaymentRefusal, PlanRefusal, SubscriptionRefusal, WalletRefusal};
use super::start_subscription::check_bundle;
use super::update_subscription::find;
use crate::event::{BundleOffer, CardBrought, Event, PaymentRequested, Purpose};
use crate::ids::{
    CheckoutSessionId, CreditBundleId, MerchantId, PaymentId, PaymentMethodId, PlanId, SubscriptionId,
};
use crate::money::Amount;
use crate::plan::PlanTerms;
use crate::state::{StateCache, Subscription};

/// The purchase to pay for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purchase {
    /// Adds this amount to the balance.
    Fund(Amount),
    /// Buys a bundle; it must belong to the plan of the customer's subscription.
    Bundle(CreditBundleId),
    /// Starts a subscription under this new id, or upgrades the customer's subscription to a more expensive plan.
    Plan(PlanId, SubscriptionId),
}

/// The price and credit of a purchase as shown to the payer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offered {
    /// The price.
    pub price: Amount,
    /// The credit that it grants.
    pub credit: Amount,
    /// The bundle that a plan buys automatically, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_top_up: Option<OfferedTopUp>,
}

/// The price and credit of the bundle that is bought automatically when the credit is used up, as shown to the payer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfferedTopUp {
    /// The price.
    pub price: Amount,
    /// The credit that it grants.
    pub credit: Amount,
}

impl OfferedTopUp {
    /// The offer of this bundle; none if it is free, since a free bundle is not bought automatically.
    pub fn of(bundle: &BundleOffer) -> Option<Self> {
        let offered = Self { price: bundle.cost, credit: bundle.credit_amount };
        bundle.cost.is_positive().then_some(offered)
    }

    /// What a plan with `terms` buys automatically for a new subscriber, or for one that moves to it from `current`.
    pub(super) fn on(
        states: &StateCache,
        terms: &PlanTerms,
        current: Option<&Subscription>,
    ) -> Result<Option<Self>, DecideError> {
        let id = match current {
            Some(current) => current.auto_top_up_on(terms),
            None => terms.default_auto_top_up_bundle_id,
        };
        let Some(id) = id else { return Ok(None) };
        Ok(states.credit_bundle(id)?.and_then(|bundle| Self::of(&bundle.offer)))
    }
}

/// Requests a payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestPayment {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// A new id; also the idempotency key at the processor.
    pub payment_id: PaymentId,
    /// The owner of the wallet.
    pub payee: Payee,
    /// The payment method; none to use the wallet's.
    pub payment_method_id: Option<PaymentMethodId>,
    /// The purchase.
    pub purchase: Purchase,
    /// The offer as shown to the payer. The command is refused if it has changed.
    pub offered: Option<Offered>,
    /// The checkout session that it completes.
    pub checkout_session_id: Option<CheckoutSessionId>,
    /// The current time, to the millisecond.
    pub now: DateTime<Utc>,
}

impl RequestPayment {
    fn price(
        &self,
        states: &StateCache,
        subscription: Option<SubscriptionId>,
    ) -> Result<(Amount, Purpose), DecideError> {
        match self.purchase {
            Purchase::Fund(amount) => Ok((amount, Purpose::Fund)),
            Purchase::Bundle(id) => {
                let bundle = states.credit_bundle(id)?.filter(|found| found.merchant_id == self.merchant_id);
                let bundle = bundle.ok_or(PlanRefusal::BundleNotFound)?;
                let subscription = subscription.ok_or(SubscriptionRefusal::NotFound)?;
                let subscription = find(states, self.merchant_id, subscription)?;
                check_bundle(states, self.merchant_id, subscription.plan_id, Some(id))?;
                let credit_amount = bundle.offer.credit_amount;
                Ok((bundle.offer.cost, Purpose::Bundle { credit_bundle_id: id, credit_amount }))
            }
            Purchase::Plan(plan_id, fresh) => {
                let plan = states.plan(plan_id)?.filter(|plan| plan.merchant_id == self.merchant_id);
                let terms = &plan.ok_or(PlanRefusal::NotFound)?.terms;
                let purpose = match subscription {
                    None => {
                        let terms = Box::new(terms.clone());
                        Purpose::Subscribe { subscription_id: fresh, plan_id, terms }
                    }
                    Some(subscription_id) => {
                        let active = states.subscription(subscription_id)?;
                        // A subscription that awaits its first payment does not exist yet.
                        let active = active.ok_or(SubscriptionRefusal::AlreadyActive)?;
                        if active.plan_id == plan_id || !terms.costs_more_than(&active.terms) {
                            return Err(SubscriptionRefusal::AlreadyActive.into());
                        }
                        Purpose::Upgrade { subscription_id, plan_id, terms: Box::new(terms.clone()) }
                    }
                };
                Ok((terms.period_amount, purpose))
            }
        }
    }
}

impl RequestPayment {
    /// Decides with a card that the wallet does not have yet, under `payment_method_id`.
    pub(super) fn decide_with(
        &self,
        states: &StateCache,
        brings: Option<CardBrought>,
    ) -> Result<Decision<()>, DecideError> {
        if states.payment(self.payment_id)?.is_some() {
            return Err(PaymentRefusal::InProgress.into());
        }
        let (wallet_id, customer_id) = self.payee.wallet(states, self.merchant_id)?;
        let customer = customer_id.map(|id| states.customer(id)).transpose()?.flatten();
        let subscription = customer.and_then(|customer| customer.subscription_id);
        let wallet = states.wallet(wallet_id)?.expect("a customer or merchant has a wallet");
        let payment_method_id =
            self.payment_method_id.or(wallet.payment_method_id).ok_or(PaymentRefusal::NoMethod)?;
        if brings.is_none() {
            let method = states.payment_method(payment_method_id)?;
            let method = method.filter(|method| method.added.wallet_id == wallet_id);
            method.ok_or(PaymentRefusal::MethodNotFound)?;
        }
        if let Some(id) = self.checkout_session_id {
            open_session(states, self.merchant_id, id, states.now(self.merchant_id, self.now)?)?;
        }
        let (amount, purpose) = self.price(states, subscription)?;
        if !amount.is_positive() {
            return Err(WalletRefusal::AmountNotPositive.into());
        }
        if matches!(purpose, Purpose::Bundle { .. }) && !wallet.takes_bundle() {
            return Err(WalletRefusal::TooManyBundles.into());
        }
        let pays_for_a_plan = matches!(purpose, Purpose::Upgrade { .. } | Purpose::Subscribe { .. });
        if pays_for_a_plan && wallet.upgrade_payment_id.is_some() {
            return Err(PaymentRefusal::InProgress.into());
        }
        let credit = purpose.credit();
        if let Some(offered) = self.offered {
            let auto_top_up = match &purpose {
                Purpose::Subscribe { terms, .. } => OfferedTopUp::on(states, terms, None)?,
                Purpose::Upgrade { subscription_id, terms, .. } => {
                    OfferedTopUp::on(states, terms, states.subscription(*subscription_id)?)?
                }
                Purpose::Fund
                | Purpose::Autopay
                | Purpose::Bundle { .. }
                | Purpose::AutoTopUp { .. }
                | Purpose::Renewal { .. } => None,
            };
            if offered != (Offered { price: amount, credit, auto_top_up }) {
                return Err(PaymentRefusal::OfferChanged.into());
            }
        }
        wallet.takes(amount.max(credit))?;
        let event = Event::from(Box::new(PaymentRequested {
            payment_id: self.payment_id,
            wallet_id,
            customer_id,
            payment_method_id,
            amount,
            purpose,
            checkout_session_id: self.checkout_session_id,
            brings,
        }));
        Ok(Decision::append(self.merchant_id, self.now, vec![event], ()))
    }
}

impl Command for RequestPayment {
    type Outcome = ();

    fn decide(&self, states: &StateCache) -> Result<Decision<()>, DecideError> {
        self.decide_with(states, None)
    }
}
