//! Sends commands and whole requests to other gateways.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use farthing_core::secret::ServerKey;
use farthing_log::ledger::{NoReply, Peers, Reply, Request};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{COMMANDS, Numbered, TOKEN_HEADER, token};
use crate::headers::without_framing;

/// The most commands in one message.
const MAX_COMMANDS: usize = 256;

/// The size of a message, in bytes, above which it takes no further command.
const FULL_MESSAGE: usize = 4 * 1024 * 1024;

/// Messages that are under way to one gateway at the same time, apart from slow ones.
const MESSAGES: usize = 2;

/// The time after which a message is slow, and others no longer wait for it: a command in it may be of a partition that
/// answers nothing.
const SLOW_MESSAGE: Duration = Duration::from_millis(50);

/// Commands that may wait for a message to one gateway.
const QUEUED: usize = 65_536;

/// How long the way to a gateway is kept without a command.
const IDLE_WAY: Duration = Duration::from_mins(1);

/// The longest time until an answer.
const TIMEOUT: Duration = Duration::from_secs(7);

/// The longest time until a connection is open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// How long an idle connection is kept: shorter than the other gateway keeps it, so that no message is sent on one that
/// is being closed.
const IDLE_CONNECTION: Duration = Duration::from_secs(20);

/// The most idle connections to one gateway: they count against the connections that it takes.
const IDLE_CONNECTIONS: usize = 32;

/// The largest response, in bytes.
const MAX_RESPONSE: usize = 64 * 1024 * 1024;

type Answer = Result<Reply, NoReply>;

/// A request and the channel for its answer.
type Queued = (Request, oneshot::Sender<Answer>);

/// The way to the other gateways of the instance.
pub struct HttpPeers {
    connection: Arc<Connection>,
    /// By address.
    queues: Mutex<HashMap<String, mpsc::Sender<Queued>>>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// The HTTP client and its token.
struct Connection {
    client: Client<HttpConnector, Full<Bytes>>,
    token: HeaderValue,
}

/// The response of another gateway to a whole request.
pub(crate) struct Forwarded {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl HttpPeers {
    /// The gateways of the instance with this key. Once `stop` is cancelled, nothing is sent any more.
    pub fn new(server_key: &ServerKey, stop: CancellationToken, tasks: &TaskTracker) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_CONNECTION)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .build(connector);
        let connection = Arc::new(Connection { client, token: token(server_key) });
        Self { connection, queues: Mutex::default(), stop, tasks: tasks.clone() }
    }

    /// The queue of commands for the gateway at `address`, with the task that sends what it holds.
    fn queue(&self, address: &str) -> mpsc::Sender<Queued> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = queues.get(address).filter(|queue| !queue.is_closed()) {
            return queue.clone();
        }
        queues.retain(|_, queue| !queue.is_closed());
        let (queue, waiting) = mpsc::channel(QUEUED);
        let way = Way {
            connection: Arc::clone(&self.connection),
            address: address.to_owned(),
            stop: self.stop.clone(),
            tasks: self.tasks.clone(),
        };
        self.tasks.spawn(self.stop.clone().run_until_cancelled_owned(way.send_all(waiting)));
        queues.insert(address.to_owned(), queue.clone());
        queue
    }

    /// Passes a whole request to the gateway at `address`.
    pub(crate) async fn forward(
        &self,
        address: &str,
        method: Method,
        path: &str,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Result<Forwarded, NoReply> {
        without_framing(&mut headers);
        self.connection.call(address, method, path, headers, body).await
    }
}

impl fmt::Debug for HttpPeers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HttpPeers")
    }
}

impl Peers for HttpPeers {
    fn send(&self, address: String, request: Request) -> Pin<Box<dyn Future<Output = Answer> + Send + '_>> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            match self.queue(&address).try_send((request, reply)) {
                Ok(()) => {}
                // The way to the gateway has just ended because it was idle.
                Err(TrySendError::Closed(queued)) => {
                    let ended = |_| NoReply::NotSent("this gateway stops".to_owned());
                    self.queue(&address).try_send(queued).map_err(ended)?;
                }
                Err(TrySendError::Full(_)) => {
                    return Err(NoReply::NotSent("too many commands wait for the gateway".to_owned()));
                }
            }
            answer.await.unwrap_or_else(|_| Err(NoReply::Unknown("this gateway stops".to_owned())))
        })
    }
}

/// The way to one gateway.
struct Way {
    connection: Arc<Connection>,
    address: String,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Way {
    /// Sends what waits, as many commands in a message as there are, until there have been none for a while.
    async fn send_all(self, mut waiting: mpsc::Receiver<Queued>) {
        let places = Arc::new(Semaphore::new(MESSAGES));
        let mut queued = Vec::new();
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            if queued.is_empty() {
                match tokio::time::timeout(IDLE_WAY, waiting.recv_many(&mut queued, MAX_COMMANDS)).await {
                    Ok(0) => return,
                    Ok(_) => {}
                    Err(_) => {
                        // What is queued already is received before the end.
                        waiting.close();
                        continue;
                    }
                }
            }
            let message = Message::of(&mut queued);
            let (connection, address) = (Arc::clone(&self.connection), self.address.clone());
            self.tasks.spawn(self.stop.clone().run_until_cancelled_owned(async move {
                let sent = message.send(&connection, &address);
                tokio::pin!(sent);
                if tokio::time::timeout(SLOW_MESSAGE, &mut sent).await.is_err() {
                    drop(place);
                    sent.await;
                }
            }));
        }
    }
}

/// Commands that are sent together.
struct Message {
    /// A command per line.
    lines: Vec<u8>,
    /// Who waits for the answer to each command.
    replies: Vec<Option<oneshot::Sender<Answer>>>,
}

impl Message {
    /// Takes as many of the `queued` commands as a message holds.
    fn of(queued: &mut Vec<Queued>) -> Self {
        let (mut lines, mut replies) = (Vec::new(), Vec::new());
        let mut waiting = std::mem::take(queued).into_iter();
        // A reply that nobody waits for: another leader was asked meanwhile.
        for (request, reply) in waiting.by_ref().filter(|(_, reply)| !reply.is_closed()) {
            let begin = lines.len();
            if let Err(error) = serde_json::to_writer(&mut lines, &request) {
                lines.truncate(begin);
                let _ = reply.send(Err(NoReply::NotSent(error.to_string())));
                continue;
            }
            lines.push(b'\n');
            replies.push(Some(reply));
            if lines.len() >= FULL_MESSAGE {
                break;
            }
        }
        queued.extend(waiting);
        Self { lines, replies }
    }

    /// Sends the message, and answers each command as soon as its reply arrives.
    async fn send(self, connection: &Connection, address: &str) {
        let Self { lines, mut replies } = self;
        if replies.is_empty() {
            return;
        }
        let exchanged =
            tokio::time::timeout(TIMEOUT, exchange(connection, address, lines, &mut replies)).await;
        let exchanged = exchanged.unwrap_or_else(|_| Err(NoReply::Unknown("no answer in time".to_owned())));
        let missing = exchanged.err().unwrap_or_else(|| NoReply::Unknown("it did not answer".to_owned()));
        for reply in replies.into_iter().flatten() {
            let _ = reply.send(Err(missing.clone()));
        }
    }
}

/// Sends `lines` and hands out what comes back, until the response ends.
async fn exchange(
    connection: &Connection,
    address: &str,
    lines: Vec<u8>,
    replies: &mut [Option<oneshot::Sender<Answer>>],
) -> Result<(), NoReply> {
    let unknown = |why: String| NoReply::Unknown(why);
    let response =
        connection.request(address, Method::POST, COMMANDS, HeaderMap::new(), lines.into()).await?;
    match response.status() {
        StatusCode::OK => {}
        // It refuses the message before it reads a command.
        status @ (StatusCode::FORBIDDEN | StatusCode::PAYLOAD_TOO_LARGE) => {
            return Err(NoReply::NotSent(format!("it answers {status}")));
        }
        // A proxy between the gateways may have answered.
        status => return Err(unknown(format!("it answers {status}"))),
    }
    let mut body = Limited::new(response.into_body(), MAX_RESPONSE);
    let (mut unread, mut searched) = (BytesMut::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| unknown(error.to_string()))?;
        unread.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
        while let Some(end) = unread[searched..].iter().position(|byte| *byte == b'\n') {
            let line = unread.split_to(searched + end + 1);
            searched = 0;
            let (command, answer) = read_reply(&line).map_err(|error| unknown(error.to_string()))?;
            if let Some(waiting) = replies.get_mut(command).and_then(Option::take) {
                let _ = waiting.send(answer);
            }
        }
        searched = unread.len();
    }
    Ok(())
}

/// The number of a command, and the answer to it in a line of a response. A reply that this build cannot read, such as one
/// of a newer build, fails its own command alone.
fn read_reply(line: &[u8]) -> Result<(usize, Answer), serde_json::Error> {
    #[derive(serde::Deserialize)]
    struct Number {
        command: usize,
    }
    serde_json::from_slice(line).map(|Numbered { command, reply }| (command, Ok(reply))).or_else(|error| {
        let Number { command } = serde_json::from_slice(line)?;
        Ok((command, Err(NoReply::Unknown(error.to_string()))))
    })
}

impl Connection {
    /// Sends a request; the response is returned with its head.
    async fn request(
        &self,
        address: &str,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<http::Response<Incoming>, NoReply> {
        let uri: Uri = format!("{address}{path}")
            .parse()
            .map_err(|error: http::uri::InvalidUri| NoReply::NotSent(error.to_string()))?;
        let mut request = http::Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        request.headers_mut().insert(TOKEN_HEADER, self.token.clone());
        self.client.request(request).await.map_err(|error| {
            let why = format!("{address}: {error}");
            if error.is_connect() { NoReply::NotSent(why) } else { NoReply::Unknown(why) }
        })
    }

    /// Sends a request and reads the whole response.
    async fn call(
        &self,
        address: &str,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Forwarded, NoReply> {
        let call = async {
            let (parts, body) = self.request(address, method, path, headers, body).await?.into_parts();
            let body = Limited::new(body, MAX_RESPONSE).collect().await;
            let body = body.map_err(|error| NoReply::Unknown(error.to_string()))?.to_bytes();
            Ok(Forwarded { status: parts.status, headers: parts.headers, body })
        };
        let answer = tokio::time::timeout(TIMEOUT, call).await;
        answer.unwrap_or_else(|_| Err(NoReply::Unknown("no answer in time".to_owned())))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::Router;
    use axum::body::Body;
    use axum::routing::post;
    use futures_util::future::poll_immediate;
    use futures_util::stream::{self, StreamExt as _};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::sync::{Barrier, watch};

    use super::*;

    /// A request about `partition`.
    fn request(partition: i16) -> Request {
        let line = format!(
            r#"{{"version":1,"partition":{partition},"term":1,"sent_at":"2026-11-22T00:00:00Z","work":{{"states":{{"keys":[],"merchant_id":null}}}}}}"#
        );
        Request::read(line.as_bytes()).unwrap()
    }

    /// A gateway that answers what is about partition 1, and leaves everything else open.
    async fn gateway() -> String {
        let commands = |message: Bytes| async move {
            let lines = message.split(|byte| *byte == b'\n').enumerate();
            let known = lines.filter(|(_, line)| line.windows(14).any(|part| part == br#""partition":1,"#));
            let replies: Vec<Result<String, Infallible>> = known
                .map(|(command, _)| {
                    Ok(format!("{{\"command\":{command},\"reply\":{{\"failed\":\"moved\"}}}}\n"))
                })
                .collect();
            Body::from_stream(stream::iter(replies).chain(stream::pending()))
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serve = axum::serve(listener, Router::new().route(COMMANDS, post(commands)));
        tokio::spawn(serve.into_future());
        format!("http://{address}")
    }

    /// A server of HTTP that answers nothing before it has so many connections, and the number that are open.
    async fn counting(burst: usize) -> (String, watch::Receiver<usize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (open, counted) = watch::channel(0);
        let (open, all) = (Arc::new(open), Arc::new(Barrier::new(burst)));
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                open.send_modify(|open| *open += 1);
                let (open, all) = (Arc::clone(&open), Arc::clone(&all));
                tokio::spawn(async move {
                    let mut request = [0; 4_096];
                    let _ = stream.read(&mut request).await;
                    all.wait().await;
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
                    while stream.read(&mut request).await.is_ok_and(|read| read > 0) {}
                    open.send_modify(|open| *open -= 1);
                });
            }
        });
        (format!("http://{address}"), counted)
    }

    #[test]
    fn a_reply_that_cannot_be_read_fails_its_own_command_alone() {
        let failed = read_reply(br#"{"command":3,"reply":{"failed":"moved"}}"#).unwrap();
        assert!(failed.0 == 3 && failed.1.is_ok());
        let newer = read_reply(br#"{"command":4,"reply":{"of_a_newer_build":{}}}"#).unwrap();
        assert!(newer.0 == 4 && matches!(newer.1, Err(NoReply::Unknown(_))));
        assert!(read_reply(br#"{"reply":{"failed":"moved"}}"#).is_err(), "of which command is not known");
    }

    #[tokio::test]
    async fn few_connections_stay_open_after_a_burst() {
        const BURST: usize = 3 * IDLE_CONNECTIONS;
        let (address, mut open) = counting(BURST).await;
        let peers = HttpPeers::new(&ServerKey::random(), CancellationToken::new(), &TaskTracker::new());
        let calls =
            (0..BURST).map(|_| peers.forward(&address, Method::POST, "/v1", HeaderMap::new(), Bytes::new()));
        let answers = futures_util::future::join_all(calls).await;
        assert!(answers.iter().all(Result::is_ok), "each has a connection of its own");
        let few = open.wait_for(|open| *open <= IDLE_CONNECTIONS);
        let few = tokio::time::timeout(IDLE_CONNECTION / 2, few).await.map(drop);
        assert!(few.is_ok(), "the others stay open");
    }

    #[tokio::test]
    async fn a_command_without_an_answer_holds_up_no_other() {
        let address = gateway().await;
        let tasks = TaskTracker::new();
        let peers = HttpPeers::new(&ServerKey::random(), CancellationToken::new(), &tasks);
        // The first two are in one message; the later ones are more messages than there are places.
        let mut open = vec![peers.send(address.clone(), request(0))];
        assert!(poll_immediate(&mut open[0]).await.is_none());
        for _ in 0..MESSAGES * 2 {
            let answered = peers.send(address.clone(), request(1)).await;
            assert!(matches!(answered, Ok(Reply::Failed(_))), "{answered:?}");
            let mut without_answer = peers.send(address.clone(), request(0));
            assert!(poll_immediate(&mut without_answer).await.is_none());
            open.push(without_answer);
        }
        for without_answer in &mut open {
            assert!(poll_immediate(without_answer).await.is_none());
        }
    }

    #[tokio::test]
    async fn a_gateway_that_stops_ends_what_it_has_sent() {
        let address = gateway().await;
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let peers = HttpPeers::new(&ServerKey::random(), stop.clone(), &tasks);
        let mut open = peers.send(address.clone(), request(0));
        assert!(poll_immediate(&mut open).await.is_none());
        assert!(peers.send(address.clone(), request(1)).await.is_ok());
        stop.cancel();
        assert!(matches!(open.await, Err(NoReply::Unknown(_))));
        tasks.close();
        tasks.wait().await;
        assert!(matches!(
            peers.send(address, request(1)).await,
            Err(NoReply::NotSent(_) | NoReply::Unknown(_))
        ));
    }
}
