//! The HTTP side of Farthing: the forward proxy and the REST interface.

mod app;
pub mod catalogue;
mod checkout;
mod clock;
mod docs;
mod error;
mod forward;
mod idempotency;
mod openapi;
mod payments;
mod rest;
mod serve;
mod server;
mod sweep;
mod timeouts;
mod webhooks;

pub use self::forward::{BUILT_IN, ProviderHost, ProviderKey};
pub use self::server::{Config, Error, run};
pub use self::timeouts::Timeouts;
pub use self::webhooks::WebhookTiming;
