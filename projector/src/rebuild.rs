//! Builds a new generation of a read model beside the live one, compares the two at one position in each partition, and
//! swaps them.
//! Invariant: the live generation never moves between the comparison and the swap.

use farthing_log::connect::{self, Role};
use farthing_log::leadership::Leadership;
use farthing_log::positions::Positions;
use farthing_log::reader::Reader;
use farthing_schema::citus;
use farthing_schema::read_model::ReadModel;
use serde::Serialize;
use tokio_postgres::Client;

use crate::checkpoint;
use crate::engine::{Error, Folded, Generation, MAX_EVENTS, Projection, fold};
use crate::models::with_projection;
use crate::schemas::Schemas;
use crate::table_digest::{Digests, TableDigest, digests};
use crate::writer::Statements;
use crate::writers::Writers;

/// The live generation is stopped for the comparison once the new one is fewer than this many events behind.
pub(crate) const MAX_BEHIND: i64 = 2_000;

/// The prefix of the lock's name of the one rebuild or verification of a read model.
pub(crate) const LOCK_PREFIX: &str = "farthing.rebuild.";

/// Keeps the live projection from writing. Readers continue; their reads are delayed only for a short time.
const HOLD_LIVE: &str = "LOCK TABLE {schema}.checkpoint IN EXCLUSIVE MODE";

/// Citus renames a schema in a transaction that has read its tables only if it read them over one connection to each node.
/// To plain Postgres the setting means nothing.
const ONE_BY_ONE: &str = "SET LOCAL citus.multi_shard_modify_mode = 'sequential'";

/// The schemas that an interrupted rebuild left behind.
const LEFTOVERS: &str =
    "SELECT nspname::text AS name FROM pg_namespace WHERE nspname ~ ('^' || $1 || '_g[0-9]+$')";

/// The number of rows that are in one generation only. Equal rows are counted separately.
const DIFFERENCES: &str = "SELECT COALESCE(sum(abs(surplus)), 0)::bigint AS differences FROM ( \
         SELECT sum(side) AS surplus FROM ( \
             SELECT 1 AS side, sha256(convert_to(l::text, 'UTF8')) AS digest FROM {live}.{table} AS l \
             UNION ALL \
             SELECT -1, sha256(convert_to(n::text, 'UTF8')) FROM {new}.{table} AS n \
         ) AS either GROUP BY digest HAVING sum(side) <> 0 \
     ) AS unequal";

const COUNT: &str = "SELECT count(*) AS rows FROM {new}.{table}";

/// The result of a rebuild or a verification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RebuildReport {
    /// The read model.
    pub name: &'static str,
    /// The generation that was built.
    pub generation: i32,
    /// The number of folded events: the sum of the positions at which the two generations were compared.
    pub events: i64,
    /// The rows of the new generation.
    pub rows: i64,
    /// Rows that were in one generation only.
    pub differences: i64,
    /// SHA-256 over each table, if it was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<TableDigest>,
}

/// What happens to the generation that was built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Swap,
    Drop,
}

/// Rebuilds the read model `name` from the first event, under live traffic, and replaces the live one.
pub async fn rebuild(database_url: &str, name: &str) -> Result<RebuildReport, Error> {
    dispatch(database_url, name, Outcome::Swap, Digests::LeaveOut).await
}

/// Rebuilds the read model `name` from the first event, under live traffic, and only compares it with the live one.
pub async fn verify(database_url: &str, name: &str, digests: Digests) -> Result<RebuildReport, Error> {
    dispatch(database_url, name, Outcome::Drop, digests).await
}

async fn dispatch(
    database_url: &str,
    name: &str,
    outcome: Outcome,
    digests: Digests,
) -> Result<RebuildReport, Error> {
    let model = ReadModel::named(name).ok_or_else(|| Error::NoSuchModel(name.to_owned()))?;
    with_projection!(model, P => build::<P>(database_url, outcome, digests).await)
}

async fn build<P: Projection>(
    database_url: &str,
    outcome: Outcome,
    digests: Digests,
) -> Result<RebuildReport, Error> {
    let model = P::MODEL;
    let client = connect::connect(database_url, Role::Projector).await?;
    let schemas = Schemas::load(&client).await?;
    let name = schemas.of(model);
    let leadership = Leadership::try_take(client, &format!("{LOCK_PREFIX}{name}")).await?;
    let mut leadership = leadership.ok_or(Error::RebuildRunning(model.name()))?;
    let live = leadership.client_mut();
    drop_leftovers(live, name).await?;
    let report = build_compared::<P>(database_url, live, name, (outcome, digests)).await?;
    leadership.release().await?;
    Ok(report)
}

/// Builds a generation, compares it with the live one in the schema `name` at the same positions and, for
/// [`Outcome::Swap`], swaps the two.
async fn build_compared<P: Projection>(
    database_url: &str,
    live: &mut Client,
    name: &str,
    (outcome, wanted): (Outcome, Digests),
) -> Result<RebuildReport, Error> {
    let model = P::MODEL;
    let number = live_checkpoint(live, model, name).await?.generation + 1;
    let schema = format!("{name}_g{number}");
    citus::create_schema(live, &schema, &model.ddl(&schema, number)).await?;

    let mut new = Generation::open(Writers::patient(database_url)?, model, &schema).await?;
    let reader = Reader::connect(database_url, Role::Projector).await?;
    loop {
        let target = live_checkpoint(live, model, name).await?.positions;
        catch_up::<P>(&reader, &mut new, &target, |_| ()).await?;
        if live_checkpoint(live, model, name).await?.positions.events_after(&target) < MAX_BEHIND {
            break;
        }
    }

    let hold = live.transaction().await?;
    hold.batch_execute(ONE_BY_ONE).await?;
    hold.batch_execute(&HOLD_LIVE.replace("{schema}", name)).await?;
    let rows = hold.query(&checkpoint::SELECT.replace("{schema}", name), &[]).await?;
    let target = Positions::from_rows(&rows)?;
    catch_up::<P>(&reader, &mut new, &target, |_| ()).await?;
    hold.batch_execute("SET LOCAL work_mem = '64MB'").await?;
    let mut report = RebuildReport {
        name: model.name(),
        generation: number,
        events: target.events(),
        rows: 0,
        differences: 0,
        tables: Vec::new(),
    };
    for table in model.tables() {
        let sql = |sql: &str| sql.replace("{live}", name).replace("{new}", &schema).replace("{table}", table);
        report.differences +=
            hold.query_one(&sql(DIFFERENCES), &[]).await?.try_get::<_, i64>("differences")?;
        report.rows += hold.query_one(&sql(COUNT), &[]).await?.try_get::<_, i64>("rows")?;
    }
    if wanted == Digests::Compute {
        report.tables = digests(&hold, model, (name, &schema)).await?;
    }
    if outcome == Outcome::Swap {
        let old = format!("{name}_g{}", number - 1);
        let swap = format!("ALTER SCHEMA {name} RENAME TO {old}; ALTER SCHEMA {schema} RENAME TO {name}");
        hold.batch_execute(&swap).await?;
    }
    hold.commit().await?;
    // The old tables no longer have the live name. This waits for their last readers; the swap does not.
    drop_leftovers(live, name).await?;
    Ok(report)
}

/// Folds the log into `new` up to the positions `target`, not beyond.
pub(crate) async fn catch_up<P: Projection>(
    reader: &Reader,
    new: &mut Generation,
    target: &Positions,
    mut folded: impl FnMut(usize),
) -> Result<(), Error> {
    for (partition, target) in target.iter() {
        loop {
            let mut seen = new.positions.clone();
            let after = seen.get(partition);
            let missing = usize::try_from(target - after).unwrap_or(0);
            if missing == 0 {
                break;
            }
            let entries = reader.read(partition, after, missing.min(MAX_EVENTS)).await?;
            if entries.is_empty() {
                return Err(Error::LogEnds { partition, position: after, target });
            }
            // The last record batch may end after the target.
            let mut wanted = &entries[..missing.min(entries.len())];
            while !wanted.is_empty() {
                let Folded { batches, events, stopped, .. } =
                    fold::<P>(std::iter::once(wanted), MAX_EVENTS, &mut seen);
                new.write(&batches, &seen).await?;
                if let Some(error) = stopped {
                    return Err(error);
                }
                folded(events);
                wanted = &wanted[events..];
            }
        }
    }
    Ok(())
}

/// The checkpoint of a live generation.
pub(crate) struct Live {
    pub(crate) positions: Positions,
    pub(crate) generation: i32,
}

/// Reads the checkpoint of the live generation of `model` in `schema`.
pub(crate) async fn live_checkpoint(client: &Client, model: ReadModel, schema: &str) -> Result<Live, Error> {
    let sql = Statements::new(schema).sql(checkpoint::SELECT);
    let rows = client.query(&sql, &[]).await?;
    let first = rows.first().ok_or(Error::NotMigrated(model.name()))?;
    Ok(Live { generation: first.try_get("generation")?, positions: Positions::from_rows(&rows)? })
}

/// Drops the generations that an interrupted rebuild of the one in `schema` left behind.
pub(crate) async fn drop_leftovers(client: &Client, schema: &str) -> Result<(), Error> {
    for row in client.query(LEFTOVERS, &[&schema]).await? {
        let schema: String = row.try_get("name")?;
        client.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await?;
    }
    Ok(())
}
