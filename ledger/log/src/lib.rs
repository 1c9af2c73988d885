//! The append-only log in Postgres: appending, reading, following, publishing and proving it, and the tables beside it
//! (states, idempotency claims).

pub mod appender;
pub mod audit;
pub mod chain;
pub mod checkout_attempts;
pub mod claims;
pub mod clock;
pub mod connect;
pub mod reader;
pub mod reads;
pub mod refold;
pub mod relay;
pub mod states;
pub mod tail;
