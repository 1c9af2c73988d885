//! Reading for the endpoints: a pooled connection or an honest 503, never an endless wait. Invariant: a read model
//! answers only when it has come as far as the log was when the call arrived, so that callers see their own writes;
//! one that lags for longer answers with what there is, marked as stale (completion.md section 1).

use std::convert::Infallible;
use std::error::Error as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::FromRequestParts;
use deadpool_postgres::Object;
use farthing_ledger::ids::{CustomerId, MerchantId};
use farthing_ledger::log::states;
use farthing_ledger::state::{Customer, State, StateKey};
use http::request::Parts;

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
    pub(super) async fn connection(&self) -> Result<Object, ApiError> {
        within(async { self.reads.get().await.map_err(|why| ApiError::LedgerUnavailable(why.to_string())) }).await
    }

    /// The authoritative state of `key`.
    pub(super) async fn state(&self, key: StateKey) -> Result<Option<State>, ApiError> {
        let connection = self.connection().await?;
        let states = within(states::load(&connection, &[key])).await?;
        Ok(states.into_iter().next().flatten())
    }

    /// The merchant's customer of an id or a reference id, by the authoritative state.
    pub(super) async fn customer(
        &self,
        merchant_id: MerchantId,
        name: &str,
    ) -> Result<Option<(CustomerId, Customer)>, ApiError> {
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
            Some(State::Customer(customer)) if customer.merchant_id == merchant_id => Ok(Some((id, customer))),
            Some(_) | None => Ok(None),
        }
    }
}

/// A table set folded from the log, by the Postgres schema it lives in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadModel {
    /// Customers.
    Customers,
    /// Connections and their wallets.
    Connections,
    /// Spend keys.
    SpendKeys,
    /// Forwarded calls.
    Requests,
}

impl ReadModel {
    /// How far the log and the read model have come.
    const fn positions(self) -> &'static str {
        match self {
            Self::Customers => {
                "SELECT h.position, c.position FROM ledger.head AS h CROSS JOIN customers.checkpoint AS c"
            }
            Self::Connections => {
                "SELECT h.position, c.position FROM ledger.head AS h CROSS JOIN connections.checkpoint AS c"
            }
            Self::SpendKeys => {
                "SELECT h.position, c.position FROM ledger.head AS h CROSS JOIN spend_keys.checkpoint AS c"
            }
            Self::Requests => {
                "SELECT h.position, c.position FROM ledger.head AS h CROSS JOIN requests.checkpoint AS c"
            }
        }
    }
}

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
        let started = Instant::now();
        let mut wanted = None;
        let mut pause = FIRST_PAUSE;
        loop {
            let connection = self.app.connection().await?;
            let row = within(async {
                let positions = connection.prepare_cached(model.positions()).await?;
                connection.query_one(&positions, &[]).await
            });
            let row = row.await?;
            let (head, reached): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
            if reached >= *wanted.get_or_insert(head) {
                return Ok(connection);
            }
            if started.elapsed() >= CATCH_UP_TIMEOUT {
                self.notes.stale();
                return Ok(connection);
            }
            // Others may use the connection in the meantime.
            drop(connection);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// The outcome of `work`, or a 503 when it takes too long.
pub(super) async fn within<T, E: Into<ApiError>>(work: impl Future<Output = Result<T, E>>) -> Result<T, ApiError> {
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
            None => error.is_closed() || error.source().is_some_and(|cause| cause.is::<std::io::Error>()),
        };
        let text = error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"));
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
