//! An HTTP/1.1 client that sends exactly the given bytes and shows when each byte of the response arrives.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpSocket, TcpStream};

use crate::answers;
use crate::wire::{Head, Wire};

/// The timeout of a whole exchange.
const EXCHANGE_TIMEOUT: Duration = Duration::from_mins(1);

/// The body of a request.
#[derive(Debug, Clone)]
pub enum Body {
    /// No body, and no header for one.
    None,
    /// With `Content-Length`.
    Whole(Vec<u8>),
    /// In these chunks.
    Chunks(Vec<Vec<u8>>),
}

/// A request, byte for byte.
#[derive(Debug, Clone)]
pub struct Request {
    /// The method.
    pub method: String,
    /// The request target, as in the request line.
    pub target: String,
    /// Headers in order, without `Host` and those of the body's framing.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Body,
}

impl Request {
    /// A request without a body.
    pub fn new(method: &str, target: impl Into<String>) -> Self {
        Self { method: method.to_owned(), target: target.into(), headers: Vec::new(), body: Body::None }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// Adds `Authorization: Bearer`.
    #[must_use]
    pub fn bearer(self, token: &str) -> Self {
        self.header("Authorization", format!("Bearer {token}"))
    }

    /// Sets a JSON body.
    #[must_use]
    pub fn json(self, body: &Value) -> Self {
        self.header("Content-Type", "application/json").body(Body::Whole(body.to_string().into_bytes()))
    }

    /// Sets the body.
    #[must_use]
    pub fn body(mut self, body: Body) -> Self {
        self.body = body;
        self
    }

    fn head_bytes(&self, authority: &str) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\nHost: {authority}\r\n", self.method, self.target);
        match &self.body {
            Body::None => {}
            Body::Whole(body) => head.extend(["Content-Length: ", &body.len().to_string(), "\r\n"]),
            Body::Chunks(_) => head.push_str("Transfer-Encoding: chunked\r\n"),
        }
        for (name, value) in &self.headers {
            head.extend([name, ": ", value, "\r\n"]);
        }
        head.push_str("\r\n");
        // The inverse of reading heads: a character is a byte.
        head.chars().map(|c| u8::try_from(u32::from(c)).unwrap_or(b'?')).collect()
    }

    /// Sends it on a new connection and reads the whole response.
    pub async fn send(&self, to: SocketAddr) -> io::Result<Response> {
        let exchange = async {
            let mut connection = Connection::open(to).await?;
            let sent = connection.send(self).await;
            // The server may refuse a call without reading it to its end; there may still be a response.
            match connection.response(&self.method).await {
                Ok(response) => Ok(response),
                Err(error) => Err(sent.err().unwrap_or(error)),
            }
        };
        tokio::time::timeout(EXCHANGE_TIMEOUT, exchange).await.map_err(|_| io::ErrorKind::TimedOut)?
    }
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    to: SocketAddr,
    /// The half that requests are written to.
    pub write: OwnedWriteHalf,
    /// The half that responses are read from.
    pub read: Wire,
    /// The targets of the requests whose responses have not begun.
    targets: VecDeque<String>,
    /// The target of the request whose response was begun last.
    answered: String,
}

impl Connection {
    /// Connects.
    pub async fn open(to: SocketAddr) -> io::Result<Self> {
        Self::on(TcpStream::connect(to).await?, to)
    }

    /// Connects from another IPv4 address of this machine, as another caller's machine would.
    pub async fn open_from(source: Ipv4Addr, to: SocketAddr) -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((source, 0).into())?;
        Self::on(socket.connect(to).await?, to)
    }

    fn on(stream: TcpStream, to: SocketAddr) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let (read, write) = stream.into_split();
        Ok(Self { to, write, read: Wire::new(read), targets: VecDeque::new(), answered: String::new() })
    }

    /// Sends a request with its body.
    pub async fn send(&mut self, request: &Request) -> io::Result<()> {
        self.targets.push_back(request.target.clone());
        let mut bytes = request.head_bytes(&self.to.to_string());
        match &request.body {
            Body::None => {}
            Body::Whole(body) => bytes.extend_from_slice(body),
            Body::Chunks(chunks) => {
                for chunk in chunks {
                    bytes.extend_from_slice(&chunked(chunk));
                }
                bytes.extend_from_slice(b"0\r\n\r\n");
            }
        }
        self.write.write_all(&bytes).await
    }

    /// Sends only a request's head; send the body with [`Self::write`].
    pub async fn send_head(&mut self, request: &Request) -> io::Result<()> {
        self.targets.push_back(request.target.clone());
        self.write.write_all(&request.head_bytes(&self.to.to_string())).await
    }

    /// Reads the head of the response to a request of `method`; read the body with [`Self::read`].
    pub async fn head(&mut self, method: &str) -> io::Result<Head> {
        loop {
            let head = self.read.head().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
            if !head.first_line.starts_with("HTTP/1.1 1") {
                self.read.expect(head.response_framing(method));
                self.answered = self.targets.pop_front().unwrap_or_default();
                return Ok(head);
            }
        }
    }

    /// Reads the whole response to a request of `method`.
    pub async fn response(&mut self, method: &str) -> io::Result<Response> {
        let head = self.head(method).await?;
        let (body, end) = self.read.rest().await;
        let response = Response { status: status(&head), head, body, complete: end.is_ok() };
        answers::record(method, &self.answered, &response);
        Ok(response)
    }
}

/// One chunk of a chunked body.
pub fn chunked(bytes: &[u8]) -> Vec<u8> {
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(b"\r\n");
    chunk
}

fn status(head: &Head) -> u16 {
    head.first_line.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
}

/// A response.
#[derive(Debug, Clone)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The head.
    pub head: Head,
    /// The received part of the body.
    pub body: Vec<u8>,
    /// Whether the body is complete.
    pub complete: bool,
}

impl Response {
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {} {}", self.status, self.text()))
    }

    /// `x-service-request-id`.
    pub fn request_id(&self) -> String {
        let id = self.head.header("x-service-request-id");
        id.unwrap_or_else(|| panic!("no request id: {self:?}")).to_owned()
    }

    /// Returns the JSON; panics unless the status is `status`.
    pub fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        assert!(self.complete, "broken off");
        self.json()
    }

    /// Returns the error object; panics unless this is the error envelope with `status` and `code`.
    pub fn refused(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        let error = self.json()["error"].clone();
        assert_eq!(error["code"], code, "{error}");
        assert_eq!(error["status"], status, "{error}");
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{error}");
        assert_eq!(self.head.header("content-type"), Some("application/json"));
        self.request_id();
        error
    }
}
