//! A proxy between the program and Postgres that reads the protocol and injects faults into an append: it loses the response,
//! cuts the statement off, or withholds it and delivers it after the writer has given up. It can also take Postgres away.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};

/// The text that identifies the append among statements.
const APPEND_MARK: &str = "ledger.append_batch(";

/// The message by which a client asks for TLS before its first one.
const TLS_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

/// The timeout for Postgres to answer a withheld statement.
const OUTCOME_TIMEOUT: Duration = Duration::from_secs(30);

/// A fault of one append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The append is executed and committed; its response is lost with the connection.
    LoseAnswer,
    /// The append is answered; the response to the commit after it is lost with the connection. If the append is its own
    /// transaction, this is the same as [`Fault::LoseAnswer`].
    LoseCommitAnswer,
    /// So many thousandths of the append are delivered before the connection is lost.
    CutWithin(u16),
    /// The writer loses the connection; Postgres receives the append after this time.
    DeliverLate(Duration),
    /// The writer loses the connection; Postgres receives the append when the test releases it.
    KeepBack,
    /// The writer gets no response; Postgres receives the append when the test releases it.
    KeepBackInSilence,
}

/// The outcome of a struck append in Postgres.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It was executed: whether it moved the head, or was fenced.
    Moved(bool),
    /// It was refused, with this SQLSTATE.
    Refused(String),
    /// Postgres had closed the connection.
    Closed,
    /// Postgres did not receive it.
    NotDelivered,
}

/// A fault that waits for its append.
struct Armed {
    fault: Fault,
    /// Whether Postgres is away from then on.
    severs: bool,
    /// Appends that pass before.
    passing: u32,
    struck: oneshot::Sender<()>,
    deliver: oneshot::Receiver<()>,
    outcome: oneshot::Sender<Outcome>,
}

/// The test's end of a fault.
pub struct Strike {
    struck: oneshot::Receiver<()>,
    deliver: Option<oneshot::Sender<()>>,
    outcome: oneshot::Receiver<Outcome>,
}

impl Strike {
    /// Waits until an append is struck.
    pub async fn struck(&mut self) {
        (&mut self.struck).await.expect("an append comes");
    }

    /// Whether an append has been struck. Do not call again after `true`.
    pub fn has_struck(&mut self) -> bool {
        self.struck.try_recv().is_ok()
    }

    /// Delivers a withheld append and returns the outcome.
    pub async fn outcome(mut self) -> Outcome {
        if let Some(deliver) = self.deliver.take() {
            let _ = deliver.send(());
        }
        self.outcome.await.expect("the proxy reports the outcome")
    }
}

/// A running proxy; it lives as long as the test process.
pub struct Proxy {
    armed: Arc<Mutex<Option<Armed>>>,
    is_away: Arc<watch::Sender<bool>>,
}

impl Proxy {
    /// Starts a proxy for the Postgres of `database_url`; the second value is the URL through it.
    pub async fn before(database_url: &str) -> (Self, String) {
        let authority = database_url
            .split(['@', '/'])
            .find_map(|part| part.parse::<SocketAddr>().ok())
            .unwrap_or_else(|| panic!("no address and port in the database's URL"));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let armed = Arc::new(Mutex::new(None));
        let (shared, is_away) = (Arc::clone(&armed), Arc::new(watch::Sender::new(false)));
        let away = Arc::clone(&is_away);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (armed, away) = (Arc::clone(&shared), Arc::clone(&away));
                tokio::spawn(async move {
                    let mut severed = away.subscribe();
                    // When one side closes, the other is closed too.
                    tokio::select! {
                        biased;
                        _ = severed.wait_for(|is_away| *is_away) => {}
                        _ = Passage::open(client, authority, armed, away) => {}
                    }
                });
            }
        });
        let url = database_url.replace(&authority.to_string(), &address.to_string());
        (Self { armed, is_away }, url)
    }

    /// Makes Postgres unavailable: every connection is closed, and every new one.
    pub fn sever(&self) {
        self.is_away.send_replace(true);
    }

    /// Makes Postgres available again.
    pub fn restore(&self) {
        self.is_away.send_replace(false);
    }

    /// Strikes the next append after `passing` others.
    pub fn strike(&self, fault: Fault, passing: u32) -> Strike {
        self.arm(fault, passing, false)
    }

    /// The same, and severs Postgres in the same moment: the writer cannot find out what became of its append.
    pub fn strike_and_sever(&self, fault: Fault, passing: u32) -> Strike {
        self.arm(fault, passing, true)
    }

    fn arm(&self, fault: Fault, passing: u32, severs: bool) -> Strike {
        let (struck, hear_struck) = oneshot::channel();
        let (say_deliver, deliver) = oneshot::channel();
        let (outcome, hear_outcome) = oneshot::channel();
        let armed = Armed { fault, severs, passing, struck, deliver, outcome };
        let before = self.armed.lock().unwrap_or_else(PoisonError::into_inner).replace(armed);
        assert!(before.is_none(), "one fault at a time");
        Strike { struck: hear_struck, deliver: Some(say_deliver), outcome: hear_outcome }
    }
}

/// A message of the protocol: its type and all of its bytes.
struct Message {
    kind: u8,
    bytes: Vec<u8>,
}

impl Message {
    /// The body, after type and length.
    fn body(&self) -> &[u8] {
        &self.bytes[5..]
    }

    /// The zero-terminated texts at the start of the body.
    fn texts(&self) -> impl Iterator<Item = &[u8]> {
        self.body().split(|byte| *byte == 0)
    }
}

/// The messages of one direction.
struct Source {
    read: OwnedReadHalf,
    buffer: Vec<u8>,
}

impl Source {
    /// The next message; `None` at the end. Cancel-safe.
    async fn next(&mut self) -> io::Result<Option<Message>> {
        loop {
            if let Some(length) = self.buffer.get(1..5) {
                let length = u32::from_be_bytes(length.try_into().expect("four bytes")) as usize + 1;
                if self.buffer.len() >= length {
                    let rest = self.buffer.split_off(length);
                    let bytes = std::mem::replace(&mut self.buffer, rest);
                    return Ok(Some(Message { kind: bytes[0], bytes }));
                }
            }
            if self.read.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }

    /// The first message of a connection, which has no type.
    async fn startup(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(length) = self.buffer.get(..4) {
                let length = u32::from_be_bytes(length.try_into().expect("four bytes")) as usize;
                if self.buffer.len() >= length {
                    let rest = self.buffer.split_off(length);
                    return Ok(std::mem::replace(&mut self.buffer, rest));
                }
            }
            if self.read.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// A connection through the proxy.
struct Passage {
    from_client: Source,
    to_client: OwnedWriteHalf,
    from_server: Source,
    to_server: OwnedWriteHalf,
    armed: Arc<Mutex<Option<Armed>>>,
    is_away: Arc<watch::Sender<bool>>,
    /// The names under which the append is prepared here.
    appends: Vec<Vec<u8>>,
    /// Whether a transaction is open, by Postgres's status.
    in_transaction: bool,
}

impl Passage {
    async fn open(
        client: TcpStream,
        server: SocketAddr,
        armed: Arc<Mutex<Option<Armed>>>,
        is_away: Arc<watch::Sender<bool>>,
    ) -> io::Result<()> {
        let server = TcpStream::connect(server).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let mut passage = Self {
            from_client: Source { read: from_client, buffer: Vec::new() },
            to_client,
            from_server: Source { read: from_server, buffer: Vec::new() },
            to_server,
            armed,
            is_away,
            appends: Vec::new(),
            in_transaction: false,
        };
        let mut startup = passage.from_client.startup().await?;
        if startup == TLS_REQUEST {
            // The proxy has no TLS, and says so.
            passage.to_client.write_all(b"N").await?;
            startup = passage.from_client.startup().await?;
        }
        passage.to_server.write_all(&startup).await?;
        passage.pass().await
    }

    async fn pass(mut self) -> io::Result<()> {
        loop {
            tokio::select! {
                message = self.from_client.next() => {
                    let Some(message) = message? else { return Ok(()) };
                    if let Some(armed) = self.struck_by(&message) {
                        return self.strike(armed, message).await;
                    }
                    self.to_server.write_all(&message.bytes).await?;
                }
                message = self.from_server.next() => {
                    let Some(message) = message? else { return Ok(()) };
                    self.note(&message);
                    self.to_client.write_all(&message.bytes).await?;
                }
            }
        }
    }

    /// Records the append's statement name, and returns whether `message` is the append that an armed fault waits for.
    fn struck_by(&mut self, message: &Message) -> Option<Armed> {
        let mut texts = message.texts();
        match message.kind {
            b'P' => {
                let (name, sql) = (texts.next()?, texts.next()?);
                if String::from_utf8_lossy(sql).contains(APPEND_MARK) {
                    self.appends.push(name.to_vec());
                }
                None
            }
            b'B' => {
                let statement = texts.nth(1)?;
                if !self.appends.iter().any(|append| append == statement) {
                    return None;
                }
                let mut armed = self.armed.lock().unwrap_or_else(PoisonError::into_inner);
                match armed.as_mut()?.passing.checked_sub(1) {
                    Some(passing) => {
                        armed.as_mut()?.passing = passing;
                        None
                    }
                    None => armed.take(),
                }
            }
            _ => None,
        }
    }

    fn note(&mut self, message: &Message) {
        if message.kind == b'Z' {
            self.in_transaction = message.body() != b"I";
        }
    }

    async fn strike(mut self, armed: Armed, bind: Message) -> io::Result<()> {
        let Armed { fault, severs, struck, deliver, outcome, .. } = armed;
        let is_away = Arc::clone(&self.is_away);
        // This passage ends with the others at its next wait; until then the writer does not learn of it.
        let sever = move || {
            if severs {
                is_away.send_replace(true);
            }
        };
        let mut told = Some(struck);
        let mut tell = move || {
            if let Some(struck) = told.take() {
                let _ = struck.send(());
            }
        };
        let came = match fault {
            Fault::LoseAnswer | Fault::LoseCommitAnswer => {
                let came = self.lose_answer(fault, bind).await;
                sever();
                drop(self);
                tell();
                came
            }
            Fault::CutWithin(share) => {
                let whole = self.whole(bind, false).await?;
                let delivered = whole.len().saturating_sub(1) * usize::from(share) / 1000;
                self.to_server.write_all(&whole[..delivered]).await?;
                sever();
                drop(self);
                tell();
                Outcome::NotDelivered
            }
            Fault::DeliverLate(_) | Fault::KeepBack | Fault::KeepBackInSilence => {
                let whole = self.whole(bind, self.in_transaction).await?;
                let Self { from_client, to_client, mut from_server, mut to_server, .. } = self;
                let client = (from_client, to_client);
                let _kept_open = (fault == Fault::KeepBackInSilence).then_some(client);
                tell();
                if let Fault::DeliverLate(after) = fault {
                    tokio::time::sleep(after).await;
                } else {
                    // The test may have ended.
                    let _ = deliver.await;
                }
                let delivered = to_server.write_all(&whole).await;
                match delivered {
                    Ok(()) => Self::verdict(&mut from_server).await,
                    Err(_) => Outcome::Closed,
                }
            }
        };
        let _ = outcome.send(came);
        Ok(())
    }

    /// The append from its first message on, with the commit that follows it in an open transaction.
    async fn whole(&mut self, bind: Message, with_commit: bool) -> io::Result<Vec<u8>> {
        let last = if with_commit { b'Q' } else { b'S' };
        let mut whole = bind.bytes;
        loop {
            let message = self.from_client.next().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
            whole.extend_from_slice(&message.bytes);
            if message.kind == last {
                return Ok(whole);
            }
        }
    }

    /// Forwards everything to Postgres and drops its response.
    async fn lose_answer(&mut self, fault: Fault, bind: Message) -> Outcome {
        let mut verdict = Verdict::default();
        let mut answer = Vec::new();
        if self.to_server.write_all(&bind.bytes).await.is_err() {
            return Outcome::Closed;
        }
        loop {
            tokio::select! {
                message = self.from_client.next() => {
                    let Ok(Some(message)) = message else { return verdict.or_closed() };
                    if self.to_server.write_all(&message.bytes).await.is_err() {
                        return verdict.or_closed();
                    }
                }
                message = self.from_server.next() => {
                    let Ok(Some(message)) = message else { return verdict.or_closed() };
                    verdict.hear(&message);
                    answer.extend_from_slice(&message.bytes);
                    if Verdict::is_final(&message) {
                        return verdict.or_closed();
                    }
                    if message.kind == b'Z' && fault == Fault::LoseCommitAnswer {
                        let answer = std::mem::take(&mut answer);
                        if self.to_client.write_all(&answer).await.is_err() {
                            return verdict.or_closed();
                        }
                    }
                }
            }
        }
    }

    /// Reads Postgres's response to a withheld append.
    async fn verdict(from_server: &mut Source) -> Outcome {
        let mut verdict = Verdict::default();
        let hear = async {
            while let Ok(Some(message)) = from_server.next().await {
                verdict.hear(&message);
                if Verdict::is_final(&message) {
                    break;
                }
            }
        };
        tokio::time::timeout(OUTCOME_TIMEOUT, hear).await.expect("Postgres answers or closes");
        verdict.or_closed()
    }
}

/// The response to a struck append so far.
#[derive(Default)]
struct Verdict {
    outcome: Option<Outcome>,
}

impl Verdict {
    fn hear(&mut self, message: &Message) {
        match message.kind {
            // A row of one boolean: whether the append moved the head.
            b'D' => {
                if let Some(moved) = message.body().get(6)
                    && self.outcome.is_none()
                {
                    self.outcome = Some(Outcome::Moved(*moved == 1));
                }
            }
            b'E' => {
                let code = message.texts().find_map(|field| field.strip_prefix(b"C"));
                let code = String::from_utf8_lossy(code.unwrap_or_default()).into_owned();
                self.outcome = Some(Outcome::Refused(code));
            }
            _ => {}
        }
    }

    /// The transaction has ended.
    fn is_final(message: &Message) -> bool {
        message.kind == b'Z' && message.body() == b"I"
    }

    fn or_closed(&mut self) -> Outcome {
        self.outcome.take().unwrap_or(Outcome::Closed)
    }
}
