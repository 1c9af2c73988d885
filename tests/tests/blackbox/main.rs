//! Black-box tests: the program as its users meet it, over HTTP, SQL and NATS. All share one instance with two
//! gateways; each makes a merchant of its own.

#![expect(clippy::unwrap_used, reason = "tests unwrap, their helpers included")]

mod bad_input;
mod billing;
mod budget;
mod credentials;
mod feed;
mod guard;
mod headers;
mod log;
mod operator;
mod projections;
mod rest_reads;
mod rest_writes;
mod settlement;
mod spellings;
mod streaming;
mod target;
mod usage;
