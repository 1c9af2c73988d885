//! The ways of attack. A way is an exchange that some workers repeat until the attack ends, or that holds what it has
//! taken until then.

mod responses;
mod strangers;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farthing_tests::client::{Connection, Request, Response};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::measure::open_files;
use super::say;
use super::scene::{Attacker, Scene};

/// The pause of a worker between two exchanges: the attacker shares the machine with the gateway, and is not to take its
/// processor by its own work.
const PAUSE: Duration = Duration::from_millis(20);

/// The pause between the starts of two workers of a way. All at once they would be a burst, and then an attack that rests.
const START_PAUSE: Duration = Duration::from_millis(2);

/// An exchange that takes longer has hung.
const EXCHANGE_TIMEOUT: Duration = Duration::from_mins(1);

type Ended = Pin<Box<dyn Future<Output = std::io::Result<()>> + Send>>;

/// A way of attack.
struct Way {
    name: &'static str,
    workers: usize,
    /// Whether its exchanges last until the attack ends.
    is_holding: bool,
    exchange: Arc<dyn Fn(u64) -> Ended + Send + Sync>,
    /// The exchanges that began, and those that ended without an error.
    begun: Arc<AtomicU64>,
    ended: Arc<AtomicU64>,
}

impl Way {
    /// `exchange` gets its number.
    fn new<F>(name: &'static str, workers: usize, exchange: impl Fn(u64) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = std::io::Result<()>> + Send + 'static,
    {
        let exchange = Arc::new(move |number| -> Ended { Box::pin(exchange(number)) });
        Self { name, workers, is_holding: false, exchange, begun: Arc::default(), ended: Arc::default() }
    }

    /// A way whose exchanges do not end: [as many times](scale) as many; fewer where this process may have few files open.
    fn holding<F>(
        name: &'static str,
        workers: usize,
        exchange: impl Fn(u64) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = std::io::Result<()>> + Send + 'static,
    {
        Self { is_holding: true, ..Self::new(name, (workers * scale()).min(open_files() / 20), exchange) }
    }
}

/// `FARTHING_ATTACK_SCALE`; one unless it is set.
fn scale() -> usize {
    std::env::var("FARTHING_ATTACK_SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(1)
}

/// The ways that were chosen.
pub(super) struct Ways(Vec<Way>);

impl Ways {
    pub(super) fn of(scene: &Scene) -> Self {
        let mut ways = responses::all(&scene.attacker);
        ways.extend(strangers::all(&scene.attacker));
        let chosen = std::env::var("FARTHING_ATTACK_WAYS").unwrap_or_default();
        let chosen: Vec<_> = chosen.split(',').filter(|name| !name.is_empty()).collect();
        for name in &chosen {
            let names: Vec<_> = ways.iter().map(|way| way.name).collect();
            assert!(names.contains(name), "FARTHING_ATTACK_WAYS: {name} is none of {names:?}");
        }
        ways.retain(|way| chosen.is_empty() || chosen.contains(&way.name));
        Self(ways)
    }

    /// Tries each way whose exchanges end, before anything else keeps the gateway busy.
    pub(super) async fn each_works(&self) {
        for way in self.0.iter().filter(|way| !way.is_holding) {
            let ended = timeout(EXCHANGE_TIMEOUT, (way.exchange)(0)).await;
            assert!(
                matches!(ended, Ok(Ok(()))),
                "{} is not answered as it is meant to be: {ended:?}",
                way.name
            );
        }
    }

    pub(super) fn report(&self) {
        for way in &self.0 {
            let (begun, ended) = (way.begun.load(Ordering::SeqCst), way.ended.load(Ordering::SeqCst));
            say(&format!("way {}: {begun} begun, {ended} ended as meant", way.name));
        }
    }

    /// Asserts that no way came to nothing: all its workers began, and of exchanges that end, so many at least were answered
    /// as they are meant to be.
    pub(super) fn all_were_used(&self, ended_at_least: u32) {
        for way in &self.0 {
            let (begun, ended) = (way.begun.load(Ordering::SeqCst), way.ended.load(Ordering::SeqCst));
            assert!(begun >= way.workers as u64, "{}: {begun} began", way.name);
            let is_enough = way.is_holding || ended >= ended_at_least.into();
            assert!(is_enough, "{}: {ended} of {begun} ended as meant", way.name);
        }
    }
}

/// An attack in all ways at once. It ends when it is dropped, and closes all its connections.
pub(super) struct Attack {
    _workers: JoinSet<()>,
}

impl Attack {
    pub(super) fn begin(ways: &Ways) -> Self {
        let mut workers = JoinSet::new();
        for way in &ways.0 {
            for worker in 0..way.workers {
                let (exchange, begun, ended) =
                    (Arc::clone(&way.exchange), Arc::clone(&way.begun), Arc::clone(&way.ended));
                let start = START_PAUSE * u32::try_from(worker).unwrap_or(0);
                workers.spawn(async move {
                    sleep(start).await;
                    loop {
                        let number = begun.fetch_add(1, Ordering::SeqCst);
                        if exchange(number).await.is_ok() {
                            ended.fetch_add(1, Ordering::SeqCst);
                        }
                        sleep(PAUSE).await;
                    }
                });
            }
        }
        Self { _workers: workers }
    }
}

impl Attacker {
    async fn connect(&self) -> std::io::Result<Connection> {
        Connection::open_from(self.address, self.gateway).await
    }

    /// Sends a request on a new connection and reads the whole response.
    async fn send(&self, request: &Request) -> std::io::Result<Response> {
        let mut connection = self.connect().await?;
        connection.send(request).await?;
        connection.response(&request.method).await
    }
}

/// An exchange that ended as it was meant to.
fn meant(is_so: bool) -> std::io::Result<()> {
    if is_so { Ok(()) } else { Err(std::io::ErrorKind::InvalidData.into()) }
}
