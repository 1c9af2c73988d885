//! Group commit over partitions: the batches of several leaders of one process are one transaction, and the failure of one
//! is not the failure of another.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::Utc;
use farthing_core::command::{Billing, Caller, IssueSecretKey, OpenRequest, RequestSettings, to_millisecond};
use farthing_core::event::ProviderKeyType;
use farthing_core::ids::{GatewayId, MerchantId, Mint, RequestId, SecretKeyId};
use farthing_core::model_price::ListPrice;
use farthing_core::partition::Partition;
use farthing_core::pricing::SizeHint;
use farthing_core::secret::{KeyHash, ServerKey};
use farthing_log::appender::{Appender, AppenderConfig, Error, GroupCommit, Lease};
use farthing_log::connect::Role;
use farthing_log::metrics::LedgerMetrics;
use farthing_telemetry::Metrics;
use farthing_tests::instance::Instance;
use farthing_tests::leader;
use farthing_tests::log::Log;
use farthing_tests::merchant::Merchant;
use farthing_tests::scrape::Scrape;
use farthing_tests::wait::eventually;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::{instance, put_away, run};

/// A fact of another partition that the log is made to know already.
const RECORD_FACT: &str = "INSERT INTO ledger.facts (partition, key, position) VALUES ($1, $2, 0)";
const FORGET_FACT: &str = "DELETE FROM ledger.facts WHERE partition = $1 AND key = $2";

/// The transaction that moved a head last.
const MOVED_BY: &str = "SELECT xmin::text FROM ledger.heads WHERE partition = $1";

/// Counts the attempts to move a head, also those that are rolled back.
const COUNT_ATTEMPTS: &str = "\
CREATE SEQUENCE public.attempts;
CREATE FUNCTION public.count_attempt() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    PERFORM nextval('public.attempts');
    RETURN NEW;
END $$;
CREATE TRIGGER count_attempt BEFORE UPDATE ON ledger.heads FOR EACH ROW
WHEN (NEW.partition = {partition} AND NEW.position > OLD.position) EXECUTE FUNCTION public.count_attempt()";
const ATTEMPTS: &str = "SELECT last_value FROM public.attempts WHERE is_called";

/// Makes a head refuse to move, as an error of Postgres would.
const REFUSE: &str = "\
CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a test refuses';
END $$;
CREATE TRIGGER refuse AFTER UPDATE ON ledger.heads FOR EACH ROW
WHEN (NEW.partition = {partition} AND NEW.position > OLD.position) EXECUTE FUNCTION public.refuse()";
const ACCEPT: &str = "DROP TRIGGER refuse ON ledger.heads";

const BLOCKED: &str = "\
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%append%'";

/// A partition that the test leads.
struct Led {
    merchant: Merchant,
    partition: Partition,
    /// Its merchant's key that the test has issued.
    key: SecretKeyId,
    appender: Appender,
    _lease: watch::Sender<Lease>,
}

impl Led {
    fn merchant_id(&self) -> MerchantId {
        self.merchant.id.parse().unwrap()
    }

    /// Issues a key to the merchant.
    async fn issue(&self, id: SecretKeyId) -> Result<(), Error> {
        let issue = IssueSecretKey {
            merchant_id: self.merchant_id(),
            secret_key_id: id,
            key_hash: hash(id),
            hint: "0000".to_owned(),
            name: "a test".to_owned(),
            now: to_millisecond(Utc::now()),
        };
        self.appender.submit(None, issue).await.map(drop)
    }

    /// Opens a call of the merchant, whose batch is of events alone.
    async fn open(&self, request_id: RequestId) -> Result<(), Error> {
        let open = OpenRequest {
            request_id,
            gateway_id: GatewayId::new(Mint::default().next(Utc::now())),
            merchant_id: self.merchant_id(),
            caller: Caller::SecretKey(hash(self.key)),
            customer: None,
            meter: None,
            billing: Billing::Usual,
            provider: "a provider".to_owned(),
            provider_key_type: ProviderKeyType::Unmanaged,
            endpoint: "POST https://provider.example/".to_owned(),
            model: None,
            list_price: ListPrice::Unlisted,
            metadata: BTreeMap::new(),
            size: SizeHint { input_bytes: 1, ..SizeHint::default() },
            settings: RequestSettings {
                service_charge_rate: "0.019".parse().unwrap(),
                default_hold: "0.2".parse().unwrap(),
                hold_cap: "1".parse().unwrap(),
            },
            now: to_millisecond(Utc::now()),
        };
        self.appender.submit(None, open).await.map(drop)
    }

    /// How often the opening of a call is in the log.
    async fn openings(&self, id: RequestId) -> usize {
        let (id, events) = (id.to_string(), self.merchant.events().await);
        events.iter().filter(|event| event.kind == "request.opened" && event.key.contains(&id)).count()
    }

    async fn moved_by(&self, log: &Log) -> String {
        log.sql.query_one(MOVED_BY, &[&self.partition.number()]).await.unwrap().get(0)
    }

    /// Whether the key's fact is in the log.
    async fn has(&self, id: SecretKeyId) -> bool {
        let id = id.to_string();
        self.merchant
            .events()
            .await
            .iter()
            .any(|event| event.kind == "secret_key.issued" && event.key.contains(&id))
    }
}

fn hash(id: SecretKeyId) -> KeyHash {
    ServerKey::from_hex(&"7".repeat(64)).unwrap().hash(&id.to_string())
}

/// Leads the partitions of three merchants, with one group commit.
async fn three(
    instance: &'static Instance,
    metrics: Arc<LedgerMetrics>,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) -> Vec<Led> {
    let group = GroupCommit::start(instance.ready().database_url, Role::Gateway, metrics, tasks);
    let mut merchants: Vec<(Merchant, Partition)> = Vec::new();
    while merchants.len() < 3 {
        let merchant = Merchant::of(instance).await;
        let partition = merchant.log.partition_of(&merchant.id).await;
        if merchants.iter().all(|(_, other)| *other != partition) {
            merchant.credit_own("1").await;
            merchants.push((merchant, partition));
        }
    }
    let mut led = Vec::new();
    for (merchant, partition) in merchants {
        let lease = leader::take_lease(&merchant.log.sql, partition).await;
        let config = leader::appender(&instance.ready().database_url, partition);
        let config = AppenderConfig { group: Some(group.clone()), ..config };
        let appender = Appender::start(config, lease.subscribe(), stop, tasks);
        let key = SecretKeyId::new(Mint::default().next(Utc::now()));
        let here = Led { merchant, partition, key, appender, _lease: lease };
        // It has loaded what the next commands need.
        here.issue(key).await.unwrap();
        led.push(here);
    }
    led
}

/// Locks the head of a partition until the connection's next ROLLBACK.
async fn lock_head(blocker: &Log, led: &Led) {
    blocker.sql.batch_execute("BEGIN").await.unwrap();
    let lock = "SELECT FROM ledger.heads WHERE partition = $1 FOR UPDATE";
    blocker.sql.execute(lock, &[&led.partition.number()]).await.unwrap();
}

/// Submits a command in each partition: while the first one's append waits for its head, the other two become one group.
async fn together(
    led: &[Led],
    log: &Log,
    submit: impl AsyncFn(usize, &Led) -> Result<(), Error>,
) -> [Result<(), Error>; 3] {
    let [first, second, third] = led else { panic!("three partitions") };
    let blocker = first.merchant.instance.log().await;
    lock_head(&blocker, first).await;
    let release = async {
        eventually("the first append waits for its head", async || {
            let waiting: i64 = log.sql.query_one(BLOCKED, &[]).await.unwrap().get(0);
            (waiting > 0).then_some(())
        })
        .await;
        let waiting = async {
            // The appenders decide and queue their batches on this thread.
            for _ in 0..1_000 {
                tokio::task::yield_now().await;
            }
            blocker.sql.batch_execute("ROLLBACK").await.unwrap();
        };
        let (second, third, ()) = tokio::join!(submit(1, second), submit(2, third), waiting);
        (second, third)
    };
    let (first, (second, third)) = tokio::join!(submit(0, first), release);
    [first, second, third]
}

/// Issues a key in each partition, of which the second and the third are one group.
async fn issue_together(led: &[Led], log: &Log, ids: [SecretKeyId; 3]) -> [Result<(), Error>; 3] {
    together(led, log, async |number, led| led.issue(ids[number]).await).await
}

/// Opens a call in each partition, of which the second and the third are one group.
async fn open_together(led: &[Led], log: &Log, ids: [RequestId; 3]) -> [Result<(), Error>; 3] {
    together(led, log, async |number, led| led.open(ids[number]).await).await
}

/// Ends the leaders, and gives their partitions back.
async fn end(led: Vec<Led>, log: &Log, stop: &CancellationToken, tasks: &TaskTracker) {
    stop.cancel();
    let partitions: Vec<_> = led.iter().map(|led| led.partition).collect();
    drop(led);
    tasks.close();
    tasks.wait().await;
    for partition in partitions {
        leader::give_back(&log.sql, partition).await;
    }
}

#[test]
fn the_batches_of_several_partitions_are_one_transaction_in_which_one_fails_alone() {
    run(async {
        let instance = instance().await;
        let log = instance.log().await;
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let metrics = Metrics::default();
        let led = three(instance, Arc::new(LedgerMetrics::new(&metrics)), &stop, &tasks).await;
        // The transactions that were committed, and the batches in them.
        let counted = || {
            let scrape = Scrape::read(&metrics.text().unwrap());
            let batches = scrape.values("farthing_group_commit_batches_sum", &[]);
            (scrape.count("farthing_group_commit_batches_count", &[]), format!("{batches:?}"))
        };
        assert_eq!(counted(), (3, "[3.0]".to_owned()), "each has issued a key");
        let mint = Mint::default();
        let new = || std::array::from_fn(|_| SecretKeyId::new(mint.next(Utc::now())));

        let answers = issue_together(&led, &log, new()).await;
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        assert_eq!(led[1].moved_by(&log).await, led[2].moved_by(&log).await, "one transaction");
        assert_ne!(led[0].moved_by(&log).await, led[1].moved_by(&log).await);
        assert_eq!(counted(), (5, "[6.0]".to_owned()), "the second and the third are one");

        // The third one's fact is on record: its statement fails, and with it the transaction of both.
        let ids: [SecretKeyId; 3] = new();
        let (partition, key) = (led[2].partition.number(), format!("{}/issued", ids[2]));
        log.sql.execute(RECORD_FACT, &[&partition, &key]).await.unwrap();
        let count_attempts = COUNT_ATTEMPTS.replace("{partition}", &partition.to_string());
        log.sql.batch_execute(&count_attempts).await.unwrap();
        let answers = issue_together(&led, &log, ids).await;
        let attempts: i64 = log.sql.query_one(ATTEMPTS, &[]).await.unwrap().get(0);
        assert_eq!(attempts, 2, "with the other one, and alone");
        assert!(matches!(answers[2], Err(Error::Internal(_))), "{answers:?}");
        assert_eq!((&answers[0], &answers[1]), (&Ok(()), &Ok(())));
        assert_eq!((led[1].has(ids[1]).await, led[2].has(ids[2]).await), (true, false));
        assert_eq!(counted(), (7, "[8.0]".to_owned()), "what was undone is not counted");
        log.sql.execute(FORGET_FACT, &[&partition, &key]).await.unwrap();
        let next: [SecretKeyId; 3] = new();
        led[2].issue(next[2]).await.unwrap();

        end(led, &log, &stop, &tasks).await;
        put_away(instance).await;
    });
}

#[test]
fn events_of_several_partitions_are_one_statement_in_which_one_fails_or_waits_alone() {
    run(async {
        let instance = instance().await;
        let log = instance.log().await;
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let led = three(instance, Arc::default(), &stop, &tasks).await;
        let mint = Mint::default();
        let new = || std::array::from_fn(|_| RequestId::new(mint.next(Utc::now())));
        // The first calls load what the next ones need.
        let answers = open_together(&led, &log, new()).await;
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");

        let answers = open_together(&led, &log, new()).await;
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        assert_eq!(led[1].moved_by(&log).await, led[2].moved_by(&log).await, "one transaction");
        assert_ne!(led[0].moved_by(&log).await, led[1].moved_by(&log).await);

        // The third one's head refuses to move: only its command fails.
        let refuse = REFUSE.replace("{partition}", &led[2].partition.number().to_string());
        log.sql.batch_execute(&refuse).await.unwrap();
        let ids: [RequestId; 3] = new();
        let answers = open_together(&led, &log, ids).await;
        log.sql.batch_execute(ACCEPT).await.unwrap();
        assert!(answers[2].is_err(), "{answers:?}");
        assert_eq!((&answers[0], &answers[1]), (&Ok(()), &Ok(())));
        assert_eq!((led[1].openings(ids[1]).await, led[2].openings(ids[2]).await), (1, 0));

        // The third one's head is locked by somebody: only its command waits.
        let ids: [RequestId; 3] = new();
        let blocker = instance.log().await;
        lock_head(&blocker, &led[2]).await;
        let (answered, is_answered) = tokio::sync::oneshot::channel();
        let answered = std::cell::Cell::new(Some(answered));
        let opened = together(&led, &log, async |number, led| {
            let answer = led.open(ids[number]).await;
            if number == 1 {
                answered.take().unwrap().send(()).unwrap();
            }
            answer
        });
        let release = async {
            is_answered.await.unwrap();
            assert_eq!(led[2].openings(ids[2]).await, 0, "it waits");
            blocker.sql.batch_execute("ROLLBACK").await.unwrap();
        };
        let (answers, ()) = tokio::join!(opened, release);
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        assert_eq!((led[1].openings(ids[1]).await, led[2].openings(ids[2]).await), (1, 1));

        end(led, &log, &stop, &tasks).await;
        put_away(instance).await;
    });
}
