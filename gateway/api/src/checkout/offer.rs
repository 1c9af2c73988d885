//! What a session offers to whom: the customer as far as it is known, the card it may pay with, and the price.

use farthing_core::command::Offered;
use farthing_core::event::{Card, CheckoutMode, CheckoutSessionCreated};
use farthing_core::ids::{CreditBundleId, CustomerId, PlanId};
use farthing_core::money::Amount;
use farthing_core::plan::{BillingInterval, PlanTerms};
use farthing_core::state::{State, StateKey};

use crate::app::App;
use crate::error::ApiError;

/// What there is to be had, and what for.
pub(super) struct Offer {
    /// The customer, if it is there already.
    pub(super) customer: Option<Known>,
    /// Does the form ask who the customer is?
    pub(super) asks_person: bool,
    /// What is asked for.
    pub(super) asked: Asked,
}

/// A customer that is there.
pub(super) struct Known {
    pub(super) customer_id: CustomerId,
    /// What may be shown of the card that its wallet pays with.
    pub(super) card: Option<Card>,
}

/// What the page is for.
pub(super) enum Asked {
    /// Who the customer is; a card, if they like.
    Person,
    /// Money into the wallet.
    Money,
    /// A subscription.
    Plan {
        plan_id: PlanId,
        name: String,
        price: Amount,
        credit: Amount,
        interval: BillingInterval,
        begins: Begins,
    },
    /// A credit bundle.
    Bundle { credit_bundle_id: CreditBundleId, name: String, price: Amount, credit: Amount },
}

/// What becomes of a session's offer.
pub(super) enum Found {
    /// It is to be had.
    Offer(Offer),
    /// It is to be had no more.
    Gone,
    /// The customer is on this plan already.
    HasIt,
}

/// When a plan begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begins {
    /// With its payment; at once where it is free.
    Now,
    /// The same, in place of the present, cheaper plan.
    Instead,
    /// With the end of the present, dearer plan's cycle: nothing is paid before.
    AfterThisCycle,
}

impl Asked {
    /// What is to be paid, where that is fixed.
    pub(super) fn price(&self) -> Option<Amount> {
        match self {
            Self::Person | Self::Money | Self::Plan { begins: Begins::AfterThisCycle, .. } => None,
            Self::Plan { price, .. } | Self::Bundle { price, .. } => {
                Some(*price).filter(|price| !price.is_zero())
            }
        }
    }

    /// What the page tells of it, where that is fixed.
    pub(super) fn offered(&self) -> Option<Offered> {
        match self {
            Self::Person | Self::Money => None,
            Self::Plan { price, credit, .. } | Self::Bundle { price, credit, .. } => {
                Some(Offered { price: *price, credit: *credit })
            }
        }
    }

    /// Is there something to pay?
    pub(super) fn is_paid(&self) -> bool {
        match self {
            Self::Money => true,
            Self::Person | Self::Plan { .. } | Self::Bundle { .. } => self.price().is_some(),
        }
    }
}

/// What the session offers.
pub(super) async fn find(
    app: &App,
    created: &CheckoutSessionCreated,
    customer_id: Option<CustomerId>,
) -> Result<Found, ApiError> {
    let mut subscription = None;
    let customer = match customer_id {
        None => None,
        Some(customer_id) => {
            let Some(State::Customer(customer)) = app.state(StateKey::Customer(customer_id)).await? else {
                return Ok(Found::Gone);
            };
            subscription = customer.subscription_id;
            let card = match app.state(StateKey::Wallet(customer.wallet_id)).await? {
                Some(State::Wallet(wallet)) => match wallet.payment_method_id {
                    Some(id) => card(app.state(StateKey::PaymentMethod(id)).await?),
                    None => None,
                },
                Some(_) | None => None,
            };
            Some(Known { customer_id, card })
        }
    };
    let current = match subscription {
        Some(id) => match app.state(StateKey::Subscription(id)).await? {
            Some(State::Subscription(subscription)) => Some((subscription.plan_id, subscription.terms)),
            Some(_) | None => None,
        },
        None => None,
    };
    let mode = created.checkout_mode;
    let plan_id = created.plan_id;
    let has_it = plan_id.is_some() && plan_id == current.as_ref().map(|(plan_id, _)| *plan_id);
    let terms = current.as_ref().map(|(_, terms)| terms);
    let asked = match mode {
        CheckoutMode::Onboarding if plan_id.is_none() || has_it => Some(Asked::Person),
        CheckoutMode::Subscription if has_it => return Ok(Found::HasIt),
        CheckoutMode::Onboarding | CheckoutMode::Subscription => plan(app, created, terms).await?,
        CheckoutMode::Topup => Some(Asked::Money),
        CheckoutMode::CreditBundle => bundle(app, created).await?,
    };
    let asks_person = mode == CheckoutMode::Onboarding || customer.is_none();
    Ok(asked.map_or(Found::Gone, |asked| Found::Offer(Offer { customer, asks_person, asked })))
}

fn card(method: Option<State>) -> Option<Card> {
    match method {
        Some(State::PaymentMethod(method)) => Some(method.added.card),
        Some(_) | None => None,
    }
}

async fn plan(
    app: &App,
    created: &CheckoutSessionCreated,
    current: Option<&PlanTerms>,
) -> Result<Option<Asked>, ApiError> {
    let Some(plan_id) = created.plan_id else { return Ok(None) };
    let Some(State::Plan(plan)) = app.state(StateKey::Plan(plan_id)).await? else { return Ok(None) };
    let begins = match current {
        None => Begins::Now,
        Some(current) if plan.terms.costs_more_than(current) => Begins::Instead,
        Some(_) => Begins::AfterThisCycle,
    };
    let PlanTerms { name, period_amount, included_credit, billing_interval, .. } = plan.terms;
    Ok(Some(Asked::Plan {
        plan_id,
        name,
        price: period_amount,
        credit: included_credit,
        interval: billing_interval,
        begins,
    }))
}

async fn bundle(app: &App, created: &CheckoutSessionCreated) -> Result<Option<Asked>, ApiError> {
    let Some(credit_bundle_id) = created.credit_bundle_id else { return Ok(None) };
    let state = app.state(StateKey::CreditBundle(credit_bundle_id)).await?;
    let Some(State::CreditBundle(bundle)) = state else { return Ok(None) };
    let offer = bundle.offer;
    Ok(Some(Asked::Bundle {
        credit_bundle_id,
        name: offer.name,
        price: offer.cost,
        credit: offer.credit_amount,
    }))
}
