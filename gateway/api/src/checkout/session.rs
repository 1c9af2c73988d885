//! Loads a checkout session, from the authoritative states and the log. The directory has its partition.

use chrono::{DateTime, Utc};
use farthing_core::event::{
    CheckoutEvent, CheckoutSessionCreated, DeclineReason, Event, PaymentEvent, Recorded,
};
use farthing_core::ids::{CheckoutSessionId, CustomerId, MerchantId, PaymentId};
use farthing_core::partition::Partition;
use farthing_core::state::{CheckoutSession, State, StateKey};
use farthing_log::{checkout_attempts, directory, reader};

use super::offer::{self, Offer, OfferLookup};
use crate::app::App;
use crate::caller_address::CallerAddress;
use crate::error::ApiError;
use crate::read_turns::Reader;
use crate::rules;
use farthing_worker::payments::TestProcessor;

/// A checkout session, as its page shows it.
pub(super) struct Session {
    pub(super) id: CheckoutSessionId,
    pub(super) merchant_id: MerchantId,
    pub(super) created: CheckoutSessionCreated,
    /// The merchant's name; empty if unknown.
    pub(super) merchant: String,
    /// Whether the payment processor is the built-in test processor, which moves no money.
    pub(super) test_mode: bool,
    /// The origin that may embed the page and is notified of the outcome.
    pub(super) origin: String,
    pub(super) status: SessionStatus,
}

/// The status of a session.
pub(super) enum SessionStatus {
    /// It can be completed.
    Open(Box<Offer>),
    /// This payment is pending.
    PaymentPending(PaymentId),
    /// It had too many attempts.
    AttemptsUsedUp,
    /// Its plan, credit bundle or customer no longer exists.
    Unavailable,
    /// The customer is subscribed to its plan already.
    AlreadySubscribed,
    /// It costs money, and the instance has no payment processor.
    PaymentsUnavailable,
    /// It has expired.
    Expired,
    /// This customer completed it.
    Completed(CustomerId),
}

/// The session `id`, for a browser at `address`; `None` if there is none.
pub(super) async fn find(
    app: &App,
    id: CheckoutSessionId,
    address: CallerAddress,
) -> Result<Option<Session>, ApiError> {
    let key = StateKey::CheckoutSession(id);
    let connection = app.short_read(Reader::Address(address)).await?;
    let partition = connection.within(directory::find(&connection, &key)).await?;
    drop(connection);
    let Some(partition) = partition else { return Ok(None) };
    let Some(State::CheckoutSession(open)) = app.ledger.state(partition, None, key.clone()).await? else {
        return completed(app, partition, id, Reader::Address(address)).await;
    };
    let merchant = match app.state(open.merchant_id, StateKey::Merchant(open.merchant_id)).await? {
        Some(State::Merchant(merchant)) => Some(merchant),
        Some(_) | None => None,
    };
    let now = app.now();
    let now = merchant.as_ref().map_or(now, |merchant| merchant.now(now));
    let status = open_status(app, partition, &open, now).await?;
    let status = match status {
        SessionStatus::Open(_) | SessionStatus::PaymentPending(_) => status,
        // The status was read after the session. Another form may have completed the session in between, and may
        // itself have started the subscription or used the last attempt.
        closed => match app.ledger.state(partition, Some(open.merchant_id), key).await? {
            Some(State::CheckoutSession(now)) => now.payment_id.map_or(closed, SessionStatus::PaymentPending),
            Some(_) => closed,
            None => return completed(app, partition, id, Reader::Merchant(open.merchant_id)).await,
        },
    };
    Ok(Some(Session {
        id,
        merchant_id: open.merchant_id,
        origin: origin_of(&open.created)?,
        created: open.created,
        merchant: merchant.map(|merchant| merchant.name).unwrap_or_default(),
        test_mode: is_test_mode(app),
        status,
    }))
}

/// The status of a session that is not completed, at the merchant's time `now`.
async fn open_status(
    app: &App,
    partition: Partition,
    open: &CheckoutSession,
    now: DateTime<Utc>,
) -> Result<SessionStatus, ApiError> {
    if let Some(payment_id) = open.payment_id {
        return Ok(SessionStatus::PaymentPending(payment_id));
    }
    if open.created.expires_at <= now {
        return Ok(SessionStatus::Expired);
    }
    if attempts_used_up(app, partition, open).await? {
        return Ok(SessionStatus::AttemptsUsedUp);
    }
    let customer_id = match open.customer_id {
        Some(customer_id) => Some(customer_id),
        None => customer_since(app, open.merchant_id, &open.created).await?,
    };
    Ok(match offer::find(app, open.merchant_id, &open.created, customer_id).await? {
        OfferLookup::Offer(offer) => SessionStatus::Open(offer),
        OfferLookup::Unavailable => SessionStatus::Unavailable,
        OfferLookup::AlreadySubscribed => SessionStatus::AlreadySubscribed,
        OfferLookup::PaymentsUnavailable => SessionStatus::PaymentsUnavailable,
    })
}

/// The customer of a session that was created without one, if it exists by now. As when a form creates it, the session's
/// own customer comes before another one that has the reference id.
pub(super) async fn customer_since(
    app: &App,
    merchant_id: MerchantId,
    created: &CheckoutSessionCreated,
) -> Result<Option<CustomerId>, ApiError> {
    let own = created_customer(app, merchant_id, created.checkout_session_id).await?;
    match &created.reference_id {
        Some(reference) if own.is_none() => app.customer_id(merchant_id, reference).await,
        Some(_) | None => Ok(own),
    }
}

/// The customer that an earlier attempt of the session created, even if deleted since. It has the session's ULID, so it
/// is not created twice.
async fn created_customer(
    app: &App,
    merchant_id: MerchantId,
    id: CheckoutSessionId,
) -> Result<Option<CustomerId>, ApiError> {
    let customer_id = CustomerId::new(id.ulid());
    let connection = app.short_read(Reader::Merchant(merchant_id)).await?;
    let key = format!("{customer_id}/created");
    let made = reader::find_position(&connection, app.partitions.of(merchant_id), &key);
    let made = connection.within(made).await?;
    Ok(made.map(|_| customer_id))
}

/// Why the payment was declined; `None` if it was not, or if it was not a payment of this session.
pub(super) async fn declined(
    app: &App,
    session: &Session,
    payment_id: PaymentId,
) -> Result<Option<DeclineReason>, ApiError> {
    let partition = app.partition(session.merchant_id);
    let connection = app.short_read(Reader::Merchant(session.merchant_id)).await?;
    let key = format!("{payment_id}/declined");
    let keys = [key.as_str()];
    let events = connection.within(reader::find_in_table(&connection, partition, &keys)).await?;
    for Recorded { fact, .. } in events {
        if let Event::Payment(PaymentEvent::Declined(declined)) = fact.event
            && fact.merchant_id == session.merchant_id
            && declined.checkout_session_id == Some(session.id)
        {
            return Ok(Some(declined.reason));
        }
    }
    Ok(None)
}

async fn attempts_used_up(app: &App, partition: Partition, open: &CheckoutSession) -> Result<bool, ApiError> {
    let id = open.created.checkout_session_id;
    let connection = app.short_read(Reader::Merchant(open.merchant_id)).await?;
    connection.within(checkout_attempts::used_up(&connection, partition, id)).await
}

fn is_test_mode(app: &App) -> bool {
    app.payments.processor().is_ok_and(|processor| processor.name() == TestProcessor::NAME)
}

fn origin_of(created: &CheckoutSessionCreated) -> Result<String, ApiError> {
    let unreadable = || ApiError::internal(format!("{} has no origin", created.checkout_session_id));
    rules::origin(&created.origin_url).ok_or_else(unreadable)
}

/// A completed session, read from the log. None if its events are archived.
async fn completed(
    app: &App,
    partition: Partition,
    id: CheckoutSessionId,
    caller: Reader,
) -> Result<Option<Session>, ApiError> {
    let connection = app.short_read(caller).await?;
    let keys = [format!("{id}/created"), format!("{id}/completed")];
    let keys = keys.each_ref().map(String::as_str);
    let events = connection.within(reader::find_in_table(&connection, partition, &keys)).await?;
    drop(connection);
    let (mut begun, mut customer_id) = (None, None);
    for Recorded { fact, .. } in events {
        if let Event::Checkout(CheckoutEvent::SessionCreated(created)) = fact.event {
            begun = Some((created, fact.merchant_id));
        } else if let Event::Checkout(CheckoutEvent::SessionCompleted(completed)) = fact.event {
            customer_id = Some(completed.customer_id);
        }
    }
    let (Some((created, merchant_id)), Some(customer_id)) = (begun, customer_id) else { return Ok(None) };
    let merchant = match app.state(merchant_id, StateKey::Merchant(merchant_id)).await? {
        Some(State::Merchant(merchant)) => merchant.name,
        Some(_) | None => String::new(),
    };
    Ok(Some(Session {
        id,
        merchant_id,
        origin: origin_of(&created)?,
        created,
        merchant,
        test_mode: is_test_mode(app),
        status: SessionStatus::Completed(customer_id),
    }))
}
