//! The SQL migrations of the log, the tables of the read models, and [`migrate()`], which applies them under a lock.
//!
//! Migrations are numbered and forward only. Read models are not migrated: each is a set of tables in a Postgres
//! schema of its own, and a new generation is built from its template beside the live one.

pub mod citus;
pub mod history;
mod migrate;
pub mod read_model;

pub use self::migrate::{Error, Migrate, OLDEST_POSTGRES, Report, migrate};
