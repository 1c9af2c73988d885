//! Sends commands and whole requests to other gateways.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use farthing_core::partition::Partition;
use farthing_core::secret::ServerKey;
use farthing_log::ledger::{NoReply, Peers, Reply, Request};
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{COMMANDS, TOKEN_HEADER, token};

/// The most commands in one message.
const MAX_COMMANDS: usize = 256;

/// The size of a message, in bytes, above which it takes no further command.
const FULL_MESSAGE: usize = 4 * 1024 * 1024;

/// Messages that are under way for one partition at the same time.
const MESSAGES: usize = 2;

/// Commands that may wait for a message for one partition.
const QUEUED: usize = 8_192;

/// The longest time until an answer.
const TIMEOUT: Duration = Duration::from_secs(7);

/// The longest time until a connection is open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// How long an idle connection is kept: shorter than the other gateway keeps it, so that no message is sent on one that
/// is being closed.
const IDLE_CONNECTION: Duration = Duration::from_secs(20);

/// The largest answer, in bytes.
const MAX_ANSWER: usize = 64 * 1024 * 1024;

type Answer = Result<Reply, NoReply>;

/// A request and the channel for its answer.
type Queued = (Request, oneshot::Sender<Answer>);

/// The way to the other gateways of the instance.
pub struct HttpPeers {
    connection: Arc<Connection>,
    /// By address and partition: a message is answered when its slowest command is, and commands of other partitions must
    /// not wait for it.
    queues: Mutex<HashMap<(String, Partition), mpsc::Sender<Queued>>>,
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
            .build(connector);
        let connection = Arc::new(Connection { client, token: token(server_key) });
        Self { connection, queues: Mutex::default(), stop, tasks: tasks.clone() }
    }

    /// The queue of `partition` at the gateway at `address`, with the tasks that send what it holds.
    fn queue(&self, address: &str, partition: Partition) -> mpsc::Sender<Queued> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (address.to_owned(), partition);
        if let Some(queue) = queues.get(&key) {
            return queue.clone();
        }
        // The partition has moved: the way to its last leader ends when its queue is empty.
        queues.retain(|(_, of), _| *of != partition);
        let (queue, waiting) = mpsc::channel(QUEUED);
        let waiting = Arc::new(tokio::sync::Mutex::new(waiting));
        for _ in 0..MESSAGES {
            let (connection, address) = (Arc::clone(&self.connection), address.to_owned());
            let send = send_all(connection, address, Arc::clone(&waiting));
            self.tasks.spawn(self.stop.clone().run_until_cancelled_owned(send));
        }
        queues.insert(key, queue.clone());
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
        headers.remove(TRANSFER_ENCODING);
        headers.remove(CONTENT_LENGTH);
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
            let full = || NoReply::NotSent("too many commands wait for the gateway".to_owned());
            self.queue(&address, request.partition()).try_send((request, reply)).map_err(|_| full())?;
            answer.await.unwrap_or_else(|_| Err(NoReply::Unknown("this gateway stops".to_owned())))
        })
    }
}

/// Sends what waits, as many commands in a message as there are, until the queue is closed.
async fn send_all(
    connection: Arc<Connection>,
    address: String,
    waiting: Arc<tokio::sync::Mutex<mpsc::Receiver<Queued>>>,
) {
    loop {
        let mut queued = Vec::new();
        if waiting.lock().await.recv_many(&mut queued, MAX_COMMANDS).await == 0 {
            return;
        }
        let mut queued = queued.into_iter().peekable();
        while queued.peek().is_some() {
            let (mut message, mut replies) = (Vec::new(), Vec::new());
            while message.len() < FULL_MESSAGE
                && let Some((request, reply)) = queued.next()
            {
                // Another leader was asked meanwhile.
                if reply.is_closed() {
                    continue;
                }
                match serde_json::to_vec(&request) {
                    Ok(line) => {
                        message.extend_from_slice(&line);
                        message.push(b'\n');
                        replies.push(reply);
                    }
                    Err(error) => drop(reply.send(Err(NoReply::NotSent(error.to_string())))),
                }
            }
            if replies.is_empty() {
                continue;
            }
            match connection.send(&address, message, replies.len()).await {
                Ok(answers) => {
                    for (reply, answer) in replies.into_iter().zip(answers) {
                        let _ = reply.send(Ok(answer));
                    }
                }
                Err(error) => {
                    for reply in replies {
                        let _ = reply.send(Err(error.clone()));
                    }
                }
            }
        }
    }
}

impl Connection {
    /// Sends a message of `count` commands, and reads an answer to each.
    async fn send(&self, address: &str, message: Vec<u8>, count: usize) -> Result<Vec<Reply>, NoReply> {
        let response = self.call(address, Method::POST, COMMANDS, HeaderMap::new(), message.into()).await?;
        match response.status {
            StatusCode::OK => {}
            // It refuses the message before it reads a command.
            status @ (StatusCode::FORBIDDEN | StatusCode::PAYLOAD_TOO_LARGE) => {
                return Err(NoReply::NotSent(format!("it answers {status}")));
            }
            // A proxy between the gateways may have answered.
            status => return Err(NoReply::Unknown(format!("it answers {status}"))),
        }
        let lines = response.body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let answers: Result<Vec<Reply>, _> = lines.map(serde_json::from_slice).collect();
        let answers = answers.map_err(|error| NoReply::Unknown(error.to_string()))?;
        if answers.len() == count {
            Ok(answers)
        } else {
            Err(NoReply::Unknown(format!("{} answers to {count} commands", answers.len())))
        }
    }

    async fn call(
        &self,
        address: &str,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Forwarded, NoReply> {
        let uri: Uri = format!("{address}{path}")
            .parse()
            .map_err(|error: http::uri::InvalidUri| NoReply::NotSent(error.to_string()))?;
        let mut request = http::Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        request.headers_mut().insert(TOKEN_HEADER, self.token.clone());
        let call = async {
            let response = self.client.request(request).await.map_err(|error| {
                let why = error.to_string();
                if error.is_connect() { NoReply::NotSent(why) } else { NoReply::Unknown(why) }
            })?;
            let (parts, body) = response.into_parts();
            let body = Limited::new(body, MAX_ANSWER).collect().await;
            let body = body.map_err(|error| NoReply::Unknown(error.to_string()))?.to_bytes();
            Ok(Forwarded { status: parts.status, headers: parts.headers, body })
        };
        let answer = tokio::time::timeout(TIMEOUT, call).await;
        answer.unwrap_or_else(|_| Err(NoReply::Unknown("no answer in time".to_owned())))
    }
}
