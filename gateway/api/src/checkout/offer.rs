//! The offer of a checkout session: the customer if known, their saved card, and the product with its price.

use farthing_core::command::{Offered, OfferedTopUp};
use farthing_core::event::{Card, CheckoutMode, CheckoutSessionCreated};
use farthing_core::ids::{CreditBundleId, CustomerId, MerchantId, PaymentMethodId, PlanId};
use farthing_core::money::Amount;
use farthing_core::plan::{BillingInterval, PlanTerms};
use farthing_core::state::{State, StateKey, Subscription};

use crate::app::App;
use crate::error::ApiError;

/// The offer of an open session.
pub(super) struct Offer {
    /// The customer, if it exists already.
    pub(super) customer: Option<KnownCustomer>,
    /// Whether the form asks for the customer's details.
    pub(super) asks_details: bool,
    /// The purpose of the checkout.
    pub(super) target: CheckoutTarget,
    /// Whether the instance can store a card.
    pub(super) cards: Cards,
}

/// Whether the instance can store a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cards {
    /// It has a payment processor.
    Accepted,
    /// It has none.
    Unavailable,
}

/// A customer that exists already.
pub(super) struct KnownCustomer {
    pub(super) customer_id: CustomerId,
    /// The saved card of its wallet.
    pub(super) card: Option<SavedCard>,
}

/// The saved card of a wallet, as far as it may be shown.
pub(super) struct SavedCard {
    pub(super) payment_method_id: PaymentMethodId,
    pub(super) card: Card,
}

/// The purpose of a checkout.
pub(super) enum CheckoutTarget {
    /// Enters the customer's details, and a card if they like.
    Details,
    /// Adds money to the wallet.
    Topup,
    /// Subscribes to a plan.
    Plan {
        plan_id: PlanId,
        name: String,
        price: Amount,
        credit: Amount,
        interval: BillingInterval,
        starts: PlanStart,
        /// What the plan buys automatically when the credit is used up.
        auto_top_up: Option<OfferedTopUp>,
    },
    /// Buys a credit bundle.
    Bundle { credit_bundle_id: CreditBundleId, name: String, price: Amount, credit: Amount },
}

/// The outcome of looking up a session's offer.
pub(super) enum OfferLookup {
    /// The offer is available.
    Offer(Box<Offer>),
    /// The plan, credit bundle or customer no longer exists.
    Unavailable,
    /// The customer is subscribed to this plan already.
    AlreadySubscribed,
    /// It costs money, and the instance has no payment processor.
    PaymentsUnavailable,
}

/// When a plan starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlanStart {
    /// With its payment, or immediately if it is free.
    Immediately,
    /// The same, replacing the current, cheaper plan.
    Replacing,
    /// When the cycle of the current, more expensive plan ends. Nothing is paid before.
    AfterCurrentCycle,
}

impl Offer {
    /// The saved card that may pay; `None` if nothing is paid now or the customer has none.
    pub(super) fn saved_card(&self) -> Option<&SavedCard> {
        let saved = self.customer.as_ref().and_then(|customer| customer.card.as_ref());
        saved.filter(|_| self.target.is_paid())
    }
}

impl CheckoutTarget {
    /// The fixed price to pay now; `None` if it is free or the customer chooses the amount.
    pub(super) fn price(&self) -> Option<Amount> {
        match self {
            Self::Details | Self::Topup | Self::Plan { starts: PlanStart::AfterCurrentCycle, .. } => None,
            Self::Plan { price, .. } | Self::Bundle { price, .. } => {
                Some(*price).filter(|price| !price.is_zero())
            }
        }
    }

    /// The fixed price and credit, and the automatic purchase, that the page shows.
    pub(super) fn offered(&self) -> Option<Offered> {
        match self {
            Self::Details | Self::Topup => None,
            Self::Plan { price, credit, auto_top_up, .. } => {
                Some(Offered { price: *price, credit: *credit, auto_top_up: *auto_top_up })
            }
            Self::Bundle { price, credit, .. } => {
                Some(Offered { price: *price, credit: *credit, auto_top_up: None })
            }
        }
    }

    /// Whether the checkout leads to a payment, now or later.
    fn costs_money(&self) -> bool {
        match self {
            Self::Details => false,
            Self::Topup => true,
            Self::Plan { price, .. } | Self::Bundle { price, .. } => !price.is_zero(),
        }
    }

    /// Whether the checkout takes a payment.
    pub(super) fn is_paid(&self) -> bool {
        match self {
            Self::Topup => true,
            Self::Details | Self::Plan { .. } | Self::Bundle { .. } => self.price().is_some(),
        }
    }
}

/// Looks up the offer of a session in `partition`.
pub(super) async fn find(
    app: &App,
    merchant_id: MerchantId,
    created: &CheckoutSessionCreated,
    customer_id: Option<CustomerId>,
) -> Result<OfferLookup, ApiError> {
    let mut subscription = None;
    let customer = match customer_id {
        None => None,
        Some(customer_id) => {
            let Some(State::Customer(customer)) =
                app.state(merchant_id, StateKey::Customer(customer_id)).await?
            else {
                return Ok(OfferLookup::Unavailable);
            };
            subscription = customer.subscription_id;
            let card = match app.state(merchant_id, StateKey::Wallet(customer.wallet_id)).await? {
                Some(State::Wallet(wallet)) => match wallet.payment_method_id {
                    Some(id) => saved_card(app.state(merchant_id, StateKey::PaymentMethod(id)).await?),
                    None => None,
                },
                Some(_) | None => None,
            };
            Some(KnownCustomer { customer_id, card })
        }
    };
    let current = match subscription {
        Some(id) => match app.state(merchant_id, StateKey::Subscription(id)).await? {
            Some(State::Subscription(subscription)) => Some(subscription),
            Some(_) | None => None,
        },
        None => None,
    };
    let mode = created.checkout_mode;
    let plan_id = created.plan_id;
    let has_it = plan_id.is_some() && plan_id == current.as_ref().map(|current| current.plan_id);
    let target = match mode {
        CheckoutMode::Onboarding if plan_id.is_none() || has_it => Some(CheckoutTarget::Details),
        CheckoutMode::Subscription if has_it => return Ok(OfferLookup::AlreadySubscribed),
        CheckoutMode::Onboarding | CheckoutMode::Subscription => {
            plan(app, merchant_id, created, current.as_deref()).await?
        }
        CheckoutMode::Topup => Some(CheckoutTarget::Topup),
        CheckoutMode::CreditBundle => bundle(app, merchant_id, created).await?,
    };
    let asks_details = mode == CheckoutMode::Onboarding || customer.is_none();
    let cards = if app.payments.processor().is_ok() { Cards::Accepted } else { Cards::Unavailable };
    Ok(match target {
        None => OfferLookup::Unavailable,
        Some(target) if target.costs_money() && cards == Cards::Unavailable => {
            OfferLookup::PaymentsUnavailable
        }
        Some(target) => OfferLookup::Offer(Box::new(Offer { customer, asks_details, target, cards })),
    })
}

fn saved_card(method: Option<State>) -> Option<SavedCard> {
    match method {
        Some(State::PaymentMethod(method)) => {
            let payment_method_id = method.added.payment_method_id;
            Some(SavedCard { payment_method_id, card: method.added.card })
        }
        Some(_) | None => None,
    }
}

async fn plan(
    app: &App,
    merchant_id: MerchantId,
    created: &CheckoutSessionCreated,
    current: Option<&Subscription>,
) -> Result<Option<CheckoutTarget>, ApiError> {
    let Some(plan_id) = created.plan_id else { return Ok(None) };
    let Some(State::Plan(plan)) = app.state(merchant_id, StateKey::Plan(plan_id)).await? else {
        return Ok(None);
    };
    let starts = match current {
        None => PlanStart::Immediately,
        Some(current) if plan.terms.costs_more_than(&current.terms) => PlanStart::Replacing,
        Some(_) => PlanStart::AfterCurrentCycle,
    };
    let auto_top_up = match current {
        None => plan.terms.default_auto_top_up_bundle_id,
        Some(current) => current.auto_top_up_on(&plan.terms),
    };
    let auto_top_up = match auto_top_up {
        Some(id) => match app.state(merchant_id, StateKey::CreditBundle(id)).await? {
            Some(State::CreditBundle(bundle)) => OfferedTopUp::of(&bundle.offer),
            Some(_) | None => None,
        },
        None => None,
    };
    let PlanTerms { name, period_amount, included_credit, billing_interval, .. } = plan.terms;
    Ok(Some(CheckoutTarget::Plan {
        plan_id,
        name,
        price: period_amount,
        credit: included_credit,
        interval: billing_interval,
        starts,
        auto_top_up,
    }))
}

async fn bundle(
    app: &App,
    merchant_id: MerchantId,
    created: &CheckoutSessionCreated,
) -> Result<Option<CheckoutTarget>, ApiError> {
    let Some(credit_bundle_id) = created.credit_bundle_id else { return Ok(None) };
    let state = app.state(merchant_id, StateKey::CreditBundle(credit_bundle_id)).await?;
    let Some(State::CreditBundle(bundle)) = state else { return Ok(None) };
    let offer = bundle.offer;
    Ok(Some(CheckoutTarget::Bundle {
        credit_bundle_id,
        name: offer.name,
        price: offer.cost,
        credit: offer.credit_amount,
    }))
}
