//! A shop of two merchants: random commands against a `StateCache` that loads its states from a store and is cleared at
//! times, as in the appender.

mod calls;
mod checks;
mod customers;
mod keys;
mod meters;

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Duration, Utc};
use farthing_core::command::{CreditTarget, Edit, IssueSecretKey, OpenRequest, Refusal, RegisterMerchant};
use farthing_core::event::{Cycle, RateLimit, RequestLimit, SpendKeySettings, SpendLimit};
use farthing_core::ids::{CustomerId, MerchantId, MeterId, RequestId, SecretKeyId, SpendKeyId, WalletId};
use farthing_core::meter::TierType;
use farthing_core::secret::{KeyHash, ServerKey};
use rust_decimal::Decimal;
use ulid::Ulid;

use crate::actions::{Action, Asked, Ended, USUAL_BY_ID};
use crate::books::Books;
use crate::till::{SentCommand, Till};

struct KeyOf {
    merchant: usize,
    customer: Option<CustomerId>,
    id: SpendKeyId,
    hash: KeyHash,
    is_deleted: bool,
}

fn edit<T>(setting: Option<T>) -> Edit<T> {
    setting.map_or(Edit::Clear, Edit::Set)
}

/// Settings encoded in bits.
fn settings_of(limits: u16) -> SpendKeySettings {
    let bit = |at: u16| limits >> at & 1 == 1;
    let cycle = |at: u16| Cycle::ALL[usize::from(limits >> at & 3)];
    let rare = limits >> 11 & 7;
    SpendKeySettings {
        name: "key".into(),
        allowed_models: (rare == 0).then(|| vec!["model-0".into()]),
        allowed_providers: (rare == 1).then(|| vec!["openai".into()]),
        spend_limit: bit(0).then(|| SpendLimit { amount: "0.8".parse().unwrap(), cycle: cycle(1) }),
        request_limit: bit(3)
            .then(|| RequestLimit { count: 1 + u64::from(limits >> 4 & 3), cycle: cycle(6) }),
        rate_limit: bit(8).then(|| RateLimit { rpm: 1 + u64::from(limits >> 9 & 3), burst: 2 }),
        expires_at: (rare == 2).then(|| "2026-06-01T00:00:00Z".parse().unwrap()),
        request_shape: None,
    }
}

struct MerchantOf {
    id: MerchantId,
    wallet_id: WalletId,
    secret_key: KeyHash,
}

/// The shop.
pub(crate) struct Shop {
    now: DateTime<Utc>,
    made: u128,
    server_key: ServerKey,
    till: Till,
    books: Books,
    merchants: Vec<MerchantOf>,
    customers: Vec<(usize, CustomerId, WalletId, Option<String>)>,
    meters: Vec<(usize, MeterId, String)>,
    deleted_customers: BTreeSet<CustomerId>,
    deleted_meters: BTreeSet<MeterId>,
    secret_keys: Vec<(usize, SecretKeyId, KeyHash)>,
    reported: BTreeMap<(usize, u8), RequestId>,
    spend_keys: Vec<KeyOf>,
    requests: Vec<OpenRequest>,
}

impl Shop {
    /// Opens a shop with two merchants and nothing else.
    pub(crate) fn open() -> Self {
        let mut shop = Self {
            now: "2026-01-31T10:00:00.250Z".parse().unwrap(),
            made: 0,
            server_key: ServerKey::from_hex(&"5a".repeat(32)).unwrap(),
            till: Till::default(),
            books: Books::default(),
            merchants: Vec::new(),
            customers: Vec::new(),
            meters: Vec::new(),
            deleted_customers: BTreeSet::new(),
            deleted_meters: BTreeSet::new(),
            spend_keys: Vec::new(),
            secret_keys: Vec::new(),
            reported: BTreeMap::new(),
            requests: Vec::new(),
        };
        shop.register_merchant();
        shop.register_merchant();
        shop
    }

    fn ulid(&mut self) -> Ulid {
        self.made += 1;
        Ulid::from_parts(u64::try_from(self.now.timestamp_millis()).unwrap(), self.made)
    }

    fn register_merchant(&mut self) {
        let (id, wallet_id) = (MerchantId::new(self.ulid()), WalletId::new(self.ulid()));
        let secret_key = self.server_key.hash(&id.to_string());
        let first_key = IssueSecretKey {
            merchant_id: id,
            secret_key_id: SecretKeyId::new(self.ulid()),
            key_hash: secret_key.clone(),
            hint: "abcd".into(),
            name: "first".into(),
            now: self.now,
        };
        self.secret_keys.push((self.merchants.len(), first_key.secret_key_id, secret_key.clone()));
        let command = RegisterMerchant { wallet_id, name: "shop".into(), first_key, now: self.now };
        self.execute(&command).unwrap();
        self.merchants.push(MerchantOf { id, wallet_id, secret_key });
    }

    /// Executes a command as the appender does, and enters its facts in the books.
    fn execute<C: SentCommand>(&mut self, command: &C) -> Result<C::Outcome, Refusal> {
        let (outcome, appended) = self.till.execute(command)?;
        self.books.enter(&self.till.facts[self.till.facts.len() - appended..]);
        Ok(outcome)
    }

    /// Does `action` and checks its outcome.
    pub(crate) fn act(&mut self, action: &Action) {
        self.now += Duration::milliseconds(7);
        match action {
            Action::Customer { merchant, reference } => self.create_customer(*merchant, *reference),
            Action::Meter { merchant, slug, tier_type, steps, terms } => {
                self.define_meter(*merchant, *slug, *tier_type, steps, *terms);
            }
            Action::UpdateCustomer { merchant, customer, reference } => {
                self.update_customer(*merchant, *customer, *reference);
            }
            Action::DeleteCustomer { merchant, customer } => self.delete_customer(*merchant, *customer),
            Action::UpdateMeter { merchant, meter, rate } => self.update_meter(*merchant, *meter, *rate),
            Action::DeleteMeter { merchant, meter } => self.delete_meter(*merchant, *meter),
            Action::SpendKey { merchant, customer, limits } => {
                self.create_spend_key(*merchant, *customer, *limits);
            }
            Action::UpdateKey { merchant, key, limits } => self.update_key(*merchant, *key, *limits),
            Action::DeleteKey { merchant, key } => self.delete_key(*merchant, *key),
            Action::OpenOnKey { key, model, asked, model_limit } => {
                self.open_on_key(*key, *model, asked, *model_limit);
            }
            Action::Rotate { merchant, key } => self.rotate(*merchant, *key),
            Action::IssueKey { merchant } => self.issue_key(*merchant),
            Action::RevokeKey { revoker, key } => self.revoke_key(*revoker, *key),
            Action::CreditCustomer { customer, cents } => {
                if let Some(at) = pick(&self.customers, *customer) {
                    let id = self.customers[at].1;
                    self.credit(CreditTarget::Customer(id), *cents);
                }
            }
            Action::CreditMerchant { merchant, cents } => {
                let id = self.merchants[usize::from(*merchant)].id;
                self.credit(CreditTarget::Merchant(id), *cents);
            }
            Action::Open { merchant, customer, meter, shape, asked } => {
                let command = self.open_command(*merchant, *customer, *meter, *shape, asked);
                self.open_request(command);
            }
            Action::Reopen { request } => self.reopen(*request),
            Action::Settle { request, how } => self.settle(*request, how),
            Action::Report { merchant, id, customer, meter, shape, how } => {
                let call = self.open_command(*merchant, *customer, *meter, *shape, &Asked::OTHER);
                self.report(*merchant, *id, call, how);
            }
            Action::Wait { hours } => self.now += Duration::hours((*hours).into()),
            Action::Forget => self.till.states.clear(),
        }
    }

    /// Opens `calls` calls of a new customer with `cents` at a fixed fee and returns the number admitted.
    pub(crate) fn open_at_a_fixed_fee(&mut self, cents: u32, fee_cents: u32, calls: u32) -> u32 {
        self.act(&Action::Customer { merchant: 0, reference: None });
        self.act(&Action::CreditCustomer { customer: 0, cents });
        self.act(&Action::CreditMerchant { merchant: 0, cents: 100_000 });
        let steps = vec![(0, fee_cents * 1_000)];
        self.act(&Action::Meter { merchant: 0, slug: None, tier_type: TierType::Requests, steps, terms: 1 });
        let mut admitted = 0;
        for _ in 0..calls {
            let command = self.open_command(0, Some(0), Some(0), USUAL_BY_ID, &Asked::OTHER);
            admitted += u32::from(self.open_request(command));
        }
        admitted
    }

    /// Ends every open call with a response that reports no usage.
    pub(crate) fn settle_everything(&mut self) {
        for at in 0..self.requests.len() {
            self.settle(u8::try_from(at).unwrap(), &Ended::Silent);
        }
    }

    /// The balance of the first customer.
    pub(crate) fn balance_of_first_customer_in_cents(&self) -> u32 {
        let balance = self.books.accounts[&self.customers[0].2].balance() * Decimal::from(100);
        balance.normalize().to_string().parse().unwrap()
    }

    /// The fees in the order they were charged.
    pub(crate) fn fees(&self) -> Vec<String> {
        self.books.fees.iter().map(ToString::to_string).collect()
    }
}

fn pick<T>(things: &[T], number: u8) -> Option<usize> {
    usize::from(number).checked_rem(things.len())
}
