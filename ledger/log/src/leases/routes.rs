//! Where the partitions are led, as this process knows it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use farthing_core::partition::Partition;
use tokio::sync::watch;
use tokio::time::Instant;

/// Where a partition is led.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// By this process, in this term of its lease.
    Here(i64),
    /// By another gateway.
    There(Elsewhere),
    /// Nowhere, as far as this process knows.
    Unknown,
}

impl Route {
    /// The term of the leader's lease.
    pub(crate) const fn term(&self) -> Option<i64> {
        match self {
            Self::Here(term) => Some(*term),
            Self::There(leader) => Some(leader.term),
            Self::Unknown => None,
        }
    }
}

/// Another gateway that leads a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elsewhere {
    /// Its address for commands.
    pub address: String,
    /// The term of its lease: each claim of a partition begins another one. A command is for one term alone, so that one
    /// that arrives late, when the gateway leads again after another one, is refused.
    pub term: i64,
    /// Whether it delivers webhooks.
    pub delivers: bool,
}

/// Where all partitions are led.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Routes {
    /// By the number of the partition.
    pub(super) of: Vec<Route>,
    /// Those whose gateway cannot lead them.
    pub(super) unled: BTreeSet<Partition>,
    /// Whether the leases could be read.
    pub(super) read: Read,
    /// Whether other gateways share the partitions.
    pub(super) others: bool,
}

/// Whether the last round could read the leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Read {
    /// There was none yet.
    NotYet,
    Yes,
    /// None could since then.
    No(Instant),
}

impl Routes {
    /// No leader is known yet.
    pub(super) fn unknown(partitions: usize) -> Self {
        let of = vec![Route::Unknown; partitions];
        Self { of, unled: BTreeSet::new(), read: Read::NotYet, others: false }
    }

    /// A single partition that is led there.
    #[cfg(test)]
    pub(crate) fn of_one(route: Route) -> Self {
        Self { of: vec![route], unled: BTreeSet::new(), read: Read::Yes, others: false }
    }

    /// Where `partition` is led.
    pub fn of(&self, partition: Partition) -> &Route {
        // A number from another gateway may be below zero.
        let index = usize::try_from(partition.number()).ok();
        index.and_then(|index| self.of.get(index)).unwrap_or(&Route::Unknown)
    }

    /// The partitions whose leader `is_wanted`.
    fn those(&self, is_wanted: impl Fn(&Route) -> bool) -> Vec<Partition> {
        let wanted = (0..).zip(&self.of).filter(|(_, route)| is_wanted(route));
        wanted.map(|(number, _)| Partition::new(number)).collect()
    }

    /// The number of partitions that nobody is known to lead: without a lease, or with that of a gateway that cannot.
    fn without_leader(&self) -> usize {
        self.those(|route| *route == Route::Unknown).len() + self.unled.len()
    }

    /// Whether the leases could be read lately, or are about to be for the first time.
    pub fn is_current(&self) -> bool {
        !matches!(self.read, Read::No(_))
    }

    /// How long the leases could not be read.
    pub(crate) fn unread_for(&self) -> Duration {
        match self.read {
            Read::No(since) => since.elapsed(),
            Read::NotYet | Read::Yes => Duration::ZERO,
        }
    }

    /// The same, while the leases cannot be read.
    pub(crate) fn unread(&self) -> Self {
        let since = match self.read {
            Read::No(since) => since,
            Read::NotYet | Read::Yes => Instant::now(),
        };
        Self { read: Read::No(since), ..self.clone() }
    }
}

/// The partitions whose work this gateway does, now and later. What is due in a partition belongs to its leader, so that
/// no other gateway looks for it.
#[derive(Debug, Clone)]
pub struct LedPartitions(pub(crate) watch::Receiver<Arc<Routes>>);

impl LedPartitions {
    /// The partitions that this gateway leads, as far as it knows.
    pub fn now(&self) -> Vec<Partition> {
        self.0.borrow().those(|route| matches!(route, Route::Here(_)))
    }

    /// The partitions that this gateway leads and that others take over if it stops.
    pub fn to_hand_over(&self) -> Vec<Partition> {
        if self.0.borrow().others { self.now() } else { Vec::new() }
    }

    /// Resolves when others lead `partitions`, or when there are no others or nothing is known of them any more.
    pub async fn led_by_others(&mut self, partitions: &[Partition]) {
        let is_there = |routes: &Routes, partition| matches!(routes.of(partition), Route::There(_));
        let all = |routes: &Arc<Routes>| partitions.iter().all(|partition| is_there(routes, *partition));
        // An error means that the leases have ended.
        let _ = self.0.wait_for(|routes| !routes.is_current() || !routes.others || all(routes)).await;
    }

    /// How many partitions this gateway leads, and how many nobody is known to lead; `None` while the leases are not read.
    pub fn counts(&self) -> Option<(usize, usize)> {
        let routes = self.0.borrow();
        let led = routes.those(|route| matches!(route, Route::Here(_))).len();
        (routes.read == Read::Yes).then(|| (led, routes.without_leader()))
    }

    /// Whether commands can find their leaders: the leases could be read lately, and some partition has a leader. A partition
    /// that nobody can lead must not make all gateways unready.
    pub fn check(&self) -> Result<(), String> {
        let routes = self.0.borrow();
        if !routes.is_current() {
            return Err("the leases cannot be read".to_owned());
        }
        if routes.without_leader() == routes.of.len() {
            return Err("no partition has a known leader".to_owned());
        }
        Ok(())
    }

    /// The partitions whose webhooks this gateway delivers: those that it leads, and those whose leader delivers none.
    pub fn to_deliver(&self) -> Vec<Partition> {
        self.0.borrow().those(|route| match route {
            Route::Here(_) => true,
            Route::There(leader) => !leader.delivers,
            Route::Unknown => false,
        })
    }

    /// Resolves when a partition has got another leader since the last call.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            // The leases have ended: nothing changes any more.
            std::future::pending::<()>().await;
        }
    }
}
