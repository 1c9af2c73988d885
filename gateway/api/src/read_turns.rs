//! Turns at the connections for reads. A read of a merchant's rows may take seconds, so a merchant has few at once, and
//! all merchants together leave some connections to what is short: rate limits, look-ups of keys, hosted pages, the row
//! that a write has changed.

use std::sync::Arc;
use std::time::Duration;

use farthing_core::ids::MerchantId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::error::{ApiError, GatewayLimit};
use crate::limit_per::LimitPer;
use crate::server::turns;

/// The longest wait for a turn.
const TURN_TIMEOUT: Duration = Duration::from_secs(5);

/// The turns of a gateway.
#[derive(Debug)]
pub(crate) struct ReadTurns {
    all: Arc<Semaphore>,
    per_merchant: Option<LimitPer<MerchantId>>,
}

/// Permission to read a merchant's rows, until it is dropped.
#[derive(Debug)]
pub(crate) struct ReadTurn {
    _of_merchant: Option<OwnedSemaphorePermit>,
    _of_all: OwnedSemaphorePermit,
}

impl ReadTurns {
    /// Turns at so many `connections`, at most `per_merchant` of one merchant at once; further ones wait. `None` is no limit.
    pub(crate) fn new(connections: usize, per_merchant: Option<usize>) -> Self {
        Self {
            all: Arc::new(Semaphore::new(turns(connections))),
            per_merchant: per_merchant.map(LimitPer::new),
        }
    }

    /// Waits for a turn. A merchant's reads wait for its own first, so few of them wait with those of other merchants.
    pub(crate) async fn take(&self, merchant_id: MerchantId) -> Result<ReadTurn, ApiError> {
        let deadline = Instant::now() + TURN_TIMEOUT;
        let of_merchant = match &self.per_merchant {
            Some(limit) => {
                let refusal = ApiError::overloaded_by_merchant(GatewayLimit::ReadsOfMerchant);
                Some(turn_of(limit.of(merchant_id), deadline, refusal).await?)
            }
            None => None,
        };
        let of_all =
            turn_of(Arc::clone(&self.all), deadline, ApiError::overloaded(GatewayLimit::Reads)).await?;
        Ok(ReadTurn { _of_merchant: of_merchant, _of_all: of_all })
    }
}

/// One of these turns, or the refusal if none is free by the deadline.
async fn turn_of(
    turns: Arc<Semaphore>,
    deadline: Instant,
    refusal: ApiError,
) -> Result<OwnedSemaphorePermit, ApiError> {
    match tokio::time::timeout_at(deadline, turns.acquire_owned()).await {
        Ok(Ok(turn)) => Ok(turn),
        Ok(Err(_)) | Err(_) => Err(refusal),
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use ulid::Ulid;

    use super::*;

    const PER_MERCHANT: usize = 2;
    const CONNECTIONS: usize = 8;
    const READS: usize = 6;

    fn merchant(number: usize) -> MerchantId {
        MerchantId::new(Ulid::from(u128::try_from(number).unwrap()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_merchant_has_few_turns_and_leaves_the_others_to_other_merchants() {
        let turns = ReadTurns::new(CONNECTIONS, Some(PER_MERCHANT));
        let mut taken = Vec::new();
        for _ in 0..PER_MERCHANT {
            taken.push(turns.take(merchant(0)).await.unwrap());
        }
        let mut waiting: Vec<_> = (0..100).map(|_| Box::pin(turns.take(merchant(0)))).collect();
        for read in &mut waiting {
            assert!(read.now_or_never().is_none(), "a merchant waits for its own reads");
        }
        for number in 0..READS - PER_MERCHANT {
            taken.push(turns.take(merchant(1 + number)).now_or_never().unwrap().unwrap());
        }
        assert!(turns.take(merchant(READS)).now_or_never().is_none(), "some connections are left");
        taken.remove(0);
        taken.push(waiting[0].as_mut().now_or_never().unwrap().unwrap());
        let refused = waiting[1].as_mut().await.unwrap_err();
        assert_eq!(refused, ApiError::overloaded_by_merchant(GatewayLimit::ReadsOfMerchant));
        let refused = turns.take(merchant(READS)).await.unwrap_err();
        assert_eq!(refused, ApiError::overloaded(GatewayLimit::Reads));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_limit_one_merchant_has_all_turns() {
        let turns = ReadTurns::new(CONNECTIONS, None);
        let mut taken = Vec::new();
        for _ in 0..READS {
            taken.push(turns.take(merchant(0)).now_or_never().unwrap().unwrap());
        }
        assert_eq!(turns.take(merchant(0)).await.unwrap_err(), ApiError::overloaded(GatewayLimit::Reads));
    }
}
