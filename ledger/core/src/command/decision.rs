//! Commands and the decisions about them.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::personal_data::PersonalChange;
use super::refusal::{
    CheckoutRefusal, CustomerRefusal, MerchantRefusal, MeterRefusal, PaymentRefusal, PlanRefusal, Refusal,
    RequestRefusal, SecretKeyRefusal, SpendKeyRefusal, SubscriptionRefusal, WalletRefusal, WebhookRefusal,
};
use crate::event::{Event, Fact};
use crate::ids::{CustomerId, MerchantId};
use crate::money;
use crate::state::{Missing, StateCache};

/// The result of deciding a command: facts to append and an outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision<O> {
    /// The facts to append, in order.
    pub facts: Vec<Fact>,
    /// The change of personal data to write in the same transaction.
    pub personal: Option<(CustomerId, PersonalChange)>,
    /// The outcome to return once the facts are durable.
    pub outcome: O,
}

impl<O> Decision<O> {
    /// Appends `events` of `merchant_id` at `now` and returns `outcome`.
    pub(super) fn append(
        merchant_id: MerchantId,
        now: DateTime<Utc>,
        events: Vec<Event>,
        outcome: O,
    ) -> Self {
        let fact = |event| Fact { merchant_id, occurred_at: now, event };
        Self { facts: events.into_iter().map(fact).collect(), personal: None, outcome }
    }

    /// Appends nothing: the requested change was applied before.
    pub(super) fn already(outcome: O) -> Self {
        Self { facts: Vec::new(), personal: None, outcome }
    }

    /// The decision with another form of its outcome.
    pub(super) fn map<P>(self, form: impl FnOnce(O) -> P) -> Decision<P> {
        let Self { facts, personal, outcome } = self;
        Decision { facts, personal, outcome: form(outcome) }
    }
}

/// A request to change the ledger. [`decide`] turns it into events or a refusal.
pub trait Command: Send + 'static {
    /// The value returned once the events are durable.
    type Outcome: Send + 'static;

    /// The bytes of text that the command holds beside its own fields, where a caller chooses their length. Queues of
    /// commands are bounded by it.
    fn text_bytes(&self) -> usize {
        0
    }

    /// Decides by the states; an error names states that are not loaded.
    fn decide(&self, states: &StateCache) -> Result<Decision<Self::Outcome>, DecideError>;
}

/// A command that is shared: who may have to submit it again keeps it without a copy.
impl<C: Command + Sync> Command for Arc<C> {
    type Outcome = C::Outcome;

    fn text_bytes(&self) -> usize {
        (**self).text_bytes()
    }

    fn decide(&self, states: &StateCache) -> Result<Decision<Self::Outcome>, DecideError> {
        (**self).decide(states)
    }
}

/// The bytes of all keys and values of `metadata`.
pub(super) fn metadata_bytes(metadata: &BTreeMap<String, String>) -> usize {
    metadata.iter().map(|(key, value)| key.len() + value.len()).sum()
}

/// The bytes of all texts of the lists.
pub(super) fn list_bytes<'a>(lists: impl IntoIterator<Item = &'a Vec<String>>) -> usize {
    lists.into_iter().flatten().map(String::len).sum()
}

/// Decides `command` and moves each fact from the machine's time to the time of its merchant's clock.
pub fn decide<C: Command>(command: &C, states: &StateCache) -> Result<Decision<C::Outcome>, DecideError> {
    let mut decision = command.decide(states)?;
    for fact in &mut decision.facts {
        fact.occurred_at = states.now(fact.merchant_id, fact.occurred_at)?;
    }
    Ok(decision)
}

/// Why a command is not decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecideError {
    /// States must be loaded first.
    Missing(Missing),
    /// The command is refused.
    Refused(Refusal),
}

impl From<Missing> for DecideError {
    fn from(missing: Missing) -> Self {
        Self::Missing(missing)
    }
}

impl From<Refusal> for DecideError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<money::Error> for DecideError {
    fn from(error: money::Error) -> Self {
        Self::Refused(error.into())
    }
}

macro_rules! refused {
    ($($refusal:ident)+) => {$(
        impl From<$refusal> for DecideError {
            fn from(refusal: $refusal) -> Self {
                Self::Refused(refusal.into())
            }
        }
    )+};
}

refused! {
    MerchantRefusal SecretKeyRefusal CustomerRefusal MeterRefusal SpendKeyRefusal WalletRefusal RequestRefusal PlanRefusal SubscriptionRefusal PaymentRefusal CheckoutRefusal WebhookRefusal
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rust_decimal::Decimal;
    use ulid::Ulid;

    use super::*;
    use crate::command::{
        BundleEdit, CreateCustomer, CreatePlan, DefineMeter, DeletePlan, NewBundle, PersonalData, PlanEdits,
        Slug, UpdatePlan,
    };
    use crate::event::BundleOffer;
    use crate::ids::{CreditBundleId, MeterId, PlanId, WalletId};
    use crate::meter::{OnDisconnect, Payer, Price, RateType, Tier, TierType, Tiers, TokenBasis};
    use crate::money::Amount;
    use crate::plan::{BillingInterval, PlanTerms, Rollover};
    use crate::state::{State, StateKey};

    const NOW: DateTime<Utc> = DateTime::<Utc>::UNIX_EPOCH;

    /// The number of bundles or meters of a plan.
    const MANY: u128 = 100;

    type States = BTreeMap<StateKey, State>;

    fn merchant_id() -> MerchantId {
        MerchantId::new(Ulid::from_parts(1, 1))
    }

    fn plan_id() -> PlanId {
        PlanId::new(Ulid::from_parts(1, 2))
    }

    fn bundle_id(number: u128) -> CreditBundleId {
        CreditBundleId::new(Ulid::from_parts(2, number))
    }

    fn meter_id(number: u128) -> MeterId {
        MeterId::new(Ulid::from_parts(3, number))
    }

    /// Creates a plan with bundles, or with meters.
    fn create_plan(bundles: u128, meters: u128) -> CreatePlan {
        let terms = PlanTerms {
            name: "a plan".to_owned(),
            period_amount: Amount::ZERO,
            included_credit: Amount::ZERO,
            billing_interval: BillingInterval::Month,
            rollover_type: Rollover::None,
            bundle_rollover_type: Rollover::None,
            meter_ids: (0..meters).map(meter_id).collect(),
            default_auto_top_up_bundle_id: None,
        };
        let offer = BundleOffer { name: "more".to_owned(), cost: Amount::ZERO, credit_amount: Amount::ZERO };
        let bundle = |number| NewBundle { credit_bundle_id: bundle_id(number), offer: offer.clone() };
        let bundles = (0..bundles).map(bundle).collect();
        CreatePlan { merchant_id: merchant_id(), plan_id: plan_id(), terms, bundles, now: NOW }
    }

    fn define_meter(slug: &str) -> DefineMeter {
        let price = Price {
            rate_type: RateType::Fixed,
            tier_type: TierType::Requests,
            tiers: Tiers::new(vec![Tier { start: Decimal::ZERO, rate: Amount::ZERO }]).unwrap(),
            token_basis: TokenBasis::InputOutput,
            base_cost_payer: Payer::Wallet,
            service_charge_payer: Payer::Wallet,
            on_disconnect: OnDisconnect::Complete,
            max_fee: None,
        };
        let (slug, name) = (Slug::Made(slug.to_owned()), "a meter".to_owned());
        DefineMeter { merchant_id: merchant_id(), meter_id: meter_id(0), slug, name, price, now: NOW }
    }

    /// The states after the facts.
    fn folded(facts: &[Fact]) -> States {
        let mut states = StateCache::default();
        let keys = states.unknown_states(facts);
        states.evolve(facts).unwrap();
        let state = |key: &StateKey| states.state(key).unwrap().cloned();
        keys.into_iter().filter_map(|key| state(&key).map(|state| (key, state))).collect()
    }

    /// Decides `command` without a state in memory. Returns the number of states in each load, and the decision. Its facts
    /// need no further state.
    fn loads<C: Command>(
        command: &C,
        stored: &States,
    ) -> (Vec<usize>, Result<Decision<C::Outcome>, Refusal>) {
        let (mut states, mut loads) = (StateCache::default(), Vec::new());
        let decided = loop {
            match decide(command, &states) {
                Ok(decision) => break decision,
                Err(DecideError::Refused(refusal)) => return (loads, Err(refusal)),
                Err(DecideError::Missing(Missing(keys))) => {
                    loads.push(keys.len());
                    for key in keys {
                        let state = stored.get(&key).cloned();
                        states.load(key, state);
                    }
                }
            }
        };
        states.evolve(&decided.facts).unwrap();
        (loads, Ok(decided))
    }

    #[test]
    fn a_shared_command_is_decided_as_the_command_itself() {
        let plain = CreateCustomer {
            merchant_id: merchant_id(),
            customer_id: CustomerId::new(Ulid::from_parts(1, 3)),
            wallet_id: WalletId::new(Ulid::from_parts(1, 4)),
            reference_id: None,
            metadata: BTreeMap::from([("a key".to_owned(), "a value".to_owned())]),
            metadata_literals: BTreeSet::new(),
            personal: PersonalData::default(),
            now: NOW,
        };
        let shared = Arc::new(plain.clone());
        assert_eq!((shared.text_bytes(), plain.text_bytes()), (12, 12));
        let (loaded, decided) = loads(&shared, &States::new());
        assert!(!loaded.is_empty() && decided.is_ok());
        assert_eq!((loaded, decided), loads(&plain, &States::new()));
    }

    #[test]
    fn a_change_of_a_plan_loads_its_bundles_together() {
        let (_, created) = loads(&create_plan(MANY, 0), &States::new());
        let stored = folded(&created.unwrap().facts);
        let edit = |number: u128| match number % 2 {
            0 => BundleEdit::Delete(bundle_id(number)),
            _ => BundleEdit::Update {
                id: bundle_id(number),
                name: Some("less".to_owned()),
                cost: None,
                credit_amount: None,
            },
        };
        let edits = PlanEdits { bundles: (0..MANY).map(edit).collect(), ..PlanEdits::default() };
        let update = UpdatePlan { merchant_id: merchant_id(), plan_id: plan_id(), edits, now: NOW };
        let (plan, bundles, merchant) = (1, 100, 1);
        let (loaded, updated) = loads(&update, &stored);
        assert_eq!(loaded, [plan, bundles, merchant]);
        assert_eq!(updated.unwrap().facts.len(), bundles);
        let delete = DeletePlan { merchant_id: merchant_id(), plan_id: plan_id(), now: NOW };
        let (loaded, deleted) = loads(&delete, &stored);
        assert_eq!(loaded, [plan, bundles, merchant]);
        assert_eq!(deleted.unwrap().facts.len(), 1);
    }

    #[test]
    fn a_bundle_that_is_not_the_plans_is_refused_and_not_loaded() {
        let (_, created) = loads(&create_plan(1, 0), &States::new());
        let bundles = (1..MANY).map(|number| BundleEdit::Delete(bundle_id(number))).collect();
        let edits = PlanEdits { bundles, ..PlanEdits::default() };
        let update = UpdatePlan { merchant_id: merchant_id(), plan_id: plan_id(), edits, now: NOW };
        let (loaded, updated) = loads(&update, &folded(&created.unwrap().facts));
        assert_eq!((loaded, updated), (vec![1], Err(Refusal::Plan(PlanRefusal::BundleNotFound))));
    }

    #[test]
    fn the_meters_of_a_plan_are_loaded_together() {
        let (loaded, created) = loads(&create_plan(0, MANY), &States::new());
        assert_eq!((loaded, created), (vec![100], Err(Refusal::Meter(MeterRefusal::NotFound))));
    }

    #[test]
    fn the_numbered_variants_of_a_slug_are_loaded_together() {
        let slugs = ["call".to_owned()].into_iter().chain((2..40).map(|number| format!("call-{number}")));
        let key = |slug| StateKey::MeterSlug(merchant_id(), slug);
        let stored: States = slugs.map(|slug| (key(slug), State::MeterSlug(meter_id(1)))).collect();
        let (loaded, defined) = loads(&define_meter("call"), &stored);
        let (base, variants, merchant) = (1, 49, 1);
        assert_eq!(loaded, [base, variants, merchant]);
        assert_eq!(defined.unwrap().outcome, "call-40");
        assert_eq!(loads(&define_meter("other"), &stored).0, [base, merchant]);
    }
}
