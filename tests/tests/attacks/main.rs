//! Attacks from outside, by kind. Each test is an attack with its neighbouring cases; some show what must still pass. All
//! share one instance with two gateways, unless an attack is against a whole gateway; each test creates its own merchants.

#![expect(clippy::unwrap_used, reason = "tests unwrap, their helpers included")]

mod absurd_usage;
mod addresses;
mod browsers;
mod call_rate;
mod certificate_chains;
mod checkout;
mod checkout_prices;
mod checkout_races;
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
mod lookups;
mod managed_errors;
mod managed_headers;
mod members;
mod model_endpoints_money;
mod names;
mod namespaces;
mod operator;
mod pages;
mod payments;
mod presentations;
mod priced_apart;
mod proxies;
mod queue;
mod reads;
mod rebuilds;
mod recorded_keys;
mod redirects;
mod repeated_posts;
mod roles;
mod stopped_keys;
mod stopped_under_load;
mod stored_answers;
mod threads;
mod trailers;
mod unread;
mod unread_lists;
mod webhook_addresses;
mod webhook_signatures;
mod webhooks;
