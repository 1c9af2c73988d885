//! A MOCK of an AI provider for demos, tests and benchmarks. No model answers: texts are canned and token counts are
//! word counts. Every response carries `x-mock-provider: farthing`.
//!
//! It listens on two addresses and responds the same on both. Gateways treat the first as an unknown provider
//! (`other`); the second stands for OpenAI and is given to gateways as `--provider-host openai=…`.
//!
//! | endpoint | response |
//! |---|---|
//! | `POST /v1/chat/completions` | OpenAI's shape, plain or (`"stream": true`) as server-sent events; the usage chunk only with `stream_options.include_usage` |
//! | `POST /v1/messages` | Anthropic's shape, plain or as server-sent events |
//! | `GET /v1/models` | a list of two models |
//! | any method, `/echo` | the request: method, path, raw query, headers as pairs, body; with the standard `usage` object |
//! | any method, `/usage` | a small object with the standard `usage` object |
//!
//! Controls change the response. Each is a query parameter `name=value` or a header `x-mock-name: value`; the
//! parameter overrides the header:
//!
//! | control | effect |
//! |---|---|
//! | `usage` | the response's `usage` value, verbatim, valid or not; `none` leaves it out |
//! | `status` | the status code, 200 to 599 |
//! | `header` | `Name: value`, one more response header (repeatable), such as `location: /elsewhere` with a 302 |
//! | `body` | this text as the body; `content-type` sets its type |
//! | `bytes` | adds a padding of this many bytes to the body of `/usage` |
//! | `words` | the number of words (= output tokens) of chat and message responses |
//! | `delay-ms` | the pause before the status line |
//! | `stream` | `true`: `/usage` responds with server-sent events, its usage in the last one before `[DONE]` |
//! | `chunks` | the number of pieces that the body is sent in (server-sent events are always one piece per event) |
//! | `interval-ms` | the pause between two pieces |
//! | `break-after` | breaks the connection after this many pieces (0: after the head) |
//! | `framing` | `length` or `chunked`; by default one piece is sent with a length, several are chunked |
//! | `encoding` | `gzip`, `deflate`, `br` or `zstd`: compresses the body and sets `content-encoding` |
//! | `marker` (header only) | recorded in the journal |
//!
//! The journal is a file of one JSON object per line, for checks that trust neither the gateway nor the ledger:
//! `{"event":"arrived","id","at","listener","method","target","marker"}` when a call with its whole body has arrived,
//! and `{"event":"ended","id","at","marker","status","usage","finished"}` when the response has ended: `finished` is
//! true if its last byte was handed over, false if it was broken off. `id` is also the suffix of the response's id.

mod body;
mod chat;
mod compression;
mod controls;
mod endpoints;
mod journal;
mod response;
mod server;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::journal::Journal;
use self::server::Listener;

/// Where the mock listens and records calls.
#[derive(Debug, Clone)]
pub struct Config {
    /// The address that gateways treat as an unknown provider, `other`. Port 0 picks a free port.
    pub listen: SocketAddr,
    /// The address that stands for OpenAI. Port 0 picks a free port.
    pub openai_listen: SocketAddr,
    /// The journal file. None: no journal.
    pub journal: Option<PathBuf>,
}

/// Serves until `stop` is cancelled. Calls `on_ready` with both addresses once they accept connections.
pub async fn run(
    config: Config,
    stop: CancellationToken,
    on_ready: impl FnOnce(Vec<SocketAddr>),
) -> Result<()> {
    let journal = match &config.journal {
        Some(path) => {
            Journal::append_to(path).with_context(|| format!("cannot open the journal {}", path.display()))?
        }
        None => Journal::off(),
    };
    let journal = Arc::new(journal);
    let tasks = TaskTracker::new();
    let mut addresses = Vec::new();
    for (name, address) in [("other", config.listen), ("openai", config.openai_listen)] {
        let cannot_listen = || format!("cannot listen on {address}");
        let socket = TcpListener::bind(address).await.with_context(cannot_listen)?;
        addresses.push(socket.local_addr().with_context(cannot_listen)?);
        let listener = Arc::new(Listener { name, journal: Arc::clone(&journal) });
        tasks.spawn(server::serve(listener, socket, stop.clone(), tasks.clone()));
    }
    tracing::warn!(event = "mock_provider.started", "this is a MOCK provider: no model answers");
    on_ready(addresses);
    stop.cancelled().await;
    tasks.close();
    tasks.wait().await;
    Ok(())
}
