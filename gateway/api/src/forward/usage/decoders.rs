//! What the decoders of one gateway share: memory and turns, in total and per merchant. Invariant: no merchant takes
//! all of either.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::available_parallelism;

use farthing_core::ids::{MerchantId, RequestId};
use farthing_telemetry::{Counted, Gauge};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::decoder_threads::DecoderThreads;

/// The memory of the decoders of compressed responses, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecoderMemory {
    /// For all merchants together.
    pub gateway: usize,
    /// For the calls of one merchant; at most half of the gateway's.
    pub merchant: usize,
}

/// The decoders of one gateway.
#[derive(Debug, Clone)]
pub(crate) struct Decoders(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    limits: DecoderMemory,
    /// The memory taken, in bytes.
    taken: AtomicUsize,
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
            limits: DecoderMemory { merchant: limits.merchant.min(limits.gateway / 2), ..limits },
            taken: AtomicUsize::new(0),
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
        let share =
            Arc::new(Share { pool, merchant_id, taken: AtomicUsize::new(0), turn: Semaphore::new(1) });
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
        u32::try_from(self.0.taken.load(Ordering::Relaxed)).ok().map(f64::from)
    }
}

#[cfg(test)]
impl Decoders {
    /// The memory taken, in bytes.
    pub(super) fn taken(&self) -> usize {
        self.0.taken.load(Ordering::Relaxed)
    }
}

impl Pool {
    fn shares(&self) -> MutexGuard<'_, HashMap<MerchantId, Weak<Share>>> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The share of one merchant, which exists while one of its responses is decoded.
#[derive(Debug)]
pub(crate) struct Share {
    pool: Arc<Pool>,
    merchant_id: MerchantId,
    /// The memory taken, in bytes.
    taken: AtomicUsize,
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
        let Share { pool, taken, merchant_id, .. } = &**merchant;
        let more = bytes.saturating_sub(self.bytes);
        if !add(taken, more, pool.limits.merchant) {
            tracing::warn!(
                event = "forward.decoder_memory_exhausted",
                %request_id,
                %merchant_id,
                "the merchant's responses take all decoder memory of a merchant; a response is not decoded"
            );
            return false;
        }
        if !add(&pool.taken, more, pool.limits.gateway) {
            taken.fetch_sub(more, Ordering::Relaxed);
            tracing::warn!(
                event = "forward.decoder_memory_exhausted",
                %request_id,
                %merchant_id,
                "responses take all decoder memory of the gateway; a response is not decoded"
            );
            return false;
        }
        let less = self.bytes.saturating_sub(bytes);
        taken.fetch_sub(less, Ordering::Relaxed);
        pool.taken.fetch_sub(less, Ordering::Relaxed);
        self.bytes = bytes;
        true
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.resize(0);
    }
}

/// Adds to `taken` unless it would exceed `limit`.
fn add(taken: &AtomicUsize, more: usize, limit: usize) -> bool {
    let sum = |taken: usize| taken.checked_add(more).filter(|sum| *sum <= limit || more == 0);
    taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum).is_ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
    fn a_merchant_takes_at_most_its_share_and_never_all() {
        for (limit, of_one) in [(30, 30), (50, 50), (100, 50), (1000, 50)] {
            let decoders = Decoders::start(DecoderMemory { gateway: 100, merchant: limit }).unwrap();
            let (first, second) = (share(&decoders, 1), share(&decoders, 2));
            assert!(first.take(of_one + 1).is_none());
            let all = first.take(of_one).expect("its share is free");
            assert!(first.take(1).is_none());
            assert!(share(&decoders, 1).take(1).is_none(), "a merchant has one share");
            assert!(second.take(of_one).is_some(), "there is room for others");
            drop(all);
            assert!(first.take(of_one).is_some());
        }
    }

    #[test]
    fn merchants_together_take_at_most_the_gateways_memory() {
        let decoders = Decoders::start(DecoderMemory { gateway: 100, merchant: 40 }).unwrap();
        let taken_by = |number| share(&decoders, number).take(40);
        let (first, second) = (taken_by(1), taken_by(2));
        assert!(first.is_some() && second.is_some() && taken_by(3).is_none());
        assert_eq!(decoders.taken(), 80, "what is refused takes nothing");
        let mut third = share(&decoders, 3).take(20).unwrap();
        assert!(!third.resize(21));
        drop(first);
        assert!(third.resize(40) && third.resize(5));
        assert_eq!(decoders.taken(), 45);
        drop((second, third));
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
