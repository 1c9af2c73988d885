//! What a gateway does when the leader that it has asked does not answer.

use std::collections::VecDeque;
use std::future::pending;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

use chrono::{DateTime, Utc};
use farthing_core::command::{
    Billing, Caller, Failed as FailedCall, MerchantRefusal, RequestSettings, RevokeSecretKey, Revoker,
    Settled,
};
use farthing_core::event::{Event, FailureReason, Hold, ProviderKeyType};
use farthing_core::idempotency::Scope;
use farthing_core::ids::{GatewayId, RequestId, SecretKeyId};
use farthing_core::meter::OnDisconnect;
use farthing_core::model_price::ListPrice;
use farthing_core::pricing::SizeHint;
use farthing_core::secret::ServerKey;
use serde_json::value::RawValue;
use ulid::Ulid;

use super::peer::{Work, raw};
use super::recent_calls::Attempt;
use super::remote::GRACE_ONCE;
use super::settled::{Found, Sought};
use super::unconfirmed::Unknown;
use super::*;

const PARTITION: Partition = Partition::new(0);

/// An answer of a gateway; `None` if it never answers.
type Answer = Option<Result<Reply, NoReply>>;

/// Other gateways, with the answers that they give in turn, and what each was asked.
#[derive(Debug, Default)]
struct Scripted {
    answers: Mutex<VecDeque<Answer>>,
    asked: Mutex<Vec<(String, Request)>>,
    settlement_takes: Option<Duration>,
}

impl Peers for Scripted {
    fn send(
        &self,
        address: String,
        request: Request,
    ) -> Pin<Box<dyn Future<Output = Result<Reply, NoReply>> + Send + '_>> {
        let is_settlement = matches!(request.work, Work::Settle(_));
        self.asked.lock().unwrap().push((address, request));
        let answer = self.answers.lock().unwrap().pop_front().flatten();
        let takes = self.settlement_takes.filter(|_| is_settlement);
        Box::pin(async move {
            tokio::time::sleep(takes.unwrap_or_default()).await;
            match answer {
                Some(answer) => answer,
                None => pending().await,
            }
        })
    }
}

fn leader(address: &str, term: i64) -> Route {
    Route::There(Elsewhere { address: address.to_owned(), term, delivers: true })
}

/// A ledger whose only partition is led as `routes` says, and the other gateways.
fn ledger(
    answers: impl IntoIterator<Item = Answer>,
    route: Route,
) -> (Ledger, watch::Sender<Arc<Routes>>, Arc<Scripted>) {
    over(Scripted { answers: Mutex::new(answers.into_iter().collect()), ..Scripted::default() }, route)
}

/// As [`ledger`]; the other gateways answer a settlement a second after they have decided it.
fn slow_to_settle(
    answers: impl IntoIterator<Item = Answer>,
    route: Route,
) -> (Ledger, watch::Sender<Arc<Routes>>, Arc<Scripted>) {
    let answers = Mutex::new(answers.into_iter().collect());
    let settlement_takes = Some(Duration::from_secs(1));
    over(Scripted { answers, settlement_takes, ..Scripted::default() }, route)
}

fn over(peers: Scripted, route: Route) -> (Ledger, watch::Sender<Arc<Routes>>, Arc<Scripted>) {
    let reads = reads::pool("postgres://nobody@127.0.0.1:1/none", 1).unwrap();
    searching(Arc::new(ReadPool::new(reads)), peers, route)
}

/// As [`over`], with a log that can be searched.
fn searching(
    log: Arc<dyn CallLog>,
    peers: Scripted,
    route: Route,
) -> (Ledger, watch::Sender<Arc<Routes>>, Arc<Scripted>) {
    let peers = Arc::new(peers);
    let (routes, known) = watch::channel(Arc::new(Routes::of_one(route)));
    let ledger = Ledger::over(
        Partitions::new(1).unwrap(),
        Vec::new(),
        known,
        log,
        Arc::default(),
        Arc::clone(&peers) as Arc<dyn Peers>,
    );
    (ledger, routes, peers)
}

fn opening() -> OpenRequest {
    OpenRequest {
        request_id: RequestId::new(Ulid(1)),
        gateway_id: GatewayId::new(Ulid(2)),
        merchant_id: MerchantId::new(Ulid(3)),
        caller: Caller::SecretKey(ServerKey::random().hash("a key")),
        customer: None,
        meter: None,
        billing: Billing::Usual,
        provider: "a provider".to_owned(),
        provider_key_type: ProviderKeyType::Managed,
        endpoint: "POST https://provider.example/".to_owned(),
        model: None,
        list_price: ListPrice::Unlisted,
        metadata: std::collections::BTreeMap::new(),
        size: SizeHint { input_bytes: 1, ..SizeHint::default() },
        settings: RequestSettings {
            service_charge_rate: "0.019".parse().unwrap(),
            default_hold: "0.2".parse().unwrap(),
            hold_cap: "1".parse().unwrap(),
        },
        now: DateTime::UNIX_EPOCH,
    }
}

fn opened() -> Opened {
    Opened {
        merchant_id: MerchantId::new(Ulid(3)),
        hold: Hold::default(),
        on_disconnect: OnDisconnect::Complete,
        customer_id: None,
        spend_key_id: None,
    }
}

fn unknown() -> Result<Reply, NoReply> {
    Err(NoReply::Unknown("the connection was reset".to_owned()))
}

#[tokio::test(start_paused = true)]
async fn a_repeated_opening_of_a_call_that_a_sweeper_has_ended_is_refused() {
    let done = Some(Ok(raw(&Ok::<(), Refusal>(()))));
    let (ledger, _routes, _) = ledger([done], leader("another", 1));
    let request_id = opening().request_id;
    let opens =
        async || ledger.unless_late(request_id, Attempt::Checked, chrono::TimeDelta::zero(), async {}).await;
    assert!(opens().await.is_some());
    let settled = Settled::Failed(FailedCall::because(FailureReason::Abandoned));
    let end = SettleRequest { request_id: opening().request_id, settled, now: DateTime::UNIX_EPOCH };
    assert_eq!(ledger.end_abandoned(PARTITION, end).await, Ok(()));
    assert!(opens().await.is_none(), "it would be opened a second time");
}

/// Publishes another leader a second from now. Returns when that is.
fn moves(routes: watch::Sender<Arc<Routes>>, to: Route) -> Instant {
    let at = Instant::now() + Duration::from_secs(1);
    tokio::spawn(async move {
        tokio::time::sleep_until(at).await;
        routes.send_replace(Arc::new(Routes::of_one(to)));
        pending::<()>().await;
    });
    at
}

#[tokio::test(start_paused = true)]
async fn an_opening_is_sent_to_the_next_leader_as_soon_as_the_partition_has_moved() {
    let (ledger, routes, peers) = ledger([None, Some(Ok(raw(&Ok(opened()))))], leader("hangs", 1));
    let moved_at = moves(routes, leader("next", 2));
    let may_be_open = AtomicBool::new(false);
    let answer = ledger.open(PARTITION, opening(), &may_be_open).await.unwrap();
    assert_eq!(*answer.outcome(), opened());
    assert!(moved_at.elapsed() < Duration::from_millis(100), "{:?}", moved_at.elapsed());
    let asked = peers.asked.lock().unwrap();
    let asked: Vec<_> =
        asked.iter().map(|(to, request)| (to.as_str(), request.term, &request.work)).collect();
    assert!(
        matches!(asked[..], [("hangs", 1, Work::OpenEarly(_)), ("next", 2, Work::OpenAgain(_))]),
        "{asked:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_opening_elsewhere_is_durable_once_its_leader_knows_the_call() {
    let state = |state: &str| RawValue::from_string(state.to_owned()).unwrap();
    // Of another release.
    let known = Reply::States { shape: i16::MAX, states: vec![Some(state("{}"))] };
    let overloaded = Reply::Failed(Failed::Overloaded);
    let answers = [Some(Ok(raw(&Ok(opened())))), Some(Ok(overloaded)), Some(Ok(known))];
    let (ledger, _routes, peers) = ledger(answers, leader("a", 1));
    let early = ledger.open(PARTITION, opening(), &AtomicBool::new(false)).await.unwrap();
    assert_eq!(peers.asked.lock().unwrap().len(), 1, "nothing is asked before it must be known");
    assert_eq!(early.durable().await, Ok(opened()));
    let asked = peers.asked.lock().unwrap();
    let asked: Vec<_> = asked.iter().map(|(_, request)| &request.work).collect();
    assert!(
        matches!(asked[..], [Work::OpenEarly(_), Work::States { .. }, Work::States { .. }]),
        "no command: {asked:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_be_reached_is_named_in_the_error() {
    let unreachable = || Some(Err(NoReply::NotSent("refused".to_owned())));
    let answers = std::iter::repeat_with(unreachable).take(1_000);
    let (ledger, _routes, _peers) = ledger(answers, leader("http://gateway-2:8090", 1));
    let opened = ledger.open(PARTITION, opening(), &AtomicBool::new(false)).await.map(drop);
    let Err(Error::Unavailable(why)) = opened else { panic!("{opened:?}") };
    assert!(why.contains("http://gateway-2:8090"), "{why}");
}

/// The others take such a gateway for dead, and end its calls as abandoned: without a charge.
#[tokio::test(start_paused = true)]
async fn a_gateway_that_cannot_read_the_leases_for_long_opens_no_call_elsewhere() {
    let answers = std::iter::repeat_with(|| Some(Ok(raw(&Ok(opened()))))).take(2);
    let (ledger, routes, peers) = ledger(answers, leader("a", 1));
    let open = async || ledger.open(PARTITION, opening(), &AtomicBool::new(false)).await.map(drop);
    let claim = || {
        let scope = Scope { merchant_id: MerchantId::new(Ulid(3)), method: "POST", path: "/v1/forward" };
        Claim::new(&ServerKey::random(), scope, "a key", &[b"a body"])
    };
    routes.send_modify(|routes| *routes = Arc::new(routes.unread()));
    assert_eq!(open().await, Ok(()), "a round may fail");
    tokio::time::advance(OPENS_UNREAD).await;
    routes.send_modify(|routes| *routes = Arc::new(routes.unread()));
    assert!(matches!(open().await, Err(Error::Unavailable(_))));
    let may_be_open = AtomicBool::new(false);
    let under_claim = ledger.open_under_claim(PARTITION, opening(), claim(), &may_be_open).await;
    assert!(matches!(under_claim, Err(Error::Unavailable(_))), "{under_claim:?}");
    assert_eq!(peers.asked.lock().unwrap().len(), 1, "nobody was asked");
    routes.send_replace(Arc::new(Routes::of_one(leader("a", 1))));
    assert_eq!(open().await, Ok(()), "the leases are read again");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_the_next_leader_does_not_know_is_not_opened_again_unread() {
    let nothing = || Some(Ok(Reply::States { shape: 1, states: vec![None] }));
    let opened_there = Some(Ok(raw(&Ok(opened()))));
    let answers = std::iter::once(opened_there).chain(std::iter::repeat_with(nothing).take(1_000));
    // The log cannot be read.
    let (ledger, _routes, peers) = ledger(answers, leader("a", 1));
    let mut early = ledger.open(PARTITION, opening(), &AtomicBool::new(false)).await.unwrap();
    let failure = early.failure().await;
    assert!(matches!(failure, Error::Unknown(_)), "{failure:?}");
    let asked = |work: &Work| matches!(work, Work::States { .. });
    let asked = peers.asked.lock().unwrap().iter().filter(|(_, request)| asked(&request.work)).count();
    assert!(asked > 1, "it is asked again");
    assert_eq!(peers.asked.lock().unwrap().len(), 1 + asked, "no further opening was sent");
    let refusal = Refusal::Request(RequestRefusal::NotOpen);
    let again = ledger.is_opened_again(PARTITION, opening().request_id, &refusal).await;
    assert!(matches!(again, Err(Error::Unavailable(_))), "its settlement tries again: {again:?}");
    drop(early);
    assert_eq!(ledger.open_lost(PARTITION, opening().request_id).await, Ok(Unknown::InDoubt), "forgotten");
}

/// A log with the openings of all calls, and without their ends.
#[derive(Debug, Default)]
struct Openings {
    searched: AtomicUsize,
}

impl CallLog for Openings {
    fn end_of(&self, _: Partition, _: RequestId) -> Found<'_, Option<Event>> {
        Box::pin(async { Ok(None) })
    }

    fn opening_of(&self, _: Partition, _: RequestId, _: DateTime<Utc>) -> Found<'_, Sought> {
        self.searched.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Ok(Sought::Found) })
    }
}

/// It has come after the leader was asked, or the call has ended.
#[tokio::test(start_paused = true)]
async fn an_opening_that_is_found_in_the_log_is_looked_up_once_and_its_leader_is_asked_again() {
    for is_open in [true, false] {
        let states = |state: Option<&str>| {
            let state = state.map(|state| RawValue::from_string(state.to_owned()).unwrap());
            Some(Ok(Reply::States { shape: i16::MAX, states: vec![state] }))
        };
        let opened_there = Some(Ok(raw(&Ok(opened()))));
        let answers = [opened_there, states(None), states(is_open.then_some("{}"))];
        let log = Arc::new(Openings::default());
        let peers = Scripted { answers: Mutex::new(answers.into()), ..Scripted::default() };
        let (ledger, _routes, _) = searching(Arc::clone(&log) as Arc<dyn CallLog>, peers, leader("a", 1));
        let early = ledger.open(PARTITION, opening(), &AtomicBool::new(false)).await.unwrap();
        let refusal = Refusal::Request(RequestRefusal::NotOpen);
        for _ in 0..2 {
            // The opening may have come after the settlement that was refused.
            let again = ledger.is_opened_again(PARTITION, opening().request_id, &refusal).await;
            assert_eq!(again, Ok(true));
        }
        let durable = early.durable().await;
        assert!(if is_open { durable == Ok(opened()) } else { matches!(durable, Err(Error::Unknown(_))) });
        assert_eq!(log.searched.load(Ordering::Relaxed), 1);
    }
}

/// The opening of a call is lost. Its settlement is refused before it is opened again, and the refusal arrives after.
#[tokio::test(start_paused = true)]
async fn a_settlement_that_was_refused_before_its_call_was_opened_again_is_submitted_again() {
    let state = RawValue::from_string("{}".to_owned()).unwrap();
    let known = Reply::States { shape: i16::MAX, states: vec![Some(state)] };
    let refused = raw::<()>(&Err(Refusal::Request(RequestRefusal::NotOpen)));
    let answers = [raw(&Ok(opened())), refused, known, raw::<()>(&Ok(()))].map(|reply| Some(Ok(reply)));
    let (ledger, _routes, peers) = slow_to_settle(answers, leader("a", 1));
    let early = ledger.open(PARTITION, opening(), &AtomicBool::new(false)).await.unwrap();
    let settlement = SettleRequest {
        request_id: opening().request_id,
        settled: Settled::Failed(FailedCall::because(FailureReason::ProviderGone)),
        now: DateTime::UNIX_EPOCH,
    };
    let may_have_ended = AtomicBool::new(false);
    let settled = ledger.settle(PARTITION, settlement, None, &may_have_ended);
    let (settled, confirmed) = tokio::join!(settled, early.durable());
    assert_eq!((settled, confirmed), (Ok(None), Ok(opened())));
    let asked = peers.asked.lock().unwrap();
    let asked: Vec<_> = asked.iter().map(|(_, request)| &request.work).collect();
    assert!(
        matches!(asked[..], [Work::OpenEarly(_), Work::Settle(_), Work::States { .. }, Work::Settle(_)]),
        "{asked:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_same_leader_in_another_term_is_asked_again() {
    let found = Reply::States { shape: 1, states: vec![None] };
    let (ledger, routes, _) = ledger([None, Some(Ok(found))], leader("a", 1));
    let moved_at = moves(routes, leader("a", 3));
    let key = StateKey::Webhook(farthing_core::ids::WebhookId::new(Ulid(4)));
    assert!(ledger.state(PARTITION, None, key).await.unwrap().is_none());
    assert!(moved_at.elapsed() < Duration::from_millis(100), "{:?}", moved_at.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_command_that_has_an_effect_each_time_is_sent_once() {
    let (ledger, routes, peers) = ledger([None], leader("hangs", 1));
    let moved_at = moves(routes, leader("next", 2));
    let command = RevokeSecretKey {
        revoker: Revoker::Operator,
        secret_key_id: SecretKeyId::new(Ulid(5)),
        now: DateTime::UNIX_EPOCH,
    };
    let answer = ledger.submit(PARTITION, command).await;
    assert!(matches!(answer, Err(Error::Unknown(_))), "{answer:?}");
    assert!(moved_at.elapsed() <= GRACE_ONCE, "{:?}", moved_at.elapsed());
    assert_eq!(peers.asked.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_opening_that_is_refused_after_a_lost_answer_may_be_open() {
    let refusal = Refusal::Merchant(MerchantRefusal::NotFound);
    let refused = raw::<Opened>(&Err(refusal.clone()));
    let (ledger, _routes, _) = ledger([Some(unknown()), Some(Ok(refused))], leader("a", 1));
    let may_be_open = AtomicBool::new(false);
    let answer = ledger.open(PARTITION, opening(), &may_be_open).await;
    assert_eq!(answer.err(), Some(Error::Refused(refusal)));
    assert!(may_be_open.into_inner());
}

#[tokio::test]
async fn a_command_for_another_term_is_not_decided() {
    // No appender would take it.
    let (ledger, _routes, _) = ledger([], Route::Here(7));
    for term in [6, 8] {
        let work = Work::OpenAgain(opening().into());
        let request = Request::new(PARTITION, term, DateTime::UNIX_EPOCH, work);
        assert!(matches!(ledger.serve(request).await, Reply::Failed(Failed::Moved)));
    }
}
