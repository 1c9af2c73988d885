//! The file in which `farthing dev` says that it is ready, and where everything is.

use serde::Deserialize;

/// The process ids in the ready file.
#[derive(Debug, Clone, Deserialize)]
pub struct Pids {
    /// The Postgres server; of a Citus cluster, the coordinator. `None` if it was given.
    pub postgres: Option<u32>,
    /// The workers of a Citus cluster.
    pub workers: Vec<u32>,
    /// The first NATS server. `None` if it was given.
    pub nats: Option<u32>,
    /// All NATS servers.
    pub nats_servers: Vec<u32>,
    /// Each gateway.
    pub gateways: Vec<u32>,
    /// Each projector.
    pub projectors: Vec<u32>,
    /// The mock provider.
    pub provider: u32,
}

/// The URLs in the ready file at which processes serve their metrics and their state.
#[derive(Debug, Clone, Deserialize)]
pub struct Operators {
    /// Each gateway.
    pub gateways: Vec<String>,
    /// Each projector.
    pub projectors: Vec<String>,
}

/// The ready file.
#[derive(Debug, Clone, Deserialize)]
pub struct Ready {
    /// The base URL of the first gateway; ends in `/v1/`.
    pub base_url: String,
    /// The base URL of each gateway.
    pub gateways: Vec<String>,
    /// The URL of the hosted pages; ends in `/`.
    pub pages_url: String,
    /// The URL of each gateway's pages.
    pub pages: Vec<String>,
    /// Where processes serve their metrics and their state.
    pub operators: Operators,
    /// The demo merchant.
    pub merchant_id: String,
    /// Its key.
    pub secret_key: String,
    /// Its customer.
    pub customer_id: String,
    /// The customer's reference id.
    pub reference_id: String,
    /// The customer's secret.
    pub connection_secret: String,
    /// The meter.
    pub meter_slug: String,
    /// The meter's secret.
    pub product_secret: String,
    /// The spend key.
    pub spend_key: String,
    /// The mock provider.
    pub provider_url: String,
    /// The database, as its owner.
    pub database_url: String,
    /// The NATS servers, with commas between them.
    pub nats_url: String,
    /// What the names of streams and subjects begin with; empty without a prefix.
    pub nats_prefix: String,
    /// The processes.
    pub pids: Pids,
}
