//! The metrics of a projector, and whether its read models are kept up to date.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farthing_log::positions::Positions;
use farthing_log::tail::SeenHeads;
use farthing_schema::read_model::ReadModel;
use farthing_telemetry::{Counter, CounterFamily, Metrics, Telemetry};

/// The outbox of webhooks, beside the names of the read models.
const OUTBOX: &str = "webhook_outbox";

/// The log must have been read this lately. It is read every 250 ms.
const MAX_READ_AGE: Duration = Duration::from_secs(10);

/// What a projection does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Activity {
    /// It connects, or failed and will start again.
    Stopped,
    /// Another projector does its work.
    StandsBy,
    /// It works.
    Runs,
}

/// The progress of one projection, or of the outbox.
#[derive(Debug)]
pub(crate) struct Progress {
    state: Mutex<(Activity, Positions)>,
    /// Whether nobody reads it yet: its generation is being built.
    is_building: AtomicBool,
    events: Counter,
    restarts: Counter,
    doubtful: Counter,
}

impl Progress {
    /// It waits until it is the one that writes.
    pub(crate) fn stands_by(&self) {
        *self.state() = (Activity::StandsBy, Positions::default());
    }

    /// It shows the log up to `shown`.
    pub(crate) fn reached(&self, shown: &Positions) {
        let mut state = self.state();
        state.0 = Activity::Runs;
        state.1.clone_from(shown);
    }

    /// Its generation is built, or is not yet.
    pub(crate) fn built(&self, is_built: bool) {
        self.is_building.store(!is_built, Ordering::Relaxed);
    }

    /// It has folded so many events.
    pub(crate) fn folded(&self, events: usize) {
        self.events.inc_by(u64::try_from(events).unwrap_or_default());
    }

    /// It shows so many events whose amounts do not add up.
    pub(crate) fn doubted(&self, events: u64) {
        self.doubtful.inc_by(events);
    }

    /// It has failed, and starts again. What it shows stays as it is, and lags more and more.
    pub(crate) fn failed(&self) {
        self.state().0 = Activity::Stopped;
        self.restarts.inc();
    }

    fn activity(&self) -> Activity {
        self.state().0
    }

    /// The positions up to which it shows the log, if it runs or did so last.
    fn shown(&self) -> Option<Positions> {
        let state = self.state();
        state.1.iter().next().is_some().then(|| state.1.clone())
    }

    fn state(&self) -> MutexGuard<'_, (Activity, Positions)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type All = Arc<BTreeMap<&'static str, Arc<Progress>>>;

/// The metrics of a projector.
pub(crate) struct ProjectorMetrics {
    all: All,
    /// Deliveries that were queued.
    pub(crate) deliveries: Counter,
}

impl ProjectorMetrics {
    /// Adds the metrics and the checks of a projector that reads `heads`.
    pub(crate) fn new(telemetry: &Telemetry, heads: &Arc<SeenHeads>) -> Self {
        let metrics = &telemetry.metrics;
        let events = metrics.counter_family("farthing_projected_events_total", "Events that were folded");
        let restarts = metrics
            .counter_family("farthing_projection_restarts_total", "Restarts of a projection after a failure");
        let doubtful = metrics.counter_family(
            "farthing_projection_doubtful_events_total",
            "Events that are shown although their amounts do not add up",
        );
        let progress = |name: &'static str| {
            let with = |family: &CounterFamily<1>| family.with([("read_model", name)]);
            let state = Mutex::new((Activity::Stopped, Positions::default()));
            let (events, restarts, doubtful) = (with(&events), with(&restarts), with(&doubtful));
            let is_building = AtomicBool::new(false);
            (name, Arc::new(Progress { state, is_building, events, restarts, doubtful }))
        };
        let names = ReadModel::ALL.into_iter().map(ReadModel::name).chain([OUTBOX]);
        let all: All = Arc::new(names.map(progress).collect());
        register_progress(metrics, &all, heads);
        let running = Arc::clone(&all);
        telemetry.health.add_check("read_models", move || Box::pin(std::future::ready(all_run(&running))));
        let (working, heads) = (Arc::clone(&all), Arc::clone(heads));
        telemetry.health.add_check("log", move || {
            let reads = working.values().any(|progress| progress.activity() == Activity::Runs);
            let is_late = heads.age().is_none_or(|age| age > MAX_READ_AGE);
            let late = || Err("the log could not be read lately".to_owned());
            Box::pin(std::future::ready(if reads && is_late { late() } else { Ok(()) }))
        });
        let deliveries = metrics
            .counter("farthing_webhook_deliveries_queued_total", "Webhook deliveries that were queued");
        Self { all, deliveries }
    }

    /// The progress of `model`.
    pub(crate) fn of(&self, model: ReadModel) -> Arc<Progress> {
        Arc::clone(&self.all[model.name()])
    }

    /// The progress of the outbox.
    pub(crate) fn outbox(&self) -> Arc<Progress> {
        Arc::clone(&self.all[OUTBOX])
    }
}

fn register_progress(metrics: &Metrics, all: &All, heads: &Arc<SeenHeads>) {
    let read_of = |read: fn(&SeenHeads, &Positions) -> f64, is_wanted: fn(&Progress) -> bool| {
        let (all, heads) = (Arc::clone(all), Arc::clone(heads));
        move || {
            let wanted = all.iter().filter(|(_, progress)| is_wanted(progress));
            let shown = wanted.filter_map(|(name, progress)| Some((*name, progress.shown()?)));
            shown.map(|(name, shown)| (name.to_owned(), read(&heads, &shown))).collect()
        }
    };
    let read = |read| read_of(read, |_| true);
    let is_read = |progress: &Progress| !progress.is_building.load(Ordering::Relaxed);
    metrics.gauges_from(
        "farthing_projection_lag_events",
        "Events that a read model does not show yet, at the projector that writes it",
        "read_model",
        read(|heads, shown| events(heads.lag(shown).events)),
    );
    metrics.gauges_from(
        "farthing_projection_lag_seconds",
        "Time since the first of these events was seen in the log",
        "read_model",
        read_of(|heads, shown| heads.lag(shown).time.as_secs_f64(), is_read),
    );
    metrics.gauges_from(
        "farthing_projection_position",
        "Events of all partitions up to which a read model shows the log",
        "read_model",
        read(|_, shown| events(shown.events())),
    );
    let newest = Arc::clone(heads);
    metrics.gauge_from("farthing_log_events", "Events in the log, as it was read last", move || {
        newest.newest().map(|heads| events(heads.events()))
    });
    let newest = Arc::clone(heads);
    metrics.gauge_from("farthing_log_read_age_seconds", "Time since the log was read last", move || {
        newest.age().map(|age| age.as_secs_f64())
    });
}

/// Whether every read model is kept up to date, by this process or by another one.
fn all_run(all: &BTreeMap<&'static str, Arc<Progress>>) -> Result<(), String> {
    let stopped = all.iter().filter(|(_, progress)| progress.activity() == Activity::Stopped);
    let stopped: Vec<_> = stopped.map(|(name, _)| *name).collect();
    if stopped.is_empty() { Ok(()) } else { Err(format!("not running: {}", stopped.join(", "))) }
}

#[expect(clippy::cast_precision_loss, reason = "below 2^53")]
const fn events(number: i64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use farthing_core::partition::Partition;

    use super::*;

    #[test]
    fn a_read_model_that_is_being_built_has_events_to_show_and_nobody_who_waits_for_them() {
        let telemetry = Telemetry::default();
        let metrics = ProjectorMetrics::new(&telemetry, &Arc::default());
        let customers = metrics.of(ReadModel::Customers);
        let mut shown = Positions::default();
        shown.set(Partition::new(0), 7);
        let has = |name: &str| {
            let value = format!("{name}{{read_model=\"customers\"}} ");
            telemetry.metrics.text().unwrap().lines().any(|line| line.starts_with(&value))
        };
        let seconds = "farthing_projection_lag_seconds";
        customers.built(false);
        customers.reached(&shown);
        assert!(has("farthing_projection_lag_events") && has("farthing_projection_position"));
        assert!(!has(seconds));
        customers.built(true);
        assert!(has(seconds));
        customers.failed();
        assert!(has(seconds), "what it shows lags more and more");
    }
}
