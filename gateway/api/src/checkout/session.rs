//! A checkout session as its page finds it: by its secret, from the authoritative states and the log.

use farthing_core::event::{CheckoutEvent, CheckoutSessionCreated, Event, codec};
use farthing_core::ids::{CheckoutSessionId, CustomerId, MerchantId};
use farthing_core::state::{State, StateKey};
use farthing_log::checkout_attempts;
use tokio_postgres::Client;

use super::offer::{self, Found, Offer};
use crate::app::App;
use crate::db::within;
use crate::error::ApiError;
use crate::rules;
use farthing_worker::payments::TestProcessor;

/// A session.
pub(super) struct Session {
    pub(super) id: CheckoutSessionId,
    pub(super) merchant_id: MerchantId,
    pub(super) created: CheckoutSessionCreated,
    /// What the merchant is called; empty where it is not known.
    pub(super) merchant: String,
    /// Does the payment processor move no money?
    pub(super) plays: bool,
    /// Who may frame the page, and who is told of its end.
    pub(super) origin: String,
    pub(super) standing: Standing,
}

/// How a session stands.
pub(super) enum Standing {
    /// It can be completed.
    Open(Offer),
    /// Its payment is being made.
    UnderWay,
    /// It was tried too often.
    Closed,
    /// What it offers is to be had no more.
    Gone,
    /// What it offers is the customer's already.
    HasIt,
    /// Its time is over.
    Expired,
    /// This customer completed it.
    Completed(CustomerId),
}

/// Its beginning and its end.
const HISTORY: &str = "\
SELECT kind, schema_version, body::text, merchant_id FROM ledger.events WHERE key = $1 OR key = $2 ORDER BY position";

/// Was the customer of this key ever made?
const MADE: &str = "SELECT position FROM ledger.events WHERE key = $1";

/// The session of this secret; none where this instance derived no such secret.
pub(super) async fn find(app: &App, secret: &str) -> Result<Option<Session>, ApiError> {
    let Some(id) = app.server_key.read_checkout_secret(secret) else { return Ok(None) };
    let Some(State::CheckoutSession(open)) = app.state(StateKey::CheckoutSession(id)).await? else {
        let connection = app.connection().await?;
        let Some(mut session) = within(ended(&connection, id, plays(app))).await? else { return Ok(None) };
        if let Some(State::Merchant(merchant)) = app.state(StateKey::Merchant(session.merchant_id)).await? {
            session.merchant = merchant.name;
        }
        return Ok(Some(session));
    };
    let origin = origin_of(&open.created)?;
    let merchant = app.state(StateKey::Merchant(open.merchant_id)).await?;
    let mut session = Session {
        id,
        merchant_id: open.merchant_id,
        created: open.created,
        merchant: String::new(),
        plays: plays(app),
        origin,
        standing: Standing::UnderWay,
    };
    if let Some(State::Merchant(merchant)) = &merchant {
        session.merchant.clone_from(&merchant.name);
    }
    if open.payment_id.is_some() {
        return Ok(Some(session));
    }
    let now = app.now();
    let now = if let Some(State::Merchant(merchant)) = merchant { merchant.now(now) } else { now };
    session.standing = if session.created.expires_at <= now {
        Standing::Expired
    } else if attempts_used_up(app, id).await? {
        Standing::Closed
    } else {
        let customer_id = match open.customer_id {
            Some(customer_id) => Some(customer_id),
            None => made(app, id).await?,
        };
        match offer::find(app, &session.created, customer_id).await? {
            Found::Offer(offer) => Standing::Open(offer),
            Found::Gone => Standing::Gone,
            Found::HasIt => Standing::HasIt,
        }
    };
    Ok(Some(session))
}

/// The customer that an earlier try of a session made, be it gone meanwhile: it has the session's own id, and is not made
/// a second time.
async fn made(app: &App, id: CheckoutSessionId) -> Result<Option<CustomerId>, ApiError> {
    let customer_id = CustomerId::new(id.ulid());
    let connection = app.connection().await?;
    let key = format!("{customer_id}/created");
    let made = within(async { connection.query_opt(MADE, &[&key]).await }).await?;
    Ok(made.map(|_| customer_id))
}

async fn attempts_used_up(app: &App, id: CheckoutSessionId) -> Result<bool, ApiError> {
    let connection = app.connection().await?;
    within(checkout_attempts::used_up(&connection, id)).await
}

fn plays(app: &App) -> bool {
    app.payments.processor().name() == TestProcessor::NAME
}

fn origin_of(created: &CheckoutSessionCreated) -> Result<String, ApiError> {
    let unreadable = || ApiError::internal(format!("{} has no origin", created.checkout_session_id));
    rules::origin(&created.origin_url).ok_or_else(unreadable)
}

/// A session that is not open any more, by the log.
async fn ended(client: &Client, id: CheckoutSessionId, plays: bool) -> Result<Option<Session>, ApiError> {
    let rows = client.query(HISTORY, &[&format!("{id}/created"), &format!("{id}/completed")]).await?;
    let (mut begun, mut customer_id) = (None, None);
    for row in rows {
        let event = codec::decode(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        let event = event.map_err(|error| ApiError::internal(error.to_string()))?;
        if let Event::Checkout(CheckoutEvent::SessionCreated(created)) = event {
            let merchant_id: &str = row.try_get(3)?;
            let merchant_id = merchant_id.parse();
            begun =
                Some((created, merchant_id.map_err(|error| ApiError::internal(format!("{id}: {error}")))?));
        } else if let Event::Checkout(CheckoutEvent::SessionCompleted(completed)) = event {
            customer_id = Some(completed.customer_id);
        }
    }
    let (Some((created, merchant_id)), Some(customer_id)) = (begun, customer_id) else { return Ok(None) };
    let origin = origin_of(&created)?;
    let (merchant, standing) = (String::new(), Standing::Completed(customer_id));
    Ok(Some(Session { id, merchant_id, created, merchant, plays, origin, standing }))
}
