//! Tests of the states that a partition keeps in memory.

use proptest::prelude::*;

use super::*;
use crate::event::{Event, RequestFailed, RequestOpened};
use crate::secret::ServerKey;
use crate::state::{WalletOwner, shape};

fn reference(number: u32) -> StateKey {
    StateKey::Reference("mer_00000000000000000000000001".parse().unwrap(), number.to_string())
}

const fn number(states: usize) -> CacheSize {
    CacheSize { states, bytes: usize::MAX }
}

fn customer() -> State {
    State::Reference("con_00000000000000000000000001".parse().unwrap())
}

#[test]
fn unknown_keys_are_forgotten_and_other_states_stay() {
    let (server_key, mut states) = (ServerKey::random(), StateCache::default());
    let known = StateKey::SpendKeyHash(server_key.hash("spk_known"));
    let id = "sk_00000000000000000000000001".parse().unwrap();
    states.load(known.clone(), Some(State::SpendKeyHash(id)));
    let unknown = [
        StateKey::SpendKeyHash(server_key.hash("spk_unknown")),
        StateKey::SecretKey(server_key.hash("aks_unknown")),
    ];
    for key in &unknown {
        states.load(key.clone(), None);
        assert!(states.knows(key), "the batch that looked it up sees it");
    }
    states.load(reference(1), None);
    states.forget_unknown_keys();
    assert!(unknown.iter().all(|key| !states.knows(key)));
    assert!(states.knows(&known) && states.knows(&reference(1)));
}

#[test]
fn a_list_of_states_is_missing_together() {
    let mut states = StateCache::default();
    states.load(reference(2), None);
    let asked = [1, 2, 3, 1].map(reference);
    assert_eq!(states.require(asked), Err(Missing(vec![reference(1), reference(3)])));
    states.load(reference(1), Some(customer()));
    states.load(reference(3), None);
    assert_eq!(states.require([1, 2, 3].map(reference)), Ok(()));
}

#[test]
fn a_cache_shrinks_by_absent_states_first_and_never_by_changed_ones() {
    let mut states = StateCache::default();
    for number in 0..100 {
        states.load(reference(number), (number >= 40).then(customer));
    }
    for number in 90..100 {
        states.changed.insert(reference(number), Origin::Stored);
    }
    states.shrink_to(number(1_000));
    assert_eq!(states.len(), 100);
    states.shrink_to(number(70));
    assert_eq!(states.len(), 70);
    assert!((40..100).all(|number| states.knows(&reference(number))), "only absent states are forgotten");
    states.shrink_to(number(20));
    assert_eq!(states.len(), 20);
    states.shrink_to(number(0));
    assert_eq!(states.len(), 10);
    assert!((90..100).all(|number| states.knows(&reference(number))), "changes are kept");
}

fn spend_key(number: u128) -> StateKey {
    StateKey::SpendKey(SpendKeyId::new(ulid::Ulid::from(number)))
}

/// A spend key that takes about so many bytes.
fn long(bytes: usize) -> State {
    let key = serde_json::json!({
        "merchant_id": "mer_00000000000000000000000001", "wallet_id": "wal_00000000000000000000000001",
        "key_hash": ServerKey::random().hash("spk").as_str(), "key_preview": "spk", "rotation": 0, "revision": 0,
        "status": "active", "created_at": "2026-01-01T00:00:00Z",
        "settings": {"name": "long", "allowed_models": ["m".repeat(bytes)]},
    });
    State::from_json(&spend_key(0), shape(), &key.to_string()).unwrap()
}

#[test]
fn a_cache_with_too_many_bytes_forgets_the_long_states_first() {
    const KIB: usize = 1024;
    let mut states = StateCache::default();
    for number in 0..100 {
        states.load(reference(number), (number >= 40).then(customer));
        states.load(spend_key(number.into()), Some(long(100 * KIB)));
    }
    let size = states.size();
    assert_eq!(size.states, 200);
    assert!((10_000 * KIB..10_200 * KIB).contains(&size.bytes), "{size:?}");
    let most = CacheSize { states: 200, bytes: 2_000 * KIB };
    assert!(size.exceeds(most));
    states.shrink_to(most);
    assert!(!states.size().exceeds(most));
    assert!((0..100).all(|number| states.knows(&reference(number))), "only long states are forgotten");
    assert!((110..130).contains(&states.len()), "{:?}", states.size());
    // A state that becomes short again takes less.
    let before = states.size();
    let stays = (0..100).map(spend_key).find(|key| states.knows(key)).unwrap();
    states.load(stays, Some(long(KIB)));
    assert!(before.bytes - states.size().bytes > 90 * KIB);
    states.shrink_to(CacheSize { states: 200, bytes: 0 });
    assert_eq!(states.size(), CacheSize { states: 0, bytes: 0 });
}

#[test]
fn any_state_can_be_removed() {
    for (key, state) in [(reference(1), customer()), (spend_key(1), long(1)), (WALLET, wallet())] {
        assert_eq!(apply(&key, Some(state), Effect::Remove), Ok(None));
        assert!(apply(&key, None, Effect::Remove).is_err());
    }
}

const MERCHANT: MerchantId = MerchantId::new(ulid::Ulid(1));
const WALLET: StateKey = StateKey::Wallet(WalletId::new(ulid::Ulid(2)));

fn wallet() -> State {
    State::Wallet(Box::new(Wallet::empty(MERCHANT, WalletOwner::Merchant)))
}

fn call(number: u128) -> RequestId {
    RequestId::new(ulid::Ulid(number))
}

fn fact(event: Event) -> Fact {
    Fact { merchant_id: MERCHANT, occurred_at: chrono::DateTime::UNIX_EPOCH, event }
}

/// What the events of a call have in common.
fn common(number: u128, hold: u8) -> serde_json::Value {
    let wallet_id = WalletId::new(ulid::Ulid(2));
    let parties =
        serde_json::json!({"customer_id": null, "wallet_id": null, "merchant_wallet_id": wallet_id});
    let hold = serde_json::json!({"wallet": "0", "merchant": hold.to_string()});
    serde_json::json!({"request_id": call(number), "parties": parties, "hold": hold})
}

fn with(mut common: serde_json::Value, others: serde_json::Value) -> serde_json::Value {
    let serde_json::Value::Object(others) = others else { panic!("an object") };
    common.as_object_mut().unwrap().extend(others);
    common
}

fn opened(number: u128, hold: u8, reported: Option<u8>) -> Fact {
    let others = serde_json::json!({
        "gateway_id": "gw_00000000000000000000000003", "charge": "merchant", "provider": "other",
        "provider_key_type": "managed", "endpoint": "POST https://provider.example/", "model": null,
        "metadata": {}, "terms": null, "period_start": null,
        "reported_id": reported.map(|reported| reported.to_string()),
    });
    let event: RequestOpened = serde_json::from_value(with(common(number, hold), others)).unwrap();
    fact(Event::from(Box::new(event)))
}

fn failed(number: u128, hold: u8) -> Fact {
    let others = serde_json::json!({"reason": "provider_gone"});
    let event: RequestFailed = serde_json::from_value(with(common(number, hold), others)).unwrap();
    fact(Event::from(Box::new(event)))
}

/// [`StateCache::evolve`] without its short cuts: each state is copied, and looked up for each step.
fn evolve_plainly(states: &mut StateCache, facts: &[Fact]) -> Result<(), EvolveError> {
    let mut fresh: HashMap<StateKey, Fresh> = HashMap::new();
    for (key, effect) in facts.iter().flat_map(effects) {
        let new = |state: Option<State>, origin| {
            let was_there = state.is_some();
            Fresh { state, origin, was_there }
        };
        let before = match (fresh.remove(&key), &effect) {
            (Some(fresh), _) => fresh,
            (None, Effect::Create(_)) => new(states.known.get(&key).cloned().flatten(), Origin::New),
            (None, _) => match states.known.get(&key) {
                Some(state) => new(state.clone(), Origin::Stored),
                None => return Err(EvolveError::Missing(Missing(vec![key]))),
            },
        };
        let Fresh { state, origin, was_there } = before;
        let state = apply(&key, state, effect).map_err(EvolveError::InvariantBroken)?;
        let was_there = was_there || state.is_some();
        fresh.insert(key, Fresh { state, origin, was_there });
    }
    for (key, Fresh { state, origin, was_there }) in fresh {
        if was_there && !states.changed.contains_key(&key) {
            let origin = if states.storing.contains(&key) { Origin::Stored } else { origin };
            states.changed.insert(key.clone(), origin);
        }
        states.know(key, state);
    }
    Ok(())
}

#[derive(Debug, Clone)]
enum Step {
    /// The wallet exists, and no call.
    Load(StateKey),
    Evolve(Vec<Fact>),
    Take,
    Confirm,
    PutBack,
}

fn any_fact() -> impl Strategy<Value = Fact> {
    // Few of each, so that the facts meet each other's states.
    let reported = proptest::option::of(0_u8..2);
    (any::<bool>(), 0_u128..3, 0_u8..2, reported).prop_map(|(opens, number, hold, reported)| {
        if opens { opened(number, hold, reported) } else { failed(number, hold) }
    })
}

fn any_step() -> impl Strategy<Value = Step> {
    let reported = |number: u8| StateKey::Reported(MERCHANT, number.to_string());
    prop_oneof![
        1 => Just(Step::Load(WALLET)),
        1 => (0_u128..3).prop_map(|number| Step::Load(StateKey::Request(call(number)))),
        1 => (0_u8..2).prop_map(move |number| Step::Load(reported(number))),
        8 => proptest::collection::vec(any_fact(), 1..4).prop_map(Step::Evolve),
        1 => Just(Step::Take),
        1 => Just(Step::Confirm),
        1 => Just(Step::PutBack),
    ]
}

fn taken(states: &mut StateCache) -> Vec<(StateKey, Option<String>)> {
    let mut changes = if states.storing.is_empty() { states.take_changes() } else { Vec::new() };
    changes.sort();
    changes
}

proptest! {
    #[test]
    fn states_evolve_as_without_short_cuts(steps in proptest::collection::vec(any_step(), 1..40)) {
        let (mut states, mut plain) = (StateCache::default(), StateCache::default());
        states.load(WALLET, Some(wallet()));
        plain.load(WALLET, Some(wallet()));
        for step in steps {
            match step {
                Step::Load(key) => {
                    let state = || (key == WALLET).then(wallet);
                    states.load(key.clone(), state());
                    plain.load(key.clone(), state());
                }
                Step::Evolve(facts) => {
                    prop_assert_eq!(states.evolve(&facts), evolve_plainly(&mut plain, &facts));
                }
                Step::Take => prop_assert_eq!(taken(&mut states), taken(&mut plain)),
                Step::Confirm => {
                    states.confirm_stored();
                    plain.confirm_stored();
                }
                Step::PutBack => {
                    states.put_changes_back();
                    plain.put_changes_back();
                }
            }
            prop_assert_eq!(&states.known, &plain.known);
            prop_assert_eq!(&states.changed, &plain.changed);
            prop_assert_eq!(&states.storing, &plain.storing);
            prop_assert_eq!(states.bytes, plain.bytes);
            let bytes: usize = states.known.values().map(|state| bytes_of(state.as_ref())).sum();
            prop_assert_eq!(states.bytes, bytes);
        }
    }
}
