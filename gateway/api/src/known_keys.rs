//! Secret keys and spend keys that exist, with their partitions and merchants, so that no unknown key reaches the
//! queue of a partition.
//! Invariant: a key is never accepted because it is here; the ledger decides. So a deleted key stops at once on every
//! gateway, and a new one works at once: the absence of a key is not kept. The partition and the merchant of a key never
//! change.
//!
//! Strangers cannot keep the callers of existing keys waiting: an address has few look-ups at once, and the others wait
//! for it before they wait for the gateway's. Nor can they take all calls in flight: a part of them may wait for a look-up.

use std::time::Duration;

use farthing_core::command::Caller;
use farthing_core::ids::MerchantId;
use farthing_core::partition::Partition;
use farthing_core::state::{State, StateKey};
use farthing_log::directory;
use farthing_log::ledger::Ledger;
use farthing_log::reads::ReadPool;
use quick_cache::sync::Cache;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::caller_address::{CallerAddress, PerAddress};
use crate::db::within;
use crate::error::{ApiError, AuthError, GatewayLimit};

/// The most keys that are remembered; of the others, each call costs a look-up.
const MAX_KEYS: usize = 65_536;

/// The longest wait for a look-up.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Where a key belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) partition: Partition,
    pub(crate) merchant_id: MerchantId,
}

/// The keys that were found of late.
pub(crate) struct KnownKeys {
    found: Cache<StateKey, Owner>,
    lookups: Semaphore,
    per_address: PerAddress,
    waiting: Semaphore,
    waiting_per_address: PerAddress,
}

/// Permission to look up a key.
type Turn<'a> = (OwnedSemaphorePermit, SemaphorePermit<'a>);

impl KnownKeys {
    /// No keys. Of so many connections for `reads`, half look up keys that are not known to exist, so that strangers leave
    /// the other half to everyone else; and half of those for callers of one address. Of so many `calls` in flight, three
    /// quarters may wait for that, and half at one address.
    pub(crate) fn new(reads: usize, calls: usize) -> Self {
        let lookups = (reads / 2).max(1);
        let calls = calls.min(Semaphore::MAX_PERMITS);
        Self {
            found: Cache::new(MAX_KEYS),
            lookups: Semaphore::new(lookups),
            per_address: PerAddress::new((lookups / 2).max(1)),
            waiting: Semaphore::new((calls - calls / 4).max(1)),
            waiting_per_address: PerAddress::new((calls / 2).max(1)),
        }
    }

    /// The owner of the key of a caller at `address`. Refuses one whose key does not exist.
    pub(crate) async fn owner_of(
        &self,
        caller: &Caller,
        address: CallerAddress,
        ledger: &Ledger,
        reads: &ReadPool,
    ) -> Result<Owner, ApiError> {
        let (key, unknown) = (state_key(caller), unknown(caller));
        if let Some(owner) = self.found.get(&key) {
            return Ok(owner);
        }
        let turn = self.turn(address).await?;
        // Another call may have looked the key up meanwhile.
        if let Some(owner) = self.found.get(&key) {
            return Ok(owner);
        }
        let found = self.look_up(key, None, Some(turn), ledger, reads).await?;
        found.map(|(owner, _)| owner).ok_or(ApiError::Auth(unknown))
    }

    /// The authoritative state of `key`, which a caller at `address` has, with its owner; `None` if there is no such key.
    pub(crate) async fn state(
        &self,
        key: StateKey,
        address: CallerAddress,
        ledger: &Ledger,
        reads: &ReadPool,
    ) -> Result<Option<(Owner, State)>, ApiError> {
        let turn = if self.found.get(&key).is_none() { Some(self.turn(address).await?) } else { None };
        // Another call may have looked the key up meanwhile.
        let known = self.found.get(&key);
        let turn = turn.filter(|_| known.is_none());
        self.look_up(key, known, turn, ledger, reads).await
    }

    /// Looks `key` up, in its partition if its owner is known. The turn ends when the directory has answered: the leader of a
    /// partition may answer late, and holds up only those who have a key there.
    async fn look_up(
        &self,
        key: StateKey,
        known: Option<Owner>,
        turn: Option<Turn<'_>>,
        ledger: &Ledger,
        reads: &ReadPool,
    ) -> Result<Option<(Owner, State)>, ApiError> {
        let partition = if let Some(owner) = known {
            Some(owner.partition)
        } else {
            let connection = reads.connection().await?;
            within(directory::find(&connection, &key)).await?
        };
        drop(turn);
        let Some(partition) = partition else { return Ok(None) };
        let found = match ledger.state(partition, known.map(|owner| owner.merchant_id), key.clone()).await? {
            None => None,
            Some(state) => {
                let owner = match known {
                    Some(owner) => Some(owner),
                    None => owner(partition, &state, ledger).await?,
                };
                owner.map(|owner| (owner, state))
            }
        };
        match &found {
            Some((owner, _)) => self.found.insert(key, *owner),
            None => {
                self.found.remove(&key);
            }
        }
        Ok(found)
    }

    /// Waits for permission to look up a key that is not known to exist. Refuses at once if too many wait.
    async fn turn(&self, address: CallerAddress) -> Result<Turn<'_>, ApiError> {
        let overloaded = || ApiError::overloaded(GatewayLimit::KeyLookups);
        let _of_address =
            self.waiting_per_address.of(address).try_acquire_owned().map_err(|_| overloaded())?;
        let _of_all = self.waiting.try_acquire().map_err(|_| overloaded())?;
        let turn = async {
            let of_address = self.per_address.of(address).acquire_owned().await?;
            Ok::<_, AcquireError>((of_address, self.lookups.acquire().await?))
        };
        match tokio::time::timeout(LOOKUP_TIMEOUT, turn).await {
            Ok(Ok(turn)) => Ok(turn),
            Ok(Err(_)) | Err(_) => Err(overloaded()),
        }
    }

    /// Forgets a caller whose key the ledger does not know any more.
    pub(crate) fn forget(&self, caller: &Caller) {
        self.found.remove(&state_key(caller));
    }
}

/// The owner of the key that this state is of; `None` if the key was deleted meanwhile.
async fn owner(partition: Partition, state: &State, ledger: &Ledger) -> Result<Option<Owner>, ApiError> {
    let merchant_id = match state {
        State::SecretKey(key) => Some(key.merchant_id),
        State::SpendKeyHash(id) => match ledger.state(partition, None, StateKey::SpendKey(*id)).await? {
            Some(State::SpendKey(key)) => Some(key.merchant_id),
            Some(_) | None => None,
        },
        other => unreachable!("{other:?} is stored under the hash of a key"),
    };
    Ok(merchant_id.map(|merchant_id| Owner { partition, merchant_id }))
}

/// The state under the hash of the caller's key.
fn state_key(caller: &Caller) -> StateKey {
    match caller {
        Caller::SecretKey(hash) => StateKey::SecretKey(hash.clone()),
        Caller::SpendKey(hash) => StateKey::SpendKeyHash(hash.clone()),
    }
}

/// The error for a caller whose key does not exist.
const fn unknown(caller: &Caller) -> AuthError {
    match caller {
        Caller::SecretKey(_) => AuthError::SecretKeyInvalid,
        Caller::SpendKey(_) => AuthError::SpendKeyInvalid,
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::Arc;

    use farthing_core::partition::Partitions;
    use farthing_core::secret::ServerKey;
    use farthing_log::appender::QueueLimits;
    use farthing_log::connect::Role;
    use farthing_log::leases::Leads;
    use farthing_log::ledger::{LedgerConfig, Stop};
    use farthing_log::reads::pool;
    use futures_util::FutureExt as _;
    use tokio_util::sync::CancellationToken;
    use tokio_util::task::TaskTracker;

    use ulid::Ulid;

    use super::*;
    use crate::peers::HttpPeers;

    const READS: usize = 8;
    const LOOKUPS: usize = 4;
    const LOOKUPS_PER_ADDRESS: usize = 2;
    const CALLS: usize = 256;

    const OWNER: Owner =
        Owner { partition: Partition::new(5), merchant_id: MerchantId::new(Ulid::from_parts(1, 1)) };

    /// A ledger that has ended, and reads of a database that does not exist.
    async fn unreachable_ledger() -> (Ledger, ReadPool) {
        let tasks = TaskTracker::new();
        let url = "postgres://nobody@127.0.0.1:1/none";
        let reads = ReadPool::new(pool(url, 1).unwrap());
        let config = LedgerConfig {
            database_url: url.to_owned(),
            role: Role::Gateway,
            writer: String::new(),
            nats: None,
            queue: QueueLimits::default(),
            reads: reads.clone(),
            clock: Arc::default(),
            peers: Arc::new(HttpPeers::new(&ServerKey::random(), CancellationToken::new(), &tasks)),
            address: None,
            delivers: false,
            leads: Leads::Share,
            lease: Duration::from_secs(3),
            metrics: Arc::default(),
        };
        let partitions = Partitions::new(8).unwrap();
        let stop = Stop::default();
        stop.end.cancel();
        let ledger = Ledger::start(config, partitions, &stop, &tasks);
        tasks.close();
        tasks.wait().await;
        (ledger, reads)
    }

    #[tokio::test(start_paused = true)]
    async fn look_ups_of_unknown_keys_are_bounded_and_a_known_key_needs_none() {
        let (keys, server_key) = (KnownKeys::new(READS, CALLS), ServerKey::random());
        let (ledger, reads) = unreachable_ledger().await;
        let caller = |raw| Caller::SecretKey(server_key.hash(raw));
        keys.found.insert(state_key(&caller("known")), OWNER);
        let mut turns = Vec::new();
        let address =
            |number: usize| CallerAddress::of(IpAddr::from([192, 0, 2, u8::try_from(number).unwrap()]));
        let own = address(0);
        for number in 0..LOOKUPS {
            turns.push(keys.turn(address(number)).await.unwrap());
        }
        let overloaded = keys.owner_of(&caller("unknown"), address(9), &ledger, &reads).await;
        assert_eq!(overloaded.unwrap_err(), ApiError::overloaded(GatewayLimit::KeyLookups));
        assert_eq!(keys.owner_of(&caller("known"), own, &ledger, &reads).await, Ok(OWNER));
        keys.forget(&caller("known"));
        let overloaded = keys.owner_of(&caller("known"), own, &ledger, &reads).await;
        assert_eq!(
            overloaded.unwrap_err(),
            ApiError::overloaded(GatewayLimit::KeyLookups),
            "it is looked up again"
        );
        drop(turns);
        assert!(keys.turn(own).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn look_ups_of_strangers_at_one_address_do_not_keep_another_address_waiting() {
        let keys = KnownKeys::new(READS, CALLS);
        let [stranger, other] = [1, 2].map(|last| CallerAddress::of(IpAddr::from([192, 0, 2, last])));
        let mut turns = Vec::new();
        for _ in 0..LOOKUPS_PER_ADDRESS {
            turns.push(keys.turn(stranger).await.unwrap());
        }
        let mut waiting: Vec<_> = (0..100).map(|_| Box::pin(keys.turn(stranger))).collect();
        for call in &mut waiting {
            assert!(call.now_or_never().is_none(), "an address waits for its own look-ups");
        }
        assert!(keys.turn(other).now_or_never().unwrap().is_ok());
        drop(turns);
        assert!(waiting[0].as_mut().now_or_never().unwrap().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_wait_for_look_ups_leave_a_quarter_of_all_calls_to_others() {
        let keys = KnownKeys::new(READS, CALLS);
        let address = |last: u8| CallerAddress::of(IpAddr::from([192, 0, 2, last]));
        let mut turns = Vec::new();
        for _ in 0..LOOKUPS_PER_ADDRESS {
            turns.push(keys.turn(address(1)).await.unwrap());
            turns.push(keys.turn(address(2)).await.unwrap());
        }
        let waits =
            |last, count| -> Vec<_> { (0..count).map(|_| Box::pin(keys.turn(address(last)))).collect() };
        let refused = ApiError::overloaded(GatewayLimit::KeyLookups);
        let mut first = waits(1, CALLS / 2);
        assert!(first.iter_mut().all(|call| call.now_or_never().is_none()));
        assert_eq!(keys.turn(address(1)).await.unwrap_err(), refused, "half of all calls are of one address");
        let mut second = waits(2, CALLS / 4);
        assert!(second.iter_mut().all(|call| call.now_or_never().is_none()));
        assert_eq!(keys.turn(address(2)).await.unwrap_err(), refused, "three quarters of all");
        assert_eq!(keys.turn(address(3)).await.unwrap_err(), refused);
        drop((first, second));
        let mut again = waits(1, 1);
        assert!(again[0].as_mut().now_or_never().is_none(), "those that wait no longer do not count");
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_wait_for_the_same_key_share_a_look_up() {
        let (keys, server_key) = (KnownKeys::new(READS, CALLS), ServerKey::random());
        let (ledger, reads) = unreachable_ledger().await;
        let (caller, address) =
            (Caller::SecretKey(server_key.hash("key")), CallerAddress::of(IpAddr::from([192, 0, 2, 1])));
        let mut turns = Vec::new();
        for _ in 0..LOOKUPS_PER_ADDRESS {
            turns.push(keys.turn(address).await.unwrap());
        }
        let mut call = Box::pin(keys.owner_of(&caller, address, &ledger, &reads));
        assert!(call.as_mut().now_or_never().is_none());
        keys.found.insert(state_key(&caller), OWNER);
        drop(turns);
        assert_eq!(call.await, Ok(OWNER));
    }
}
