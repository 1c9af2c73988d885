//! The states as of a moment: the fold of the events until then.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};

use super::apply::{InvariantBroken, apply};
use super::effects::effects;
use super::kinds::{State, StateKey};
use super::selection::Selection;
use crate::event::Fact;
use crate::ids::MerchantId;

/// Folds the states of a partition, all of them or those of one thing.
///
/// Until an instant, it takes the events of a merchant before the first one that occurred at or after the instant. So the
/// log's order alone decides, also where the clocks of two gateways differed by some milliseconds, and no event is folded
/// without one that it follows.
#[derive(Debug)]
pub struct Replay {
    before: Option<DateTime<Utc>>,
    /// The merchants whose events have reached the instant.
    ended: BTreeSet<MerchantId>,
    selection: Option<Selection>,
    states: BTreeMap<StateKey, State>,
}

impl Replay {
    /// No event yet. Without `before` all events are taken; without `selection` all states are folded.
    pub fn new(before: Option<DateTime<Utc>>, selection: Option<Selection>) -> Self {
        Self { before, ended: BTreeSet::new(), selection, states: BTreeMap::new() }
    }

    /// Whether the replay ends at an instant.
    pub const fn ends_at_an_instant(&self) -> bool {
        self.before.is_some()
    }

    /// Whether the next event is taken, if this merchant's event occurred then.
    pub fn takes(&mut self, merchant_id: MerchantId, occurred_at: DateTime<Utc>) -> bool {
        let Some(before) = self.before else { return true };
        if occurred_at >= before {
            self.ended.insert(merchant_id);
        }
        !self.ended.contains(&merchant_id)
    }

    /// Whether the event in this line may change one of the states.
    pub fn may_change(&self, line: &str) -> bool {
        self.selection.as_ref().is_none_or(|selection| selection.may_change(line))
    }

    /// Folds an event that is taken; `false` if it has no effect on the states. After an error the state concerned is unknown
    /// and left out.
    pub fn fold(&mut self, fact: &Fact) -> Result<bool, InvariantBroken> {
        let effects = match &mut self.selection {
            Some(selection) => selection.effects(fact),
            None => effects(fact),
        };
        let has_effect = !effects.is_empty();
        for (key, effect) in effects {
            let state = self.states.remove(&key);
            if let Some(state) = apply(&key, state, effect)? {
                self.states.insert(key, state);
            }
        }
        Ok(has_effect)
    }

    /// The states.
    pub const fn states(&self) -> &BTreeMap<StateKey, State> {
        &self.states
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ulid::Ulid;

    use super::super::selection::{NoSubject, Subject};
    use super::*;
    use crate::event::{CustomerCreated, CustomerDeleted, Event, MerchantRegistered, WalletCredited};
    use crate::ids::{CreditId, CustomerId, WalletId};
    use crate::money::Amount;
    use crate::statement::{Period, Statement};

    fn merchant(number: u128) -> MerchantId {
        MerchantId::new(Ulid::from_parts(1, number))
    }

    fn customer(number: u128) -> (CustomerId, WalletId) {
        (CustomerId::new(Ulid::from_parts(2, number)), WalletId::new(Ulid::from_parts(3, number)))
    }

    fn at(second: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(second, 0).unwrap()
    }

    fn fact(of: u128, second: i64, event: impl Into<Event>) -> Fact {
        Fact { merchant_id: merchant(of), occurred_at: at(second), event: event.into() }
    }

    fn created(of: u128, number: u128, second: i64) -> Fact {
        let (customer_id, wallet_id) = customer(number);
        let event = CustomerCreated {
            customer_id,
            wallet_id,
            reference_id: None,
            metadata: BTreeMap::new(),
            metadata_literals: BTreeSet::new(),
        };
        fact(of, second, event)
    }

    fn credited(of: u128, number: u128, second: i64, amount: u32) -> Fact {
        let (customer_id, wallet_id) = customer(number);
        let event = WalletCredited {
            credit_id: CreditId::new(Ulid::from_parts(4, u128::try_from(second).unwrap())),
            wallet_id,
            customer_id: Some(customer_id),
            amount: Amount::last_digits(amount),
            reason: "a test".to_owned(),
            balance_after: Amount::ZERO,
        };
        fact(of, second, event)
    }

    fn replay(facts: &[Fact], before: Option<DateTime<Utc>>, subject: Option<Subject>) -> Replay {
        let mut replay = Replay::new(before, subject.map(Selection::of));
        for fact in facts {
            if replay.takes(fact.merchant_id, fact.occurred_at) {
                replay.fold(fact).unwrap();
            }
        }
        replay
    }

    fn balance(replay: &Replay, number: u128) -> Option<Amount> {
        match replay.states().get(&StateKey::Wallet(customer(number).1)) {
            Some(State::Wallet(wallet)) => Some(wallet.balance),
            _ => None,
        }
    }

    #[test]
    fn a_customer_is_shown_with_its_wallet_and_nothing_else_is() {
        let facts = [created(1, 1, 1), created(1, 2, 2), credited(1, 1, 3, 5), credited(1, 2, 4, 7)];
        let (customer_id, wallet_id) = customer(1);
        let whole = replay(&facts, None, None);
        assert_eq!(whole.states().len(), 4);
        let one = replay(&facts, None, Some(Subject::Customer(customer_id)));
        let keys: Vec<_> = one.states().keys().cloned().collect();
        assert_eq!(keys, [StateKey::Wallet(wallet_id), StateKey::Customer(customer_id)]);
        assert_eq!(balance(&one, 1), Some(Amount::last_digits(5)));
        let wallet = replay(&facts, None, Some(Subject::Wallet(wallet_id)));
        assert_eq!(wallet.states().len(), 1);
        assert_eq!(balance(&wallet, 1), balance(&whole, 1));
    }

    #[test]
    fn a_deleted_customer_has_no_state_and_its_wallet_stays() {
        let (customer_id, wallet_id) = customer(1);
        let deleted = CustomerDeleted { customer_id, wallet_id, reference_id: None };
        let facts = [created(1, 1, 1), fact(1, 2, deleted)];
        let of = Some(Subject::Customer(customer_id));
        assert_eq!(replay(&facts, Some(at(2)), of).states().len(), 2);
        let keys: Vec<_> = replay(&facts, None, of).states().keys().cloned().collect();
        assert_eq!(keys, [StateKey::Wallet(wallet_id)]);
    }

    #[test]
    fn a_merchant_ends_at_its_first_event_at_the_instant_and_others_go_on() {
        let facts = [
            created(1, 1, 1),
            created(2, 2, 1),
            credited(1, 1, 5, 1),
            // The clock of another gateway was behind.
            credited(1, 1, 4, 10),
            credited(2, 2, 4, 100),
        ];
        let replay = replay(&facts, Some(at(5)), None);
        assert_eq!(balance(&replay, 1), Some(Amount::ZERO));
        assert_eq!(balance(&replay, 2), Some(Amount::last_digits(100)));
    }

    #[test]
    fn an_effect_that_does_not_fit_is_an_error() {
        let mut replay = Replay::new(None, None);
        assert!(replay.fold(&credited(1, 1, 1, 1)).is_err());
        assert!(replay.states().is_empty());
    }

    #[test]
    fn a_subject_is_known_by_its_prefix() {
        for id in ["wal", "con", "sk", "key", "prd", "sc", "sub", "mer", "req", "pay", "pm", "cs", "cb", "wh"]
        {
            let id = format!("{id}_01ARZ3NDEKTSV4RRFFQ69G5FAV");
            let subject: Subject = id.parse().unwrap();
            assert_eq!(subject.to_string(), id);
            assert_eq!(subject.key().stored().1, id);
        }
        for text in ["", "wal_", "wal_01arz3ndektsv4rrffq69g5fav", "crd_01ARZ3NDEKTSV4RRFFQ69G5FAV", "3:7"] {
            assert_eq!(text.parse::<Subject>(), Err(NoSubject), "{text}");
        }
    }

    proptest! {
        #[test]
        fn one_wallet_is_as_in_the_whole_and_as_in_its_statement(
            credits in prop::collection::vec((1..3_u128, 1..4_u128, 0..100_u32), 0..40),
            end in 0..60_i64,
        ) {
            let registered = |of| fact(of, 0, MerchantRegistered {
                merchant_id: merchant(of), wallet_id: WalletId::new(Ulid::from_parts(9, of)), name: "m".to_owned(),
            });
            let mut facts = vec![registered(1), registered(2)];
            facts.extend((1..3).flat_map(|of| (1..4).map(move |number| created(of, of * 10 + number, 0))));
            facts.extend(credits.iter().zip(1_i64..).map(|((of, number, amount), second)| {
                credited(*of, of * 10 + number, second, *amount)
            }));
            let before = Some(at(end));
            let whole = replay(&facts, before, None);
            for number in [11, 12, 13, 21, 22, 23] {
                let (customer_id, wallet_id) = customer(number);
                for subject in [Subject::Wallet(wallet_id), Subject::Customer(customer_id)] {
                    let one = replay(&facts, before, Some(subject));
                    prop_assert_eq!(balance(&one, number), balance(&whole, number));
                    for (key, state) in one.states() {
                        prop_assert_eq!(Some(state), whole.states().get(key));
                    }
                }
                let mut statement = Statement::new(Period { from: None, to: before });
                for fact in &facts {
                    if let Some(entry) = crate::entry::Entry::of(&fact.event).unwrap()
                        && entry.wallet_id == wallet_id
                    {
                        statement.enter(fact.occurred_at, entry.change).unwrap();
                    }
                }
                if end > 0 {
                    prop_assert_eq!(balance(&whole, number), Some(statement.closing().balance));
                }
            }
        }
    }
}
