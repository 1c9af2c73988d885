//! The append-only log in Postgres: who writes it, who reads it, and how it is proven.

pub mod appender;
pub mod audit;
pub mod chain;
pub mod claims;
pub mod connect;
pub mod reader;
pub mod refold;
pub mod relay;
pub mod states;
pub mod tail;
