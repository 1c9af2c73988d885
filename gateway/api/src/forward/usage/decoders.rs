//! What the decoders of one gateway share: memory and turns, in total and per merchant. Invariant: merchants leave some
//! of either to others.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::available_parallelism;

use farthing_core::ids::{MerchantId, RequestId};
use farthing_shares::{Division, Full, Shares};
use farthing_telemetry::{Counted, Gauge};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::decoder_threads::DecoderThreads;

/// The memory of the decoders of compressed responses, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecoderMemory {
    /// For all merchants together.
    pub gateway: usize,
    /// For the calls of one merchant; at most half of the gateway's, and less while others decode.
    pub merchant: usize,
}

/// The decoders of one gateway.
#[derive(Debug, Clone)]
pub(crate) struct Decoders(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    /// The memory, in bytes.
    memory: Mutex<Shares<MerchantId>>,
    /// The turns of the gateway for short answers, on the threads that serve calls: a quarter of the cores decode at once,
    /// half of those that a process uses.
    short: Semaphore,
    /// As many turns for long answers, and as many threads.
    long: Semaphore,
    threads: DecoderThreads,
    /// The responses that wait for a turn.
    waiting: Gauge,
    shares: Mutex<HashMap<MerchantId, Weak<Share>>>,
}

impl Decoders {
    pub(crate) fn start(limits: DecoderMemory) -> io::Result<Self> {
        let turns = (available_parallelism().map_or(1, usize::from) / 4).max(1);
        Ok(Self(Arc::new(Pool {
            memory: Mutex::new(Shares::new(Division::of(
                limits.gateway,
                limits.merchant.min(limits.gateway / 2),
            ))),
            short: Semaphore::new(turns),
            long: Semaphore::new(turns),
            threads: DecoderThreads::start(turns)?,
            waiting: Gauge::default(),
            shares: Mutex::default(),
        })))
    }

    /// The share of this merchant.
    pub(crate) fn share(&self, merchant_id: MerchantId) -> Arc<Share> {
        let mut shares = self.0.shares();
        if let Some(share) = shares.get(&merchant_id).and_then(Weak::upgrade) {
            return share;
        }
        let pool = Arc::clone(&self.0);
        let share = Arc::new(Share { pool, merchant_id, turn: Semaphore::new(1) });
        shares.insert(merchant_id, Arc::downgrade(&share));
        share
    }
}

impl Decoders {
    /// The number of responses that wait for a turn.
    pub(crate) fn waiting(&self) -> Option<f64> {
        u32::try_from(self.0.waiting.get()).ok().map(f64::from)
    }

    /// The memory taken, in bytes.
    pub(crate) fn memory(&self) -> Option<f64> {
        u32::try_from(self.0.memory().taken()).ok().map(f64::from)
    }
}

#[cfg(test)]
impl Decoders {
    /// The memory taken, in bytes.
    pub(super) fn taken(&self) -> usize {
        self.0.memory().taken()
    }
}

impl Pool {
    fn shares(&self) -> MutexGuard<'_, HashMap<MerchantId, Weak<Share>>> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn memory(&self) -> MutexGuard<'_, Shares<MerchantId>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The share of one merchant, which exists while one of its responses is decoded.
#[derive(Debug)]
pub(crate) struct Share {
    pool: Arc<Pool>,
    merchant_id: MerchantId,
    /// The turn of the merchant.
    turn: Semaphore,
}

/// Where an answer is decoded. The two kinds do not wait for each other: a thread that gives way may be slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Length {
    /// On a thread that serves calls.
    Short,
    /// On a thread of lower priority.
    Long,
}

/// The right to decode, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    _merchant: Option<SemaphorePermit<'a>>,
    _gateway: Option<SemaphorePermit<'a>>,
}

impl Share {
    /// Waits for a turn. Merchants take turns with each other, and a merchant's responses among themselves. The holder
    /// must go on without waiting for anybody.
    pub(super) async fn turn(&self, length: Length) -> Turn<'_> {
        let _waiting = Counted::new(&self.pool.waiting);
        // The semaphores are never closed.
        let merchant = self.turn.acquire().await.ok();
        let turns = match length {
            Length::Short => &self.pool.short,
            Length::Long => &self.pool.long,
        };
        let gateway = turns.acquire().await.ok();
        Turn { _merchant: merchant, _gateway: gateway }
    }

    /// The threads for long answers.
    pub(super) fn threads(&self) -> &DecoderThreads {
        &self.pool.threads
    }

    /// The share, for the response of this call.
    pub(crate) fn of_call(self: Arc<Self>, request_id: RequestId) -> CallShare {
        CallShare { merchant: self, request_id }
    }
}

/// The share of a merchant, from which the decoder of one call takes memory.
#[derive(Debug, Clone)]
pub(crate) struct CallShare {
    pub(super) merchant: Arc<Share>,
    /// The call, for the log.
    pub(super) request_id: RequestId,
}

impl CallShare {
    /// Takes so many bytes; `None` if they would exceed a limit.
    pub(super) fn take(&self, bytes: usize) -> Option<Memory> {
        let mut memory = Memory { share: self.clone(), bytes: 0 };
        memory.resize(bytes).then_some(memory)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut shares = self.pool.shares();
        if shares.get(&self.merchant_id).is_some_and(|share| share.strong_count() == 0) {
            shares.remove(&self.merchant_id);
        }
    }
}

/// Memory of a decoder; dropping it gives it back.
#[derive(Debug)]
pub(super) struct Memory {
    share: CallShare,
    bytes: usize,
}

impl Memory {
    /// Takes more or gives some back. `false` if more would exceed a limit; then nothing changes.
    pub(super) fn resize(&mut self, bytes: usize) -> bool {
        let CallShare { merchant, request_id } = &self.share;
        let Share { pool, merchant_id, .. } = &**merchant;
        let mut memory = pool.memory();
        if let Some(less) = self.bytes.checked_sub(bytes) {
            memory.give_back(merchant_id, less);
        } else if let Err(full) = memory.take(*merchant_id, bytes - self.bytes) {
            drop(memory);
            let why = match full {
                Full::All => "the responses of all merchants leave no decoder memory",
                Full::Owner => "the merchant's responses take all decoder memory of a merchant",
            };
            tracing::warn!(
                event = "forward.decoder_memory_exhausted",
                %request_id,
                %merchant_id,
                why,
                "a response is not decoded"
            );
            return false;
        }
        self.bytes = bytes;
        true
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.resize(0);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use farthing_shares::OWNERS_WITH_BASE;
    use tokio::time::timeout;

    use super::*;

    fn merchant(number: u128) -> MerchantId {
        MerchantId::new(ulid::Ulid::from_parts(1, number))
    }

    /// The share of a merchant, for a call.
    fn share(decoders: &Decoders, number: u128) -> CallShare {
        decoders.share(merchant(number)).of_call(RequestId::new(ulid::Ulid::nil()))
    }

    #[test]
    fn a_merchant_takes_at_most_its_share_and_leaves_some_to_others() {
        for (limit, of_one, of_next) in [(300, 300, 180), (500, 500, 170), (1000, 500, 170), (2000, 500, 170)]
        {
            let decoders = Decoders::start(DecoderMemory { gateway: 1_000, merchant: limit }).unwrap();
            let (first, second) = (share(&decoders, 1), share(&decoders, 2));
            assert!(first.take(of_one + 1).is_none());
            let all = first.take(of_one).expect("its share is free");
            assert!(first.take(1).is_none());
            assert!(share(&decoders, 1).take(1).is_none(), "a merchant has one share");
            let next = second.take(of_next).expect("there is room for others");
            assert!(second.take(of_one - of_next).is_none(), "for less than the first one got");
            drop((all, next));
            assert!(first.take(of_one).is_some());
        }
    }

    #[test]
    fn greedy_merchants_leave_memory_to_the_next_and_take_no_more_than_there_is() {
        const MEMORY: usize = 64 * 1024;
        let decoders = Decoders::start(DecoderMemory { gateway: MEMORY, merchant: MEMORY / 2 }).unwrap();
        let mut held = Vec::new();
        for number in 0..OWNERS_WITH_BASE as u128 - 1 {
            held.extend(std::iter::from_fn(|| share(&decoders, number).take(256)));
        }
        let taken = decoders.taken();
        let base = MEMORY / 4 / OWNERS_WITH_BASE;
        let mut last = share(&decoders, 100).take(base).unwrap();
        assert!(!last.resize(MEMORY / 2));
        assert_eq!(decoders.taken(), taken + base, "what is refused takes nothing");
        held.truncate(1);
        assert!(last.resize(MEMORY / 4) && last.resize(5));
        assert_eq!(decoders.taken(), 256 + 5);
        drop((held, last));
        assert_eq!(decoders.taken(), 0);
        assert!(decoders.0.shares().is_empty(), "merchants without calls are forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn a_merchant_that_always_decodes_lets_another_one_decode() {
        let decoders = Decoders::start(DecoderMemory { gateway: 100, merchant: 40 }).unwrap();
        let busy = decoders.share(merchant(1));
        let turns = decoders.0.short.available_permits();
        let first = busy.turn(Length::Short).await;
        let mut waiting: Vec<_> = (0..50).map(|_| Box::pin(busy.turn(Length::Short))).collect();
        for turn in &mut waiting {
            assert!(timeout(Duration::ZERO, turn).await.is_err(), "one turn at a time");
        }
        let others: Vec<_> = (2..).take(turns).map(|number| decoders.share(merchant(number))).collect();
        let mut turns = Vec::new();
        for other in others.iter().skip(1) {
            turns.push(other.turn(Length::Short).await);
        }
        let mut next = Box::pin(others[0].turn(Length::Short));
        assert!(timeout(Duration::ZERO, &mut next).await.is_err(), "all turns are taken");
        drop(first);
        next.await;
        drop(waiting);
    }
}
