//! The settlement of one call: derives the command from the provider's report and submits it until it is durable.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use farthing_core::command::{Completeness, Failed, Metered, SettleRequest, Settled};
use farthing_core::event::FailureReason;
use farthing_core::idempotency::ClaimId;
use farthing_core::ids::RequestId;
use farthing_core::partition::Partition;
use farthing_log::appender::{ClaimEnd, Error};
use farthing_log::backoff::Backoff;
use farthing_telemetry::Counter;
use tokio_util::sync::CancellationToken;

use super::usage::{ReportedUsage, UsageReport};
use crate::app::App;
use crate::providers::UsageLimit;

/// The first and the longest pause between attempts.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// The failures of a settlement for a reason of its own, not the ledger's, after which it is given up. The pauses between
/// them add up to 3 s.
const MAX_FAILURES: u32 = 10;

/// Why a call could not be settled. Its response must not be completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unsettled {
    /// Another gateway ended it as abandoned, because this one sent no heartbeat.
    #[error("another gateway ended the request before it was settled")]
    Ended,
    /// This process stops.
    #[error("the gateway is stopping")]
    Stopping,
    /// The settlement failed again and again. The request has ended as failed, uncharged.
    #[error("the request cannot be settled")]
    Unsettleable,
}

/// How a provider's response ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseEnd {
    /// The provider completed it.
    Complete,
    /// The provider broke it off.
    Interrupted,
    /// The gateway closed the provider's connection before the end. A call that is not metered then fails for this reason.
    GivenUp(FailureReason),
}

impl ResponseEnd {
    /// The caller disconnected, or the response was held up for so long that the provider broke it off: its caller read
    /// slowly, or it waited to be converted.
    pub(super) const CALLER_GONE: Self = Self::GivenUp(FailureReason::CallerGone);
    /// The provider was silent for too long, or the gateway stops.
    pub(super) const STOPPED_WAITING: Self = Self::GivenUp(FailureReason::ProviderGone);
}

/// The settlement of a provider's response with `status`. A usage beyond `limit` is not believed.
pub(crate) fn settle(
    status: http::StatusCode,
    report: UsageReport,
    limit: UsageLimit,
    end: ResponseEnd,
) -> Settled {
    let http_status = status.as_u16();
    let UsageReport {
        reported,
        is_preliminary,
        is_partly_read,
        raw_usage,
        response_id,
        model,
        timestamp,
        streamed_text,
    } = report;
    let failed = |reason, raw_usage| {
        Settled::Failed(Failed {
            reason,
            http_status: Some(http_status),
            raw_usage,
            response_id: response_id.clone(),
            model: model.clone(),
        })
    };
    if !status.is_success() {
        return failed(FailureReason::ProviderStatus, None);
    }
    // What was sent counts with an answer, or with one that its caller left. Of an answer that does not come to its end
    // otherwise, and reports nothing, it is not known what the provider bills.
    let counts_what_was_sent = matches!(end, ResponseEnd::Complete | ResponseEnd::CALLER_GONE);
    let reported = match reported {
        ReportedUsage::Nothing | ReportedUsage::Unread if counts_what_was_sent => {
            limit.with_what_was_sent(None).map_or(reported, ReportedUsage::Usage)
        }
        ReportedUsage::Usage(usage) => {
            limit.with_what_was_sent(Some(usage)).map_or(reported, ReportedUsage::Usage)
        }
        ReportedUsage::Nothing
        | ReportedUsage::Unread
        | ReportedUsage::Invalid
        | ReportedUsage::Inconsistent => reported,
    };
    let unread = reported == ReportedUsage::Unread;
    let usage = match (reported, end) {
        (ReportedUsage::Invalid, _) => return failed(FailureReason::UsageInvalid, raw_usage),
        (ReportedUsage::Nothing | ReportedUsage::Unread, ResponseEnd::Interrupted) => {
            return failed(FailureReason::ProviderGone, None);
        }
        (ReportedUsage::Nothing | ReportedUsage::Unread, ResponseEnd::Complete | ResponseEnd::GivenUp(_)) => {
            None
        }
        (ReportedUsage::Inconsistent, _) => None,
        (ReportedUsage::Usage(usage), _) => Some(usage),
    };
    let is_implausible =
        reported == ReportedUsage::Inconsistent || usage.is_some_and(|usage| !limit.permits(&usage));
    let ending = match end {
        _ if is_implausible => Completeness::Implausible,
        ResponseEnd::Complete if unread => Completeness::Unread,
        // The usage of the output may stand in what could not be read.
        ResponseEnd::Complete if is_preliminary && is_partly_read => {
            Completeness::GivenUp(FailureReason::ProviderGone)
        }
        ResponseEnd::Complete => Completeness::Whole,
        ResponseEnd::GivenUp(reason) if usage.is_none() || is_preliminary => Completeness::GivenUp(reason),
        ResponseEnd::Interrupted | ResponseEnd::GivenUp(_) => Completeness::Partial,
    };
    let counted = match ending {
        Completeness::GivenUp(_) | Completeness::Unread | Completeness::Implausible => {
            limit.counted(streamed_text)
        }
        Completeness::Whole | Completeness::Partial => None,
    };
    Settled::Metered(Metered {
        http_status,
        usage: usage.filter(|_| !is_implausible),
        ending,
        counted,
        raw_usage,
        response_id,
        model,
        provider_timestamp: timestamp,
    })
}

/// The settlement of a call that was sent, and given up for `reason` before the provider's response.
pub(crate) fn given_up_before_response(reason: FailureReason) -> Settled {
    Settled::Metered(Metered {
        http_status: 0,
        usage: None,
        ending: Completeness::GivenUp(reason),
        counted: None,
        raw_usage: None,
        response_id: None,
        model: None,
        provider_timestamp: None,
    })
}

/// Counts and logs a call that is left without its settlement, with the facts that only this process knows. Its
/// `request.opened` has the terms for a charge by hand. Only those are counted that may be charged.
pub(super) fn leave_unsettled(request_id: RequestId, settled: &Settled, unsettled: &Counter) {
    if let Settled::Metered(_) = settled {
        unsettled.inc();
    }
    log_unsettled(request_id, settled);
}

/// Logs what only this process knows of a call.
pub(super) fn log_unsettled(request_id: RequestId, settled: &Settled) {
    match settled {
        Settled::Metered(Metered {
            http_status,
            usage,
            ending,
            counted,
            raw_usage,
            response_id,
            model,
            provider_timestamp,
        }) => {
            let usage = usage.as_ref().and_then(|usage| serde_json::to_string(usage).ok());
            tracing::error!(
                event = "forward.call_left_unsettled",
                %request_id, http_status, usage, ?ending, ?counted, raw_usage, response_id, model, ?provider_timestamp,
                "a call is left unsettled: charge it by the terms in its request.opened, unless its request.metered is in the log"
            );
        }
        Settled::Failed(Failed { reason, http_status, raw_usage, response_id, model }) => {
            tracing::error!(
                event = "forward.failed_call_left_unsettled",
                %request_id, ?reason, http_status, raw_usage, response_id, model,
                "a failed call is left unsettled: nothing is to be charged"
            );
        }
    }
}

/// Submits the settlement until it is durable, together with the closing of the call's idempotency key. Returns why a call
/// failed that was to be metered.
pub(super) async fn until_durable(
    app: &Arc<App>,
    partition: Partition,
    request_id: RequestId,
    settled: &Settled,
    closing: Option<(ClaimId, ClaimEnd)>,
    stop: CancellationToken,
) -> Result<Option<FailureReason>, Unsettled> {
    let may_have_ended = Arc::new(AtomicBool::new(false));
    let submit = |settled, closing: Option<(ClaimId, ClaimEnd)>| {
        let (app, may_have_ended) = (Arc::clone(app), Arc::clone(&may_have_ended));
        async move {
            let command = SettleRequest { request_id, settled, now: app.now() };
            app.ledger.settle(partition, command, closing, &may_have_ended).await
        }
    };
    settle_or_fail((request_id, settled), closing, &app.metrics.forward.unsettled, stop, submit).await
}

/// Settles the call by `submit`. A settlement that fails again and again raises an alarm and ends the call as failed,
/// which frees its hold. A call that is left unsettled is counted; one that the ledger does not know as open may never have
/// been, which the caller finds out.
async fn settle_or_fail<S, F>(
    (request_id, settled): (RequestId, &Settled),
    closing: Option<(ClaimId, ClaimEnd)>,
    unsettled: &Counter,
    stop: CancellationToken,
    submit: S,
) -> Result<Option<FailureReason>, Unsettled>
where
    S: Fn(Settled, Option<(ClaimId, ClaimEnd)>) -> F,
    F: Future<Output = Result<Option<FailureReason>, Error>>,
{
    let why = match retried(request_id, &stop, || submit(settled.clone(), closing.clone())).await {
        Ok(unmetered) => return Ok(unmetered),
        Err(GivenUp::Refused) => return Err(Unsettled::Ended),
        Err(GivenUp::Stopping) => {
            leave_unsettled(request_id, settled, unsettled);
            return Err(Unsettled::Stopping);
        }
        Err(GivenUp::Failing(why)) => why,
    };
    tracing::error!(
        event = "settlement.unsettleable",
        %request_id,
        why,
        "a settlement fails again and again; the request ends as failed and is not charged"
    );
    leave_unsettled(request_id, settled, unsettled);
    let failed = Settled::Failed(unsettleable(settled));
    match retried(request_id, &stop, || submit(failed.clone(), None)).await {
        Ok(_) | Err(GivenUp::Refused) => {}
        Err(GivenUp::Stopping) => return Err(Unsettled::Stopping),
        Err(GivenUp::Failing(why)) => tracing::error!(
            event = "settlement.hold_kept",
            %request_id,
            why,
            "a request can neither be settled nor ended as failed; its hold is kept"
        ),
    }
    Err(Unsettled::Unsettleable)
}

/// The end of a call whose settlement fails. It holds no text of the provider, which may be the cause.
fn unsettleable(settled: &Settled) -> Failed {
    let (http_status, usage) = match settled {
        Settled::Metered(metered) => (metered.status(), metered.usage.as_ref()),
        Settled::Failed(Failed { http_status, .. }) => (*http_status, None),
    };
    let raw_usage = usage.and_then(|usage| serde_json::to_string(usage).ok());
    Failed { http_status, raw_usage, ..Failed::because(FailureReason::Unsettleable) }
}

/// Why a settlement is not submitted any more.
#[derive(Debug)]
enum GivenUp {
    /// The ledger refuses it.
    Refused,
    /// This process stops.
    Stopping,
    /// It failed [`MAX_FAILURES`] times for a reason of its own.
    Failing(String),
}

/// Submits until it succeeds, is refused, or fails too often. Retries for ever while the ledger is unavailable, until
/// `stop`.
async fn retried<T, F>(
    request_id: RequestId,
    stop: &CancellationToken,
    submit: impl Fn() -> F,
) -> Result<T, GivenUp>
where
    F: Future<Output = Result<T, Error>>,
{
    let (mut backoff, mut failures) = (Backoff::new(PAUSES.0, PAUSES.1), 0);
    loop {
        let error = match submit().await {
            Ok(outcome) => return Ok(outcome),
            Err(Error::Refused(refusal)) => {
                tracing::error!(event = "forward.settlement_refused", %request_id, %refusal, "the settlement was refused");
                return Err(GivenUp::Refused);
            }
            Err(Error::Internal(why)) if failures + 1 == MAX_FAILURES => return Err(GivenUp::Failing(why)),
            Err(error @ Error::Internal(_)) => {
                failures += 1;
                error
            }
            Err(error @ (Error::Unavailable(_) | Error::Overloaded | Error::Unknown(_) | Error::Moved)) => {
                error
            }
        };
        tracing::warn!(event = "forward.settlement_retried", %request_id, %error, "the settlement is retried");
        tokio::select! {
            () = tokio::time::sleep(backoff.next_delay()) => {}
            () = stop.cancelled() => return Err(GivenUp::Stopping),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use farthing_core::command::RequestRefusal;
    use farthing_core::pricing::Bound;
    use farthing_core::size_hint::SizeHint;
    use farthing_core::usage::{Counted, Split, Usage};
    use tokio::time::Instant;

    use super::*;

    /// What was submitted, and how often; and the calls that were counted as unsettled.
    #[derive(Default)]
    struct Submitted(Mutex<Vec<Settled>>, Counter);

    impl Submitted {
        /// Settles a metered call under a ledger that answers the attempts, by their number, with `answer`.
        async fn settle(
            &self,
            answer: impl Fn(usize, &Settled) -> Result<(), Error>,
        ) -> Result<(), Unsettled> {
            self.settle_as(&metered(), answer, CancellationToken::new()).await
        }

        /// Settles a call as `settled`, until `stop`.
        async fn settle_as(
            &self,
            settled: &Settled,
            answer: impl Fn(usize, &Settled) -> Result<(), Error>,
            stop: CancellationToken,
        ) -> Result<(), Unsettled> {
            let submit = |settled: Settled, _| {
                let mut all = self.0.lock().unwrap();
                let answer = answer(all.len(), &settled);
                all.push(settled);
                async move { answer.map(|()| None) }
            };
            let request_id = RequestId::new(ulid::Ulid::nil());
            settle_or_fail((request_id, settled), None, &self.1, stop, submit).await.map(|_| ())
        }

        fn all(&self) -> Vec<Settled> {
            self.0.lock().unwrap().clone()
        }
    }

    fn tokens(input: u64, output: u64) -> Usage {
        Usage { tokens: Split { input, output }, ..Usage::default() }
    }

    fn report(reported: ReportedUsage) -> UsageReport {
        UsageReport {
            reported,
            is_preliminary: false,
            is_partly_read: false,
            raw_usage: None,
            response_id: None,
            model: None,
            timestamp: None,
            streamed_text: 0,
        }
    }

    /// The usage and the ending of a successful response; or the reason why the call fails.
    fn settled_as(
        report: UsageReport,
        limit: UsageLimit,
        end: ResponseEnd,
    ) -> Result<(Option<Usage>, Completeness), FailureReason> {
        match settle(http::StatusCode::OK, report, limit, end) {
            Settled::Metered(metered) => Ok((metered.usage, metered.ending)),
            Settled::Failed(failed) => Err(failed.reason),
        }
    }

    #[test]
    fn the_usage_that_a_stream_begins_with_counts_however_far_the_stream_was_read() {
        use FailureReason::{CallerGone, ProviderGone};
        let usage = tokens(9, 1);
        for (is_partly_read, end, ending) in [
            (false, ResponseEnd::Complete, Completeness::Whole),
            (true, ResponseEnd::Complete, Completeness::GivenUp(ProviderGone)),
            (false, ResponseEnd::Interrupted, Completeness::Partial),
            (true, ResponseEnd::Interrupted, Completeness::Partial),
            (false, ResponseEnd::CALLER_GONE, Completeness::GivenUp(CallerGone)),
            (true, ResponseEnd::CALLER_GONE, Completeness::GivenUp(CallerGone)),
            (true, ResponseEnd::STOPPED_WAITING, Completeness::GivenUp(ProviderGone)),
        ] {
            let report =
                UsageReport { is_preliminary: true, is_partly_read, ..report(ReportedUsage::Usage(usage)) };
            let settled = settled_as(report, UsageLimit::default(), end);
            assert_eq!(settled, Ok((Some(usage), ending)), "{is_partly_read} {end:?}");
        }
        // One that is final counts for the whole answer.
        let report = UsageReport { is_partly_read: true, ..report(ReportedUsage::Usage(usage)) };
        let settled = settled_as(report, UsageLimit::default(), ResponseEnd::Complete);
        assert_eq!(settled, Ok((Some(usage), Completeness::Whole)));
    }

    #[test]
    fn what_was_sent_counts_unless_the_provider_breaks_off_or_is_silent() {
        use FailureReason::{CallerGone, ProviderGone};
        let limit = UsageLimit::default().with_sent_characters(Some(7));
        let with_characters = |usage: Usage| Usage { characters: Split { input: 7, output: 0 }, ..usage };
        let sent = Some(with_characters(Usage::default()));
        for (end, settled) in [
            (ResponseEnd::Complete, Ok((sent, Completeness::Whole))),
            (ResponseEnd::CALLER_GONE, Ok((sent, Completeness::Partial))),
            (ResponseEnd::Interrupted, Err(ProviderGone)),
            (ResponseEnd::STOPPED_WAITING, Ok((None, Completeness::GivenUp(ProviderGone)))),
        ] {
            for reported in [ReportedUsage::Nothing, ReportedUsage::Unread] {
                assert_eq!(settled_as(report(reported), limit, end), settled, "{reported:?} {end:?}");
            }
        }
        // A provider that reports what it used has made the answer.
        let usage = tokens(1, 2);
        for (end, ending) in [
            (ResponseEnd::Complete, Completeness::Whole),
            (ResponseEnd::Interrupted, Completeness::Partial),
            (ResponseEnd::STOPPED_WAITING, Completeness::Partial),
        ] {
            let settled = settled_as(report(ReportedUsage::Usage(usage)), limit, end);
            assert_eq!(settled, Ok((Some(with_characters(usage)), ending)), "{end:?}");
        }
        // Without characters that were sent, a call of which nothing was reported.
        for (end, settled) in [
            (ResponseEnd::Complete, Ok((None, Completeness::Whole))),
            (ResponseEnd::CALLER_GONE, Ok((None, Completeness::GivenUp(CallerGone)))),
            (ResponseEnd::Interrupted, Err(ProviderGone)),
        ] {
            let nothing = report(ReportedUsage::Nothing);
            assert_eq!(settled_as(nothing, UsageLimit::default(), end), settled, "{end:?}");
        }
    }

    #[test]
    fn the_characters_of_speech_that_falls_silent_are_counted_if_its_hold_may_be_less_than_its_cost() {
        let size = SizeHint { input_characters: Some(7), ..SizeHint::default() };
        let sent = UsageLimit::default().with_sent_characters(Some(7));
        let exact = sent.counting(&size, Bound::Exact("0.07".parse().unwrap()));
        let unbounded = sent.counting(&size, Bound::Unknown);
        let of_characters = Some(Counted { characters: 7, ..Counted::default() });
        for (limit, reported, end, counted) in [
            (unbounded, ReportedUsage::Nothing, ResponseEnd::STOPPED_WAITING, of_characters),
            (unbounded, ReportedUsage::Unread, ResponseEnd::STOPPED_WAITING, of_characters),
            (unbounded, ReportedUsage::Inconsistent, ResponseEnd::Complete, of_characters),
            // They are its usage then.
            (unbounded, ReportedUsage::Nothing, ResponseEnd::CALLER_GONE, None),
            (unbounded, ReportedUsage::Nothing, ResponseEnd::Complete, None),
            // The hold is its price.
            (exact, ReportedUsage::Nothing, ResponseEnd::STOPPED_WAITING, None),
        ] {
            match settle(http::StatusCode::OK, report(reported), limit, end) {
                Settled::Metered(metered) => assert_eq!(metered.counted, counted, "{reported:?} {end:?}"),
                Settled::Failed(failed) => panic!("{reported:?} {end:?}: {failed:?}"),
            }
        }
        // Without an answer the provider may have refused the call.
        let Settled::Metered(unanswered) = given_up_before_response(FailureReason::ProviderTimeout) else {
            panic!("it is metered");
        };
        assert_eq!(unanswered.counted, None);
    }

    fn metered() -> Settled {
        Settled::Metered(Metered {
            http_status: 200,
            usage: Some(Usage::default()),
            ending: Completeness::Whole,
            counted: None,
            raw_usage: None,
            response_id: Some("a provider's text".to_owned()),
            model: Some("another".to_owned()),
            provider_timestamp: None,
        })
    }

    fn internal() -> Result<(), Error> {
        Err(Error::Internal("a constraint".to_owned()))
    }

    fn unavailable() -> Result<(), Error> {
        Err(Error::Unavailable("Postgres is away".to_owned()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_settlement_is_retried_for_as_long_as_the_ledger_is_away() {
        let submitted = Submitted::default();
        let answer = |attempt, _: &Settled| if attempt < 5_000 { unavailable() } else { Ok(()) };
        assert_eq!(submitted.settle(answer).await, Ok(()));
        assert_eq!(submitted.all(), vec![metered(); 5_001]);
    }

    #[tokio::test]
    async fn why_a_call_failed_that_was_to_be_metered_is_passed_on() {
        for unmetered in [None, Some(FailureReason::UsageInvalid)] {
            let (call, stop) = ((RequestId::new(ulid::Ulid::nil()), &metered()), CancellationToken::new());
            let submit = |_, _| async move { Ok(unmetered) };
            let settled = settle_or_fail(call, None, &Counter::default(), stop, submit).await;
            assert_eq!(settled, Ok(unmetered));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_settlement_that_fails_by_itself_ends_the_request_as_failed() {
        let (submitted, started) = (Submitted::default(), Instant::now());
        let answer = |_, settled: &Settled| match settled {
            Settled::Metered(_) => internal(),
            Settled::Failed(_) => Ok(()),
        };
        assert_eq!(submitted.settle(answer).await, Err(Unsettled::Unsettleable));
        let all = submitted.all();
        assert_eq!(all.len(), MAX_FAILURES as usize + 1);
        let Some(Settled::Failed(failed)) = all.last() else { panic!("{all:?}") };
        assert_eq!((failed.reason, failed.http_status), (FailureReason::Unsettleable, Some(200)));
        assert_eq!(failed.raw_usage, serde_json::to_string(&Usage::default()).ok());
        assert_eq!((&failed.response_id, &failed.model), (&None, &None));
        assert!((3..5).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn failures_of_the_ledger_do_not_count() {
        let submitted = Submitted::default();
        let answer = |attempt: usize, _: &Settled| match attempt {
            0..9 => internal(),
            9..100 => unavailable(),
            _ => Ok(()),
        };
        assert_eq!(submitted.settle(answer).await, Ok(()));
        assert!(submitted.all().iter().all(|settled| *settled == metered()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_cannot_end_as_failed_either_is_given_up() {
        let submitted = Submitted::default();
        assert_eq!(submitted.settle(|_, _| internal()).await, Err(Unsettled::Unsettleable));
        assert_eq!(submitted.all().len(), 2 * MAX_FAILURES as usize);
        assert_eq!(submitted.1.get(), 1, "it is counted once");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_counted_as_unsettled_if_it_may_be_charged_and_was_open() {
        let failed = Settled::Failed(Failed::because(FailureReason::Abandoned));
        let stopped = || {
            let stop = CancellationToken::new();
            stop.cancel();
            stop
        };
        let ended = |_: usize, _: &Settled| Err(Error::Refused(RequestRefusal::NotOpen.into()));
        let submitted = Submitted::default();
        for (settled, counted) in [(metered(), 1), (failed, 1)] {
            let outcome = submitted.settle_as(&settled, |_, _| unavailable(), stopped()).await;
            assert_eq!((outcome, submitted.1.get()), (Err(Unsettled::Stopping), counted));
            let outcome = submitted.settle_as(&settled, ended, CancellationToken::new()).await;
            assert_eq!(
                (outcome, submitted.1.get()),
                (Err(Unsettled::Ended), counted),
                "it may never have been open"
            );
        }
        assert_eq!(submitted.settle(|_, _| Ok(())).await, Ok(()));
        assert_eq!(submitted.1.get(), 1);
    }
}
