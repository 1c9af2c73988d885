//! What an audit says of archived files: of those that are damaged, of record batches in the table that belong to none, and
//! why no file was read.

use farthing_core::partition::Partition;

use super::Error;
use super::verdict::{Check, Finding, Place, Tallies};
use crate::connect::{self, Role};

/// Whether a range of one of the partitions $1 is archived.
const IS_ARCHIVED: &str = "SELECT EXISTS (SELECT 1 FROM ledger.archived AS a WHERE a.partition = ANY($1))";

/// The file `object`, whose first event is at `place`, is not the one that was archived. It is reported once, however often it
/// is read.
pub(super) fn damaged(tallies: &mut Tallies, place: Place, object: &str, damage: String) {
    let Place { partition, position } = place;
    let (text, expected) = (format!("{place}: {object}: {damage}"), "the file that was archived".to_owned());
    tallies.find_once(Check::Archives, Finding { partition, position, text, expected, found: damage });
}

/// The table has a record batch at `place`, within the range of the file `object`, that the file does not have.
pub(super) fn stray(tallies: &mut Tallies, place: Place, object: &str) {
    let Place { partition, position } = place;
    let text =
        format!("{place}: the table has another record batch than {object}, where the event is archived");
    let expected = format!("no record batch, or that of {object}");
    let found = format!("a second event at position {position}");
    tallies.find(Check::Positions, Finding { partition, position, text, expected, found });
}

/// The run cannot begin in the file `object`, and looks at nothing of the partition.
pub(super) fn skip_all(tallies: &mut Tallies, partition: Partition, object: &str) {
    for check in Check::ALL {
        // The read tables are compared apart.
        if check != Check::Archives && check != Check::ReadTables {
            tallies.skip(check, format!("partition {partition}: the run cannot begin in {object}"));
        }
    }
}

/// Why the audit of `partitions` read no archived file.
pub(super) async fn why_none(database_url: &str, partitions: &[Partition]) -> Result<&'static str, Error> {
    let client = connect::connect(database_url, Role::Owner).await?;
    let numbers: Vec<_> = partitions.iter().map(|partition| partition.number()).collect();
    let is_archived = client.query_one(IS_ARCHIVED, &[&numbers]).await?.try_get(0)?;
    Ok(if is_archived {
        "no archived file was read: the run is after the archived ranges, or the table still has them"
    } else {
        "nothing is archived"
    })
}
