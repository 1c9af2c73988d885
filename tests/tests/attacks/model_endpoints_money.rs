//! Managed calls at the model endpoints and the rewrite endpoint, unchanged and converted, of clients and providers of
//! every format. Calls whose usage does not become known, or is absurd, pay what they pay through forward: their hold.

use std::sync::{Arc, Mutex};

use farthing_tests::books::Books;
use farthing_tests::client::Request;
use farthing_tests::codings::{MAX_DECODED, MIB, br, filler, gzip};
use farthing_tests::managed::Managed;
use farthing_tests::merchant::Merchant;
use farthing_tests::provider::{
    Endpoint, Gate, Provider, Step, chunk, event_stream, json as answer_json, last_chunk, whole,
};
use farthing_tests::run;
use serde_json::{Value, json};

use super::leaving::{events, leave};
use super::leaving_counted::{FLASH, GPT_4O, TokenPrices, dollars, meter_without_fee};

/// The output limit of each call, in tokens.
const LIMIT: u64 = 200;

/// Of claude-haiku-4-5: 1.25 dollars for a million that are written to a cache, and 5.
const HAIKU: TokenPrices = (12_500, 50_000);

/// Of text-embedding-3-small: 0.02 dollars for a million, and nothing.
const EMBEDDING: TokenPrices = (200, 0);

/// The largest count that is read.
const MAX_COUNT: u64 = 1_000_000_000_000;

/// What a provider speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Speaks {
    /// Chat Completions of gpt-4o.
    Chat,
    /// Responses of gpt-4o.
    Responses,
    /// Embeddings of text-embedding-3-small.
    Embeddings,
    /// Messages of claude-haiku-4-5.
    Messages,
    /// `generateContent` of gemini-2.5-flash.
    Google,
}

impl Speaks {
    /// The dearest prices of its model.
    fn prices(self) -> TokenPrices {
        match self {
            Self::Chat | Self::Responses => GPT_4O,
            Self::Embeddings => EMBEDDING,
            Self::Messages => HAIKU,
            Self::Google => FLASH,
        }
    }

    /// The most tokens of input and of output that are believed of one answer of its model: ten times its limits.
    fn most_tokens(self) -> (u64, Option<u64>) {
        match self {
            Self::Chat | Self::Responses => (1_280_000, Some(163_840)),
            Self::Embeddings => (81_910, None),
            Self::Messages => (2_000_000, Some(640_000)),
            Self::Google => (10_485_760, Some(655_360)),
        }
    }

    /// A whole answer that reports so much.
    fn answer(self, (input, output): (u64, u64)) -> Value {
        let text = "Hello.";
        match self {
            Self::Chat => json!({
                "id": "c-1", "object": "chat.completion", "created": 1_700_000_000, "model": "gpt-4o",
                "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": input, "completion_tokens": output},
            }),
            Self::Responses => json!({
                "id": "resp_1", "object": "response", "model": "gpt-4o", "output": [],
                "usage": {"input_tokens": input, "output_tokens": output},
            }),
            Self::Embeddings => json!({
                "object": "list", "model": "text-embedding-3-small", "data": [], "usage": {"prompt_tokens": input},
            }),
            Self::Messages => json!({
                "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-haiku-4-5",
                "content": [{"type": "text", "text": text}], "stop_reason": "end_turn", "stop_sequence": null,
                "usage": {"input_tokens": input, "output_tokens": output},
            }),
            Self::Google => json!({
                "candidates": [{
                    "content": {"role": "model", "parts": [{"text": text}]}, "finishReason": "STOP", "index": 0,
                }],
                "usageMetadata": {"promptTokenCount": input, "candidatesTokenCount": output},
                "modelVersion": "gemini-2.5-flash", "responseId": "r-1",
            }),
        }
    }

    /// The beginning of a stream, with the text that was wanted. Messages reports its input there.
    fn beginning(self) -> String {
        let text = "all that was wanted";
        let documents = match self {
            Self::Chat => vec![json!({
                "id": "c-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "gpt-4o",
                "choices": [{"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": null}],
            })],
            Self::Responses => vec![json!({"type": "response.output_text.delta", "delta": text})],
            Self::Embeddings => panic!("embeddings are no stream"),
            Self::Messages => vec![
                json!({"type": "message_start", "message": {
                    "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-haiku-4-5", "content": [],
                    "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": 9, "output_tokens": 1},
                }}),
                json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
                json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}),
            ],
            Self::Google => vec![json!({
                "candidates": [{"content": {"role": "model", "parts": [{"text": text}]}, "index": 0}],
                "modelVersion": "gemini-2.5-flash", "responseId": "r-1",
            })],
        };
        let events: Vec<_> = documents.iter().map(|document| format!("data: {document}\n\n")).collect();
        events.concat()
    }
}

/// Whether calls ask for a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Whole,
    Stream,
}

/// A gateway, and a provider of each format behind it.
struct Providers {
    managed: Managed,
    form: Form,
    chat: Endpoint,
    responses: Endpoint,
    embeddings: Endpoint,
    messages: Endpoint,
    google: Endpoint,
}

/// A call at one of the endpoints, without a credential.
struct ManagedCall {
    request: Request,
    speaks: Speaks,
    /// Where the provider gets it.
    reaches: Endpoint,
    /// Whether client and provider speak different formats.
    is_converted: bool,
}

impl Providers {
    /// Starts them. They answer calls of this form with `respond`.
    async fn start(form: Form, respond: impl Fn(Speaks) -> Vec<Step> + Send + Sync + 'static) -> Self {
        let managed = Managed::start(&[]).await;
        let respond = Arc::new(respond);
        let at = |provider: &Provider, path: &str, speaks: Speaks| {
            let respond = Arc::clone(&respond);
            provider.endpoint_at(path, move |_| respond(speaks))
        };
        let gemini = match form {
            Form::Whole => "/v1beta/models/gemini-2.5-flash:generateContent",
            Form::Stream => "/v1beta/models/gemini-2.5-flash:streamGenerateContent",
        };
        let chat = at(&managed.openai, "/v1/chat/completions", Speaks::Chat);
        let responses = at(&managed.openai, "/v1/responses", Speaks::Responses);
        let embeddings = at(&managed.openai, "/v1/embeddings", Speaks::Embeddings);
        let messages = at(&managed.anthropic, "/v1/messages", Speaks::Messages);
        let google = at(&managed.google, gemini, Speaks::Google);
        Self { managed, form, chat, responses, embeddings, messages, google }
    }

    /// A call for each pair of an endpoint with a client's format and a provider's format. Of calls for whole answers, the
    /// one for embeddings is the last.
    fn calls(&self) -> Vec<ManagedCall> {
        let is_stream = self.form == Form::Stream;
        let said = json!([{"role": "user", "content": "Hi"}]);
        let by_messages =
            |model: &str| json!({"model": model, "max_tokens": LIMIT, "messages": said, "stream": is_stream});
        let by_chat = |model: &str| {
            let mut body = by_messages(model);
            if is_stream {
                body["stream_options"] = json!({"include_usage": true});
            }
            body
        };
        let by_responses = |model: &str| json!({"model": model, "max_output_tokens": LIMIT, "input": "Hi", "stream": is_stream});
        let by_google = json!({
            "contents": [{"role": "user", "parts": [{"text": "Hi"}]}], "generationConfig": {"maxOutputTokens": LIMIT},
        });
        let call = |target: &str, body: &Value, speaks: Speaks, is_converted: bool| {
            let reaches = match speaks {
                Speaks::Chat => &self.chat,
                Speaks::Responses => &self.responses,
                Speaks::Embeddings => &self.embeddings,
                Speaks::Messages => &self.messages,
                Speaks::Google => &self.google,
            };
            let request = Request::new("POST", target).json(body);
            ManagedCall { request, speaks, reaches: reaches.clone(), is_converted }
        };
        let (gpt, haiku, gemini) = ("gpt-4o", "claude-haiku-4-5", "gemini-2.5-flash");
        let (chat_url, messages_url) = (&self.chat.url, &self.messages.url);
        let method = if is_stream { "streamGenerateContent?alt=sse" } else { "generateContent" };
        let mut calls = vec![
            call("/v1/chat/completions", &by_chat(gpt), Speaks::Chat, false),
            call("/v1/chat/completions", &by_chat(haiku), Speaks::Messages, true),
            call("/v1/chat/completions", &by_chat(gemini), Speaks::Google, true),
            call("/v1/messages", &by_messages(haiku), Speaks::Messages, false),
            call("/v1/messages", &by_messages(gpt), Speaks::Chat, true),
            call("/v1/messages", &by_messages(gemini), Speaks::Google, true),
            call("/v1/responses", &by_responses(gpt), Speaks::Responses, false),
            call("/v1/responses", &by_responses(haiku), Speaks::Messages, true),
            call(&format!("/v1/rewrite/openai/{chat_url}"), &by_chat(gpt), Speaks::Chat, false),
            call(&format!("/v1/rewrite/openai/{messages_url}"), &by_chat(haiku), Speaks::Messages, true),
            call(&format!("/v1/rewrite/anthropic/{chat_url}"), &by_messages(gpt), Speaks::Chat, true),
            call(
                &format!("/v1/rewrite/google/{chat_url}/v1beta/models/{gpt}:{method}"),
                &by_google,
                Speaks::Chat,
                true,
            ),
        ];
        if !is_stream {
            let body = json!({"model": "text-embedding-3-small", "input": "Hi"});
            calls.push(call("/v1/embeddings", &body, Speaks::Embeddings, false));
        }
        calls
    }
}

impl ManagedCall {
    /// The hold of the call that the provider got last, by the documents: the bytes of its body and its output limit, at
    /// the dearest rates.
    fn hold(&self) -> String {
        let sent = self.reaches.calls().pop().expect("the provider was called");
        dollars(self.speaks.prices(), sent.body.len() as u64, LIMIT)
    }

    /// Asserts that the call paid exactly its hold, which is all on this payer.
    async fn paid_its_hold(&self, merchant: &Merchant, id: &str, payer: &str, marks: &Value) {
        let (target, hold) = (&self.request.target, self.hold());
        let (opened, metered) = events(merchant, id).await;
        assert_eq!(opened["hold"][payer], hold, "{target}: {opened}");
        assert_ne!(hold, "0.0000000000", "{target}");
        assert_eq!(&metered["marks"], marks, "{target}: {metered}");
        for part in ["wallet", "merchant"] {
            let paid = &metered[format!("total_{part}_cost")];
            assert_eq!(paid, &opened["hold"][part], "{target}: {metered}");
        }
        let shown = merchant.shown(id, "completed").await;
        assert_eq!(
            (&shown["marks"], &shown["total_request_cost"]),
            (marks, &json!(hold)),
            "{target}: {shown}"
        );
    }
}

/// The marks of a call whose usage did not become known although its response came to its end.
fn unread() -> Value {
    json!(["usage_missing", "hold_charged"])
}

/// F4: the provider answers in a coding beyond the bound of decoding, cut, or unknown, or in no JSON. A client whose format
/// is that of the provider gets the bytes, another one an error; each call pays its hold.
#[test]
fn a_response_that_cannot_be_read_is_charged_its_hold_at_each_endpoint_of_models() {
    run(async {
        let answer: Arc<Mutex<Vec<Step>>> = Arc::default();
        let given = Arc::clone(&answer);
        let providers = Providers::start(Form::Whole, move |_| given.lock().unwrap().clone()).await;
        let merchant = Merchant::funded("100").await;
        let customer = merchant.customer("100").await;
        let billing = merchant.billing(&customer, &meter_without_fee(&merchant).await);
        let answers = |coding: &str, body: &[u8]| {
            let headers = [("Content-Type", "application/json"), ("Content-Encoding", coding)];
            *answer.lock().unwrap() = whole(200, &headers, body);
        };
        let usage =
            r#""usage":{"prompt_tokens":300,"input_tokens":300,"completion_tokens":1,"output_tokens":1}"#;
        let document = |data: &str| format!(r#"{{"data":"{data}",{usage}}}"#).into_bytes();
        let half = |body: Vec<u8>| body[..body.len() / 2].to_vec();
        for (coding, body) in [
            // More than a hundred times as long as what came.
            ("gzip", gzip(&document(&"0".repeat(8 * MIB)))),
            // The usage is not in the first half.
            ("br", half(br(&document(&filler(MIB))))),
            ("unheard-of", document("")),
            ("identity", b"tokens,300\n".to_vec()),
        ] {
            answers(coding, &body);
            for call in providers.calls() {
                for (credential, payer) in [(&merchant.secret_key, "merchant"), (&billing, "wallet")] {
                    let target = &call.request.target;
                    let response = providers.managed.send(credential, call.request.clone()).await;
                    if call.is_converted {
                        response.refused(502, "provider_unreachable");
                    } else {
                        assert_eq!((response.status, response.complete), (200, true), "{target}: {coding}");
                        assert!(response.body == body, "{target}: {coding}: the response passes as it came");
                    }
                    call.paid_its_hold(&merchant, &response.request_id(), payer, &unread()).await;
                }
            }
        }
        // As long as many embeddings are: beyond what is decoded of any response.
        let long = gzip(&document(&filler(MAX_DECODED + MIB)));
        answers("gzip", &long);
        let call = providers.calls().pop().unwrap();
        assert_eq!(call.speaks, Speaks::Embeddings);
        let response = providers.managed.send(&billing, call.request.clone()).await;
        assert_eq!((response.status, response.complete), (200, true));
        call.paid_its_hold(&merchant, &response.request_id(), "wallet", &unread()).await;
        merchant.nothing_is_held().await;
        Books::of(&merchant.log.after(0).await);
    });
}

/// F8: a caller reads what it wanted of a stream and leaves before the usage comes, on a meter that cancels such calls.
#[test]
fn a_caller_that_leaves_a_stream_is_charged_its_hold_at_each_endpoint_of_models() {
    run(async {
        let gate = Gate::default();
        let waits = gate.clone();
        let respond = move |speaks: Speaks| {
            vec![event_stream(), chunk(speaks.beginning()), Step::Wait(waits.clone()), last_chunk()]
        };
        let providers = Providers::start(Form::Stream, respond).await;
        let merchant = Merchant::funded("100").await;
        let customer = merchant.customer("100").await;
        let billing = merchant.billing(&customer, &meter_without_fee(&merchant).await);
        for call in providers.calls() {
            let id = leave(&providers.managed, &billing, call.request.clone()).await;
            let marks = match call.speaks {
                // Its input was reported, its output not.
                Speaks::Messages => json!(["hold_charged", "partial"]),
                Speaks::Chat | Speaks::Responses | Speaks::Embeddings | Speaks::Google => {
                    json!(["usage_missing", "hold_charged", "partial"])
                }
            };
            call.paid_its_hold(&merchant, &id, "wallet", &marks).await;
        }
        gate.open();
        merchant.nothing_is_held().await;
        Books::of(&merchant.log.after(0).await);
    });
}

/// F13: a provider reports more than its model can read or write. What ten times the model's limits allow is believed.
#[test]
fn a_usage_beyond_the_limits_of_its_model_is_charged_the_hold_at_each_endpoint_of_models() {
    run(async {
        let reported: Arc<Mutex<(u64, u64)>> = Arc::default();
        let read = Arc::clone(&reported);
        let respond = move |speaks: Speaks| answer_json(200, &speaks.answer(*read.lock().unwrap()));
        let providers = Providers::start(Form::Whole, respond).await;
        let merchant = Merchant::funded("100").await;
        let customer = merchant.customer("100").await;
        let billing = merchant.billing(&customer, &meter_without_fee(&merchant).await);
        let send = async |call: &ManagedCall, usage: (u64, u64)| {
            *reported.lock().unwrap() = usage;
            let response = providers.managed.send(&billing, call.request.clone()).await;
            let target = &call.request.target;
            assert_eq!((response.status, response.complete), (200, true), "{target}: {}", response.text());
            response
        };
        for call in providers.calls() {
            let target = &call.request.target;
            let (most_input, most_output) = call.speaks.most_tokens();
            let most = (most_input, most_output.unwrap_or(0));
            let metered = merchant.charged(&send(&call, most).await).await;
            assert_eq!(metered["marks"], json!([]), "{target}: {metered}");
            assert_eq!(metered["usage"]["tokens"], json!({"input": most.0, "output": most.1}), "{target}");

            let beyond_output = most_output.map(|output| (1, output + 1));
            for usage in [(most_input + 1, 1), (MAX_COUNT, 1)].into_iter().chain(beyond_output) {
                let response = send(&call, usage).await;
                let marks = json!(["usage_invalid", "hold_charged"]);
                call.paid_its_hold(&merchant, &response.request_id(), "wallet", &marks).await;
                let metered = merchant.charged(&response).await;
                let raw = metered["raw_usage"].as_str().unwrap();
                let absurd = usage.0.max(usage.1).to_string();
                assert!(raw.contains(&absurd), "{target}: it is kept: {metered}");
                assert_eq!(metered["overrun"], "0.0000000000", "{target}: {metered}");
            }
            // The specification's own bound: an error that is charged nothing (section 5).
            let response = send(&call, (MAX_COUNT + 1, 1)).await;
            assert_eq!(merchant.failed(&response).await["reason"], "usage_invalid", "{target}");
        }
        merchant.nothing_is_held().await;
        Books::of(&merchant.log.after(0).await);
    });
}
