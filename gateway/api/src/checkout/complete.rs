//! What a form that is well filled in does. Invariant: sent twice, it has one effect: the customer of a session has the
//! session's own id, and what follows is one append that finds the session open or not.

use chrono::{DateTime, Utc};
use farthing_core::command::{
    CheckoutRefusal, CompleteCheckoutSession, CreateCheckoutCustomer, CreateCustomer, CustomerMade,
    CustomerRefusal, NewMethod, Paid, PayCheckoutSession, Payee, PaymentRefusal, PersonalData, PlanRefusal,
    Purchase, Refusal, RequestPayment, SubscriptionRefusal,
};
use farthing_core::event::DeclineReason;
use farthing_core::ids::{
    CheckoutSessionId, CustomerId, PaymentId, PaymentMethodId, SubscriptionId, WalletId,
};
use farthing_log::{appender, checkout_attempts};

use super::form::{Means, Problem, Submission};
use super::offer::{Asked, Offer};
use super::session::Session;
use crate::app::App;
use crate::db::within;
use crate::error::ApiError;
use farthing_worker::payments::{CardInput, CardRefused};

/// Why a session is not completed.
pub(super) enum Stopped {
    /// Something that was typed will not do.
    Wrong(Problem),
    /// It is not as it was when the form was read: the page tells how it stands.
    Overtaken,
    /// We could not.
    Failed(ApiError),
}

impl From<ApiError> for Stopped {
    fn from(error: ApiError) -> Self {
        Self::Failed(error)
    }
}

impl From<appender::Error> for Stopped {
    fn from(error: appender::Error) -> Self {
        match error {
            appender::Error::Refused(
                Refusal::Checkout(CheckoutRefusal::SessionNotFound | CheckoutRefusal::SessionExpired)
                | Refusal::Payment(PaymentRefusal::InProgress)
                | Refusal::Customer(CustomerRefusal::NotFound)
                | Refusal::Plan(PlanRefusal::NotFound | PlanRefusal::BundleNotFound),
            ) => Self::Overtaken,
            appender::Error::Refused(Refusal::Subscription(SubscriptionRefusal::AlreadyActive)) => {
                Self::Wrong(told("There is a subscription to this plan already."))
            }
            appender::Error::Refused(
                Refusal::Subscription(SubscriptionRefusal::NotFound)
                | Refusal::Plan(PlanRefusal::BundlePlanMismatch),
            ) => Self::Wrong(told("This credit is for subscribers of another plan.")),
            appender::Error::Refused(Refusal::Payment(PaymentRefusal::OfferChanged)) => {
                Self::Wrong(Problem::changed())
            }
            appender::Error::Refused(Refusal::Amount(_)) => {
                Self::Wrong(told("There is no room for so much money. Nothing was charged."))
            }
            other => Self::Failed(other.into()),
        }
    }
}

/// A sentence about the whole form.
fn told(message: &str) -> Problem {
    Problem { field: "pay", message: message.to_owned() }
}

/// Completes the session, or has its payment made.
pub(super) async fn complete(
    app: &App,
    session: &Session,
    offer: &Offer,
    submission: Submission,
) -> Result<(), Stopped> {
    let Submission { person, amount, means } = submission;
    let goes_to_the_processor = !matches!(means, Means::None);
    if goes_to_the_processor && !count_attempt(app, session.id).await? {
        return Err(Stopped::Overtaken);
    }
    let now = app.now();
    let method = match means {
        Means::None | Means::Known => None,
        Means::Card(card) => Some(stored(app, card, now).await?),
    };
    let (customer_id, contact) = customer(app, session, offer, person, now).await?;
    let purchase = match &offer.asked {
        Asked::Plan { plan_id, .. } => {
            Some(Purchase::Plan(*plan_id, SubscriptionId::new(app.mint.next(now))))
        }
        Asked::Bundle { credit_bundle_id, .. } => Some(Purchase::Bundle(*credit_bundle_id)),
        Asked::Money => amount.map(Purchase::Fund),
        Asked::Person => None,
    };
    let Some(purchase) = purchase.filter(|_| offer.asked.is_paid()) else {
        let command = CompleteCheckoutSession {
            merchant_id: session.merchant_id,
            checkout_session_id: session.id,
            customer_id,
            contact,
            method,
            subscription_id: SubscriptionId::new(app.mint.next(now)),
            now,
        };
        return Ok(app.ledger.submit(command).await?);
    };
    let payment = RequestPayment {
        merchant_id: session.merchant_id,
        payment_id: PaymentId::new(app.mint.next(now)),
        payee: Payee::Customer(customer_id),
        payment_method_id: None,
        purchase,
        offered: offer.asked.offered(),
        checkout_session_id: Some(session.id),
        now,
    };
    let contact = contact.map(|contact| (customer_id, contact));
    app.ledger.submit(PayCheckoutSession { payment, contact, method }).await?;
    match app.payments.carry_out(payment.payment_id).await.map_err(ApiError::from)? {
        Paid::Accepted(_) => Ok(()),
        Paid::Declined(reason) => Err(Stopped::Wrong(declined(reason))),
        Paid::TakenBack(_) => Err(Stopped::Overtaken),
    }
}

/// Counts an attempt of the session at the payment processor. `false` means that none is left.
async fn count_attempt(app: &App, id: CheckoutSessionId) -> Result<bool, ApiError> {
    let connection = app.connection().await?;
    within(checkout_attempts::count(&connection, id)).await
}

/// The card in the processor's keeping.
async fn stored(app: &App, card: CardInput, now: DateTime<Utc>) -> Result<NewMethod, Stopped> {
    let stored = app.payments.processor().store(card).await;
    let stored =
        stored.map_err(|why| ApiError::ledger_unavailable(format!("the payment processor: {why}")))?;
    let stored = stored.map_err(|refused| {
        let field = match refused {
            CardRefused::Number => "card_number",
            CardRefused::Expiry => "card_expiry",
            CardRefused::Cvc => "card_cvc",
        };
        Stopped::Wrong(Problem::new(field, &refused.to_string()))
    })?;
    Ok(NewMethod {
        payment_method_id: PaymentMethodId::new(app.mint.next(now)),
        processor: app.payments.processor().name().to_owned(),
        token: stored.token,
        card: stored.card,
    })
}

/// The customer, who is there from now on, and what of the contact is still to be written.
async fn customer(
    app: &App,
    session: &Session,
    offer: &Offer,
    person: Option<PersonalData>,
    now: DateTime<Utc>,
) -> Result<(CustomerId, Option<PersonalData>), Stopped> {
    if let Some(known) = &offer.customer {
        return Ok((known.customer_id, person));
    }
    let create = CreateCustomer {
        merchant_id: session.merchant_id,
        customer_id: CustomerId::new(session.id.ulid()),
        wallet_id: WalletId::new(app.mint.next(now)),
        reference_id: session.created.reference_id.clone(),
        metadata: std::collections::BTreeMap::new(),
        personal: person.clone().unwrap_or_default(),
        now,
    };
    let command = CreateCheckoutCustomer { checkout_session_id: session.id, create };
    match app.ledger.submit(command).await? {
        CustomerMade::Created(id) => Ok((id, None)),
        CustomerMade::Existing(id) => Ok((id, person)),
    }
}

fn declined(reason: DeclineReason) -> Problem {
    let message = match reason {
        DeclineReason::CardDeclined => "The card was declined. No money was taken; please use another card.",
        DeclineReason::InsufficientFunds => {
            "The card was declined: it does not cover the amount. No money was taken."
        }
        DeclineReason::ExpiredCard => "The card has expired. No money was taken; please use another card.",
        DeclineReason::MethodRemoved => "The card is not known any more; please use another card.",
    };
    Problem { field: "card_number", message: message.to_owned() }
}
