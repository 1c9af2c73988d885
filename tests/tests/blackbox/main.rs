//! Black-box tests: the program as its users meet it, over HTTP, SQL and NATS. All share one instance with two
//! gateways; each makes a merchant of its own.

#![expect(clippy::unwrap_used, reason = "tests unwrap, their helpers included")]

mod bad_input;
mod billing;
mod budget;
mod checkout_page;
mod checkout_sessions;
mod compressed;
mod connections;
mod conventions;
mod credentials;
mod customers;
mod departed;
mod feed;
mod guard;
mod headers;
mod idempotency;
mod log;
mod long_lists;
mod managed_streams;
mod meters;
mod models;
mod openapi;
mod operator;
mod plans;
mod projections;
mod provider_cost;
mod rate_limit;
mod raw_http;
mod recurring;
mod repeated_calls;
mod reported;
mod rest_reads;
mod rest_writes;
mod secret_keys;
mod settlement;
mod shutdown;
mod slow;
mod spellings;
mod spend_key_list;
mod spend_keys;
mod sql;
mod streaming;
mod subscriptions;
mod target;
mod tenancy;
mod tls;
mod usage;
mod usage_report;
mod vocabularies;
mod wallet;
mod webhook_telling;
mod webhooks;
