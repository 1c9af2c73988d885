//! Turns at the connections for reads. A read of a merchant's rows may take seconds, so a merchant has few at once, and
//! all merchants together leave some connections to what is short: rate limits, look-ups of keys, hosted pages, the row
//! that a write has changed.
//!
//! Of what is short, too, a merchant has few at once: its further ones wait for these, and not for a connection, where
//! those of other merchants wait. Invariants: who has a turn at what is short waits for no other turn; after a durable
//! write no call is refused for want of a turn.

use std::sync::Arc;
use std::time::Duration;

use farthing_core::ids::MerchantId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::caller_address::CallerAddress;
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
    short: Option<ShortTurns>,
}

/// Turns at what is short.
#[derive(Debug)]
struct ShortTurns {
    per_merchant: LimitPer<MerchantId>,
    per_address: LimitPer<CallerAddress>,
}

/// Whose short reads wait for one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Reader {
    Merchant(MerchantId),
    /// A caller whose merchant is not known yet.
    Address(CallerAddress),
}

/// Permission to read, until it is dropped.
#[derive(Debug)]
pub(crate) struct ReadTurn {
    _of_reader: Option<OwnedSemaphorePermit>,
    _of_all: Option<OwnedSemaphorePermit>,
}

impl ReadTurns {
    /// Turns at so many `connections`, at most `per_merchant` of one merchant at once; further ones wait. `None` is no limit.
    /// With a limit, the short reads of a merchant have a quarter of the connections, and those of an address, which may be
    /// the proxy of many callers, half; each at least one.
    pub(crate) fn new(connections: usize, per_merchant: Option<usize>) -> Self {
        Self {
            all: Arc::new(Semaphore::new(turns(connections))),
            per_merchant: per_merchant.map(LimitPer::new),
            short: per_merchant.map(|_| ShortTurns {
                per_merchant: LimitPer::new((connections / 4).max(1)),
                per_address: LimitPer::new((connections / 2).max(1)),
            }),
        }
    }

    /// Waits for a turn at a merchant's rows. A merchant's reads wait for its own first, so few of them wait with those of
    /// other merchants.
    pub(crate) async fn take(&self, merchant_id: MerchantId) -> Result<ReadTurn, ApiError> {
        let deadline = Instant::now() + TURN_TIMEOUT;
        let of_reader = match &self.per_merchant {
            Some(limit) => {
                let refusal = ApiError::overloaded_by_merchant(GatewayLimit::ReadsOfMerchant);
                Some(turn_of(limit.of(merchant_id), deadline, refusal).await?)
            }
            None => None,
        };
        let of_all =
            turn_of(Arc::clone(&self.all), deadline, ApiError::overloaded(GatewayLimit::Reads)).await?;
        Ok(ReadTurn { _of_reader: of_reader, _of_all: Some(of_all) })
    }

    /// Waits for a turn at what is short, among those of the reader alone.
    pub(crate) async fn take_short(&self, reader: Reader) -> Result<ReadTurn, ApiError> {
        let of_reader = match &self.short {
            Some(short) => {
                let (turns, refusal) = match reader {
                    Reader::Merchant(merchant_id) => (
                        short.per_merchant.of(merchant_id),
                        ApiError::overloaded_by_merchant(GatewayLimit::ShortReads),
                    ),
                    Reader::Address(address) => {
                        (short.per_address.of(address), ApiError::overloaded(GatewayLimit::ShortReads))
                    }
                };
                Some(turn_of(turns, Instant::now() + TURN_TIMEOUT, refusal).await?)
            }
            None => None,
        };
        Ok(ReadTurn { _of_reader: of_reader, _of_all: None })
    }

    /// The same for a call of the merchant that has written: waits for as long as it takes.
    pub(crate) async fn take_after_write(&self, merchant_id: MerchantId) -> ReadTurn {
        let of_reader = match &self.short {
            // They are never closed.
            Some(short) => short.per_merchant.of(merchant_id).acquire_owned().await.ok(),
            None => None,
        };
        ReadTurn { _of_reader: of_reader, _of_all: None }
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
    use std::net::IpAddr;

    use futures_util::FutureExt as _;
    use ulid::Ulid;

    use super::*;

    const PER_MERCHANT: usize = 2;
    const CONNECTIONS: usize = 8;
    const READS: usize = 6;
    const SHORT_READS: usize = 2;
    const SHORT_READS_OF_ADDRESS: usize = 4;

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
        let short = Reader::Merchant(merchant(0));
        for _ in 0..10 * CONNECTIONS {
            taken.push(turns.take_short(short).now_or_never().unwrap().unwrap());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_merchant_has_few_short_reads_and_waits_for_its_own_alone() {
        let turns = ReadTurns::new(CONNECTIONS, Some(PER_MERCHANT));
        let [one, other] = [0, 1].map(|number| Reader::Merchant(merchant(number)));
        let address = Reader::Address(CallerAddress::of(IpAddr::from([192, 0, 2, 1])));
        let mut taken = Vec::new();
        for _ in 0..SHORT_READS {
            taken.push(turns.take_short(one).now_or_never().unwrap().unwrap());
        }
        let mut waiting: Vec<_> = (0..100).map(|_| Box::pin(turns.take_short(one))).collect();
        for read in &mut waiting {
            assert!(read.now_or_never().is_none(), "a merchant waits for its own short reads");
        }
        taken.push(turns.take_short(other).now_or_never().unwrap().unwrap());
        for _ in 0..SHORT_READS_OF_ADDRESS {
            taken.push(turns.take_short(address).now_or_never().unwrap().unwrap());
        }
        assert!(turns.take(merchant(0)).now_or_never().unwrap().is_ok(), "its rows have turns of their own");
        taken.remove(0);
        taken.push(waiting[0].as_mut().now_or_never().unwrap().unwrap());
        let refused = waiting[1].as_mut().await.unwrap_err();
        assert_eq!(refused, ApiError::overloaded_by_merchant(GatewayLimit::ShortReads));
        let refused = turns.take_short(address).await.unwrap_err();
        assert_eq!(refused, ApiError::overloaded(GatewayLimit::ShortReads));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_has_written_waits_for_a_turn_for_as_long_as_it_takes() {
        let turns = ReadTurns::new(3, Some(1));
        let turn = turns.take_after_write(merchant(0)).await;
        let mut written = Box::pin(turns.take_after_write(merchant(0)));
        assert!(written.as_mut().now_or_never().is_none(), "it waits for the merchant's turns");
        tokio::time::advance(10 * TURN_TIMEOUT).await;
        assert!(written.as_mut().now_or_never().is_none());
        drop(turn);
        assert!(written.as_mut().now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn with_few_connections_a_merchant_has_one_short_read() {
        let (turns, one) = (ReadTurns::new(3, Some(1)), Reader::Merchant(merchant(0)));
        let turn = turns.take_short(one).await.unwrap();
        assert!(turns.take_short(one).now_or_never().is_none());
        drop(turn);
        assert!(turns.take_short(one).now_or_never().unwrap().is_ok());
    }
}
