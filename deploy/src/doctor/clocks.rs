//! The clocks: this machine's against Postgres's, and those of gateways as far as the log shows them.

use std::time::Instant;

use anyhow::Result;
use chrono::{DateTime, TimeDelta, Utc};

use super::finding::Finding;
use super::session::Session;

/// How often the clock is read. The quickest answer counts.
const MEASUREMENTS: usize = 5;

/// Differences from which there is a warning, and a failure. Farthing decides by Postgres's clock, so that a difference
/// does little; certificates and logs depend on each machine's own.
const WARNING: TimeDelta = TimeDelta::seconds(1);
const FAILURE: TimeDelta = TimeDelta::seconds(60);

const NOW: &str = "SELECT clock_timestamp()";

/// The end of each partition's log: who wrote it, and by how much its time is ahead of Postgres's, in milliseconds.
const LAST_RECORDS: &str = "\
SELECT b.writer, (extract(epoch FROM b.recorded_at - clock_timestamp()) * 1000)::bigint AS ahead_ms
FROM ledger.heads AS h
CROSS JOIN LATERAL (
    SELECT l.writer, l.recorded_at FROM ledger.batches AS l
    WHERE l.partition = h.partition ORDER BY l.first_position DESC LIMIT 1
) AS b
ORDER BY 2 DESC";

/// A difference of two clocks, and its largest error.
#[derive(Debug, Clone, Copy)]
struct Difference {
    ahead: TimeDelta,
    error: TimeDelta,
}

/// Checks the clocks.
pub(super) async fn check(session: &Session) -> Vec<Finding> {
    vec![
        session.check("clock.machine", machine(session)).await,
        session.check("clock.gateways", gateways(session)).await,
    ]
}

async fn machine(session: &Session) -> Result<Finding> {
    let mut best: Option<Difference> = None;
    for _ in 0..MEASUREMENTS {
        let (started, asked) = (Instant::now(), Utc::now());
        let theirs: DateTime<Utc> = session.client.query_one(NOW, &[]).await?.try_get(0)?;
        let measured = difference(asked, theirs, TimeDelta::from_std(started.elapsed())?);
        if best.is_none_or(|best| measured.error < best.error) {
            best = Some(measured);
        }
    }
    Ok(best.map_or_else(|| Finding::skipped("clock.machine", "it was not measured"), judge_machine))
}

/// Postgres's clock showed `theirs` at some time within `took` after `asked`.
fn difference(asked: DateTime<Utc>, theirs: DateTime<Utc>, took: TimeDelta) -> Difference {
    let error = took / 2;
    Difference { ahead: theirs - (asked + error), error }
}

fn judge_machine(Difference { ahead, error }: Difference) -> Finding {
    let name = "clock.machine";
    let at_least = (ahead.abs() - error).max(TimeDelta::zero());
    let direction = if ahead < TimeDelta::zero() { "behind" } else { "ahead of" };
    let found = format!(
        "Postgres's clock is {} ms {direction} this machine's, to {} ms",
        ahead.num_milliseconds().abs(),
        error.num_milliseconds() + 1
    );
    let advice = "synchronize both machines with the same time servers (NTP)";
    if at_least >= FAILURE {
        Finding::failed(name, found, advice)
    } else if at_least >= WARNING {
        Finding::warning(name, found, advice)
    } else {
        Finding::ok(name, found)
    }
}

async fn gateways(session: &Session) -> Result<Finding> {
    let rows = session.client.query(LAST_RECORDS, &[]).await?;
    let first = rows.first().map(|row| Ok::<_, tokio_postgres::Error>((row.try_get(0)?, row.try_get(1)?)));
    Ok(judge_gateways(first.transpose()?))
}

/// `furthest` is the writer of the last record that is furthest ahead, and by how many milliseconds.
fn judge_gateways(furthest: Option<(String, i64)>) -> Finding {
    let name = "clock.gateways";
    match furthest {
        None => Finding::skipped(name, "the log is empty"),
        Some((writer, ahead_ms)) if ahead_ms >= WARNING.num_milliseconds() => Finding::warning(
            name,
            format!("{writer} has recorded an event {ahead_ms} ms ahead of Postgres's clock"),
            "synchronize the clock of its machine",
        ),
        Some(_) => {
            Finding::ok(name, "no record is ahead of Postgres's clock; one that is behind cannot be seen")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict;

    fn at(ms: i64) -> DateTime<Utc> {
        DateTime::from_timestamp_millis(1_800_000_000_000 + ms).unwrap()
    }

    #[test]
    fn a_difference_counts_beyond_the_error_of_its_measurement() {
        let verdict = |theirs, took| {
            judge_machine(difference(at(0), at(theirs), TimeDelta::milliseconds(took))).verdict
        };
        assert_eq!(verdict(5, 10), Verdict::Ok, "it is in the middle of the measurement");
        assert_eq!(verdict(999, 0), Verdict::Ok);
        assert_eq!(verdict(1_000, 0), Verdict::Warning);
        assert_eq!(verdict(-1_000, 0), Verdict::Warning);
        assert_eq!(verdict(1_500, 2_000), Verdict::Ok, "it may be half a second");
        assert_eq!(verdict(-60_000, 0), Verdict::Failed);
        assert_eq!(verdict(86_400_000, 40), Verdict::Failed);
    }

    #[test]
    fn a_record_of_the_future_shows_a_gateway_whose_clock_is_fast() {
        assert_eq!(judge_gateways(None).verdict, Verdict::Skipped);
        assert_eq!(judge_gateways(Some(("gw_1".to_owned(), -5_000))).verdict, Verdict::Ok);
        let fast = judge_gateways(Some(("gw_1".to_owned(), 90_000)));
        assert_eq!(fast.verdict, Verdict::Warning);
        assert!(fast.found.contains("gw_1") && fast.found.contains("90000 ms"), "{}", fast.found);
    }
}
