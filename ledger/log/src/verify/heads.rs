//! The partitions of a log are those that have a head. One without a head is not read by anybody.

use tokio_postgres::Client;

use super::Error;
use super::verdict::{Check, Finding, Tallies};
use crate::partitions::{self, Headless};

/// Finds partitions without a head. Returns whether the rest can be verified: if a partition of the log has none, that of a
/// merchant is not known.
pub(super) async fn find_headless(client: &Client, tallies: &mut Tallies) -> Result<bool, Error> {
    let mut is_whole = true;
    for headless in partitions::headless(client).await? {
        let (partition, text) = match headless {
            Headless::Missing(partition) => {
                is_whole = false;
                (partition, format!("partition {partition} has no head"))
            }
            Headless::Stray(partition) => {
                (partition, format!("partition {partition} has record batches and no head"))
            }
        };
        let (expected, found) = ("a head".to_owned(), "none".to_owned());
        tallies.find(Check::Heads, Finding { partition, position: 1, text, expected, found });
    }
    if !is_whole {
        for check in Check::ALL.into_iter().filter(|check| *check != Check::Heads) {
            tallies.skip(check, "a partition has no head, so the partitions of merchants are not known");
        }
    }
    Ok(is_whole)
}
