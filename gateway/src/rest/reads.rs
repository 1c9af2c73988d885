//! Reading for the endpoints: a pooled connection or an honest 503, never an endless wait. Invariant: a read model
//! answers only when it has come as far as the log was when the call arrived, so that callers see their own writes;
//! one that lags for longer answers with what there is, marked as stale (completion.md section 1).

use std::convert::Infallible;
use std::error::Error as StdError;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::FromRequestParts;
use chrono::{DateTime, Utc};
use deadpool_postgres::Object;
use farthing_ledger::ids::{CustomerId, MerchantId, MeterId};
use farthing_ledger::log::connect::words;
use farthing_ledger::log::states;
use farthing_ledger::secret::Mode;
use farthing_ledger::state::{Meter, State, StateKey};
use farthing_projector::{ReadModel, checkpoint, query, webhooks};
use http::request::Parts;
use tokio_postgres::Client;

use super::answer::Notes;
use crate::app::App;
use crate::error::ApiError;

/// The longest that one read may take, waiting for a connection included.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a call waits for a read model to come as far as the log.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(2);

/// The pause after the first look at a read model that lags; later ones are twice as long each.
const FIRST_PAUSE: Duration = Duration::from_millis(2);

/// The longest pause between two looks.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

impl App {
    /// A connection for reads.
    pub(crate) async fn connection(&self) -> Result<Object, ApiError> {
        within(async { self.reads.get().await.map_err(|why| ApiError::LedgerUnavailable(why.to_string())) })
            .await
    }

    /// The authoritative state of `key`.
    pub(crate) async fn state(&self, key: StateKey) -> Result<Option<State>, ApiError> {
        let [state] = self.states([key]).await?;
        Ok(state)
    }

    /// The authoritative states of `keys`, all of one moment.
    pub(super) async fn states<const N: usize>(
        &self,
        keys: [StateKey; N],
    ) -> Result<[Option<State>; N], ApiError> {
        let connection = self.connection().await?;
        let mut states = within(states::load(&connection, &keys)).await?.into_iter();
        Ok(std::array::from_fn(|_| states.next().flatten()))
    }

    /// Now by the merchant's clock, which decisions go by as well: the instance's, put forward as far as it is in test mode.
    pub(super) async fn merchants_now(&self, merchant_id: MerchantId) -> Result<DateTime<Utc>, ApiError> {
        match self.mode {
            Mode::Live => Ok(self.now()),
            Mode::Test => match self.state(StateKey::Merchant(merchant_id)).await? {
                Some(State::Merchant(merchant)) => Ok(merchant.now(self.now())),
                Some(_) | None => Err(ApiError::Internal(format!("{merchant_id} has no state"))),
            },
        }
    }

    /// The id of the merchant's customer called `name`, an id or a reference id, by the authoritative state.
    pub(crate) async fn customer_id(
        &self,
        merchant_id: MerchantId,
        name: &str,
    ) -> Result<Option<CustomerId>, ApiError> {
        if name.contains('\0') {
            return Ok(None);
        }
        let id = match name.parse() {
            Ok(id) => id,
            Err(_) => match self.state(StateKey::Reference(merchant_id, name.to_owned())).await? {
                Some(State::Reference(id)) => id,
                Some(_) | None => return Ok(None),
            },
        };
        match self.state(StateKey::Customer(id)).await? {
            Some(State::Customer(customer)) if customer.merchant_id == merchant_id => Ok(Some(id)),
            Some(_) | None => Ok(None),
        }
    }
}

impl App {
    /// The merchant's meter called `name`, an id or a slug, by the authoritative state.
    pub(crate) async fn meter(
        &self,
        merchant_id: MerchantId,
        name: &str,
    ) -> Result<Option<(MeterId, Box<Meter>)>, ApiError> {
        if name.contains('\0') {
            return Ok(None);
        }
        let id = match name.parse() {
            Ok(id) => id,
            Err(_) => match self.state(StateKey::MeterSlug(merchant_id, name.to_owned())).await? {
                Some(State::MeterSlug(id)) => id,
                Some(_) | None => return Ok(None),
            },
        };
        match self.state(StateKey::Meter(id)).await? {
            Some(State::Meter(meter)) if meter.merchant_id == merchant_id => Ok(Some((id, meter))),
            Some(_) | None => Ok(None),
        }
    }
}

/// What is filled from the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Filled {
    ReadModel(ReadModel),
    /// What webhooks are told.
    Outbox,
}

impl Filled {
    async fn position(self, db: &Client) -> Result<i64, tokio_postgres::Error> {
        match self {
            Self::ReadModel(model) => checkpoint::position(db, model).await,
            Self::Outbox => webhooks::query::cursor(db).await,
        }
    }
}

/// How far the log has come.
const HEAD: &str = "SELECT position FROM ledger.head";

/// The way to the read models.
#[derive(Clone)]
pub(super) struct Reads {
    app: Arc<App>,
    notes: Notes,
}

impl FromRequestParts<Arc<App>> for Reads {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Infallible> {
        let notes = parts.extensions.get::<Notes>().cloned().unwrap_or_default();
        Ok(Self { app: Arc::clone(app), notes })
    }
}

impl Reads {
    /// A connection on which `model` shows everything that was in the log when this was called, or, once
    /// [`CATCH_UP_TIMEOUT`] is over, what there is.
    pub(super) async fn caught_up(&self, model: ReadModel) -> Result<Object, ApiError> {
        self.filled(Filled::ReadModel(model)).await
    }

    /// The same of what webhooks are told.
    pub(super) async fn outbox_caught_up(&self) -> Result<Object, ApiError> {
        self.filled(Filled::Outbox).await
    }

    async fn filled(&self, filled: Filled) -> Result<Object, ApiError> {
        let started = Instant::now();
        let mut connection = self.app.connection().await?;
        let wanted = within(head(&connection)).await?;
        let mut pause = FIRST_PAUSE;
        while within(filled.position(&connection)).await? < wanted {
            if started.elapsed() >= CATCH_UP_TIMEOUT {
                self.notes.stale();
                break;
            }
            // Others may use the connection in the meantime.
            drop(connection);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            connection = self.app.connection().await?;
        }
        Ok(connection)
    }
}

async fn head(db: &Client) -> Result<i64, tokio_postgres::Error> {
    let rows = db.query_typed(HEAD, &[]).await?;
    rows.first().map_or(Ok(0), |row| row.try_get(0))
}

/// The outcome of `work`, or a 503 when it takes too long.
pub(crate) async fn within<T, E: Into<ApiError>>(
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, ApiError> {
    match tokio::time::timeout(READ_TIMEOUT, work).await {
        Ok(outcome) => outcome.map_err(Into::into),
        Err(_) => Err(ApiError::LedgerUnavailable("a read took too long".to_owned())),
    }
}

impl From<tokio_postgres::Error> for ApiError {
    /// A lost connection or a server that is shutting down is the ledger being away; all else is our fault.
    fn from(error: tokio_postgres::Error) -> Self {
        let away = match error.as_db_error() {
            // Classes 08 (connection), 53 (resources) and 57 (operator intervention, such as a shutdown).
            Some(said) => ["08", "53", "57"].iter().any(|class| said.code().code().starts_with(class)),
            None => error.is_closed() || error.source().is_some_and(<dyn StdError>::is::<std::io::Error>),
        };
        let text = words(&error);
        if away { Self::LedgerUnavailable(text) } else { Self::Internal(text) }
    }
}

impl From<states::Error> for ApiError {
    fn from(error: states::Error) -> Self {
        match error {
            states::Error::Postgres(error) => error.into(),
            states::Error::Unreadable { .. } => Self::Internal(error.to_string()),
        }
    }
}

impl From<query::Error> for ApiError {
    fn from(error: query::Error) -> Self {
        match error {
            query::Error::CursorInvalid => Self::CursorInvalid,
            query::Error::Database(error) => error.into(),
            query::Error::Row(_) => Self::Internal(error.to_string()),
        }
    }
}
