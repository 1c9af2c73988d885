//! The append-only log in Postgres: the appender, the reader, the shared tail, the relay to JetStream, the audit and the
//! archive, and the tables beside the log (states, idempotency claims).

mod abort_on_panic;
pub mod appender;
pub mod archive;
pub mod audit;
pub mod backoff;
mod batch_pages;
pub mod chain;
pub mod checkout_attempts;
pub mod claims;
pub mod clock;
pub mod connect;
pub mod connection_budget;
pub mod directory;
pub mod generations;
pub mod leadership;
pub mod leases;
pub mod ledger;
pub mod metrics;
pub mod nats;
pub mod nats_greeting;
pub mod nats_names;
pub mod own_thread;
pub mod partitions;
pub mod positions;
pub mod probe;
pub mod pulse;
pub mod reader;
pub mod reads;
pub mod record;
pub mod record_batch;
pub mod relay;
pub mod server_key;
pub mod states;
pub mod tail;
pub mod verify;
mod wake_up;
