//! All child processes of an instance. They stop in order: gateways, projectors, mock provider, NATS, Postgres.

use anyhow::{Context as _, Result};
use serde::Serialize;
use tokio::sync::watch;

use super::process::{Process, ProcessSpec};

/// The child processes of one instance.
pub(super) struct Processes {
    starts: watch::Sender<()>,
    postgres: Option<Process>,
    nats: Option<Process>,
    provider: Option<Process>,
    gateways: Vec<Process>,
    projectors: Vec<Process>,
}

/// The current process ids.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct Pids {
    postgres: Option<u32>,
    nats: Option<u32>,
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
            nats: None,
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

    /// Starts NATS.
    pub(super) fn start_nats(&mut self, spec: ProcessSpec) {
        self.nats = Some(self.start(spec));
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

    /// NATS.
    pub(super) fn nats(&self) -> Result<&Process> {
        self.nats.as_ref().context("NATS was not started")
    }

    /// The processes that run roles of the `farthing` program.
    pub(super) fn roles(&self) -> impl Iterator<Item = &Process> {
        self.provider.iter().chain(&self.gateways).chain(&self.projectors)
    }

    /// The current process ids.
    pub(super) fn pids(&self) -> Pids {
        Pids {
            postgres: self.postgres.as_ref().and_then(Process::pid),
            nats: self.nats.as_ref().and_then(Process::pid),
            gateways: self.gateways.iter().map(Process::pid).collect(),
            projectors: self.projectors.iter().map(Process::pid).collect(),
            provider: self.provider.as_ref().and_then(Process::pid),
        }
    }

    /// Stops all processes, each before those it depends on.
    pub(super) async fn stop(self) {
        for group in [self.gateways, self.projectors, self.provider.into_iter().collect()] {
            stop_together(group).await;
        }
        for server in self.nats.into_iter().chain(self.postgres) {
            server.stop().await;
        }
    }
}

async fn stop_together(group: Vec<Process>) {
    futures_util::future::join_all(group.into_iter().map(Process::stop)).await;
}
