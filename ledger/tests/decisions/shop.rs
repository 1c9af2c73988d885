//! A shop of two merchants: random commands against a `World` that loads its states from a store and forgets
//! them at times, as the appender does.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use chrono::{DateTime, Duration, Utc};
use farthing_ledger::command::{
    Billing, Command, CreateCustomer, CreateSpendKey, CreditTarget, CreditWallet, CustomerMade, CustomerRef,
    DefineMeter, Ending, Failed, IssueSecretKey, MeterRef, Metered, OpenRequest, PersonalData, Refusal,
    RegisterMerchant, RequestSettings, RotateSpendKey, SettleRequest, Settled, Slug, Stop,
};
use farthing_ledger::event::{Event, Fact, FailureReason, ProviderKeyType, SpendKeySettings};
use farthing_ledger::ids::{
    CreditId, CustomerId, GatewayId, MerchantId, MeterId, RequestId, SecretKeyId, SpendKeyId, WalletId,
};
use farthing_ledger::meter::{Payer, Price, RateType, Tier, TierType, Tiers, TokenBasis};
use farthing_ledger::money::Amount;
use farthing_ledger::pricing::SizeHint;
use farthing_ledger::secret::{KeyHash, ServerKey};
use farthing_ledger::state::{Holder, Missing, State, StateKey, Stuck, World};
use farthing_ledger::usage::{MAX_COUNT, Split, Usage};
use proptest::prelude::*;
use rust_decimal::Decimal;
use ulid::Ulid;

use crate::books::Books;

/// The shape of a call that names its customer and its meter by id and is billed as usual.
const USUAL_BY_ID: u8 = 0b0010_1010;

/// One thing that somebody wants. Numbers name things by their order, modulo how many there are.
#[derive(Debug, Clone)]
pub(crate) enum Action {
    Customer { merchant: u8, reference: Option<u8> },
    Meter { merchant: u8, slug: Option<u8>, tier_type: TierType, steps: Vec<(u32, u32)>, terms: u8 },
    SpendKey { merchant: u8, customer: Option<u8> },
    Rotate { merchant: u8, key: u8 },
    CreditCustomer { customer: u8, cents: u32 },
    CreditMerchant { merchant: u8, cents: u32 },
    Open { merchant: u8, customer: Option<u8>, meter: Option<u8>, shape: u8, output_limit: Option<u32> },
    Reopen { request: u8 },
    Settle { request: u8, how: Ended },
    Wait { hours: u16 },
    Forget,
}

/// How a call ends.
#[derive(Debug, Clone)]
pub(crate) enum Ended {
    Reported { usage: Usage, ending: Ending },
    Silent,
    Failed,
}

impl Action {
    /// Tokens at 5 and, from 1,000,000 on, 3 per million.
    pub(crate) fn token_meter() -> Self {
        let steps = vec![(0, 500_000), (1_000_000, 300_000)];
        Self::Meter { merchant: 0, slug: None, tier_type: TierType::Tokens1m, steps, terms: 0 }
    }

    /// A call of the first customer on the first meter.
    pub(crate) fn billed_call() -> Self {
        Self::Open { merchant: 0, customer: Some(0), meter: Some(0), shape: USUAL_BY_ID, output_limit: None }
    }

    /// A whole answer that reports `tokens`.
    pub(crate) fn reported(request: u8, tokens: u64) -> Self {
        let usage = Usage { tokens: Split { input: tokens, output: 0 }, ..Usage::default() };
        Self::Settle { request, how: Ended::Reported { usage, ending: Ending::Whole } }
    }
}

fn ended() -> impl Strategy<Value = Ended> {
    let count = prop_oneof![8 => 0_u64..3_000_000, 1 => Just(0), 1 => Just(MAX_COUNT)];
    let usage = (count.clone(), count.clone(), count, 0_u32..100_000).prop_map(
        |(input, output, characters, tenths)| Usage {
            tokens: Split { input, output },
            characters: Split { input: characters, output: input },
            seconds: Split {
                input: Decimal::new(tenths.into(), 1),
                output: Decimal::new(output.min(9_999).cast_signed(), 2),
            },
        },
    );
    let ending = prop_oneof![Just(Ending::Whole), Just(Ending::Partial)];
    prop_oneof![
        6 => (usage, ending).prop_map(|(usage, ending)| Ended::Reported { usage, ending }),
        1 => Just(Ended::Silent),
        1 => Just(Ended::Failed),
    ]
}

/// Any action.
pub(crate) fn action() -> impl Strategy<Value = Action> {
    let tier_type = prop_oneof![
        Just(TierType::Tokens1m),
        Just(TierType::Characters1m),
        Just(TierType::Minutes),
        Just(TierType::Requests),
    ];
    // A rate is in hundred-thousandths of a dollar; rarely the dearest there may be.
    let rate = prop_oneof![9 => 0_u32..2_000_000, 1 => Just(u32::MAX)];
    let steps = proptest::collection::vec((1_u32..2_000_000, rate), 1..5);
    let maybe = |range: std::ops::Range<u8>| proptest::option::weighted(0.8, range);
    prop_oneof![
        2 => (0_u8..2, maybe(0..6)).prop_map(|(merchant, reference)| Action::Customer { merchant, reference }),
        2 => (0_u8..2, maybe(0..6), tier_type, steps, any::<u8>()).prop_map(
            |(merchant, slug, tier_type, steps, terms)| Action::Meter { merchant, slug, tier_type, steps, terms }),
        1 => (0_u8..2, maybe(0..8)).prop_map(|(merchant, customer)| Action::SpendKey { merchant, customer }),
        1 => (0_u8..2, any::<u8>()).prop_map(|(merchant, key)| Action::Rotate { merchant, key }),
        3 => (any::<u8>(), 0_u32..2_000).prop_map(|(customer, cents)| Action::CreditCustomer { customer, cents }),
        1 => (0_u8..2, 0_u32..2_000).prop_map(|(merchant, cents)| Action::CreditMerchant { merchant, cents }),
        9 => (0_u8..2, maybe(0..8), maybe(0..8), any::<u8>(), proptest::option::of(0_u32..100_000)).prop_map(
            |(merchant, customer, meter, shape, output_limit)| Action::Open {
                merchant, customer, meter, shape, output_limit }),
        1 => any::<u8>().prop_map(|request| Action::Reopen { request }),
        8 => (any::<u8>(), ended()).prop_map(|(request, how)| Action::Settle { request, how }),
        1 => (1_u16..400).prop_map(|hours| Action::Wait { hours }),
        1 => Just(Action::Forget),
    ]
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
    world: World,
    store: BTreeMap<(&'static str, String), (StateKey, String)>,
    facts: Vec<Fact>,
    books: Books,
    merchants: Vec<MerchantOf>,
    customers: Vec<(usize, CustomerId, WalletId, Option<String>)>,
    meters: Vec<(usize, MeterId, String)>,
    spend_keys: Vec<(usize, SpendKeyId)>,
    requests: Vec<OpenRequest>,
}

impl Shop {
    /// Two merchants, nothing else.
    pub(crate) fn open() -> Self {
        let mut shop = Self {
            now: "2026-01-31T10:00:00.250Z".parse().unwrap(),
            made: 0,
            server_key: ServerKey::from_hex(&"5a".repeat(32)).unwrap(),
            world: World::default(),
            store: BTreeMap::new(),
            facts: Vec::new(),
            books: Books::default(),
            merchants: Vec::new(),
            customers: Vec::new(),
            meters: Vec::new(),
            spend_keys: Vec::new(),
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
        let command = RegisterMerchant { wallet_id, name: "shop".into(), first_key, now: self.now };
        self.execute(&command).unwrap();
        self.merchants.push(MerchantOf { id, wallet_id, secret_key });
    }

    /// Loads what the store holds of `missing`.
    fn load(&mut self, Missing(key): Missing) {
        assert!(!self.world.knows(&key), "asked for what is known");
        let state = self.store.get(&key.stored()).map(|(key, json)| State::from_json(key, json).unwrap());
        self.world.load(key, state);
    }

    /// Decides, evolves, stores: the appender's round. A refusal changes nothing.
    fn execute<C: Command>(&mut self, command: &C) -> Result<C::Outcome, Refusal> {
        let decision = loop {
            match command.decide(&self.world) {
                Ok(decision) => break decision,
                Err(Stop::Missing(missing)) => self.load(missing),
                Err(Stop::Refused(refusal)) => {
                    assert_eq!(self.world.take_changes(), [], "a refusal changes nothing");
                    return Err(refusal);
                }
            }
        };
        while let Err(stuck) = self.world.evolve(&decision.facts) {
            match stuck {
                Stuck::Missing(missing) => self.load(missing),
                Stuck::Broken(broken) => panic!("a decision broke an invariant: {broken}"),
            }
        }
        for (key, json) in self.world.take_changes() {
            match json {
                Some(json) => self.store.insert(key.stored(), (key, json)),
                None => self.store.remove(&key.stored()),
            };
        }
        self.books.enter(&decision.facts);
        self.facts.extend(decision.facts);
        Ok(decision.outcome)
    }

    /// Does `action`, checking what must come of it.
    pub(crate) fn act(&mut self, action: &Action) {
        self.now += Duration::milliseconds(7);
        match action {
            Action::Customer { merchant, reference } => self.create_customer(*merchant, *reference),
            Action::Meter { merchant, slug, tier_type, steps, terms } => {
                self.define_meter(*merchant, *slug, *tier_type, steps, *terms);
            }
            Action::SpendKey { merchant, customer } => self.create_spend_key(*merchant, *customer),
            Action::Rotate { merchant, key } => self.rotate(*merchant, *key),
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
            Action::Open { merchant, customer, meter, shape, output_limit } => {
                let command = self.open_command(*merchant, *customer, *meter, *shape, *output_limit);
                self.open_request(command);
            }
            Action::Reopen { request } => self.reopen(*request),
            Action::Settle { request, how } => self.settle(*request, how),
            Action::Wait { hours } => self.now += Duration::hours((*hours).into()),
            Action::Forget => self.world.clear(),
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
        let before = self.facts.len();
        match (self.execute(&command).unwrap(), known) {
            (CustomerMade::Existing(id), Some(known)) => {
                assert_eq!(id, known);
                assert_eq!(self.facts.len(), before, "a known reference id appends nothing");
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
            rate_type: RateType::Fixed,
            tier_type,
            tiers: Tiers::new(tiers.collect()).unwrap(),
            token_basis: if terms & 4 == 0 { TokenBasis::InputOutput } else { TokenBasis::Output },
            base_cost_payer: payer(2),
            service_charge_payer: payer(1),
        };
        let given = slug.map(|number| format!("slug-{number}"));
        let taken = self.meters.iter().any(|(of, _, there)| *of == merchant && Some(there) == given.as_ref());
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
                assert_eq!(refusal, Refusal::MeterSlugConflict);
            }
        }
    }

    fn create_spend_key(&mut self, merchant: u8, customer: Option<u8>) {
        let merchant = usize::from(merchant);
        let customer = customer.and_then(|number| pick(&self.customers, number));
        let spend_key_id = SpendKeyId::new(self.ulid());
        let command = CreateSpendKey {
            merchant_id: self.merchants[merchant].id,
            spend_key_id,
            customer_id: customer.map(|at| self.customers[at].1),
            key_hash: self.server_key.hash(&format!("{spend_key_id}/0")),
            key_preview: "spk_abcd****".into(),
            settings: SpendKeySettings::default(),
            now: self.now,
        };
        let foreign = customer.is_some_and(|at| self.customers[at].0 != merchant);
        match self.execute(&command) {
            Ok(wallet_id) => {
                assert!(!foreign);
                let own = self.merchants[merchant].wallet_id;
                assert_eq!(wallet_id, customer.map_or(own, |at| self.customers[at].2));
                self.spend_keys.push((merchant, spend_key_id));
            }
            Err(refusal) => {
                assert!(foreign);
                assert_eq!(refusal, Refusal::CustomerNotFound);
            }
        }
    }

    fn rotate(&mut self, merchant: u8, key: u8) {
        let Some(at) = pick(&self.spend_keys, key) else { return };
        let (owner, spend_key_id) = self.spend_keys[at];
        let fresh = self.ulid();
        let command = RotateSpendKey {
            merchant_id: self.merchants[usize::from(merchant)].id,
            spend_key_id,
            key_hash: self.server_key.hash(&fresh.to_string()),
            key_preview: "spk_efgh****".into(),
            now: self.now,
        };
        let answer = self.execute(&command);
        assert_eq!(answer.is_ok(), owner == usize::from(merchant), "{answer:?}");
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
            Err(refusal) => {
                assert_eq!(cents, 0);
                assert_eq!(refusal, Refusal::AmountNotPositive);
            }
        }
    }

    fn open_command(
        &mut self,
        merchant: u8,
        customer: Option<u8>,
        meter: Option<u8>,
        shape: u8,
        output_limit: Option<u32>,
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
            secret_key: self.merchants[usize::from(merchant)].secret_key.clone(),
            customer,
            meter,
            billing,
            provider: "other".into(),
            provider_key_type: ProviderKeyType::Unmanaged,
            endpoint: "POST http://provider.example/".into(),
            model: None,
            metadata: BTreeMap::new(),
            size: SizeHint { max_output_tokens: output_limit.map(u64::from), input_bytes: 1_000 },
            settings: RequestSettings {
                service_charge_rate: Decimal::new(19, 3),
                default_hold: "0.25".parse().unwrap(),
                hold_cap: "1".parse().unwrap(),
            },
            now: self.now,
        }
    }

    fn open_request(&mut self, command: OpenRequest) -> bool {
        let merchant = self.merchants.iter().position(|merchant| merchant.secret_key == command.secret_key);
        let merchant = merchant.unwrap();
        let customer = self.customers.iter().find(|(of, id, _, reference)| match &command.customer {
            None => false,
            Some(CustomerRef::Id(wanted) | CustomerRef::Secret(wanted)) => id == wanted,
            Some(CustomerRef::Reference(wanted)) => *of == merchant && reference.as_ref() == Some(wanted),
        });
        let meter = self.meters.iter().find(|(of, id, slug)| match &command.meter {
            None => false,
            Some(MeterRef::Id(wanted) | MeterRef::Secret(wanted)) => id == wanted,
            Some(MeterRef::Slug(wanted)) => *of == merchant && slug == wanted,
        });
        let foreign_customer = command.customer.is_some() && customer.is_none_or(|(of, ..)| *of != merchant);
        let foreign_meter = command.meter.is_some() && meter.is_none_or(|(of, ..)| *of != merchant);
        let before = self.facts.len();
        let answer = self.execute(&command);
        match &answer {
            Ok(opened) => {
                assert!(!foreign_customer && !foreign_meter, "admitted on another merchant's things");
                assert_eq!(opened.merchant_id, self.merchants[merchant].id);
                assert!(!opened.headroom.is_negative());
                self.requests.push(command);
            }
            Err(refusal) => {
                assert_eq!(self.facts.len(), before);
                match refusal {
                    Refusal::CustomerNotFound | Refusal::ConnectionSecretInvalid => assert!(foreign_customer),
                    Refusal::MeterNotFound | Refusal::ProductSecretInvalid => assert!(foreign_meter),
                    Refusal::InsufficientBalance { available, needed } => assert!(available < needed),
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
        if !self.world.request(command.request_id).is_ok_and(|open| open.is_some()) {
            return;
        }
        let decision = loop {
            match command.decide(&self.world) {
                Ok(decision) => break decision,
                Err(Stop::Missing(missing)) => self.load(missing),
                Err(Stop::Refused(_)) => return,
            }
        };
        loop {
            match self.world.evolve(&decision.facts) {
                Ok(()) => panic!("a request was opened twice"),
                Err(Stuck::Missing(missing)) => self.load(missing),
                Err(Stuck::Broken(_)) => break,
            }
        }
        assert_eq!(self.world.take_changes(), [], "all or nothing");
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
        let before = self.facts.len();
        let answer = self.execute(&SettleRequest { request_id, settled, now: self.now });
        if !was_open {
            assert_eq!(answer, Err(Refusal::RequestNotOpen), "settled twice");
            return;
        }
        answer.expect("an open request can always be ended");
        match (&self.facts[before].event, how) {
            (Event::RequestMetered(event), Ended::Reported { .. } | Ended::Silent) => {
                assert_eq!(event.usage, usage.unwrap_or_default());
            }
            (Event::RequestFailed(event), Ended::Failed) => {
                assert_eq!(event.reason, FailureReason::ProviderGone);
            }
            (Event::RequestFailed(event), Ended::Reported { .. }) => {
                assert_eq!(event.reason, FailureReason::UsageInvalid, "only absurd counts are not believed");
            }
            (event, how) => panic!("{how:?} ended as {event:?}"),
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
            let command = self.open_command(0, Some(0), Some(0), USUAL_BY_ID, None);
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
        for (key, json) in self.store.values() {
            match (key, State::from_json(key, json).unwrap()) {
                (StateKey::Wallet(id), State::Wallet(wallet)) => {
                    let account = &self.books.accounts[id];
                    assert_eq!(wallet.balance.decimal(), account.balance(), "balance of {id}");
                    assert_eq!(wallet.held.decimal(), account.held, "holds on {id}");
                }
                (StateKey::Request(id), State::Request(_)) => {
                    open.insert(*id);
                }
                (StateKey::Position(holder, meter, start), State::Position(position)) => {
                    let holder = match holder {
                        Holder::Customer(id) => id.to_string(),
                        Holder::Merchant(id) => id.to_string(),
                    };
                    let place = format!("{holder}/{meter}/{}", start.timestamp_millis());
                    assert_eq!(position, self.books.positions[&place], "position at {place}");
                }
                (StateKey::SpendKeyHash(_), State::SpendKeyHash(id)) => {
                    assert!(self.spend_keys.iter().any(|(_, there)| *there == id));
                }
                _ => {}
            }
        }
        assert!(open.iter().eq(self.books.open.keys()), "open requests");
        let hashes = self.store.keys().filter(|(kind, _)| *kind == "spend_key_hash").count();
        assert_eq!(hashes, self.spend_keys.len(), "one good hash per spend key");
    }

    /// All facts folded anew, one by one, make the same states; so do facts that are only followed.
    pub(crate) fn check_a_fold_from_nothing(&mut self) {
        let mut world = World::default();
        let mut follower = World::default();
        let mut states: BTreeMap<(&'static str, String), String> = BTreeMap::new();
        let mut seen: HashSet<StateKey> = HashSet::new();
        for fact in &self.facts {
            while let Err(stuck) = world.evolve(std::slice::from_ref(fact)) {
                let Stuck::Missing(Missing(key)) = stuck else { panic!("{stuck:?}") };
                world.load(key, None);
            }
            for (key, _) in farthing_ledger::state::effects(fact) {
                if seen.insert(key.clone()) {
                    follower.load(key, None);
                }
            }
            follower.follow(fact).unwrap();
            for (key, json) in world.take_changes() {
                match json {
                    Some(json) => states.insert(key.stored(), json),
                    None => states.remove(&key.stored()),
                };
            }
        }
        let stored: BTreeMap<_, _> =
            self.store.iter().map(|(name, (_, json))| (name.clone(), json.clone())).collect();
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
