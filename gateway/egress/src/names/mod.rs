//! Looks host names up without a thread: one lookup per name at a time, limited in number for all and per party, bounded
//! in time, and cached.
//!
//! Invariant: an answer is only a list of addresses. Whoever dials checks them, cached ones too.

mod dns;
mod kept;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use std::vec;

use farthing_shares::{Division, Slot, Slots};
use futures_util::FutureExt as _;
use futures_util::future::{Shared, WeakShared};
use hyper_util::client::legacy::connect::dns::Name;
use tokio::time::Instant;
use tower_service::Service;

use self::dns::Dns;
use self::kept::KeptNames;
use crate::error::Error;
use crate::party::{self, Party};

/// The most lookups of a gateway in flight, where its open files allow so many.
pub const MOST_LOOKUPS: usize = 256;

/// The most open files of a lookup. Each of its two questions takes up to three sockets over UDP, or a connection to a name
/// server, which may be kept when the lookup is over.
///
/// With more name servers there is a further connection for each, and a socket less.
pub const FILES_PER_LOOKUP: usize = 8;

/// The most lookups of one party in flight; half of all, if these are fewer.
const LOOKUPS_PER_PARTY: usize = 32;

/// The limit on a lookup.
pub(crate) const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// The most names whose answers are kept.
const MAX_KEPT: usize = 4_096;

/// How long an answer is kept at most, whatever its time to live.
const MAX_TTL: Duration = Duration::from_mins(5);

/// The same for the answer that a name does not exist or has no address.
const MAX_NEGATIVE_TTL: Duration = Duration::from_secs(30);

/// The most addresses of a name.
const MAX_ADDRESSES: usize = 128;

/// Why a name has no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// The name does not exist, or has no address.
    #[error("the name has no address")]
    NoAddress,
    /// The name has more addresses than are read.
    #[error("the name has too many addresses")]
    TooManyAddresses,
    /// The name servers did not answer in time.
    #[error("the name servers did not answer in time")]
    TimedOut,
    /// The lookup failed for another reason.
    #[error("{0}")]
    Failed(String),
}

/// What name servers say about a name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Answer {
    /// Its addresses. A name that does not exist has none.
    addresses: Vec<IpAddr>,
    /// How long the answer may be kept.
    ttl: Duration,
}

/// Where answers come from.
trait Source: Send + Sync {
    /// Looks `name` up.
    fn look_up(&self, name: &str) -> BoxFuture<Result<Answer, LookupError>>;
}

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The addresses of a name; none if it has none.
type Addresses = Arc<[IpAddr]>;

/// A lookup in flight.
type Lookup = BoxFuture<Result<Addresses, LookupError>>;

/// The lookups of a gateway.
#[derive(Clone)]
pub struct Names(Arc<Inner>);

struct Inner {
    source: Box<dyn Source>,
    kept: Mutex<KeptNames>,
    slots: Slots<Party>,
    in_flight: Mutex<InFlight>,
}

/// The lookups in flight, by name. Those who wait for one keep it going; it ends when nobody waits any more.
#[derive(Default)]
struct InFlight {
    /// Numbers the lookups.
    next: u64,
    by_name: HashMap<Box<str>, (u64, WeakShared<Lookup>)>,
}

impl Names {
    /// At most so many lookups at once, at `servers`, or at those of `/etc/resolv.conf` if there are none.
    pub fn new(servers: &[SocketAddr], lookups: usize) -> Self {
        Self::of(Dns::new(servers), lookups)
    }

    fn of(source: impl Source + 'static, lookups: usize) -> Self {
        let of_party = LOOKUPS_PER_PARTY.min(lookups.div_ceil(2));
        Self(Arc::new(Inner {
            source: Box::new(source),
            kept: Mutex::new(KeptNames::new(MAX_KEPT)),
            slots: Slots::new(Division::of(lookups, of_party)),
            in_flight: Mutex::default(),
        }))
    }

    /// The addresses of `name`, at least one. A lookup that this starts counts against `party`.
    async fn resolve(&self, name: &str, party: Party) -> Result<Addresses, Error> {
        let kept = self.kept().find(name, party);
        let addresses = match kept {
            Some(addresses) => addresses,
            None => self.lookup(name, party)?.await?,
        };
        if addresses.is_empty() { Err(LookupError::NoAddress.into()) } else { Ok(addresses) }
    }

    /// The lookup of `name` in flight, or a new one.
    fn lookup(&self, name: &str, party: Party) -> Result<Shared<Lookup>, Error> {
        let mut in_flight = self.in_flight();
        if let Some(lookup) = in_flight.by_name.get(name).and_then(|(_, lookup)| lookup.upgrade()) {
            return Ok(lookup);
        }
        let slot = self.0.slots.take(party).ok_or(Error::TooManyLookups)?;
        let answer = self.0.source.look_up(name);
        let number = in_flight.next;
        in_flight.next += 1;
        let entry = Entry { names: self.clone(), name: name.into(), number, party, _slot: slot };
        let lookup = look_up(entry, answer).boxed().shared();
        let weak = lookup.downgrade().expect("a lookup that was never polled is not over");
        in_flight.by_name.insert(name.into(), (number, weak));
        Ok(lookup)
    }

    fn in_flight(&self) -> MutexGuard<'_, InFlight> {
        self.0.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> MutexGuard<'_, KeptNames> {
        self.0.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lookup's entry among those in flight, with its slot.
struct Entry {
    names: Names,
    name: Box<str>,
    number: u64,
    /// Who began it.
    party: Party,
    _slot: Slot<Party>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut in_flight = self.names.in_flight();
        // Another lookup of the name may have begun since nobody waits for this one.
        if in_flight.by_name.get(&self.name).is_some_and(|(number, _)| *number == self.number) {
            in_flight.by_name.remove(&self.name);
        }
    }
}

/// The addresses that `answer` has in time. Keeps them for the next lookups of the name.
async fn look_up(
    entry: Entry,
    answer: BoxFuture<Result<Answer, LookupError>>,
) -> Result<Addresses, LookupError> {
    let answer = tokio::time::timeout(LOOKUP_TIMEOUT, answer).await.unwrap_or(Err(LookupError::TimedOut))?;
    if answer.addresses.len() > MAX_ADDRESSES {
        return Err(LookupError::TooManyAddresses);
    }
    let longest = if answer.addresses.is_empty() { MAX_NEGATIVE_TTL } else { MAX_TTL };
    let addresses: Addresses = answer.addresses.into();
    let ttl = answer.ttl.min(longest);
    if !ttl.is_zero() {
        entry.names.kept().keep(&entry.name, entry.party, &addresses, Instant::now() + ttl);
    }
    Ok(addresses)
}

impl Service<Name> for Names {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = Error;
    type Future = BoxFuture<Result<Self::Response, Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        // The future may be polled by another task.
        let (names, party) = (self.clone(), party::current());
        Box::pin(async move {
            let addresses = names.resolve(&name.as_str().to_ascii_lowercase(), party).await?;
            let addresses = addresses.iter().map(|address| SocketAddr::new(*address, 0));
            Ok(addresses.collect::<Vec<_>>().into_iter())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use farthing_shares::OWNERS_WITH_BASE;
    use tokio::task::JoinSet;
    use tokio::time::{advance, sleep, timeout};

    use super::*;
    use crate::party::on_behalf_of;

    const TTL: Duration = Duration::from_secs(20);

    /// Counts lookups. Names that begin with `slow` are never answered, names that begin with `no` do not exist, those
    /// that begin with `broken` fail, and those that begin with `many` have too many addresses. The rest of a name after
    /// a dot is the time to live in seconds.
    #[derive(Clone, Default)]
    struct Servers(Arc<AtomicUsize>);

    impl Source for Servers {
        fn look_up(&self, name: &str) -> BoxFuture<Result<Answer, LookupError>> {
            let address =
                IpAddr::from([192, 0, 2, u8::try_from(self.0.fetch_add(1, Ordering::SeqCst)).unwrap_or(0)]);
            let ttl = name.split_once('.').and_then(|(_, seconds)| seconds.parse().ok());
            let ttl = ttl.map_or(TTL, Duration::from_secs);
            let many = std::iter::repeat_n(address, MAX_ADDRESSES + 1).collect();
            let answer = match name {
                _ if name.starts_with("slow") => return Box::pin(std::future::pending()),
                _ if name.starts_with("no") => Ok(Answer { addresses: Vec::new(), ttl }),
                _ if name.starts_with("broken") => Err(LookupError::Failed("broken".to_owned())),
                _ if name.starts_with("many") => Ok(Answer { addresses: many, ttl }),
                _ => Ok(Answer { addresses: vec![address], ttl }),
            };
            Box::pin(async move {
                sleep(Duration::from_millis(1)).await;
                answer
            })
        }
    }

    fn names() -> (Names, impl Fn() -> usize) {
        let servers = Servers::default();
        let asked = Arc::clone(&servers.0);
        (Names::of(servers, MOST_LOOKUPS), move || asked.load(Ordering::SeqCst))
    }

    const ONE: Party = Party(1);

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_kept_for_its_time_to_live_within_a_bound() {
        for (name, kept) in [
            ("api", TTL),
            ("api.1", Duration::from_secs(1)),
            ("api.86400", MAX_TTL),
            ("none", TTL),
            ("none.86400", MAX_NEGATIVE_TTL),
        ] {
            let (names, asked) = names();
            let first = names.resolve(name, ONE).await;
            assert_eq!(first.is_ok(), name.starts_with("api"), "{name}");
            advance(kept.saturating_sub(Duration::from_millis(1))).await;
            let second = names.resolve(name, ONE).await;
            assert_eq!(format!("{first:?}"), format!("{second:?}"), "{name}");
            assert_eq!(asked(), 1, "{name}");
            advance(Duration::from_millis(1)).await;
            let third = names.resolve(name, ONE).await;
            assert_eq!(asked(), 2, "{name}");
            assert_eq!(third.is_ok(), first.is_ok());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_failure_is_kept_and_no_answer_whose_time_to_live_is_zero() {
        let (names, asked) = names();
        for name in ["api.0", "none.0", "broken", "many"] {
            let before = asked();
            for _ in 0..3 {
                let answer = names.resolve(name, ONE).await;
                assert_eq!(answer.is_ok(), name == "api.0", "{name}");
            }
            assert_eq!(asked() - before, 3, "{name}");
        }
        let many = names.resolve("many", ONE).await;
        assert!(matches!(many, Err(Error::Lookup(LookupError::TooManyAddresses))), "{many:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn callers_of_one_name_share_one_lookup() {
        let (names, asked) = names();
        let mut callers = JoinSet::new();
        for party in 0..100 {
            let names = names.clone();
            callers.spawn(async move { names.resolve("api.0", Party(party)).await.unwrap() });
        }
        let answers = callers.join_all().await;
        assert_eq!(asked(), 1);
        assert!(answers.iter().all(|addresses| *addresses == answers[0]));
        assert!(names.in_flight().by_name.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lookup_goes_on_while_anybody_waits_and_ends_when_nobody_does() {
        let (names, asked) = names();
        let lookups: Vec<_> = (0..3).map(|_| Box::pin(names.resolve("slow", ONE))).collect();
        let mut lookups = lookups.into_iter();
        let (mut first, mut second, mut third) =
            (lookups.next().unwrap(), lookups.next().unwrap(), lookups.next().unwrap());
        for lookup in [&mut first, &mut second, &mut third] {
            assert!(lookup.as_mut().now_or_never().is_none());
        }
        drop(first);
        drop(third);
        assert_eq!((asked(), names.in_flight().by_name.len()), (1, 1));
        let started = Instant::now();
        let end = second.await;
        assert!(matches!(end, Err(Error::Lookup(LookupError::TimedOut))), "{end:?}");
        assert_eq!(started.elapsed(), LOOKUP_TIMEOUT);
        assert!(names.in_flight().by_name.is_empty());
        let mut left = Box::pin(names.resolve("slow", ONE));
        assert!(left.as_mut().now_or_never().is_none());
        drop(left);
        assert!(names.in_flight().by_name.is_empty());
        assert!(names.0.slots.take(ONE).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn slow_names_of_one_party_leave_lookups_to_the_others() {
        let (names, _) = names();
        let mut waiting = JoinSet::new();
        let slow = |number: usize, party: u128| {
            let names = names.clone();
            async move { names.resolve(&format!("slow{party}-{number}"), Party(party)).await }
        };
        names.resolve("known", ONE).await.unwrap();
        for number in 0..LOOKUPS_PER_PARTY {
            waiting.spawn(slow(number, 1));
        }
        tokio::task::yield_now().await;
        let refused = names.resolve("api", ONE).await;
        assert!(matches!(refused, Err(Error::TooManyLookups)), "{refused:?}");
        names.resolve("known", ONE).await.expect("what is kept needs no lookup");
        names.resolve("api", Party(2)).await.expect("another party looks names up");
        names.resolve("api", ONE).await.expect("what another party has looked up is kept");
        for party in 2..OWNERS_WITH_BASE as u128 {
            for number in 0..LOOKUPS_PER_PARTY {
                let mut lookup = Box::pin(slow(number, party));
                if timeout(Duration::ZERO, &mut lookup).await.is_err() {
                    waiting.spawn(lookup);
                }
            }
        }
        names.resolve("another", Party(u128::MAX)).await.expect("many parties leave lookups to one more");
        let ends = waiting.join_all().await;
        assert!(ends.iter().all(|end| matches!(end, Err(Error::Lookup(LookupError::TimedOut)))));
        names.resolve("a third", ONE).await.expect("the slow lookups have ended");
    }

    #[tokio::test(start_paused = true)]
    async fn where_lookups_are_few_a_party_has_half_of_them() {
        let names = Names::of(Servers::default(), 16);
        let mut waiting = Vec::new();
        for number in 0..8 {
            let names = names.clone();
            let mut lookup = Box::pin(async move { names.resolve(&format!("slow{number}"), ONE).await });
            assert!(lookup.as_mut().now_or_never().is_none());
            waiting.push(lookup);
        }
        let refused = names.resolve("api", ONE).await;
        assert!(matches!(refused, Err(Error::TooManyLookups)), "{refused:?}");
        names.resolve("api", Party(2)).await.expect("another party looks names up");
    }

    #[tokio::test(start_paused = true)]
    async fn names_of_one_party_do_not_displace_the_one_that_another_uses() {
        let (names, asked) = names();
        let greedy = Party(2);
        names.resolve("kept", ONE).await.unwrap();
        names.resolve("another", greedy).await.unwrap();
        // The greedy party looks this one up first.
        names.resolve("shared", greedy).await.unwrap();
        names.resolve("shared", ONE).await.unwrap();
        for number in 0..MAX_KEPT {
            for _ in 0..3 {
                names.resolve(&format!("greedy{number}"), greedy).await.unwrap();
            }
        }
        let before = asked();
        assert_eq!(before, 3 + MAX_KEPT);
        for name in ["kept", "shared"] {
            names.resolve(name, ONE).await.unwrap();
        }
        assert_eq!(asked(), before);
        names.resolve("another", greedy).await.unwrap();
        assert_eq!(asked(), before + 1, "its own was forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lookup_counts_against_the_party_of_the_call() {
        let (names, _) = names();
        let ask = |name: &str| names.clone().call(name.parse().unwrap());
        let mut waiting = JoinSet::new();
        for number in 0..LOOKUPS_PER_PARTY {
            let lookup = on_behalf_of(Party(7), async { Some(ask(&format!("slow{number}"))) }).await;
            // Another task goes on with it.
            waiting.spawn(lookup.unwrap());
        }
        tokio::task::yield_now().await;
        let refused = on_behalf_of(Party(7), async { ask("other").await }).await;
        assert!(matches!(refused, Err(Error::TooManyLookups)), "{refused:?}");
        assert!(on_behalf_of(Party(8), async { ask("other").await }).await.is_ok());
    }
}
