//! All children, and the order in which they end: gateways, projectors, provider, NATS, Postgres.

use serde::Serialize;
use tokio::sync::watch;

use super::process::{Plan, Process};
use crate::failure::Failure;

/// The children of one `farthing dev`.
pub(super) struct Fleet {
    told: watch::Sender<()>,
    postgres: Option<Process>,
    nats: Option<Process>,
    provider: Option<Process>,
    gateways: Vec<Process>,
    projectors: Vec<Process>,
}

/// The newest process ids.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct Pids {
    postgres: Option<u32>,
    nats: Option<u32>,
    gateways: Vec<Option<u32>>,
    projectors: Vec<Option<u32>>,
    provider: Option<u32>,
}

impl Fleet {
    /// No children yet; `told` will hear of every start of one.
    pub(super) fn new(told: watch::Sender<()>) -> Self {
        Self {
            told,
            postgres: None,
            nats: None,
            provider: None,
            gateways: Vec::new(),
            projectors: Vec::new(),
        }
    }

    fn start(&self, plan: Plan) -> Process {
        Process::start(plan, self.told.clone())
    }

    /// Starts Postgres.
    pub(super) fn start_postgres(&mut self, plan: Plan) {
        self.postgres = Some(self.start(plan));
    }

    /// Starts NATS.
    pub(super) fn start_nats(&mut self, plan: Plan) {
        self.nats = Some(self.start(plan));
    }

    /// Starts the mock provider.
    pub(super) fn start_provider(&mut self, plan: Plan) {
        self.provider = Some(self.start(plan));
    }

    /// Starts one more gateway.
    pub(super) fn start_gateway(&mut self, plan: Plan) {
        self.gateways.push(self.start(plan));
    }

    /// Starts one more projector.
    pub(super) fn start_projector(&mut self, plan: Plan) {
        self.projectors.push(self.start(plan));
    }

    /// Postgres.
    pub(super) fn postgres(&self) -> Result<&Process, Failure> {
        self.postgres.as_ref().ok_or_else(|| Failure::new("Postgres was not started"))
    }

    /// NATS.
    pub(super) fn nats(&self) -> Result<&Process, Failure> {
        self.nats.as_ref().ok_or_else(|| Failure::new("NATS was not started"))
    }

    /// The children that are roles of this program.
    pub(super) fn roles(&self) -> impl Iterator<Item = &Process> {
        self.provider.iter().chain(&self.gateways).chain(&self.projectors)
    }

    /// The newest process ids.
    pub(super) fn pids(&self) -> Pids {
        Pids {
            postgres: self.postgres.as_ref().and_then(Process::pid),
            nats: self.nats.as_ref().and_then(Process::pid),
            gateways: self.gateways.iter().map(Process::pid).collect(),
            projectors: self.projectors.iter().map(Process::pid).collect(),
            provider: self.provider.as_ref().and_then(Process::pid),
        }
    }

    /// Ends them all, those that use others first.
    pub(super) async fn stop(self) {
        for group in [self.gateways, self.projectors, self.provider.into_iter().collect()] {
            stop_together(group).await;
        }
        for last in self.nats.into_iter().chain(self.postgres) {
            last.stop().await;
        }
    }
}

async fn stop_together(group: Vec<Process>) {
    futures_util::future::join_all(group.into_iter().map(Process::stop)).await;
}
