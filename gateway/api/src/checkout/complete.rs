//! Completes a session with a valid form. Invariant: a form sent twice has one effect. The session's customer and
//! its wallet have the session's ULID, and everything after it is one append that requires the session to be open.

use chrono::{DateTime, Utc};
use farthing_core::command::{
    CheckoutRefusal, CompleteCheckoutSession, CreateCheckoutCustomer, CreateCustomer, CreatedCustomer,
    CustomerRefusal, NewMethod, Paid, PayCheckoutSession, Payee, PaymentRefusal, PersonalData, PlanRefusal,
    Purchase, Refusal, RequestPayment, SubscriptionRefusal, WalletRefusal,
};
use farthing_core::event::DeclineReason;
use farthing_core::ids::{CustomerId, PaymentId, PaymentMethodId, SubscriptionId, WalletId};
use farthing_log::{appender, checkout_attempts};

use super::form::{FormProblem, PaymentChoice, Submission};
use super::offer::{CheckoutTarget, Offer};
use super::session::{self, Session};
use crate::app::App;
use crate::error::ApiError;
use crate::read_turns::Reader;
use crate::request_id;
use farthing_worker::payments::{CardInput, CardRefused};

/// Why a session was not completed.
pub(super) enum CompletionError {
    /// A value of the form is not accepted.
    Rejected(FormProblem),
    /// The session has changed since the form was read. The page shows its new status.
    SessionChanged,
    /// The payment that this form requested has no outcome yet. The page shows its status.
    PaymentPending(PaymentId),
    /// A payment of the session, or another upgrade of the customer, is in progress. Nothing was charged for this form.
    PaymentInProgress,
    /// The gateway or the ledger failed.
    Failed(ApiError),
}

impl From<ApiError> for CompletionError {
    fn from(error: ApiError) -> Self {
        Self::Failed(error)
    }
}

impl From<appender::Error> for CompletionError {
    fn from(error: appender::Error) -> Self {
        match error {
            appender::Error::Refused(
                Refusal::Checkout(CheckoutRefusal::SessionNotFound | CheckoutRefusal::SessionExpired)
                | Refusal::Customer(CustomerRefusal::NotFound)
                | Refusal::Plan(PlanRefusal::NotFound | PlanRefusal::BundleNotFound),
            ) => Self::SessionChanged,
            appender::Error::Refused(Refusal::Payment(PaymentRefusal::InProgress)) => Self::PaymentInProgress,
            appender::Error::Refused(Refusal::Subscription(SubscriptionRefusal::AlreadyActive)) => {
                // Also one that awaits its first payment, or to a plan that this one does not replace any more.
                Self::Rejected(whole_form(
                    "You already have a subscription, or its first payment is in progress. \
                     You were not charged on this page.",
                ))
            }
            appender::Error::Refused(
                Refusal::Subscription(SubscriptionRefusal::NotFound)
                | Refusal::Plan(PlanRefusal::BundlePlanMismatch),
            ) => Self::Rejected(whole_form("This credit is only available to subscribers of another plan.")),
            // A plan that is no longer free, or that would no longer start later, was offered without a payment.
            appender::Error::Refused(
                Refusal::Payment(PaymentRefusal::OfferChanged) | Refusal::Plan(PlanRefusal::NotFree),
            ) => Self::Rejected(FormProblem::changed()),
            appender::Error::Refused(Refusal::Wallet(WalletRefusal::TooManyBundles)) => Self::Rejected(
                whole_form("There is too much unused credit to buy more. You were not charged."),
            ),
            appender::Error::Refused(Refusal::Amount(_)) => {
                Self::Rejected(whole_form("The balance would exceed its limit. You were not charged."))
            }
            other => Self::Failed(other.into()),
        }
    }
}

/// A problem with the whole form.
fn whole_form(message: &str) -> FormProblem {
    FormProblem { field: "pay", message: message.to_owned() }
}

/// Completes the session, with its payment if there is one.
pub(super) async fn complete(
    app: &App,
    session: &Session,
    offer: &Offer,
    submission: Submission,
) -> Result<(), CompletionError> {
    let Submission { person, amount, payment } = submission;
    let reaches_processor = !matches!(payment, PaymentChoice::None);
    let now = app.now();
    // With a customer that the page did not know, the form is refused before it costs an attempt or stores a card.
    let early = if reaches_processor && made_elsewhere(app, session, offer).await? {
        Some(customer(app, session, offer, person.clone(), now).await?)
    } else {
        None
    };
    if reaches_processor && !count_attempt(app, session).await? {
        return Err(CompletionError::SessionChanged);
    }
    let (payment_method_id, method) = match payment {
        PaymentChoice::None => (None, None),
        PaymentChoice::SavedCard(id) => (Some(id), None),
        PaymentChoice::Card(card) => (None, Some(stored(app, card, now).await?)),
    };
    let (customer_id, contact) = match early {
        Some(found) => found,
        None => customer(app, session, offer, person, now).await?,
    };
    let purchase = match &offer.target {
        CheckoutTarget::Plan { plan_id, .. } => {
            Some(Purchase::Plan(*plan_id, SubscriptionId::new(app.mint.next(now))))
        }
        CheckoutTarget::Bundle { credit_bundle_id, .. } => Some(Purchase::Bundle(*credit_bundle_id)),
        CheckoutTarget::Topup => amount.map(Purchase::Fund),
        CheckoutTarget::Details => None,
    };
    let Some(purchase) = purchase.filter(|_| offer.target.is_paid()) else {
        let command = CompleteCheckoutSession {
            merchant_id: session.merchant_id,
            checkout_session_id: session.id,
            customer_id,
            contact,
            method,
            offered: offer.target.offered(),
            subscription_id: SubscriptionId::new(app.mint.next(now)),
            now,
        };
        return Ok(app.submit(session.merchant_id, command).await?);
    };
    let request = RequestPayment {
        merchant_id: session.merchant_id,
        payment_id: PaymentId::new(app.mint.next(now)),
        payee: Payee::Customer(customer_id),
        payment_method_id,
        purchase,
        offered: offer.target.offered(),
        checkout_session_id: Some(session.id),
        now,
    };
    let contact = contact.map(|contact| (customer_id, contact));
    match app.submit(session.merchant_id, PayCheckoutSession { payment: request, contact, method }).await {
        Ok(()) => {}
        Err(appender::Error::Unknown(why)) => return Err(pending(request.payment_id, &why)),
        Err(error) => return Err(error.into()),
    }
    match app.payments.carry_out(app.partition(session.merchant_id), request.payment_id).await {
        Ok(Paid::Accepted(_)) => Ok(()),
        Ok(Paid::Declined(reason)) => Err(CompletionError::Rejected(declined(reason))),
        Ok(Paid::Voided(_)) => Err(CompletionError::SessionChanged),
        Err(error) => Err(pending(request.payment_id, &error)),
    }
}

/// The payment is, or may be, in the log and will be carried out. The page shows the session's status, and no error that
/// invites another payment.
fn pending(payment_id: PaymentId, error: &dyn std::fmt::Display) -> CompletionError {
    let request_id = request_id::log_field();
    tracing::warn!(
        event = "checkout.payment_pending",
        request_id,
        %payment_id,
        %error,
        "the payment of a checkout page has no outcome yet"
    );
    CompletionError::PaymentPending(payment_id)
}

/// Whether the session's reference id has meanwhile a customer that neither the page knew nor a form of this session
/// created. One that is made later still is refused by [`customer`].
async fn made_elsewhere(app: &App, session: &Session, offer: &Offer) -> Result<bool, ApiError> {
    if offer.customer.is_some() || session.created.reference_id.is_none() {
        return Ok(false);
    }
    let found = session::customer_since(app, session.merchant_id, &session.created).await?;
    Ok(found.is_some_and(|id| id != CustomerId::new(session.id.ulid())))
}

/// Counts an attempt of the session at the payment processor. `false` means that none is left.
async fn count_attempt(app: &App, session: &Session) -> Result<bool, ApiError> {
    let (merchant_id, id) = (session.merchant_id, session.id);
    let connection = app.short_read(Reader::Merchant(merchant_id)).await?;
    connection.within(checkout_attempts::count(&connection, app.partition(merchant_id), id)).await
}

/// Stores the card at the payment processor.
async fn stored(app: &App, card: CardInput, now: DateTime<Utc>) -> Result<NewMethod, CompletionError> {
    let stored = app.payments.store(card).await.map_err(ApiError::from)?;
    let (processor, stored) = stored.map_err(|refused| {
        let field = match refused {
            CardRefused::Number => "card_number",
            CardRefused::Expiry => "card_expiry",
            CardRefused::Cvc => "card_cvc",
        };
        CompletionError::Rejected(FormProblem::new(field, &refused.to_string()))
    })?;
    Ok(NewMethod {
        payment_method_id: PaymentMethodId::new(app.mint.next(now)),
        processor: processor.to_owned(),
        token: stored.token,
        card: stored.card,
    })
}

/// The session's customer, created if needed, and the details that are still to be stored.
async fn customer(
    app: &App,
    session: &Session,
    offer: &Offer,
    person: Option<PersonalData>,
    now: DateTime<Utc>,
) -> Result<(CustomerId, Option<PersonalData>), CompletionError> {
    if let Some(known) = &offer.customer {
        return Ok((known.customer_id, person));
    }
    let customer_id = CustomerId::new(session.id.ulid());
    let create = CreateCustomer {
        merchant_id: session.merchant_id,
        customer_id,
        wallet_id: WalletId::new(session.id.ulid()),
        reference_id: session.created.reference_id.clone(),
        metadata: std::collections::BTreeMap::new(),
        metadata_literals: std::collections::BTreeSet::new(),
        personal: person.clone().unwrap_or_default(),
        now,
    };
    let command = CreateCheckoutCustomer { checkout_session_id: session.id, create };
    match app.submit(session.merchant_id, command).await? {
        CreatedCustomer::Created(id) => Ok((id, None)),
        // Another form of this session has just created it.
        CreatedCustomer::Existing(id) if id == customer_id => Ok((id, person)),
        // A customer that the page did not know has the reference id since.
        CreatedCustomer::Existing(_) => Err(CompletionError::Rejected(FormProblem::changed())),
    }
}

/// The problem of a declined payment.
pub(super) fn declined(reason: DeclineReason) -> FormProblem {
    let message = match reason {
        DeclineReason::CardDeclined => {
            "Your card was declined. You were not charged. Please use another card."
        }
        DeclineReason::InsufficientFunds => "Your card has insufficient funds. You were not charged.",
        DeclineReason::ExpiredCard => "Your card has expired. You were not charged. Please use another card.",
        DeclineReason::MethodRemoved => "This card is no longer available. Please use another card.",
    };
    FormProblem { field: "card_number", message: message.to_owned() }
}
