//! NATS servers with one fault each, and streams that are not as the relay creates them.

use async_nats::jetstream;
use async_nats::jetstream::stream::{Config, DiscardPolicy, StorageType};
use farthing_tests::instance::Instance;
use farthing_tests::nats_server::NatsServer;
use farthing_tests::run;
use farthing_tests::wait::eventually_ok;

use super::{doctor, migrated};

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
                { user: mute, password: secret, permissions: { publish: { deny: \"$JS.API.STREAM.INFO.*\" } } }] }
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
        report("mute:secret").await.expect("feed.streams", "failed", "cannot be looked at");
        report("well:wrong").await.expect("nats.reached", "failed", "uthorization");
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
