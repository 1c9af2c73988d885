//! The state that all handlers of a gateway share: the ledger, connections for reads, the instance's key and settings.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use farthing_core::command::RequestSettings;
use farthing_core::ids::{GatewayId, Mint};
use farthing_core::partition::Partitions;
use farthing_core::secret::{Mode, ServerKey};
use farthing_log::clock::Clock;
use farthing_log::ledger::Ledger;
use farthing_log::reads::ReadPool;
use farthing_projector::Schemas;
use farthing_telemetry::traces::Traces;
use farthing_worker::payments::Payments;

use crate::body_memory::BodyMemory;
use crate::checkout::Visits;
use crate::forward::ResponseHeaders;
use crate::known_keys::KnownKeys;
use crate::metrics::ApiMetrics;
use crate::pages::PagesUrl;
use crate::peers::HttpPeers;
use crate::proof_key::ProofKey;
use crate::providers::Providers;
use crate::read_turns::ReadTurns;
use crate::rest::RateLimits;
use crate::timeouts::Timeouts;

/// The shared parts of a gateway process; handlers see it as `State<Arc<App>>`.
pub(crate) struct App {
    /// Takes commands and has the states.
    pub(crate) ledger: Ledger,
    /// Connections for reads of the log, of read models and of operational data.
    pub(crate) reads: ReadPool,
    /// Turns at these connections.
    pub(crate) read_turns: ReadTurns,
    /// The schemas of the read models.
    pub(crate) schemas: Schemas,
    /// The partitions of the log.
    pub(crate) partitions: Partitions,
    /// Hashes raw keys and derives secrets.
    pub(crate) server_key: ServerKey,
    /// Live mode, or test mode with clocks that can be advanced.
    pub(crate) mode: Mode,
    /// Makes ids.
    pub(crate) mint: Arc<Mint>,
    /// The clock that decisions use.
    pub(crate) clock: Arc<Clock>,
    /// The id of this process.
    pub(crate) gateway_id: GatewayId,
    /// Signs proofs of the log, if the operator has a key for that.
    pub(crate) proof_key: Option<ProofKey>,
    /// The known providers, their prices and the managed provider keys.
    pub(crate) providers: Providers,
    /// The other gateways.
    pub(crate) peers: Arc<HttpPeers>,
    /// The settings of admission and holds.
    pub(crate) settings: RequestSettings,
    /// Where browsers reach the hosted pages.
    pub(crate) pages_url: PagesUrl,
    /// Which headers of a provider pass to the caller.
    pub(crate) response_headers: ResponseHeaders,
    /// The timeouts.
    pub(crate) timeouts: Timeouts,
    /// Keys that exist.
    pub(crate) known_keys: KnownKeys,
    /// How often the links of hosted pages are opened.
    pub(crate) visits: Visits,
    /// The keys whose calls of the standard endpoints are counted.
    pub(crate) rate_limits: RateLimits,
    /// The memory of long bodies.
    pub(crate) body_memory: BodyMemory,
    /// Carries out payments.
    pub(crate) payments: Arc<Payments>,
    /// The metrics.
    pub(crate) metrics: ApiMetrics,
    /// The spans of calls.
    pub(crate) traces: Traces,
}

impl App {
    /// The current time by the clock, to the millisecond.
    pub(crate) fn now(&self) -> DateTime<Utc> {
        self.clock.now()
    }
}
