//! The ready file: describes the running instance to tools. Rewritten after every restart of a child.

use std::net::SocketAddr;

use serde::Serialize;

use super::demo::Demo;
use super::gateway_address::{self, Listens, base_url};
use super::processes::Pids;
use super::roles::MockAddresses;

/// The message servers.
#[derive(Debug, Serialize)]
pub(super) struct Nats {
    /// With commas between them.
    pub(super) nats_url: String,
    /// What the names of streams and subjects begin with; empty without a prefix.
    pub(super) nats_prefix: String,
}

/// The content of the ready file.
#[derive(Debug, Serialize)]
pub(super) struct Ready {
    /// The base URL of the first gateway.
    pub(super) base_url: String,
    gateways: Vec<String>,
    /// The URL of the hosted pages and the API reference.
    pub(super) pages_url: String,
    /// The URL of each gateway's pages.
    pages: Vec<String>,
    operators: OperatorUrls,
    /// The demo merchant's ids and keys.
    #[serde(flatten)]
    pub(super) demo: Demo,
    provider_url: String,
    /// The mock's second address, which gateways know as `openai`.
    pub(super) openai_url: String,
    /// Those which they know as `anthropic` and `google`.
    anthropic_url: String,
    google_url: String,
    database_url: String,
    #[serde(flatten)]
    nats: Nats,
    /// The current process ids.
    pub(super) pids: Pids,
}

/// The URLs at which processes serve their metrics and their state.
#[derive(Debug, Serialize)]
pub(super) struct OperatorUrls {
    gateways: Vec<String>,
    projectors: Vec<String>,
}

impl OperatorUrls {
    /// Those of the gateways.
    pub(super) fn of_gateways(listens: &[Listens]) -> Self {
        let gateways = listens.iter().map(|listens| format!("http://{}/", listens.operator)).collect();
        Self { gateways, projectors: Vec::new() }
    }

    /// Adds that of a projector.
    pub(super) fn add_projector(&mut self, operator: SocketAddr) {
        self.projectors.push(format!("http://{operator}/"));
    }
}

impl Ready {
    /// The content without process ids. `mock` are the mock's addresses.
    pub(super) fn new(
        (listens, operators): (&[Listens], OperatorUrls),
        pages_url: String,
        demo: Demo,
        mock: &MockAddresses,
        database_url: String,
        nats: Nats,
    ) -> Self {
        let gateways: Vec<_> = listens.iter().map(|listens| base_url(listens.api)).collect();
        Self {
            base_url: gateways.first().cloned().unwrap_or_default(),
            gateways,
            pages_url,
            pages: listens.iter().map(|listens| gateway_address::pages_url(listens.pages)).collect(),
            operators,
            demo,
            provider_url: format!("http://{}", mock.other),
            openai_url: format!("http://{}", mock.openai),
            anthropic_url: format!("http://{}", mock.anthropic),
            google_url: format!("http://{}", mock.google),
            database_url,
            nats,
            pids: Pids::default(),
        }
    }
}
