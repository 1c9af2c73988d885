//! The HTTP interface of a gateway: the forward endpoint, the REST interface and the hosted pages.

mod app;
mod body_memory;
mod caller_address;
mod caller_key;
mod checkout;
mod db;
mod docs;
mod error;
mod forward;
mod gateways_url;
mod headers;
mod idempotency;
mod input;
mod known_keys;
mod limit_per;
mod lookups;
mod metrics;
mod model_endpoints;
mod openapi;
mod pages;
mod peers;
mod proof_key;
mod providers;
mod read_connection;
mod read_turns;
mod request_id;
mod rest;
mod rewrite;
mod rules;
mod serve;
mod server;
mod target;
mod timeouts;
mod values;

pub use self::forward::{DecoderMemory, ResponseHeaders};
pub use self::gateways_url::GatewaysUrl;
pub use self::pages::{Pages, PagesUrl};
pub use self::peers::HttpPeers;
pub use self::proof_key::ProofKey;
pub use self::providers::{
    BUILT_IN, InvalidCredentials, InvalidHost, InvalidKey, ProviderFacts, ProviderHost, ProviderKey,
    catalogue,
};
pub use self::serve::ServerLimits;
pub use self::server::{
    Addresses, Config, ConnectionSettings, Error, Gateways, PAYING_CONNECTIONS, ReadsPerMerchant,
    connection_share, run,
};
pub use self::timeouts::Timeouts;
pub use farthing_egress::{CONNECTIONS_PER_CALL, FILES_PER_LOOKUP, MOST_LOOKUPS};
pub use farthing_worker::webhooks::WebhookTiming;
