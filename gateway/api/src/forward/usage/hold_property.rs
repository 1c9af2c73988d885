//! A hold is never below the true cost of its call where a bound is known: over every model of the catalogue, the body's
//! limits under names that its endpoint reads and under others, every shape of a report of usage and every payer; and
//! for speech, by the characters of its input. The body is read, the call opened, the report read and the
//! call settled by the code that does so in a gateway.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use chrono::{DateTime, Utc};
use farthing_core::command::{
    Billing, Caller, Command, Completeness, CreateCustomer, CreateSpendKey, CreditTarget, CreditWallet,
    CustomerRef, DecideError, DefineMeter, IssueSecretKey, MeterRef, Metered, OpenRequest, PersonalData,
    RegisterMerchant, RequestSettings, SettleRequest, Settled, Slug, decide,
};
use farthing_core::event::{
    Cycle, Event, Fact, ProviderKeyType, RequestEvent, RequestMetered, RequestOpened, SpendKeySettings,
    SpendLimit,
};
use farthing_core::ids::{
    CreditId, CustomerId, GatewayId, MerchantId, MeterId, RequestId, SecretKeyId, SpendKeyId, WalletId,
};
use farthing_core::meter::{OnDisconnect, Payer, Price, RateType, Tier, TierType, Tiers, TokenBasis};
use farthing_core::model_price::{ListPrice, ModelPrice};
use farthing_core::money::Amount;
use farthing_core::secret::{KeyHash, ServerKey};
use farthing_core::size_hint::SizeHint;
use farthing_core::state::{EvolveError, Missing, StateCache};
use farthing_core::usage::{Cached, Split, Usage};
use proptest::prelude::*;
use rust_decimal::Decimal;
use serde_json::{Value, json};
use ulid::Ulid;

use super::super::size;
use super::document::Member;
use super::read_request;
use super::shape::{ReportedUsage, Shape, TokenCounts};
use crate::providers::catalogue::{Catalogue, Listed};
use crate::providers::{BUILT_IN, Providers, UsageLimit};

/// The catalogue that the program has.
static CATALOGUE: LazyLock<Catalogue> =
    LazyLock::new(|| Catalogue::read(include_str!("../../../../../deploy/prices/catalogue.json")).unwrap());

/// What is random of a call. Shares are percents of the most that is possible.
#[derive(Debug, Clone)]
struct Drawn {
    /// The output limit as a share of the model's; `None` if the body names none.
    limit: Option<u64>,
    answers: u64,
    input_bytes: u64,
    input: u64,
    output: u64,
    cached: (u64, u64),
    reasoning: u64,
    dialect: usize,
    /// The endpoint that is called; not always one that knows the body's dialect.
    path: &'static str,
    payer: usize,
}

/// Endpoints of the formats.
const PATHS: [&str; 4] =
    ["/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1beta/models/m:generateContent"];

/// The output limits of the dialects, and the numbers of answers beside them.
const DIALECTS: [(&str, &str); 4] = [
    ("max_tokens", "n"),
    ("max_completion_tokens", "n"),
    ("max_output_tokens", "best_of"),
    ("maxOutputTokens", "candidateCount"),
];

/// Whether a provider keeps to an output limit of this name, by its documents. It passes over others.
fn keeps_to(provider: &str, path: &str, name: &str) -> bool {
    match path {
        "/v1/chat/completions" => match provider {
            "openai" | "anthropic" | "xai" | "groq" => matches!(name, "max_tokens" | "max_completion_tokens"),
            "cerebras" => name == "max_completion_tokens",
            _ => name == "max_tokens",
        },
        "/v1/responses" => name == "max_output_tokens",
        "/v1/messages" => name == "max_tokens",
        _ => name == "maxOutputTokens",
    }
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let share = || prop_oneof![1 => Just(100_u64), 1 => Just(0), 4 => 0_u64..=100];
    let cached = prop_oneof![
        1 => Just((0_u64, 0_u64)), 1 => Just((100, 0)), 1 => Just((0, 100)), 3 => (0_u64..=60, 0_u64..=40)];
    let bytes = prop_oneof![3 => 2_u64..5_000, 2 => 5_000_u64..2_000_000];
    let limit = proptest::option::weighted(0.7, 1_u64..=100);
    let path = proptest::sample::select(PATHS.to_vec());
    let called = (0_usize..4, path);
    (limit, 1_u64..4, bytes, share(), share(), cached, share(), called, 0_usize..6).prop_map(
        |(limit, answers, input_bytes, input, output, cached, reasoning, (dialect, path), payer)| Drawn {
            limit,
            answers,
            input_bytes,
            input,
            output,
            cached,
            reasoning,
            dialect,
            path,
            payer,
        },
    )
}

impl Drawn {
    /// Whether `provider` keeps to the output limit of the body.
    fn is_kept_to(&self, provider: &str) -> bool {
        self.limit.is_some() && keeps_to(provider, self.path, DIALECTS[self.dialect].0)
    }

    /// The request body, in one of the dialects, and the most output that `provider` gives.
    fn body(&self, provider: &str, model_limit: u64) -> (Value, u64) {
        let limit = self.limit.map(|share| (model_limit * share / 100).max(1));
        let mut body = json!({"messages": [{"role": "user", "content": "a"}]});
        let (name, count) = DIALECTS[self.dialect];
        let target = if self.dialect == 3 {
            body["generationConfig"] = json!({});
            &mut body["generationConfig"]
        } else {
            &mut body
        };
        target[count] = json!(self.answers);
        if let Some(limit) = limit {
            target[name] = json!(limit);
        }
        let kept = limit.filter(|_| self.is_kept_to(provider)).unwrap_or(model_limit);
        (body, kept * self.answers)
    }

    /// A usage within what the body allows.
    fn usage(&self, most_output: u64) -> Usage {
        let input = self.input_bytes * self.input / 100;
        let output = most_output * self.output / 100;
        let cached = Cached { read: input * self.cached.0 / 100, write: input * self.cached.1 / 100 };
        Usage {
            tokens: Split { input, output },
            cached,
            reasoning_tokens: output * self.reasoning / 100,
            ..Usage::default()
        }
    }
}

/// The report of a usage by a provider, as it is read.
fn reported(provider: &str, usage: &Usage, dialect: usize) -> Usage {
    let (tokens, cached, reasoning) = (usage.tokens, usage.cached, usage.reasoning_tokens);
    let facts = BUILT_IN.iter().find(|facts| facts.name == provider).unwrap();
    let shape = facts.shape("/v1/chat/completions");
    let (member, report) = match shape {
        Shape::Anthropic => (
            Member::Usage,
            json!({
                "input_tokens": tokens.input - cached.read - cached.write, "output_tokens": tokens.output,
                "cache_read_input_tokens": cached.read, "cache_creation_input_tokens": cached.write,
            }),
        ),
        Shape::Google => (
            Member::UsageMetadata,
            json!({
                "promptTokenCount": tokens.input, "candidatesTokenCount": tokens.output - reasoning,
                "thoughtsTokenCount": reasoning, "cachedContentTokenCount": cached.read,
                "totalTokenCount": tokens.input + tokens.output,
            }),
        ),
        Shape::OpenAi if dialect == 2 => (
            Member::Usage,
            json!({
                "input_tokens": tokens.input, "output_tokens": tokens.output,
                "input_tokens_details": {"cached_tokens": cached.read},
                "output_tokens_details": {"reasoning_tokens": reasoning},
            }),
        ),
        _ => (
            Member::Usage,
            json!({
                "prompt_tokens": tokens.input, "completion_tokens": tokens.output,
                "total_tokens": tokens.input + tokens.output,
                "prompt_tokens_details": {"cached_tokens": cached.read},
                "completion_tokens_details": {"reasoning_tokens": reasoning},
            }),
        ),
    };
    let mut counts = TokenCounts::default();
    counts.report(shape, member, &report.to_string());
    let ReportedUsage::Usage(read) = counts.reported(shape) else { panic!("{report} is not believed") };
    assert_eq!(read.tokens, tokens, "{report}");
    read
}

/// A merchant with a customer, meters and a spend key, in memory.
struct Shop {
    states: StateCache,
    made: u128,
    now: DateTime<Utc>,
    secret_key: KeyHash,
    spend_key: KeyHash,
    customer: CustomerId,
    meters: Vec<MeterId>,
}

fn amount(text: &str) -> Amount {
    text.parse().unwrap()
}

impl Shop {
    fn new() -> Self {
        let server_key = ServerKey::from_hex(&"5a".repeat(32)).unwrap();
        let (secret_key, spend_key) = (server_key.hash("aks_x"), server_key.hash("spk_x"));
        let now = "2026-11-20T10:00:00Z".parse().unwrap();
        let customer = CustomerId::new(Ulid::from_parts(1, 1));
        let (states, made, meters) = (StateCache::default(), 100, Vec::new());
        let mut shop = Self {
            states,
            made,
            now,
            secret_key: secret_key.clone(),
            spend_key: spend_key.clone(),
            customer,
            meters,
        };
        let merchant_id = MerchantId::new(Ulid::from_parts(1, 2));
        let secret_key_id = SecretKeyId::new(shop.ulid());
        let (hint, name) = ("abcd".into(), "first".into());
        let first_key = IssueSecretKey { merchant_id, secret_key_id, key_hash: secret_key, hint, name, now };
        let wallet_id = WalletId::new(shop.ulid());
        shop.execute(&RegisterMerchant { wallet_id, name: "shop".into(), first_key, now });
        let wallet_id = WalletId::new(shop.ulid());
        shop.execute(&CreateCustomer {
            merchant_id,
            customer_id: customer,
            wallet_id,
            reference_id: None,
            metadata: BTreeMap::new(),
            metadata_literals: BTreeSet::new(),
            personal: PersonalData::default(),
            now,
        });
        for target in [CreditTarget::Customer(customer), CreditTarget::Merchant(merchant_id)] {
            let credit_id = CreditId::new(shop.ulid());
            let (amount, reason) = (amount("90000000000"), "a test".into());
            shop.execute(&CreditWallet { credit_id, target, amount, reason, now });
        }
        for (rate_type, tier_type) in [
            (RateType::Percentage, TierType::Tokens1m),
            (RateType::Fixed, TierType::Tokens1m),
            (RateType::Fixed, TierType::Requests),
            (RateType::Fixed, TierType::Characters1m),
        ] {
            shop.meter(merchant_id, rate_type, tier_type);
        }
        let limit = SpendLimit { amount: amount("90000000000"), cycle: Cycle::Total };
        let settings = SpendKeySettings { spend_limit: Some(limit), ..SpendKeySettings::default() };
        let spend_key_id = SpendKeyId::new(shop.ulid());
        let (key_hash, key_preview) = (spend_key, String::new());
        let customer_id = None;
        shop.execute(&CreateSpendKey {
            merchant_id,
            spend_key_id,
            customer_id,
            key_hash,
            key_preview,
            settings,
            now,
        });
        shop
    }

    /// A meter whose tiers end within a call.
    fn meter(&mut self, merchant_id: MerchantId, rate_type: RateType, tier_type: TierType) {
        let meter_id = MeterId::new(self.ulid());
        let tier = |(start, rate): (u32, &str)| Tier { start: start.into(), rate: rate.parse().unwrap() };
        let tiers =
            [(0, "3.3333333333"), (7, "7.7777777777"), (501, "7.7777777777"), (100_003, "0.0000000001")];
        let price = Price {
            rate_type,
            tier_type,
            tiers: Tiers::new(tiers.map(tier).to_vec()).unwrap(),
            token_basis: TokenBasis::InputOutput,
            base_cost_payer: Payer::Wallet,
            service_charge_payer: Payer::Wallet,
            on_disconnect: OnDisconnect::Complete,
            max_fee: None,
        };
        let (slug, name) = (Slug::Made("meter".into()), "meter".into());
        self.execute(&DefineMeter { merchant_id, meter_id, slug, name, price, now: self.now });
        self.meters.push(meter_id);
    }

    fn ulid(&mut self) -> Ulid {
        self.made += 1;
        Ulid::from_parts(1, self.made)
    }

    fn execute<C: Command>(&mut self, command: &C) -> Vec<Fact> {
        let decision = loop {
            match decide(command, &self.states) {
                Ok(decision) => break decision,
                Err(DecideError::Missing(Missing(key))) => self.states.load(key, None),
                Err(DecideError::Refused(refusal)) => panic!("{refusal}"),
            }
        };
        while let Err(stuck) = self.states.evolve(&decision.facts) {
            match stuck {
                EvolveError::Missing(Missing(key)) => self.states.load(key, None),
                EvolveError::InvariantBroken(broken) => panic!("{broken}"),
            }
        }
        decision.facts
    }

    /// Opens and settles a call, and checks its hold.
    fn call(&mut self, provider: &str, listed: &Listed, drawn: &Drawn) -> Result<(), TestCaseError> {
        // What makes embeddings has no limit of output.
        let model_limit = listed.max_tokens.output.unwrap_or(1_000);
        let (body, most_output) = drawn.body(provider, model_limit);
        let text = body.to_string();
        let options = read_request(text.as_bytes());
        let limits = limits_at(provider, drawn.path, listed.max_tokens);
        let size = size::of_call(&options, Some(text.as_bytes()), drawn.input_bytes, limits);
        let usage = reported(provider, &drawn.usage(most_output), drawn.dialect);
        let (opened, metered) = self.open_and_settle(&listed.price, drawn.payer, size, usage);
        prop_assert_eq!(metered.overrun, Amount::ZERO);
        if drawn.is_kept_to(provider) {
            prop_assert!(metered.total_wallet_cost <= opened.hold.wallet, "{:?} {:?}", opened, metered);
            prop_assert!(metered.total_merchant_cost <= opened.hold.merchant, "{:?} {:?}", opened, metered);
        }
        if let Some(key) = opened.spend_key {
            let (cost, held) = (metered.total_request_cost, key.held(opened.hold).unwrap());
            prop_assert!(cost <= held, "{} of {}: {:?}", cost, held, metered);
        }
        Ok(())
    }

    /// The events of a call of this size at this price, which reports this usage.
    fn open_and_settle(
        &mut self,
        price: &ModelPrice,
        payer: usize,
        size: SizeHint,
        usage: Usage,
    ) -> (RequestOpened, RequestMetered) {
        let (customer, meter) = match payer {
            0 | 1 => (None, None),
            2 => (Some(self.customer), None),
            of_meter => (Some(self.customer), Some(self.meters[of_meter - 3])),
        };
        let caller = if payer == 1 {
            Caller::SpendKey(self.spend_key.clone())
        } else {
            Caller::SecretKey(self.secret_key.clone())
        };
        let request_id = RequestId::new(self.ulid());
        let opened = self.execute(&OpenRequest {
            request_id,
            gateway_id: GatewayId::new(Ulid::from_parts(1, 3)),
            caller,
            customer: customer.map(CustomerRef::Id),
            meter: meter.map(MeterRef::Id),
            billing: Billing::Usual,
            provider: "openai".to_owned(),
            provider_key_type: ProviderKeyType::Managed,
            endpoint: "POST https://provider.example/".to_owned(),
            model: None,
            list_price: ListPrice::Listed(price.clone()),
            metadata: BTreeMap::new(),
            size,
            settings: RequestSettings {
                service_charge_rate: "0.019".parse().unwrap(),
                default_hold: amount("0.01"),
                hold_cap: amount("1000000000"),
            },
            now: self.now,
        });
        let Event::Request(RequestEvent::Opened(opened)) = &opened[0].event else { panic!("{opened:?}") };
        let metered = Metered {
            http_status: 200,
            usage: Some(usage),
            ending: Completeness::Whole,
            raw_usage: None,
            response_id: None,
            model: None,
            provider_timestamp: None,
        };
        let settle = SettleRequest { request_id, settled: Settled::Metered(metered), now: self.now };
        let settled = self.execute(&settle);
        let Event::Request(RequestEvent::Metered(metered)) = &settled[0].event else { panic!("{settled:?}") };
        ((**opened).clone(), (**metered).clone())
    }
}

/// What limits a call to this path of the provider's public interface.
fn limits_at(provider: &str, path: &str, model: Split<Option<u64>>) -> size::Limits {
    let providers = Providers::new(Vec::new(), BTreeMap::new(), Catalogue::default());
    let target = format!("{}{path}", providers.origin_of(provider).unwrap()).parse().unwrap();
    let at = providers.at(&target);
    size::Limits { members: at.limit_members(&target), model, billed_by: at.billed_by(&target) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_source_file(file!()))]

    #[test]
    fn a_hold_covers_every_usage_of_every_listed_model_within_its_limits(drawn in drawn()) {
        let mut shop = Shop::new();
        let mut models = 0;
        for (provider, _, listed) in CATALOGUE.models() {
            shop.call(provider, listed, &drawn)?;
            models += 1;
        }
        prop_assert!(models > 100, "{} models", models);
    }

    #[test]
    fn speech_holds_what_its_characters_cost(
        text in "\\PC{0,300}", (digits, per_request) in (1_i64..100_000, 0_i64..1_000_000), payer in 0_usize..7,
    ) {
        let mut shop = Shop::new();
        let dollars = |digits: i64| Some(amount(&Decimal::new(digits, 10).to_string()));
        let price = ModelPrice {
            per_character: dollars(digits),
            per_request: dollars(per_request),
            ..ModelPrice::default()
        };
        let body = json!({"model": "m", "voice": "alloy", "input": text}).to_string();
        let options = read_request(body.as_bytes());
        let limits = limits_at("openai", "/v1/audio/speech", Split::default());
        let size = size::of_call(&options, Some(body.as_bytes()), body.len() as u64, limits);
        let usage = UsageLimit::default().with_sent_characters(options.input_characters).with_what_was_sent(None);
        let (opened, metered) = shop.open_and_settle(&price, payer, size, usage.unwrap());
        prop_assert_eq!(metered.overrun, Amount::ZERO);
        let (hold, key) = (opened.hold, opened.spend_key);
        prop_assert!(metered.total_wallet_cost <= hold.wallet, "{:?} {:?}", opened, metered);
        prop_assert!(metered.total_merchant_cost <= hold.merchant, "{:?} {:?}", opened, metered);
        if payer < 3 {
            prop_assert_eq!(hold.total().unwrap(), metered.total_request_cost);
        }
        if let Some(key) = key {
            prop_assert_eq!(key.held(hold).unwrap(), metered.total_request_cost);
        }
    }
}
