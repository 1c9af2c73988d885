//! What every handler of one gateway process shares: the way into the log, the connections for reads, the
//! instance's key and settings.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use farthing_core::command::RequestSettings;
use farthing_core::ids::{GatewayId, Mint};
use farthing_core::secret::{Mode, ServerKey};
use farthing_log::appender::Appender;
use farthing_log::clock::Clock;
use farthing_log::reads::ReadPool;
use farthing_worker::payments::Payments;

use crate::providers::Providers;
use crate::timeouts::Timeouts;

/// The shared parts of a gateway process; handlers see it as `State<Arc<App>>`.
pub(crate) struct App {
    /// Where commands go.
    pub(crate) ledger: Appender,
    /// Connections for reads: states and read models.
    pub(crate) reads: ReadPool,
    /// Hashes raw keys and derives secrets.
    pub(crate) server_key: ServerKey,
    /// Real money, or play money with clocks that can be put forward.
    pub(crate) mode: Mode,
    /// Makes ids.
    pub(crate) mint: Arc<Mint>,
    /// The time by which everything is decided.
    pub(crate) clock: Arc<Clock>,
    /// This process.
    pub(crate) gateway_id: GatewayId,
    /// The providers that are known, their prices and this instance's keys.
    pub(crate) providers: Providers,
    /// What decides about admission.
    pub(crate) settings: RequestSettings,
    /// Does a proxy in front tell, in `X-Forwarded-Host` and `X-Forwarded-Proto`, what callers address?
    pub(crate) trust_forwarded: bool,
    /// The bounds on waiting.
    pub(crate) timeouts: Timeouts,
    /// Charges what the ledger asks to be paid.
    pub(crate) payments: Arc<Payments>,
}

impl App {
    /// Now, to the millisecond: what everything is decided by.
    pub(crate) fn now(&self) -> DateTime<Utc> {
        self.clock.now()
    }
}
