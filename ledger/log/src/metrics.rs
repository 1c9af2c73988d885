//! The metrics of the log's writers: commands, appends, terms and leases.

use std::sync::Arc;

use deadpool_postgres::Pool;
use farthing_core::partition::Partition;
use farthing_telemetry::{Ages, Counter, Gauge, Histogram, Metrics};

use crate::leases::LedPartitions;
use crate::reads::ReadPool;

/// The metrics of a ledger. A default one is seen by nobody.
#[derive(Debug)]
pub struct LedgerMetrics {
    pub(crate) appends: Counter,
    pub(crate) appended_events: Counter,
    pub(crate) append_failures: Counter,
    pub(crate) append_duration: Histogram,
    pub(crate) batch_commands: Histogram,
    pub(crate) group_commit_duration: Histogram,
    pub(crate) group_commit_appends: Histogram,
    /// Commands that found the queue full.
    pub(crate) shed_full: Counter,
    /// Commands that waited for too long.
    pub(crate) shed_expired: Counter,
    pub(crate) terms_begun: Counter,
    pub(crate) terms_not_begun: Counter,
    pub(crate) leases_lost: Counter,
    pub(crate) leases_given_up: Counter,
    pub(crate) lease_rounds_failed: Counter,
}

impl Default for LedgerMetrics {
    fn default() -> Self {
        Self::new(&Metrics::default())
    }
}

impl LedgerMetrics {
    /// Adds them to `metrics`.
    pub fn new(metrics: &Metrics) -> Self {
        let [shed_full, shed_expired] = metrics.counters(
            "farthing_commands_shed_total",
            "Commands that were refused because a queue was full, or that waited for too long",
            "reason",
            ["full", "expired"],
        );
        Self {
            appends: metrics.counter("farthing_appends_total", "Record batches that were committed"),
            appended_events: metrics.counter(
                "farthing_appended_events_total",
                "Events in the record batches that were committed",
            ),
            append_failures: metrics.counter("farthing_append_failures_total", "Appends that failed"),
            append_duration: metrics.durations(
                "farthing_append_duration_seconds",
                "Time from the end of a batch's decisions to its commit",
            ),
            batch_commands: metrics
                .sizes("farthing_append_batch_commands", "Commands in a record batch that was committed"),
            group_commit_duration: metrics.durations(
                "farthing_group_commit_duration_seconds",
                "Time of a transaction that has committed the batches of one or several partitions",
            ),
            group_commit_appends: metrics.sizes(
                "farthing_group_commit_batches",
                "Record batches that such a transaction has committed",
            ),
            shed_full,
            shed_expired,
            terms_begun: metrics
                .counter("farthing_terms_begun_total", "Terms as leader of a partition that began"),
            terms_not_begun: metrics
                .counter("farthing_terms_not_begun_total", "Failed attempts to begin a term"),
            leases_lost: metrics
                .counter("farthing_leases_lost_total", "Leases that another gateway had taken"),
            leases_given_up: metrics.counter(
                "farthing_leases_given_up_total",
                "Leases that were given up because the partition could not be led",
            ),
            lease_rounds_failed: metrics.counter(
                "farthing_lease_round_failures_total",
                "Rounds in which the leases could not be renewed",
            ),
        }
    }
}

/// What the leader of a partition has still to do.
#[derive(Debug)]
pub struct Backlog {
    pub(crate) partition: Partition,
    /// The commands that it has not answered.
    pub(crate) commands: Ages,
    /// The events behind the checkpoint of its states.
    pub(crate) checkpoint_lag: Gauge,
}

/// Adds the backlogs of the partitions that this process leads, and their number.
pub fn register_backlogs(metrics: &Metrics, led: &LedPartitions, backlogs: &Arc<[Backlog]>) {
    let of_led = |led: LedPartitions, backlogs: Arc<[Backlog]>, read: fn(&Backlog) -> Option<f64>| {
        move || {
            let led = led.now();
            let backlogs = backlogs.iter().filter(|backlog| led.contains(&backlog.partition));
            let read = |backlog: &Backlog| Some((backlog.partition.number().to_string(), read(backlog)?));
            backlogs.filter_map(read).collect()
        }
    };
    metrics.gauges_from(
        "farthing_queue_commands",
        "Commands in a partition's queue that are not answered yet",
        "partition",
        of_led(led.clone(), Arc::clone(backlogs), |backlog| Some(f64::from(backlog.commands.count()))),
    );
    metrics.gauges_from(
        "farthing_queue_oldest_seconds",
        "Age of the oldest of these commands",
        "partition",
        of_led(led.clone(), Arc::clone(backlogs), |backlog| Some(backlog.commands.oldest().as_secs_f64())),
    );
    metrics.gauges_from(
        "farthing_state_checkpoint_lag_events",
        "Events of a partition behind the checkpoint of its states",
        "partition",
        of_led(led.clone(), Arc::clone(backlogs), |backlog| {
            u32::try_from(backlog.checkpoint_lag.get()).ok().map(f64::from)
        }),
    );
    let leads = led.clone();
    metrics.gauge_from("farthing_partitions_led", "Partitions that this gateway leads", move || {
        number(leads.counts()?.0)
    });
    let led = led.clone();
    metrics.gauge_from(
        "farthing_partitions_without_leader",
        "Partitions whose leader this gateway does not know",
        move || number(led.counts()?.1),
    );
}

/// Adds the use of these pools of connections.
pub fn register_pools(metrics: &Metrics, reads: &ReadPool, others: Vec<(&'static str, Pool)>) {
    let pools: Arc<[(&'static str, Pool)]> =
        std::iter::once(("reads", reads.pool().clone())).chain(others).collect();
    let read = |read: fn(deadpool_postgres::Status) -> usize| {
        let pools = Arc::clone(&pools);
        move || {
            let read = |(name, pool): &(&str, Pool)| Some(((*name).to_owned(), number(read(pool.status()))?));
            pools.iter().filter_map(read).collect()
        }
    };
    metrics.gauges_from(
        "farthing_pool_max_connections",
        "Most connections of a pool to Postgres",
        "pool",
        read(|status| status.max_size),
    );
    metrics.gauges_from(
        "farthing_pool_connections",
        "Open connections of a pool",
        "pool",
        read(|status| status.size),
    );
    metrics.gauges_from(
        "farthing_pool_connections_in_use",
        "Connections of a pool that are in use",
        "pool",
        read(|status| status.size.saturating_sub(status.available)),
    );
    metrics.gauges_from(
        "farthing_pool_waiting",
        "Tasks that wait for a connection of a pool",
        "pool",
        read(|status| status.waiting),
    );
}

/// A number as Prometheus has it.
fn number(value: usize) -> Option<f64> {
    u32::try_from(value).ok().map(f64::from)
}
