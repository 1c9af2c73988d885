//! The log of a simulation, as gateways search it.

use std::pin::Pin;

use chrono::{DateTime, Utc};
use farthing_core::event::Event;
use farthing_core::ids::RequestId;
use farthing_core::partition::Partition;
use tokio::time::sleep;

use super::connection::Link;
use super::database::{Database, Fault};
use super::keys::{failed_call, metered, opened};
use crate::appender::Error;
use crate::ledger::{CallLog, Sought};
use crate::record;

/// The log as one gateway reaches it.
#[derive(Debug)]
pub(super) struct SimulatedLog {
    pub(super) database: Database,
    pub(super) link: Link,
}

impl SimulatedLog {
    /// The line of an event with one of these keys.
    async fn find(&self, partition: Partition, keys: &[String]) -> Result<Option<String>, Error> {
        let database = self.database.of(partition);
        sleep(database.latency()).await;
        if self.link.is_down(&database) || !matches!(database.fault(), Fault::None | Fault::Repeat) {
            return Err(Error::Unavailable("the log cannot be read".to_owned()));
        }
        database.notes.count("the log was searched for a call");
        let disk = database.disk();
        let row = disk.events.iter().rev().find(|row| keys.contains(&row.key));
        let record = row.map(|row| row.record.clone());
        drop(disk);
        Ok(record)
    }
}

type Found<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

impl CallLog for SimulatedLog {
    fn end_of(&self, partition: Partition, request_id: RequestId) -> Found<'_, Option<Event>> {
        Box::pin(async move {
            let keys = [metered(request_id), failed_call(request_id)];
            let line = self.find(partition, &keys).await?;
            Ok(line.map(|line| record::decode(&line).unwrap().event))
        })
    }

    fn opening_of(
        &self,
        partition: Partition,
        request_id: RequestId,
        _decided_at: DateTime<Utc>,
    ) -> Found<'_, Sought> {
        Box::pin(async move {
            let found = self.find(partition, &[opened(request_id)]).await?;
            Ok(found.map_or(Sought::Absent, |_| Sought::Found))
        })
    }
}
