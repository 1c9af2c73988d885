//! The ledger, as its callers see it: commands and states by partition, wherever the partition is led. Invariant: a
//! command is decided in the partition of its merchant, by its leader alone.
//!
//! A command whose leader is not known yet, or has changed, waits and is sent again, until [`ROUTE_TIMEOUT`]. It is sent
//! again only if it is certain that it was not decided, or if a second decision has no second effect.

mod peer;
mod recent_calls;
mod remote;
mod serve;
mod settled;
#[cfg(test)]
mod tests;
mod unconfirmed;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use farthing_core::command::wire::WireCommand;
use farthing_core::command::{
    Command, OpenAgain, OpenRequest, Opened, Refusal, RequestRefusal, SettleRequest,
};
use farthing_core::event::FailureReason;
use farthing_core::idempotency::{Claim, ClaimId};
use farthing_core::ids::MerchantId;
use farthing_core::partition::{Partition, Partitions};
use farthing_core::state::{State, StateKey};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::peer::{Failed, NoReply, Peers, Reply, Request};
pub use self::recent_calls::OPENED_WITHIN;
use self::recent_calls::RecentCalls;
pub(crate) use self::settled::CallLog;
#[cfg(test)]
pub(crate) use self::settled::Sought;
use self::unconfirmed::Unconfirmed;
use crate::appender::{
    Appender, AppenderConfig, ClaimEnd, ClaimRecord, Early, Error, GroupCommit, IdempotentOutcome, Lease,
    QueueLimits,
};
use crate::clock::Clock;
use crate::connect::Role;
use crate::generations;
use crate::leases::{self, Elsewhere, Leads, LeaseConfig, Led, LedPartitions, Member, Route, Routes};
use crate::metrics::{Backlog, LedgerMetrics};
use crate::nats::NatsConfig;
use crate::reads::{self, ReadPool};
use crate::wake_up;

/// How long a command waits for a leader.
const ROUTE_TIMEOUT: Duration = Duration::from_secs(8);

/// The pause before a command is sent to a leader again that has just refused it.
const ROUTE_PAUSE: Duration = Duration::from_millis(20);

/// How long a gateway that cannot read the leases opens calls at other gateways. It cannot send heartbeats then, either: the
/// others will take it for dead, and end its calls without a charge.
const OPENS_UNREAD: Duration = Duration::from_secs(4);

/// The pause before a leader is asked again whether a call is open.
const ASK_PAUSE: Duration = Duration::from_millis(50);

/// The settings of a ledger.
#[derive(Debug, Clone)]
pub struct LedgerConfig {
    /// The database of the log.
    pub database_url: String,
    /// The role to write under.
    pub role: Role,
    /// The name of this process: in the leases, and as the writer in the record batches.
    pub writer: String,
    /// The NATS server for wake-up notifications; without one readers poll.
    pub nats: Option<NatsConfig>,
    /// The bounds of each partition's queue of commands.
    pub queue: QueueLimits,
    /// Connections for reads.
    pub reads: ReadPool,
    /// The clock that decisions use.
    pub clock: Arc<Clock>,
    /// The way to the other gateways.
    pub peers: Arc<dyn Peers>,
    /// The address for the commands of other gateways; `None` for a process that takes none.
    pub address: Option<String>,
    /// Whether this process delivers webhooks.
    pub delivers: bool,
    /// Which partitions this process leads.
    pub leads: Leads,
    /// How long a lease lasts without a renewal.
    pub lease: Duration,
    /// The metrics.
    pub metrics: Arc<LedgerMetrics>,
}

/// When a ledger stops.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    /// Hand over to the other gateways, if there are any.
    pub leave: CancellationToken,
    /// End; all queued commands are answered first.
    pub end: CancellationToken,
}

/// A handle to the ledger.
#[derive(Debug, Clone)]
pub struct Ledger {
    partitions: Partitions,
    appenders: Arc<[Appender]>,
    routes: watch::Receiver<Arc<Routes>>,
    log: Arc<dyn CallLog>,
    clock: Arc<Clock>,
    peers: Arc<dyn Peers>,
    recent_calls: Arc<RecentCalls>,
    unconfirmed: Arc<Unconfirmed>,
    due: Arc<Notify>,
}

/// The leader of a partition.
#[derive(Debug)]
enum Leader<'a> {
    Here(&'a Appender),
    There(Elsewhere),
}

impl Leader<'_> {
    /// Its address, if it is another gateway.
    fn address(&self) -> Option<&str> {
        match self {
            Self::Here(_) => None,
            Self::There(leader) => Some(&leader.address),
        }
    }
}

impl Ledger {
    /// Starts the ledger of `partitions`.
    pub fn start(config: LedgerConfig, partitions: Partitions, stop: &Stop, tasks: &TaskTracker) -> Self {
        let LedgerConfig { database_url, role, writer, nats, queue, reads, clock, peers, metrics, .. } =
            config;
        let (mut appenders, mut led) = (Vec::new(), Vec::new());
        let group = GroupCommit::start(database_url.clone(), role, Arc::clone(&metrics), tasks);
        for partition in partitions.all() {
            let appender = AppenderConfig {
                database_url: database_url.clone(),
                partition,
                role,
                gateway: writer.clone(),
                writer: writer.clone(),
                queue,
                group: Some(group.clone()),
                metrics: Arc::clone(&metrics),
            };
            let (lease, leased) = watch::channel(Lease::None);
            let appender = Appender::start(appender, leased, &stop.end, tasks);
            led.push(Led { lease, leads: appender.leads(), failures: appender.failures() });
            appenders.push(appender);
        }
        if let Some(nats) = nats {
            let heads = partitions.all().zip(appenders.iter().map(Appender::head)).collect();
            tasks.spawn(wake_up::publish(nats, heads, stop.end.clone()));
        }
        if config.leads == Leads::Share {
            tasks.spawn(generations::build(database_url.clone(), stop.end.clone()));
        }
        let leases = LeaseConfig {
            database_url,
            role,
            reads: reads.clone(),
            member: Member {
                gateway: writer,
                address: config.address,
                delivers: config.delivers,
                leads: config.leads,
                duration: config.lease,
                metrics,
            },
        };
        let routes = leases::start(leases, led, stop.leave.clone(), stop.end.clone(), tasks);
        Self::over(partitions, appenders, routes, Arc::new(reads), clock, peers)
    }

    /// The ledger over the appenders of `partitions`, in their order.
    pub(crate) fn over(
        partitions: Partitions,
        appenders: Vec<Appender>,
        routes: watch::Receiver<Arc<Routes>>,
        log: Arc<dyn CallLog>,
        clock: Arc<Clock>,
        peers: Arc<dyn Peers>,
    ) -> Self {
        Self {
            partitions,
            appenders: appenders.into(),
            routes,
            log,
            clock,
            peers,
            recent_calls: Arc::default(),
            unconfirmed: Arc::default(),
            due: Arc::default(),
        }
    }

    /// Where the partitions are led.
    #[cfg(test)]
    pub(crate) fn routes(&self) -> Arc<Routes> {
        Arc::clone(&self.routes.borrow())
    }

    /// The same ledger, which learns from `routes` where the partitions are led.
    #[cfg(test)]
    pub(crate) fn with_routes(&self, routes: watch::Receiver<Arc<Routes>>) -> Self {
        Self { routes, ..self.clone() }
    }

    /// The partitions of the log.
    pub const fn partitions(&self) -> Partitions {
        self.partitions
    }

    /// The partitions that this gateway leads.
    pub fn led(&self) -> LedPartitions {
        LedPartitions(self.routes.clone())
    }

    /// What each partition's leader shows in the metrics, if it is this process.
    pub fn backlogs(&self) -> Arc<[Backlog]> {
        let backlogs = self.partitions.all().zip(self.appenders.iter());
        let backlog = |(partition, appender): (Partition, &Appender)| Backlog {
            partition,
            commands: appender.unanswered(),
            checkpoint_lag: appender.checkpoint_lag(),
        };
        backlogs.map(backlog).collect()
    }

    /// Notified when this gateway has decided a command of another gateway that may have made something due.
    pub fn made_due(&self) -> Arc<Notify> {
        Arc::clone(&self.due)
    }

    /// The partition of a merchant.
    pub fn partition_of(&self, merchant_id: MerchantId) -> Partition {
        self.partitions.of(merchant_id)
    }

    /// The gateway that leads `partition`, if it is not this one. Waits until a leader is known.
    pub async fn leads_elsewhere(&self, partition: Partition) -> Result<Option<Elsewhere>, Error> {
        match self.leader(partition, Instant::now() + ROUTE_TIMEOUT).await? {
            Leader::Here(_) => Ok(None),
            Leader::There(leader) => Ok(Some(leader)),
        }
    }

    /// Resolves when `partition` is known to have another leader than `asked`, or the same in another term. What was asked
    /// before may be in the log; if not, it never will be: the epoch and the term fence it out.
    pub async fn moved_from(&self, partition: Partition, asked: &Elsewhere) {
        let mut routes = self.routes.clone();
        let has_moved = |routes: &Arc<Routes>| match routes.of(partition) {
            Route::Here(_) => true,
            Route::There(leader) => leader.term != asked.term,
            Route::Unknown => false,
        };
        if routes.wait_for(has_moved).await.is_err() {
            // The leases have ended.
            std::future::pending::<()>().await;
        }
    }

    /// Decides `command` in `partition` and appends its facts. Returns when they are durable.
    ///
    /// Dropping the future does not withdraw the command.
    pub async fn submit<C>(&self, partition: Partition, command: C) -> Result<C::Outcome, Error>
    where
        C: WireCommand + Clone,
    {
        self.at_leader(partition, |leader| async {
            match leader {
                Leader::Here(appender) => appender.submit(command.merchant_id(), command.clone()).await,
                Leader::There(leader) => self.submit_there(leader, partition, command.clone()).await,
            }
        })
        .await
    }

    /// Ends a call whose gateway does not end it any more. A repetition of its opening that arrives later is refused: it would
    /// open the call a second time.
    pub async fn end_abandoned(&self, partition: Partition, command: SettleRequest) -> Result<(), Error> {
        self.recent_calls.end(command.request_id);
        self.submit(partition, command).await.map(|_| ())
    }

    /// Opens a call: returns as soon as this is decided, also at another gateway. If the answer of that gateway is lost,
    /// it is asked again: a call is opened once. Then the call `may_be_open`, also if it is refused in the end.
    pub async fn open(
        &self,
        partition: Partition,
        command: OpenRequest,
        may_be_open: &AtomicBool,
    ) -> Result<Early<Opened>, Error> {
        let owner = Some(command.merchant_id);
        // Every attempt may be followed by another one. Those of this gateway share the command.
        let command = Arc::new(command);
        let opened = self
            .at_leader(partition, |leader| async {
                let again = may_be_open.load(Ordering::Relaxed);
                match leader {
                    // A call that is open already has no commit to wait for.
                    Leader::Here(appender) if again => {
                        let command = OpenAgain(OpenRequest::clone(&command));
                        appender.submit(owner, command).await.map(Early::known)
                    }
                    Leader::Here(appender) => appender.submit_early(owner, Arc::clone(&command)).await,
                    Leader::There(leader) if again => {
                        let command = OpenRequest::clone(&command);
                        self.open_again_there(leader, partition, command).await.map(Early::known)
                    }
                    Leader::There(_) if self.is_cut_off() => Err(away()),
                    Leader::There(leader) => {
                        let command = OpenRequest::clone(&command);
                        let opened = self.open_there(leader, partition, command.clone(), may_be_open).await?;
                        Ok(self.decided_there(partition, command, opened))
                    }
                }
            })
            .await;
        known_unless(may_be_open, opened)
    }

    /// As [`Self::open`], under `claim`: only if its key is new. A call that is refused leaves the key unused.
    pub async fn open_under_claim(
        &self,
        partition: Partition,
        command: OpenRequest,
        claim: Claim,
        may_be_open: &AtomicBool,
    ) -> Result<IdempotentOutcome<Opened>, Error> {
        let command = Arc::new(command);
        let opened = self
            .at_leader(partition, |leader| async {
                match leader {
                    Leader::Here(appender) => {
                        appender.open_under_claim(Arc::clone(&command), claim.clone()).await
                    }
                    Leader::There(_) if self.is_cut_off() => Err(away()),
                    Leader::There(leader) => {
                        let (command, claim) = (OpenRequest::clone(&command), claim.clone());
                        self.open_under_claim_there(leader, partition, command, claim, may_be_open).await
                    }
                }
            })
            .await;
        known_unless(may_be_open, opened)
    }

    /// Ends a call that was sent to its provider; it is never refused for overload. The number of such commands is
    /// bounded by the number of calls in flight. With `closing`, the idempotency key of the call ends with it.
    ///
    /// It may be submitted again after any error: a call ends once, and succeeds if it ended by this very settlement.
    /// `may_have_ended` remembers, from one submission to the next, that an answer was lost.
    ///
    /// Returns why a call failed that was to be metered. A leader that is another gateway does not say so in this release.
    pub async fn settle(
        &self,
        partition: Partition,
        command: SettleRequest,
        closing: Option<(ClaimId, ClaimEnd)>,
        may_have_ended: &AtomicBool,
    ) -> Result<Option<FailureReason>, Error> {
        let (request_id, command) = (command.request_id, Arc::new(command));
        // Whoever waits for the opening may confirm it between the refusal of the settlement and the look at it here.
        let was_unconfirmed = self.unconfirmed.contains(request_id);
        let ended = self.settle_once(partition, &command, closing.as_ref(), may_have_ended).await;
        match ended {
            Err(Error::Refused(refusal))
                if was_unconfirmed && self.is_opened_again(partition, request_id, &refusal).await? =>
            {
                self.settle_once(partition, &command, closing.as_ref(), may_have_ended).await
            }
            ended => ended,
        }
    }

    /// As [`Self::settle`], for a call that its leader knows.
    async fn settle_once(
        &self,
        partition: Partition,
        command: &Arc<SettleRequest>,
        closing: Option<&(ClaimId, ClaimEnd)>,
        may_have_ended: &AtomicBool,
    ) -> Result<Option<FailureReason>, Error> {
        let request_id = command.request_id;
        let ended = self
            .at_leader(partition, |leader| async {
                match (leader, closing.cloned()) {
                    (Leader::Here(appender), None) => appender.settle(Arc::clone(command)).await,
                    (Leader::Here(appender), Some((claim_id, end))) => {
                        appender.submit_closing(Arc::clone(command), claim_id, request_id, end).await
                    }
                    (Leader::There(leader), closing) => {
                        let command = SettleRequest::clone(command);
                        self.settle_there(leader, partition, command, closing, may_have_ended).await
                    }
                }
            })
            .await;
        if let Err(Error::Unknown(_)) = &ended {
            may_have_ended.store(true, Ordering::Relaxed);
        }
        if let Err(Error::Refused(Refusal::Request(RequestRefusal::NotOpen))) = &ended
            && may_have_ended.load(Ordering::Relaxed)
            && let Some(end) = settled::end_by(&*self.log, partition, command).await?
        {
            return Ok(settled::outcome(&command.settled, &end));
        }
        ended
    }

    /// As [`Self::submit`], for this merchant and under `claim`, if this gateway leads `partition`; otherwise [`Error::Moved`]. The command is
    /// decided only when the claim is new, and the record that `record` makes of the outcome is written in the
    /// transaction of its facts. `record` must be pure: it may be called more than once.
    pub async fn submit_idempotent_here<C, K>(
        &self,
        partition: Partition,
        merchant_id: MerchantId,
        command: C,
        claim: Claim,
        record: K,
    ) -> Result<IdempotentOutcome<C::Outcome>, Error>
    where
        C: Command,
        K: Fn(&Result<C::Outcome, Refusal>) -> ClaimRecord + Send + 'static,
    {
        self.appender(partition).submit_idempotent(Some(merchant_id), command, claim, record).await
    }

    /// The state of `key` in `partition`, for this merchant; `None` if it is read for none.
    pub async fn state(
        &self,
        partition: Partition,
        owner: Option<MerchantId>,
        key: StateKey,
    ) -> Result<Option<State>, reads::Error> {
        let [state] = self.states(partition, owner, [key]).await?;
        Ok(state)
    }

    /// The states of `keys` in `partition`, all at one position of the log.
    pub async fn states<const N: usize>(
        &self,
        partition: Partition,
        owner: Option<MerchantId>,
        keys: [StateKey; N],
    ) -> Result<[Option<State>; N], reads::Error> {
        let mut states = self.states_of(partition, owner, &keys).await?.into_iter();
        Ok(std::array::from_fn(|_| states.next().flatten()))
    }

    /// As [`Self::states`], for any number of keys.
    pub async fn states_of(
        &self,
        partition: Partition,
        owner: Option<MerchantId>,
        keys: &[StateKey],
    ) -> Result<Vec<Option<State>>, reads::Error> {
        let found = self
            .at_leader(partition, |leader| async {
                match leader {
                    Leader::Here(appender) => appender.states(owner, keys.to_vec()).await,
                    Leader::There(leader) => self.states_there(leader, partition, owner, keys).await,
                }
            })
            .await;
        found.map_err(reads::Error::from)
    }

    /// Runs `attempt` at the leader of `partition`, and again at the next one if it has moved.
    async fn at_leader<'a, T, F>(
        &'a self,
        partition: Partition,
        attempt: impl Fn(Leader<'a>) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let deadline = Instant::now() + ROUTE_TIMEOUT;
        loop {
            let leader = self.leader(partition, deadline).await?;
            let address = leader.address().map(ToOwned::to_owned);
            match attempt(leader).await {
                Err(Error::Moved) if !self.routes.borrow().is_current() => return Err(away()),
                Err(Error::Moved) if Instant::now() < deadline => tokio::time::sleep(ROUTE_PAUSE).await,
                Err(Error::Moved) => return Err(unled_at(address)),
                answer => return answer,
            }
        }
    }

    /// Whether this gateway has been cut off from Postgres for too long to open calls elsewhere.
    fn is_cut_off(&self) -> bool {
        self.routes.borrow().unread_for() >= OPENS_UNREAD
    }

    /// The leader of `partition`. Waits for one until `deadline`.
    async fn leader(&self, partition: Partition, deadline: Instant) -> Result<Leader<'_>, Error> {
        let known = self.known_leader(partition, &self.routes.borrow());
        if let Some(known) = known {
            return known;
        }
        let mut routes = self.routes.clone();
        loop {
            let known = self.known_leader(partition, &routes.borrow_and_update());
            if let Some(known) = known {
                return known;
            }
            match tokio::time::timeout_at(deadline, routes.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(Error::Unavailable("the ledger has stopped".to_owned())),
                Err(_) => return Err(no_leader()),
            }
        }
    }

    /// The leader of `partition` by `routes`; an error if none can be known, and `None` if one is waited for.
    fn known_leader(&self, partition: Partition, routes: &Routes) -> Option<Result<Leader<'_>, Error>> {
        match routes.of(partition) {
            Route::Here(_) => Some(Ok(Leader::Here(self.appender(partition)))),
            Route::There(leader) => Some(Ok(Leader::There(leader.clone()))),
            Route::Unknown if !routes.is_current() => Some(Err(away())),
            Route::Unknown => None,
        }
    }

    pub(crate) fn appender(&self, partition: Partition) -> &Appender {
        &self.appenders[partition.index()]
    }
}

fn no_leader() -> Error {
    Error::Unavailable("no gateway leads the partition".to_owned())
}

/// The gateway at `address` holds the lease and is not reached, or it does not lead.
fn unled_at(address: Option<String>) -> Error {
    address.map_or_else(no_leader, |address| {
        let why = format!("the gateway at {address} cannot be reached, or does not lead the partition");
        Error::Unavailable(why)
    })
}

fn away() -> Error {
    Error::Unavailable("Postgres is away".to_owned())
}

/// The answer to an opening. An error means nothing if an earlier attempt may have opened the call.
fn known_unless<T>(may_be_open: &AtomicBool, opened: Result<T, Error>) -> Result<T, Error> {
    match opened {
        Err(error @ (Error::Unavailable(_) | Error::Overloaded | Error::Moved))
            if may_be_open.load(Ordering::Relaxed) =>
        {
            Err(Error::Unknown(error.to_string()))
        }
        opened => opened,
    }
}
