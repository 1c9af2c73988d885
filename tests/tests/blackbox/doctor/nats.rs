//! NATS servers with one fault each, and streams that are not as the relay creates them.

use std::net::SocketAddr;

use async_nats::ConnectOptions;
use async_nats::jetstream::stream::{Config, DiscardPolicy, StorageType};
use async_nats::jetstream::{self, Context};
use farthing_tests::instance::Instance;
use farthing_tests::nats_server::NatsServer;
use farthing_tests::run;
use farthing_tests::wait::eventually_ok;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;

use super::{doctor, migrated};

/// The part of docs/running.md that gives each role its login at NATS, with the password `secret`, for names that begin
/// with `prefix`.
pub(super) fn documented_logins(prefix: &str) -> String {
    let page = include_str!("../../../../docs/running.md");
    let block = page.split("```").find(|block| block.trim_start().starts_with("authorization {"));
    let logins = block.expect("the page gives the logins").replace("\"…\"", "secret");
    let prefixed = ["farthing.head.", "ledger."].iter().fold(logins.clone(), |logins, name| {
        logins.replace(&format!("\"{name}"), &format!("\"{prefix}.{name}"))
    });
    assert_ne!(prefixed, logins, "the names have no prefix there");
    prefixed
}

#[test]
fn a_server_that_takes_small_messages_alone_fails() {
    run(async {
        let instance = Instance::shared().await;
        let database_url = migrated(instance, "doctor_payload").await;
        for (bytes, verdict) in [(65_536, "failed"), (600_000, "warning"), (1_048_576, "ok")] {
            let nats = NatsServer::start(instance, &format!("max_payload: {bytes}")).await;
            let report =
                doctor(&database_url, &[&format!("--nats-url=nats://127.0.0.1:{}", nats.port)]).await;
            report.expect("nats.max_payload", verdict, "a message has up to");
            report.expect("nats.version", "ok", "nats-server 2.");
        }
    });
}

#[test]
fn a_login_without_jetstream_or_with_too_little_of_it_fails() {
    run(async {
        let instance = Instance::shared().await;
        let database_url = migrated(instance, "doctor_jetstream").await;
        let accounts = "accounts {
            WITHOUT { users: [{ user: without, password: secret }] }
            FEW { jetstream { max_streams: 7 }, users: [{ user: few, password: secret }] }
            WELL { jetstream: enabled, users: [{ user: well, password: secret }] }
            MUTE { jetstream: enabled, users: [
                { user: mute, password: secret, permissions: { publish: { deny: \"$JS.API.STREAM.INFO.*\" } } },
                { user: deaf, password: secret, permissions: { subscribe: { deny: \"_INBOX.>\" } } }] }
        }";
        let nats = NatsServer::start(instance, accounts).await;
        let report = async |login: &str| {
            let url = format!("--nats-url=nats://{login}@127.0.0.1:{}", nats.port);
            let report = doctor(&database_url, &[&url, "--timeout-seconds=4"]).await;
            assert!(!report.json.to_string().contains("secret"), "{}", report.json);
            report
        };
        let without = report("without:secret").await;
        without.expect("nats.jetstream", "failed", "account has no JetStream");
        without.expect("nats.limits", "skipped", "see nats.jetstream");
        report("few:secret").await.expect("nats.limits", "failed", "the account allows 7 streams");
        let well = report("well:secret").await;
        well.expect("nats.jetstream", "ok", "");
        well.expect("nats.limits", "ok", "the account has no limit");
        let mute = report("mute:secret").await;
        mute.expect("nats.jetstream", "ok", "");
        mute.expect("feed.streams", "skipped", "may not publish to `$JS.API.STREAM.INFO.LEDGER-0`");
        let deaf = report("deaf:secret").await;
        deaf.expect("nats.jetstream", "skipped", "may not subscribe to `_INBOX.>`");
        deaf.expect("feed.streams", "skipped", "may not subscribe to `_INBOX.>`");
        report("well:wrong").await.expect("nats.reached", "failed", "uthorization");
    });
}

async fn connected(nats: &NatsServer, user: &str, password: &str) -> Context {
    let options = ConnectOptions::with_user_and_password(user.to_owned(), password.to_owned());
    jetstream::new(options.connect(format!("127.0.0.1:{}", nats.port)).await.unwrap())
}

/// The bytes of an account's space that a test fills.
const SPACE: usize = 1024 * 1024;

#[test]
fn an_account_whose_space_is_nearly_used_is_a_warning_and_then_fails() {
    run(async {
        let instance = Instance::shared().await;
        let database_url = migrated(instance, "doctor_space").await;
        let account = format!(
            "accounts {{ LITTLE {{ jetstream {{ max_file: {SPACE} }}, users: [{{ user: little, password: secret }}] }} }}"
        );
        let nats = NatsServer::start(instance, &account).await;
        let url = format!("--nats-url=nats://little:secret@127.0.0.1:{}", nats.port);
        let context = connected(&nats, "little", "secret").await;
        let config = Config { name: "filling".to_owned(), ..Config::default() };
        context.create_stream(config).await.unwrap();
        let part = vec![0_u8; SPACE / 100];
        let mut filled = 0;
        for (percent, verdict) in [(50, "ok"), (88, "warning"), (97, "failed")] {
            for _ in filled..percent {
                context.publish("filling", part.clone().into()).await.unwrap().await.unwrap();
            }
            filled = percent;
            let report = doctor(&database_url, &[&url]).await;
            report.expect("nats.limits", verdict, "1 streams take");
            report.expect("nats.limits", verdict, "of 1024 KiB");
        }
    });
}

#[test]
fn an_account_whose_streams_are_used_up_by_others_fails_until_all_streams_of_the_feed_exist() {
    run(async {
        let instance = Instance::shared().await;
        let database_url = migrated(instance, "doctor_used_up").await;
        let limit = |streams: u8| {
            format!(
                "accounts {{ SHARED {{ jetstream {{ max_streams: {streams} }}, users: [{{ user: u, password: p }}] }} }}"
            )
        };
        // The feed has eight streams, others have two.
        for (allowed, verdict, said) in [
            (9, "failed", "the account allows 9 streams, and the feed needs 8 more"),
            (10, "ok", "2 streams take"),
        ] {
            let nats = NatsServer::start(instance, &limit(allowed)).await;
            let context = connected(&nats, "u", "p").await;
            let named =
                |name: String, subject: String| Config { name, subjects: vec![subject], ..Config::default() };
            for other in ["first", "second"] {
                context.create_stream(named(other.to_owned(), other.to_owned())).await.unwrap();
            }
            let url = format!("--nats-url=nats://u:p@127.0.0.1:{}", nats.port);
            let flags = [url.as_str(), "--nats-prefix=doctor"];
            doctor(&database_url, &flags).await.expect("nats.limits", verdict, said);
            if verdict == "ok" {
                for partition in 0..8 {
                    let stream = (format!("doctor-LEDGER-{partition}"), format!("doctor.ledger.{partition}"));
                    context.create_stream(named(stream.0, stream.1)).await.unwrap();
                }
                doctor(&database_url, &flags).await.expect("nats.limits", "ok", "10 streams take");
            }
        }
    });
}

#[test]
fn streams_that_are_not_as_the_relay_creates_them_fail() {
    run(async {
        let instance = Instance::shared().await;
        let database_url = migrated(instance, "doctor_streams").await;
        let nats = NatsServer::start(instance, "").await;
        let url = format!("nats://127.0.0.1:{}", nats.port);
        let context = jetstream::new(async_nats::connect(&url).await.unwrap());
        let as_created = |partition: u8| Config {
            name: format!("doctor-LEDGER-{partition}"),
            subjects: vec![format!("doctor.ledger.{partition}")],
            ..Config::default()
        };
        let flags = [format!("--nats-url={url}"), "--nats-prefix=doctor".to_owned()];
        let report = async || doctor(&database_url, &flags.each_ref().map(String::as_str)).await;
        for partition in 0..7 {
            context.create_stream(as_created(partition)).await.unwrap();
        }
        report().await.expect("feed.streams", "failed", "streams are missing: doctor-LEDGER-7");
        for (config, said) in [
            (Config { subjects: vec!["other".to_owned()], ..as_created(7) }, "has the subjects [\"other\"]"),
            (Config { storage: StorageType::Memory, ..as_created(7) }, "is stored in memory"),
            (
                Config { max_bytes: 1_000, discard: DiscardPolicy::New, ..as_created(7) },
                "refuses new messages beyond it",
            ),
        ] {
            context.create_stream(config).await.unwrap();
            report().await.expect("feed.streams", "failed", said);
            context.delete_stream("doctor-LEDGER-7").await.unwrap();
        }
        context.create_stream(as_created(7)).await.unwrap();
        report().await.expect("feed.streams", "ok", "8 streams");
    });
}

#[test]
fn replicas_at_a_server_of_a_cluster_that_is_away_are_a_warning() {
    run(async {
        let instance = Instance::shared().await;
        let database_url = migrated(instance, "doctor_replicas").await;
        let [first, second, third] = NatsServer::start_cluster(instance, ["first", "second", "third"]).await;
        let urls = format!("nats://127.0.0.1:{},nats://127.0.0.1:{}", first.port, second.port);
        let client = eventually_ok("the cluster takes connections", async || {
            async_nats::connect(urls.split(',').collect::<Vec<_>>()).await.map_err(|error| error.to_string())
        })
        .await;
        let context = jetstream::new(client);
        for partition in 0..8 {
            let config = Config {
                name: format!("doctor-LEDGER-{partition}"),
                subjects: vec![format!("doctor.ledger.{partition}")],
                num_replicas: 3,
                ..Config::default()
            };
            // At first the cluster has no leader.
            eventually_ok("a stream is made", async || {
                context.create_stream(config.clone()).await.map(drop).map_err(|error| error.to_string())
            })
            .await;
        }
        let flags =
            [format!("--nats-url={urls}"), "--nats-prefix=doctor".to_owned(), "--feed-replicas=3".to_owned()];
        let until = async |what: &str, verdict: &str, said: &[String]| {
            eventually_ok(what, async || {
                let report = doctor(&database_url, &flags.each_ref().map(String::as_str)).await;
                let (found, shown) = report.of("feed.replicas");
                let is_so = found == verdict && said.iter().all(|said| shown.contains(said));
                if is_so { Ok(report) } else { Err(report.json.to_string()) }
            })
            .await
        };
        until("all are there", "ok", &["3 replicas of each stream, all up to date".to_owned()]).await;
        drop(third);
        let each = (0..8).map(|partition| format!("doctor-LEDGER-{partition} at third"));
        let away = until("the third is missed", "warning", &each.collect::<Vec<_>>()).await;
        away.expect("feed.streams", "ok", "8 streams");
    });
}

/// Greets as a nats-server of this version. It is a STAND-IN: no such release is in a registry, and what the doctor reads of a
/// server's version is this line alone. Of everything else it answers only pings.
async fn stand_in_of_version(version: &str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let info = json!({"server_id": "STAND-IN", "server_name": "stand-in", "version": version, "go": "", "proto": 1,
        "host": "127.0.0.1", "port": address.port(), "headers": true, "jetstream": true, "max_payload": 1_048_576});
    let greeting = format!("INFO {info}\r\n");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let greeting = greeting.clone();
            tokio::spawn(async move {
                let (read, mut write) = stream.into_split();
                write.write_all(greeting.as_bytes()).await?;
                let mut lines = BufReader::new(read).lines();
                while let Some(line) = lines.next_line().await? {
                    if line.starts_with("PING") {
                        write.write_all(b"PONG\r\n").await?;
                    }
                }
                std::io::Result::Ok(())
            });
        }
    });
    address
}

#[test]
fn a_nats_server_before_2_9_fails_and_one_of_an_unknown_version_is_a_warning() {
    run(async {
        let instance = Instance::shared().await;
        let database_url = migrated(instance, "doctor_nats_version").await;
        for (version, verdict, said) in [
            ("2.8.4", "failed", "nats-server 2.8.4"),
            ("1.4.1", "failed", "nats-server 1.4.1"),
            ("built-by-hand", "warning", "nats-server built-by-hand: an unknown version"),
            ("2.9.0", "ok", "nats-server 2.9.0"),
        ] {
            let stand_in = stand_in_of_version(version).await;
            let url = format!("--nats-url=nats://{stand_in}");
            let report = doctor(&database_url, &[&url, "--timeout-seconds=4"]).await;
            report.expect("nats.reached", "ok", "");
            report.expect("nats.version", verdict, said);
            report.expect("nats.jetstream", "failed", "may not use it");
        }
    });
}
