//! The hosts of a database URL: one is tried after the other, each for a limited time.
//!
//! tokio-postgres limits how long a host may take to accept a connection, and not how long the login may take. It begins
//! with the first host each time, so one that swallows packets keeps a caller with little time from the next.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_postgres::config::{Host, LoadBalanceHosts, TargetSessionAttrs};
use tokio_postgres::{Client, Config, Error, NoTls};
use tokio_util::task::AbortOnDropHandle;

use super::{CONNECT_TIMEOUT, PostgresTls};

/// The longest that a host may take until a session is open, also if the URL allows a connection a short time.
const HOST_TIMEOUT: Duration = Duration::from_secs(10);

/// The same, in times of that for a connection.
const CONNECT_TIMES: u32 = 3;

/// An attempt that is given up sooner says nothing of its host.
const PATIENCE: Duration = Duration::from_secs(1);

/// Which host is tried first, in this process, where only one that takes writes will do. It is one for all URLs: a process
/// works with one database, and with another URL it is a guess that may be wrong. So a caller that has waited for a while and
/// gives up moves the next one on to the next host.
static FIRST: AtomicUsize = AtomicUsize::new(0);

/// The hosts of a database URL.
#[derive(Debug, Clone)]
pub(super) struct Hosts {
    /// The settings for each host alone, or for all where tokio-postgres chooses.
    each: Vec<Config>,
    /// The longest that each may take.
    limit: Duration,
    /// How long an attempt that is given up must have lasted to say something of its host.
    patience: Duration,
}

impl Hosts {
    pub(super) fn of(config: &Config) -> Self {
        let connect = config.get_connect_timeout().copied().unwrap_or(CONNECT_TIMEOUT);
        let limit = connect.saturating_mul(CONNECT_TIMES).max(HOST_TIMEOUT);
        Self { each: each_alone(config), limit, patience: PATIENCE }
    }

    /// Opens a session of one of the hosts, which begins with the statements `begin`. The task drives its connection.
    pub(super) async fn open(
        &self,
        tls: &PostgresTls,
        begin: &str,
    ) -> Result<(Client, JoinHandle<()>), Error> {
        self.open_first(tls, begin, &FIRST).await
    }

    async fn open_first(
        &self,
        tls: &PostgresTls,
        begin: &str,
        first: &AtomicUsize,
    ) -> Result<(Client, JoinHandle<()>), Error> {
        let count = self.each.len();
        // A host that may be read only is not to be kept to.
        let is_kept = self.each[0].get_target_session_attrs() == TargetSessionAttrs::ReadWrite;
        let start = if is_kept { first.load(Ordering::Relaxed) % count } else { 0 };
        let mut failed = None;
        for at in (start..start + count).map(|at| at % count) {
            let first = Some(first).filter(|_| is_kept);
            let (next, patience) = ((at + 1) % count, self.patience);
            let attempt = Attempt { first, at, next, patience, began: Instant::now() };
            let opened = open_at(&self.each[at], tls.clone(), begin);
            match tokio::time::timeout(self.limit, opened).await {
                Ok(Ok(opened)) => {
                    attempt.has_succeeded();
                    return Ok(opened);
                }
                Ok(Err(error)) => {
                    attempt.has_failed();
                    failed = Some(error);
                }
                Err(_) => {
                    attempt.has_failed();
                    failed = Some(unanswered(self.limit).await);
                }
            }
        }
        Err(failed.expect("there is at least one entry"))
    }
}

/// An attempt to open a session of a host. If it fails, or who waits for it gives up after a while, the next host is tried
/// first.
struct Attempt<'a> {
    /// Which host is tried first; `None` if it is not kept.
    first: Option<&'a AtomicUsize>,
    at: usize,
    next: usize,
    patience: Duration,
    began: Instant,
}

impl Attempt<'_> {
    fn has_succeeded(mut self) {
        if let Some(first) = self.first.take() {
            first.store(self.at, Ordering::Relaxed);
        }
    }

    fn has_failed(mut self) {
        self.move_on();
    }

    fn move_on(&mut self) {
        if let Some(first) = self.first.take() {
            // Another attempt may have moved on meanwhile.
            let _ = first.compare_exchange(self.at, self.next, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.began.elapsed() >= self.patience {
            self.move_on();
        }
    }
}

async fn open_at(config: &Config, tls: PostgresTls, begin: &str) -> Result<(Client, JoinHandle<()>), Error> {
    let (client, connection) = config.connect(tls).await?;
    let process = config.get_application_name().unwrap_or_default().to_owned();
    // An attempt that is given up leaves no session that waits for its first answer.
    let task = AbortOnDropHandle::new(tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::warn!(event = "postgres.connection_lost", process, %error, "a connection to Postgres ended");
        }
    }));
    client.batch_execute(begin).await?;
    Ok((client, task.detach()))
}

/// The settings for each host alone. Hosts that are tried in any order, and a list that tokio-postgres refuses, stay
/// together.
fn each_alone(config: &Config) -> Vec<Config> {
    let (hosts, addresses, ports) = (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
    let count = hosts.len().max(addresses.len());
    let is_whole = |length: usize| length == 0 || length == count;
    let is_understood = is_whole(hosts.len()) && is_whole(addresses.len());
    if count < 2
        || !is_understood
        || !(is_whole(ports.len()) || ports.len() == 1)
        || config.get_load_balance_hosts() == LoadBalanceHosts::Random
    {
        return vec![config.clone()];
    }
    let alone = |at: usize| {
        let mut alone = without_hosts(config);
        match hosts.get(at) {
            Some(Host::Tcp(name)) => drop(alone.host(name)),
            Some(Host::Unix(path)) => drop(alone.host_path(path)),
            None => {}
        }
        if let Some(address) = addresses.get(at) {
            alone.hostaddr(*address);
        }
        if let Some(port) = ports.get(at).or(ports.first()) {
            alone.port(*port);
        }
        alone
    };
    (0..count).map(alone).collect()
}

/// All settings but the hosts. A setting of a URL that is missing here would have no effect beside several hosts.
fn without_hosts(config: &Config) -> Config {
    let mut copy = Config::new();
    copy.ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle())
        .target_session_attrs(config.get_target_session_attrs())
        .channel_binding(config.get_channel_binding());
    config.get_user().map(|user| copy.user(user));
    config.get_password().map(|password| copy.password(password));
    config.get_dbname().map(|name| copy.dbname(name));
    config.get_options().map(|options| copy.options(options));
    config.get_application_name().map(|name| copy.application_name(name));
    config.get_connect_timeout().map(|limit| copy.connect_timeout(*limit));
    config.get_tcp_user_timeout().map(|limit| copy.tcp_user_timeout(*limit));
    config.get_keepalives_interval().map(|pause| copy.keepalives_interval(pause));
    config.get_keepalives_retries().map(|count| copy.keepalives_retries(count));
    copy
}

/// The error of a host that accepts a connection and does not answer, as one of the network.
async fn unanswered(limit: Duration) -> Error {
    match Config::new().user("").connect_raw(Unanswered(limit), NoTls).await {
        Err(error) => error,
        Ok(_) => unreachable!("nothing can be written to it"),
    }
}

/// A connection on which nothing comes.
struct Unanswered(Duration);

impl Unanswered {
    fn error(&self) -> io::Error {
        let text = format!("the server did not answer within {} s", self.0.as_secs_f64());
        io::Error::new(io::ErrorKind::TimedOut, text)
    }
}

impl AsyncRead for Unanswered {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Err(self.error()))
    }
}

impl AsyncWrite for Unanswered {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(self.error()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Err(self.error()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::connect::{is_away, redacted, settings_of};

    /// A server that accepts connections, and its part of a URL.
    async fn silent() -> (TcpListener, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        (listener, address)
    }

    #[tokio::test]
    async fn a_server_that_accepts_and_does_not_answer_is_away() {
        let (_listener, address) = silent().await;
        let (config, tls) =
            settings_of(&format!("postgres://u@{address},{address}/d?sslmode=disable")).unwrap();
        let hosts = Hosts { limit: Duration::from_millis(50), ..Hosts::of(&config) };
        let error = hosts.open(&tls, "").await.unwrap_err();
        assert!(is_away(&error), "{error:?}");
        assert!(
            redacted(&error).ends_with("the server did not answer within 0.05 s"),
            "{}",
            redacted(&error)
        );
    }

    #[tokio::test]
    async fn who_waits_for_a_host_and_gives_up_moves_the_next_on_to_the_next_host() {
        let ((one, at_one), (two, at_two)) = (silent().await, silent().await);
        let (none, endless) = (Duration::ZERO, Duration::MAX);
        for (attrs, patience, accepted_by) in
            [("read-write", none, &two), ("read-write", endless, &one), ("any", none, &one)]
        {
            let url =
                format!("postgres://u@{at_one},{at_two}/d?sslmode=disable&target_session_attrs={attrs}");
            let (config, tls) = settings_of(&url).unwrap();
            let (hosts, first) = (Hosts { patience, ..Hosts::of(&config) }, AtomicUsize::new(0));
            tokio::select! {
                _ = hosts.open_first(&tls, "", &first) => panic!("no server answers"),
                accepted = one.accept() => drop(accepted.unwrap()),
            }
            tokio::select! {
                _ = hosts.open_first(&tls, "", &first) => panic!("no server answers"),
                accepted = accepted_by.accept() => drop(accepted.unwrap()),
            }
        }
    }

    #[test]
    fn each_host_has_all_settings_of_the_url() {
        let settings = "user=u password=p dbname=d options='-c jit=on' sslmode=require sslnegotiation=direct \
                        application_name=a connect_timeout=7 tcp_user_timeout=8 keepalives=1 keepalives_idle=9 \
                        keepalives_interval=10 keepalives_retries=11 target_session_attrs=read-write \
                        channel_binding=require";
        let of = |hosts: &str| Hosts::of(&settings_of(&format!("{settings} {hosts}")).unwrap().0).each;
        let both = [of("host=one port=1"), of("host=two port=2")].concat();
        assert_eq!(of("host=one,two port=1,2"), both);
        let both =
            [of("host=one hostaddr=10.0.0.1 port=5"), of("host=two hostaddr=10.0.0.2 port=5")].concat();
        assert_eq!(of("host=one,two hostaddr=10.0.0.1,10.0.0.2 port=5"), both);
        for together in ["host=one,two load_balance_hosts=random", "host=one,two port=1,2,3", ""] {
            assert_eq!(of(together).len(), 1, "{together}");
        }
    }

    #[test]
    fn a_host_may_take_three_times_as_long_as_its_connection_and_at_least_ten_seconds() {
        for (url, limit) in [("postgres://a@h/b", 15), ("host=h connect_timeout=1", 10)] {
            let limit = Duration::from_secs(limit);
            assert_eq!(Hosts::of(&settings_of(url).unwrap().0).limit, limit, "{url}");
        }
    }
}
