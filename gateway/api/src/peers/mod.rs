//! Gateways of one instance among themselves: commands for the leader of a partition, over HTTP, on an address of their
//! own.
//!
//! Invariant: nobody else is heard. Every request carries a token derived from the server key.

mod client;
mod server;

use farthing_core::secret::{ServerKey, hex};
use http::HeaderValue;

pub use self::client::HttpPeers;
pub(crate) use self::server::{FromGateway, MOVED, router};

/// The header with the token.
const TOKEN_HEADER: &str = "x-farthing-gateway";

/// The path of commands.
const COMMANDS: &str = "/commands";

/// The token of an instance's gateways.
fn token(server_key: &ServerKey) -> HeaderValue {
    let token = hex(&server_key.mac_of("gateways", &[b"commands"]));
    HeaderValue::from_str(&token).expect("hexadecimal digits are a header value")
}
