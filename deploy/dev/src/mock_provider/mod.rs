//! A MOCK of an AI provider for demos, tests and benchmarks. No model answers: texts are canned, an output token is a
//! word or a piece of a stream, and an input token is a word. Every response carries `x-mock-provider: farthing`.
//!
//! It listens on two to four addresses and responds the same on all of them. Gateways treat the first as an unknown
//! provider (`other`); the others stand for OpenAI, Anthropic and Google, and are given to gateways as
//! `--provider-host openai=…`.
//!
//! | endpoint | response |
//! |---|---|
//! | `POST /v1/chat/completions` | OpenAI's shape, plain or (`"stream": true`) as server-sent events; the usage chunk only with `stream_options.include_usage` |
//! | `POST /v1/completions` | OpenAI's text completions, in the same two ways |
//! | `POST /v1/responses` | OpenAI's Responses, plain or with the events of a stream |
//! | `POST /v1/embeddings`, `/v1/images/generations`, `/v1/audio/speech`, `/v1/audio/transcriptions` | OpenAI's shapes; vectors, image and sound are canned. Speech with `"stream_format": "sse"` and a transcription with `stream` come as events |
//! | `POST /openai/deployments/{name}/…`, `/openai/v1/…` | Azure's paths: the endpoints of OpenAI's shapes above |
//! | `POST /v1/messages` | Anthropic's shape, plain or as server-sent events |
//! | `POST /v1beta/models/{model}:generateContent`, `:streamGenerateContent` | Google's shape, plain, as server-sent events (`alt=sse`) or as a JSON array |
//! | `POST /v1beta/models/{model}:embedContent`, `:batchEmbedContents` | Google's shape; vectors are canned |
//! | `POST /v2/chat`, `/v2/embed` | Cohere's shapes; the chat plain or as server-sent events |
//! | `POST /model/{model}/converse`, `/converse-stream` | Amazon Bedrock's shape, plain or as a binary event stream; signatures are not verified |
//! | `GET /v1/models`, `/v1beta/models` | a list of two models, in the shape of the provider that the headers or the path name |
//! | any method, `/echo` | the request: method, path, raw query, headers as pairs, body; with the standard `usage` object |
//! | any method, `/usage` | a small object with the standard `usage` object |
//!
//! A request with tools is answered with tool calls, unless its last message is a tool's result. One that asks for JSON
//! is answered with an object that satisfies its schema. One that asks for reasoning gets a few canned thoughts.
//! One that asks for several answers (`n`, `candidateCount`) gets the same one as often, each with its tokens.
//!
//! Controls change the response. Each is a query parameter `name=value`, a header `x-mock-name: value`, or a word
//! `mock:name=value` anywhere in the body, for clients that set nothing but their messages. The parameter overrides the
//! header, and both override the word:
//!
//! | control | effect |
//! |---|---|
//! | `usage` | the response's `usage` value, verbatim, valid or not; `none` leaves it out |
//! | `status` | the status code, 200 to 599. From 400 on, the endpoints of a provider answer with an error in its own shape, unless `body` or `usage` is set |
//! | `header` | `Name: value`, one more response header (repeatable), such as `location: /elsewhere` with a 302 |
//! | `body` | this text as the body; `content-type` sets its type |
//! | `bytes` | adds a padding of this many bytes to the body of `/usage` |
//! | `words` | the number of words (= output tokens) of texts |
//! | `describe` | `media`: the text names the images and sound of the request: their URL, or their type and length |
//! | `calls` | the number of tool calls, 1 by default, of each tool in turn |
//! | `delay-ms` | the pause before the status line |
//! | `stream` | `true`: `/usage` responds with server-sent events, its usage in the last one before `[DONE]` |
//! | `chunks` | the number of pieces that the body is sent in (server-sent events are always one piece per event) |
//! | `interval-ms` | the pause between two pieces |
//! | `break-after` | breaks the connection after this many pieces (0: after the head) |
//! | `framing` | `length` or `chunked`; by default one piece is sent with a length, several are chunked |
//! | `encoding` | `gzip`, `deflate`, `br` or `zstd`: compresses the body and sets `content-encoding` |
//! | `marker` (no query parameter) | recorded in the journal |
//!
//! The journal is a file of one JSON object per line, for checks that trust neither the gateway nor the ledger:
//! `{"event":"arrived","id","at","listener","method","target","marker"}` when a call with its whole body has arrived,
//! and `{"event":"ended","id","at","marker","status","usage","reported","finished"}` when the response has ended:
//! `finished` is true if its last byte was handed over, false if it was broken off; `usage` is what the whole response
//! reports, `reported` the last usage that was handed over. `id` is also the suffix of the response's id.

mod answer;
mod body;
mod chat_completions;
mod cohere;
mod compression;
mod controls;
mod converse;
mod embeddings;
mod endpoints;
#[cfg(test)]
mod every_format;
mod generate_content;
mod given_media;
mod journal;
mod media;
mod messages;
mod provider_error;
mod response;
mod responses;
mod schema_value;
mod server;
mod text_completions;

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
    /// The address that stands for Anthropic, if there is to be one. Port 0 picks a free port.
    pub anthropic_listen: Option<SocketAddr>,
    /// The address that stands for Google, if there is to be one. Port 0 picks a free port.
    pub google_listen: Option<SocketAddr>,
    /// The journal file. None: no journal.
    pub journal: Option<PathBuf>,
}

/// Serves until `stop` is cancelled. Calls `on_ready` with its addresses once they accept connections.
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
    let listens = [
        ("other", Some(config.listen)),
        ("openai", Some(config.openai_listen)),
        ("anthropic", config.anthropic_listen),
        ("google", config.google_listen),
    ];
    for (name, address) in listens.into_iter().filter_map(|(name, address)| Some((name, address?))) {
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
