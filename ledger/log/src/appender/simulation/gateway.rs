//! The gateways of a simulation. Each has the real ledger: appenders of all partitions, the work for leases, and commands
//! to the gateway that leads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use farthing_core::partition::{Partition, Partitions};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::super::{Appender, Lease, QueueLimits};
use super::connection::{GatewayStore, Link};
use super::database::Database;
use super::log::SimulatedLog;
use super::peers::SimulatedPeers;
use super::stall::Stall;
use crate::clock::Clock;
use crate::leases::{Leads, Leases, Led, Member, Routes};
use crate::ledger::{Ledger, Stop};

/// The number of gateways.
pub(super) const GATEWAYS: usize = 3;

/// The number of partitions.
pub(super) const PARTITIONS: i16 = 2;

/// How long a lease lasts.
pub(super) const LEASE: Duration = Duration::from_secs(2);

/// The most that a gateway's clock differs from the database's, in milliseconds.
const CLOCKS_MS: i64 = 200;

/// How long a gateway that stops waits until others lead what it led.
const HAND_OVER_TIMEOUT: Duration = Duration::from_secs(5);

/// A running program: it may stall, be cut off, and be killed.
#[derive(Debug, Clone, Default)]
pub(super) struct Process {
    stall: Stall,
    killed: CancellationToken,
    pub(super) link: Link,
}

impl Process {
    /// Runs `task` as a part of the program. `None` if it was killed meanwhile.
    pub(super) async fn run<T>(&self, task: impl Future<Output = T>) -> Option<T> {
        self.killed.run_until_cancelled(self.stall.clone().run(task)).await
    }
}

/// A gateway.
struct Gateway {
    name: String,
    ledger: Ledger,
    /// The routes of every call's own ledger.
    listeners: Arc<Mutex<Vec<watch::Sender<Arc<Routes>>>>>,
    process: Process,
    stop: Stop,
    tasks: Vec<JoinHandle<()>>,
}

impl Gateway {
    fn start(gateways: &Gateways, name: String, random: &mut fastrand::Rng) -> Self {
        let (process, stop) = (Process::default(), Stop::default());
        let partitions = partitions();
        let (mut appenders, mut led, mut tasks) = (Vec::new(), Vec::new(), Vec::new());
        let run = |task: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>| {
            let process = process.clone();
            tokio::spawn(async move { process.run(task).await.unwrap_or_default() })
        };
        let store = |partition| GatewayStore {
            database: gateways.database.of(partition),
            gateway: name.clone(),
            link: process.link.clone(),
        };
        for partition in partitions.all() {
            let (lease, leased) = watch::channel(Lease::None);
            let limits = (QueueLimits::default(), Arc::default());
            let (appender, task) = Appender::over(store(partition), &name, limits, leased, stop.end.clone());
            led.push(Led { lease, leads: appender.leads(), failures: appender.failures() });
            appenders.push(appender);
            tasks.push(run(Box::pin(task)));
        }
        let member = Member {
            gateway: name.clone(),
            address: Some(name.clone()),
            delivers: true,
            leads: Leads::Share,
            duration: LEASE,
            metrics: Arc::default(),
        };
        let (leases, routes) = Leases::simulated(store(Partition::new(0)), member, led, stop.leave.clone());
        let end = stop.end.clone();
        tasks.push(run(Box::pin(async move { leases.run(&end).await })));
        let listeners = Arc::<Mutex<Vec<_>>>::default();
        tokio::spawn(tell(routes.clone(), Arc::clone(&listeners)));
        let ledger = Ledger::over(
            partitions,
            appenders,
            routes,
            Arc::new(SimulatedLog { database: gateways.database.clone(), link: process.link.clone() }),
            Arc::new(Clock::at(gateways.began, random.i64(-CLOCKS_MS..=CLOCKS_MS))),
            Arc::new(SimulatedPeers {
                database: gateways.database.clone(),
                gateways: Arc::downgrade(&gateways.running),
                process: process.clone(),
            }),
        );
        Self { name, ledger, listeners, process, stop, tasks }
    }

    /// The ledger of one call. Its routes are its own: which of several calls hears first of a new leader would be chance
    /// otherwise, and a seed would not decide the run.
    fn ledger(&self) -> Ledger {
        let (sender, routes) = watch::channel(self.ledger.routes());
        self.listeners.lock().unwrap().push(sender);
        self.ledger.with_routes(routes)
    }

    /// Ends it as a program ends: it hands over first and answers what waits.
    async fn stop(mut self) {
        self.process.stall.end();
        self.stop.leave.cancel();
        let mut led = self.ledger().led();
        let handed_over = async {
            let to_hand_over = led.to_hand_over();
            led.led_by_others(&to_hand_over).await;
        };
        let _ = timeout(HAND_OVER_TIMEOUT, handed_over).await;
        self.stop.end.cancel();
        for task in &mut self.tasks {
            task.await.expect("a task of a gateway panicked");
        }
        self.process.killed.cancel();
    }

    /// Ends it at once.
    async fn kill(mut self) {
        self.process.stall.end();
        self.process.killed.cancel();
        for task in &mut self.tasks {
            task.await.expect("a task of a gateway panicked");
        }
    }
}

/// A phase may end while a gateway is being stopped.
impl Drop for Gateway {
    fn drop(&mut self) {
        self.process.killed.cancel();
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Tells each call of a gateway, in their order, where the partitions are led.
async fn tell(
    mut routes: watch::Receiver<Arc<Routes>>,
    listeners: Arc<Mutex<Vec<watch::Sender<Arc<Routes>>>>>,
) {
    while routes.changed().await.is_ok() {
        let known = Arc::clone(&routes.borrow_and_update());
        listeners.lock().unwrap().retain(|listener| listener.send(Arc::clone(&known)).is_ok());
    }
}

fn partitions() -> Partitions {
    Partitions::new(PARTITIONS).unwrap()
}

/// The gateways that run, in their places.
#[derive(Clone)]
pub(super) struct Gateways {
    database: Database,
    began: Instant,
    running: Arc<Running>,
    started: Arc<AtomicU64>,
}

/// The gateways in their places, and the choices of new ones.
pub(super) struct Running(Mutex<(Vec<Gateway>, fastrand::Rng)>);

impl Running {
    /// The ledger and the process of the gateway with this name.
    pub(super) fn named(&self, name: &str) -> Option<(Ledger, Process)> {
        let running = self.0.lock().unwrap();
        let gateway = running.0.iter().find(|gateway| gateway.name == name)?;
        Some((gateway.ledger(), gateway.process.clone()))
    }
}

impl Gateways {
    pub(super) fn start(database: &Database, random: fastrand::Rng) -> Self {
        let gateways = Self {
            database: database.clone(),
            began: Instant::now(),
            running: Arc::new(Running(Mutex::new((Vec::new(), random)))),
            started: Arc::default(),
        };
        for _ in 0..GATEWAYS {
            let gateway = gateways.another();
            gateways.running.0.lock().unwrap().0.push(gateway);
        }
        gateways
    }

    /// Starts one more gateway.
    fn another(&self) -> Gateway {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let mut random = self.running.0.lock().unwrap().1.fork();
        Gateway::start(self, format!("gateway {number}"), &mut random)
    }

    /// The ledger of the gateway at `at`, for one call, and its process.
    pub(super) fn ledger(&self, at: usize) -> (Ledger, Process) {
        let running = self.running.0.lock().unwrap();
        let gateway = &running.0[at];
        (gateway.ledger(), gateway.process.clone())
    }

    /// The place of the gateway in the lease of `partition`.
    pub(super) fn holder(&self, partition: Partition) -> Option<usize> {
        let holder = self.database.leases().holder(partition)?;
        self.running.0.lock().unwrap().0.iter().position(|gateway| gateway.name == holder)
    }

    /// Ends the gateway at `at` and starts another in its place.
    pub(super) async fn replace(&self, at: usize, end: End) {
        let new = self.another();
        let old = std::mem::replace(&mut self.running.0.lock().unwrap().0[at], new);
        match end {
            End::Killed => old.kill().await,
            End::Stopped => {
                if old.process.link.is_appending() {
                    self.database.notes.count("a gateway was stopped during a commit");
                }
                old.stop().await;
            }
        }
    }

    /// Stalls the gateway at `at` for so long. It may be another's turn to lead when it goes on.
    pub(super) fn stall(&self, at: usize, lasts: Duration) {
        let (process, name) = {
            let gateway = &self.running.0.lock().unwrap().0[at];
            (gateway.process.clone(), gateway.name.clone())
        };
        let of = |name: &str, database: &Database| -> Vec<Partition> {
            let is_its =
                |partition: &Partition| database.leases().holder(*partition).as_deref() == Some(name);
            partitions().all().filter(is_its).collect()
        };
        let had = of(&name, &self.database);
        process.stall.begin();
        let database = self.database.clone();
        tokio::spawn(async move {
            sleep(lasts).await;
            if of(&name, &database).len() < had.len() {
                database.notes.count("a gateway stalled until another led");
            }
            process.stall.end();
        });
    }

    /// Cuts the gateway at `at` off the database, or off the other gateways, for so long.
    pub(super) fn cut(&self, at: usize, from: Cut, lasts: Duration) {
        let link = self.running.0.lock().unwrap().0[at].process.link.clone();
        let cut = move |link: &Link, is_cut| match from {
            Cut::Store => link.cut(is_cut),
            Cut::Peers => link.cut_off_peers(is_cut),
        };
        cut(&link, true);
        tokio::spawn(async move {
            sleep(lasts).await;
            cut(&link, false);
        });
    }

    /// Stops all; each must end by itself.
    pub(super) async fn stop(self) {
        let gateways = std::mem::take(&mut self.running.0.lock().unwrap().0);
        for gateway in gateways {
            gateway.process.link.cut(false);
            gateway.stop().await;
        }
    }
}

/// The gateways, as one of them refers to the others.
pub(super) type Others = Weak<Running>;

/// How a gateway ends.
#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    Killed,
    Stopped,
}

/// What a gateway is cut off from.
#[derive(Debug, Clone, Copy)]
pub(super) enum Cut {
    Store,
    Peers,
}
