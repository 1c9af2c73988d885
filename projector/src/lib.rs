//! The read side: projections of the log into read models, their rebuild, and the queries that the gateway calls.
//!
//! Each read model is a folder: `fold` makes row changes of events (pure), `write` writes them (SQL), `query` reads the
//! rows. Rows come from events only, so a rebuild equals the live tables byte for byte. The gateway uses `query`; the
//! engine (`engine`, `rebuild`) runs in the projector.

pub mod checkout_sessions;
pub mod checkpoint;
mod column;
pub mod connections;
pub mod customers;
mod engine;
pub mod entries;
mod idle_spans;
pub mod journal;
pub mod meters;
mod metrics;
mod models;
pub mod payment_methods;
pub mod plans;
mod prune;
pub mod query;
mod rebuild;
pub mod requests;
mod row;
mod row_audit;
mod row_changes;
mod row_comparison;
mod run;
#[cfg(test)]
mod sample;
mod schemas;
pub mod secret_keys;
pub mod spend_keys;
pub mod subscriptions;
mod table_digest;
pub mod usage;
pub mod webhooks;
mod writer;
mod writers;

pub use self::engine::Error;
pub use self::prune::{prune, running};
pub use self::rebuild::{RebuildReport, rebuild, verify};
pub use self::row::Unreadable;
pub use self::row_audit::audit;
pub use self::run::{Config, FIXED_CONNECTIONS, run};
pub use self::schemas::{Schemas, unbuilt};
pub use self::table_digest::{Digests, TableDigest};
pub use farthing_schema::read_model::ReadModel;
