//! The projector's process: the relay, all projections and the webhook outbox, on one shared tail of the log.

use std::time::Duration;

use farthing_log::connect::{self, Role};
use farthing_log::relay;
use farthing_log::tail::{self, Tail};
use farthing_schema::read_model::ReadModel;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::engine::{Error, Projection, project};
use crate::models::with_projection;
use crate::schemas::Schemas;
use crate::webhooks;

/// The interval between attempts to reach the database at the start.
const START_RETRY: Duration = Duration::from_secs(1);

/// The addresses of the log and of the feed.
#[derive(Debug, Clone)]
pub struct Config {
    /// The database.
    pub database_url: String,
    /// The NATS server. Without one there is no feed, and the log is polled.
    pub nats_url: Option<String>,
    /// The number of NATS servers that store the feed.
    pub feed_replicas: usize,
}

/// Relays and projects until `stop`. Calls `ready` once every read model can be written.
pub async fn run(config: Config, stop: CancellationToken, ready: impl FnOnce() + Send) -> Result<(), Error> {
    match stop.run_until_cancelled(wait_for_read_models(&config.database_url)).await {
        None => return Ok(()),
        Some(found) => found?,
    }
    let tasks = TaskTracker::new();
    let database_url = config.database_url;
    let tail = Tail::start(
        tail::TailConfig {
            database_url: database_url.clone(),
            role: Role::Projector,
            nats_url: config.nats_url.clone(),
        },
        stop.clone(),
        &tasks,
    );
    if let Some(nats_url) = config.nats_url {
        let config = relay::RelayConfig {
            database_url: database_url.clone(),
            role: Role::Projector,
            nats_url,
            replicas: config.feed_replicas,
        };
        relay::start(config, &tail, stop.clone(), &tasks);
    }
    for model in ReadModel::ALL {
        with_projection!(model, P => spawn::<P>(&database_url, &tail, &stop, &tasks));
    }
    let (outbox_url, outbox_tail, outbox_stop) = (database_url.clone(), tail.clone(), stop.clone());
    tasks.spawn(async move {
        let _ = outbox_stop.run_until_cancelled(webhooks::fill(&outbox_url, &outbox_tail)).await;
    });
    ready();
    stop.cancelled().await;
    tasks.close();
    tasks.wait().await;
    Ok(())
}

fn spawn<P: Projection>(database_url: &str, tail: &Tail, stop: &CancellationToken, tasks: &TaskTracker) {
    let (database_url, tail, stop) = (database_url.to_owned(), tail.clone(), stop.clone());
    tasks.spawn(async move {
        // A batch that is cancelled rolls back; it is folded again after the next start.
        let _ = stop.run_until_cancelled(project::<P>(&database_url, &tail)).await;
    });
}

/// Waits for Postgres. Fails when there is no generation of this program's version: the operator must migrate the
/// database.
async fn wait_for_read_models(database_url: &str) -> Result<(), Error> {
    let client = loop {
        match connect::connect(database_url, Role::Projector).await {
            Ok(client) => break client,
            Err(error) => {
                tracing::warn!(event = "projector.database_unreachable", %error, "waiting for the database");
            }
        }
        tokio::time::sleep(START_RETRY).await;
    };
    Schemas::load(&client).await.map(drop)
}
