//! Forwarded calls, as the forward endpoint opens and ends them: with a stored response, without one, or with
//! the idempotency key released. Other clients end some of them as abandoned, as the sweeper does. Some without a key are
//! opened early, and ended without waiting for their openings.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use farthing_core::command::{
    Billing, Caller, Completeness, CustomerRef, Failed, Metered, OpenRequest, Opened, RequestSettings,
    SettleRequest, Settled,
};
use farthing_core::event::{FailureReason, ProviderKeyType};
use farthing_core::idempotency::{Claim, ClaimId};
use farthing_core::ids::{CustomerId, GatewayId, RequestId};
use farthing_core::model_price::{ListPrice, ModelPrice};
use farthing_core::pricing::SizeHint;
use farthing_core::usage::{Split, Usage};
use tokio::time::{Instant, sleep};
use ulid::Ulid;

use super::super::{ClaimEnd, Early, Error, IdempotentOutcome};
use super::client::{Answer, Asked, Client, failed};
use super::keys::{failed_call, metered, opened};
use super::merchant::{NOW, merchant_id, merchants_key};

/// The ends of calls. The reason of a failure in the log tells which end it was, so a check knows the claim.
const ENDS: [CallEnd; 5] =
    [CallEnd::Metered, CallEnd::Metered, CallEnd::Rejected, CallEnd::TimedOut, CallEnd::Unreached];

/// The longest time that a provider takes, and the longest pause between attempts to settle, in milliseconds.
const PROVIDER_MS: u64 = 500;
const RETRY_MS: u64 = 1_000;

/// The end of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallEnd {
    /// Metered; the response is stored under the key.
    Metered,
    /// The provider answered with an error; the response is stored under the key.
    Rejected,
    /// The provider did not answer; no response is stored, and the key stays used.
    TimedOut,
    /// The provider was not reached; the key is released.
    Unreached,
}

impl CallEnd {
    fn settled(self, characters: u64) -> Settled {
        let reason = match self {
            Self::Metered => {
                return Settled::Metered(Metered {
                    http_status: 200,
                    usage: Some(Usage {
                        characters: Split { input: characters, output: 0 },
                        ..Usage::default()
                    }),
                    ending: Completeness::Whole,
                    counted: None,
                    raw_usage: None,
                    response_id: None,
                    model: None,
                    provider_timestamp: None,
                });
            }
            Self::Rejected => FailureReason::ProviderStatus,
            Self::TimedOut => FailureReason::ProviderTimeout,
            Self::Unreached => FailureReason::ProviderUnreachable,
        };
        Settled::Failed(Failed::because(reason))
    }

    /// The key of the fact that ends the call.
    fn fact(self, request_id: RequestId) -> String {
        match self {
            Self::Metered => metered(request_id),
            Self::Rejected | Self::TimedOut | Self::Unreached => failed_call(request_id),
        }
    }

    /// The end of the call's claim; `None` if the claim is left as it is.
    fn closing(self, request_id: RequestId) -> Option<ClaimEnd> {
        match self {
            Self::Metered | Self::Rejected => {
                Some(ClaimEnd::Answer(self.fact(request_id).into_bytes().into()))
            }
            Self::TimedOut => None,
            Self::Unreached => Some(ClaimEnd::Release),
        }
    }
}

/// A call at a price per character, so that its cost is above or below its hold.
fn open(request_id: RequestId, customer_id: CustomerId) -> OpenRequest {
    let price = ModelPrice { per_character: Some("0.001".parse().unwrap()), ..ModelPrice::default() };
    OpenRequest {
        request_id,
        gateway_id: GatewayId::new(Ulid::from_parts(1, 4)),
        merchant_id: merchant_id(),
        caller: Caller::SecretKey(merchants_key()),
        customer: Some(CustomerRef::Id(customer_id)),
        meter: None,
        billing: Billing::Usual,
        provider: "a provider".to_owned(),
        provider_key_type: ProviderKeyType::Managed,
        endpoint: "POST https://provider.example/".to_owned(),
        model: None,
        list_price: ListPrice::Listed(price),
        metadata: BTreeMap::new(),
        size: SizeHint { input_bytes: 1, ..SizeHint::default() },
        settings: RequestSettings {
            service_charge_rate: "0.019".parse().unwrap(),
            default_hold: "0.2".parse().unwrap(),
            hold_cap: "1".parse().unwrap(),
        },
        now: NOW,
    }
}

/// Whether the command failed for a reason that may pass.
fn may_succeed_later<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::Unavailable(_) | Error::Moved | Error::Overloaded))
}

/// What a client knows that could not open a call. If the answer to an attempt was lost, the call may be open, or be opened later,
/// though the next attempt was refused: a gateway ends such a call once the opening is too late.
fn not_opened(answer: Answer, may_be_open: &AtomicBool) -> Answer {
    if may_be_open.load(Ordering::Relaxed) { Answer::Unknown } else { answer }
}

impl Client {
    /// Opens a call of a customer with money and ends it; under an idempotency key if the client uses them.
    pub(super) async fn forward(&mut self, request_id: RequestId) {
        let Some(customer_id) = self.pick(|entries| entries.payers.clone()) else { return };
        let claim = if self.habits.is_plain { None } else { Some(self.claim("/v1/forward")) };
        let claim_id = claim.as_ref().map(|claim| claim.id.clone());
        self.book.entries().calls.insert(request_id, claim_id.clone());
        if claim.is_none() && self.random.bool() {
            return self.forward_early(open(request_id, customer_id)).await;
        }
        let asked = self.choose();
        let answer = self.open(&asked, open(request_id, customer_id), claim).await;
        self.book.note(&opened(request_id), answer.clone());
        if answer != Answer::Nothing {
            self.book.entries().in_flight.insert(request_id, Instant::now());
        }
        if answer == Answer::Done(None) {
            sleep(Duration::from_millis(self.random.u64(..PROVIDER_MS))).await;
            self.end(&asked, request_id, claim_id).await;
        }
    }

    /// Opens a call early. If it is ended before its opening is known to be durable, its end proves the opening.
    async fn forward_early(&mut self, command: OpenRequest) {
        let request_id = command.request_id;
        let (asked, partition, may_be_open) = (self.choose(), self.partition(), AtomicBool::new(false));
        let early = asked.run(asked.ledger.open(partition, command, &may_be_open)).await;
        self.noted(early.as_ref().err()).await;
        let mut early = match early {
            Ok(early) => early,
            Err(error) => {
                let answer = not_opened(failed(&error), &may_be_open);
                if answer == Answer::Unknown {
                    self.book.entries().in_flight.insert(request_id, Instant::now());
                }
                return self.book.note(&opened(request_id), answer);
            }
        };
        self.book.entries().in_flight.insert(request_id, Instant::now());
        let durable = async |early: Early<Opened>| {
            let opened = asked.run(early.durable()).await;
            opened.map_or_else(|error| failed(&error), |_| Answer::Done(None))
        };
        if self.random.bool() {
            // A long response: its caller waits for the opening.
            let answer = durable(early).await;
            self.book.note(&opened(request_id), answer.clone());
            if answer == Answer::Done(None) {
                sleep(Duration::from_millis(self.random.u64(..PROVIDER_MS))).await;
                self.end(&asked, request_id, None).await;
            }
            return;
        }
        let provider_ms = [3, PROVIDER_MS][self.random.usize(..2)];
        let provider = sleep(Duration::from_millis(self.random.u64(..provider_ms)));
        let failure = asked.run(async { Err::<(), _>(early.failure().await) });
        tokio::select! {
            biased;
            failed_to_open = failure => {
                let error = failed_to_open.expect_err("a failure");
                return self.book.note(&opened(request_id), failed(&error));
            }
            () = provider => {}
        }
        if self.end(&asked, request_id, None).await == Answer::Done(None) {
            self.database.notes.count("the end of a call proved its opening");
            self.book.entries().mentioned.push(opened(request_id));
        }
        let answer = durable(early).await;
        self.book.note(&opened(request_id), answer);
    }

    async fn open(&mut self, asked: &Asked, command: OpenRequest, claim: Option<Claim>) -> Answer {
        let (partition, may_be_open) = (self.partition(), AtomicBool::new(false));
        let Some(claim) = claim else {
            let open = async { asked.ledger.open(partition, command, &may_be_open).await?.durable().await };
            let opened = asked.run(open).await;
            self.noted(opened.as_ref().err()).await;
            return opened
                .map_or_else(|error| not_opened(failed(&error), &may_be_open), |_| Answer::Done(None));
        };
        let opened = asked.run(asked.ledger.open_under_claim(partition, command, claim, &may_be_open)).await;
        self.noted(opened.as_ref().err()).await;
        match opened {
            Ok(IdempotentOutcome::Decided(Ok(_), _)) => {
                self.database.notes.count("a call was opened under a claim");
                Answer::Done(None)
            }
            Ok(IdempotentOutcome::Decided(Err(_), _)) => not_opened(Answer::Nothing, &may_be_open),
            Ok(IdempotentOutcome::Repeated(status)) => {
                self.repeated(status);
                not_opened(Answer::Nothing, &may_be_open)
            }
            Err(error) => not_opened(failed(&error), &may_be_open),
        }
    }

    /// Ends a call at the gateway that has opened it, and tries again while the ledger is unavailable. If the outcome is
    /// unknown, the gateway has ended or gives up, and the call is left to the sweeper.
    async fn end(&mut self, asked: &Asked, request_id: RequestId, claim: Option<ClaimId>) -> Answer {
        let end = ENDS[self.random.usize(..ENDS.len())];
        let settled = end.settled(self.random.u64(..400));
        let closing = claim.zip(end.closing(request_id));
        let may_have_ended = AtomicBool::new(false);
        loop {
            let command = SettleRequest { request_id, settled: settled.clone(), now: NOW };
            let settle = asked.ledger.settle(self.partition(), command, closing.clone(), &may_have_ended);
            let result = asked.run(settle).await;
            self.noted(result.as_ref().err()).await;
            let is_over = !may_succeed_later(&result);
            let answer = result.map_or_else(|error| failed(&error), |_| Answer::Done(None));
            self.book.note(&end.fact(request_id), answer.clone());
            if answer == Answer::Unknown {
                return answer;
            }
            if is_over {
                self.book.entries().in_flight.remove(&request_id);
                return answer;
            }
            self.database.notes.count("a settlement was tried again");
            sleep(Duration::from_millis(self.random.u64(..RETRY_MS))).await;
        }
    }

    /// Ends a call in flight as abandoned. Its gateway may be about to settle it.
    pub(super) async fn abandon(&mut self) {
        let Some(request_id) = self.pick_abandoned() else { return };
        let settled = Settled::Failed(Failed::because(FailureReason::Abandoned));
        let result = self.submit(SettleRequest { request_id, settled, now: NOW }).await;
        if !may_succeed_later(&result) {
            self.book.entries().in_flight.remove(&request_id);
        }
        let answer = result.map_or_else(|error| failed(&error), |_| Answer::Done(None));
        self.book.note(&failed_call(request_id), answer);
    }
}
