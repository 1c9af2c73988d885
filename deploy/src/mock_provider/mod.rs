//! `farthing mock-provider`: a MOCK of an AI provider for trials, tests and benchmarks. No model answers here: texts
//! are canned and token counts are word counts. Every response carries `x-mock-provider: farthing`.
//!
//! It listens twice and answers the same on both: the first address is just some provider (`other`), the second is
//! meant to be named to the gateway as `--provider-host openai=…`.
//!
//! | endpoint | answer |
//! |---|---|
//! | `POST /v1/chat/completions` | OpenAI's shape, plain or (`"stream": true`) as server-sent events; the usage chunk only with `stream_options.include_usage` |
//! | `POST /v1/messages` | Anthropic's shape, plain or as server-sent events |
//! | `GET /v1/models` | a list of two models |
//! | any method, `/echo` | what arrived: method, path, raw query, headers as pairs, body; with the standard `usage` object |
//! | any method, `/usage` | a small object with the standard `usage` object |
//!
//! Any of them is bent by controls, each a query parameter `name=value` or a header `x-mock-name: value` (the
//! parameter wins):
//!
//! | control | effect |
//! |---|---|
//! | `usage` | put verbatim where the answer's `usage` value stands, valid or not; `none` leaves it out |
//! | `status` | the status code, 200 to 599 |
//! | `header` | `Name: value`, one more response header (repeatable), such as `location: /elsewhere` with a 302 |
//! | `body` | this text instead of the answer; `content-type` names its type |
//! | `bytes` | `/usage` grows by a padding of so many bytes |
//! | `words` | so many words (= output tokens) in the chat and message answers |
//! | `delay-ms` | wait before the status line |
//! | `stream` | `true`: `/usage` answers as server-sent events, its usage in the last before `[DONE]` |
//! | `chunks` | hand the body over in so many pieces (server-sent events: one piece per event, whatever this says) |
//! | `interval-ms` | wait between two pieces |
//! | `break-after` | break the connection after so many pieces (0: after the head) |
//! | `framing` | `length` or `chunked`; one piece has a length by default, several are chunked |
//! | `encoding` | `gzip`, `deflate`, `br` or `zstd`: compress the body and say so |
//! | `marker` (header only) | kept in the journal |
//!
//! The journal (`--journal FILE`) is a file of one JSON object per line, for checks that trust neither gateway nor
//! ledger: `{"event":"arrived","id","at","listener","method","target","marker"}` when a call has arrived with its
//! whole body, and `{"event":"ended","id","at","marker","status","usage","finished"}` when the last byte of its
//! answer was handed over (`finished: true`) or the answer was broken off. `id` is also the end of the answer's id.

mod answer;
mod body;
mod compression;
mod controls;
mod journal;
mod server;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;

use self::journal::Journal;
use self::server::Listener;
use crate::failure::{Failure, IntoFailure as _};
use crate::lifetime::Lifetime;

/// Flags of `mock-provider`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// The address of the provider that is recognised as `other`; a port of 0 means any free one.
    #[arg(long, default_value = "127.0.0.1:9090", value_name = "ADDR")]
    listen: SocketAddr,
    /// The address that is meant to be taken for OpenAI's.
    #[arg(long, default_value = "127.0.0.1:9091", value_name = "ADDR")]
    openai_listen: SocketAddr,
    /// Append a line per call and per answer to this file.
    #[arg(long, value_name = "FILE", conflicts_with = "no_journal")]
    journal: Option<PathBuf>,
    /// Keep no journal (the default without --journal).
    #[arg(long)]
    no_journal: bool,
    #[command(flatten)]
    lifetime: Lifetime,
}

/// Runs the role until it is told to stop.
pub(crate) async fn run(args: Args) -> Result<(), Failure> {
    let stop = args.lifetime.begin()?;
    let journal = match &args.journal {
        Some(path) => Journal::append_to(path).or_fail(format_args!("cannot open {}", path.display()))?,
        None => Journal::off(),
    };
    let journal = Arc::new(journal);
    let tasks = TaskTracker::new();
    let mut addresses = Vec::new();
    for (name, address) in [("other", args.listen), ("openai", args.openai_listen)] {
        let socket = TcpListener::bind(address).await.or_fail(format_args!("cannot listen at {address}"))?;
        addresses.push(socket.local_addr().or_fail("cannot tell the address")?);
        let listener = Arc::new(Listener { name, journal: Arc::clone(&journal) });
        tasks.spawn(server::serve(listener, socket, stop.clone(), tasks.clone()));
    }
    tracing::warn!("this is a MOCK provider: no model answers here");
    args.lifetime.up(addresses);
    stop.cancelled().await;
    tasks.close();
    tasks.wait().await;
    Ok(())
}
