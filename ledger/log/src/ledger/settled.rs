//! Finds the end of a call in the log. Needed only when the answer to its settlement was lost on the way from another
//! gateway.

use farthing_core::command::{SettleRequest, Settled};
use farthing_core::partition::Partition;

use crate::appender::Error;
use crate::reads::{self, ReadPool, within};

/// Whether one of the newest events has the key in $2, a part of its line.
const FIND: &str = "\
SELECT EXISTS (
    SELECT FROM ledger.batches AS b
    WHERE b.partition = $1 AND b.first_position > (SELECT h.position FROM ledger.heads AS h WHERE h.partition = $1) - $3
        AND position($2::bytea IN b.events) > 0)";

/// The newest events that are searched: many minutes of a busy partition.
const SEARCHED: i64 = 200_000;

/// Whether the call has ended as `command` ends it.
pub(super) async fn is_settled(
    reads: &ReadPool,
    partition: Partition,
    command: &SettleRequest,
) -> Result<bool, Error> {
    let end = match command.settled {
        Settled::Metered(_) => "metered",
        Settled::Failed(_) => "failed",
    };
    let key = format!("\"key\":\"{}/{end}\"", command.request_id);
    let find = async {
        let connection = reads.connection().await?;
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
            [&partition.number(), &key.as_bytes(), &SEARCHED];
        let row = within(connection.query_one(FIND, &parameters)).await??;
        Ok::<bool, reads::Error>(row.try_get(0)?)
    };
    find.await.map_err(|error| Error::Unavailable(error.to_string()))
}
