//! The pure domain of Farthing: money, ids, events, states, decisions, pricing.
//!
//! Invariant: no clock, no I/O, no async. Everything takes values and returns values; the only randomness is that of
//! new ids and keys. The log in Postgres is `farthing_log`.

pub mod accounts;
pub mod command;
pub mod cycle;
pub mod entry;
pub mod event;
pub mod hold_scope;
pub mod idempotency;
pub mod ids;
pub mod metadata;
pub mod meter;
pub mod model_price;
pub mod money;
#[cfg(feature = "openapi")]
mod openapi;
pub mod partition;
pub mod period;
pub mod plan;
pub mod pricing;
pub mod reconcile;
pub mod release;
mod sealed_answer;
pub mod secret;
pub mod size_hint;
pub mod spending;
pub mod state;
pub mod statement;
mod text;
mod time_text;
pub mod token_bucket;
pub mod usage;
pub mod wide_sum;
