//! A name server that a test controls: its answers, over UDP and TCP, and a journal of its questions.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

/// The longest question over UDP.
const MAX_QUESTION_BYTES: usize = 4_096;

/// The ports that are tried until one is free for both UDP and TCP.
const PORTS: usize = 20;

const HEADER_BYTES: usize = 12;

const A: u16 = 1;
const CNAME: u16 = 5;
const AAAA: u16 = 28;

/// The answer to a question about the addresses of a name.
#[derive(Debug, Clone)]
pub enum Answer {
    /// None, ever.
    Silence,
    /// The name does not exist.
    NoSuchName,
    /// The server has failed.
    Failure,
    /// These addresses, and silence about the other family.
    HalfSilence(Vec<IpAddr>),
    /// These addresses, for so many seconds. A question is answered with those of its family.
    Addresses(Vec<IpAddr>, u32),
    /// The name is another name of this one, whose addresses the server also gives.
    Alias(String, Vec<IpAddr>),
    /// The name is another name of this one.
    AliasAlone(String),
    /// This answer over TCP. The one over UDP is truncated to none of its records.
    OverTcp(Box<Self>),
}

impl Answer {
    /// These addresses, for so many seconds.
    pub fn of(addresses: &[&str], ttl_seconds: u32) -> Self {
        Self::Addresses(parsed(addresses), ttl_seconds)
    }

    /// These addresses of one family, and silence about the other.
    pub fn half_silence(addresses: &[&str]) -> Self {
        Self::HalfSilence(parsed(addresses))
    }

    /// Another name of `name`, which has these addresses.
    pub fn alias(name: &str, addresses: &[&str]) -> Self {
        Self::Alias(name.to_owned(), parsed(addresses))
    }

    /// This answer over TCP alone.
    #[must_use]
    pub fn over_tcp(self) -> Self {
        Self::OverTcp(Box::new(self))
    }
}

fn parsed(addresses: &[&str]) -> Vec<IpAddr> {
    addresses.iter().map(|address| address.parse().expect("an address")).collect()
}

/// The names that a server was asked for, in order.
#[derive(Clone, Default)]
struct Journal(Arc<Mutex<Vec<String>>>);

impl Journal {
    fn add(&self, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(name.to_owned());
    }

    fn count(&self, name: &str) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().filter(|asked| *asked == name).count()
    }

    /// How many names begin with `prefix`.
    fn names(&self, prefix: &str) -> usize {
        let asked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut names: Vec<_> = asked.iter().filter(|asked| asked.starts_with(prefix)).collect();
        names.sort();
        names.dedup();
        names.len()
    }
}

/// The name server.
pub struct NameServer {
    /// Its address.
    pub address: SocketAddr,
    over_udp: Journal,
    over_tcp: Journal,
}

impl NameServer {
    /// Starts on a free port of the loopback. `answer` gets the name without a dot at its end.
    pub async fn start(answer: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Self {
        Self::start_at("127.0.0.1:0", answer).await
    }

    /// Starts at this address.
    pub async fn start_at(address: &str, answer: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Self {
        let (socket, listener) = bound(address).await;
        let address = socket.local_addr().expect("a bound socket has an address");
        let (over_udp, over_tcp, answer) = (Journal::default(), Journal::default(), Arc::new(answer));
        let (journal, answer_over_udp) = (over_udp.clone(), Arc::clone(&answer));
        tokio::spawn(async move {
            let mut buffer = [0; MAX_QUESTION_BYTES];
            while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
                let Some(question) = Question::read(&buffer[..length]) else { continue };
                journal.add(&question.name);
                if let Some(response) = question.answered(&answer_over_udp(&question.name)) {
                    let _ = socket.send_to(&response, from).await;
                }
            }
        });
        let journal = over_tcp.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&answer), journal.clone()));
            }
        });
        Self { address, over_udp, over_tcp }
    }

    /// The flag that makes a gateway ask it.
    pub fn flag(&self) -> String {
        format!("--dns-servers={}", self.address)
    }

    /// How often it was asked for a name over UDP.
    pub fn asked(&self, name: &str) -> usize {
        self.over_udp.count(name)
    }

    /// How many names it was asked for over UDP that begin with `prefix`.
    pub fn names_asked(&self, prefix: &str) -> usize {
        self.over_udp.names(prefix)
    }

    /// How often it was asked for a name over TCP.
    pub fn asked_over_tcp(&self, name: &str) -> usize {
        self.over_tcp.count(name)
    }

    /// How many names it was asked for over TCP that begin with `prefix`.
    pub fn names_asked_over_tcp(&self, prefix: &str) -> usize {
        self.over_tcp.names(prefix)
    }
}

/// A UDP socket and a TCP listener at one address.
async fn bound(address: &str) -> (UdpSocket, TcpListener) {
    for _ in 0..PORTS {
        let socket = UdpSocket::bind(address).await.expect("a free port");
        let same = socket.local_addr().expect("a bound socket has an address");
        if let Ok(listener) = TcpListener::bind(same).await {
            return (socket, listener);
        }
    }
    panic!("no port of {address} is free for both UDP and TCP");
}

/// Answers the questions of a TCP connection as they come. A silence holds up none of the others.
async fn serve<F>(mut stream: TcpStream, answer: Arc<F>, journal: Journal)
where
    F: Fn(&str) -> Answer + Send + Sync + 'static,
{
    while let Ok(length) = stream.read_u16().await {
        let mut message = vec![0; usize::from(length)];
        if stream.read_exact(&mut message).await.is_err() {
            return;
        }
        let Some(question) = Question::read(&message) else { continue };
        journal.add(&question.name);
        let answer = match answer(&question.name) {
            Answer::OverTcp(answer) => *answer,
            answer => answer,
        };
        if let Some(response) = question.answered(&answer) {
            let length = u16::try_from(response.len()).expect("a short response");
            let framed = [&length.to_be_bytes()[..], &response].concat();
            if stream.write_all(&framed).await.is_err() {
                return;
            }
        }
    }
}

struct Question {
    id: [u8; 2],
    /// The name, type and class, as received.
    bytes: Vec<u8>,
    name: String,
    record_type: u16,
}

impl Question {
    fn read(message: &[u8]) -> Option<Self> {
        let id = message.get(..2)?.try_into().ok()?;
        let mut labels = Vec::new();
        let mut at = HEADER_BYTES;
        loop {
            let length = usize::from(*message.get(at)?);
            if length == 0 {
                break;
            }
            labels.push(String::from_utf8_lossy(message.get(at + 1..=at + length)?).to_lowercase());
            at += length + 1;
        }
        let end = at + 5;
        let record_type = u16::from_be_bytes(message.get(at + 1..at + 3)?.try_into().ok()?);
        Some(Self {
            id,
            bytes: message.get(HEADER_BYTES..end)?.to_vec(),
            name: labels.join("."),
            record_type,
        })
    }

    /// The response with `answer`; `None` if there is to be none.
    fn answered(&self, answer: &Answer) -> Option<Vec<u8>> {
        let own = [0xc0, 12];
        let (code, records) = match answer {
            Answer::Silence => return None,
            Answer::HalfSilence(addresses) => {
                let records = self.addresses(&own, addresses, 60);
                if records.is_empty() {
                    return None;
                }
                (0, records)
            }
            Answer::Failure => (2, Vec::new()),
            Answer::NoSuchName => (3, Vec::new()),
            Answer::Addresses(addresses, ttl) => (0, self.addresses(&own, addresses, *ttl)),
            Answer::Alias(name, addresses) => {
                let mut records = vec![record(&own, CNAME, 60, &encoded(name))];
                records.extend(self.addresses(&encoded(name), addresses, 60));
                (0, records)
            }
            Answer::AliasAlone(name) => (0, vec![record(&own, CNAME, 60, &encoded(name))]),
            Answer::OverTcp(_) => (0, Vec::new()),
        };
        let truncated = if let Answer::OverTcp(_) = answer { 0x02 } else { 0 };
        let count = u8::try_from(records.len()).expect("few records");
        // A response, with recursion; one question, and the records.
        let mut response =
            vec![self.id[0], self.id[1], 0x81 | truncated, 0x80 | code, 0, 1, 0, count, 0, 0, 0, 0];
        response.extend_from_slice(&self.bytes);
        response.extend(records.concat());
        Some(response)
    }

    fn addresses(&self, name: &[u8], addresses: &[IpAddr], ttl: u32) -> Vec<Vec<u8>> {
        let of_family = addresses.iter().filter_map(|address| match (address, self.record_type) {
            (IpAddr::V4(address), A) => Some(record(name, A, ttl, &address.octets())),
            (IpAddr::V6(address), AAAA) => Some(record(name, AAAA, ttl, &address.octets())),
            _ => None,
        });
        of_family.collect()
    }
}

fn record(name: &[u8], record_type: u16, ttl: u32, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(data.len()).expect("short data");
    let class_internet = 1_u16;
    let mut record = name.to_vec();
    record.extend(record_type.to_be_bytes());
    record.extend(class_internet.to_be_bytes());
    record.extend(ttl.to_be_bytes());
    record.extend(length.to_be_bytes());
    record.extend(data);
    record
}

fn encoded(name: &str) -> Vec<u8> {
    let mut encoded = Vec::new();
    for label in name.split('.') {
        encoded.push(u8::try_from(label.len()).expect("a short label"));
        encoded.extend_from_slice(label.as_bytes());
    }
    encoded.push(0);
    encoded
}
