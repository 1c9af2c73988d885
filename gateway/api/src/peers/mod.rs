//! Gateways of one instance among themselves: commands for the leader of a partition, over HTTP, on an address of their
//! own.
//!
//! Invariant: nobody else is heard. Every request carries a token derived from the server key.

mod client;
mod server;

use farthing_core::secret::ServerKey;
use http::HeaderValue;

pub(crate) use self::client::Forwarded;
pub use self::client::HttpPeers;
pub(crate) use self::server::{FromGateway, router};

/// The header with the token.
const TOKEN_HEADER: &str = "x-farthing-gateway";

/// The path of commands.
const COMMANDS: &str = "/commands";

/// The token of an instance's gateways.
fn token(server_key: &ServerKey) -> HeaderValue {
    HeaderValue::from_str(&server_key.token_of_gateways()).expect("hexadecimal digits are a header value")
}
