//! `farthing archive list`: what is archived, from the database alone.

use farthing_core::partition::Partition;
use serde::Serialize;

use super::Error;
use super::range::ArchivedRange;
use crate::connect::{self, Role};

/// An archived range, and whether it has left the table.
#[derive(Debug, Clone, Serialize)]
pub struct Listed {
    /// The range.
    #[serde(flatten)]
    pub range: ArchivedRange,
    /// The table has record batches of it: a run that archived or restored it was stopped.
    pub is_in_table: bool,
}

/// The archived ranges of `partition` or of all, in their order.
pub async fn list(database_url: &str, partition: Option<Partition>) -> Result<Vec<Listed>, Error> {
    let client = connect::connect(database_url, Role::Owner).await?;
    let mut listed = Vec::new();
    for partition in super::chosen(&client, partition).await? {
        for range in ArchivedRange::all(&client, partition).await? {
            let is_in_table = range.is_in_table(&client).await?;
            listed.push(Listed { range, is_in_table });
        }
    }
    Ok(listed)
}
