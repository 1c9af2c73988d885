//! The feed is a copy that anyone with rights on NATS can damage. It is restored from the log, and nothing else waits for it.

use async_nats::jetstream;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use farthing_tests::feed;
use farthing_tests::instance::Instance;
use farthing_tests::log::Logged;
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::process::{kill, signal};
use farthing_tests::provider::json;
use farthing_tests::scrape::scrape;
use farthing_tests::servers;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::{eventually_ok, within};
use serde_json::json;

use crate::{HEAL, instance, put_away, run};

/// A merchant with some events on a new instance without further writes, and the whole log, which the feed holds.
async fn at_rest() -> (Merchant, Vec<Logged>) {
    let instance = instance().await;
    let merchant = Merchant::of(instance).await;
    merchant.credit_own("1").await;
    let endpoint = instance.provider.endpoint(|_| json(200, &json!({"usage": {"tokens": 1}})));
    for _ in 0..5 {
        merchant.fetch(&merchant.secret_key, &endpoint.url).await.expect(200);
    }
    let events = merchant.log.after(0).await;
    feed::check(instance, &events).await;
    (merchant, events)
}

#[test]
fn a_deleted_truncated_or_foreign_written_feed_is_restored_without_traffic() {
    run(async {
        let (merchant, _) = at_rest().await;
        let instance = merchant.instance;
        let context = patient(instance).await;

        // The feed held the whole log, so the next event is in a message of its own.
        merchant.credit_own("1").await;
        let events = merchant.log.after(0).await;
        feed::check(instance, &events).await;
        let partition = merchant.partition().await;
        let name = feed::name(instance, partition);
        let stream = context.get_stream(&name).await.unwrap();
        stream.purge().await.expect_err("a purge is refused");
        stream.delete_message(1).await.expect_err("so is the deletion of a message");
        let mut config = stream.get_info().await.unwrap().config;
        config.max_messages = 1;
        context.update_stream(config).await.unwrap();
        feed::check(instance, &events).await;

        context.delete_stream(&name).await.unwrap();
        feed::check(instance, &events).await;
        let state = context.get_stream(&name).await.unwrap().get_info().await.unwrap().state;
        assert_eq!(state.messages, 1, "record batches share a message");

        let last = events.iter().rfind(|event| event.partition == partition).unwrap();
        let (copied, next_number) = (claiming(1, last.position, last), claiming(2, last.position, last));
        for headers in [async_nats::HeaderMap::new(), copied, next_number] {
            let created = context.get_stream(&name).await.unwrap().get_info().await.unwrap().created;
            publish(instance, &context, partition, headers).await;
            within(HEAL, "the feed is created again", async || {
                (feed::stream_of(instance, partition).await?.get_info().await.ok()?.created != created)
                    .then_some(())
            })
            .await;
            feed::check(instance, &events).await;
        }
        assert_eq!(merchant.log.head().await, i64::try_from(events.len()).unwrap(), "the log is unchanged");
        put_away(instance).await;
    });
}

/// The lines of the projector's log with `message`, in order.
fn logged(instance: &Instance, message: &str) -> Vec<String> {
    let log = std::fs::read_to_string(instance.data.join("logs/projector-0.log")).unwrap();
    log.lines().filter(|line| line.contains(message)).map(str::to_owned).collect()
}

#[test]
fn a_stream_that_cannot_be_created_stops_the_feed_of_its_partition_only() {
    const OF_A_PARTITION: &str = "the feed of a partition restarts";
    const OF_ALL: &str = "the relay restarts";
    run(async {
        let (merchant, _) = at_rest().await;
        let instance = merchant.instance;
        let partition = merchant.partition().await;
        let other = within(HEAL, "a merchant in another partition", async || {
            let other = Merchant::of(instance).await;
            (other.partition().await != partition).then_some(other)
        })
        .await;
        other.credit_own("1").await;
        feed::check(instance, &merchant.log.after(0).await).await;
        let context = patient(instance).await;
        let (name, subject) = (feed::name(instance, partition), feed::subject(instance, partition));
        // JetStream refuses a stream whose subject another one has.
        let mut config = context.get_stream(&name).await.unwrap().get_info().await.unwrap().config;
        config.subjects = vec![format!("{subject}.elsewhere")];
        context.update_stream(config).await.unwrap();
        let in_the_way = format!("{name}-in-the-way");
        let config = jetstream::stream::Config {
            name: in_the_way.clone(),
            subjects: vec![subject],
            ..jetstream::stream::Config::default()
        };
        context.create_stream(config).await.unwrap();
        let restarts =
            async || scrape(instance.projector_operator()).await.count("farthing_relay_restarts_total", &[]);
        let before = (logged(instance, OF_ALL), restarts().await);

        context.delete_stream(&name).await.unwrap();
        within(HEAL, "the stream is refused again and again", async || {
            let refused = logged(instance, "JetStream refuses the stream");
            (refused.iter().filter(|line| line.contains(OF_A_PARTITION)).count() >= 3).then_some(())
        })
        .await;
        let deleted = logged(instance, "the stream was deleted");
        assert!(deleted.iter().any(|line| line.contains(OF_A_PARTITION)), "{deleted:?}");
        merchant.credit_own("1").await;
        other.credit_own("1").await;
        let mut events = merchant.log.after(0).await;
        events.retain(|event| event.partition != partition);
        feed::check(instance, &events).await;
        assert!(restarts().await >= before.1 + 3, "an operator sees it");
        assert_eq!(logged(instance, OF_ALL), before.0, "the relay of the other partitions goes on");

        context.delete_stream(&in_the_way).await.unwrap();
        feed::check(instance, &merchant.log.after(0).await).await;
        put_away(instance).await;
    });
}

/// JetStream for an administrator, with a timeout that allows for a busy disk.
async fn patient(instance: &Instance) -> jetstream::Context {
    let mut context = jetstream::new(instance.nats().await);
    context.set_timeout(HEAL);
    context
}

/// Publishes a foreign message to the feed of a partition. It is stored once acknowledged, until the relay sees it.
async fn publish(
    instance: &Instance,
    context: &jetstream::Context,
    partition: i16,
    headers: async_nats::HeaderMap,
) {
    let subject = feed::subject(instance, partition);
    let sent = context.publish_with_headers(subject, headers, "{}".into()).await;
    sent.unwrap().await.unwrap();
}

/// Headers that imitate the relay's, with `number`, a position and the hash of `event`.
fn claiming(number: u64, position: i64, event: &Logged) -> async_nats::HeaderMap {
    let mut headers = async_nats::HeaderMap::new();
    headers.insert("farthing-message", number.to_string());
    headers.insert("farthing-position", position.to_string());
    headers.insert("farthing-count", "1");
    headers.insert("farthing-hashes", BASE64_STANDARD.encode(&event.hash));
    headers
}

#[test]
fn a_feed_that_is_ahead_of_the_log_is_left_to_an_operator() {
    run(async {
        let (merchant, events) = at_rest().await;
        let instance = merchant.instance;
        // As after a failover of Postgres that lost the last event: consumers have seen an event that the log does not have.
        let context = patient(instance).await;
        let partition = merchant.partition().await;
        let last = events.iter().rfind(|event| event.partition == partition).unwrap();
        let before =
            feed::stream_of(instance, partition).await.unwrap().get_info().await.unwrap().state.messages;
        publish(instance, &context, partition, claiming(before + 1, last.position + 1, last)).await;
        let says = format!("the stream's last event, at position {}, is not this log's", last.position + 1);
        within(HEAL, "the relay reports the fork", async || {
            let said = std::fs::read_to_string(instance.data.join("logs/projector-0.log")).ok()?;
            said.contains(&says).then_some(())
        })
        .await;
        merchant.credit_own("1").await;
        merchant.get("/v1/connections").await.expect(200);
        let state = feed::stream_of(instance, partition).await.unwrap().get_info().await.unwrap().state;
        assert_eq!(state.messages, before + 1, "nothing is published on the fork");
        context.delete_stream(feed::name(instance, partition)).await.unwrap();
        feed::check(instance, &merchant.log.after(0).await).await;
        put_away(instance).await;
    });
}

#[test]
fn while_nats_hangs_the_lag_of_the_feed_grows_by_what_is_appended() {
    if !servers::has_own_nats("stops NATS") {
        return;
    }
    run(async {
        let (merchant, events) = at_rest().await;
        let instance = merchant.instance;
        let partition = merchant.partition().await.to_string();
        let shown = async || {
            let now = scrape(instance.projector_operator()).await;
            let lag =
                |labels: &[(&str, &str)]| now.values("farthing_relay_lag_events", labels).iter().sum::<f64>();
            (
                lag(&[("partition", partition.as_str())]),
                lag(&[]),
                now.count("farthing_relay_restarts_total", &[]),
            )
        };
        eventually_ok("all is acknowledged", async || match shown().await {
            (own, all, _) if own <= 0.0 && all <= 0.0 => Ok(()),
            shown => Err(format!("{shown:?}")),
        })
        .await;
        signal(instance.ready().pids.nats.unwrap(), "STOP");
        let (before, restarts) = (events.len(), shown().await.2);
        for _ in 0..3 {
            merchant.credit_own("1").await;
            let appended = merchant.log.after(0).await.len() - before;
            eventually_ok("the lag is what was appended", async || {
                let (own, all, now) = shown().await;
                // The relay has failed meanwhile, and cannot ask for the end of the stream.
                let is_so = format!("{own} {all}") == format!("{appended} {appended}") && now > restarts;
                if is_so { Ok(()) } else { Err(format!("{own} {all} {now} {appended}")) }
            })
            .await;
        }
        signal(instance.ready().pids.nats.unwrap(), "CONT");
        feed::check(instance, &merchant.log.after(0).await).await;
        eventually_ok("all is acknowledged again", async || match shown().await {
            (own, all, _) if own <= 0.0 && all <= 0.0 => Ok(()),
            shown => Err(format!("{shown:?}")),
        })
        .await;
        put_away(instance).await;
    });
}

#[test]
fn a_gateway_and_a_projector_that_start_without_nats_work_and_the_feed_follows_later() {
    if !servers::has_own_nats("stops NATS") {
        return;
    }
    run(async {
        let (merchant, _) = at_rest().await;
        let instance = merchant.instance;
        let pids = instance.ready().pids;
        // The projector has a server that hangs; the gateway has none.
        let nats = pids.nats.unwrap();
        signal(nats, "STOP");
        kill(pids.projectors[0]);
        let database_url = instance.ready().database_url;
        let flags = ["--allow-address", "127.0.0.0/8", "--sweep-after-seconds", "5"];
        let gateway = SideGateway::start_on(instance, &database_url, "nats://127.0.0.1:1", &flags).await;
        let endpoint = instance.provider.endpoint(|_| json(200, &json!({"usage": {"tokens": 1}})));
        let mut ids = Vec::new();
        for _ in 0..5 {
            let call = forward("GET", &endpoint.url).bearer(&merchant.secret_key);
            let response = call.send(gateway.address).await.unwrap();
            response.expect(200);
            ids.push(response.request_id());
        }
        // The new projector shows them although NATS still hangs.
        for id in &ids {
            merchant.shown(id, "completed").await;
        }
        signal(nats, "CONT");
        drop(gateway);
        feed::check(instance, &merchant.log.after(0).await).await;
        put_away(instance).await;
    });
}

/// The session that holds the lock of the relay.
const RELAY_SESSION: &str = "\
SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
AND (classid::bigint << 32) | objid::bigint = hashtextextended('farthing.relay', 0)";

/// A relay that loses its connection before it has opened a feed does not look for the lock between two steps of one.
#[test]
fn a_relay_whose_connection_ends_while_it_opens_its_feeds_publishes_again() {
    if !servers::has_own_nats("stops NATS") {
        return;
    }
    run(async {
        let (merchant, _) = at_rest().await;
        let instance = merchant.instance;
        // The last message of each feed is compared with the log. One without messages would be opened all the same.
        within(HEAL, "each partition has a merchant", async || {
            Merchant::of(instance).await.credit_own("1").await;
            let heads = merchant.log.heads().await;
            heads.iter().all(|head| head.position > 0).then_some(())
        })
        .await;
        feed::check(instance, &merchant.log.after(0).await).await;
        let db = &merchant.log.sql;
        let session =
            async || db.query_opt(RELAY_SESSION, &[]).await.unwrap().map(|row| row.get::<_, i32>(0));
        let first = session().await.expect("a relay publishes");
        let pids = instance.ready().pids;
        // A new relay takes the lock, and then waits for NATS.
        signal(pids.nats.unwrap(), "STOP");
        kill(pids.projectors[0]);
        let second = within(HEAL, "a new relay has the lock", async || {
            session().await.filter(|session| *session != first)
        })
        .await;
        let ended = db.query_one("SELECT pg_terminate_backend($1)", &[&second]).await.unwrap();
        assert!(ended.get::<_, bool>(0));
        within(HEAL, "its session has ended", async || (session().await != Some(second)).then_some(())).await;
        signal(pids.nats.unwrap(), "CONT");
        merchant.credit_own("1").await;
        feed::check(instance, &merchant.log.after(0).await).await;
        put_away(instance).await;
    });
}

/// Each record batch that a projector reads takes 0.1 s.
const SLOW_READS: &str = "\
ALTER TABLE ledger.batches ENABLE ROW LEVEL SECURITY;
CREATE POLICY slow ON ledger.batches FOR SELECT TO farthing_projector USING (pg_sleep(0.1) IS NOT NULL);
CREATE POLICY others ON ledger.batches TO farthing_gateway USING (true) WITH CHECK (true)";

#[test]
fn a_feed_is_published_though_a_read_takes_longer_than_the_time_between_checks_of_its_stream() {
    run(async {
        let (merchant, _) = at_rest().await;
        let instance = merchant.instance;
        for _ in 0..30 {
            merchant.credit_own("1").await;
        }
        let events = merchant.log.after(0).await;
        merchant.log.sql.batch_execute(SLOW_READS).await.unwrap();
        let name = feed::name(instance, merchant.partition().await);
        patient(instance).await.delete_stream(&name).await.unwrap();
        // Nothing of the log is in the memory of the next one.
        kill(instance.ready().pids.projectors[0]);
        feed::check(instance, &events).await;
        put_away(instance).await;
    });
}
