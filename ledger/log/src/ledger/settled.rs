//! Finds the events of a call in the log. Needed only when an answer about it was lost, or when its partition moved.

use std::fmt;
use std::pin::Pin;

use chrono::{DateTime, TimeDelta, Utc};
use farthing_core::command::{Completeness, Metered, SettleRequest, Settled};
use farthing_core::event::{Event, FailureReason, RequestEvent};
use farthing_core::ids::RequestId;
use farthing_core::partition::Partition;

use crate::appender::Error;
use crate::reads::{self, ReadPool, within};
use crate::record;

/// The events of the batch that holds an event with the key in $2 or in $3, a part of its line, among the newest events.
const FIND: &str = "\
SELECT b.events
FROM ledger.batches AS b
WHERE b.partition = $1 AND b.first_position > (SELECT h.position FROM ledger.heads AS h WHERE h.partition = $1) - $4
    AND (position($2::bytea IN b.events) > 0 OR position($3::bytea IN b.events) > 0)
LIMIT 1";

/// Whether one of the newest events has the key in $2, and whether these reach back to $4 or hold the whole log.
const FIND_OPENING: &str = "\
SELECT COALESCE(bool_or(position($2::bytea IN b.events) > 0), false),
    COALESCE(min(b.recorded_at) < $4 OR min(b.first_position) <= 1, true)
FROM ledger.batches AS b
WHERE b.partition = $1 AND b.first_position > (SELECT h.position FROM ledger.heads AS h WHERE h.partition = $1) - $3";

/// How far the clocks of gateways may differ.
const CLOCKS: TimeDelta = TimeDelta::minutes(1);

/// The newest events that are searched.
const SEARCHED: i64 = 200_000;

/// What is found.
pub(crate) type Found<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// The log as one searches it for the events of a call. In a running program it is in Postgres; the simulation of
/// gateways has one in memory.
pub(crate) trait CallLog: fmt::Debug + Send + Sync {
    /// The event that ended the call.
    fn end_of(&self, partition: Partition, request_id: RequestId) -> Found<'_, Option<Event>>;

    /// Looks for the opening of the call, which was decided at `decided_at`.
    fn opening_of(
        &self,
        partition: Partition,
        request_id: RequestId,
        decided_at: DateTime<Utc>,
    ) -> Found<'_, Sought>;
}

/// What a search for an event came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sought {
    /// It is in the log.
    Found,
    /// It is certainly not in the log.
    Absent,
    /// It is not among the events that were searched.
    Unproven,
}

impl CallLog for ReadPool {
    fn end_of(&self, partition: Partition, request_id: RequestId) -> Found<'_, Option<Event>> {
        Box::pin(async move {
            let line = find(self, partition, &keys(request_id, ["metered", "failed"])).await?;
            let fact = line.map(|line| record::decode(&line)).transpose();
            Ok(fact.map_err(|error| Error::Internal(error.to_string()))?.map(|fact| fact.event))
        })
    }

    fn opening_of(
        &self,
        partition: Partition,
        request_id: RequestId,
        decided_at: DateTime<Utc>,
    ) -> Found<'_, Sought> {
        Box::pin(async move {
            let [key, _] = keys(request_id, ["opened"; 2]);
            let find = async {
                let connection = self.connection().await?;
                let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
                    [&partition.number(), &key.as_bytes(), &SEARCHED, &(decided_at - CLOCKS)];
                let row = within(connection.query_one(FIND_OPENING, &parameters)).await??;
                Ok::<(bool, bool), reads::Error>((row.try_get(0)?, row.try_get(1)?))
            };
            match find.await.map_err(|error| Error::Unavailable(error.to_string()))? {
                (true, _) => Ok(Sought::Found),
                (false, true) => Ok(Sought::Absent),
                (false, false) => Ok(Sought::Unproven),
            }
        })
    }
}

/// The event that ended the call, if `command` ended it.
pub(super) async fn end_by(
    log: &dyn CallLog,
    partition: Partition,
    command: &SettleRequest,
) -> Result<Option<Event>, Error> {
    let end = log.end_of(partition, command.request_id).await?;
    Ok(end.filter(|end| is_end(&command.settled, end)))
}

/// The outcome of a settlement as `settled` that appended this event: why a call failed that was to be metered.
pub(super) fn outcome(settled: &Settled, end: &Event) -> Option<FailureReason> {
    match (settled, end) {
        (Settled::Metered(_), Event::Request(RequestEvent::Failed(failed))) => Some(failed.reason),
        (Settled::Metered(_) | Settled::Failed(_), _) => None,
    }
}

/// The parts of the lines of two events of a call.
fn keys(request_id: RequestId, events: [&str; 2]) -> [String; 2] {
    events.map(|event| format!("\"key\":\"{request_id}/{event}\""))
}

/// The line of an event with one of these keys, among the newest events.
async fn find(reads: &ReadPool, partition: Partition, keys: &[String; 2]) -> Result<Option<String>, Error> {
    let find = async {
        let connection = reads.connection().await?;
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
            [&partition.number(), &keys[0].as_bytes(), &keys[1].as_bytes(), &SEARCHED];
        let row = within(connection.query_opt(FIND, &parameters)).await??;
        Ok::<Option<Vec<u8>>, reads::Error>(row.map(|row| row.try_get(0)).transpose()?)
    };
    let found = find.await.map_err(|error| Error::Unavailable(error.to_string()))?;
    let events =
        String::from_utf8(found.unwrap_or_default()).map_err(|error| Error::Internal(error.to_string()))?;
    let line = events.lines().find(|line| keys.iter().any(|key| line.contains(key.as_str())));
    Ok(line.map(str::to_owned))
}

/// Whether the event that ended a request is what its settlement as `settled` became. The gateway that forwards a call
/// alone settles it as metered; a sweeper may have ended it as failed.
fn is_end(settled: &Settled, event: &Event) -> bool {
    match (settled, event) {
        (Settled::Metered(_), Event::Request(RequestEvent::Metered(_))) => true,
        (Settled::Metered(metered), Event::Request(RequestEvent::Failed(failed))) => {
            may_fail_as(metered, failed.reason)
                && (failed.http_status, &failed.response_id) == (metered.status(), &metered.response_id)
        }
        (Settled::Failed(settled), Event::Request(RequestEvent::Failed(failed))) => {
            (failed.reason, failed.http_status) == (settled.reason, settled.http_status)
        }
        (Settled::Failed(_) | Settled::Metered(_), _) => false,
    }
}

/// Whether the ledger may record a call that was to be metered as failed for this reason.
fn may_fail_as(metered: &Metered, reason: FailureReason) -> bool {
    let is_given_up = matches!(metered.ending, Completeness::GivenUp(why) if why == reason);
    is_given_up || reason == FailureReason::UsageInvalid
}

#[cfg(test)]
mod tests {
    use farthing_core::command::Failed;
    use farthing_core::event::{Hold, Parties, RequestFailed, RequestMetered, codec};
    use farthing_core::ids::WalletId;
    use ulid::Ulid;

    use super::*;

    fn metered(http_status: u16, ending: Completeness) -> Settled {
        Settled::Metered(Metered {
            http_status,
            usage: None,
            ending,
            counted: None,
            raw_usage: None,
            response_id: (http_status != 0).then(|| "a response".to_owned()),
            model: None,
            provider_timestamp: None,
        })
    }

    fn failed(reason: FailureReason, http_status: Option<u16>) -> Settled {
        Settled::Failed(Failed { http_status, ..Failed::because(reason) })
    }

    fn failed_event(reason: FailureReason, http_status: Option<u16>, response_id: Option<&str>) -> Event {
        let merchant_wallet_id = WalletId::new(Ulid(1));
        Event::from(Box::new(RequestFailed {
            request_id: RequestId::new(Ulid(2)),
            parties: Parties { customer_id: None, wallet_id: None, merchant_wallet_id },
            hold: Hold::default(),
            reason,
            http_status,
            raw_usage: None,
            response_id: response_id.map(str::to_owned),
            model: None,
            spend_key: None,
        }))
    }

    fn metered_event() -> Event {
        let golden = include_str!("../../../core/tests/golden/request.metered.v1.json");
        let event = codec::decode("request.metered", 1, golden).unwrap();
        assert!(matches!(&event, Event::Request(RequestEvent::Metered(event)) if !is_free(event)));
        event
    }

    fn is_free(event: &RequestMetered) -> bool {
        event.total_request_cost.is_zero()
    }

    #[test]
    fn a_settlement_is_found_whatever_it_became() {
        use FailureReason::{
            Abandoned, CallerGone, ProviderGone, ProviderStatus, ProviderTimeout, UsageInvalid,
        };
        let given_up = Completeness::GivenUp(CallerGone);
        let ours = Some("a response");
        let timed_out = Completeness::GivenUp(ProviderTimeout);
        let whole = Completeness::Whole;
        for (settled, event, unmetered) in [
            (metered(200, whole), metered_event(), None),
            (metered(200, given_up), metered_event(), None),
            (metered(200, whole), failed_event(UsageInvalid, Some(200), ours), Some(UsageInvalid)),
            (metered(200, given_up), failed_event(CallerGone, Some(200), ours), Some(CallerGone)),
            (metered(0, given_up), failed_event(CallerGone, None, None), Some(CallerGone)),
            (metered(0, timed_out), failed_event(ProviderTimeout, None, None), Some(ProviderTimeout)),
            (failed(ProviderStatus, Some(500)), failed_event(ProviderStatus, Some(500), ours), None),
            (failed(ProviderGone, None), failed_event(ProviderGone, None, None), None),
            (failed(Abandoned, None), failed_event(Abandoned, None, None), None),
        ] {
            assert!(is_end(&settled, &event), "{settled:?} became {event:?}");
            assert_eq!(outcome(&settled, &event), unmetered, "{settled:?} became {event:?}");
        }
    }

    #[test]
    fn the_end_by_a_sweeper_is_not_taken_for_the_settlement() {
        use FailureReason::{Abandoned, CallerGone, ProviderGone, ProviderStatus, UsageInvalid};
        for (settled, event) in [
            (metered(200, Completeness::Whole), failed_event(Abandoned, None, None)),
            (metered(200, Completeness::Whole), failed_event(CallerGone, Some(200), Some("a response"))),
            (metered(200, Completeness::Whole), failed_event(UsageInvalid, Some(200), Some("another"))),
            (metered(200, Completeness::GivenUp(CallerGone)), failed_event(Abandoned, None, None)),
            (metered(0, Completeness::GivenUp(CallerGone)), failed_event(Abandoned, None, None)),
            (failed(ProviderStatus, Some(500)), failed_event(Abandoned, None, None)),
            (failed(ProviderStatus, Some(500)), failed_event(ProviderStatus, Some(404), None)),
            (failed(ProviderGone, None), metered_event()),
        ] {
            assert!(!is_end(&settled, &event), "{settled:?} did not become {event:?}");
        }
    }

    #[test]
    fn both_ends_of_a_request_are_looked_for_by_the_keys_of_their_lines() {
        let request_id = RequestId::new(Ulid(2));
        let event = failed_event(FailureReason::CallerGone, None, None);
        let fact = farthing_core::event::Fact {
            merchant_id: farthing_core::ids::MerchantId::new(Ulid(3)),
            occurred_at: DateTime::UNIX_EPOCH,
            event,
        };
        let mut line = String::new();
        record::write(&fact, &mut line);
        assert_eq!(keys(request_id, ["metered", "failed"]).map(|key| line.contains(&key)), [false, true]);
    }
}
