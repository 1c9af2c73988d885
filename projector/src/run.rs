//! The projector's process: the relay, all projections and the webhook outbox, on one shared tail of the log.

use std::sync::Arc;
use std::time::Duration;

use farthing_log::connect::{Role, SessionsError, check_sessions, redacted};
use farthing_log::connection_budget::{self, Needed};
use farthing_log::leadership::Locks;
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
use crate::writers::Writers;

/// The interval between attempts to reach the database at the start.
const START_RETRY: Duration = Duration::from_secs(1);

/// The connections of a projector beside those that write: for its locks, for the tail, and for readers that are behind the
/// tail. One that stands by has the first alone.
pub const FIXED_CONNECTIONS: usize = 3;

/// The addresses of the log and of the feed.
#[derive(Debug, Clone)]
pub struct Config {
    /// The database.
    pub database_url: String,
    /// The NATS servers. Without them there is no feed, and the log is polled.
    pub nats: Option<NatsConfig>,
    /// The number of NATS servers that store the feed.
    pub feed_replicas: usize,
    /// The connections over which rows are written, at most.
    pub write_connections: usize,
    /// What the operator sees.
    pub telemetry: Telemetry,
}

/// Relays and projects until `stop`. Calls `ready` once every read model can be written.
pub async fn run(config: Config, stop: CancellationToken, ready: impl FnOnce() + Send) -> Result<(), Error> {
    let telemetry = config.telemetry;
    telemetry.health.starting("waits for Postgres");
    let database_url = config.database_url;
    let locks = Arc::new(Locks::new(database_url.clone(), Role::Projector, lock_of_process()));
    let found =
        stop.run_until_cancelled(wait_for_read_models(&database_url, &locks, config.write_connections));
    match found.await {
        None => return Ok(()),
        Some(found) => found?,
    }
    let tasks = TaskTracker::new();
    let writers = Writers::new(&database_url, config.write_connections)?;
    let tail = Tail::start(
        tail::TailConfig { database_url, role: Role::Projector, nats: config.nats.clone() },
        stop.clone(),
        &tasks,
    );
    let heads = tail.heads();
    let metrics = ProjectorMetrics::new(&telemetry, &heads);
    if let Some(nats) = config.nats {
        let metrics = RelayMetrics::new(&telemetry.metrics, heads);
        let config = relay::RelayConfig { locks: Arc::clone(&locks), nats, replicas: config.feed_replicas };
        relay::start(config, &tail, metrics, stop.clone(), &tasks);
    }
    let idle_spans = Arc::new(IdleSpans::default());
    let source = |progress| Source {
        locks: Arc::clone(&locks),
        writers: writers.clone(),
        tail: tail.clone(),
        progress,
    };
    for model in ReadModel::ALL {
        let source = source(metrics.of(model));
        with_projection!(model, P => spawn::<P>(source, &idle_spans, &stop, &tasks));
    }
    let (idle, idle_stop) = (writers.clone(), stop.clone());
    tasks.spawn(async move { idle_stop.run_until_cancelled(idle.close_idle()).await });
    let (outbox, outbox_stop) = (source(metrics.outbox()), stop.clone());
    let spans_stop = stop.clone();
    tasks.spawn(async move {
        let _ = spans_stop.run_until_cancelled(idle_spans.write(&writers)).await;
    });
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

/// The lock of a projector. Those of two releases both work during an upgrade, if their read models differ.
fn lock_of_process() -> String {
    let versions: Vec<_> = ReadModel::ALL.into_iter().map(|model| model.version().to_string()).collect();
    format!("farthing projector {}", versions.join(" "))
}

/// Waits for Postgres. Fails when there is no generation of this program's version: the operator must migrate the
/// database.
async fn wait_for_read_models(
    database_url: &str,
    locks: &Locks,
    write_connections: usize,
) -> Result<(), Error> {
    let client = loop {
        match client(database_url, locks).await {
            Ok(client) => break client,
            Err(SessionsError::Postgres(error)) => {
                let error = redacted(&error);
                tracing::warn!(event = "projector.database_unreachable", error, "waiting for the database");
            }
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(START_RETRY).await;
    };
    let needed = Needed { always: FIXED_CONNECTIONS + write_connections, alone: 0 };
    connection_budget::check(&client, needed).await?;
    Schemas::load(&client).await.map(drop)
}

/// The connection of the locks, once it is certain that sessions belong to one connection each.
async fn client(database_url: &str, locks: &Locks) -> Result<Arc<tokio_postgres::Client>, SessionsError> {
    check_sessions(database_url).await?;
    Ok(locks.client().await?)
}
