//! The NATS server: its version, JetStream, limits and TLS.

use std::future::pending;
use std::time::Duration;

use async_nats::jetstream;
use async_nats::jetstream::response::Response;
use async_nats::{Client, Event, ServerError, ServerInfo};
use chrono::Utc;
use farthing_log::nats::NatsConfig;
use farthing_log::nats_greeting::{self, Greeting};
use serde::Deserialize;
use tokio::sync::watch;

use super::disk::bytes;
use super::finding::Finding;
use super::session::is_loopback;
use super::tls::{Link, Names, Verified, Whose, judge_certificates, judge_link, of_authorities, of_file};

/// How an operator sees the connection.
const NAME: &str = "farthing doctor";

/// The oldest version that Farthing works with.
const OLDEST: (u32, u32) = (2, 9);

/// A message of the feed that carries several record batches has up to this many bytes.
const MESSAGE_OF_FEED: usize = 512 * 1_024;
/// The default of the server. An event with thousands of bundles needs that much.
const USUAL_PAYLOAD: usize = 1_024 * 1_024;

/// The part of the space of an account, in percent, from which there is a warning, and a failure.
const WARNING_PERCENT: i128 = 85;
const FAILURE_PERCENT: i128 = 95;

const TLS: Names = Names {
    encryption: "nats.tls",
    certificate: "nats.certificate",
    advice: "use `tls://` in the URL of NATS, with --nats-ca-file for an authority of your own",
};

/// An account at JetStream. The client's own type refuses the answers of nats-server 2.9, which lack some fields.
#[derive(Debug, Default, Deserialize)]
struct Account {
    /// Bytes in files.
    #[serde(default)]
    storage: u64,
    #[serde(default)]
    streams: usize,
    #[serde(default)]
    limits: Limits,
    /// Limits for each number of replicas, in place of `limits`.
    #[serde(default)]
    tiers: serde_json::Map<String, serde_json::Value>,
}

/// Limits of an account; below zero without one.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(default)]
struct Limits {
    max_storage: i64,
    max_streams: i64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_storage: -1, max_streams: -1 }
    }
}

/// Whether the server took the login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reached {
    Yes,
    No,
}

/// Why a request got no answer. The texts are for people.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// The login may not make it, or may not get the answer.
    Denied(String),
    /// Anything else.
    Failed(String),
}

impl NoAnswer {
    /// The finding of a check that needs the answer.
    pub(super) fn finding(self, check: &'static str, advice: &str) -> Finding {
        match self {
            Self::Denied(reason) => Finding::skipped(check, reason),
            Self::Failed(found) => Finding::failed(check, found, advice),
        }
    }
}

/// A connection to NATS.
pub(super) struct Nats {
    pub(super) client: Client,
    pub(super) limit: Duration,
    /// What the server has reported so far as not allowed to the login.
    denials: watch::Receiver<Vec<String>>,
}

impl Nats {
    /// Connects. The error is for people.
    pub(super) async fn open(config: &NatsConfig, limit: Duration) -> Result<Self, String> {
        let (sender, denials) = watch::channel(Vec::new());
        let connecting = config.connect(|options| {
            let options = options.name(NAME).connection_timeout(limit).request_timeout(Some(limit));
            options.event_callback(move |event| {
                if let Event::ServerError(ServerError::Other(text)) = event {
                    sender.send_modify(|denials| denials.push(text));
                }
                async {}
            })
        });
        match tokio::time::timeout(limit, connecting).await {
            Ok(Ok(client)) => Ok(Self { client, limit, denials }),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no answer within {} s", limit.as_secs())),
        }
    }

    /// Waits for the `answer` to a request to `subject`. A server does not answer a request that the login may not make: it
    /// reports that apart.
    pub(super) async fn ask<T>(&self, subject: &str, answer: impl Future<Output = T>) -> Result<T, NoAnswer> {
        let mut denials = self.denials.clone();
        let denial = async {
            let reported = denials.wait_for(|reported| denied(reported, subject).is_some()).await;
            match reported.ok().and_then(|reported| denied(&reported, subject)) {
                Some(what) => what,
                // The connection has ended.
                None => pending().await,
            }
        };
        tokio::select! {
            answer = answer => Ok(answer),
            what = denial => {
                let reason = format!("this login may not {what}. A gateway's need not, a projector's must");
                Err(NoAnswer::Denied(reason))
            }
        }
    }
}

/// What the login may not do of a request to `subject`, by what the server `reported`.
fn denied(reported: &[String], subject: &str) -> Option<String> {
    let publish = format!("permissions violation for publish to \"{subject}\"").to_ascii_lowercase();
    let replies = "permissions violation for subscription to \"_inbox.";
    reported.iter().find_map(|text| {
        let text = text.to_ascii_lowercase();
        if text.starts_with(&publish) {
            Some(format!("publish to `{subject}`"))
        } else {
            text.starts_with(replies).then(|| "subscribe to `_INBOX.>`".to_owned())
        }
    })
}

/// Checks the server. The feed has yet to create so many streams, if that is known.
pub(super) async fn check(nats: &Nats, missing_streams: Option<usize>) -> Vec<Finding> {
    let info = nats.client.server_info();
    let account = account(nats).await;
    let mut findings = vec![
        judge_version(&info.version),
        judge_payload(info.max_payload),
        judge_jetstream(&info, account.as_ref().err()),
    ];
    if let Ok(account) = &account {
        findings.push(judge_limits(account, missing_streams));
    }
    findings
}

/// Asks what the login's account has of JetStream.
async fn account(nats: &Nats) -> Result<Account, NoAnswer> {
    let context = jetstream::new(nats.client.clone());
    let answer = nats.ask("$JS.API.INFO", context.request("INFO", b"")).await?;
    match answer.map_err(|error| NoAnswer::Failed(error.to_string()))? {
        Response::Ok(account) => Ok(account),
        Response::Err { error } => Err(NoAnswer::Failed(error.to_string())),
    }
}

/// Checks the TLS of a connection to `config`, which was `reached` or not.
pub(super) async fn check_tls(config: &NatsConfig, limit: Duration, reached: Reached) -> Vec<Finding> {
    let greeting = match tokio::time::timeout(limit, nats_greeting::read(config)).await {
        Ok(Ok(greeting)) => greeting,
        Ok(Err(error)) => {
            return vec![Finding::failed(TLS.encryption, error.to_string(), "see nats.reached")];
        }
        Err(_) => {
            let found = format!("no answer within {} s", limit.as_secs());
            return vec![Finding::failed(TLS.encryption, found, "see nats.reached")];
        }
    };
    let mut certificates = Vec::new();
    if let Some(shown) = &greeting.certificate {
        certificates.push((Whose::Server, farthing_tls::validity(shown)));
    }
    if let Some((file, _)) = &config.certificate {
        certificates.push((Whose::Client, of_file(file)));
    }
    if let Some(file) = &config.authorities {
        certificates.push((Whose::Authority, of_authorities(file)));
    }
    let mut findings = vec![judge_certificates(TLS, &certificates, Utc::now())];
    // A connection that was refused may have been refused for want of a verified server.
    if reached == Reached::Yes {
        findings.push(judge_link(TLS, link(&greeting)));
    }
    findings
}

/// An encrypted connection to NATS is always verified: there is no setting for less.
fn link(greeting: &Greeting) -> Link {
    let verified = if greeting.encrypted { Verified::Name } else { Verified::Nothing };
    Link { is_encrypted: greeting.encrypted, verified, is_local: is_loopback(&greeting.host) }
}

fn judge_version(version: &str) -> Finding {
    let (check, found) = ("nats.version", format!("nats-server {version}"));
    let mut numbers = version.split(['.', '-']).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= OLDEST => Finding::ok(check, found),
        (Some(Ok(_)), Some(Ok(_))) => Finding::failed(check, found, "upgrade it to 2.9 or newer"),
        _ => Finding::warning(check, format!("{found}: an unknown version"), "use nats-server 2.9 or newer"),
    }
}

fn judge_payload(max_payload: usize) -> Finding {
    let check = "nats.max_payload";
    let found = format!("a message has up to {}", bytes(u64::try_from(max_payload).unwrap_or(u64::MAX)));
    if max_payload < MESSAGE_OF_FEED {
        let advice = "raise `max_payload` to 1 MB, its default: an event that is larger stops its stream";
        Finding::failed(check, found, advice)
    } else if max_payload < USUAL_PAYLOAD {
        let advice = "raise `max_payload` to 1 MB, its default: an event of a customer with thousands of bundles needs it";
        Finding::warning(check, found, advice)
    } else {
        Finding::ok(check, found)
    }
}

fn judge_jetstream(info: &ServerInfo, error: Option<&NoAnswer>) -> Finding {
    let check = "nats.jetstream";
    let Some(error) = error else {
        return Finding::ok(check, "JetStream is on, also for this login's account");
    };
    if !info.jetstream {
        let advice = "start the server with `-js`, or with a `jetstream` block in its configuration";
        return Finding::failed(check, "the server has no JetStream", advice);
    }
    match error {
        NoAnswer::Denied(reason) => Finding::skipped(check, reason),
        NoAnswer::Failed(error) => {
            let found = format!("the login's account has no JetStream, or may not use it: {error}");
            Finding::failed(check, found, "switch it on for the account (`jetstream: enabled`)")
        }
    }
}

/// `missing` is the number of streams that the feed has yet to create, if it is known.
fn judge_limits(account: &Account, missing: Option<usize>) -> Finding {
    let (check, max_storage) = ("nats.limits", account.limits.max_storage);
    if !account.tiers.is_empty() {
        let reason = "the account has limits for each number of replicas: see `nats account info`";
        return Finding::skipped(check, reason);
    }
    let used = i128::from(account.storage);
    let mut found = format!("{} streams take {}", account.streams, bytes(account.storage));
    let Ok(allowed) = u64::try_from(max_storage) else {
        found = format!("{found}; the account has no limit. NATS does not tell the free space of its disk");
        return judge_streams(check, found, account, missing);
    };
    found = format!("{found} of {}", bytes(allowed));
    let advice = "raise the account's limit: the feed needs the space of the log, and stops without it";
    if used * 100 >= i128::from(allowed) * FAILURE_PERCENT {
        return Finding::failed(check, found, advice);
    }
    if used * 100 >= i128::from(allowed) * WARNING_PERCENT {
        return Finding::warning(check, found, advice);
    }
    judge_streams(check, found, account, missing)
}

fn judge_streams(check: &'static str, found: String, account: &Account, missing: Option<usize>) -> Finding {
    let (Ok(allowed), Some(missing @ 1..)) = (usize::try_from(account.limits.max_streams), missing) else {
        return Finding::ok(check, found);
    };
    if account.streams.saturating_add(missing) <= allowed {
        return Finding::ok(check, found);
    }
    let found = format!("{found}; the account allows {allowed} streams, and the feed needs {missing} more");
    Finding::failed(check, found, "raise the limit: there is a stream for each partition")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict;

    #[test]
    fn the_version_is_compared_by_its_numbers() {
        for (version, verdict) in [
            ("2.9.10", Verdict::Ok),
            ("2.15.1", Verdict::Ok),
            ("3.0.0-preview", Verdict::Ok),
            ("2.8.4", Verdict::Failed),
            ("1.4.1", Verdict::Failed),
            ("dev", Verdict::Warning),
        ] {
            assert_eq!(judge_version(version).verdict, verdict, "{version}");
        }
    }

    #[test]
    fn a_message_of_the_feed_must_fit() {
        assert_eq!(judge_payload(USUAL_PAYLOAD).verdict, Verdict::Ok);
        assert_eq!(judge_payload(600_000).verdict, Verdict::Warning);
        assert_eq!(judge_payload(65_536).verdict, Verdict::Failed);
    }

    #[test]
    fn jetstream_is_on_at_the_server_and_for_the_account() {
        let info = |jetstream| ServerInfo { jetstream, ..ServerInfo::default() };
        assert_eq!(judge_jetstream(&info(true), None).verdict, Verdict::Ok);
        let failed = || NoAnswer::Failed("timed out".to_owned());
        let denied = || NoAnswer::Denied("this login may not".to_owned());
        for error in [failed(), denied()] {
            let off = judge_jetstream(&info(false), Some(&error));
            assert_eq!((off.verdict, off.found.as_str()), (Verdict::Failed, "the server has no JetStream"));
        }
        let not_ours = judge_jetstream(&info(true), Some(&failed()));
        assert_eq!(not_ours.verdict, Verdict::Failed);
        assert!(not_ours.found.contains("account"), "{}", not_ours.found);
        assert_eq!(judge_jetstream(&info(true), Some(&denied())).verdict, Verdict::Skipped);
    }

    #[test]
    fn a_request_is_denied_by_its_subject_or_by_that_of_the_answers() {
        let reported = ["Permissions Violation for Publish to \"$JS.API.INFO\"".to_owned()];
        assert_eq!(denied(&reported, "$JS.API.INFO").unwrap(), "publish to `$JS.API.INFO`");
        assert_eq!(denied(&reported, "$JS.API.STREAM.INFO.LEDGER-0"), None);
        let reported = ["Permissions Violation for Subscription to \"_INBOX.a1.*\"".to_owned()];
        assert_eq!(denied(&reported, "$JS.API.INFO").unwrap(), "subscribe to `_INBOX.>`");
        assert_eq!(denied(&["maximum subscriptions exceeded".to_owned()], "$JS.API.INFO"), None);
    }

    #[test]
    fn the_answer_of_an_old_server_is_read() {
        let answer = r#"{"memory":0,"storage":7,"streams":2,"limits":{"max_memory":-1,"max_storage":-1}}"#;
        let account: Account = serde_json::from_str(answer).unwrap();
        assert_eq!((account.storage, account.streams, account.limits.max_streams), (7, 2, -1));
    }

    #[test]
    fn the_space_and_the_streams_of_the_account_suffice() {
        let account = |storage, max_storage, streams, max_streams| Account {
            storage,
            streams,
            limits: Limits { max_storage, max_streams },
            ..Account::default()
        };
        assert_eq!(judge_limits(&account(1_000, -1, 0, -1), Some(8)).verdict, Verdict::Ok);
        assert_eq!(judge_limits(&account(10, 100, 0, 8), Some(8)).verdict, Verdict::Ok);
        assert_eq!(judge_limits(&account(10, 100, 0, 7), Some(8)).verdict, Verdict::Failed);
        assert_eq!(judge_limits(&account(10, -1, 3, 10), Some(8)).verdict, Verdict::Failed, "others have 3");
        assert_eq!(judge_limits(&account(10, -1, 8, 8), Some(0)).verdict, Verdict::Ok, "all are there");
        assert_eq!(judge_limits(&account(10, -1, 8, 8), None).verdict, Verdict::Ok, "it is not known");
        assert_eq!(judge_limits(&account(84, 100, 0, -1), None).verdict, Verdict::Ok);
        assert_eq!(judge_limits(&account(85, 100, 0, -1), None).verdict, Verdict::Warning);
        assert_eq!(judge_limits(&account(95, 100, 0, -1), None).verdict, Verdict::Failed);
    }
}
