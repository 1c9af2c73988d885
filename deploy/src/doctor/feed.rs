//! The feed: the streams of the partitions, how they are stored, and how far the relay has published the log.

use std::time::{Duration, Instant};

use async_nats::jetstream::stream::{
    Config, DiscardPolicy, Info, RawMessageErrorKind, RetentionPolicy, StorageType,
};
use async_nats::jetstream::{self, ErrorCode, context::GetStreamErrorKind};
use farthing_core::partition::{Partition, Partitions};
use farthing_log::nats_names::NatsNames;
use farthing_log::positions::Positions;
use farthing_log::relay::{COUNT_HEADER, POSITION_HEADER};

use super::finding::Finding;
use super::lag;
use super::nats::{Nats, NoAnswer};
use super::session::Session;

/// How long the relay may take for the events that were in the log when the check began.
const PATIENCE: Duration = Duration::from_secs(2);

/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(100);

/// The age in seconds of an unpublished event from which a lag is a failure.
const FAILURE_SECONDS: i64 = 60;

/// A stream as it was found; `None` if it does not exist.
pub(super) type Stream = (Partition, Option<Info>);

/// Checks the feed, whose `streams` were found, of a log whose heads were at `heads` before.
pub(super) async fn check(
    nats: &Nats,
    session: Option<&Session>,
    names: &NatsNames,
    streams: Result<Vec<Stream>, NoAnswer>,
    replicas: usize,
    heads: &Positions,
) -> Vec<Finding> {
    let streams = match streams {
        Ok(streams) => streams,
        Err(error) => {
            return vec![error.finding("feed.streams", "look at the state of the NATS servers")];
        }
    };
    vec![
        judge_streams(&streams, names),
        judge_replicas(&streams, replicas),
        relay_lag(nats, session, names, heads).await,
    ]
}

/// The streams of the partitions, as they are found within the limit of a check.
pub(super) async fn streams(
    nats: &Nats,
    names: &NatsNames,
    partitions: Partitions,
) -> Result<Vec<Stream>, NoAnswer> {
    let context = jetstream::new(nats.client.clone());
    let until = tokio::time::Instant::now() + nats.limit;
    let mut streams = Vec::new();
    for partition in partitions.all() {
        let name = names.stream(partition);
        let failed = |error: &dyn std::fmt::Display| {
            NoAnswer::Failed(format!("the stream {name} cannot be looked at: {error}"))
        };
        let subject = format!("$JS.API.STREAM.INFO.{name}");
        let found = tokio::time::timeout_at(until, nats.ask(&subject, context.get_stream(&name))).await;
        let info = match found.map_err(|_| {
            failed(&format!("no answer within the {} s that all streams have", nats.limit.as_secs()))
        })?? {
            Ok(stream) => Some(stream.cached_info().clone()),
            Err(error) => match error.kind() {
                GetStreamErrorKind::JetStream(reported)
                    if reported.error_code() == ErrorCode::STREAM_NOT_FOUND =>
                {
                    None
                }
                _ => return Err(failed(&error)),
            },
        };
        streams.push((partition, info));
    }
    Ok(streams)
}

/// The partitions without a stream.
pub(super) fn missing(streams: &[Stream]) -> Vec<Partition> {
    streams.iter().filter(|(_, info)| info.is_none()).map(|(partition, _)| *partition).collect()
}

fn judge_streams(streams: &[Stream], names: &NatsNames) -> Finding {
    let check = "feed.streams";
    let missing: Vec<_> = missing(streams).into_iter().map(|partition| names.stream(partition)).collect();
    if !missing.is_empty() {
        let found = format!("streams are missing: {}", missing.join(", "));
        let advice =
            "start a projector with --nats-url (and --nats-prefix): it creates them and publishes the log";
        return Finding::failed(check, found, advice);
    }
    let mut wrong = Vec::new();
    for (partition, info) in streams {
        if let Some(info) = info
            && let Some(difference) = difference(&info.config, &names.subject(*partition))
        {
            wrong.push(format!("{} {difference}", names.stream(*partition)));
        }
    }
    if wrong.is_empty() {
        return Finding::ok(check, format!("{} streams, stored in files and without limits", streams.len()));
    }
    let advice =
        "delete the stream: the projector creates it anew and publishes the log; its consumers start again";
    Finding::failed(check, wrong.join("; "), advice)
}

/// How a stream differs from what the relay creates, where it matters: it must take each event of its partition, and keep
/// it.
fn difference(config: &Config, subject: &str) -> Option<String> {
    let limits = [config.max_bytes, config.max_messages, config.max_messages_per_subject];
    if config.subjects != [subject] {
        Some(format!("has the subjects {:?}, not {subject}", config.subjects))
    } else if limits.iter().any(|limit| *limit > 0) || !config.max_age.is_zero() {
        let dropped = match config.discard {
            DiscardPolicy::Old => "drops its oldest messages",
            DiscardPolicy::New => "refuses new messages",
        };
        Some(format!("has a limit, and {dropped} beyond it"))
    } else if config.retention != RetentionPolicy::Limits {
        Some("drops messages that were read".to_owned())
    } else if config.storage != StorageType::File {
        Some("is stored in memory".to_owned())
    } else if config.sealed {
        Some("is sealed".to_owned())
    } else {
        None
    }
}

fn judge_replicas(streams: &[Stream], wanted: usize) -> Finding {
    let check = "feed.replicas";
    let mut wrong = Vec::new();
    let mut behind = Vec::new();
    for info in streams.iter().filter_map(|(_, info)| info.as_ref()) {
        let (name, replicas) = (&info.config.name, info.config.num_replicas);
        if replicas != wanted {
            wrong.push(format!("{name} has {replicas}"));
        }
        let cluster = info.cluster.iter().flat_map(|cluster| &cluster.replicas);
        let away: Vec<_> =
            cluster.filter(|peer| peer.offline || !peer.current).map(|peer| peer.name.as_str()).collect();
        if !away.is_empty() {
            behind.push(format!("{name} at {}", away.join(", ")));
        }
    }
    if !wrong.is_empty() {
        let found = format!("replicas differ from --feed-replicas={wanted}: {}", wrong.join(", "));
        let advice = "give the doctor and the projector the same number; more than 1 needs a NATS cluster";
        return Finding::warning(check, found, advice);
    }
    if !behind.is_empty() {
        let found = format!("replicas are away or behind: {}", behind.join("; "));
        return Finding::warning(check, found, "look at the NATS servers that are named");
    }
    if wanted == 1 {
        return Finding::ok(
            check,
            "1 replica of each stream: the loss of its server is made good from the log",
        );
    }
    Finding::ok(check, format!("{wanted} replicas of each stream, all up to date"))
}

/// Waits until the relay has published what was in the log, for a moment.
async fn relay_lag(nats: &Nats, session: Option<&Session>, names: &NatsNames, heads: &Positions) -> Finding {
    let check = "lag.relay";
    let until = Instant::now() + PATIENCE;
    let published = loop {
        let seen = tokio::time::timeout(nats.limit, published(nats, names, heads)).await;
        match seen.unwrap_or_else(|_| Err(NoAnswer::Failed("NATS did not answer in time".to_owned()))) {
            Ok(seen) if Instant::now() >= until || heads.events_after(&seen) == 0 => break seen,
            Ok(_) => tokio::time::sleep(PAUSE).await,
            Err(error) => {
                return error.finding(check, "look at the streams, and at the log of the projectors");
            }
        }
    };
    let behind = heads.events_after(&published);
    let mut age_seconds = 0;
    for (partition, head) in heads.iter() {
        let seen = published.get(partition);
        if let Some(session) = session
            && seen < head
        {
            age_seconds = age_seconds.max(lag::age(session, partition, seen).await.unwrap_or_default());
        }
    }
    judge_lag(behind, age_seconds)
}

fn judge_lag(behind: i64, age_seconds: i64) -> Finding {
    let check = "lag.relay";
    if behind == 0 {
        return Finding::ok(check, "up to date");
    }
    let found =
        format!("the feed is {behind} events behind, the oldest of them recorded {age_seconds} s ago");
    let advice = "look for `relay.` in the log of the projectors";
    if age_seconds >= FAILURE_SECONDS {
        Finding::failed(check, found, advice)
    } else {
        Finding::warning(check, found, advice)
    }
}

/// The position up to which each stream has the log.
async fn published(nats: &Nats, names: &NatsNames, heads: &Positions) -> Result<Positions, NoAnswer> {
    let context = jetstream::new(nats.client.clone());
    let mut published = Positions::default();
    for (partition, _) in heads.iter().filter(|(_, head)| *head > 0) {
        let name = names.stream(partition);
        let failed = |error: &dyn std::fmt::Display| {
            NoAnswer::Failed(format!("the stream {name} cannot be read: {error}"))
        };
        let of = |request: &str| format!("$JS.API.STREAM.{request}.{name}");
        let stream = match nats.ask(&of("INFO"), context.get_stream(&name)).await? {
            Ok(stream) => stream,
            Err(error) => match error.kind() {
                GetStreamErrorKind::JetStream(reported)
                    if reported.error_code() == ErrorCode::STREAM_NOT_FOUND =>
                {
                    continue;
                }
                _ => return Err(failed(&error)),
            },
        };
        let last = stream.cached_info().state.last_sequence;
        if last == 0 {
            continue;
        }
        let message = match nats.ask(&of("MSG.GET"), stream.get_raw_message(last)).await? {
            Ok(message) => message,
            Err(error) if matches!(error.kind(), RawMessageErrorKind::NoMessageFound) => continue,
            Err(error) => return Err(failed(&error)),
        };
        let number = |header| message.headers.get(header)?.as_str().parse::<i64>().ok();
        if let (Some(first), Some(count)) = (number(POSITION_HEADER), number(COUNT_HEADER)) {
            published.set(partition, first + count - 1);
        }
    }
    Ok(published)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict;

    fn as_created() -> Config {
        Config {
            name: "LEDGER-0".to_owned(),
            subjects: vec!["ledger.0".to_owned()],
            max_bytes: -1,
            max_messages: -1,
            max_messages_per_subject: -1,
            ..Config::default()
        }
    }

    #[test]
    fn a_stream_takes_each_event_and_keeps_it() {
        assert_eq!(difference(&as_created(), "ledger.0"), None);
        for (config, said) in [
            (Config { subjects: vec!["other".to_owned()], ..as_created() }, "has the subjects [\"other\"]"),
            (Config { max_bytes: 1_000, ..as_created() }, "drops its oldest"),
            (
                Config { max_messages: 9, discard: DiscardPolicy::New, ..as_created() },
                "refuses new messages beyond it",
            ),
            (Config { max_age: Duration::from_mins(1), ..as_created() }, "has a limit"),
            (
                Config { retention: RetentionPolicy::WorkQueue, ..as_created() },
                "drops messages that were read",
            ),
            (Config { storage: StorageType::Memory, ..as_created() }, "is stored in memory"),
            (Config { sealed: true, ..as_created() }, "is sealed"),
        ] {
            let difference = difference(&config, "ledger.0").unwrap();
            assert!(difference.contains(said), "{difference}");
        }
    }

    #[test]
    fn a_missing_stream_is_named() {
        let found = judge_streams(&[(Partition::new(3), None)], &NatsNames::default());
        assert_eq!((found.verdict, found.found.as_str()), (Verdict::Failed, "streams are missing: LEDGER-3"));
    }

    #[test]
    fn a_lag_of_the_feed_is_judged_by_its_age() {
        assert_eq!(judge_lag(0, 0).verdict, Verdict::Ok);
        assert_eq!(judge_lag(3, 1).verdict, Verdict::Warning);
        assert_eq!(judge_lag(3, FAILURE_SECONDS).verdict, Verdict::Failed);
    }
}
