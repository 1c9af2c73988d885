//! The space that the database takes, and the free space of its disk where that can be seen.

use anyhow::Result;

use super::finding::Finding;
use super::session::Session;

/// The part of a disk, in percent, below which its free space is a warning, and a failure.
const WARNING_PERCENT: u64 = 15;
const FAILURE_PERCENT: u64 = 5;

const SIZE: &str = "\
SELECT pg_database_size(current_database()), coalesce(pg_total_relation_size(to_regclass('ledger.batches')), 0)";

const FOLDER: &str = "SELECT current_setting('data_directory')";

/// Checks the space.
pub(super) async fn check(session: &Session) -> Vec<Finding> {
    vec![
        session.check("postgres.size", size(session)).await,
        session.check("postgres.disk", disk(session)).await,
    ]
}

async fn size(session: &Session) -> Result<Finding> {
    let row = session.client.query_one(SIZE, &[]).await?;
    let (database, log): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    let found = format!(
        "the database takes {}, of which the log {}",
        bytes(unsigned(database)),
        bytes(unsigned(log))
    );
    Ok(Finding::ok("postgres.size", found))
}

async fn disk(session: &Session) -> Result<Finding> {
    let check = "postgres.disk";
    if !session.is_local {
        let reason = "Postgres does not tell the free space of its disk: watch it on its machine";
        return Ok(Finding::skipped(check, reason));
    }
    let folder: String = session.client.query_one(FOLDER, &[]).await?.try_get(0)?;
    Ok(match rustix::fs::statvfs(folder.as_str()) {
        Ok(disk) => judge_disk(disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize),
        Err(error) => {
            Finding::skipped(check, format!("the folder of Postgres cannot be seen from here: {error}"))
        }
    })
}

fn judge_disk(free: u64, total: u64) -> Finding {
    let check = "postgres.disk";
    let found = format!("{} of {} are free on the disk of Postgres", bytes(free), bytes(total));
    let advice = "make room or a larger disk: without space Postgres stops, and every call is 503";
    if u128::from(free) * 100 < u128::from(total) * u128::from(FAILURE_PERCENT) {
        Finding::failed(check, found, advice)
    } else if u128::from(free) * 100 < u128::from(total) * u128::from(WARNING_PERCENT) {
        Finding::warning(check, found, advice)
    } else {
        Finding::ok(check, found)
    }
}

fn unsigned(bytes: i64) -> u64 {
    u64::try_from(bytes).unwrap_or_default()
}

/// A size for people, in powers of 1,024, with at most four digits.
pub(super) fn bytes(bytes: u64) -> String {
    let mut units = ["KiB", "MiB", "GiB", "TiB"].into_iter();
    let (mut size, mut shown) = (bytes, "bytes");
    while size >= 10_000
        && let Some(unit) = units.next()
    {
        (size, shown) = (size / 1_024, unit);
    }
    format!("{size} {shown}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict;

    #[test]
    fn free_space_is_judged_by_its_part_of_the_disk() {
        assert_eq!(judge_disk(15, 100).verdict, Verdict::Ok);
        assert_eq!(judge_disk(14, 100).verdict, Verdict::Warning);
        assert_eq!(judge_disk(4, 100).verdict, Verdict::Failed);
        assert_eq!(judge_disk(0, 0).verdict, Verdict::Ok, "a disk that says nothing");
    }

    #[test]
    fn sizes_are_shown_in_the_unit_that_fits() {
        assert_eq!(bytes(9_999), "9999 bytes");
        assert_eq!(bytes(10_240), "10 KiB");
        assert_eq!(bytes(50 * 1_024 * 1_024), "50 MiB");
        assert_eq!(bytes(u64::MAX), "16777215 TiB");
    }
}
