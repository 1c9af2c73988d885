//! Reads of the endpoints from the read models. Without a free connection the call gets a 503 after a bounded wait.
//! Invariant: a read model is read once it has reached the position of the merchant's partition at the call's arrival, so
//! that callers see their own writes. If it lags for longer, the response is marked as stale (completion.md section 1).

use std::convert::Infallible;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::FromRequestParts;
use deadpool_postgres::Object;
use farthing_core::ids::MerchantId;
use farthing_core::partition::Partition;
use farthing_log::backoff::Backoff;
use farthing_log::reader;
use farthing_projector::query::PartitionClient;
use farthing_projector::{ReadModel, Schemas, checkpoint, webhooks};
use http::request::Parts;
use tokio_postgres::Client;

use super::response_headers::Notes;
use crate::app::App;
use crate::db::within;
use crate::error::ApiError;

/// The longest wait for a read model to reach the log.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(2);

/// The first and the longest pause between two checks of a read model that lags.
const PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(50));

/// A projection of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Projection {
    ReadModel(ReadModel),
    /// The outbox of webhook events.
    Outbox,
}

impl Projection {
    async fn position(self, db: PartitionClient<'_>) -> Result<i64, tokio_postgres::Error> {
        match self {
            Self::ReadModel(model) => checkpoint::position(db, model).await,
            Self::Outbox => webhooks::query::cursor(db).await,
        }
    }
}

/// A connection for reading a merchant's rows.
pub(super) struct MerchantConnection {
    connection: Object,
    schemas: Schemas,
    partition: Partition,
}

impl MerchantConnection {
    /// The connection with the merchant's partition.
    pub(super) fn partition(&self) -> PartitionClient<'_> {
        PartitionClient::new(&self.connection, &self.schemas, self.partition)
    }
}

impl Deref for MerchantConnection {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.connection
    }
}

/// Access to the read models.
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
    /// A connection for reading `model` once it has reached the present head of the merchant's partition. After
    /// [`CATCH_UP_TIMEOUT`], the model may still lag.
    pub(super) async fn caught_up(
        &self,
        model: ReadModel,
        merchant_id: MerchantId,
    ) -> Result<MerchantConnection, ApiError> {
        self.reached(Projection::ReadModel(model), merchant_id).await
    }

    /// The same for the outbox of webhook events.
    pub(super) async fn outbox_caught_up(
        &self,
        merchant_id: MerchantId,
    ) -> Result<MerchantConnection, ApiError> {
        self.reached(Projection::Outbox, merchant_id).await
    }

    async fn reached(
        &self,
        projection: Projection,
        merchant_id: MerchantId,
    ) -> Result<MerchantConnection, ApiError> {
        let partition = self.app.partitions.of(merchant_id);
        let started = Instant::now();
        let mut connection = self.app.connection().await?;
        let target = within(reader::head(&connection, partition)).await?;
        let mut backoff = Backoff::new(PAUSES.0, PAUSES.1);
        let schemas = self.app.schemas.clone();
        let position = async |connection: &Client| {
            within(projection.position(PartitionClient::new(connection, &schemas, partition))).await
        };
        while position(&connection).await? < target {
            if started.elapsed() >= CATCH_UP_TIMEOUT {
                self.notes.stale();
                break;
            }
            // Other calls may use the connection in the meantime.
            drop(connection);
            tokio::time::sleep(backoff.next_delay()).await;
            connection = self.app.connection().await?;
        }
        Ok(MerchantConnection { connection, schemas, partition })
    }
}
