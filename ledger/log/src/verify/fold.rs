//! Folds the states of a partition from its events, and verifies what each event says against them.

use std::collections::{BTreeMap, BTreeSet};

use farthing_core::event::{Event, Fact, Movement, WalletEvent};
use farthing_core::hold_scope::CreditScope;
use farthing_core::ids::WalletId;
use farthing_core::money::{self, Amount, Total};
use farthing_core::partition::Partitions;
use farthing_core::state::{State, StateKey, Wallet, WalletOwner, apply, effects};
use serde::{Deserialize, Serialize};

use super::verdict::{Check, Finding, Place, Tallies};
use crate::record;

/// What folding the log needs from its first event on.
const FOLDED: [Check; 4] = [Check::States, Check::BalancesAfter, Check::Balances, Check::StoredStates];

/// The states of a partition.
#[derive(Debug)]
pub(super) struct Fold {
    partitions: Partitions,
    pub(super) states: BTreeMap<StateKey, State>,
    pub(super) sums: Sums,
    /// Whether the states are known: every event so far was folded.
    pub(super) is_whole: bool,
}

/// The sums of money, in dollars.
#[derive(Debug, Default, Serialize)]
pub struct Sums {
    /// The sum of all credits.
    pub credited: Total,
    /// The sum of the credit that plans and bundles granted.
    pub granted: Total,
    /// The sum of the credit that expired.
    pub expired: Total,
    /// The sum of all debits.
    pub debited: Total,
    /// The sum of all balances.
    pub balances: Total,
    /// The sum of all remaining credit. Credited + granted - expired - debited = balances + credits.
    pub credits: Total,
    /// The wallets whose credit expired.
    #[serde(skip)]
    expired_wallets: BTreeSet<WalletId>,
}

/// The sums of what moved, without what there is now.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Moved {
    credited: Total,
    granted: Total,
    expired: Total,
    debited: Total,
}

impl Sums {
    pub(super) const fn moved(&self) -> Moved {
        let Self { credited, granted, expired, debited, .. } = *self;
        Moved { credited, granted, expired, debited }
    }

    /// The wallets whose credit expired.
    pub(super) const fn expired_wallets(&self) -> &BTreeSet<WalletId> {
        &self.expired_wallets
    }

    /// Goes on from the sums of a checkpoint.
    pub(super) fn resume(moved: &Moved, expired_wallets: BTreeSet<WalletId>) -> Self {
        let Moved { credited, granted, expired, debited } = *moved;
        Self { credited, granted, expired, debited, expired_wallets, ..Self::default() }
    }

    fn count(&mut self, movement: Option<(WalletId, Movement)>) -> Result<(), money::Error> {
        let Some((wallet_id, movement)) = movement else { return Ok(()) };
        let (sum, amount) = match movement {
            Movement::Credited(amount) => (&mut self.credited, amount),
            Movement::Granted(amount) => (&mut self.granted, amount),
            Movement::Debited(amount) => (&mut self.debited, amount),
            Movement::Expired(amount) => {
                if amount.is_positive() {
                    self.expired_wallets.insert(wallet_id);
                }
                (&mut self.expired, amount)
            }
        };
        *sum = sum.plus(amount)?;
        Ok(())
    }

    /// Adds the balance and credit of a wallet.
    fn count_wallet(&mut self, wallet: &Wallet) -> Result<(), money::Error> {
        self.balances = self.balances.plus(wallet.balance)?;
        self.credits = self.credits.plus(wallet.plan_credit())?.plus(wallet.bundle_credit()?)?;
        Ok(())
    }

    /// Adds the sums of another partition.
    pub(super) fn add(&mut self, other: &Self) -> Result<(), money::Error> {
        for (sum, other) in [
            (&mut self.credited, other.credited),
            (&mut self.granted, other.granted),
            (&mut self.expired, other.expired),
            (&mut self.debited, other.debited),
            (&mut self.balances, other.balances),
            (&mut self.credits, other.credits),
        ] {
            *sum = sum.and(other)?;
        }
        Ok(())
    }

    /// What was received and what it became; `None` beyond 28 digits.
    fn sides(&self) -> Option<(Total, Total)> {
        let received = self.credited.and(self.granted).ok()?;
        let spent = self.debited.and(self.expired).ok()?;
        Some((received, spent.and(self.balances).ok()?.and(self.credits).ok()?))
    }
}

impl Fold {
    /// No event yet.
    pub(super) fn new(partitions: Partitions) -> Self {
        Self { partitions, states: BTreeMap::new(), sums: Sums::default(), is_whole: true }
    }

    /// From `place` on the states are not known, because of `reason`. Events are still read.
    pub(super) fn lose(&mut self, tallies: &mut Tallies, place: Place, reason: &str) {
        if self.is_whole {
            self.is_whole = false;
            self.states.clear();
            for check in FOLDED {
                tallies.skip(check, format!("from {place} on: {reason}"));
            }
        }
    }

    /// Verifies the event in `line` and folds it.
    pub(super) fn event(&mut self, tallies: &mut Tallies, place: Place, line: &str) {
        tallies.checked(Check::Events, 1);
        let (key, fact) = match record::decode_with_key(line) {
            Ok(decoded) => decoded,
            Err(error) => {
                report(tallies, Check::Events, place, &error.to_string(), "an event", "a line that is none");
                return self.lose(tallies, place, "the event cannot be read");
            }
        };
        let own = fact.event.key();
        if own != key {
            report(tallies, Check::Events, place, "the stored key is not the key of the fact", &own, key);
        }
        let home = self.partitions.of(fact.merchant_id);
        if home != place.partition {
            let text = format!("{} belongs to another partition", fact.merchant_id);
            let found = place.partition.to_string();
            report(tallies, Check::Events, place, &text, &home.to_string(), &found);
        }
        if self.is_whole {
            self.apply(tallies, place, &fact);
        }
    }

    fn apply(&mut self, tallies: &mut Tallies, place: Place, fact: &Fact) {
        tallies.checked(Check::States, 1);
        let moved = fact.event.movement().and_then(|movement| self.sums.count(movement));
        if let Err(error) = moved {
            report(tallies, Check::Balances, place, &format!("the sum {error}"), "", "");
        }
        for (key, effect) in effects(fact) {
            let state = self.states.remove(&key);
            match apply(&key, state, effect) {
                Ok(Some(state)) => {
                    self.states.insert(key, state);
                }
                Ok(None) => {}
                Err(broken) => {
                    let text = broken.to_string();
                    report(tallies, Check::States, place, &text, "an event that can follow", &key.stored().1);
                }
            }
        }
        let Some((wallet_id, stated)) = stated_balance(&fact.event) else { return };
        tallies.checked(Check::BalancesAfter, 1);
        let wallet = self.states.get(&StateKey::Wallet(wallet_id));
        let folded = if let Some(State::Wallet(wallet)) = wallet { Some(wallet.balance) } else { None };
        if folded != Some(stated) {
            let text = format!("the balance after it is not {stated}");
            let expected = folded.map_or_else(|| "no wallet".to_owned(), |balance| balance.to_string());
            report(tallies, Check::BalancesAfter, place, &text, &expected, &stated.to_string());
        }
    }

    /// Verifies the sums of money and the holds of all wallets, after the last event at `place`.
    pub(super) fn sum_up(&mut self, tallies: &mut Tallies, place: Place) {
        if !self.is_whole {
            return;
        }
        for (key, state) in &self.states {
            let (StateKey::Wallet(id), State::Wallet(wallet)) = (key, state) else { continue };
            tallies.checked(Check::Balances, 1);
            let is_customers = matches!(wallet.owner, WalletOwner::Customer(_));
            let over_held = wallet.available(CreditScope::All).is_ok_and(Amount::is_negative);
            // Credit may expire under open holds; the merchant then bears the difference.
            if is_customers && over_held && !self.sums.expired_wallets.contains(id) {
                let text = format!("the holds of {id} exceed the available funds: {wallet:?}");
                report(tallies, Check::Balances, place, &text, "holds within the funds", "holds above them");
            }
            if let Err(error) = self.sums.count_wallet(wallet) {
                report(tallies, Check::Balances, place, &format!("the sum of all balances {error}"), "", "");
            }
        }
        let sides = self.sums.sides();
        if !matches!(sides, Some((received, accounted)) if received == accounted) {
            let text = "the sums do not agree: credited + granted - expired - debited != balances + credits";
            let shown =
                |total: Option<Total>| total.map_or_else(String::new, |total| total.decimal().to_string());
            let (received, accounted) = (sides.map(|sides| sides.0), sides.map(|sides| sides.1));
            report(tallies, Check::Balances, place, text, &shown(received), &shown(accounted));
        }
    }
}

fn report(tallies: &mut Tallies, check: Check, place: Place, text: &str, expected: &str, found: &str) {
    tallies.find(
        check,
        Finding {
            partition: place.partition,
            position: place.position,
            text: format!("{place}: {text}"),
            expected: expected.to_owned(),
            found: found.to_owned(),
        },
    );
}

/// The balance in the event itself, with its wallet.
fn stated_balance(event: &Event) -> Option<(WalletId, Amount)> {
    if let Event::Wallet(WalletEvent::Credited(event)) = event {
        Some((event.wallet_id, event.balance_after))
    } else if let Event::Wallet(WalletEvent::Debited(event)) = event {
        Some((event.wallet_id, event.balance_after))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use farthing_core::ids::{CustomerId, MerchantId};
    use farthing_core::partition::Partition;
    use farthing_core::state::WalletOwner::{Customer, Merchant};

    use ulid::Ulid;

    use super::super::verdict::Verdict;
    use super::*;

    fn amount(text: &str) -> Amount {
        text.parse().unwrap()
    }

    /// What is found of the balances of a wallet of `owner`, which has 5 of the 5 that were credited, and holds `held`.
    fn balances(owner: WalletOwner, held: &str, change: impl Fn(&mut Fold, WalletId)) -> Verdict {
        let id = WalletId::new(Ulid(1));
        let mut wallet = Wallet::empty(MerchantId::new(Ulid(2)), owner);
        (wallet.balance, wallet.held) = (amount("5"), amount(held));
        let mut fold = Fold::new(Partitions::new(1).unwrap());
        fold.states.insert(StateKey::Wallet(id), State::Wallet(Box::new(wallet)));
        fold.sums.count(Some((id, Movement::Credited(amount("5"))))).unwrap();
        change(&mut fold, id);
        let mut tallies = Tallies::default();
        fold.sum_up(&mut tallies, Place { partition: Partition::new(0), position: 7 });
        tallies.verdicts().into_iter().find(|verdict| verdict.check == Check::Balances).unwrap()
    }

    #[test]
    fn holds_above_the_funds_of_a_customer_are_found_unless_credit_expired_under_them() {
        let customer = Customer(CustomerId::new(Ulid(3)));
        let unchanged = |_: &mut Fold, _| {};
        assert_eq!(balances(customer, "5", unchanged).broken, 0);
        assert_eq!(balances(Merchant, "5.1", unchanged).broken, 0);
        let found = balances(customer, "5.1", unchanged);
        assert_eq!((found.broken, found.checked), (1, 1));
        let finding = &found.findings[0];
        assert_eq!((finding.position, finding.found.as_str()), (7, "holds above them"), "{finding:?}");
        let expired = balances(customer, "5.1", |fold, id| {
            fold.sums.count(Some((id, Movement::Granted(amount("1"))))).unwrap();
            fold.sums.count(Some((id, Movement::Expired(amount("1"))))).unwrap();
        });
        assert_eq!(expired.broken, 0, "{expired:?}");
    }

    #[test]
    fn sums_that_do_not_agree_are_found_with_both_sides() {
        let found = balances(Merchant, "0", |fold, id| {
            fold.sums.count(Some((id, Movement::Debited(amount("0.0000000001"))))).unwrap();
        });
        let finding = &found.findings[0];
        let sides = (finding.expected.as_str(), finding.found.as_str());
        assert_eq!((found.broken, sides), (1, ("5", "5.0000000001")), "{finding:?}");
    }
}
