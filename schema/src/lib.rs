//! SQL migrations of the log, the tables of the read models, and the one way to apply them: under a lock.
//!
//! Migrations are numbered and forward only. Read models are not migrated: each is a set of tables in a Postgres
//! schema of its own, and a new generation is built beside the live one from its template.

mod migrate;
pub mod read_model;

pub use self::migrate::{Error, Migrate, Report, migrate};
