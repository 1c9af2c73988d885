//! The configuration of a gateway, and why one cannot run.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use farthing_core::command::RequestSettings;
use farthing_core::secret::ServerKey;
use farthing_egress::tls;
use farthing_log::appender::QueueLimits;
use farthing_log::connect::{SessionsError, redacted};
use farthing_log::connection_budget;
use farthing_log::nats::NatsConfig;
use farthing_log::reads::PoolError;
use farthing_log::server_key;
use farthing_telemetry::Telemetry;
use farthing_worker::webhooks::WebhookTiming;
use ipnet::IpNet;

use super::connections::ConnectionSettings;
use crate::forward::{DecoderMemory, ResponseHeaders};
use crate::gateways_url::GatewaysUrl;
use crate::pages::Pages;
use crate::proof_key::ProofKey;
use crate::providers::catalogue::Catalogue;
use crate::providers::{ProviderHost, ProviderKey};
use crate::serve::ServerLimits;
use crate::timeouts::Timeouts;

/// The configuration of a gateway.
#[derive(Debug, Clone)]
pub struct Config {
    /// The Postgres database of the log and the read models.
    pub database_url: String,
    /// The NATS server for wake-up notifications; `None` leaves readers to their polling.
    pub nats: Option<NatsConfig>,
    /// The address to listen on; port 0 means any free port.
    pub listen: SocketAddr,
    /// The key that hashes keys and derives secrets; overrides the one in the database.
    pub server_key: Option<ServerKey>,
    /// Signs proofs of the log; `None` leaves them unsigned.
    pub proof_key: Option<ProofKey>,
    /// Non-public addresses that may be called.
    pub allow_addresses: Vec<IpNet>,
    /// The name servers; none for those of the machine.
    pub dns_servers: Vec<SocketAddr>,
    /// The most lookups of names at once.
    pub name_lookups: usize,
    /// PEM files of certificate authorities to trust besides the system's.
    pub trusted_authorities: Vec<PathBuf>,
    /// Hosts that speak a built-in provider's dialect.
    pub provider_hosts: Vec<ProviderHost>,
    /// Managed provider keys by provider, for calls without a provider key of their own.
    pub provider_keys: BTreeMap<String, ProviderKey>,
    /// The list prices of models.
    pub catalogue: Catalogue,
    /// The settings of admission and holds.
    pub settings: RequestSettings,
    /// How long the gateway goes on serving after it was told to stop, while it says that it is not ready.
    pub drain: Duration,
    /// After this time without a heartbeat, a gateway's open requests are ended.
    pub sweep_after: Duration,
    /// Where the hosted pages and the API reference are served.
    pub pages: Pages,
    /// Which headers of a provider pass to the caller.
    pub response_headers: ResponseHeaders,
    /// The timeouts.
    pub timeouts: Timeouts,
    /// The limits of connections and calls in flight.
    pub limits: ServerLimits,
    /// The connections to Postgres.
    pub connections: ConnectionSettings,
    /// The memory of the decoders of compressed responses.
    pub decoder_memory: DecoderMemory,
    /// The most bytes in a second of one merchant's responses that are stored under idempotency keys, of long ones and of
    /// short ones each. Further ones wait. `None` is no limit.
    pub stored_response_rate: Option<NonZeroU64>,
    /// The bounds of each partition's queue of commands.
    pub queue: QueueLimits,
    /// How the gateways of the instance work together.
    pub gateways: Gateways,
    /// The timing of webhook deliveries and their retries; `None` if this gateway delivers none.
    pub webhooks: Option<WebhookTiming>,
    /// What the operator sees.
    pub telemetry: Telemetry,
}

/// How the gateways of an instance work together.
#[derive(Debug, Clone)]
pub struct Gateways {
    /// The address to listen on for the other gateways; port 0 means any free port.
    pub listen: SocketAddr,
    /// The URL at which the other gateways reach that address; `None` if it is the address itself.
    pub url: Option<GatewaysUrl>,
    /// How long the lease of a partition lasts without a renewal.
    pub lease: Duration,
}

/// Why a gateway cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be listened on.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, std::io::Error),
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    /// Postgres.
    #[error("Postgres: {}", redacted(.0))]
    Postgres(#[from] tokio_postgres::Error),
    /// The pool of connections.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// Its connections do not fit into the server.
    #[error(transparent)]
    Connections(#[from] connection_budget::Error),
    /// The settings of connections contradict each other.
    #[error("--postgres-connections {all} is too little: {needed} are needed beside those of partitions")]
    TooFewConnections {
        /// What was given.
        all: usize,
        /// What the other settings need.
        needed: usize,
    },
    /// A pooler shares its sessions.
    #[error(transparent)]
    Sessions(#[from] SessionsError),
    /// The database is not migrated.
    #[error("the database has no instance; run `farthing migrate`")]
    NotMigrated,
    /// A newer program has led a partition.
    #[error("the log belongs to a newer version of this program, which has begun to write it")]
    Outdated,
    /// The key is not the one of the instance.
    #[error(transparent)]
    ServerKey(#[from] server_key::Error),
    /// A read model has no generation for this program.
    #[error(transparent)]
    ReadModels(#[from] farthing_projector::Error),
    /// Other gateways cannot reach the address for them.
    #[error("other gateways cannot reach {0}: give the URL at which they reach this gateway")]
    NoUrl(SocketAddr),
    /// No URL of the pages can be given to browsers.
    #[error("browsers must know where the hosted pages are: give their URL (--pages-url)")]
    NoPagesUrl,
    /// A provider's headers could reach the pages.
    #[error(
        "responses are forwarded unaltered only if the hosted pages have an address and a host of their own: give \
         --pages-listen, and a --pages-url on another host than --listen"
    )]
    PagesNotApart,
    /// TLS towards providers.
    #[error("TLS: {0}")]
    Tls(#[from] tls::Error),
}

#[cfg(test)]
mod tests {
    use zeroize::ZeroizeOnDrop;

    use super::*;

    #[test]
    fn the_keys_of_a_configuration_are_of_types_that_overwrite_themselves() {
        fn overwrites_itself<T: ZeroizeOnDrop>(_: fn(&Config) -> Option<&T>) {}
        overwrites_itself(|config| config.server_key.as_ref());
        overwrites_itself(|config| config.provider_keys.values().next());
    }
}
