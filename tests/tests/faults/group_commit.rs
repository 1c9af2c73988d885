//! Group commit over partitions: the batches of several leaders of one process are one transaction, and the failure of one
//! is not the failure of another.

use std::sync::Arc;

use chrono::Utc;
use farthing_core::command::{IssueSecretKey, to_millisecond};
use farthing_core::ids::{MerchantId, Mint, SecretKeyId};
use farthing_core::partition::Partition;
use farthing_core::secret::ServerKey;
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

const BLOCKED: &str = "\
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%append%'";

/// A partition that the test leads.
struct Led {
    merchant: Merchant,
    partition: Partition,
    appender: Appender,
    _lease: watch::Sender<Lease>,
}

impl Led {
    /// Issues a key to the merchant.
    async fn issue(&self, id: SecretKeyId) -> Result<(), Error> {
        let server_key = ServerKey::from_hex(&"7".repeat(64)).unwrap();
        let merchant_id: MerchantId = self.merchant.id.parse().unwrap();
        let issue = IssueSecretKey {
            merchant_id,
            secret_key_id: id,
            key_hash: server_key.hash(&id.to_string()),
            hint: "0000".to_owned(),
            name: "a test".to_owned(),
            now: to_millisecond(Utc::now()),
        };
        self.appender.submit(None, issue).await.map(drop)
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
            merchants.push((merchant, partition));
        }
    }
    let mut led = Vec::new();
    for (merchant, partition) in merchants {
        let lease = leader::take_lease(&merchant.log.sql, partition).await;
        let config = leader::appender(&instance.ready().database_url, partition);
        let config = AppenderConfig { group: Some(group.clone()), ..config };
        let appender = Appender::start(config, lease.subscribe(), stop, tasks);
        let here = Led { merchant, partition, appender, _lease: lease };
        // It has loaded what the next commands need.
        here.issue(SecretKeyId::new(Mint::default().next(Utc::now()))).await.unwrap();
        led.push(here);
    }
    led
}

/// Issues a key in each partition: while the first one's append waits for its head, the other two become one group.
async fn issue_together(led: &[Led], log: &Log, ids: [SecretKeyId; 3]) -> [Result<(), Error>; 3] {
    let [first, second, third] = led else { panic!("three partitions") };
    let blocker = first.merchant.instance.log().await;
    blocker.sql.batch_execute("BEGIN").await.unwrap();
    let lock = "SELECT FROM ledger.heads WHERE partition = $1 FOR UPDATE";
    blocker.sql.execute(lock, &[&first.partition.number()]).await.unwrap();
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
        let (second, third, ()) = tokio::join!(second.issue(ids[1]), third.issue(ids[2]), waiting);
        (second, third)
    };
    let (first, (second, third)) = tokio::join!(first.issue(ids[0]), release);
    [first, second, third]
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

        stop.cancel();
        let partitions: Vec<_> = led.iter().map(|led| led.partition).collect();
        drop(led);
        tasks.close();
        tasks.wait().await;
        for partition in partitions {
            leader::give_back(&log.sql, partition).await;
        }
        put_away(instance).await;
    });
}
