//! The HTTP side of Farthing: the forward proxy and the REST interface.

mod app;
mod error;
mod forward;
mod rest;
mod serve;
mod server;
mod sweep;

pub use self::forward::ProviderHost;
pub use self::server::{Config, Error, run};
