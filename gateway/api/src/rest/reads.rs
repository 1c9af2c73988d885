//! Reads of the endpoints from the read models. Without a turn or a free connection the call gets a 503 after a bounded
//! wait.
//! Invariant: a read model is read once it has reached the position of the merchant's partition at the call's arrival, so
//! that callers see their own writes. If it lags for longer, the response is marked as stale (completion.md section 1); one
//! whose figures are as of a given moment is refused.
//! What shows the result of a write is a short read, and waits for no read of rows. It is not refused for want of a turn: the
//! write is durable, and a 503 would say that it is not.

use std::convert::Infallible;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::FromRequestParts;
use farthing_core::ids::MerchantId;
use farthing_core::partition::Partition;
use farthing_log::backoff::Backoff;
use farthing_log::reader;
use farthing_projector::query::PartitionClient;
use farthing_projector::{ReadModel, Schemas, checkpoint, webhooks};
use http::request::Parts;
use tokio_postgres::Client;

use super::array::Array;
use super::response_headers::Notes;
use crate::app::App;
use crate::body_memory::BodyKind;
use crate::db::within;
use crate::error::ApiError;
use crate::read_connection::ReadConnection;

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

/// What happens if a projection still lags after [`CATCH_UP_TIMEOUT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IfBehind {
    /// The response is marked as stale.
    MarkStale,
    /// The call is refused.
    Refuse,
}

/// What a merchant's rows are read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// Takes a turn at rows.
    Read,
    /// Shows the one row that a write has just changed. Takes a turn at what is short.
    ShowWrite,
}

/// Up to which position of the log a projection must be.
struct Wait {
    target: i64,
    if_behind: IfBehind,
    started: Instant,
}

/// A connection for reading a merchant's rows. It and the merchant's turn are held until Postgres has answered all
/// statements.
pub(super) struct MerchantConnection {
    connection: ReadConnection,
    schemas: Schemas,
    partition: Partition,
}

impl MerchantConnection {
    async fn open(app: &App, merchant_id: MerchantId, purpose: Purpose) -> Result<Self, ApiError> {
        let connection = match purpose {
            Purpose::Read => {
                ReadConnection::open(&app.reads, app.read_turns.take(merchant_id).await?).await?
            }
            Purpose::ShowWrite => app.read_after_write(merchant_id).await?,
        };
        let (schemas, partition) = (app.schemas.clone(), app.partitions.of(merchant_id));
        Ok(Self { connection, schemas, partition })
    }

    /// The connection with the merchant's partition.
    pub(super) fn partition(&self) -> PartitionClient<'_> {
        PartitionClient::new(self, &self.schemas, self.partition).counting(self.connection.unanswered())
    }

    /// The outcome of `read`, whose statements [`Self::partition`] does not count, or a 503 when it takes too long.
    pub(super) async fn within<T, E: Into<ApiError>>(
        &self,
        read: impl Future<Output = Result<T, E>>,
    ) -> Result<T, ApiError> {
        self.connection.within(read).await
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
        self.reached(Projection::ReadModel(model), merchant_id, Purpose::Read).await
    }

    /// A connection for reading what `model` shows as of a moment, which is final: the events until then do not change.
    /// `target` is given the present head of the merchant's partition, and says up to which position the model must show
    /// the log. Refuses the call if it does not after [`CATCH_UP_TIMEOUT`]: the caller may keep the figures, and a header
    /// that marks them as incomplete would be lost.
    pub(super) async fn complete(
        &self,
        model: ReadModel,
        merchant_id: MerchantId,
        target: impl FnOnce(i64) -> Result<i64, ApiError>,
    ) -> Result<MerchantConnection, ApiError> {
        let connection = MerchantConnection::open(&self.app, merchant_id, Purpose::Read).await?;
        let head = connection.within(reader::head(&connection, connection.partition)).await?;
        let target = target(head)?;
        let wait = Wait { target, if_behind: IfBehind::Refuse, started: Instant::now() };
        self.wait(connection, Projection::ReadModel(model), merchant_id, Purpose::Read, wait).await
    }

    /// The same for showing the row that this call has durably changed, with a turn at what is short. Not for what may take
    /// long.
    pub(super) async fn caught_up_after_write(
        &self,
        model: ReadModel,
        merchant_id: MerchantId,
    ) -> Result<MerchantConnection, ApiError> {
        self.reached(Projection::ReadModel(model), merchant_id, Purpose::ShowWrite).await
    }

    /// The same for the outbox of webhook events.
    pub(super) async fn outbox_caught_up(
        &self,
        merchant_id: MerchantId,
    ) -> Result<MerchantConnection, ApiError> {
        self.reached(Projection::Outbox, merchant_id, Purpose::Read).await
    }

    /// An array of items that the merchant has, without any.
    pub(super) fn array(&self, merchant_id: MerchantId) -> Array {
        Array::new(self.app.body_memory.share(merchant_id, BodyKind::Response))
    }

    /// A connection for reading the log itself, which never lags.
    pub(super) async fn of_log(&self, merchant_id: MerchantId) -> Result<MerchantConnection, ApiError> {
        MerchantConnection::open(&self.app, merchant_id, Purpose::Read).await
    }

    async fn reached(
        &self,
        projection: Projection,
        merchant_id: MerchantId,
        purpose: Purpose,
    ) -> Result<MerchantConnection, ApiError> {
        let connection = MerchantConnection::open(&self.app, merchant_id, purpose).await?;
        // The wait for a turn says nothing about the read model.
        let started = Instant::now();
        let target = connection.within(reader::head(&connection, connection.partition)).await?;
        let wait = Wait { target, if_behind: IfBehind::MarkStale, started };
        self.wait(connection, projection, merchant_id, purpose, wait).await
    }

    /// Waits until `projection` shows the log up to the target.
    async fn wait(
        &self,
        mut connection: MerchantConnection,
        projection: Projection,
        merchant_id: MerchantId,
        purpose: Purpose,
        Wait { target, if_behind, started }: Wait,
    ) -> Result<MerchantConnection, ApiError> {
        let mut backoff = Backoff::new(PAUSES.0, PAUSES.1);
        loop {
            let shown = within(projection.position(connection.partition())).await?;
            if shown >= target {
                return Ok(connection);
            }
            if started.elapsed() >= CATCH_UP_TIMEOUT {
                return match if_behind {
                    IfBehind::MarkStale => {
                        self.notes.stale();
                        Ok(connection)
                    }
                    IfBehind::Refuse => Err(ApiError::ledger_unavailable(format!(
                        "a read model shows the log up to position {shown}, and {target} is needed"
                    ))),
                };
            }
            // Other calls may use the connection in the meantime.
            drop(connection);
            tokio::time::sleep(backoff.next_delay()).await;
            connection = MerchantConnection::open(&self.app, merchant_id, purpose).await?;
        }
    }
}
