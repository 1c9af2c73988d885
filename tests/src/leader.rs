//! Who leads the partitions. A test may also lead one in its own process, in place of the gateways.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use farthing_core::partition::Partition;
use farthing_log::appender::{AppenderConfig, Lease, QueueLimits};
use farthing_log::connect::Role;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_postgres::Client;

use crate::wait::eventually;

const TAKE: &str = "\
UPDATE ledger.leases SET gateway = $2, address = NULL, expires_at = 'infinity' WHERE partition = $1";

const GIVE_BACK: &str = "\
UPDATE ledger.leases SET gateway = NULL, expires_at = '-infinity' WHERE partition = $1 AND gateway = $2";

const LED: &str = "\
SELECT gateway, partition FROM ledger.leases WHERE expires_at > clock_timestamp() ORDER BY partition";

const SHARING: &str = "SELECT count(*) FROM ledger.gateways WHERE expires_at > clock_timestamp()";

const RELOAD: &str = "\
UPDATE ledger.leases SET gateway = 'nobody', address = NULL, expires_at = clock_timestamp() + interval '2 s'";

const UNLED: &str = "\
SELECT count(*) FROM ledger.leases WHERE gateway IS NULL OR gateway = 'nobody' OR expires_at <= clock_timestamp()";

/// The partitions that each gateway leads now, by its name.
pub type Led = BTreeMap<String, Vec<i16>>;

/// The partitions that each gateway leads now.
pub async fn led(sql: &Client) -> Led {
    let mut led = Led::new();
    for row in sql.query(LED, &[]).await.expect("the leases can be read") {
        led.entry(row.get(0)).or_default().push(row.get(1));
    }
    led
}

/// Waits until so many gateways share all partitions evenly, and returns who leads which.
pub async fn spread(sql: &Client, gateways: usize) -> Led {
    let partitions: i64 = sql
        .query_one("SELECT count(*) FROM ledger.leases", &[])
        .await
        .expect("the leases can be read")
        .get(0);
    let partitions = usize::try_from(partitions).expect("a count");
    eventually("the gateways share the partitions evenly", async || {
        let sharing: i64 = sql.query_one(SHARING, &[]).await.expect("the gateways can be read").get(0);
        let led = led(sql).await;
        let (least, most) = (partitions / gateways, partitions.div_ceil(gateways));
        let is_even = led.values().all(|led| (least..=most).contains(&led.len()));
        let is_whole = led.values().map(Vec::len).sum::<usize>() == partitions;
        let all_share = usize::try_from(sharing) == Ok(gateways) && led.len() == gateways;
        (is_even && is_whole && all_share).then_some(led)
    })
    .await
}

/// Waits until `gateway` does not lead `partition` any more and another one does; returns that one.
pub async fn taken_over(sql: &Client, partition: i16, gateway: &str) -> String {
    eventually("another gateway leads the partition", async || {
        let led = led(sql).await;
        let by = led.into_iter().find(|(_, led)| led.contains(&partition))?.0;
        (by != gateway).then_some(by)
    })
    .await
}

/// Makes every leader forget its states, and waits until all partitions are led again.
pub async fn reload(sql: &Client) {
    // Longer than the pause between two rounds: each gateway learns that it has lost its leases.
    sql.execute(RELOAD, &[]).await.expect("the leases can be taken");
    eventually("the partitions are led again", async || {
        let unled: i64 = sql.query_one(UNLED, &[]).await.expect("the leases can be read").get(0);
        (unled == 0).then_some(())
    })
    .await;
}

/// The name of the test in the lease.
pub const NAME: &str = "a test";

/// Takes the lease of a partition from whoever has it, for an appender called [`NAME`].
pub async fn take_lease(sql: &Client, partition: Partition) -> watch::Sender<Lease> {
    sql.execute(TAKE, &[&partition.number(), &NAME]).await.expect("the lease can be taken");
    watch::Sender::new(Lease::Held { until: Instant::now() + Duration::from_hours(1) })
}

/// The settings of an appender called [`NAME`], which commits by itself.
pub fn appender(database_url: &str, partition: Partition) -> AppenderConfig {
    AppenderConfig {
        database_url: database_url.to_owned(),
        partition,
        role: Role::Gateway,
        gateway: NAME.to_owned(),
        writer: NAME.to_owned(),
        queue: QueueLimits::default(),
        group: None,
        metrics: Arc::default(),
    }
}

/// Gives the lease back to the gateways.
pub async fn give_back(sql: &Client, partition: Partition) {
    sql.execute(GIVE_BACK, &[&partition.number(), &NAME]).await.expect("the lease can be given back");
}
