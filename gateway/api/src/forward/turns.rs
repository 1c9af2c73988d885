//! The calls of one merchant take turns: however many are ready to begin or to take their response, and however many bodies
//! have something to pass, only a few of them do it before the tasks of others run. Without this a merchant with a hundred
//! of them would hold up every step of another's call a hundred times as long as a merchant with one. Answers that are stored
//! take turns as well, because the commits of others wait for those of a batch, and are stored at a limited rate.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use farthing_core::ids::MerchantId;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use super::conversion_memory::{ConversionMemory, Extent};
use super::conversion_turns::{ConversionTurn, ConversionTurns};
use super::stored_rate::{Length, StoredRate};
use crate::body_memory::{FREE_BYTES, beside_others};
use crate::caller_key::CallerKey;
use crate::error::{ApiError, GatewayLimit};

/// The turns of one merchant's bodies that are taken at once.
const AT_ONCE: usize = 4;

/// The turns of one merchant's calls, to begin or to take their response, that are taken at once.
const STEPS_AT_ONCE: usize = 4;

/// What passes in one turn: so many pieces and bytes, whichever ends first.
const TURN: Allowance = Allowance { pieces: 16, bytes: 16 * 1024 };

/// What of each body passes without a turn. Most calls are no longer, and need none.
const FREE: Allowance = Allowance { pieces: 64, bytes: 64 * 1024 };

/// The long bodies of one merchant that are read, converted or signed at once.
const CONVERSIONS_AT_ONCE: usize = 2;

/// The longest request that is converted without waiting for bodies of other calls, in bytes.
const SHORT_BODY: usize = 64 * 1024;

/// The longest time that a long request waits for other bodies of its merchant to be converted, and then for memory. A
/// response waits as long as it must: it has been paid for.
const CONVERSION_WAIT: Duration = Duration::from_secs(30);

/// The bytes of one merchant's answers that are stored at once: the longest one, or several that are shorter.
const STORED_AT_ONCE: usize = 256 * 1024;

/// The longest answer that is stored without a turn, in bytes.
const SHORT_ANSWER: usize = 4 * 1024;

/// The bytes of a response without a caller after which it waits for [`DRAIN_PAUSE`].
const DRAINED_AT_ONCE: usize = 64 * 1024;

/// The pause of a response without a caller, for which nobody waits. The pauses of one merchant's follow each other, so
/// that all of them together are read at no more than 13 MB/s.
const DRAIN_PAUSE: Duration = Duration::from_millis(5);

/// The turns of all merchants.
#[derive(Debug, Clone, Default)]
pub(super) struct Turns {
    merchants: Arc<Mutex<HashMap<MerchantId, Weak<OfMerchant>>>>,
    memory: ConversionMemory,
    /// The rate at which the answers of a merchant are stored; `None` is no limit.
    stored_rate: Option<Arc<StoredRate>>,
}

impl Turns {
    /// Those of a gateway that stores answers at this rate.
    pub(super) fn new(stored_rate: Option<StoredRate>) -> Self {
        Self { stored_rate: stored_rate.map(Arc::new), ..Self::default() }
    }

    /// A body of this merchant.
    pub(super) fn body_of(&self, merchant_id: MerchantId) -> Turn {
        Turn { merchant: self.of(merchant_id), left: FREE, waiting: None, drained: 0 }
    }

    /// Waits until an answer of so many bytes may be stored for this merchant. Until the turn is dropped, few others are.
    pub(super) async fn of_answer(&self, merchant_id: MerchantId, bytes: usize) -> Option<AnswerTurn> {
        if bytes <= SHORT_ANSWER {
            self.within_rate(merchant_id, Length::Short, bytes).await;
            return None;
        }
        let merchant = self.of(merchant_id);
        let permits = u32::try_from(bytes.min(STORED_AT_ONCE)).expect("a quarter of a mebibyte");
        let permit = Arc::clone(&merchant.answers).acquire_many_owned(permits).await;
        let turn = AnswerTurn {
            _permit: permit.expect("the turns of a merchant are never closed"),
            _merchant: merchant,
        };
        // It keeps its turn while it waits, so that those behind it stay in order.
        self.within_rate(merchant_id, Length::Long, bytes).await;
        Some(turn)
    }

    async fn within_rate(&self, merchant_id: MerchantId, length: Length, bytes: usize) {
        if let Some(rate) = &self.stored_rate {
            rate.wait(merchant_id, length, bytes).await;
        }
    }

    fn of(&self, merchant_id: MerchantId) -> Arc<OfMerchant> {
        let mut all = self.lock();
        let known = all.get(&merchant_id).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let merchant = Arc::new(OfMerchant {
                turns: self.clone(),
                merchant_id,
                bodies: Arc::new(Semaphore::new(AT_ONCE)),
                steps: Arc::new(Semaphore::new(STEPS_AT_ONCE)),
                conversions: ConversionTurns::new(CONVERSIONS_AT_ONCE),
                answers: Arc::new(Semaphore::new(STORED_AT_ONCE)),
                drains: Semaphore::new(1),
            });
            all.insert(merchant_id, Arc::downgrade(&merchant));
            merchant
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<MerchantId, Weak<OfMerchant>>> {
        self.merchants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The turns of one merchant, which exist while it has a body.
#[derive(Debug)]
struct OfMerchant {
    turns: Turns,
    merchant_id: MerchantId,
    bodies: Arc<Semaphore>,
    steps: Arc<Semaphore>,
    conversions: ConversionTurns,
    /// A permit for each byte.
    answers: Arc<Semaphore>,
    drains: Semaphore,
}

impl Drop for OfMerchant {
    fn drop(&mut self) {
        let mut all = self.turns.lock();
        if all.get(&self.merchant_id).is_some_and(|merchant| merchant.strong_count() == 0) {
            all.remove(&self.merchant_id);
        }
    }
}

/// So many pieces and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Allowance {
    pieces: usize,
    bytes: usize,
}

impl Allowance {
    const fn is_used_up(self) -> bool {
        self.pieces == 0 || self.bytes == 0
    }
}

type Acquired = Result<OwnedSemaphorePermit, AcquireError>;

/// The turns of one body.
pub(super) struct Turn {
    merchant: Arc<OfMerchant>,
    /// What may pass before the next turn.
    left: Allowance,
    waiting: Option<Pin<Box<dyn Future<Output = Acquired> + Send>>>,
    /// The bytes that were read without a caller since the last pause.
    drained: usize,
}

impl Turn {
    /// Ready once the piece that has come may pass. Ask it only if one has: a turn that nobody uses would be kept.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.left.is_used_up() {
            return Poll::Ready(());
        }
        let bodies = &self.merchant.bodies;
        if self.waiting.is_none()
            && let Ok(turn) = Arc::clone(bodies).try_acquire_owned()
        {
            self.begin(turn);
            return Poll::Ready(());
        }
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(Arc::clone(bodies).acquire_owned()));
        let turn = ready!(waiting.as_mut().poll(cx)).expect("the turns of a merchant are never closed");
        self.waiting = None;
        self.begin(turn);
        Poll::Ready(())
    }

    fn begin(&mut self, turn: OwnedSemaphorePermit) {
        self.left = TURN;
        end_after_others(Arc::clone(&self.merchant), turn);
    }

    /// Waits until the call may begin, or take its response: the calls of a merchant that are ready for that take turns,
    /// too.
    pub(super) fn step(&self) -> impl Future<Output = ()> + Send + use<> {
        let merchant = Arc::clone(&self.merchant);
        async move {
            let steps = &merchant.steps;
            let turn = match Arc::clone(steps).try_acquire_owned() {
                Ok(turn) => turn,
                Err(_) => {
                    Arc::clone(steps).acquire_owned().await.expect("the turns of a merchant are never closed")
                }
            };
            end_after_others(merchant, turn);
        }
    }

    /// The conversions of the merchant, for a body of this caller that is still to be read.
    pub(super) fn conversions(&self, caller: CallerKey) -> Conversions {
        Conversions { merchant: Arc::clone(&self.merchant), caller }
    }

    /// The same for a response.
    pub(super) fn response_conversions(&self, caller: CallerKey) -> ResponseConversions {
        ResponseConversions { conversions: self.conversions(caller), waiting: None }
    }

    /// A piece of so many bytes has passed.
    pub(super) const fn passed(&mut self, bytes: usize) {
        self.left.pieces = self.left.pieces.saturating_sub(1);
        self.left.bytes = self.left.bytes.saturating_sub(bytes);
    }

    /// So many bytes more were written for the caller than had passed.
    pub(super) const fn written(&mut self, bytes: usize) {
        self.left.bytes = self.left.bytes.saturating_sub(bytes);
    }

    /// Waits after bytes that were read although no caller wants them.
    pub(super) async fn drained(&mut self, bytes: usize) {
        self.drained += bytes;
        while self.drained >= DRAINED_AT_ONCE {
            let turn = self.merchant.drains.acquire().await;
            tokio::time::sleep(DRAIN_PAUSE).await;
            drop(turn);
            self.drained -= DRAINED_AT_ONCE;
        }
    }
}

/// The turn of a body to be read and converted, once it has come. Each takes a processor for as long as it is long, beside
/// the tasks of other merchants.
#[derive(Debug)]
pub(super) struct Conversions {
    merchant: Arc<OfMerchant>,
    caller: CallerKey,
}

impl Conversions {
    /// Waits until a whole body of so many bytes may be signed; until the turn is dropped, few others are. The callers of
    /// the merchant get turns one after the other.
    pub(super) async fn turn(&self, bytes: usize) -> Result<Option<ConversionTurn>, ApiError> {
        if bytes <= SHORT_BODY {
            return Ok(None);
        }
        let turn = tokio::time::timeout(CONVERSION_WAIT, self.merchant.conversions.take(self.caller)).await;
        Ok(Some(turn.map_err(|_| ApiError::overloaded_by_merchant(GatewayLimit::ConversionsOfMerchant))?))
    }

    /// The same for a body that is read and converted, which waits for memory, too.
    pub(super) async fn turn_with_memory(&self, body: &[u8]) -> Result<Option<TurnWithMemory>, ApiError> {
        let Some(turn) = self.turn(body.len()).await? else { return Ok(None) };
        let extent = beside_others(body.len(), || Extent::of(body));
        let memory = tokio::time::timeout(CONVERSION_WAIT, self.merchant.turns.memory.take(extent)).await;
        let memory = memory.map_err(|_| ApiError::overloaded(GatewayLimit::BodyMemory))?;
        Ok(Some(TurnWithMemory { _memory: memory, _turn: turn }))
    }
}

/// The turn of a body with the memory that it may need, until it is dropped.
#[derive(Debug)]
pub(super) struct TurnWithMemory {
    _memory: Option<OwnedSemaphorePermit>,
    _turn: ConversionTurn,
}

/// The turns of a response to be converted, at its end or event by event.
pub(super) struct ResponseConversions {
    conversions: Conversions,
    waiting: Option<Pin<Box<dyn Future<Output = TurnWithMemory> + Send>>>,
}

impl ResponseConversions {
    /// Ready once so many bytes that have come may be converted, and the memory for what is to be read of them is free; until
    /// the turn is dropped, few other bodies are. Few bytes need no turn, because they need no further thread.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        bytes: usize,
        extent: impl FnOnce() -> Extent,
    ) -> Poll<Option<TurnWithMemory>> {
        if bytes <= FREE_BYTES {
            self.waiting = None;
            return Poll::Ready(None);
        }
        let Conversions { merchant, caller } = &self.conversions;
        let waiting = self.waiting.get_or_insert_with(|| {
            let (conversions, memory) = (merchant.conversions.clone(), merchant.turns.memory.clone());
            let (caller, extent) = (*caller, extent());
            Box::pin(async move {
                let turn = conversions.take(caller).await;
                TurnWithMemory { _memory: memory.take(extent).await, _turn: turn }
            })
        });
        let turn = ready!(waiting.as_mut().poll(cx));
        self.waiting = None;
        Poll::Ready(Some(turn))
    }
}

/// The turn of an answer, until it is dropped.
#[derive(Debug)]
pub(super) struct AnswerTurn {
    _permit: OwnedSemaphorePermit,
    _merchant: Arc<OfMerchant>,
}

/// Ends a turn when the tasks of others that are ready have run. The turns of the merchant are kept until then: a call that
/// ends at once must not leave new ones to the next.
fn end_after_others(merchant: Arc<OfMerchant>, turn: OwnedSemaphorePermit) {
    tokio::spawn(async move {
        tokio::task::yield_now().await;
        drop((turn, merchant));
    });
}

impl std::fmt::Debug for Turn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Turn")
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::task::JoinHandle;
    use tokio::time::Instant;
    use tokio_util::sync::CancellationToken;

    use super::*;

    pub(crate) fn merchant(number: u128) -> MerchantId {
        MerchantId::new(ulid::Ulid::from_parts(1, number))
    }

    /// Passes pieces for ever, each as long as a turn, and counts them.
    async fn busy(mut turn: Turn, passed: Arc<AtomicUsize>) {
        turn.passed(FREE.bytes);
        loop {
            poll_fn(|cx| turn.poll(cx)).await;
            turn.passed(TURN.bytes);
            passed.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn between_two_steps_of_another_task_a_merchant_passes_a_few_pieces_however_many_bodies_it_has() {
        const STEPS: usize = 100;
        for bodies in [1, 10, 200] {
            let (turns, passed) = (Turns::default(), Arc::new(AtomicUsize::new(0)));
            let tasks: Vec<_> = (0..bodies)
                .map(|_| tokio::spawn(busy(turns.body_of(merchant(1)), Arc::clone(&passed))))
                .collect();
            while passed.load(Ordering::Relaxed) == 0 {
                tokio::task::yield_now().await;
            }
            let before = passed.load(Ordering::Relaxed);
            for _ in 0..STEPS {
                tokio::task::yield_now().await;
            }
            let pieces = passed.load(Ordering::Relaxed) - before;
            assert!((STEPS / 4..=STEPS * AT_ONCE * 2).contains(&pieces), "{bodies} bodies: {pieces} pieces");
            for task in tasks {
                task.abort();
            }
        }
    }

    fn is_ready(turn: &mut Turn) -> bool {
        turn.poll(&mut Context::from_waker(std::task::Waker::noop())).is_ready()
    }

    #[tokio::test]
    async fn between_two_steps_of_another_task_a_few_calls_of_a_merchant_begin_however_many_are_ready() {
        const CALLS: usize = 1_000;
        let (turns, begun) = (Turns::default(), Arc::new(AtomicUsize::new(0)));
        for _ in 0..CALLS {
            let (turns, begun) = (turns.clone(), Arc::clone(&begun));
            tokio::spawn(async move {
                // A short call is over at once.
                turns.body_of(merchant(1)).step().await;
                begun.fetch_add(1, Ordering::Relaxed);
            });
        }
        let other = turns.body_of(merchant(2));
        let mut before = 0;
        while before < CALLS {
            other.step().await;
            tokio::task::yield_now().await;
            let now = begun.load(Ordering::Relaxed);
            assert!(now - before <= STEPS_AT_ONCE * 4, "{} calls began at once", now - before);
            before = now;
        }
    }

    #[tokio::test]
    async fn the_answers_of_a_merchant_that_are_stored_at_once_have_a_quarter_of_a_mebibyte() {
        use futures_util::FutureExt as _;

        const HALF: usize = STORED_AT_ONCE / 2;
        let turns = Turns::default();
        let first = turns.of_answer(merchant(1), HALF).await;
        let _second = turns.of_answer(merchant(1), HALF).await;
        let mut waits = Box::pin(turns.of_answer(merchant(1), SHORT_ANSWER + 1));
        assert!(waits.as_mut().now_or_never().is_none());
        assert!(turns.of_answer(merchant(1), SHORT_ANSWER).await.is_none(), "a short one needs no turn");
        assert!(
            turns.of_answer(merchant(2), STORED_AT_ONCE).await.is_some(),
            "another merchant has turns of its own"
        );
        drop(first);
        assert!(waits.await.is_some());
        assert!(turns.of_answer(merchant(3), usize::MAX).await.is_some(), "a longer one has all of them");
        assert!(turns.lock().keys().eq([&merchant(1)]), "nothing is kept of the others");
    }

    /// Answers of this merchant, whose turn is over at once. Each task ends when its answer may be stored, and notes its number
    /// in the list.
    async fn store_all(turns: &Turns, lengths: Vec<usize>) -> (Vec<JoinHandle<()>>, Arc<Mutex<Vec<usize>>>) {
        let (mut tasks, stored) = (Vec::new(), Arc::new(Mutex::new(Vec::new())));
        for (number, bytes) in lengths.into_iter().enumerate() {
            let (turns, stored) = (turns.clone(), Arc::clone(&stored));
            tasks.push(tokio::spawn(async move {
                let turn = turns.of_answer(merchant(1), bytes).await;
                stored.lock().unwrap().push(number);
                drop(turn);
            }));
            tokio::task::yield_now().await;
        }
        (tasks, stored)
    }

    #[tokio::test(start_paused = true)]
    async fn answers_beyond_the_rate_are_stored_in_the_order_in_which_they_came_and_keep_no_others_waiting() {
        const ANSWERS: usize = 100;
        let rate = StoredRate::new((1 << 20).try_into().unwrap(), CancellationToken::new());
        let (turns, start) = (Turns::new(Some(rate)), Instant::now());
        let lengths = [STORED_AT_ONCE, 5 * 1024].into_iter().cycle().take(ANSWERS).collect();
        let (tasks, stored) = store_all(&turns, lengths).await;
        let at_once = stored.lock().unwrap().len();
        assert_eq!(at_once, 6, "a mebibyte is stored at once");
        assert!(turns.of_answer(merchant(1), SHORT_ANSWER).await.is_none());
        assert!(turns.of_answer(merchant(2), STORED_AT_ONCE).await.is_some());
        assert_eq!(start.elapsed(), Duration::ZERO, "neither waits");
        futures_util::future::join_all(tasks).await;
        // All but the first mebibyte, at a mebibyte a second.
        let took = start.elapsed().as_millis();
        assert!((11_700..=11_900).contains(&took), "{took}");
        assert!(stored.lock().unwrap().iter().copied().eq(0..ANSWERS), "{stored:?}");
        assert!(turns.lock().is_empty(), "nothing is kept");
    }

    #[tokio::test(start_paused = true)]
    async fn a_gateway_that_stops_stores_what_waits_for_the_rate_at_once_and_in_turns() {
        let stop = CancellationToken::new();
        let rate = StoredRate::new((64 << 10).try_into().unwrap(), stop.clone());
        let turns = Turns::new(Some(rate));
        let (tasks, stored) = store_all(&turns, vec![STORED_AT_ONCE; 20]).await;
        tokio::time::sleep(Duration::from_secs(9)).await;
        assert_eq!(stored.lock().unwrap().len(), 3, "one at once, and one in four seconds");
        let stopped = Instant::now();
        stop.cancel();
        futures_util::future::join_all(tasks).await;
        assert_eq!(stopped.elapsed(), Duration::ZERO);
        assert!(stored.lock().unwrap().iter().copied().eq(0..20), "{stored:?}");
        let _turn = turns.of_answer(merchant(1), STORED_AT_ONCE).await;
        let next = tokio::time::timeout(Duration::from_secs(1), turns.of_answer(merchant(1), STORED_AT_ONCE));
        assert!(next.await.is_err(), "the turns are kept");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_given_up_while_it_waits_for_the_rate_leaves_its_turn_to_the_next_one() {
        let rate = StoredRate::new((64 << 10).try_into().unwrap(), CancellationToken::new());
        let turns = Turns::new(Some(rate));
        let (tasks, stored) = store_all(&turns, vec![STORED_AT_ONCE; 3]).await;
        tasks[1].abort();
        for task in tasks {
            let _ = task.await;
        }
        assert_eq!(*stored.lock().unwrap(), [0, 2]);
    }

    #[tokio::test]
    async fn short_bodies_pass_without_a_turn_and_small_pieces_share_one() {
        let turns = Turns::default();
        let mut bodies: Vec<_> = (0..=AT_ONCE).map(|_| turns.body_of(merchant(1))).collect();
        for body in &mut bodies {
            for _ in 0..FREE.pieces {
                assert!(is_ready(body), "a short body");
                body.passed(10);
            }
        }
        let ready: Vec<_> = bodies.iter_mut().map(is_ready).collect();
        assert_eq!(ready.iter().filter(|ready| **ready).count(), AT_ONCE);
        for _ in 0..TURN.pieces {
            assert!(is_ready(&mut bodies[0]));
            bodies[0].passed(10);
        }
        assert!(!is_ready(&mut bodies[0]), "the next turn is not its own");
    }

    #[tokio::test]
    async fn what_few_bytes_become_counts_as_well() {
        let turns = Turns::default();
        let mut bodies: Vec<_> = (0..=AT_ONCE).map(|_| turns.body_of(merchant(1))).collect();
        let mut ready_after = |bytes: usize| {
            let mut ready = 0;
            for body in &mut bodies {
                ready += usize::from(is_ready(body));
                body.passed(10);
                body.written(bytes);
            }
            ready
        };
        assert_eq!(ready_after(FREE.bytes), AT_ONCE + 1, "each begins without a turn");
        assert_eq!(ready_after(TURN.bytes), AT_ONCE);
        assert_eq!(ready_after(TURN.bytes), 0, "the turns are used up");
    }

    #[tokio::test]
    async fn merchants_do_not_wait_for_each_other_and_are_forgotten() {
        let turns = Turns::default();
        let mut bodies: Vec<_> = (0..=AT_ONCE).map(|_| turns.body_of(merchant(1))).collect();
        bodies.push(turns.body_of(merchant(2)));
        for body in &mut bodies {
            body.passed(FREE.bytes);
        }
        let ready: Vec<_> = bodies.iter_mut().map(is_ready).collect();
        assert_eq!(ready, [true, true, true, true, false, true]);
        assert_eq!(turns.lock().len(), 2);
        drop(bodies);
        assert_eq!(turns.lock().len(), 2, "turns are taken");
        while !turns.lock().is_empty() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_body_that_is_dropped_while_it_waits_gives_its_turn_to_the_next_one() {
        let turns = Turns::default();
        let mut bodies: Vec<_> = (0..AT_ONCE + 2).map(|_| turns.body_of(merchant(1))).collect();
        for body in &mut bodies {
            body.passed(FREE.bytes);
            is_ready(body);
        }
        let mut last = bodies.pop().unwrap();
        drop(bodies.pop());
        poll_fn(|cx| last.poll(cx)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn few_long_bodies_of_a_merchant_are_converted_at_once_and_one_caller_keeps_no_other_waiting() {
        let turns = Turns::default();
        let of = |number, caller| turns.body_of(merchant(number)).conversions(CallerKey::of_test(caller));
        let (one, another_caller, other) = (of(1, 1), of(1, 2), of(2, 1));
        let mut taken = Vec::new();
        for _ in 0..CONVERSIONS_AT_ONCE {
            taken.push(one.turn(SHORT_BODY + 1).await.unwrap().unwrap());
        }
        assert!(one.turn(SHORT_BODY).await.unwrap().is_none(), "a short one needs no turn");
        assert!(other.turn(SHORT_BODY + 1).await.unwrap().is_some(), "another merchant's does not wait");
        let begun = Instant::now();
        let refused = one.turn(SHORT_BODY + 1).await.unwrap_err();
        assert_eq!((refused.code(), begun.elapsed()), ("ledger_unavailable", CONVERSION_WAIT));
        // Bodies that are converted for a second each: another caller's waits for the one that is next.
        let begun = Instant::now();
        let many = async {
            let convert = async || {
                let _turn = one.turn(SHORT_BODY + 1).await.unwrap();
                tokio::time::sleep(Duration::from_secs(1)).await;
            };
            futures_util::future::join_all((0..20).map(|_| convert())).await;
        };
        let others = async {
            tokio::task::yield_now().await;
            let _turn = another_caller.turn(usize::MAX).await.unwrap();
            begun.elapsed()
        };
        drop(taken.pop());
        let ((), waited) = tokio::join!(many, others);
        assert!(waited <= Duration::from_secs(2), "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn long_responses_wait_as_long_as_they_must_and_take_turns_with_requests() {
        use futures_util::FutureExt as _;

        let turns = Turns::default();
        let of = |number| turns.body_of(merchant(number));
        let requests = of(1).conversions(CallerKey::of_test(1));
        let mut responses: Vec<_> =
            (0..3).map(|_| of(1).response_conversions(CallerKey::of_test(1))).collect();
        let mut taken = Vec::new();
        for _ in 0..CONVERSIONS_AT_ONCE {
            taken.push(requests.turn(SHORT_BODY + 1).await.unwrap());
        }
        let (few, much) = (Extent::default, || Extent::at_most(usize::MAX));
        let (first, rest) = responses.split_first_mut().unwrap();
        let (second, rest) = rest.split_first_mut().unwrap();
        assert!(poll_fn(|cx| rest[0].poll(cx, FREE_BYTES, few)).await.is_none(), "few bytes need no turn");
        let mut other = of(2).response_conversions(CallerKey::of_test(1));
        assert!(poll_fn(|cx| other.poll(cx, usize::MAX, few)).await.is_some(), "another merchant's goes on");
        let mut waits = Box::pin(poll_fn(|cx| first.poll(cx, FREE_BYTES + 1, few)));
        assert!(waits.as_mut().now_or_never().is_none());
        assert!(poll_fn(|cx| second.poll(cx, usize::MAX, few)).now_or_never().is_none());
        tokio::time::sleep(CONVERSION_WAIT * 2).await;
        assert!(waits.as_mut().now_or_never().is_none());
        drop(taken.pop());
        let turn = waits.await;
        assert!(turn.is_some());
        // The caller of the second one has left, and nothing is converted any more.
        assert!(poll_fn(|cx| second.poll(cx, 0, few)).await.is_none());
        drop(turn);
        assert!(requests.turn(SHORT_BODY + 1).now_or_never().unwrap().unwrap().is_some(), "the turn is free");
        // The bodies of all merchants share the memory. Each has a turn of its own.
        drop(taken);
        let turn = poll_fn(|cx| other.poll(cx, usize::MAX, much)).await;
        let mut waits = Box::pin(poll_fn(|cx| rest[0].poll(cx, usize::MAX, much)));
        assert!(waits.as_mut().now_or_never().is_none());
        let long = vec![b'x'; FREE_BYTES + 1];
        assert!(requests.turn_with_memory(&long[1..]).await.unwrap().is_some(), "a short one needs none");
        let begun = Instant::now();
        let refused = requests.turn_with_memory(&long).await.unwrap_err();
        assert_eq!((refused.code(), begun.elapsed()), ("ledger_unavailable", CONVERSION_WAIT));
        drop(turn);
        assert!(waits.await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn the_responses_without_callers_of_a_merchant_are_read_at_one_pace() {
        let (turns, begun) = (Turns::default(), Instant::now());
        let drain = async |number| {
            let mut body = turns.body_of(merchant(number));
            for _ in 0..10 {
                body.drained(DRAINED_AT_ONCE / 2).await;
            }
        };
        tokio::join!(drain(1), drain(1), drain(2));
        assert_eq!(begun.elapsed(), DRAIN_PAUSE * 10);
    }
}
