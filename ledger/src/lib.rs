//! The domain of Farthing: money, events, states, decisions, and the append-only log.
//!
//! The core (`command`, `state`, `pricing`, `meter`, `model_price`, `usage`, `period`, `plan`, `cycle`, `bucket`, `spending`) takes values and returns values: no clock,
//! no I/O, no randomness, not async. Only [`log`] touches Postgres and NATS.

pub mod bucket;
pub mod command;
pub mod cycle;
pub mod event;
pub mod idempotency;
pub mod ids;
pub mod log;
pub mod meter;
pub mod model_price;
pub mod money;
pub mod period;
pub mod plan;
pub mod pricing;
pub mod secret;
pub mod spending;
pub mod state;
pub mod usage;
