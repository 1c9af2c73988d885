//! Leases: which gateway leads each partition. A gateway renews its leases while it lives, shares the partitions evenly
//! with the others, hands over when one joins or it stops itself, and claims what a dead gateway led.
//!
//! A lease only says who should lead. Two gateways that both believe it harm nothing: the epoch of the head fences the
//! earlier one out (`ledger.lead`).

mod fits;
mod plan;
mod routes;
mod statements;
pub(crate) mod store;
mod unled;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use farthing_core::partition::Partition;
use farthing_core::state::shape;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::fits::{Fit, KnownFits};
use self::plan::{View, plan};
use self::routes::Read;
pub use self::routes::{Elsewhere, LedPartitions, Route, Routes};
use self::statements::PostgresLeases;
use self::store::{Holder, LeaseResult, LeaseRow, LeaseSession as _, LeaseStore, Rows};
use crate::appender::Lease;
use crate::connect::{Role, redacted};
use crate::metrics::LedgerMetrics;
use crate::own_thread;
use crate::pulse::Pulse;
use crate::reads::ReadPool;

/// Rounds in the time of a lease: a gateway that misses a few of them keeps its partitions.
const ROUNDS_PER_LEASE: u32 = 6;

/// The longest time between rounds, also within long leases: so soon is seen which gateways join and leave.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// The time between rounds while a partition has no leader, or one is handed over.
const BUSY_ROUND: Duration = Duration::from_millis(50);

/// The longest time that a round may take.
const ROUND_TIMEOUT: Duration = Duration::from_secs(2);

/// How long, and how often, an appender must have failed to lead before its partition is given up.
const GIVE_UP_AFTER: Duration = Duration::from_secs(3);
const GIVE_UP_FAILURES: u32 = 3;

/// How long a gateway avoids a partition that it could not lead.
const AVOID_FOR: Duration = Duration::from_secs(30);

/// The shared threads may hang for as many times as a lease lasts; then the leases are no longer renewed.
const SILENT_LEASES: u32 = 5;

/// How long a gateway that stops waits for its appenders before it gives its leases back.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);

/// Which partitions a process leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leads {
    /// Its share of all partitions.
    Share,
    /// This one alone, and only while there is no gateway: an operator's command.
    Alone(Partition),
}

/// The settings of leases.
#[derive(Debug, Clone)]
pub struct LeaseConfig {
    /// The database.
    pub database_url: String,
    /// The role to work under.
    pub role: Role,
    /// Connections for reads, for all but the leases themselves.
    pub reads: ReadPool,
    /// This gateway.
    pub member: Member,
}

/// A gateway that works for leases.
#[derive(Debug, Clone)]
pub struct Member {
    /// The name of this process in the leases.
    pub gateway: String,
    /// The address for the commands of other gateways; `None` for a process that takes none.
    pub address: Option<String>,
    /// Whether this process delivers webhooks.
    pub delivers: bool,
    /// Which partitions this process leads.
    pub leads: Leads,
    /// How long a lease lasts without a renewal.
    pub duration: Duration,
    /// The metrics.
    pub metrics: Arc<LedgerMetrics>,
}

impl Member {
    fn holder(&self) -> Holder {
        Holder {
            gateway: self.gateway.clone(),
            address: self.address.clone(),
            delivers: self.delivers,
            seconds: self.duration.as_secs_f64(),
        }
    }
}

/// The part of an appender that leases work with.
#[derive(Debug)]
pub(crate) struct Led {
    /// Tells the appender whether it has the lease.
    pub(crate) lease: watch::Sender<Lease>,
    /// Whether the appender leads.
    pub(crate) leads: watch::Receiver<bool>,
    /// How often in a row it could not begin to lead, commit, or learn whether it had.
    pub(crate) failures: watch::Receiver<u32>,
}

/// The pause between the rounds of leases that last so long.
fn pause_within(lease: Duration) -> Duration {
    LONGEST_PAUSE.min(lease / ROUNDS_PER_LEASE)
}

/// Starts to work for leases of the partitions, each with its appender. When `leave` is cancelled, the partitions are
/// handed over if there are other gateways; when `stop` is cancelled, they are given back once the appenders have
/// stopped.
///
/// It runs on a thread of its own: work of the other threads must not make a lease expire, unless they hang.
pub(crate) fn start(
    config: LeaseConfig,
    appenders: Vec<Led>,
    leave: CancellationToken,
    stop: CancellationToken,
    tasks: &TaskTracker,
) -> watch::Receiver<Arc<Routes>> {
    let LeaseConfig { database_url, role, reads, member: config } = config;
    let store = PostgresLeases { database_url, role };
    let (routes, known) = watch::channel(Arc::new(Routes::unknown(appenders.len())));
    let (fits, known_fits) = watch::channel(None);
    let end = stop.clone();
    let pause = pause_within(config.duration);
    tasks.spawn(async move {
        let _ = end.run_until_cancelled(fits::follow(&reads, pause, &fits)).await;
    });
    let pulse = Pulse::start(SILENT_LEASES * config.duration, stop.clone(), tasks);
    let mut leases = Leases::over(store, config, appenders, leave, (known_fits, routes));
    leases.pulse = Some(pulse);
    own_thread::spawn(tasks, "leases", move || async move { leases.run(&stop).await });
    known
}

/// Why a round failed; the next one follows.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("Postgres: {0}")]
    Store(String),
    #[error("the database did not answer in time")]
    Timeout,
    #[error("the shared threads of this process hang")]
    Hangs,
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Store(redacted(&error))
    }
}

/// The work of one gateway for leases.
pub(crate) struct Leases<S: LeaseStore> {
    store: S,
    config: Member,
    appenders: Vec<Led>,
    leave: CancellationToken,
    routes: watch::Sender<Arc<Routes>>,
    session: Option<S::Session>,
    /// The partitions whose appender has the lease, with the term of each.
    held: BTreeMap<Partition, i64>,
    /// The partitions whose appender was told to stop leading and has not yet.
    handing_over: BTreeSet<Partition>,
    /// The partitions whose appender fails to lead: since when, and how often it had failed then. Failures before
    /// the leases could be renewed again do not count: Postgres was away.
    stuck: BTreeMap<Partition, (Instant, u32)>,
    /// The partitions that this gateway leaves to others, and until when.
    avoids: BTreeMap<Partition, Instant>,
    /// The partitions that this gateway has given up and not led since.
    given_up: BTreeSet<Partition>,
    /// Which partitions this program can lead.
    fits: watch::Receiver<KnownFits>,
    /// Whether a newer program has led a partition.
    is_outdated: bool,
    /// Whether the shared threads work, where the appenders run on these.
    pulse: Option<Pulse>,
}

impl<S: LeaseStore> Leases<S> {
    fn over(
        store: S,
        config: Member,
        appenders: Vec<Led>,
        leave: CancellationToken,
        (fits, routes): (watch::Receiver<KnownFits>, watch::Sender<Arc<Routes>>),
    ) -> Self {
        Self {
            store,
            config,
            appenders,
            leave,
            routes,
            session: None,
            held: BTreeMap::new(),
            handing_over: BTreeSet::new(),
            stuck: BTreeMap::new(),
            avoids: BTreeMap::new(),
            given_up: BTreeSet::new(),
            fits,
            is_outdated: false,
            pulse: None,
        }
    }

    /// The work of a gateway of a simulation, whose program fits all partitions.
    #[cfg(test)]
    pub(crate) fn simulated(
        store: S,
        config: Member,
        appenders: Vec<Led>,
        leave: CancellationToken,
    ) -> (Self, watch::Receiver<Arc<Routes>>) {
        let partitions = appenders.len();
        let (routes, known) = watch::channel(Arc::new(Routes::unknown(partitions)));
        let (_, fits) = watch::channel(Some(std::iter::repeat_n(Fit::Ours, partitions).collect()));
        (Self::over(store, config, appenders, leave, (fits, routes)), known)
    }

    /// Works until `stop` is cancelled.
    pub(crate) async fn run(mut self, stop: &CancellationToken) {
        tokio::select! {
            biased;
            Ok(_) = self.fits.wait_for(Option::is_some) => {}
            () = stop.cancelled() => return,
        }
        loop {
            let was_leaving = self.leave.is_cancelled();
            let round = tokio::time::timeout(ROUND_TIMEOUT, self.round()).await;
            let pause = match round.unwrap_or(Err(Error::Timeout)) {
                Ok(pause) => pause,
                Err(error) => {
                    self.config.metrics.lease_rounds_failed.inc();
                    tracing::warn!(event = "leases.round_failed", %error, "the leases cannot be renewed");
                    self.session = None;
                    self.stuck.clear();
                    self.publish(None);
                    pause_within(self.config.duration)
                }
            };
            tokio::select! {
                biased;
                () = tokio::time::sleep(pause) => {}
                Ok(()) = self.fits.changed() => {}
                () = self.leave.cancelled(), if !was_leaving => {}
                () = stop.cancelled() => break,
            }
        }
        let stopped = tokio::time::timeout(STOP_TIMEOUT, async {
            for appender in &mut self.appenders {
                // An error means that the appender has ended.
                let _ = appender.leads.wait_for(|leads| !leads).await;
            }
        });
        let _ = stopped.await;
        let released = tokio::time::timeout(ROUND_TIMEOUT, self.release_all()).await;
        if let Err(error) = released.unwrap_or(Err(Error::Timeout)) {
            tracing::info!(event = "leases.kept", %error, "the leases were not given back; they expire");
        }
    }

    /// The connection of the last round, or a new one.
    async fn open_session(&mut self) -> LeaseResult<S::Session> {
        match self.session.take().filter(|session| !session.is_closed()) {
            Some(session) => Ok(session),
            None => self.store.open().await,
        }
    }

    /// Renews, gives back, claims and hands over. Returns the pause until the next round.
    async fn round(&mut self) -> Result<Duration, Error> {
        if self.pulse.as_ref().is_some_and(Pulse::is_silent) {
            return Err(Error::Hangs);
        }
        self.avoid_what_cannot_be_led();
        self.handing_over.retain(|partition| *self.appenders[partition.index()].leads.borrow());
        let session = self.open_session().await?;
        let holder = self.config.holder();
        let fits: Arc<[Fit]> = self.fits.borrow_and_update().clone().unwrap_or_default();
        self.give_up_newer(&fits);
        // A gateway joins once it could lead every partition; until then those of the release before lead.
        let shares =
            self.config.leads == Leads::Share && !self.leave.is_cancelled() && !fits.contains(&Fit::Unbuilt);
        let kept: Vec<i16> =
            self.held.keys().chain(&self.handing_over).map(|partition| partition.number()).collect();
        let started = Instant::now();
        let since = session.now().await?;
        if shares {
            let avoids: Vec<i16> = self.avoids.keys().map(|partition| partition.number()).collect();
            session.announce(&holder, &avoids).await?;
        } else {
            session.leave(&holder).await?;
        }
        session.release(&holder, since, &kept).await?;
        let renewed = session.renew(&holder, &kept).await?;
        // A lease that was renewed after `started` expires later than this by Postgres's clock.
        let until = started + self.config.duration * 9 / 10;
        for partition in self.held.clone().into_keys() {
            if renewed.contains(&partition) {
                self.tell(partition, Lease::Held { until });
            } else {
                self.config.metrics.leases_lost.inc();
                tracing::warn!(event = "leases.lost", %partition, "another gateway leads a partition");
                self.held.remove(&partition);
                self.tell(partition, Lease::None);
            }
        }
        let mut rows = session.rows().await?;
        // A row may be missing, or one too many.
        rows.leases.resize(self.appenders.len(), LeaseRow::FREE);
        let mut leaders: Vec<Option<&str>> =
            rows.leases.iter().map(|lease| lease.gateway.as_deref().filter(|_| lease.is_led)).collect();
        // A partition that this program cannot lead is not free for it.
        for (leader, _) in leaders.iter_mut().zip(fits.iter()).filter(|(_, fit)| !fit.can_lead()) {
            *leader = leader.or(Some(""));
        }
        let are_older = rows.gateways.iter().any(|gateway| gateway.shape < shape());
        let ours = (0..).map(Partition::new).zip(fits.iter()).filter(|(_, fit)| **fit == Fit::Ours);
        let beyond = ours.map(|(partition, _)| partition).filter(|_| are_older).collect();
        let held = self.held.keys().copied().collect();
        let alone = match self.config.leads {
            Leads::Share => None,
            Leads::Alone(partition) => Some(partition),
        };
        let view = View {
            own: &holder.gateway,
            gateways: &rows.gateways,
            beyond: &beyond,
            leaders: &leaders,
            held: &held,
            alone,
        };
        let plan = plan(&view);
        for partition in plan.hand_over {
            self.held.remove(&partition);
            self.handing_over.insert(partition);
            self.tell(partition, Lease::None);
        }
        // An appender that still leads under a lease it has lost must not take the new one for it: its states are old.
        let is_at_rest = |partition: &&Partition| !*self.appenders[partition.index()].leads.borrow();
        let wanted: Vec<i16> =
            plan.claim.iter().filter(is_at_rest).map(|partition| partition.number()).collect();
        let started = Instant::now();
        let claimed = if wanted.is_empty() { Vec::new() } else { session.claim(&holder, &wanted).await? };
        let until = started + self.config.duration * 9 / 10;
        for (partition, term) in &claimed {
            self.held.insert(*partition, *term);
            self.handing_over.remove(partition);
        }
        // An opening of an earlier term must find the routes of this one before it finds an appender that leads.
        self.publish(Some(&rows));
        for (partition, _) in claimed {
            self.tell(partition, Lease::Held { until });
        }
        self.session = Some(session);
        let is_short = plan.is_short && fits.iter().any(|fit| fit.can_lead());
        let is_busy = is_short || !self.handing_over.is_empty() || leaders.contains(&None);
        Ok(if is_busy { BUSY_ROUND } else { pause_within(self.config.duration) })
    }

    /// Gives up partitions that this gateway holds and cannot lead: it avoids them for a while. The other gateways see
    /// this and take them over, if there are any.
    fn avoid_what_cannot_be_led(&mut self) {
        let now = Instant::now();
        self.avoids.retain(|_, until| *until > now);
        let Self { held, stuck, .. } = self;
        stuck.retain(|partition, _| held.contains_key(partition));
        for partition in self.held.keys().copied() {
            let failures = *self.appenders[partition.index()].failures.borrow();
            if failures == 0 {
                self.stuck.remove(&partition);
                self.given_up.remove(&partition);
                continue;
            }
            let (since, before) = *self.stuck.entry(partition).or_insert((now, failures));
            // The count may have begun anew.
            let more = failures.checked_sub(before).unwrap_or(failures);
            if more >= GIVE_UP_FAILURES && now.duration_since(since) >= GIVE_UP_AFTER {
                self.config.metrics.leases_given_up.inc();
                tracing::error!(
                    event = "leases.given_up",
                    %partition,
                    "this gateway cannot lead a partition; another one should"
                );
                self.stuck.remove(&partition);
                self.avoids.insert(partition, now + AVOID_FOR);
                self.given_up.insert(partition);
            }
        }
    }

    /// Hands over the partitions that a newer program has led: this one can append nothing to them any more.
    fn give_up_newer(&mut self, fits: &[Fit]) {
        let is_outdated = fits.contains(&Fit::Newer);
        if is_outdated && !self.is_outdated {
            tracing::warn!(
                event = "leases.outdated",
                partitions = fits.iter().filter(|fit| **fit == Fit::Newer).count(),
                "a newer program leads partitions of the log: this one leads them no more"
            );
        }
        self.is_outdated = is_outdated;
        for (partition, _) in (0..).map(Partition::new).zip(fits).filter(|(_, fit)| **fit == Fit::Newer) {
            if self.held.remove(&partition).is_some() {
                self.handing_over.insert(partition);
                self.tell(partition, Lease::None);
            }
        }
    }

    fn tell(&self, partition: Partition, lease: Lease) {
        self.appenders[partition.index()].lease.send_replace(lease);
    }

    /// Publishes where the partitions are led, by `rows`; without them, that the leases cannot be read.
    fn publish(&self, rows: Option<&Rows>) {
        let Some(rows) = rows else {
            let unread = self.routes.borrow().unread();
            self.routes.send_replace(Arc::new(unread));
            return;
        };
        let route = |(number, lease): (i16, &LeaseRow)| {
            if let Some(term) = self.held.get(&Partition::new(number)) {
                return Route::Here(*term);
            }
            match &lease.address {
                Some(address) if lease.is_led && lease.gateway.as_ref() != Some(&self.config.gateway) => {
                    let (address, term) = (address.clone(), lease.term);
                    Route::There(Elsewhere { address, term, delivers: lease.delivers })
                }
                Some(_) | None => Route::Unknown,
            }
        };
        let of: Vec<Route> = (0..).zip(&rows.leases).map(route).collect();
        let others = rows.gateways.iter().any(|gateway| gateway.name != self.config.gateway);
        let routes = Routes { unled: unled::among(&of, rows, &self.given_up), of, read: Read::Yes, others };
        self.routes.send_if_modified(|known| {
            let is_new = **known != routes;
            if is_new {
                *known = Arc::new(routes);
            }
            is_new
        });
    }

    /// Gives all leases back, so that another gateway need not wait until they expire.
    async fn release_all(&mut self) -> Result<(), Error> {
        let session = self.open_session().await?;
        let holder = self.config.holder();
        session.leave(&holder).await?;
        let since = session.now().await?;
        session.release(&holder, since, &[]).await
    }
}
