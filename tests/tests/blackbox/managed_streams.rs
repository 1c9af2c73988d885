//! Streams with a managed provider key: the gateway requests their usage on the caller's behalf, and removes it from the
//! response if the caller did not request it (completion.md section 5).

use farthing_tests::client::{Body, Connection, Request};
use farthing_tests::managed::Managed;
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::{Call, Endpoint, Gate, Step, chunk, event_stream, json, last_chunk, whole};
use farthing_tests::run;
use farthing_tests::wait::within;
use serde_json::{Value, json};

use crate::caller_disconnects::{MANY, PLACES};

/// The path of OpenAI's chat completions.
const CHAT: &str = "/v1/chat/completions";

/// The list price of gpt-4o for 1,000 input tokens and 100 output tokens.
const COST: &str = "0.0035000000";

/// The stream as a caller sees it who did not request usage, with this line ending.
fn content(end: &str) -> [String; 2] {
    let events =
        |events: &[&str]| events.iter().flat_map(|data| ["data: ", data, end, end]).collect::<String>();
    let first = r#"{"id":"chatcmpl-1","model":"gpt-4o","choices":[{"delta":{"content":"caf\u00e9 \"usage\""}}],"usage":null}"#;
    let last = r#"{"id":"chatcmpl-1","model":"gpt-4o","choices":[{"delta":{},"finish_reason":"stop"}],"usage":null}"#;
    [format!(": begun{end}{}", events(&[first, last])), events(&["[DONE]"])]
}

/// The usage chunk.
fn usage(end: &str) -> String {
    let chunk = r#"{"id":"chatcmpl-1","model":"gpt-4o","choices":[],"usage":{"prompt_tokens":1000,"completion_tokens":100,"total_tokens":1100}}"#;
    format!("data: {chunk}{end}{end}")
}

/// Whether the call requests usage.
fn asks(call: &Call) -> bool {
    let body: Value = serde_json::from_slice(&call.body).unwrap();
    body["stream_options"]["include_usage"] == json!(true)
}

/// A stream in OpenAI's format, in pieces of so many bytes, with its usage only if the call requests it.
fn stream(managed: &Managed, end: &'static str, piece: usize) -> Endpoint {
    managed.openai.endpoint_ending(CHAT, move |call| {
        let [before, after] = content(end);
        let usage = if asks(call) { usage(end) } else { String::new() };
        let body = format!("{before}{usage}{after}");
        let mut steps = vec![event_stream()];
        steps.extend(body.as_bytes().chunks(piece).map(chunk));
        steps.push(last_chunk());
        steps
    })
}

fn post(endpoint: &Endpoint, body: &str) -> Request {
    let request = forward("POST", &endpoint.url).header("Content-Type", "application/json");
    request.body(Body::Whole(body.as_bytes().to_vec()))
}

#[test]
fn stream_usage_is_requested_on_the_callers_behalf_and_removed_from_the_response() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        for (end, piece) in [("\n", 100_000), ("\n", 7), ("\r\n", 100_000), ("\r\n", 5), ("\r\n", 1)] {
            let endpoint = stream(&managed, end, piece);
            for (body, asked) in [
                (
                    r#"{ "model": "gpt-4o", "stream":true, "x": [1, 2.50]}"#,
                    r#"{"stream_options":{"include_usage":true}, "model": "gpt-4o", "stream":true, "x": [1, 2.50]}"#,
                ),
                (
                    r#"{"model":"gpt-4o","stream":true,"stream_options":{"include_usage":false,"y":1}}"#,
                    r#"{"model":"gpt-4o","stream":true,"stream_options":{"include_usage":true,"y":1}}"#,
                ),
                (
                    r#"{"model":"gpt-4o","stream":true,"stream_options":null}"#,
                    r#"{"model":"gpt-4o","stream":true,"stream_options":{"include_usage":true}}"#,
                ),
            ] {
                let request = post(&endpoint, body).header("Accept-Encoding", "gzip");
                let response = managed.send(&merchant.secret_key, request).await;
                assert_eq!((response.status, response.complete), (200, true), "{}", response.text());
                assert_eq!(response.text(), content(end).concat(), "{end:?} in pieces of {piece}");
                let call = endpoint.calls().pop().unwrap();
                assert_eq!(String::from_utf8_lossy(&call.body), asked);
                assert_eq!(call.head.all("content-length"), [asked.len().to_string()]);
                assert_eq!(
                    call.head.all("accept-encoding"),
                    ["identity"],
                    "a stream that cannot be read is not changed"
                );
                let metered = merchant.charged(&response).await;
                assert_eq!(metered["usage"]["tokens"], json!({"input": 1000, "output": 100}));
                assert_eq!((&metered["total_merchant_cost"], &metered["marks"]), (&json!(COST), &json!([])));
            }
        }
        merchant.nothing_is_held().await;
    });
}

#[test]
fn a_caller_who_requests_usage_gets_the_chunk_and_other_responses_are_unchanged() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let key = &merchant.secret_key;
        let endpoint = stream(&managed, "\n", 50);
        let asking = r#"{"model":"gpt-4o","stream":true,"stream_options":{"include_usage":true}}"#;
        let response = managed.send(key, post(&endpoint, asking)).await;
        let [before, after] = content("\n");
        assert_eq!(response.text(), format!("{before}{}{after}", usage("\n")));
        assert_eq!(merchant.charged(&response).await["total_merchant_cost"], COST);
        assert_eq!(endpoint.only_call().body, asking.as_bytes());

        let answer = json!({"model": "gpt-4o", "choices": [], "usage": {"prompt_tokens": 1000, "completion_tokens": 100}});
        let plain = managed.openai.endpoint_ending(CHAT, move |_| json(200, &answer));
        for body in [
            r#"{"model":"gpt-4o"}"#,
            r#"{"model":"gpt-4o","stream":false}"#,
            r#"{"model":"gpt-4o","stream":null,"stream_options":null}"#,
        ] {
            let response = managed.send(key, post(&plain, body)).await;
            assert_eq!(merchant.charged(&response).await["total_merchant_cost"], COST);
            assert_eq!(plain.calls().pop().unwrap().body, body.as_bytes());
        }
        // A provider's refusal passes in every case.
        let refusing =
            managed.openai.endpoint_ending(CHAT, |_| json(400, &json!({"choices": [], "usage": {}})));
        let response = managed.send(key, post(&refusing, r#"{"model":"gpt-4o","stream":true}"#)).await;
        assert_eq!((response.status, response.json()), (400, json!({"choices": [], "usage": {}})));

        // With the caller's own provider key nothing is requested and nothing removed.
        let unmanaged =
            post(&endpoint, r#"{"model":"gpt-4o","stream":true}"#).header("x-api-key", "sk-theirs");
        let response = managed.send(key, unmanaged).await;
        assert_eq!(response.text(), content("\n").concat());
        assert!(!asks(&endpoint.calls().pop().unwrap()));
        let unasked = managed.openai.endpoint_ending(CHAT, |_| {
            whole(200, &[("Content-Type", "text/event-stream")], usage("\n").as_bytes())
        });
        let unmanaged =
            post(&unasked, r#"{"model":"gpt-4o","stream":true}"#).header("x-api-key", "sk-theirs");
        assert_eq!(managed.send(key, unmanaged).await.text(), usage("\n"));
        // Mistral always reports usage, and refuses the option.
        let mistral = merchant.instance.provider_key("mistral", "sk-managed-mistral");
        let with_key = Managed::start(&[&mistral]).await;
        let reporting = with_key.mistral.endpoint_ending(CHAT, |_| {
            let last =
                r#"{"choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":6}}"#;
            whole(200, &[("Content-Type", "text/event-stream")], format!("data: {last}\n\n").as_bytes())
        });
        let body = r#"{"model":"mistral-large-2512","stream":true}"#;
        let response = with_key.send(key, post(&reporting, body)).await;
        assert_eq!(response.status, 200, "{}", response.text());
        assert_eq!(reporting.only_call().body, body.as_bytes());
        assert_eq!(merchant.charged(&response).await["usage"]["tokens"], json!({"input": 5, "output": 6}));
    });
}

#[test]
fn an_ambiguous_or_unsupported_stream_request_is_refused() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let endpoint = stream(&managed, "\n", 50);
        for (body, path) in [
            (r#"{"model":"gpt-4o","stream":true,"stream_options":7}"#, "stream_options"),
            (
                r#"{"model":"gpt-4o","stream":true,"stream_options":{},"stream_options":null}"#,
                "stream_options",
            ),
            (
                r#"{"model":"gpt-4o","stream":true,"stream_options":{"include_usage":false,"include_usage":true}}"#,
                "stream_options",
            ),
            (
                r#"{"model":"gpt-4o","stream":true,"stream_options":{"include_usage":true,"include\u005fusage":false}}"#,
                "stream_options",
            ),
            (
                r#"{"model":"gpt-4o","stream":true,"stream_options":{"Include_Usage":false,"include_usage":true}}"#,
                "stream_options",
            ),
            (
                r#"{"model":"gpt-4o","stream":true,"Stream_Options":{"include_usage":false}}"#,
                "stream_options",
            ),
            (r#"{"model":"gpt-4o","STREAM":true}"#, "stream"),
            (r#"{"model":"gpt-4o","background":true,"background":false}"#, "background"),
            (r#"{"model":"gpt-4o","background":1}"#, "background"),
            (r#"{"model":"gpt-4o","max_tokens":100000,"max_tokens":1}"#, "max_tokens"),
            (r#"{"model":"gpt-4o","max_tokens":1,"n":100,"N":1}"#, "n"),
            (r#"{"model":"gpt-4o","stream":true,"stream":false}"#, "stream"),
            (r#"{"model":"gpt-4o","stream":true,"background":true}"#, "background"),
            (r#"{"model":"gpt-4o","stream":true,"service_tier":"priority"}"#, "service_tier"),
            (r#"{"model":"gpt-4o","tools":[{"type":"web_search"}]}"#, "tools"),
        ] {
            let refused = managed.send(&merchant.secret_key, post(&endpoint, body)).await;
            let error = refused.refused(400, "validation_error");
            assert_eq!(error["issues"][0]["path"], json!([path]), "{body}");
        }
        assert!(endpoint.calls().is_empty());
    });
}

#[test]
fn events_pass_as_they_come_and_an_interrupted_stream_ends_interrupted() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let gate = Gate::default();
        let waits = gate.clone();
        let endpoint = managed.openai.endpoint_ending(CHAT, move |_| {
            vec![
                event_stream(),
                chunk("data: {\"choices\":[1]}\n\n"),
                Step::Wait(waits.clone()),
                chunk(usage("\n")),
                chunk("data: half of"),
                Step::Close,
            ]
        });
        let mut connection = Connection::open(managed.address()).await.unwrap();
        let request = post(&endpoint, r#"{"model":"gpt-4o","stream":true}"#).bearer(&merchant.secret_key);
        connection.send(&request).await.unwrap();
        let head = connection.head("POST").await.unwrap();
        assert_eq!(connection.read.piece().await.unwrap().unwrap(), b"data: {\"choices\":[1]}\n\n");
        gate.open();
        let (rest, end) = connection.read.rest().await;
        assert!(end.is_err(), "the provider closed the connection early");
        assert_eq!(String::from_utf8_lossy(&rest), "data: half of");
        let id = head.header("x-service-request-id").unwrap();
        let metered = merchant.log.event(&format!("{id}/metered")).await.expect("settled before the end");
        assert_eq!(metered.body["marks"], json!(["partial"]));
        assert_eq!(metered.body["total_merchant_cost"], COST);
        merchant.nothing_is_held().await;
    });
}

#[test]
fn a_stream_without_a_length_that_ends_within_an_event_passes_whole_and_ends_interrupted() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let endpoint = managed.openai.endpoint_ending(CHAT, |_| {
            let head = farthing_tests::provider::head(200, &[("Content-Type", "text/event-stream")]);
            // The filter holds the last event back, of which more might come.
            let text = format!("data: {{\"choices\":[1]}}\n\n{}data: {{\"half\":", usage("\n"));
            vec![head, Step::Bytes(text.into_bytes()), Step::Close]
        });
        let request = post(&endpoint, r#"{"model":"gpt-4o","stream":true}"#);
        let response = managed.send(&merchant.secret_key, request).await;
        assert_eq!((response.status, response.complete), (200, false));
        assert_eq!(response.text(), "data: {\"choices\":[1]}\n\ndata: {\"half\":");
        let metered = merchant.charged(&response).await;
        assert_eq!(metered["marks"], json!(["partial"]));
        assert_eq!(metered["total_merchant_cost"], COST);
        merchant.nothing_is_held().await;
    });
}

#[test]
fn calls_to_other_hosts_take_no_drain_slot_from_a_managed_stream() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let (crowds, streams) = (Gate::default(), Gate::default());
        let waits = crowds.clone();
        let elsewhere = merchant.instance.provider.endpoint(move |_| {
            vec![
                event_stream(),
                chunk("data: {\"usage\":{\"tokens\":7}}\n\n"),
                Step::Wait(waits.clone()),
                last_chunk(),
            ]
        });
        let mut callers = Vec::new();
        for _ in 0..=PLACES {
            let mut caller = Connection::open(managed.address()).await.unwrap();
            caller.send(&forward("GET", &elsewhere.url).bearer(&merchant.secret_key)).await.unwrap();
            caller.head("GET").await.unwrap();
            caller.read.piece().await.unwrap();
            callers.push(caller);
        }
        drop(callers);
        let ended = async |marks: Value| {
            let events = merchant.events().await.into_iter();
            events.filter(|event| event.kind == "request.metered" && event.body["marks"] == marks).count()
        };
        // One call gets no drain slot: all slots for other hosts are taken.
        within(MANY, "one is left", async || (ended(json!(["partial"])).await == 1).then_some(())).await;

        let waits = streams.clone();
        let endpoint = managed.openai.endpoint_ending(CHAT, move |_| {
            vec![
                event_stream(),
                chunk("data: {}\n\n"),
                Step::Wait(waits.clone()),
                chunk(usage("\n")),
                last_chunk(),
            ]
        });
        let mut caller = Connection::open(managed.address()).await.unwrap();
        let request = post(&endpoint, r#"{"model":"gpt-4o","stream":true}"#).bearer(&merchant.secret_key);
        caller.send(&request).await.unwrap();
        let head = caller.head("POST").await.unwrap();
        caller.read.piece().await.unwrap();
        drop(caller);
        streams.open();
        let key = format!("{}/metered", head.header("x-service-request-id").unwrap());
        let metered =
            within(MANY, "it is read to its end", async || merchant.log.event(&key).await).await.body;
        assert_eq!((&metered["marks"], &metered["total_merchant_cost"]), (&json!([]), &json!(COST)));
        crowds.open();
        within(MANY, "the crowd ends", async || (ended(json!([])).await == PLACES + 1).then_some(())).await;
        merchant.nothing_is_held().await;
    });
}
