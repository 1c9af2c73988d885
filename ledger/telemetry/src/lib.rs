//! What an operator sees of a process: its metrics, its traces, and whether it can serve. The only connection that is
//! opened here is the one to the collector of traces; the program serves the rest at an address of the operator
//! (`deploy/src/operator_listener.rs`).

mod ages;
mod health;
mod histogram;
mod metrics;
pub mod process;
pub mod traces;

pub use prometheus_client::metrics::counter::Counter;
pub use prometheus_client::metrics::gauge::Gauge;

pub use self::ages::{Age, Ages};
pub use self::health::{Failing, Health, Outcome, WasServing};
pub use self::histogram::Histogram;
pub use self::metrics::{Counted, CounterFamily, Metrics};
use self::traces::Traces;

/// What a process shows to its operator. Copies share everything.
#[derive(Debug, Clone, Default)]
pub struct Telemetry {
    /// The metrics.
    pub metrics: Metrics,
    /// Whether the process can serve.
    pub health: Health,
    /// The spans of calls; none by default.
    pub traces: Traces,
}
