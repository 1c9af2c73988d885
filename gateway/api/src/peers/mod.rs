//! Gateways of one instance among themselves: commands for the leader of a partition, over HTTP, on an address of their
//! own.
//!
//! Invariant: nobody else is heard. Every request carries a token derived from the server key.

mod client;
mod server;

use farthing_core::secret::ServerKey;
use farthing_log::ledger::Reply;
use http::HeaderValue;
use serde::{Deserialize, Serialize};

pub(crate) use self::client::Forwarded;
pub use self::client::HttpPeers;
pub(crate) use self::server::{FromGateway, router};

/// The header with the token.
const TOKEN_HEADER: &str = "x-farthing-gateway";

/// The path of commands. A message is a command per line; the response is a [`Numbered`] reply per line, in the order in
/// which the commands are decided.
const COMMANDS: &str = "/commands";

/// The reply to a command of a message.
#[derive(Debug, Serialize, Deserialize)]
struct Numbered {
    /// The number of the command's line, from 0 on.
    command: usize,
    reply: Reply,
}

/// The token of an instance's gateways.
fn token(server_key: &ServerKey) -> HeaderValue {
    HeaderValue::from_str(&server_key.token_of_gateways()).expect("hexadecimal digits are a header value")
}
