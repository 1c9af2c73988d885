//! Reading for the endpoints: a pooled connection or an honest 503, never an endless wait. Invariant: a read model
//! answers only when it has come as far as the log was when the call arrived, so that callers see their own writes;
//! one that lags for longer answers with what there is, marked as stale (completion.md section 1).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::FromRequestParts;
use deadpool_postgres::Object;
use farthing_log::backoff::Backoff;
use farthing_projector::{ReadModel, checkpoint, webhooks};
use http::request::Parts;
use tokio_postgres::Client;

use super::answer::Notes;
use crate::app::App;
use crate::db::within;
use crate::error::ApiError;

/// How long a call waits for a read model to come as far as the log.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(2);

/// The first and the longest pause between two looks at a read model that lags.
const PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(50));

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
        let mut backoff = Backoff::new(PAUSES.0, PAUSES.1);
        while within(filled.position(&connection)).await? < wanted {
            if started.elapsed() >= CATCH_UP_TIMEOUT {
                self.notes.stale();
                break;
            }
            // Others may use the connection in the meantime.
            drop(connection);
            tokio::time::sleep(backoff.next_delay()).await;
            connection = self.app.connection().await?;
        }
        Ok(connection)
    }
}

async fn head(db: &Client) -> Result<i64, tokio_postgres::Error> {
    let rows = db.query_typed(HEAD, &[]).await?;
    rows.first().map_or(Ok(0), |row| row.try_get(0))
}
