//! All child processes of an instance. They stop in order: gateways, projectors, mock provider, NATS, Postgres.

use anyhow::{Context as _, Result};
use serde::Serialize;
use tokio::sync::watch;

use super::process::{Process, ProcessSpec};

/// The child processes of one instance.
pub(super) struct Processes {
    starts: watch::Sender<()>,
    /// Of a Citus cluster, the coordinator.
    postgres: Option<Process>,
    workers: Vec<Process>,
    nats: Vec<Process>,
    provider: Option<Process>,
    gateways: Vec<Process>,
    projectors: Vec<Process>,
}

/// The current process ids.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct Pids {
    postgres: Option<u32>,
    /// The workers of a Citus cluster.
    workers: Vec<Option<u32>>,
    /// The first of `nats_servers`.
    nats: Option<u32>,
    nats_servers: Vec<Option<u32>>,
    gateways: Vec<Option<u32>>,
    projectors: Vec<Option<u32>>,
    provider: Option<u32>,
}

impl Processes {
    /// No processes yet. `starts` is notified of every start and restart.
    pub(super) fn new(starts: watch::Sender<()>) -> Self {
        Self {
            starts,
            postgres: None,
            workers: Vec::new(),
            nats: Vec::new(),
            provider: None,
            gateways: Vec::new(),
            projectors: Vec::new(),
        }
    }

    fn start(&self, spec: ProcessSpec) -> Process {
        Process::start(spec, self.starts.clone())
    }

    /// Starts Postgres.
    pub(super) fn start_postgres(&mut self, spec: ProcessSpec) {
        self.postgres = Some(self.start(spec));
    }

    /// Starts another worker of a Citus cluster.
    pub(super) fn start_worker(&mut self, spec: ProcessSpec) {
        self.workers.push(self.start(spec));
    }

    /// Starts another NATS server.
    pub(super) fn start_nats(&mut self, spec: ProcessSpec) {
        self.nats.push(self.start(spec));
    }

    /// Starts the mock provider.
    pub(super) fn start_provider(&mut self, spec: ProcessSpec) {
        self.provider = Some(self.start(spec));
    }

    /// Starts another gateway.
    pub(super) fn start_gateway(&mut self, spec: ProcessSpec) {
        self.gateways.push(self.start(spec));
    }

    /// Starts another projector.
    pub(super) fn start_projector(&mut self, spec: ProcessSpec) {
        self.projectors.push(self.start(spec));
    }

    /// Postgres.
    pub(super) fn postgres(&self) -> Result<&Process> {
        self.postgres.as_ref().context("Postgres was not started")
    }

    /// The workers of a Citus cluster.
    pub(super) fn workers(&self) -> &[Process] {
        &self.workers
    }

    /// The NATS servers.
    pub(super) fn nats(&self) -> &[Process] {
        &self.nats
    }

    /// The processes that run roles of the `farthing` program.
    pub(super) fn roles(&self) -> impl Iterator<Item = &Process> {
        self.provider.iter().chain(&self.gateways).chain(&self.projectors)
    }

    /// The current process ids.
    pub(super) fn pids(&self) -> Pids {
        Pids {
            postgres: self.postgres.as_ref().and_then(Process::pid),
            workers: self.workers.iter().map(Process::pid).collect(),
            nats: self.nats.first().and_then(Process::pid),
            nats_servers: self.nats.iter().map(Process::pid).collect(),
            gateways: self.gateways.iter().map(Process::pid).collect(),
            projectors: self.projectors.iter().map(Process::pid).collect(),
            provider: self.provider.as_ref().and_then(Process::pid),
        }
    }

    /// Stops all processes, each before those it depends on.
    pub(super) async fn stop(self) {
        let postgres = self.postgres.into_iter().collect();
        let provider = self.provider.into_iter().collect();
        for group in [self.gateways, self.projectors, provider, self.nats, postgres, self.workers] {
            stop_together(group).await;
        }
    }
}

async fn stop_together(group: Vec<Process>) {
    futures_util::future::join_all(group.into_iter().map(Process::stop)).await;
}
