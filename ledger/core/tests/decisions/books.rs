//! Books kept from the facts alone, without the ledger's own `evolve`, and the invariants of the books.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use farthing_core::command::{OpenRequest, Refusal, SpendKeyRefusal};
use farthing_core::event::{
    Charge, CustomerEvent, Event, Fact, Mark, MerchantEvent, Parties, ProviderKeyType, RequestEvent,
    RequestMetered, RequestOpened, SpendKeyEvent, WalletEvent,
};
use farthing_core::ids::{RequestId, SpendKeyId, WalletId};
use farthing_core::meter::Payer;
use farthing_core::money::Amount;
use farthing_core::spending::Spending;
use rust_decimal::Decimal;

use crate::key_books::KeyBooks;

/// The sums of one wallet.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// The wallet is a customer's.
    pub(crate) of_customer: bool,
    /// The sum of its credits.
    pub(crate) credits: Decimal,
    /// The sum of its debits.
    pub(crate) debits: Decimal,
    /// The sum of the holds of open requests.
    pub(crate) held: Decimal,
}

impl Account {
    /// Credits less debits.
    pub(crate) fn balance(&self) -> Decimal {
        self.credits - self.debits
    }
}

/// The books.
#[derive(Debug, Default)]
pub(crate) struct Books {
    /// Every wallet.
    pub(crate) accounts: BTreeMap<WalletId, Account>,
    /// Every open request.
    pub(crate) open: BTreeMap<RequestId, Box<RequestOpened>>,
    /// The end of the last tier interval, by holder, meter and period.
    pub(crate) positions: BTreeMap<String, Decimal>,
    /// The fees in the order they were charged.
    pub(crate) fees: Vec<Amount>,
    keys: BTreeSet<String>,
    spend_keys: BTreeMap<SpendKeyId, KeyBooks>,
    ended: BTreeSet<RequestId>,
}

impl Books {
    /// Enters the facts of one append.
    pub(crate) fn enter(&mut self, facts: &[Fact]) {
        for fact in facts {
            assert!(self.keys.insert(fact.event.key()), "duplicate fact: {}", fact.event.key());
            self.enter_one(fact);
        }
        check_debits_of_one_append(facts);
        self.check();
    }

    fn enter_one(&mut self, fact: &Fact) {
        match &fact.event {
            Event::Merchant(MerchantEvent::Registered(event)) => {
                self.accounts.insert(event.wallet_id, Account::default());
            }
            Event::Customer(CustomerEvent::Created(event)) => {
                self.accounts.insert(event.wallet_id, Account { of_customer: true, ..Account::default() });
            }
            Event::SecretKey(_)
            | Event::Customer(CustomerEvent::Updated(_) | CustomerEvent::Deleted(_))
            | Event::Meter(_)
            | Event::SpendKey(SpendKeyEvent::Rotated(_)) => {}
            Event::SpendKey(SpendKeyEvent::Created(event)) => {
                let key = KeyBooks::new(event.settings.clone(), fact.occurred_at);
                assert!(self.spend_keys.insert(event.spend_key_id, key).is_none(), "duplicate spend key");
            }
            Event::SpendKey(SpendKeyEvent::Updated(event)) => {
                let key = self.spend_keys.get_mut(&event.spend_key_id).expect("an existing key");
                key.update(event.status, event.settings.clone(), fact.occurred_at);
            }
            Event::SpendKey(SpendKeyEvent::Deleted(event)) => {
                self.spend_keys.remove(&event.spend_key_id).expect("an existing key");
            }
            Event::Wallet(WalletEvent::Credited(event)) => {
                assert!(event.amount.is_positive());
                let account = self.account(event.wallet_id);
                account.credits += event.amount.decimal();
                assert_eq!(account.balance(), event.balance_after.decimal());
            }
            Event::Request(RequestEvent::Opened(event)) => {
                self.hold(event.parties, event.hold.wallet.decimal(), event.hold.merchant.decimal());
                if let Some(used) = event.spend_key {
                    let key = self.spend_keys.get_mut(&used.spend_key_id).expect("an active key");
                    key.admit(event.request_id, used.admitted_at, used.held(event.hold).unwrap());
                }
                assert!(!self.ended.contains(&event.request_id), "opened after its end");
                assert!(self.open.insert(event.request_id, event.clone()).is_none(), "opened twice");
            }
            Event::Request(RequestEvent::Metered(event)) => {
                let opened = self.end(event.request_id);
                self.settle_on_key(&opened, event.total_request_cost);
                assert_eq!(event.spend_key, opened.spend_key);
                self.check_metered(fact, event, &opened);
            }
            Event::Wallet(WalletEvent::Debited(event)) => {
                assert!(event.amount.is_positive());
                let account = self.account(event.wallet_id);
                account.debits += event.amount.decimal();
                assert_eq!(account.balance(), event.balance_after.decimal());
                let drawn: Decimal = event.sources.iter().map(|source| source.amount.decimal()).sum();
                assert_eq!(drawn, event.amount.decimal(), "a debit is the sum of its sources");
            }
            Event::Request(RequestEvent::Failed(event)) => {
                let opened = self.end(event.request_id);
                self.settle_on_key(&opened, Amount::ZERO);
                assert_eq!(event.spend_key, opened.spend_key);
            }
            Event::Merchant(MerchantEvent::ClockAdvanced(_))
            | Event::Wallet(WalletEvent::AutopayChanged(_))
            | Event::Plan(_)
            | Event::Subscription(_)
            | Event::Payment(_)
            | Event::Checkout(_)
            | Event::Webhook(_) => {
                unreachable!("nobody subscribes in this shop")
            }
        }
    }

    fn settle_on_key(&mut self, opened: &RequestOpened, cost: Amount) {
        let key = opened.spend_key.and_then(|used| self.spend_keys.get_mut(&used.spend_key_id));
        if let Some(key) = key {
            key.settle(opened.request_id, cost);
        }
    }

    /// The expected decision about a call on the spend key `id`, apart from money.
    pub(crate) fn may_be_admitted(&self, id: SpendKeyId, call: &OpenRequest) -> Result<(), Refusal> {
        self.spend_keys.get(&id).ok_or(Refusal::SpendKey(SpendKeyRefusal::Invalid))?.may_be_admitted(call)
    }

    /// A spend key's counters agree with the books.
    pub(crate) fn check_spending(&self, id: SpendKeyId, spending: &Spending, now: DateTime<Utc>) {
        self.spend_keys[&id].check(spending, now);
    }

    fn account(&mut self, id: WalletId) -> &mut Account {
        self.accounts.get_mut(&id).expect("a wallet is created before it is used")
    }

    fn hold(&mut self, parties: Parties, on_wallet: Decimal, on_merchant: Decimal) {
        match parties.wallet_id {
            Some(id) => self.account(id).held += on_wallet,
            None => assert!(on_wallet.is_zero(), "a hold on no wallet"),
        }
        self.account(parties.merchant_wallet_id).held += on_merchant;
    }

    fn end(&mut self, id: RequestId) -> Box<RequestOpened> {
        assert!(self.ended.insert(id), "{id} ended twice");
        let opened = self.open.remove(&id).expect("only an open request ends");
        self.hold(opened.parties, -opened.hold.wallet.decimal(), -opened.hold.merchant.decimal());
        opened
    }

    fn check_metered(&mut self, fact: &Fact, event: &RequestMetered, opened: &RequestOpened) {
        assert_eq!(event.hold, opened.hold, "the released hold is the one that was held");
        assert_eq!(event.parties, opened.parties);
        let cost = event.total_wallet_cost.plus(event.total_merchant_cost).unwrap();
        assert_eq!(cost, event.total_request_cost, "the parties pay the cost of the call");
        assert!(!event.total_wallet_cost.is_negative() && !event.total_merchant_cost.is_negative());
        let lines = Amount::sum(event.fee.breakdown.iter().map(|line| line.cost)).unwrap();
        assert_eq!(lines, event.fee.amount, "fee lines sum to the fee");
        assert_eq!(
            event.overrun.is_positive(),
            event.marks.contains(&Mark::Overrun),
            "overrun only when marked"
        );
        assert!(event.overrun <= event.total_merchant_cost, "an overrun is the merchant's");
        check_who_pays(event, opened);
        self.fees.push(event.fee.amount);

        let Some(terms) = &opened.terms else {
            assert!(event.meter_id.is_none() && event.units.is_zero());
            return;
        };
        assert_eq!(event.meter_id, Some(terms.meter_id));
        let counted: Decimal = event.fee.breakdown.iter().map(|line| line.units).sum();
        assert_eq!(counted, event.units, "every unit falls into one tier");
        let holder =
            event.parties.customer_id.map_or_else(|| fact.merchant_id.to_string(), |id| id.to_string());
        let start = event.period_start.expect("a metered call counts in a period");
        let place = format!("{holder}/{}/{}", terms.meter_id, start.timestamp_millis());
        let position = self.positions.entry(place).or_default();
        assert_eq!(event.tier_position, *position, "tier usage has no gap and is never shared");
        *position += event.units;
    }

    fn check(&self) {
        for (id, account) in &self.accounts {
            let balance = account.balance();
            assert!(account.held >= Decimal::ZERO, "{id}: holds below zero");
            if account.of_customer {
                assert!(balance >= Decimal::ZERO, "{id}: a customer's wallet below zero");
                assert!(account.held <= balance, "{id}: holds above the balance");
            }
        }
    }
}

/// Checks the table "Who pays" independently: every part of the cost is paid by one party or by nobody, and an overrun
/// moves from the customer to the merchant.
fn check_who_pays(event: &RequestMetered, opened: &RequestOpened) {
    let cost = event.model_cost;
    assert_eq!(cost.input.plus(cost.output).unwrap(), cost.total, "lines sum to the provider's cost");
    assert!(opened.model_price.is_some() || cost.total.is_zero(), "a cost without a price");
    let price = opened.terms.as_ref().map(|terms| &terms.price);
    let (wallet, merchant, nobody) = (Some(Payer::Wallet), Some(Payer::Merchant), None);
    let [of_cost, of_fee, of_charge] = match opened.charge {
        Charge::Merchant | Charge::MeterOnly => [merchant, nobody, nobody],
        Charge::Customer => [wallet, nobody, nobody],
        Charge::SpendKey => [opened.parties.customer_id.map_or(merchant, |_| wallet), nobody, nobody],
        Charge::CustomerBilling => {
            let price = price.expect("billing has a meter");
            [Some(price.base_cost_payer), wallet, Some(price.service_charge_payer)]
        }
        Charge::Recorded => [merchant, merchant, merchant],
        Charge::MeteringOnly => [nobody, nobody, nobody],
    };
    let of_cost = of_cost.filter(|_| opened.provider_key_type == ProviderKeyType::Managed);
    let parts = [(of_cost, cost.total), (of_fee, event.fee.amount), (of_charge, event.service_charge.amount)];
    let sum = |payer| Amount::sum(parts.iter().filter(|part| part.0 == payer).map(|part| part.1)).unwrap();
    assert_eq!(sum(wallet).minus(event.overrun).unwrap(), event.total_wallet_cost, "{event:?}");
    assert_eq!(sum(merchant).plus(event.overrun).unwrap(), event.total_merchant_cost, "{event:?}");
    if of_fee == nobody {
        assert!(event.service_charge.amount.is_zero(), "a charge on a fee that nobody pays");
    }
}

/// Checks that a settlement debits each party exactly the amount stated in the request.
fn check_debits_of_one_append(facts: &[Fact]) {
    let debited = |wallet: Option<WalletId>| -> Decimal {
        let amount = |fact: &Fact| match &fact.event {
            Event::Wallet(WalletEvent::Debited(debit)) if Some(debit.wallet_id) == wallet => {
                debit.amount.decimal()
            }
            _ => Decimal::ZERO,
        };
        facts.iter().map(amount).sum()
    };
    let settled = facts.iter().find_map(|fact| match &fact.event {
        Event::Request(RequestEvent::Metered(event)) => Some(event),
        _ => None,
    });
    match settled {
        Some(event) => {
            assert_eq!(debited(event.parties.wallet_id), event.total_wallet_cost.decimal());
            let merchant = Some(event.parties.merchant_wallet_id);
            assert_eq!(debited(merchant), event.total_merchant_cost.decimal());
        }
        None => {
            assert!(!facts.iter().any(|fact| matches!(fact.event, Event::Wallet(WalletEvent::Debited(_)))));
        }
    }
}
