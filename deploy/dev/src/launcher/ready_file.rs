//! The ready file: describes the running instance to tools. Rewritten after every restart of a child.

use std::net::SocketAddr;

use serde::Serialize;

use super::demo::Demo;
use super::processes::Pids;

/// The content of the ready file.
#[derive(Debug, Serialize)]
pub(super) struct Ready {
    /// The base URL of the first gateway.
    pub(super) base_url: String,
    gateways: Vec<String>,
    /// The demo merchant's ids and keys.
    #[serde(flatten)]
    pub(super) demo: Demo,
    provider_url: String,
    /// The mock's second address, which gateways know as `openai`.
    pub(super) openai_url: String,
    database_url: String,
    nats_url: String,
    /// The current process ids.
    pub(super) pids: Pids,
}

impl Ready {
    /// The content without process ids. `gateways` are the base URLs of all gateways.
    pub(super) fn new(
        gateways: Vec<String>,
        demo: Demo,
        provider: SocketAddr,
        openai: SocketAddr,
        database_url: String,
        nats_url: String,
    ) -> Self {
        Self {
            base_url: gateways.first().cloned().unwrap_or_default(),
            gateways,
            demo,
            provider_url: format!("http://{provider}"),
            openai_url: format!("http://{openai}"),
            database_url,
            nats_url,
            pids: Pids::default(),
        }
    }
}
