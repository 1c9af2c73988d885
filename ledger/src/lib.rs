//! The domain of Farthing: money, events, states, decisions, and the append-only log.
//!
//! The core (`command`, `state`, `pricing`, `meter`, `usage`, `period`) takes values and returns values: no clock,
//! no I/O, no randomness, not async. Only [`log`] touches Postgres and NATS.

pub mod command;
pub mod event;
pub mod ids;
pub mod log;
pub mod meter;
pub mod money;
pub mod period;
pub mod pricing;
pub mod secret;
pub mod state;
pub mod usage;
