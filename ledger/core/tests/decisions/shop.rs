//! A shop of two merchants: random commands against a `StateCache` that loads its states from a store and forgets
//! them at times, as the appender does.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use chrono::{DateTime, Duration, Utc};
use farthing_core::command::{
    Billing, Caller, Command, CreateCustomer, CreateSpendKey, CreditTarget, CreditWallet, CustomerMade,
    CustomerRef, CustomerRefusal, DecideError, DefineMeter, DeleteCustomer, DeleteMeter, DeleteSpendKey,
    Edit, Ending, Failed, IssueSecretKey, MeterRef, MeterRefusal, Metered, OpenRequest, PersonalData,
    Refusal, RegisterMerchant, ReportRequest, Reported, RequestRefusal, RequestSettings, RevokeSecretKey,
    Revoker, RotateSpendKey, SecretKeyRefusal, SettleRequest, Settled, Slug, SpendKeyEdits, SpendKeyRefusal,
    UpdateCustomer, UpdateMeter, UpdateSpendKey, WalletRefusal,
};
use farthing_core::event::{
    Cycle, Event, FailureReason, Hold, ProviderKeyType, RateLimit, RequestEvent, RequestLimit,
    SpendKeySettings, SpendKeyStatus, SpendLimit,
};
use farthing_core::ids::{
    CreditId, CustomerId, GatewayId, MerchantId, MeterId, RequestId, SecretKeyId, SpendKeyId, WalletId,
};
use farthing_core::meter::{OnDisconnect, Payer, Price, RateType, Tier, TierType, Tiers, TokenBasis};
use farthing_core::model_price::ListPrice;
use farthing_core::money::Amount;
use farthing_core::pricing::SizeHint;
use farthing_core::secret::{KeyHash, ServerKey};
use farthing_core::state::{EvolveError, Holder, Missing, State, StateCache, StateKey};
use rust_decimal::Decimal;
use ulid::Ulid;

use crate::actions::{Action, Asked, Ended, USUAL_BY_ID};
use crate::books::Books;
use crate::till::Till;

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

/// Settings of which each bit says something.
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
    /// Two merchants, nothing else.
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

    /// The appender's round; what it appends is entered in the books.
    fn execute<C: Command>(&mut self, command: &C) -> Result<C::Outcome, Refusal> {
        let (outcome, appended) = self.till.execute(command)?;
        self.books.enter(&self.till.facts[self.till.facts.len() - appended..]);
        Ok(outcome)
    }

    /// Does `action`, checking what must come of it.
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
            Action::OpenOnKey { key, model, output_limit } => self.open_on_key(*key, *model, *output_limit),
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

    fn create_customer(&mut self, merchant: u8, reference: Option<u8>) {
        let merchant = usize::from(merchant);
        let reference = reference.map(|number| format!("reference-{number}"));
        let (customer_id, wallet_id) = (CustomerId::new(self.ulid()), WalletId::new(self.ulid()));
        let known = self
            .customers
            .iter()
            .find(|(of, _, _, there)| *of == merchant && there.is_some() && *there == reference);
        let known = known.map(|(_, id, _, _)| *id);
        let command = CreateCustomer {
            merchant_id: self.merchants[merchant].id,
            customer_id,
            wallet_id,
            reference_id: reference.clone(),
            metadata: BTreeMap::new(),
            personal: PersonalData::default(),
            now: self.now,
        };
        let before = self.till.facts.len();
        match (self.execute(&command).unwrap(), known) {
            (CustomerMade::Existing(id), Some(known)) => {
                assert_eq!(id, known);
                assert_eq!(self.till.facts.len(), before, "a known reference id appends nothing");
            }
            (CustomerMade::Created(id), None) => self.customers.push((merchant, id, wallet_id, reference)),
            (made, known) => panic!("{made:?}, but {known:?} was known"),
        }
    }

    fn define_meter(
        &mut self,
        merchant: u8,
        slug: Option<u8>,
        tier_type: TierType,
        steps: &[(u32, u32)],
        terms: u8,
    ) {
        let merchant = usize::from(merchant);
        let mut start = 0_u64;
        let tiers = steps.iter().enumerate().map(|(at, (step, rate))| {
            start += if at == 0 { 0 } else { u64::from(*step) };
            let rate =
                if *rate == u32::MAX { Decimal::from(1_000_000) } else { Decimal::new((*rate).into(), 5) };
            Tier { start: start.into(), rate: rate.to_string().parse().unwrap() }
        });
        let payer = |bit: u8| if terms & bit == 0 { Payer::Wallet } else { Payer::Merchant };
        let price = Price {
            rate_type: if terms & 0b1_1000 == 0b1_1000 { RateType::Percentage } else { RateType::Fixed },
            tier_type,
            tiers: Tiers::new(tiers.collect()).unwrap(),
            token_basis: if terms & 4 == 0 { TokenBasis::InputOutput } else { TokenBasis::Output },
            base_cost_payer: payer(2),
            service_charge_payer: payer(1),
            on_disconnect: OnDisconnect::Complete,
        };
        let given = slug.map(|number| format!("slug-{number}"));
        let taken = self.meters.iter().any(|(of, id, there)| {
            *of == merchant && Some(there) == given.as_ref() && !self.deleted_meters.contains(id)
        });
        let meter_id = MeterId::new(self.ulid());
        let command = DefineMeter {
            merchant_id: self.merchants[merchant].id,
            meter_id,
            slug: given.map_or_else(|| Slug::Made("meter".into()), Slug::Given),
            name: "meter".into(),
            price,
            now: self.now,
        };
        match self.execute(&command) {
            Ok(slug) => {
                assert!(!taken, "a slug twice");
                self.meters.push((merchant, meter_id, slug));
            }
            Err(refusal) => {
                assert!(taken);
                assert_eq!(refusal, Refusal::Meter(MeterRefusal::SlugTaken));
            }
        }
    }

    fn update_customer(&mut self, merchant: u8, customer: u8, reference: Edit<u8>) {
        let (merchant, Some(at)) = (usize::from(merchant), pick(&self.customers, customer)) else { return };
        let (owner, customer_id, _, old) = self.customers[at].clone();
        let named = |number: &u8| format!("reference-{number}");
        let (new, reference_id) = match &reference {
            Edit::Keep => (old.clone(), Edit::Keep),
            Edit::Clear => (None, Edit::Clear),
            Edit::Set(number) => (Some(named(number)), Edit::Set(named(number))),
        };
        let command = UpdateCustomer {
            merchant_id: self.merchants[merchant].id,
            customer_id,
            reference_id,
            metadata: None,
            contact: Vec::new(),
            personal: PersonalData::default(),
            now: self.now,
        };
        let there = owner == merchant && !self.deleted_customers.contains(&customer_id);
        let taken = self
            .customers
            .iter()
            .any(|(of, id, _, there)| *of == owner && *id != customer_id && new.is_some() && *there == new);
        let before = self.till.facts.len();
        match self.execute(&command) {
            Ok(()) => {
                assert!(there && !taken);
                assert_eq!(
                    self.till.facts.len() - before,
                    usize::from(old != new),
                    "nothing new appends nothing"
                );
                self.customers[at].3 = new;
            }
            Err(Refusal::Customer(CustomerRefusal::NotFound)) => assert!(!there),
            Err(Refusal::Customer(CustomerRefusal::ReferenceIdTaken)) => assert!(there && taken),
            Err(other) => panic!("unexpected refusal: {other}"),
        }
    }

    fn delete_customer(&mut self, merchant: u8, customer: u8) {
        let (merchant, Some(at)) = (usize::from(merchant), pick(&self.customers, customer)) else { return };
        let (owner, customer_id, ..) = self.customers[at];
        let merchant_id = self.merchants[merchant].id;
        let answer = self.execute(&DeleteCustomer { merchant_id, customer_id, now: self.now });
        let there = owner == merchant && !self.deleted_customers.contains(&customer_id);
        assert_eq!(answer, if there { Ok(()) } else { Err(Refusal::Customer(CustomerRefusal::NotFound)) });
        if there {
            self.deleted_customers.insert(customer_id);
            self.customers[at].3 = None;
        }
    }

    fn update_meter(&mut self, merchant: u8, meter: u8, rate: u32) {
        let (merchant, Some(at)) = (usize::from(merchant), pick(&self.meters, meter)) else { return };
        let (owner, meter_id, slug) = self.meters[at].clone();
        let rate: Amount = Decimal::new(rate.into(), 5).to_string().parse().unwrap();
        let tiers = Tiers::new(vec![Tier { start: Decimal::ZERO, rate }]).unwrap();
        let command = UpdateMeter {
            merchant_id: self.merchants[merchant].id,
            meter_id,
            name: None,
            tiers: Some(tiers.clone()),
            base_cost_payer: None,
            service_charge_payer: None,
            on_disconnect: None,
            now: self.now,
        };
        let there = owner == merchant && !self.deleted_meters.contains(&meter_id);
        match self.execute(&command) {
            Ok(updated) => {
                assert!(there);
                assert_eq!((updated.meter_slug, updated.price.tiers), (slug, tiers));
            }
            Err(refusal) => assert_eq!((there, refusal), (false, Refusal::Meter(MeterRefusal::NotFound))),
        }
    }

    fn delete_meter(&mut self, merchant: u8, meter: u8) {
        let (merchant, Some(at)) = (usize::from(merchant), pick(&self.meters, meter)) else { return };
        let (owner, meter_id, _) = self.meters[at];
        let merchant_id = self.merchants[merchant].id;
        let answer = self.execute(&DeleteMeter { merchant_id, meter_id, now: self.now });
        let there = owner == merchant && !self.deleted_meters.contains(&meter_id);
        assert_eq!(answer, if there { Ok(()) } else { Err(Refusal::Meter(MeterRefusal::NotFound)) });
        if there {
            self.deleted_meters.insert(meter_id);
        }
    }

    fn create_spend_key(&mut self, merchant: u8, customer: Option<u8>, limits: u16) {
        let merchant = usize::from(merchant);
        let customer = customer.and_then(|number| pick(&self.customers, number));
        let spend_key_id = SpendKeyId::new(self.ulid());
        let command = CreateSpendKey {
            merchant_id: self.merchants[merchant].id,
            spend_key_id,
            customer_id: customer.map(|at| self.customers[at].1),
            key_hash: self.server_key.hash(&format!("{spend_key_id}/0")),
            key_preview: "spk_abcd****".into(),
            settings: settings_of(limits),
            now: self.now,
        };
        let foreign = customer.is_some_and(|at| {
            let (owner, id, ..) = &self.customers[at];
            *owner != merchant || self.deleted_customers.contains(id)
        });
        match self.execute(&command) {
            Ok(made) => {
                assert!(!foreign);
                let own = self.merchants[merchant].wallet_id;
                assert_eq!(made.key.wallet_id, customer.map_or(own, |at| self.customers[at].2));
                let hash = command.key_hash;
                let customer = command.customer_id;
                self.spend_keys.push(KeyOf { merchant, customer, id: spend_key_id, hash, is_deleted: false });
            }
            Err(refusal) => {
                assert!(foreign);
                assert_eq!(refusal, Refusal::Customer(CustomerRefusal::NotFound));
            }
        }
    }

    fn rotate(&mut self, merchant: u8, key: u8) {
        let Some(at) = pick(&self.spend_keys, key) else { return };
        let KeyOf { merchant: owner, id: spend_key_id, is_deleted, .. } = self.spend_keys[at];
        let fresh = self.ulid();
        let command = RotateSpendKey {
            merchant_id: self.merchants[usize::from(merchant)].id,
            spend_key_id,
            key_hash: self.server_key.hash(&fresh.to_string()),
            key_preview: "spk_efgh****".into(),
            now: self.now,
        };
        let answer = self.execute(&command);
        assert_eq!(answer.is_ok(), owner == usize::from(merchant) && !is_deleted, "{answer:?}");
        if let Ok(rotated) = answer {
            assert_eq!(rotated.key.key_hash, command.key_hash);
            let dead = std::mem::replace(&mut self.spend_keys[at].hash, command.key_hash);
            let command = self.command_on_key(dead, "model-0".into(), None);
            assert_eq!(
                self.execute(&command),
                Err(Refusal::SpendKey(SpendKeyRefusal::Invalid)),
                "a rotated key works"
            );
        }
    }

    fn update_key(&mut self, merchant: u8, key: u8, limits: u16) {
        let Some(at) = pick(&self.spend_keys, key) else { return };
        let KeyOf { merchant: owner, id: spend_key_id, is_deleted, .. } = self.spend_keys[at];
        let settings = settings_of(limits);
        let status = if limits >> 13 == 0 { SpendKeyStatus::Paused } else { SpendKeyStatus::Active };
        let command = UpdateSpendKey {
            merchant_id: self.merchants[usize::from(merchant)].id,
            spend_key_id,
            edits: SpendKeyEdits {
                status: Some(status),
                allowed_models: edit(settings.allowed_models.clone()),
                allowed_providers: edit(settings.allowed_providers.clone()),
                spend_limit: edit(settings.spend_limit),
                request_limit: edit(settings.request_limit),
                rate_limit: edit(settings.rate_limit),
                expires_at: edit(settings.expires_at),
                ..SpendKeyEdits::default()
            },
            now: self.now,
        };
        match self.execute(&command) {
            Ok(updated) => {
                assert!(owner == usize::from(merchant) && !is_deleted);
                assert_eq!((updated.key.status, &updated.key.settings), (status, &settings));
                let before = self.till.facts.len();
                assert_eq!(self.execute(&command).unwrap().key, updated.key);
                assert_eq!(self.till.facts.len(), before, "what changes nothing appends nothing");
            }
            Err(refusal) => {
                assert_eq!(refusal, Refusal::SpendKey(SpendKeyRefusal::NotFound));
                assert!(owner != usize::from(merchant) || is_deleted);
            }
        }
    }

    fn delete_key(&mut self, merchant: u8, key: u8) {
        let Some(at) = pick(&self.spend_keys, key) else { return };
        let KeyOf { merchant: owner, id: spend_key_id, is_deleted, .. } = self.spend_keys[at];
        let merchant_id = self.merchants[usize::from(merchant)].id;
        let answer = self.execute(&DeleteSpendKey { merchant_id, spend_key_id, now: self.now });
        assert_eq!(answer.is_ok(), owner == usize::from(merchant) && !is_deleted, "{answer:?}");
        self.spend_keys[at].is_deleted |= answer.is_ok();
    }

    fn command_on_key(&mut self, hash: KeyHash, model: String, output_limit: Option<u32>) -> OpenRequest {
        let asked = Asked { output_limit, ..Asked::OTHER };
        let command = self.open_command(0, None, None, USUAL_BY_ID, &asked);
        OpenRequest { caller: Caller::SpendKey(hash), model: Some(model), ..command }
    }

    fn open_on_key(&mut self, key: u8, model: u8, output_limit: Option<u32>) {
        let Some(at) = pick(&self.spend_keys, key) else { return };
        let hash = self.spend_keys[at].hash.clone();
        let command = self.command_on_key(hash, format!("model-{}", model % 2), output_limit);
        let KeyOf { merchant, customer, id, is_deleted, .. } = self.spend_keys[at];
        let is_dead = is_deleted || customer.is_some_and(|id| self.deleted_customers.contains(&id));
        // Whether it is admitted is for the books to judge; what is refused must be refused for a reason they see.
        let may = self.books.may_be_admitted(id, &command);
        let before = self.till.facts.len();
        match self.execute(&command) {
            Ok(opened) => {
                assert!(!is_dead, "a deleted key works");
                assert_eq!(opened.merchant_id, self.merchants[merchant].id);
                assert_eq!(may, Ok(()));
                self.requests.push(command);
            }
            Err(Refusal::SpendKey(SpendKeyRefusal::Invalid)) => assert!(is_dead),
            Err(Refusal::SpendKey(SpendKeyRefusal::SpendLimitExceeded { left, needed })) => {
                assert!(left < needed)
            }
            Err(Refusal::Wallet(WalletRefusal::InsufficientBalance { available, needed, .. })) => {
                assert!(available < needed)
            }
            Err(Refusal::SpendKey(SpendKeyRefusal::RateLimitExceeded { retry_after_seconds })) => {
                assert!(retry_after_seconds > 0)
            }
            Err(refusal) => assert_eq!(may, Err(refusal)),
        }
        if let Some(fact) = self.till.facts.get(before) {
            let Event::Request(RequestEvent::Opened(event)) = &fact.event else { panic!("{fact:?}") };
            assert_eq!(event.spend_key.map(|key| key.spend_key_id), Some(id));
        }
    }

    fn issue_key(&mut self, merchant: u8) {
        let merchant = usize::from(merchant);
        let secret_key_id = SecretKeyId::new(self.ulid());
        let key_hash = self.server_key.hash(&secret_key_id.to_string());
        self.secret_keys.push((merchant, secret_key_id, key_hash.clone()));
        let merchant_id = self.merchants[merchant].id;
        let (hint, name) = ("efgh".into(), "further".into());
        let command = IssueSecretKey { merchant_id, secret_key_id, key_hash, hint, name, now: self.now };
        self.execute(&command).unwrap();
    }

    /// A key of another merchant is not found, the last one stays, any other is dead at once.
    fn revoke_key(&mut self, revoker: Option<u8>, key: u8) {
        let Some(at) = pick(&self.secret_keys, key) else { return };
        let (owner, secret_key_id, hash) = self.secret_keys[at].clone();
        let foreign = revoker.is_some_and(|merchant| usize::from(merchant) != owner);
        let last = self.secret_keys.iter().filter(|(of, ..)| *of == owner).count() == 1;
        let revoker = revoker.map_or(Revoker::Operator, |merchant| {
            Revoker::Merchant(self.merchants[usize::from(merchant)].id)
        });
        let command = RevokeSecretKey { revoker, secret_key_id, now: self.now };
        match self.execute(&command) {
            Ok(merchant_id) => {
                assert!(!foreign && !last);
                assert_eq!(merchant_id, self.merchants[owner].id);
                self.secret_keys.remove(at);
                let left = self.secret_keys.iter().find(|(of, ..)| *of == owner).unwrap();
                self.merchants[owner].secret_key = left.2.clone();
                assert_eq!(
                    self.execute(&command),
                    Err(Refusal::SecretKey(SecretKeyRefusal::NotFound)),
                    "revoked twice"
                );
                let mut call = self.open_command(0, None, None, 0, &Asked::OTHER);
                call.caller = Caller::SecretKey(hash);
                assert_eq!(
                    self.execute(&call),
                    Err(Refusal::SecretKey(SecretKeyRefusal::Invalid)),
                    "a dead key still opens calls"
                );
            }
            Err(refusal) if foreign => assert_eq!(refusal, Refusal::SecretKey(SecretKeyRefusal::NotFound)),
            Err(refusal) => {
                assert!(last);
                assert_eq!(refusal, Refusal::SecretKey(SecretKeyRefusal::LastRemaining));
            }
        }
    }

    fn credit(&mut self, target: CreditTarget, cents: u32) {
        let amount: Amount = Decimal::new(cents.into(), 2).to_string().parse().unwrap();
        let credit_id = CreditId::new(self.ulid());
        let command = CreditWallet { credit_id, target, amount, reason: "paid".into(), now: self.now };
        match self.execute(&command) {
            Ok(credited) => {
                let balance = self.books.accounts[&credited.wallet_id].balance();
                assert_eq!(credited.balance.decimal(), balance);
            }
            Err(Refusal::Customer(CustomerRefusal::NotFound)) => match target {
                CreditTarget::Customer(id) => assert!(self.deleted_customers.contains(&id)),
                CreditTarget::Merchant(id) => panic!("{id} is no customer"),
            },
            Err(refusal) => {
                assert_eq!(cents, 0);
                assert_eq!(refusal, Refusal::Wallet(WalletRefusal::AmountNotPositive));
            }
        }
    }

    fn open_command(
        &mut self,
        merchant: u8,
        customer: Option<u8>,
        meter: Option<u8>,
        shape: u8,
        asked: &Asked,
    ) -> OpenRequest {
        let customer = customer.and_then(|number| pick(&self.customers, number)).map(|at| {
            let (_, id, _, reference) = &self.customers[at];
            match (shape & 3, reference) {
                (0, Some(reference)) => CustomerRef::Reference(reference.clone()),
                (1, _) => CustomerRef::Secret(*id),
                _ => CustomerRef::Id(*id),
            }
        });
        let meter = meter.and_then(|number| pick(&self.meters, number)).map(|at| {
            let (_, id, slug) = &self.meters[at];
            match (shape >> 2) & 3 {
                0 => MeterRef::Slug(slug.clone()),
                1 => MeterRef::Secret(*id),
                _ => MeterRef::Id(*id),
            }
        });
        let metering_only = customer.is_none() && meter.is_none() && shape & 16 != 0;
        let billing = match (metering_only, shape >> 5) {
            (true, _) => Billing::MeteringOnly,
            (false, 0) => Billing::Disabled,
            (false, _) => Billing::Usual,
        };
        OpenRequest {
            request_id: RequestId::new(self.ulid()),
            gateway_id: GatewayId::new(Ulid::from_parts(1, 1)),
            caller: Caller::SecretKey(self.merchants[usize::from(merchant)].secret_key.clone()),
            customer,
            meter,
            billing,
            provider: "other".into(),
            provider_key_type: asked.key,
            endpoint: "POST http://provider.example/".into(),
            model: None,
            list_price: asked.list_price.clone(),
            metadata: BTreeMap::new(),
            size: SizeHint { max_output_tokens: asked.output_limit.map(u64::from), input_bytes: 1_000 },
            settings: RequestSettings {
                service_charge_rate: Decimal::new(19, 3),
                default_hold: "0.25".parse().unwrap(),
                hold_cap: "1".parse().unwrap(),
            },
            now: self.now,
        }
    }

    /// Do the names lead to nothing that is the merchant's?
    fn foreign(
        &self,
        merchant: usize,
        customer: Option<&CustomerRef>,
        meter: Option<&MeterRef>,
    ) -> (bool, bool) {
        let mut customers = self
            .customers
            .iter()
            .filter(|(of, id, ..)| *of == merchant && !self.deleted_customers.contains(id));
        let mut meters =
            self.meters.iter().filter(|(of, id, _)| *of == merchant && !self.deleted_meters.contains(id));
        let no_customer = customer.is_some_and(|customer| {
            !customers.any(|(_, id, _, reference)| match customer {
                CustomerRef::Id(wanted) | CustomerRef::Secret(wanted) => id == wanted,
                CustomerRef::Reference(wanted) => reference.as_ref() == Some(wanted),
            })
        });
        let no_meter = meter.is_some_and(|meter| {
            !meters.any(|(_, id, slug)| match meter {
                MeterRef::Id(wanted) | MeterRef::Secret(wanted) => id == wanted,
                MeterRef::Slug(wanted) => slug == wanted,
            })
        });
        (no_customer, no_meter)
    }

    fn open_request(&mut self, command: OpenRequest) -> bool {
        let Caller::SecretKey(secret_key) = &command.caller else { panic!("not a merchant's call") };
        let merchant = self.merchants.iter().position(|merchant| merchant.secret_key == *secret_key).unwrap();
        let (foreign_customer, foreign_meter) =
            self.foreign(merchant, command.customer.as_ref(), command.meter.as_ref());
        let before = self.till.facts.len();
        let managed = command.provider_key_type == ProviderKeyType::Managed;
        let unpriced =
            Some(command.list_price.clone()).filter(|list_price| *list_price == ListPrice::Unlisted);
        let answer = self.execute(&command);
        match &answer {
            Ok(opened) => {
                assert!(!managed || unpriced.is_none(), "a managed call whose price nobody knows");
                assert!(!foreign_customer && !foreign_meter, "admitted on another merchant's things");
                assert_eq!(opened.merchant_id, self.merchants[merchant].id);
                assert!(!opened.headroom.is_negative());
                self.requests.push(command);
            }
            Err(refusal) => {
                assert_eq!(self.till.facts.len(), before);
                match refusal {
                    Refusal::Customer(CustomerRefusal::NotFound | CustomerRefusal::SecretInvalid) => {
                        assert!(foreign_customer)
                    }
                    Refusal::Meter(MeterRefusal::NotFound | MeterRefusal::SecretInvalid) => {
                        assert!(foreign_meter)
                    }
                    Refusal::Request(RequestRefusal::ModelNotPriced) => {
                        assert_eq!(unpriced, Some(ListPrice::Unlisted))
                    }
                    Refusal::Wallet(WalletRefusal::InsufficientBalance { available, needed, .. }) => {
                        assert!(available < needed)
                    }
                    other => panic!("unexpected refusal: {other}"),
                }
            }
        }
        answer.is_ok()
    }

    /// The same request opened again while it is open: the states refuse it whole.
    fn reopen(&mut self, request: u8) {
        let Some(at) = pick(&self.requests, request) else { return };
        let command = self.requests[at].clone();
        // Where the row is not known, the log's unique key is what refuses.
        if !self.till.states.request(command.request_id).is_ok_and(|open| open.is_some()) {
            return;
        }
        let decision = loop {
            match command.decide(&self.till.states) {
                Ok(decision) => break decision,
                Err(DecideError::Missing(missing)) => self.till.load(missing),
                Err(DecideError::Refused(_)) => return,
            }
        };
        loop {
            match self.till.states.evolve(&decision.facts) {
                Ok(()) => panic!("a request was opened twice"),
                Err(EvolveError::Missing(missing)) => self.till.load(missing),
                Err(EvolveError::InvariantBroken(_)) => break,
            }
        }
        assert_eq!(self.till.states.take_changes(), [], "all or nothing");
    }

    fn settle(&mut self, request: u8, how: &Ended) {
        let Some(at) = pick(&self.requests, request) else { return };
        let request_id = self.requests[at].request_id;
        let was_open = self.books.open.contains_key(&request_id);
        let usage = match how {
            Ended::Reported { usage, .. } => Some(*usage),
            Ended::Silent | Ended::Failed => None,
        };
        let settled = match how {
            Ended::Failed => Settled::Failed(Failed::because(FailureReason::ProviderGone)),
            Ended::Silent | Ended::Reported { .. } => Settled::Metered(Metered {
                http_status: 200,
                usage,
                ending: if let Ended::Reported { ending, .. } = how { *ending } else { Ending::Whole },
                raw_usage: None,
                response_id: None,
                model: None,
                provider_timestamp: None,
            }),
        };
        let before = self.till.facts.len();
        let answer = self.execute(&SettleRequest { request_id, settled, now: self.now });
        if !was_open {
            assert_eq!(answer, Err(Refusal::Request(RequestRefusal::NotOpen)), "settled twice");
            return;
        }
        answer.expect("an open request can always be ended");
        match (&self.till.facts[before].event, how) {
            (Event::Request(RequestEvent::Metered(event)), Ended::Reported { .. } | Ended::Silent) => {
                assert_eq!(event.usage, usage.unwrap_or_default());
            }
            (Event::Request(RequestEvent::Failed(event)), Ended::Failed) => {
                assert_eq!(event.reason, FailureReason::ProviderGone);
            }
            (Event::Request(RequestEvent::Failed(event)), Ended::Reported { .. }) => {
                assert_eq!(event.reason, FailureReason::UsageInvalid, "only absurd counts are not believed");
            }
            (event, how) => panic!("{how:?} ended as {event:?}"),
        }
    }

    /// A report is a call that was never held for; of each id only the first counts.
    fn report(&mut self, merchant: u8, id: u8, call: OpenRequest, how: &Ended) {
        let merchant = usize::from(merchant);
        let (foreign_customer, foreign_meter) =
            self.foreign(merchant, call.customer.as_ref(), call.meter.as_ref());
        let usage = match how {
            Ended::Reported { usage, .. } => Some(*usage),
            Ended::Silent | Ended::Failed => None,
        };
        let command = ReportRequest {
            merchant_id: self.merchants[merchant].id,
            reported_id: format!("call {id}"),
            request_id: call.request_id,
            gateway_id: call.gateway_id,
            customer: call.customer,
            meter: call.meter,
            provider: call.provider,
            endpoint: call.endpoint,
            metadata: call.metadata,
            list_price: call.list_price,
            metered: Metered {
                http_status: 200,
                usage,
                ending: Ending::Whole,
                raw_usage: None,
                response_id: None,
                model: None,
                provider_timestamp: None,
            },
            service_charge_rate: call.settings.service_charge_rate,
            now: self.now,
        };
        let before = self.till.facts.len();
        let known = self.reported.get(&(merchant, id)).copied();
        match self.execute(&command) {
            Ok(Reported::Existing(request_id)) => {
                assert_eq!(Some(request_id), known);
                assert_eq!(self.till.facts.len(), before, "a known id appends nothing");
            }
            Ok(Reported::New(opened, metered)) => {
                assert!(known.is_none() && !foreign_customer && !foreign_meter);
                assert_eq!((opened.request_id, opened.hold), (command.request_id, Hold::default()));
                assert_eq!(metered.usage, usage.unwrap_or_default());
                assert!(self.till.facts.len() >= before + 2, "opened and metered at once");
                self.reported.insert((merchant, id), command.request_id);
            }
            Err(refusal) => {
                assert_eq!(self.till.facts.len(), before);
                match refusal {
                    Refusal::Customer(CustomerRefusal::NotFound | CustomerRefusal::SecretInvalid) => {
                        assert!(foreign_customer);
                    }
                    Refusal::Meter(MeterRefusal::NotFound | MeterRefusal::SecretInvalid) => {
                        assert!(foreign_meter)
                    }
                    Refusal::Request(RequestRefusal::UsageOutOfRange) => {
                        assert!(usage.is_some(), "nothing was counted")
                    }
                    other => panic!("unexpected refusal: {other}"),
                }
            }
        }
    }

    /// Opens `calls` calls of a fresh customer with `cents` at a fixed fee; how many were admitted.
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

    /// Ends every open call with an answer that reports nothing.
    pub(crate) fn settle_everything(&mut self) {
        for at in 0..self.requests.len() {
            self.settle(u8::try_from(at).unwrap(), &Ended::Silent);
        }
    }

    /// What the first customer has left.
    pub(crate) fn balance_of_first_customer_in_cents(&self) -> u32 {
        let balance = self.books.accounts[&self.customers[0].2].balance() * Decimal::from(100);
        balance.normalize().to_string().parse().unwrap()
    }

    /// The fees in the order they were charged.
    pub(crate) fn fees(&self) -> Vec<String> {
        self.books.fees.iter().map(ToString::to_string).collect()
    }

    /// The stored states agree with the books.
    pub(crate) fn check(&mut self) {
        let mut open = BTreeSet::new();
        for (key, json) in self.till.store.values() {
            match (key, State::from_json(key, json).unwrap()) {
                (StateKey::Wallet(id), State::Wallet(wallet)) => {
                    let account = &self.books.accounts[id];
                    assert_eq!(wallet.balance.decimal(), account.balance(), "balance of {id}");
                    assert_eq!(wallet.held.decimal(), account.held, "holds on {id}");
                }
                (StateKey::Request(id), State::Request(_)) => {
                    open.insert(*id);
                }
                (StateKey::TierUsage(holder, meter, start), State::TierUsage(position)) => {
                    let holder = match holder {
                        Holder::Customer(id) => id.to_string(),
                        Holder::Merchant(id) => id.to_string(),
                    };
                    let place = format!("{holder}/{meter}/{}", start.timestamp_millis());
                    assert_eq!(position, self.books.positions[&place], "position at {place}");
                }
                (StateKey::Customer(id), State::Customer(customer)) => {
                    let mut known = self.customers.iter().filter(|(_, known, ..)| known == id);
                    assert_eq!(known.next().map(|known| &known.3), Some(&customer.reference_id));
                    assert!(!self.deleted_customers.contains(id), "{id} is deleted");
                }
                (StateKey::Reference(_, reference), State::Reference(id)) => {
                    let mut known = self.customers.iter().filter(|(_, known, ..)| *known == id);
                    assert_eq!(known.next().map(|known| known.3.as_ref()), Some(Some(reference)));
                }
                (StateKey::Meter(id), State::Meter(_)) => assert!(!self.deleted_meters.contains(id)),
                (StateKey::Spending(id), State::Spending(spending)) => {
                    self.books.check_spending(*id, &spending, self.now);
                }
                (StateKey::SpendKeyHash(_), State::SpendKeyHash(id)) => {
                    assert!(self.spend_keys.iter().any(|key| key.id == id && !key.is_deleted));
                }
                _ => {}
            }
        }
        assert!(open.iter().eq(self.books.open.keys()), "open requests");
        let keys = self.till.store.keys().filter(|(kind, _)| *kind == "secret_key").count();
        assert_eq!(keys, self.secret_keys.len(), "one state per good secret key");
        let stored = |kind: &str| self.till.store.keys().filter(|(there, _)| *there == kind).count();
        assert_eq!(stored("customer"), self.customers.len() - self.deleted_customers.len());
        let references = self.customers.iter().filter(|customer| customer.3.is_some()).count();
        assert_eq!(stored("reference"), references, "one state per reference id in use");
        assert_eq!(stored("meter"), self.meters.len() - self.deleted_meters.len());
        assert_eq!(stored("meter_slug"), stored("meter"), "one state per slug in use");
        let hashes = self.till.store.keys().filter(|(kind, _)| *kind == "spend_key_hash").count();
        let alive = self.spend_keys.iter().filter(|key| !key.is_deleted).count();
        assert_eq!(hashes, alive, "one good hash per spend key");
    }

    /// All facts folded anew, one by one, make the same states; so do facts that are only followed.
    pub(crate) fn check_a_fold_from_nothing(&mut self) {
        let mut cache = StateCache::default();
        let mut follower = StateCache::default();
        let mut states: BTreeMap<(&'static str, String), String> = BTreeMap::new();
        let mut seen: HashSet<StateKey> = HashSet::new();
        for fact in &self.till.facts {
            while let Err(stuck) = cache.evolve(std::slice::from_ref(fact)) {
                let EvolveError::Missing(Missing(key)) = stuck else { panic!("{stuck:?}") };
                cache.load(key, None);
            }
            for (key, _) in farthing_core::state::effects(fact) {
                if seen.insert(key.clone()) {
                    follower.load(key, None);
                }
            }
            follower.follow(fact).unwrap();
            for (key, json) in cache.take_changes() {
                match json {
                    Some(json) => states.insert(key.stored(), json),
                    None => states.remove(&key.stored()),
                };
            }
        }
        let stored: BTreeMap<_, _> =
            self.till.store.iter().map(|(name, (_, json))| (name.clone(), json.clone())).collect();
        assert_eq!(states, stored, "a fold of the log is what is stored");
        for (id, account) in &self.books.accounts {
            let wallet = follower.wallet(*id).unwrap().unwrap();
            assert_eq!((wallet.balance.decimal(), wallet.held.decimal()), (account.balance(), account.held));
        }
        for request in &self.requests {
            let there = follower.request(request.request_id).unwrap().is_some();
            assert_eq!(there, self.books.open.contains_key(&request.request_id));
        }
    }
}

fn pick<T>(things: &[T], number: u8) -> Option<usize> {
    usize::from(number).checked_rem(things.len())
}
