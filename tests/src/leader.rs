//! Leads a partition in the test's own process, in place of the gateways.

use std::time::Duration;

use farthing_core::partition::Partition;
use farthing_log::appender::Lease;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_postgres::Client;

const TAKE: &str = "\
UPDATE ledger.leases SET gateway = $2, address = NULL, expires_at = 'infinity' WHERE partition = $1";

const GIVE_BACK: &str = "\
UPDATE ledger.leases SET gateway = NULL, expires_at = '-infinity' WHERE partition = $1 AND gateway = $2";

/// The name of the test in the lease.
pub const NAME: &str = "a test";

/// Takes the lease of a partition from whoever has it, for an appender called [`NAME`].
pub async fn take_lease(sql: &Client, partition: Partition) -> watch::Sender<Lease> {
    sql.execute(TAKE, &[&partition.number(), &NAME]).await.expect("the lease can be taken");
    watch::Sender::new(Lease::Held { until: Instant::now() + Duration::from_hours(1) })
}

/// Gives the lease back to the gateways.
pub async fn give_back(sql: &Client, partition: Partition) {
    sql.execute(GIVE_BACK, &[&partition.number(), &NAME]).await.expect("the lease can be given back");
}
