//! Conversions as an attack: a caller and its own provider send little, so that the gateway keeps or writes much. The call
//! ends by the stated rules, the gateway stays small, and another merchant's calls go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farthing_tests::client::{Connection, Request, Response};
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::process::{peak_resident_kib, resident_kib, threads};
use farthing_tests::provider::{
    Endpoint, Gate, Step, chunk, event_stream, head, json as answer_json, last_chunk,
};
use farthing_tests::run;
use farthing_tests::scrape::scrape;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::{settled, within};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::task::JoinSet;

const MIB: usize = 1024 * 1024;

/// What the gateway may take more, in KiB. Each of these attacks asks for more, most of them for gigabytes.
const MAY_TAKE: u64 = 300 * 1024;

/// The streams that hold back a long event, and the bytes that each sends of it.
const HELD: u64 = 60;
const HELD_BYTES: u64 = 8 * 1024 * 1024;

/// The timeout for the gateway to read what all of them send.
const PATIENCE: Duration = Duration::from_mins(2);

fn event(data: &Value) -> Vec<u8> {
    format!("data: {data}\n\n").into_bytes()
}

/// A provider that streams these pieces at `path`.
fn streaming(merchant: &Merchant, path: &str, pieces: Vec<Vec<u8>>) -> Endpoint {
    merchant.instance.provider.endpoint_ending(path, move |_| {
        let mut steps = vec![event_stream()];
        steps.extend(pieces.iter().map(chunk));
        steps.push(last_chunk());
        steps
    })
}

/// A streamed call of a client of this format to `url`, which is the whole address or what its library appends to.
fn streamed_call(format: &str, url: &str) -> Request {
    let (appended, body) = if format == "openai" {
        ("/v1/responses", json!({"model": "m", "input": "Hi", "max_output_tokens": 9, "stream": true}))
    } else {
        let messages = json!([{"role": "user", "content": "Hi"}]);
        ("", json!({"model": "m", "max_tokens": 9, "messages": messages, "stream": true}))
    };
    Request::new("POST", format!("/v1/rewrite/{format}/{url}{appended}")).json(&body)
}

/// A gateway with an attacker's and a victim's merchant.
struct Scene {
    gateway: SideGateway,
    attacker: Merchant,
    victim: Merchant,
    before: u64,
}

impl Scene {
    async fn start() -> Self {
        let (attacker, victim) = (Merchant::funded("10").await, Merchant::funded("10").await);
        let gateway = SideGateway::start(attacker.instance, &["--allow-address=127.0.0.0/8"]).await;
        let before = resident_kib(gateway.pid());
        Self { gateway, attacker, victim, before }
    }

    async fn send(&self, request: Request) -> Response {
        request.bearer(&self.attacker.secret_key).send(self.gateway.address).await.unwrap()
    }

    /// The gateway is small, and serves and charges another merchant.
    async fn goes_on(&self) {
        let taken = resident_kib(self.gateway.pid()).saturating_sub(self.before);
        assert!(taken < MAY_TAKE, "it took {taken} KiB");
        let plain =
            self.victim.instance.provider.endpoint(|_| answer_json(200, &json!({"usage": {"tokens": 3}})));
        let call = forward("GET", &plain.url).bearer(&self.victim.secret_key);
        let response = call.send(self.gateway.address).await.unwrap();
        response.expect(200);
        assert_eq!(self.victim.charged(&response).await["usage"]["tokens"]["input"], 3);
    }
}

#[test]
fn what_is_repeated_in_a_converted_stream_is_short_and_comes_once() {
    run(async {
        let scene = Scene::start().await;
        let delta = event(&json!({"choices": [{"delta": {"content": "x"}}]}));
        let begin = |id: &str| event(&json!({"id": id, "model": "m", "choices": []}));
        // The id is in each event: 2,000 small ones would become 16 GB.
        let long = [begin(&"i".repeat(8 * MIB)), delta.repeat(2_000)].concat();
        // Each call is kept until the end.
        let name = "n".repeat(MIB);
        let call = |number: usize| {
            let call = json!({"index": number, "id": "c", "function": {"name": name, "arguments": ""}});
            event(&json!({"choices": [{"delta": {"tool_calls": [call]}}]}))
        };
        let calls = std::iter::once(begin("i")).chain((0..64).map(call)).collect();
        // Each start would repeat what came before.
        let start = event(&json!({"type": "message_start", "message": {"id": "msg_1", "model": "m"}}));
        let block = json!({"type": "redacted_thinking", "data": "d".repeat(4 * MIB)});
        let block = event(&json!({"type": "content_block_start", "index": 0, "content_block": block}));
        let starts = [start.clone(), block, start.repeat(1_000)].concat();
        for (path, pieces) in
            [("/chat/completions", vec![long]), ("/chat/completions", calls), ("/v1/messages", vec![starts])]
        {
            let endpoint = streaming(&scene.attacker, path, pieces);
            let response = scene.send(streamed_call("openai", &endpoint.url)).await;
            // If not even its first event passes, the caller gets an error.
            assert!(response.status == 502 || !response.complete, "{path}: {}", response.status);
            scene.goes_on().await;
        }
    });
}

#[test]
fn the_names_of_a_body_are_not_repeated_for_each_value() {
    run(async {
        let scene = Scene::start().await;
        let endpoint = scene.attacker.instance.provider.endpoint_ending("/chat/completions", |_| {
            answer_json(200, &json!({"usage": {"prompt_tokens": 1, "completion_tokens": 1}}))
        });
        let schema = json!({"type": "OBJECT", "properties": {"n".repeat(4 * MIB): {"anyOf": vec![json!({}); 20_000]}}});
        let body = json!({
            "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
            "tools": [{"functionDeclarations": [{"name": "f", "parameters": schema}]}],
        });
        let path = format!("/v1/rewrite/google/{}/v1beta/models/m:generateContent", endpoint.url);
        // It is converted: its paths would have had 80 GB.
        scene.send(Request::new("POST", path).json(&body)).await;
        assert_eq!(endpoint.calls().len(), 1);
        scene.goes_on().await;
        // The name of a function is written with each of its results.
        let endpoint = scene
            .attacker
            .instance
            .provider
            .endpoint_ending("/v1beta/models/m:generateContent", |_| answer_json(200, &json!({})));
        let function = json!({"name": "n".repeat(4 * MIB), "arguments": "{}"});
        let call = json!({"id": "c", "type": "function", "function": function});
        let mut messages = vec![json!({"role": "user", "content": "Hi"})];
        messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
        messages.extend(vec![json!({"role": "tool", "tool_call_id": "c", "content": "x"}); 20_000]);
        let path = format!("/v1/rewrite/openai/{}/v1/chat/completions", endpoint.url);
        let refused =
            scene.send(Request::new("POST", path).json(&json!({"model": "m", "messages": messages}))).await;
        refused.refused(400, "validation_error");
        assert_eq!(endpoint.calls().len(), 0);
        scene.goes_on().await;
    });
}

#[test]
fn streams_that_hold_back_long_events_take_a_share_of_the_memory() {
    run(async {
        let scene = Scene::start().await;
        let sent = Arc::new(AtomicU64::new(0));
        let (counted, gate) = (Arc::clone(&sent), Gate::default());
        let waits = gate.clone();
        let endpoint = scene.attacker.instance.provider.endpoint_ending("/chat/completions", move |_| {
            let headers = [("Content-Type", "text/event-stream")];
            let flood = Step::Flood(HELD_BYTES, Arc::clone(&counted));
            vec![head(200, &headers), flood, Step::Wait(waits.clone()), Step::Close]
        });
        let mut calls = JoinSet::new();
        for _ in 0..HELD {
            let call = streamed_call("anthropic", &endpoint.url).bearer(&scene.attacker.secret_key);
            let to = scene.gateway.address;
            calls.spawn(async move { call.send(to).await });
        }
        // A merchant has 64 MiB. What finds no room is read on, and not kept.
        within(PATIENCE, "all is read", async || {
            (sent.load(Ordering::SeqCst) == HELD * HELD_BYTES).then_some(())
        })
        .await;
        scene.goes_on().await;
        gate.open();
        for response in calls.join_all().await {
            // No event had ended, so there is none for the caller: it is an error, or empty.
            let Ok(response) = response else { continue };
            let is_error =
                serde_json::from_str::<Value>(&response.text()).is_ok_and(|body| !body["error"].is_null());
            let passed = response.complete && !is_error && !response.body.is_empty();
            assert!(!passed, "{}: {}", response.status, response.text());
        }
        scene.goes_on().await;
    });
}

/// Long responses of one merchant that come to their end together: fewer than it has memory for.
const LONG_RESPONSES: usize = 24;

/// What memory of long bodies is counted in, in bytes.
const UNIT_BYTES: usize = 64 * 1024;

/// A number of threads that does not change for so long is the usual one.
const CALM: Duration = Duration::from_millis(500);

/// Calls of these merchants whose responses have come but for their last bytes, which come when the gate opens. Each
/// returns the place of its merchant.
async fn held_responses(
    gateway: &SideGateway,
    callers: &[&Merchant],
    answer: &Value,
) -> (Gate, JoinSet<(usize, Response)>) {
    let answer = answer.to_string();
    let (begin, end) = answer.split_at(answer.len() - 1);
    let units = (begin.len() - FREE_BYTES).div_ceil(UNIT_BYTES);
    let held = (callers.len() * units * UNIT_BYTES).to_string();
    let gate = Gate::default();
    let length = answer.len().to_string();
    let headers = [("Content-Type", "application/json"), ("Content-Length", length.as_str())];
    let steps = vec![
        head(200, &headers),
        Step::Bytes(begin.as_bytes().to_vec()),
        Step::Wait(gate.clone()),
        Step::Bytes(end.as_bytes().to_vec()),
    ];
    let provider = &callers[0].instance.provider;
    let endpoint = provider.endpoint_ending("/chat/completions", move |_| steps.clone());
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let body = json!({"model": "m", "max_tokens": 9, "messages": messages});
    let (mut calls, to) = (JoinSet::new(), gateway.address);
    for (place, merchant) in callers.iter().enumerate() {
        let call = Request::new("POST", format!("/v1/rewrite/anthropic/{}", endpoint.url))
            .json(&body)
            .bearer(&merchant.secret_key);
        calls.spawn(async move { (place, call.send(to).await.unwrap()) });
    }
    within(PATIENCE, "the responses are collected", async || {
        let memory = scrape(gateway.operator).await;
        let taken = memory.values("farthing_long_body_memory_bytes", &[("kind", "response")]);
        taken.iter().map(f64::to_string).eq([held.clone()]).then_some(())
    })
    .await;
    (gate, calls)
}

#[test]
fn long_responses_of_a_merchant_are_converted_a_few_at_a_time_and_all_are_charged() {
    run(async {
        let scene = Scene::start().await;
        let message = json!({"role": "assistant", "content": "x".repeat(2 * MIB)});
        let answer = json!({
            "id": "c", "object": "chat.completion", "created": 1, "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4, "tokens": 3},
        });
        let (gate, calls) = held_responses(&scene.gateway, &[&scene.attacker; LONG_RESPONSES], &answer).await;
        let before = settled(CALM, async || threads(scene.gateway.pid())).await;
        gate.open();
        let responses: Vec<_> = calls.join_all().await.into_iter().map(|(_, response)| response).collect();
        // A conversion takes a thread of its own. Threads that nobody needs any more stay for some seconds.
        let after = threads(scene.gateway.pid());
        assert!(after < before + LONG_RESPONSES / 2, "{before} threads became {after}");
        for response in &responses {
            let converted = response.expect(200);
            assert_eq!(converted["content"][0]["text"].as_str().map(str::len), Some(2 * MIB));
            assert_eq!(scene.attacker.charged(response).await["usage"]["tokens"]["input"], 3);
        }
        scene.goes_on().await;
    });
}

/// Streams that send line feeds, of a merchant each, and the line feeds of each.
const STREAMS: usize = 8;
const LINE_FEEDS: usize = 20_000;

#[test]
fn line_feeds_after_a_long_text_take_no_threads() {
    run(async {
        let scene = Scene::start().await;
        let delta = |delta: Value| event(&json!({"id": "i", "model": "m", "choices": [{"delta": delta}]}));
        // No event is long by itself, but the client gets all of them again at the end.
        let text = vec![delta(json!({"content": "x".repeat(32 * 1024)})); 10];
        let last = event(&json!({"choices": [{"delta": {}, "finish_reason": "stop"}]}));
        let mut steps = vec![event_stream()];
        steps.extend(text.iter().map(chunk));
        // The usual number of threads is read once all of them have begun.
        let gate = Gate::default();
        steps.push(Step::Wait(gate.clone()));
        steps.push(Step::Bytes(b"1\r\n\n\r\n".repeat(LINE_FEEDS)));
        steps.extend([chunk(last), chunk(b"data: [DONE]\n\n"), last_chunk()]);
        let endpoint =
            scene.attacker.instance.provider.endpoint_ending("/chat/completions", move |_| steps.clone());
        let (mut calls, to) = (JoinSet::new(), scene.gateway.address);
        for _ in 0..STREAMS {
            // Each merchant has turns of its own.
            let attacker = Merchant::funded("1").await;
            let call = streamed_call("openai", &endpoint.url).bearer(&attacker.secret_key);
            calls.spawn(async move { call.send(to).await.unwrap() });
        }
        within(PATIENCE, "all streams have begun", async || {
            (endpoint.calls().len() == STREAMS).then_some(())
        })
        .await;
        let before = settled(CALM, async || threads(scene.gateway.pid())).await;
        gate.open();
        for response in calls.join_all().await {
            assert!(response.complete && response.text().contains("event: response.completed\n"));
        }
        // Each may have had one, to repeat its text. Threads that nobody needs any more stay for some seconds.
        let after = threads(scene.gateway.pid());
        assert!(after < before + 4 * STREAMS, "{before} threads became {after}");
        scene.goes_on().await;
    });
}

/// The most bytes that a byte of a small event may become.
const MAY_BECOME: usize = 64;

#[test]
fn small_events_become_a_bounded_number_of_bytes_with_an_id_of_any_length() {
    run(async {
        let scene = Scene::start().await;
        // A client of Responses gets four events of each change between text and refusal, each with the id.
        let delta = event(&json!({"choices": [{"delta": {"content": "a", "refusal": "a"}}]}));
        let begin = event(&json!({"id": "i".repeat(500), "model": "m", "choices": []}));
        let last = event(&json!({"choices": [{"delta": {}, "finish_reason": "stop"}]}));
        let sent = [begin, delta.repeat(1_000), last, b"data: [DONE]\n\n".to_vec()].concat();
        let length = sent.len();
        let endpoint = streaming(&scene.attacker, "/chat/completions", vec![sent]);
        let response = scene.send(streamed_call("openai", &endpoint.url)).await;
        assert!(response.complete && response.text().contains("event: response.completed\n"));
        let times = response.body.len() / length;
        assert!(times < MAY_BECOME, "each byte became {times}");
        scene.goes_on().await;
    });
}

/// Merchants whose responses with many values come to their end together, the responses of each, and the lists in one of
/// them: 2 MB, which become 80 MB of values.
const WITH_MANY_VALUES: usize = 8;
const RESPONSES_OF_EACH: usize = 2;
const LISTS: usize = 495_000;

/// What the gateway may take more for them at any time, in KiB. All of them at once took 1.7 GB.
const MAY_PEAK: u64 = 500 * 1024;

#[test]
fn responses_with_many_values_wait_for_memory_and_all_are_charged() {
    run(async {
        let scene = Scene::start().await;
        let mut merchants = Vec::new();
        for _ in 0..WITH_MANY_VALUES {
            merchants.push(Merchant::funded("10").await);
        }
        let message = json!({"role": "assistant", "content": vec![[0]; LISTS]});
        let answer = json!({
            "id": "c", "object": "chat.completion", "created": 1, "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4, "tokens": 3},
        });
        let callers: Vec<_> =
            merchants.iter().flat_map(|merchant| std::iter::repeat_n(merchant, RESPONSES_OF_EACH)).collect();
        let (gate, calls) = held_responses(&scene.gateway, &callers, &answer).await;
        gate.open();
        for (place, response) in calls.join_all().await {
            // It cannot be converted, and has been paid for.
            assert_eq!(response.status, 502, "{}", response.text());
            assert_eq!(callers[place].charged(&response).await["usage"]["tokens"]["input"], 3);
        }
        let taken = peak_resident_kib(scene.gateway.pid()).saturating_sub(scene.before);
        assert!(taken < MAY_PEAK, "it took {taken} KiB");
        scene.goes_on().await;
    });
}

/// Merchants that hold as many long bodies as they get, and the requests and the streams of each. Together each kind is as
/// long as all the memory that there is for both.
const GREEDY: usize = 4;
const HELD_BY_EACH: usize = 8;

/// What a body takes no share of the memory for, in bytes.
const FREE_BYTES: usize = 256 * 1024;

/// The calls that the gateway takes: enough for all that are held.
const CALLS: &str = "--max-calls=256";

#[test]
fn merchants_that_hold_long_bodies_leave_room_for_a_usual_request_and_response_of_another() {
    run(async {
        let victim = Merchant::funded("10").await;
        let mut greedy = Vec::new();
        for _ in 0..GREEDY {
            greedy.push(Merchant::funded("10").await);
        }
        let gateway = SideGateway::start(victim.instance, &["--allow-address=127.0.0.0/8", CALLS]).await;
        // Responses: streams whose first event does not end.
        let (sent, gate) = (Arc::new(AtomicU64::new(0)), Gate::default());
        let (counted, waits) = (Arc::clone(&sent), gate.clone());
        let stream = victim.instance.provider.endpoint_ending("/chat/completions", move |_| {
            let headers = [("Content-Type", "text/event-stream")];
            let flood = Step::Flood(HELD_BYTES, Arc::clone(&counted));
            vec![head(200, &headers), flood, Step::Wait(waits.clone()), Step::Close]
        });
        let (mut streams, to) = (JoinSet::new(), gateway.address);
        for merchant in &greedy {
            for _ in 0..HELD_BY_EACH {
                let call = streamed_call("anthropic", &stream.url).bearer(&merchant.secret_key);
                streams.spawn(async move { call.send(to).await });
            }
        }
        let held = (GREEDY * HELD_BY_EACH) as u64;
        within(PATIENCE, "all streams are read", async || {
            (sent.load(Ordering::SeqCst) == held * HELD_BYTES).then_some(())
        })
        .await;
        // Requests, of which the last byte does not come.
        let length = usize::try_from(HELD_BYTES).unwrap() + FREE_BYTES;
        let target = format!("/v1/rewrite/anthropic/{}", stream.url);
        let refused = Arc::new(AtomicU64::new(0));
        let mut requests = JoinSet::new();
        for merchant in &greedy {
            for _ in 0..HELD_BY_EACH {
                let call = Request::new("POST", target.clone())
                    .header("Content-Type", "application/json")
                    .header("Content-Length", (length + 1).to_string())
                    .bearer(&merchant.secret_key);
                let refused = Arc::clone(&refused);
                requests.spawn(async move {
                    let mut connection = Connection::open(to).await.unwrap();
                    connection.send_head(&call).await.unwrap();
                    // A refused call may be closed before all of it is written.
                    let _ = connection.write.write_all(&vec![b' '; length]).await;
                    let _ = connection.response("POST").await;
                    refused.fetch_add(1, Ordering::SeqCst);
                });
            }
        }
        let memory = "farthing_long_body_memory_bytes";
        within(PATIENCE, "the requests are held or refused", async || {
            let is_held = (held - refused.load(Ordering::SeqCst)) * HELD_BYTES;
            let taken = scrape(gateway.operator).await.values(memory, &[("kind", "request")]);
            (is_held > 0 && taken.iter().map(f64::to_string).eq([is_held.to_string()])).then_some(())
        })
        .await;
        // Another merchant has a long request converted, and a long response.
        let text = "x".repeat(MIB);
        let message = json!({"role": "assistant", "content": text});
        let answer = json!({
            "id": "c", "object": "chat.completion", "created": 1, "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            // A provider that is not known reports `tokens`.
            "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4, "tokens": 3},
        });
        let endpoint =
            victim.instance.provider.endpoint_ending("/chat/completions", move |_| answer_json(200, &answer));
        let messages = json!([{"role": "user", "content": text}]);
        let call = Request::new("POST", format!("/v1/rewrite/anthropic/{}", endpoint.url))
            .json(&json!({"model": "m", "max_tokens": 9, "messages": messages}));
        let response = call.bearer(&victim.secret_key).send(gateway.address).await.unwrap();
        let converted = response.expect(200);
        assert!(response.complete);
        assert_eq!(converted["content"][0]["text"].as_str().map(str::len), Some(MIB));
        assert_eq!(endpoint.only_call().body.len() / MIB, 1);
        assert_eq!(victim.charged(&response).await["usage"]["tokens"]["input"], 3);
        // What was held is free again.
        requests.shutdown().await;
        gate.open();
        streams.join_all().await;
        within(PATIENCE, "the memory is free", async || {
            scrape(gateway.operator).await.values(memory, &[]).iter().all(|taken| *taken == 0.0).then_some(())
        })
        .await;
    });
}
