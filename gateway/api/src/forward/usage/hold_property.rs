//! A hold is never below the true cost of its call where a bound is known: over every model of the catalogue, at the
//! provider's public host and at hosts that the operator named, the body's limits under names that its endpoint reads and
//! under others, lists of prompts, of inputs and of requests, images, tools, every shape of a report of tokens, whole and
//! streamed, and every payer; the same of converted calls; at Bedrock, which the catalogue does not have, by prices of other models; and for speech, by the
//! characters of its input. The body is read, the call opened, the report read and the call settled by the code that does
//! so in a gateway.
//!
//! Nothing in a call says how many seconds of sound it has. A price per second has no bound, so a spend key holds the cap.

mod converted;
mod reports;
mod shop;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use farthing_core::event::{RequestMetered, RequestOpened};
use farthing_core::model_price::ModelPrice;
use farthing_core::money::Amount;
use farthing_core::size_hint::SizeHint;
use farthing_core::usage::{Cached, Split, Usage};
use http::Uri;
use proptest::prelude::*;
use rust_decimal::{Decimal, RoundingStrategy};
use serde_json::{Value, json};

use self::reports::{Form, OpenaiFormat, read_report};
use self::shop::{BY_SPEND_KEY, HOLD_CAP, Shop, amount};
use super::super::size;
use super::shape::Shape;
use super::{RequestedOptions, read_bedrock_options, read_request};
use crate::providers::catalogue::{Catalogue, Listed};
use crate::providers::{ProviderHost, Providers, Unbounded, UsageLimit};

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
    host: Host,
    input_kind: InputKind,
    /// The form of the answer.
    form: Form,
    payer: usize,
}

/// The host that is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Host {
    /// The provider's public one.
    Public,
    /// One of the operator's, by the provider's name.
    Named,
    /// One of the operator's, by a name of its own.
    OwnName,
}

/// What a body has beside its limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InputKind {
    /// One text.
    Text,
    /// A list of this many texts, each of which is answered.
    Prompts(u64),
    /// An image at a URL, which can be more tokens than bytes.
    Image,
    /// Text, with so many tools that the body describes and so many that it only names. The provider adds instructions, and
    /// the descriptions of the latter.
    Tools { described: u64, named: u64 },
    /// A list of things to embed, or of messages, under `input`.
    Inputs(u64, Medium),
    /// A list of whole requests, each of which is answered.
    Requests(u64, Medium),
}

/// What the items of a list are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Medium {
    Texts,
    Images,
}

/// The most tokens of the instructions that a provider adds for tools, and of each description.
const ADDED_FOR_TOOLS: u64 = 1_000;

/// Endpoints of the formats.
const PATHS: [&str; 7] = [
    "/v1/chat/completions",
    "/v1/completions",
    EMBEDDINGS,
    "/v1/responses",
    "/v1/messages",
    "/v1beta/models/m:generateContent",
    "/v2/chat",
];

/// The endpoint of embeddings.
const EMBEDDINGS: &str = "/v1/embeddings";

/// The name that the operator gives to a host.
const OWN_NAME: &str = "our-models";

/// The output limits of the dialects, and the numbers of answers beside them.
const DIALECTS: [(&str, &str); 4] = [
    ("max_tokens", "n"),
    ("max_completion_tokens", "n"),
    ("max_output_tokens", "best_of"),
    ("maxOutputTokens", "candidateCount"),
];

/// Models of Bedrock, how they are called, and the member that limits the output then.
const BEDROCKS: [(&str, &str, &str); 4] = [
    ("amazon.nova-lite-v1:0", "converse", "inferenceConfig"),
    ("eu.anthropic.claude", "invoke", "max_tokens"),
    ("meta.llama", "invoke", "max_gen_len"),
    ("openai.gpt-oss", "invoke-with-response-stream", "max_completion_tokens"),
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
        "/v1/completions" | "/v1/messages" => name == "max_tokens",
        EMBEDDINGS => false,
        // Cohere's own, which others do not have.
        "/v2/chat" => provider == "cohere" && name == "max_tokens",
        _ => name == "maxOutputTokens",
    }
}

fn forms() -> impl Strategy<Value = Form> {
    prop_oneof![Just(Form::Whole), Just(Form::Stream), Just(Form::BinaryStream)]
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let share = || prop_oneof![1 => Just(100_u64), 1 => Just(0), 4 => 0_u64..=100];
    let cached = prop_oneof![
        1 => Just((0_u64, 0_u64)), 1 => Just((100, 0)), 1 => Just((0, 100)), 3 => (0_u64..=60, 0_u64..=40)];
    let bytes = prop_oneof![3 => 2_u64..5_000, 2 => 5_000_u64..2_000_000];
    let limit = proptest::option::weighted(0.7, 1_u64..=100);
    let path = proptest::sample::select(PATHS.to_vec());
    let host = prop_oneof![2 => Just(Host::Public), 1 => Just(Host::Named), 1 => Just(Host::OwnName)];
    let medium = || prop_oneof![Just(Medium::Texts), Just(Medium::Images)];
    let input_kind = prop_oneof![
        3 => Just(InputKind::Text),
        1 => (1_u64..4).prop_map(InputKind::Prompts),
        1 => Just(InputKind::Image),
        2 => (0_u64..3, 0_u64..3).prop_map(|(described, named)| InputKind::Tools { described, named }),
        1 => (1_u64..9, medium()).prop_map(|(number, medium)| InputKind::Inputs(number, medium)),
        1 => (1_u64..9, medium()).prop_map(|(number, medium)| InputKind::Requests(number, medium)),
    ];
    let called = (0_usize..4, path, host, input_kind, forms());
    (limit, 1_u64..4, bytes, share(), share(), cached, share(), called, 0_usize..6).prop_map(
        |(limit, answers, input_bytes, input, output, cached, reasoning, called, payer)| {
            let (dialect, path, host, input_kind, form) = called;
            Drawn {
                limit,
                answers,
                input_bytes,
                input,
                output,
                cached,
                reasoning,
                dialect,
                path,
                host,
                input_kind,
                form,
                payer,
            }
        },
    )
}

impl Drawn {
    /// Whether `provider` keeps to the output limit of the body.
    fn is_kept_to(&self, provider: &str) -> bool {
        let named = if self.host == Host::OwnName { OWN_NAME } else { provider };
        self.limit.is_some() && keeps_to(named, self.path, DIALECTS[self.dialect].0)
    }

    /// Whether output and input are both bounded on the wallet.
    fn is_bounded(&self, provider: &str) -> bool {
        self.is_kept_to(provider) && self.is_text()
    }

    /// Whether the input has no more tokens than bytes. An image can have more, and a provider adds to tools.
    fn is_text(&self) -> bool {
        match self.input_kind {
            InputKind::Text
            | InputKind::Prompts(_)
            | InputKind::Tools { described: 0, named: 0 }
            | InputKind::Inputs(_, Medium::Texts)
            | InputKind::Requests(_, Medium::Texts) => true,
            InputKind::Image
            | InputKind::Tools { .. }
            | InputKind::Inputs(_, Medium::Images)
            | InputKind::Requests(_, Medium::Images) => false,
        }
    }

    /// The request body, in one of the dialects, and the most output that `provider` gives.
    fn body(&self, provider: &str, model_limit: u64) -> (Value, u64) {
        let limit = self.limit.map(|share| (model_limit * share / 100).max(1));
        let mut prompts = 1;
        let mut body = match self.input_kind {
            InputKind::Text => json!({"messages": [{"role": "user", "content": "a"}]}),
            InputKind::Prompts(number) => {
                prompts = number;
                json!({"prompt": vec!["a"; usize::try_from(number).unwrap()]})
            }
            InputKind::Image => json!({"messages": [{"role": "user", "content": [image()]}]}),
            InputKind::Tools { described, named } => {
                let of = |number: u64, tool: Value| vec![tool; usize::try_from(number).unwrap()];
                let function = json!({"type": "function", "function": {"name": "f", "parameters": {}}});
                let tools = [of(described, function), of(named, json!({"type": "bash_20250124"}))].concat();
                json!({"messages": [{"role": "user", "content": "a"}], "tools": tools})
            }
            InputKind::Inputs(number, medium) => {
                let input = if medium == Medium::Images { image() } else { json!("a") };
                json!({"input": vec![input; usize::try_from(number).unwrap()]})
            }
            InputKind::Requests(number, medium) => {
                prompts = number;
                let part = json!({"fileData": {"fileUri": "https://images.example/a.png"}});
                let part = if medium == Medium::Images { part } else { json!({"text": "a"}) };
                json!({"requests": vec![json!({"content": {"parts": [part]}}); usize::try_from(number).unwrap()]})
            }
        };
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
        (body, kept * self.answers * prompts)
    }

    /// The most input of a call to a model with this limit: a byte is no more than a token of text. What is embedded, and
    /// each request of a list, may be as long as the model takes; messages are so together.
    fn most_input(&self, model_limit: Option<u64>) -> u64 {
        let images = |number: u64| model_limit.map_or(self.input_bytes, |limit| limit * number);
        match self.input_kind {
            InputKind::Inputs(number, Medium::Images) if self.path == EMBEDDINGS => images(number),
            InputKind::Image | InputKind::Inputs(_, Medium::Images) => images(1),
            InputKind::Requests(number, Medium::Images) => images(number),
            InputKind::Tools { described: 0, named: 0 }
            | InputKind::Text
            | InputKind::Prompts(_)
            | InputKind::Inputs(_, Medium::Texts)
            | InputKind::Requests(_, Medium::Texts) => self.input_bytes,
            InputKind::Tools { described: _, named } => self.input_bytes + ADDED_FOR_TOOLS * (1 + named),
        }
    }

    /// A usage within what the body allows. Embeddings have no output.
    fn usage(&self, most_input: u64, most_output: u64) -> Usage {
        let input = most_input * self.input / 100;
        let output = if self.path == EMBEDDINGS { 0 } else { most_output * self.output / 100 };
        let cached = Cached { read: input * self.cached.0 / 100, write: input * self.cached.1 / 100 };
        Usage {
            tokens: Split { input, output },
            cached,
            reasoning_tokens: output * self.reasoning / 100,
            ..Usage::default()
        }
    }
}

/// An image at a URL, as a part of a message in OpenAI's format.
fn image() -> Value {
    json!({"type": "image_url", "image_url": {"url": "https://images.example/a.png"}})
}

/// The format of OpenAI in which a provider answers at a path, if it answers in one.
fn openai_format(provider: &str, path: &str) -> OpenaiFormat {
    match provider {
        _ if path.ends_with("/responses") => OpenaiFormat::Responses,
        _ if path.ends_with("/embeddings") => OpenaiFormat::Embeddings,
        "groq" => OpenaiFormat::GroqsChat,
        "moonshot" => OpenaiFormat::MoonshotsChat,
        "google" if path.ends_with("/chat/completions") => OpenaiFormat::GooglesChat,
        _ => OpenaiFormat::Chat,
    }
}

impl Shop {
    /// Opens and settles a call, and checks its hold.
    fn call(&mut self, provider: &str, listed: &Listed, drawn: &Drawn) -> Result<(), TestCaseError> {
        // What makes embeddings has no limit of output.
        let model_limit = listed.max_tokens.output.unwrap_or(1_000);
        let (body, most_output) = drawn.body(provider, model_limit);
        let text = body.to_string();
        let options = read_request(text.as_bytes());
        let (providers, target) = called(provider, drawn.host, drawn.path);
        let limits = limits_at(&providers, &target, listed.max_tokens);
        let size = size_of_call(&options, text.as_bytes(), drawn, limits);
        let usage = drawn.usage(drawn.most_input(listed.max_tokens.input), most_output);
        let (shape, format) = (providers.at(&target).shape(&target), openai_format(provider, drawn.path));
        let usage = read_report(shape, format, drawn.form, &usage);
        let (opened, metered) = self.open_and_settle(&listed.price, drawn.payer, size, usage);
        covers(&opened, &metered, drawn.is_bounded(provider))
    }

    /// The same of a call to Bedrock, at the price of this model.
    fn call_to_bedrock(&mut self, listed: &Listed, drawn: &Drawn) -> Result<(), TestCaseError> {
        let model_limit = listed.max_tokens.output.unwrap_or(1_000);
        let limit = drawn.limit.map(|share| (model_limit * share / 100).max(1));
        let (model, operation, member) = BEDROCKS[drawn.dialect];
        let mut body = json!({"messages": [{"role": "user", "content": "a"}]});
        match (limit, member) {
            (Some(limit), "inferenceConfig") => body[member] = json!({"maxTokens": limit}),
            (Some(limit), _) => body[member] = json!(limit),
            (None, _) => {}
        }
        let text = body.to_string();
        let url = format!("https://bedrock-runtime.eu-west-1.amazonaws.com/model/{model}/{operation}");
        let target = url.parse().unwrap();
        let providers = Providers::new(Vec::new(), BTreeMap::new(), Catalogue::default());
        let at = providers.at(&target);
        let mut options = read_request(text.as_bytes());
        read_bedrock_options(&mut options, text.as_bytes(), target.path(), model);
        let (members, billed_by) = (at.limit_members(&target), at.billed_by(&target));
        let limits =
            size::Limits { members, model: listed.max_tokens, billed_by, unbounded: Unbounded::Nothing };
        let size = size_of_call(&options, text.as_bytes(), drawn, limits);
        let usage = drawn.usage(drawn.input_bytes, limit.unwrap_or(model_limit));
        let usage = read_report(Shape::Bedrock, OpenaiFormat::Chat, drawn.form, &usage);
        let (opened, metered) = self.open_and_settle(&listed.price, drawn.payer, size, usage);
        covers(&opened, &metered, limit.is_some())
    }
}

/// Checks that the hold of a call covers its cost: on the wallets if it is bounded there, and on a spend key in any case.
fn covers(opened: &RequestOpened, metered: &RequestMetered, is_bounded: bool) -> Result<(), TestCaseError> {
    prop_assert_eq!(metered.overrun, Amount::ZERO);
    if is_bounded {
        prop_assert!(metered.total_wallet_cost <= opened.hold.wallet, "{:?} {:?}", opened, metered);
        prop_assert!(metered.total_merchant_cost <= opened.hold.merchant, "{:?} {:?}", opened, metered);
    }
    if let Some(key) = opened.spend_key {
        let (cost, held) = (metered.total_request_cost, key.held(opened.hold).unwrap());
        prop_assert!(cost <= held, "{} of {}: {:?}", cost, held, metered);
    }
    Ok(())
}

/// The size of a call. What its body has beside text matters for a spend key alone.
fn size_of_call(options: &RequestedOptions, body: &[u8], drawn: &Drawn, limits: size::Limits) -> SizeHint {
    let json = (drawn.payer == BY_SPEND_KEY).then_some(body);
    size::of_call(options, json, drawn.input_bytes, limits)
}

/// A call to this path of a provider, with the hosts that the operator named for it.
fn called(provider: &str, host: Host, path: &str) -> (Providers, Uri) {
    let named = |name: &str| ProviderHost::new(name.to_owned(), "10.0.0.7".to_owned(), 443).unwrap();
    let (name, hosts) = match host {
        Host::Public => (provider, Vec::new()),
        Host::Named => (provider, vec![named(provider)]),
        Host::OwnName => (OWN_NAME, vec![named(OWN_NAME)]),
    };
    let providers = Providers::new(hosts, BTreeMap::new(), Catalogue::default());
    let target: Uri = format!("{}{path}", providers.origin_of(name).unwrap()).parse().unwrap();
    assert_eq!(providers.at(&target).name, name, "{target}");
    (providers, target)
}

/// What limits a call to `target` for a model with these limits.
fn limits_at(providers: &Providers, target: &Uri, model: Split<Option<u64>>) -> size::Limits {
    let at = providers.at(target);
    size::Limits {
        members: at.limit_members(target),
        model,
        billed_by: at.billed_by(target),
        unbounded: Unbounded::Nothing,
    }
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
    fn the_hold_of_a_spend_key_covers_lists_of_texts_and_images_to_embed_and_of_requests(
        given in drawn(), number in 1_u64..9, is_embedded in any::<bool>(), has_images in any::<bool>(),
    ) {
        let medium = if has_images { Medium::Images } else { Medium::Texts };
        let (path, input_kind) = if is_embedded {
            (EMBEDDINGS, InputKind::Inputs(number, medium))
        } else {
            (given.path, InputKind::Requests(number, medium))
        };
        let drawn = Drawn { path, input_kind, payer: BY_SPEND_KEY, ..given };
        let mut shop = Shop::new();
        for (provider, _, listed) in CATALOGUE.models() {
            shop.call(provider, listed, &drawn)?;
        }
    }

    #[test]
    fn a_hold_covers_every_usage_of_a_converted_call_within_its_limits(drawn in drawn()) {
        let mut shop = Shop::new();
        let mut converted = 0;
        for (provider, model, listed) in CATALOGUE.models() {
            converted += usize::from(shop.converted_call(provider, model, listed, &drawn)?);
        }
        // A client of Anthropic's states a limit.
        let is_refused = drawn.limit.is_none() && drawn.dialect == 3;
        prop_assert!(converted > 30 || is_refused, "{} models", converted);
    }

    #[test]
    fn a_hold_covers_every_usage_at_bedrock_within_its_limits(drawn in drawn()) {
        let mut shop = Shop::new();
        for (_, _, listed) in CATALOGUE.models() {
            shop.call_to_bedrock(listed, &drawn)?;
        }
    }

    #[test]
    fn sound_at_a_price_per_second_has_no_bound_so_a_spend_key_holds_the_cap(
        digits in 1_i64..100_000, milliseconds in 1_i64..100_000_000, bytes in 1_u64..300_000, form in forms(),
    ) {
        let mut shop = Shop::new();
        let rate = Decimal::new(digits, 10);
        let per_second = Some(amount(&rate.to_string()));
        let price = ModelPrice { per_second, ..ModelPrice::default() };
        let (providers, target) = called("openai", Host::Public, "/v1/audio/transcriptions");
        let limits = limits_at(&providers, &target, Split::default());
        let size = size::of_form(&read_request(b"{}"), bytes, limits);
        let seconds = Split { input: Decimal::new(milliseconds, 3), output: Decimal::ZERO };
        let sent = Usage { seconds, ..Usage::default() };
        let usage = read_report(Shape::Transcription, OpenaiFormat::Chat, form, &sent);
        let (opened, metered) = shop.open_and_settle(&price, BY_SPEND_KEY, size, usage);
        prop_assert_eq!(opened.spend_key.unwrap().held(opened.hold).unwrap(), amount(HOLD_CAP));
        let cost = (rate * seconds.input).round_dp_with_strategy(10, RoundingStrategy::MidpointAwayFromZero);
        prop_assert_eq!(metered.total_request_cost, amount(&cost.to_string()));
        prop_assert_eq!(metered.overrun, Amount::ZERO);
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
        let mut options = read_request(body.as_bytes());
        options.read_input_characters(body.as_bytes());
        let (providers, target) = called("openai", Host::Public, "/v1/audio/speech");
        let limits = limits_at(&providers, &target, Split::default());
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
