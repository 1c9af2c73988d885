//! How far read models, the webhook outbox and the deliveries of webhooks are behind the log.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use farthing_core::partition::Partition;
use farthing_log::positions::Positions;
use farthing_projector::{ReadModel, Schemas, checkpoint};

use super::finding::Finding;
use super::session::Session;

/// How long readers may take for the events that were in the log when the check began.
const PATIENCE: Duration = Duration::from_secs(2);

/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(100);

/// The age in seconds of an unseen event from which a lag is a failure.
const FAILURE_SECONDS: i64 = 60;

/// The delay in seconds of a due delivery from which there is a warning, and a failure.
const LATE_SECONDS: i64 = 10;
const VERY_LATE_SECONDS: i64 = 300;

const HEADS: &str = "SELECT partition, position FROM ledger.heads ORDER BY partition";

const OUTBOX: &str = "SELECT partition, position FROM webhooks.cursor ORDER BY partition";

/// The age in seconds of the batch with the first event after the position $2 of the partition $1.
const AGE: &str = "\
SELECT greatest(extract(epoch FROM clock_timestamp() - recorded_at)::bigint, 0) FROM ledger.batches
WHERE partition = $1 AND first_position <= $2::bigint + 1 ORDER BY first_position DESC LIMIT 1";

/// For how many seconds the oldest queue of each partition has been due.
const DUE: &str = "\
SELECT h.partition, extract(epoch FROM clock_timestamp() - oldest.due_at)::bigint AS late_seconds
FROM ledger.heads AS h
CROSS JOIN LATERAL (
    SELECT l.due_at FROM webhooks.lane AS l WHERE l.partition = h.partition ORDER BY l.due_at LIMIT 1
) AS oldest
ORDER BY 2 DESC LIMIT 1";

/// Something that follows the log and has not come to where the log was.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Behind {
    who: &'static str,
    events: i64,
    /// The age of the oldest of them.
    age_seconds: i64,
}

/// Checks the lags.
pub(super) async fn check(session: &Session) -> Vec<Finding> {
    vec![
        session.check("lag.read_models", read_models(session)).await,
        session.check("lag.webhook_outbox", outbox(session)).await,
        session.check("lag.deliveries", deliveries(session)).await,
    ]
}

/// The position of the log in each partition.
pub(super) async fn heads(session: &Session) -> Result<Positions> {
    Ok(Positions::from_rows(&session.client.query(HEADS, &[]).await?)?)
}

async fn read_models(session: &Session) -> Result<Finding> {
    let heads = heads(session).await?;
    let schemas = match Schemas::load(&session.client).await {
        Ok(schemas) => schemas,
        Err(farthing_projector::Error::Database(error)) => return Err(error.into()),
        Err(error) => {
            let advice = "run `farthing migrate` of this version";
            return Ok(Finding::failed("lag.read_models", error.to_string(), advice));
        }
    };
    let until = Instant::now() + PATIENCE;
    let mut reached: BTreeMap<&'static str, Positions> = BTreeMap::new();
    loop {
        for model in ReadModel::ALL {
            let is_there = reached.get(model.name()).is_some_and(|seen| heads.events_after(seen) == 0);
            if !is_there {
                let seen = checkpoint::positions(&session.client, &schemas, model).await?;
                reached.insert(model.name(), seen);
            }
        }
        if Instant::now() >= until || reached.values().all(|seen| heads.events_after(seen) == 0) {
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    let mut behind = Vec::new();
    for (who, seen) in &reached {
        behind.extend(behind_of(session, who, &heads, seen).await?);
    }
    Ok(judge("lag.read_models", &behind, "look for `projection.` in the log of the projectors"))
}

async fn outbox(session: &Session) -> Result<Finding> {
    let heads = heads(session).await?;
    let until = Instant::now() + PATIENCE;
    let seen = loop {
        let seen = Positions::from_rows(&session.client.query(OUTBOX, &[]).await?)?;
        if Instant::now() >= until || heads.events_after(&seen) == 0 {
            break seen;
        }
        tokio::time::sleep(PAUSE).await;
    };
    let behind = behind_of(session, "webhook_outbox", &heads, &seen).await?;
    let advice = "look for `webhook.outbox` in the log of the projectors";
    Ok(judge("lag.webhook_outbox", behind.as_slice(), advice))
}

/// How far something that has `seen` the log is behind; nothing if it has seen all.
async fn behind_of(
    session: &Session,
    who: &'static str,
    heads: &Positions,
    seen: &Positions,
) -> Result<Option<Behind>> {
    let events = heads.events_after(seen);
    if events == 0 {
        return Ok(None);
    }
    let mut age_seconds = 0;
    for (partition, head) in heads.iter().filter(|(partition, head)| seen.get(*partition) < *head) {
        age_seconds = age_seconds.max(age(session, partition, seen.get(partition).min(head)).await?);
    }
    Ok(Some(Behind { who, events, age_seconds }))
}

/// The age in seconds of the first event after a position; 0 if it cannot be read.
pub(super) async fn age(session: &Session, partition: Partition, position: i64) -> Result<i64> {
    let row = session.client.query_opt(AGE, &[&partition.number(), &position]).await?;
    row.map_or(Ok(0), |row| Ok(row.try_get(0)?))
}

fn judge(check: &'static str, behind: &[Behind], advice: &str) -> Finding {
    let oldest = behind.iter().map(|behind| behind.age_seconds).max();
    let shown = behind.iter().map(|Behind { who, events, age_seconds }| {
        format!("{who} is {events} events behind, the oldest of them recorded {age_seconds} s ago")
    });
    let shown = shown.collect::<Vec<_>>().join("; ");
    match oldest {
        None => Finding::ok(check, "up to date"),
        Some(age) if age < FAILURE_SECONDS => Finding::warning(check, shown, advice),
        Some(_) => Finding::failed(check, shown, advice),
    }
}

async fn deliveries(session: &Session) -> Result<Finding> {
    let row = session.client.query_opt(DUE, &[]).await?;
    let late = row.map(|row| Ok::<_, tokio_postgres::Error>((row.try_get(0)?, row.try_get(1)?)));
    Ok(judge_deliveries(late.transpose()?))
}

/// `oldest` is the partition of the queue that has been due for longest, and for how many seconds.
fn judge_deliveries(oldest: Option<(i16, i64)>) -> Finding {
    let check = "lag.deliveries";
    let Some((partition, late)) = oldest.filter(|(_, late)| *late >= LATE_SECONDS) else {
        return Finding::ok(check, "no delivery is due");
    };
    let found = format!("a delivery of partition {partition} has been due for {late} s");
    let advice =
        "start a gateway without --no-webhooks, or look for `webhook.` in the log of the partition's leader";
    if late >= VERY_LATE_SECONDS {
        Finding::failed(check, found, advice)
    } else {
        Finding::warning(check, found, advice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict;

    #[test]
    fn a_lag_is_judged_by_the_age_of_what_was_not_seen() {
        let behind = |age_seconds| Behind { who: "plans", events: 7, age_seconds };
        let verdict = |behind: &[Behind]| judge("lag.read_models", behind, "").verdict;
        assert_eq!(verdict(&[]), Verdict::Ok);
        assert_eq!(verdict(&[behind(3)]), Verdict::Warning);
        assert_eq!(verdict(&[behind(3), behind(FAILURE_SECONDS)]), Verdict::Failed);
        let found = judge("lag.read_models", &[behind(3)], "").found;
        assert_eq!(found, "plans is 7 events behind, the oldest of them recorded 3 s ago");
    }

    #[test]
    fn a_delivery_that_is_due_and_not_made_is_late() {
        assert_eq!(judge_deliveries(None).verdict, Verdict::Ok);
        assert_eq!(judge_deliveries(Some((3, -600))).verdict, Verdict::Ok, "it is to be tried again later");
        assert_eq!(judge_deliveries(Some((3, LATE_SECONDS))).verdict, Verdict::Warning);
        assert_eq!(judge_deliveries(Some((3, VERY_LATE_SECONDS))).verdict, Verdict::Failed);
    }
}
