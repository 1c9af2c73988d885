//! The gateways of a simulation. Each has an appender, and a task that keeps the lease.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::super::{Appender, Lease, QueueLimits};
use super::connection::{GatewayStore, Link};
use super::database::{Database, Fault};
use super::stall::Stall;

/// The number of gateways.
pub(super) const GATEWAYS: usize = 3;

/// How long a lease lasts.
pub(super) const LEASE: Duration = Duration::from_secs(2);

/// A gateway takes its lease for ended so long before it expires.
const MARGIN: Duration = Duration::from_millis(100);

/// The longest pause before a lease is renewed or taken, in milliseconds.
const RENEWAL_MS: u64 = 800;

/// A gateway.
pub(super) struct Gateway {
    name: String,
    appender: Appender,
    stop: CancellationToken,
    task: JoinHandle<()>,
    keeper: JoinHandle<()>,
    stall: Stall,
    link: Link,
    hand_over: Arc<Notify>,
}

impl Gateway {
    pub(super) fn start(database: &Database, name: String, random: fastrand::Rng) -> Self {
        let (stop, stall, link) = (CancellationToken::new(), Stall::default(), Link::default());
        let (lease, seen) = watch::channel(Lease::None);
        let store = GatewayStore { database: database.clone(), gateway: name.clone(), link: link.clone() };
        let (appender, task) =
            Appender::over(store, &name, (QueueLimits::default(), Arc::default()), seen, stop.clone());
        let hand_over = Arc::new(Notify::new());
        let keeper = Keeper {
            database: database.clone(),
            gateway: name.clone(),
            random,
            lease,
            leads: appender.leads(),
            link: link.clone(),
            hand_over: Arc::clone(&hand_over),
        };
        let task = tokio::spawn(stall.clone().run(task));
        let keeper = tokio::spawn(stall.clone().run(keeper.keep()));
        Self { name, appender, stop, task, keeper, stall, link, hand_over }
    }

    /// Ends it after it has answered what waits.
    async fn stop(mut self, database: &Database) {
        self.stall.end();
        self.stop.cancel();
        (&mut self.task).await.expect("an appender panicked");
        self.keeper.abort();
        database.disk().release_lease(&self.name);
    }

    /// Ends it at once.
    async fn kill(mut self) {
        self.task.abort();
        self.keeper.abort();
        if let Err(error) = (&mut self.task).await {
            assert!(error.is_cancelled(), "an appender panicked: {error}");
        }
    }
}

/// A phase may end while a gateway is being stopped.
impl Drop for Gateway {
    fn drop(&mut self) {
        self.task.abort();
        self.keeper.abort();
    }
}

/// The task of a gateway that takes the lease, renews it and hands it over.
struct Keeper {
    database: Database,
    gateway: String,
    random: fastrand::Rng,
    lease: watch::Sender<Lease>,
    leads: watch::Receiver<bool>,
    link: Link,
    hand_over: Arc<Notify>,
}

impl Keeper {
    async fn keep(mut self) {
        loop {
            let pause = sleep(Duration::from_millis(self.random.u64(..RENEWAL_MS)));
            tokio::select! {
                biased;
                () = self.hand_over.notified() => self.hand_over().await,
                () = pause => self.renew().await,
            }
        }
    }

    /// Takes the lease or renews it. The request or its reply may be lost.
    async fn renew(&self) {
        let asked_at = Instant::now();
        sleep(self.database.latency()).await;
        let fault = self.database.fault();
        if self.link.is_down(&self.database)
            || matches!(fault, Fault::Cancel | Fault::LoseRequest | Fault::SilentLoss)
        {
            return;
        }
        let is_held = {
            let mut disk = self.database.disk();
            // As `leases` do: an appender that still leads under a lease it has lost must not take a new one for it.
            let may_claim = !*self.leads.borrow() || disk.holder.as_ref() == Some(&self.gateway);
            may_claim && disk.take_lease(&self.gateway, LEASE)
        };
        sleep(self.database.latency()).await;
        if matches!(fault, Fault::LoseReply | Fault::Late | Fault::Silence) {
            return;
        }
        if is_held {
            self.lease.send_replace(Lease::Held { until: asked_at + LEASE - MARGIN });
        } else if *self.lease.borrow() != Lease::None {
            self.lease.send_replace(Lease::None);
        }
    }

    /// Leaves the lease to another gateway, once everything that was decided is answered.
    async fn hand_over(&mut self) {
        if !matches!(*self.lease.borrow(), Lease::Held { .. }) {
            return;
        }
        self.lease.send_replace(Lease::None);
        let _ = self.leads.wait_for(|leads| !leads).await;
        sleep(self.database.latency()).await;
        self.database.disk().release_lease(&self.gateway);
        self.database.notes.count("a lease was handed over");
        sleep(LEASE).await;
    }
}

/// The gateways that run, in their places.
#[derive(Clone)]
pub(super) struct Gateways {
    database: Database,
    running: Arc<Mutex<(Vec<Gateway>, fastrand::Rng)>>,
    started: Arc<std::sync::atomic::AtomicUsize>,
}

impl Gateways {
    pub(super) fn start(database: &Database, mut random: fastrand::Rng) -> Self {
        let start = |at| Gateway::start(database, format!("gateway {at}"), random.fork());
        let gateways = (0..GATEWAYS).map(start).collect();
        Self {
            database: database.clone(),
            running: Arc::new(Mutex::new((gateways, random))),
            started: Arc::new(GATEWAYS.into()),
        }
    }

    pub(super) fn appender(&self, at: usize) -> Appender {
        self.running.lock().unwrap().0[at].appender.clone()
    }

    /// The place of the gateway in the lease, as every gateway can read it.
    pub(super) fn holder(&self) -> Option<usize> {
        let holder = self.database.disk().holder.clone()?;
        self.running.lock().unwrap().0.iter().position(|gateway| gateway.name == holder)
    }

    /// Ends the gateway at `at` and starts another in its place.
    pub(super) async fn replace(&self, at: usize, end: End) {
        let old = {
            let mut running = self.running.lock().unwrap();
            let number = self.started.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let random = running.1.fork();
            let new = Gateway::start(&self.database, format!("gateway {number}"), random);
            std::mem::replace(&mut running.0[at], new)
        };
        match end {
            End::Killed => old.kill().await,
            End::Stopped => old.stop(&self.database).await,
        }
    }

    /// Stalls the gateway at `at` for so long. It may be another's turn to lead when it goes on.
    pub(super) fn stall(&self, at: usize, lasts: Duration) {
        let had_lease = self.holder() == Some(at);
        let (stall, name) = {
            let gateway = &self.running.lock().unwrap().0[at];
            (gateway.stall.clone(), gateway.name.clone())
        };
        stall.begin();
        let database = self.database.clone();
        tokio::spawn(async move {
            sleep(lasts).await;
            if had_lease && database.disk().holder.as_ref() != Some(&name) {
                database.notes.count("a gateway stalled until another led");
            }
            stall.end();
        });
    }

    /// Cuts the gateway at `at` off the database for so long.
    pub(super) fn cut(&self, at: usize, lasts: Duration) {
        let link = self.running.lock().unwrap().0[at].link.clone();
        link.cut(true);
        tokio::spawn(async move {
            sleep(lasts).await;
            link.cut(false);
        });
    }

    /// Asks the gateway at `at` to hand its lease over.
    pub(super) fn hand_over(&self, at: usize) {
        let running = self.running.lock().unwrap();
        if running.0[at].link.is_appending() {
            self.database.notes.count("a lease was to be handed over during a commit");
        }
        running.0[at].hand_over.notify_one();
    }

    /// Stops all; each must end by itself.
    pub(super) async fn stop(self) {
        let gateways = std::mem::take(&mut self.running.lock().unwrap().0);
        for gateway in gateways {
            gateway.link.cut(false);
            gateway.stop(&self.database).await;
        }
    }
}

/// How a gateway ends.
#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    Killed,
    Stopped,
}
