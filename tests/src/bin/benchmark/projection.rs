//! Projection: the lag of the read models and the feed, and how fast they catch up.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use farthing_tests::feed;
use farthing_tests::instance::Instance;
use farthing_tests::log::Log;
use farthing_tests::wait::within;

use crate::latency::per_second;

const READ_MODELS: [&str; 12] = [
    "customers",
    "connections",
    "meters",
    "spend_keys",
    "secret_keys",
    "requests",
    "usage",
    "payment_methods",
    "checkout_sessions",
    "plans",
    "subscriptions",
    "entries",
];

/// The sum of the positions up to which a read model is shown: its checkpoint, or the end of the idle span around it.
const SHOWN: &str = "\
SELECT sum(CASE WHEN s.starts_after <= c.position THEN greatest(c.position, s.ends_at) ELSE c.position END)::bigint
FROM {model}.checkpoint AS c
LEFT JOIN ledger.idle_spans AS s ON s.partition = c.partition AND s.read_model = '{model}'";

/// The timeout for catching up.
const CATCH_UP_TIMEOUT: Duration = Duration::from_mins(10);

async fn position_of(log: &Log, model: &str) -> i64 {
    log.sql.query_one(&SHOWN.replace("{model}", model), &[]).await.expect("a checkpoint").get(0)
}

async fn slowest(log: &Log) -> i64 {
    let mut slowest = i64::MAX;
    for model in READ_MODELS {
        slowest = slowest.min(position_of(log, model).await);
    }
    slowest
}

/// The events that the slowest read model has not applied, and the time until it has.
pub(crate) async fn lag(instance: &Instance) -> String {
    let log = instance.log().await;
    let start = Instant::now();
    let head = log.head().await;
    // A read model moves past events that change none of its rows with a delay; only requests apply all events of a call.
    let behind = head - position_of(&log, "requests").await;
    within(CATCH_UP_TIMEOUT, "the requests are all shown", async || {
        (position_of(&log, "requests").await >= head).then_some(())
    })
    .await;
    format!("{behind}, {} ms", start.elapsed().as_millis())
}

/// Measures how fast a paused projector catches up.
pub(crate) async fn catch_up(instance: &Instance) -> String {
    let log = instance.log().await;
    let (start, head) = (Instant::now(), log.head().await);
    let from = slowest(&log).await;
    let partitions =
        log.heads().await.into_iter().filter(|head| head.position > 0).map(|head| head.partition);
    let partitions: Vec<_> = partitions.collect();
    let published = async || {
        let mut published = 0;
        for partition in &partitions {
            published += feed::end(&feed::stream_of(instance, *partition).await?).await?;
        }
        Some(published)
    };
    let published_before = published().await.unwrap_or(0);
    let mut read_models = None;
    let mut feed = None;
    within(CATCH_UP_TIMEOUT, "the projector and the relay catch up", async || {
        if read_models.is_none() && slowest(&log).await >= head {
            read_models = Some(start.elapsed());
        }
        if feed.is_none() && published().await.is_some_and(|position| position >= head) {
            feed = Some(start.elapsed());
        }
        read_models.zip(feed)
    })
    .await;
    let mut text =
        "## Catching up\n\nThe projector process, paused while the appends were measured, goes on: all read \
        models and the relay at the same time.\n\n| | events | seconds | events/s |\n|---|---|---|---|\n"
            .to_owned();
    for (what, before, time) in [
        ("all read models", from, read_models.unwrap_or_default()),
        ("relay to JetStream", published_before, feed.unwrap_or_default()),
    ] {
        text.push_str(&row(what, u64::try_from(head - before).unwrap_or(0), time));
    }
    text
}

/// Rebuilds the requests from the first event, compares and swaps.
pub(crate) async fn rebuild(instance: &Instance) -> String {
    let mut text =
        "## Rebuilding\n\n`farthing projections rebuild NAME`: from the first event to the swap, comparison \
        included.\n\n| read model | events | seconds | events/s |\n|---|---|---|---|\n"
            .to_owned();
    for name in READ_MODELS {
        let start = Instant::now();
        let report = instance.operate(&["projections", "rebuild", name]).await;
        assert_eq!(report["differences"], 0, "{report}");
        text.push_str(&row(name, report["events"].as_u64().unwrap_or(0), start.elapsed()));
    }
    text
}

fn row(what: &str, events: u64, time: Duration) -> String {
    let mut row = String::new();
    let tenths = time.as_millis() / 100;
    let _ = writeln!(
        row,
        "| {what} | {events} | {}.{} | {} |",
        tenths / 10,
        tenths % 10,
        per_second(events, time)
    );
    row
}
