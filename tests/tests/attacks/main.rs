//! Attacks from outside, by kind. Each test is an attack with its neighbouring cases; some show what must still pass. All
//! share one instance with two gateways, unless an attack is against a whole gateway; each test creates its own merchants.

#![expect(clippy::unwrap_used, reason = "tests unwrap, their helpers included")]

mod absurd_usage;
mod browsers;
mod call_rate;
mod checkout;
mod checkout_prices;
mod compression;
mod connections;
mod conversion;
mod dev_folder;
mod drain_slots;
mod endpoints;
mod fairness;
mod framing;
mod gateways;
mod held_calls;
mod idle_connections;
mod leaving;
mod leaving_counted;
mod live_mode;
mod managed_errors;
mod managed_headers;
mod names;
mod namespaces;
mod operator;
mod pages;
mod payments;
mod presentations;
mod priced_apart;
mod proxies;
mod reads;
mod rebuilds;
mod recorded_keys;
mod roles;
mod stopped_keys;
mod stored_answers;
mod threads;
mod unread;
mod unread_lists;
mod webhooks;
