//! The projector's process: the relay, all projections and the webhook outbox, on one shared tail of the log.

use std::sync::Arc;
use std::time::Duration;

use farthing_log::connect::{self, Role};
use farthing_log::connection_budget::{self, Needed};
use farthing_log::nats::NatsConfig;
use farthing_log::relay::{self, RelayMetrics};
use farthing_log::tail::{self, Tail};
use farthing_schema::read_model::ReadModel;
use farthing_telemetry::Telemetry;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::engine::{Error, Projection, Source, project};
use crate::idle_spans::IdleSpans;
use crate::metrics::ProjectorMetrics;
use crate::models::with_projection;
use crate::schemas::Schemas;
use crate::webhooks;

/// The interval between attempts to reach the database at the start.
const START_RETRY: Duration = Duration::from_secs(1);

/// The connections of a projector: one for each read model, and one each for the tail, the relay, the idle spans and the
/// webhook outbox.
const CONNECTIONS: usize = ReadModel::ALL.len() + 4;

/// The addresses of the log and of the feed.
#[derive(Debug, Clone)]
pub struct Config {
    /// The database.
    pub database_url: String,
    /// The NATS servers. Without them there is no feed, and the log is polled.
    pub nats: Option<NatsConfig>,
    /// The number of NATS servers that store the feed.
    pub feed_replicas: usize,
    /// What the operator sees.
    pub telemetry: Telemetry,
}

/// Relays and projects until `stop`. Calls `ready` once every read model can be written.
pub async fn run(config: Config, stop: CancellationToken, ready: impl FnOnce() + Send) -> Result<(), Error> {
    let telemetry = config.telemetry;
    telemetry.health.starting("waits for Postgres");
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
            nats: config.nats.clone(),
        },
        stop.clone(),
        &tasks,
    );
    let heads = tail.heads();
    let metrics = ProjectorMetrics::new(&telemetry, &heads);
    if let Some(nats) = config.nats {
        let metrics = RelayMetrics::new(&telemetry.metrics, heads);
        let config = relay::RelayConfig {
            database_url: database_url.clone(),
            role: Role::Projector,
            nats,
            replicas: config.feed_replicas,
        };
        relay::start(config, &tail, metrics, stop.clone(), &tasks);
    }
    let idle_spans = Arc::new(IdleSpans::default());
    for model in ReadModel::ALL {
        let source =
            Source { database_url: database_url.clone(), tail: tail.clone(), progress: metrics.of(model) };
        with_projection!(model, P => spawn::<P>(source, &idle_spans, &stop, &tasks));
    }
    let (spans_url, spans_stop) = (database_url.clone(), stop.clone());
    tasks.spawn(async move {
        let _ = spans_stop.run_until_cancelled(idle_spans.write(&spans_url)).await;
    });
    let (outbox, outbox_stop) = (Source { database_url, tail, progress: metrics.outbox() }, stop.clone());
    tasks.spawn(async move {
        let _ = outbox_stop.run_until_cancelled(webhooks::fill(&outbox, &metrics.deliveries)).await;
    });
    ready();
    telemetry.health.started();
    stop.cancelled().await;
    telemetry.health.stopping();
    tasks.close();
    tasks.wait().await;
    Ok(())
}

fn spawn<P: Projection>(
    source: Source,
    idle_spans: &Arc<IdleSpans>,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) {
    let (stop, idle_spans) = (stop.clone(), Arc::clone(idle_spans));
    tasks.spawn(async move {
        // A batch that is cancelled rolls back; it is folded again after the next start.
        let _ = stop.run_until_cancelled(project::<P>(&source, &idle_spans)).await;
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
    connection_budget::check(&client, Needed { always: CONNECTIONS, alone: 0 }).await?;
    Schemas::load(&client).await.map(drop)
}
