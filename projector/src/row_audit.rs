//! The audit of the read models: folds the log into a copy beside the live rows and compares the two, a range of rows at a
//! time. While a range is compared, the live rows of its partition do not move; readers go on. The copy is dropped at the end.

use std::time::Duration;

use farthing_core::partition::Partition;
use farthing_log::connect::{self, Role};
use farthing_log::leadership::Leadership;
use farthing_log::partitions;
use farthing_log::positions::Positions;
use farthing_log::reader::{self, Reader};
use farthing_log::verify::Progress;
use farthing_log::verify::verdict::{Check, Finding, Tallies};
use farthing_schema::citus;
use farthing_schema::read_model::ReadModel;
use tokio::time::timeout;
use tokio_postgres::Client;

use crate::engine::{Error, Generation, Projection};
use crate::models::with_projection;
use crate::rebuild::{LOCK_PREFIX, MAX_BEHIND, catch_up, drop_leftovers, live_checkpoint};
use crate::row_comparison::Comparison;
use crate::schemas::{Schemas, unbuilt};
use crate::writers::Writers;

/// The longest wait for another audit, rebuild or verification of the same read model to end.
const MAX_WAIT: Duration = Duration::from_mins(10);

/// The number of rows of partition $1.
const COUNT: &str = "SELECT count(*) AS rows FROM {live}.{table} WHERE partition = $1";

/// Keeps the live projection from writing rows of partition $1.
const HOLD_PARTITION: &str = "SELECT position FROM {schema}.checkpoint WHERE partition = $1 FOR UPDATE";

/// Audits the rows of `model`, of one partition or of all. Nothing is compared of a model that is not built yet.
pub async fn audit(
    database_url: &str,
    model: ReadModel,
    partition: Option<Partition>,
    progress: &Progress,
) -> Result<Tallies, Error> {
    with_projection!(model, P => audit_model::<P>(database_url, partition, progress).await)
}

async fn audit_model<P: Projection>(
    database_url: &str,
    partition: Option<Partition>,
    progress: &Progress,
) -> Result<Tallies, Error> {
    let model = P::MODEL;
    let client = connect::connect(database_url, Role::Projector).await?;
    let mut tallies = Tallies::default();
    if unbuilt(&client).await?.contains(&model) {
        tallies.miss(Check::ReadTables, format!("{}: not built by this release yet", model.name()));
        return Ok(tallies);
    }
    let schemas = Schemas::load(&client).await?;
    let live = schemas.of(model);
    let lock = format!("{LOCK_PREFIX}{live}");
    let taken = timeout(MAX_WAIT, Leadership::wait(client, &lock, || ())).await;
    let mut leadership = taken.map_err(|_| Error::RebuildRunning(model.name()))??;
    let client = leadership.client_mut();
    drop_leftovers(client, live).await?;
    let number = live_checkpoint(client, model, live).await?.generation + 1;
    let copy = format!("{live}_g{number}");
    citus::create_schema(client, &copy, &model.ddl(&copy, number)).await?;
    let generation = Generation::open(Writers::patient(database_url)?, model, &copy).await?;
    let reader = Reader::connect(database_url, Role::Projector).await?;
    let mut rows = RowAudit { model, live, copy: &copy, generation, reader, tallies, progress };
    let audited = rows.partitions::<P>(client, partition).await;
    let tallies = rows.tallies;
    drop_leftovers(client, live).await?;
    leadership.release().await?;
    audited.map(|()| tallies)
}

/// The audit of a read model.
struct RowAudit<'a> {
    model: ReadModel,
    /// The schema of the live rows.
    live: &'a str,
    /// The schema of the copy.
    copy: &'a str,
    generation: Generation,
    reader: Reader,
    tallies: Tallies,
    progress: &'a Progress,
}

impl RowAudit<'_> {
    async fn partitions<P: Projection>(
        &mut self,
        client: &mut Client,
        only: Option<Partition>,
    ) -> Result<(), Error> {
        let all = partitions::load(client).await?.ok_or(Error::NotMigrated(self.model.name()))?;
        let shown = live_checkpoint(client, self.model, self.live).await?.positions;
        // A projector adds the rows of the partitions above the first when it opens the read model.
        let is_opened = shown.iter().any(|(of, position)| of.number() > 0 || position > 0);
        for partition in all.all().filter(|of| only.is_none_or(|only| only == *of)) {
            if !shown.iter().any(|(of, _)| of == partition) {
                self.without_checkpoint(client, partition, is_opened).await?;
                continue;
            }
            match self.partition::<P>(client, partition).await {
                Ok(()) => {}
                Err(Error::LogEnds { position, target, .. }) => {
                    let text = format!(
                        "partition {partition}: {} shows the log up to position {target}, the log ends at {position}",
                        self.model.name()
                    );
                    let expected = format!("an event at position {target}");
                    let found = format!("the log ends at position {position}");
                    let position = position + 1;
                    self.tallies
                        .find(Check::ReadTables, Finding { partition, position, text, expected, found });
                }
                Err(error) if error.is_of_the_events() => {
                    let reason = format!(
                        "{}, partition {partition}: the events cannot be folded: {error}",
                        self.model.name()
                    );
                    self.tallies.miss(Check::ReadTables, reason);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Says that the read model has no checkpoint of a partition. That is as it should be only before a projector has opened
    /// the read model, which has no rows then.
    async fn without_checkpoint(
        &mut self,
        client: &Client,
        partition: Partition,
        is_opened: bool,
    ) -> Result<(), Error> {
        let mut rows: i64 = 0;
        for table in self.model.tables() {
            let count = client.query_one(&self.sql(COUNT, table), &[&partition.number()]).await?;
            rows += count.try_get::<_, i64>("rows")?;
        }
        if rows == 0 && !is_opened {
            let reason =
                format!("{}, partition {partition}: no projector has opened it yet", self.model.name());
            if reader::head(client, partition).await? == 0 {
                self.tallies.skip(Check::ReadTables, reason);
            } else {
                self.tallies.miss(Check::ReadTables, reason);
            }
            return Ok(());
        }
        let text = format!("partition {partition}: {}.checkpoint has no row of it", self.live);
        let (expected, found) = ("a row".to_owned(), "none".to_owned());
        self.tallies.find(Check::ReadTables, Finding { partition, position: 1, text, expected, found });
        Ok(())
    }

    /// Compares the rows of a partition, a range at a time. Each range is compared at one position of both generations; between
    /// two ranges both go on.
    async fn partition<P: Projection>(
        &mut self,
        client: &mut Client,
        partition: Partition,
    ) -> Result<(), Error> {
        for table in self.model.tables() {
            let mut comparison = Comparison::new(client, partition, self.live, self.copy, table).await?;
            while !comparison.is_done() {
                self.approach::<P>(client, partition).await?;
                let hold = client.transaction().await?;
                let lock = HOLD_PARTITION.replace("{schema}", self.live);
                let position = hold.query_one(&lock, &[&partition.number()]).await?.try_get("position")?;
                self.fold_up_to::<P>(partition, position).await?;
                comparison.next(&hold, position, &mut self.tallies).await?;
                hold.commit().await?;
            }
        }
        Ok(())
    }

    /// Folds the copy until it is close behind the live rows, which go on meanwhile.
    async fn approach<P: Projection>(&mut self, client: &Client, partition: Partition) -> Result<(), Error> {
        loop {
            let target = live_checkpoint(client, self.model, self.live).await?.positions.get(partition);
            let behind = target - self.generation.positions.get(partition);
            self.fold_up_to::<P>(partition, target).await?;
            if behind < MAX_BEHIND {
                return Ok(());
            }
        }
    }

    async fn fold_up_to<P: Projection>(&mut self, partition: Partition, position: i64) -> Result<(), Error> {
        let target: Positions =
            [(partition, position.max(self.generation.positions.get(partition)))].into_iter().collect();
        let read = |events| self.progress.read(i64::try_from(events).unwrap_or(i64::MAX));
        catch_up::<P>(&self.reader, &mut self.generation, &target, read).await
    }

    fn sql(&self, sql: &str, table: &str) -> String {
        sql.replace("{live}", self.live).replace("{table}", table)
    }
}
