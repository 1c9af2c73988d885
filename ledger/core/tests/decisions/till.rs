//! The appender without a database: decides on a `StateCache` that loads its states from a store, evolves and stores.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use farthing_core::accounts::{Account, Journal, Posting, TrialBalance};
use farthing_core::command::wire::{AnyCommand, WireCommand, decode_answer, encode_answer};
use farthing_core::command::{ChargedParts, Command, DecideError, RecomputedBill, Refusal, Timed, decide};
use farthing_core::entry::{Entry, Funds};
use farthing_core::event::{Event, Fact, RequestEvent, RequestOpened};
use farthing_core::ids::{RequestId, WalletId};
use farthing_core::meter::{Price, RateType, TierType};
use farthing_core::money::{Amount, Total};
use farthing_core::state::{EvolveError, Missing, State, StateCache, StateKey, Wallet, WalletOwner, shape};

/// A ledger in memory.
#[derive(Debug, Default)]
pub(crate) struct Till {
    /// The states that decisions see; cleared at times, as in the appender.
    pub(crate) states: StateCache,
    /// The stored states.
    pub(crate) store: BTreeMap<(&'static str, String), (StateKey, String)>,
    /// The log.
    pub(crate) facts: Vec<Fact>,
    /// The double-entry accounts of the log.
    pub(crate) accounts: TrialBalance,
    /// The sums of the entries of each wallet.
    pub(crate) funds: BTreeMap<WalletId, Funds>,
    journal: Journal,
    /// Enters the same events, and is begun anew at appends.
    any_append: Journal,
    /// The openings of calls that have not ended.
    opened: BTreeMap<RequestId, RequestOpened>,
    refusals: usize,
    sent: usize,
}

/// One in this many refusals is checked twice.
const LOOKED_AT_TWICE: usize = 4;

/// One in this many commands is also sent timed.
const SENT_TIMED: usize = 4;

/// A command whose decision is compared with the one of another gateway.
pub(crate) trait SentCommand: WireCommand<Outcome: PartialEq + Debug> + Clone {}

impl<C: WireCommand<Outcome: PartialEq + Debug> + Clone> SentCommand for C {}

impl Till {
    /// Loads the missing states from the store.
    pub(crate) fn load(&mut self, Missing(keys): Missing) {
        assert!(!keys.is_empty(), "asked for nothing");
        for key in keys {
            assert!(!self.states.knows(&key), "asked for what is known");
            let stored = self.store.get(&key.stored());
            let state = stored.map(|(key, json)| State::from_json(key, shape(), json).unwrap());
            self.states.load(key, state);
        }
    }

    /// Decides, evolves and stores; returns the outcome and the number of facts appended. A refusal changes nothing.
    pub(crate) fn execute<C: SentCommand>(&mut self, command: &C) -> Result<(C::Outcome, usize), Refusal> {
        let decision = loop {
            match decide(command, &self.states) {
                Ok(decision) => break decision,
                Err(DecideError::Missing(missing)) => self.load(missing),
                Err(DecideError::Refused(refusal)) => {
                    self.refusals += 1;
                    if self.refusals.is_multiple_of(LOOKED_AT_TWICE) {
                        self.is_refused_with_everything_loaded(command, &refusal);
                    }
                    self.is_decided_alike_when_sent(command);
                    assert_eq!(self.states.take_changes(), [], "a refusal changes nothing");
                    return Err(refusal);
                }
            }
        };
        self.is_decided_alike_when_sent(command);
        while let Err(stuck) = self.states.evolve(&decision.facts) {
            match stuck {
                EvolveError::Missing(missing) => self.load(missing),
                EvolveError::InvariantBroken(broken) => panic!("a decision broke an invariant: {broken}"),
            }
        }
        for (key, json) in self.states.take_changes() {
            match json {
                Some(json) => self.store.insert(key.stored(), (key, json)),
                None => self.store.remove(&key.stored()),
            };
        }
        self.states.confirm_stored();
        self.post(&decision.facts);
        let appended = decision.facts.len();
        self.facts.extend(decision.facts);
        Ok((decision.outcome, appended))
    }

    /// Posts the facts of one append, whose states are stored.
    fn post(&mut self, facts: &[Fact]) {
        let mut changed = BTreeSet::new();
        self.any_append = Journal::from_any_append();
        for fact in facts {
            self.check_bill(&fact.event);
            let entry = self.journal.enter(&fact.event).unwrap();
            assert_eq!(self.any_append.enter(&fact.event).unwrap(), entry, "{fact:?}");
            let sum = Amount::sum(entry.iter().map(|posting| posting.amount)).unwrap();
            assert!(sum.is_zero(), "the postings of {fact:?} add up to {sum}: {entry:?}");
            self.accounts.post(&entry).unwrap();
            if let Some(entry) = Entry::of(&fact.event).unwrap() {
                let funds = self.funds.entry(entry.wallet_id).or_default();
                *funds = funds.plus(entry.change).unwrap();
                if let Some(stated) = entry.stated_balance {
                    assert_eq!(funds.balance, stated, "the balance after {fact:?}");
                }
                changed.insert(entry.wallet_id);
            }
        }
        for id in changed {
            let (key, json) = &self.store[&StateKey::Wallet(id).stored()];
            assert_eq!(self.funds[&id], funds_of(&wallet(key, json)), "{id} after {facts:?}");
        }
        for account in [Account::PaymentsClearing, Account::CallsClearing] {
            assert_eq!(self.accounts.of(account), Total::default(), "{account:?} after {facts:?}");
        }
    }

    /// Checks that the bill of a call follows from its events.
    fn check_bill(&mut self, event: &Event) {
        match event {
            Event::Request(RequestEvent::Opened(opened)) => {
                self.opened.insert(opened.request_id, RequestOpened::clone(opened));
            }
            Event::Request(RequestEvent::Metered(metered)) => {
                let opened = self.opened.remove(&metered.request_id).expect("opened before");
                let recorded = RecomputedBill::recorded(metered).unwrap();
                assert_eq!(RecomputedBill::of(&opened, metered).unwrap(), recorded, "{opened:?} {metered:?}");
                let by_usage = |price: &&Price| {
                    price.rate_type == RateType::Percentage || price.tier_type != TierType::Requests
                };
                let price = opened.terms.as_ref().map(|terms| &terms.price).filter(by_usage);
                if let Some(max) = price.and_then(|price| price.max_fee)
                    && ChargedParts::of(&opened).fee
                {
                    assert!(metered.fee.amount <= max, "{opened:?} {metered:?}");
                }
            }
            Event::Request(RequestEvent::Failed(failed)) => {
                self.opened.remove(&failed.request_id).expect("opened before");
            }
            _ => {}
        }
    }

    /// Checks that the accounts of what is owed are the sums of the stored wallets, and the entries of each wallet its
    /// money.
    pub(crate) fn check_accounts(&self) {
        let mut owed = TrialBalance::default();
        let mut owe = |account, amount| {
            let amount = Amount::ZERO.minus(amount).unwrap();
            owed.post(&[Posting { account, amount }]).unwrap();
        };
        for (key, json) in self.store.values() {
            let StateKey::Wallet(id) = key else { continue };
            let wallet = wallet(key, json);
            let funds = funds_of(&wallet);
            assert_eq!(self.funds.get(id).copied().unwrap_or_default(), funds, "the entries of {id}");
            owe(Account::PlanCredit, funds.plan_credit);
            owe(Account::BundleCredit, funds.bundle_credit);
            let account = match wallet.owner {
                WalletOwner::Customer(_) => Account::CustomerBalances,
                WalletOwner::Merchant => Account::MerchantWallets,
            };
            owe(account, funds.balance);
        }
        for account in
            [Account::CustomerBalances, Account::MerchantWallets, Account::PlanCredit, Account::BundleCredit]
        {
            assert_eq!(self.accounts.of(account), owed.of(account), "{account:?}");
        }
        assert_eq!(self.accounts.sum().unwrap(), Total::default());
    }

    /// Checks that `command` is decided alike after it was sent to another gateway, and that the answer comes back as
    /// it was decided. Some commands are sent timed, too.
    fn is_decided_alike_when_sent<C: SentCommand>(&mut self, command: &C) {
        self.sent += 1;
        self.is_answered_alike(command);
        if self.sent.is_multiple_of(SENT_TIMED)
            && let (Some(merchant_id), Some(last)) = (command.merchant_id(), self.facts.last())
        {
            self.is_answered_alike(&Timed { command: command.clone(), merchant_id, now: last.occurred_at });
        }
    }

    fn is_answered_alike<C: SentCommand>(&self, command: &C) {
        let sent: AnyCommand = command.clone().into();
        let arrived = AnyCommand::decode(&sent.encode()).unwrap();
        assert_eq!((arrived.name(), arrived.merchant_id()), (C::NAME, command.merchant_id()));
        match (decide(command, &self.states), decide(&arrived, &self.states)) {
            (Ok(here), Ok(there)) => {
                assert_eq!((there.facts, there.personal), (here.facts, here.personal));
                let answer = encode_answer(&Ok(there.outcome));
                assert_eq!(decode_answer::<C>(&answer).unwrap(), Ok(here.outcome), "{answer}");
            }
            (Err(DecideError::Refused(here)), Err(DecideError::Refused(there))) => {
                let answer = encode_answer(&Err(there));
                assert_eq!(decode_answer::<C>(&answer).unwrap(), Err(here), "{answer}");
            }
            (Err(DecideError::Missing(here)), Err(DecideError::Missing(there))) => assert_eq!(here, there),
            (here, there) => panic!("{} is {here:?} here and {there:?} there", C::NAME),
        }
    }

    /// Checks that a refusal does not depend on a state that was not loaded.
    fn is_refused_with_everything_loaded<C: Command>(&self, command: &C, refusal: &Refusal) {
        let mut states = StateCache::default();
        for (key, json) in self.store.values() {
            states.load(key.clone(), Some(State::from_json(key, shape(), json).unwrap()));
        }
        loop {
            match decide(command, &states) {
                Err(DecideError::Missing(Missing(keys))) => {
                    for key in keys {
                        states.load(key, None);
                    }
                }
                Err(DecideError::Refused(again)) => {
                    assert_eq!(again, *refusal);
                    return;
                }
                Ok(_) => panic!("{refusal:?} for want of a state"),
            }
        }
    }

    /// The stored states of one kind.
    pub(crate) fn stored(&self, kind: &str) -> Vec<State> {
        let rows = self.store.iter().filter(|((there, _), _)| *there == kind);
        rows.map(|(_, (key, json))| State::from_json(key, shape(), json).unwrap()).collect()
    }
}

/// A stored wallet.
fn wallet(key: &StateKey, json: &str) -> Wallet {
    let Ok(State::Wallet(wallet)) = State::from_json(key, shape(), json) else { panic!("{json}") };
    *wallet
}

/// The money in a wallet.
fn funds_of(wallet: &Wallet) -> Funds {
    Funds {
        balance: wallet.balance,
        plan_credit: wallet.plan_credit(),
        bundle_credit: wallet.bundle_credit().unwrap(),
    }
}
