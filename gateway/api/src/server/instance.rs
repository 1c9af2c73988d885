//! What a gateway must learn from the database before it serves, and what it waits for there.

use std::time::Duration;

use farthing_core::partition::Partitions;
use farthing_core::secret::{Mode, ServerKey};
use farthing_log::clock::Clock;
use farthing_log::connect::{self, Role, check_sessions};
use farthing_log::connection_budget::{self, Needed};
use farthing_log::reads::ReadPool;
use farthing_log::{generations, partitions, server_key};
use farthing_projector::Schemas;
use farthing_telemetry::Gauge;
use tokio_postgres::Client;

use super::connections::Connections;
use super::{Config, Error};

/// The time between two attempts to reach the database at the start.
const START_RETRY: Duration = Duration::from_secs(1);

/// The time between two looks at what a gateway of a new release waits for.
const UPGRADE_POLL: Duration = Duration::from_millis(200);

const INSTANCE: &str = "SELECT server_key, mode FROM ledger.instance";

/// What the database says about the instance.
pub(super) struct Instance {
    pub(super) server_key: ServerKey,
    pub(super) mode: Mode,
    pub(super) partitions: Partitions,
    pub(super) schemas: Schemas,
    pub(super) connections: Connections,
}

/// What the database says about the instance, once it can be reached.
pub(super) async fn instance(config: &Config, clock: &Clock) -> Result<Instance, Error> {
    let waits = config.telemetry.metrics.gauge(
        "farthing_waits_for_read_models",
        "1 while the gateway has not started because read models of its release are not built",
    );
    loop {
        match read_instance(config, clock, &waits).await {
            Err(error) if connect::is_away(&error) => {
                tracing::warn!(event = "gateway.database_unreachable", %error, "waiting for the database");
            }
            read => return read,
        }
        tokio::time::sleep(START_RETRY).await;
    }
}

/// The instance's key, mode and partitions, after checking that the database has this program's shape. Also sets the clock.
async fn read_instance(config: &Config, clock: &Clock, waits: &Gauge) -> Result<Instance, Error> {
    check_sessions(&config.database_url).await?;
    let client = connect::connect(&config.database_url, Role::Gateway).await?;
    clock.measure(&client).await?;
    let row = client.query_opt(INSTANCE, &[]).await?.ok_or(Error::NotMigrated)?;
    if generations::has_newer_shape(&client).await? {
        return Err(Error::Outdated);
    }
    let schemas = wait_for_read_models(&client, waits).await;
    waits.set(0);
    let schemas = schemas?;
    let key = config.server_key.clone().or_else(|| ServerKey::from_hex(row.get(0)));
    let mode = if row.get::<_, &str>(1) == "test" { Mode::Test } else { Mode::Live };
    let partitions = partitions::load(&client).await?.ok_or(Error::NotMigrated)?;
    let server_key = key.ok_or(Error::NotMigrated)?;
    server_key::check(&client, &server_key, server_key::First::Gateway).await?;
    let connections = chosen_connections(&client, config, mode, partitions).await?;
    Ok(Instance { server_key, mode, partitions, schemas, connections })
}

/// The connections that fit the server, once it is certain that they can.
async fn chosen_connections(
    client: &Client,
    config: &Config,
    mode: Mode,
    partitions: Partitions,
) -> Result<Connections, Error> {
    let allowed = connection_budget::allowed(client).await?;
    let chosen = Connections::chosen(config.connections, allowed, mode, config.webhooks.is_some())?;
    let Connections { reads, deliveries, reads_per_merchant, .. } = chosen;
    tracing::info!(
        event = "postgres.connections_chosen",
        allowed,
        all = chosen.all(),
        reads,
        deliveries,
        reads_per_merchant,
        "the connections to Postgres that this gateway opens at most, without those of the partitions that it leads"
    );
    let needed = Needed { always: chosen.all(), alone: partitions.all().len() };
    connection_budget::check(client, needed).await?;
    Ok(chosen)
}

/// The schemas of the read models, once a projector of this release has built them.
async fn wait_for_read_models(client: &Client, waits: &Gauge) -> Result<Schemas, Error> {
    let mut said = None;
    loop {
        let unbuilt = farthing_projector::unbuilt(client).await?;
        let Some(model) = unbuilt.first() else { return Ok(Schemas::load(client).await?) };
        if said != Some(unbuilt.len()) {
            tracing::warn!(
                event = "gateway.waits_for_read_models",
                count = unbuilt.len(),
                first = model.name(),
                "read models of this release are not built yet; a projector of this release builds them"
            );
            said = Some(unbuilt.len());
            waits.set(1);
        }
        tokio::time::sleep(UPGRADE_POLL).await;
    }
}

/// Waits until the partitions are led with the states of this release, whose build has begun.
pub(super) async fn wait_for_states(reads: &ReadPool) {
    let mut said = false;
    loop {
        let live = async {
            let client = reads.connection().await.ok()?;
            generations::are_live(&client).await.ok()
        };
        if live.await == Some(true) {
            return;
        }
        if !said {
            tracing::warn!(
                event = "gateway.waits_for_states",
                "the states of this release are not built yet; this gateway listens once they are"
            );
            said = true;
        }
        tokio::time::sleep(UPGRADE_POLL).await;
    }
}
