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
pub(super) mod tests;
