//! What comes back through the rewrite endpoint: streams, responses and errors, in the client's format (completion.md
//! section 12).

use farthing_tests::client::Connection;
use farthing_tests::codings::gzip;
use farthing_tests::managed::Managed;
use farthing_tests::merchant::{Merchant, token};
use farthing_tests::provider::{Endpoint, Gate, Step, chunk, event_stream, head, last_chunk, whole};
use farthing_tests::run;
use farthing_tests::wait::eventually;
use serde_json::{Value, json};

use super::rewrite::{COMPLETION, COST, anthropic_body, completions, openai_body, rewrite};

/// The events of a stream in OpenAI's format: two pieces of text, the end, and the usage.
pub(super) const STREAM: [&str; 5] = [
    "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"gpt-4o\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"Hel\"},\"finish_reason\":null}]}\n\n",
    "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"gpt-4o\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"lo.\"},\"finish_reason\":null}]}\n\n",
    "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"gpt-4o\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
    "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"gpt-4o\",\"choices\":[],\"usage\":{\"prompt_tokens\":1000,\"completion_tokens\":100,\"total_tokens\":1100}}\n\n",
    "data: [DONE]\n\n",
];

fn streamed(managed: &Managed) -> Endpoint {
    managed.openai.endpoint_ending("/v1/chat/completions", |_| {
        let mut steps = vec![event_stream()];
        steps.extend(STREAM.map(chunk));
        steps.push(last_chunk());
        steps
    })
}

/// The data of the events, as far as they are JSON.
pub(super) fn events(text: &str) -> Vec<Value> {
    let data = text.lines().filter_map(|line| line.strip_prefix("data:"));
    data.filter_map(|data| serde_json::from_str(data.trim()).ok()).collect()
}

/// The text of a stream in Anthropic's format.
pub(super) fn anthropic_text(events: &[Value]) -> String {
    events.iter().filter_map(|event| event["delta"]["text"].as_str()).collect()
}

#[test]
fn a_stream_is_converted_as_it_comes_and_its_end_waits_for_the_settlement() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let gate = Gate::default();
        let waits = gate.clone();
        let endpoint = managed.openai.endpoint_ending("/v1/chat/completions", move |call| {
            let sent: Value = serde_json::from_slice(&call.body).unwrap();
            assert_eq!(
                (&sent["stream"], &sent["stream_options"]["include_usage"]),
                (&json!(true), &json!(true))
            );
            let mut steps = vec![event_stream(), chunk(STREAM[0]), Step::Wait(waits.clone())];
            steps.extend(STREAM[1..].iter().map(chunk));
            steps.push(last_chunk());
            steps
        });
        let mut body = anthropic_body("gpt-4o");
        body["stream"] = json!(true);
        let request = rewrite("anthropic", &format!("{}/v1/messages", endpoint.url), &body);
        let mut connection = Connection::open(managed.address()).await.unwrap();
        connection.send(&request.bearer(&merchant.secret_key)).await.unwrap();
        let head = connection.head("POST").await.unwrap();
        assert_eq!(head.header("content-type"), Some("text/event-stream"));
        let mut first = Vec::new();
        while !String::from_utf8_lossy(&first).contains("Hel") {
            first.extend(
                connection.read.piece().await.unwrap().expect("the first text comes before the gate opens"),
            );
        }
        gate.open();
        let (rest, end) = connection.read.rest().await;
        assert!(end.is_ok(), "the stream is complete");
        let text = String::from_utf8([first, rest].concat()).unwrap();
        let events = events(&text);
        assert_eq!(anthropic_text(&events), "Hello.", "{text}");
        assert_eq!(events.first().unwrap()["type"], "message_start");
        assert_eq!(events.last().unwrap()["type"], "message_stop");
        let delta = events.iter().find(|event| event["type"] == "message_delta").unwrap();
        assert_eq!(
            (&delta["usage"]["output_tokens"], &delta["delta"]["stop_reason"]),
            (&json!(100), &json!("end_turn"))
        );
        let id = head.header("x-service-request-id").unwrap();
        let metered = merchant.log.event(&format!("{id}/metered")).await.expect("settled before the end");
        assert_eq!(metered.body["total_merchant_cost"], COST);
        merchant.nothing_is_held().await;
    });
}

#[test]
fn a_stream_that_breaks_off_is_not_completed_and_is_charged_as_reported() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let broken = managed.openai.endpoint_ending("/v1/chat/completions", |_| {
            vec![event_stream(), chunk(STREAM[0]), chunk(STREAM[3]), chunk("data: {\"half\""), Step::Close]
        });
        // Without a length, the end of the connection within an event is one.
        let closed = managed.openai.endpoint_ending("/v1/chat/completions", |_| {
            let text = [STREAM[0], STREAM[2], STREAM[3], "data: {\"half\""].concat();
            let head = head(200, &[("Content-Type", "text/event-stream")]);
            vec![head, Step::Bytes(text.into_bytes()), Step::Close]
        });
        let garbled = managed.openai.endpoint_ending("/v1/chat/completions", |_| {
            let mut steps = vec![event_stream(), chunk(STREAM[0]), chunk("data: no JSON\n\n")];
            steps.extend(STREAM[1..].iter().map(chunk));
            steps.push(last_chunk());
            steps
        });
        let partial = json!(["partial"]);
        for (endpoint, marks) in [(&broken, &partial), (&closed, &partial), (&garbled, &json!([]))] {
            let mut body = anthropic_body("gpt-4o");
            body["stream"] = json!(true);
            let request = rewrite("anthropic", &endpoint.url, &body);
            let response = managed.send(&merchant.secret_key, request).await;
            assert_eq!((response.status, response.complete), (200, false), "{}", response.text());
            assert_eq!(anthropic_text(&events(&response.text())), "Hel");
            assert!(!response.text().contains("message_stop"), "{}", response.text());
            let metered = merchant.charged(&response).await;
            assert_eq!((&metered["total_merchant_cost"], &metered["marks"]), (&json!(COST), marks));
        }
        merchant.nothing_is_held().await;
    });
}

#[test]
fn a_caller_who_leaves_is_charged_what_the_provider_reports() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        for stream in [true, false] {
            let gate = Gate::default();
            let waits = gate.clone();
            let endpoint = managed.openai.endpoint_ending("/v1/chat/completions", move |_| {
                let (begin, end): (Vec<&str>, Vec<&str>) = if stream {
                    (vec![STREAM[0]], STREAM[1..].to_vec())
                } else {
                    (vec![&COMPLETION[..50]], vec![&COMPLETION[50..]])
                };
                let head = if stream {
                    event_stream()
                } else {
                    head(200, &[("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")])
                };
                let mut steps = vec![head];
                steps.extend(begin.iter().map(chunk));
                steps.push(Step::Wait(waits.clone()));
                steps.extend(end.iter().map(chunk));
                steps.push(last_chunk());
                steps
            });
            let mut body = anthropic_body("gpt-4o");
            body["stream"] = json!(stream);
            let mut caller = Connection::open(managed.address()).await.unwrap();
            caller
                .send(&rewrite("anthropic", &endpoint.url, &body).bearer(&merchant.secret_key))
                .await
                .unwrap();
            eventually("the provider is called", async || (endpoint.calls().len() == 1).then_some(())).await;
            if stream {
                caller.head("POST").await.unwrap();
                caller.read.piece().await.unwrap();
            }
            let before = merchant.events().await.len();
            drop(caller);
            gate.open();
            let metered = eventually("it is read to its end", async || {
                let events = merchant.events().await.split_off(before.saturating_sub(1));
                events.into_iter().find(|event| event.kind == "request.metered")
            })
            .await;
            assert_eq!(metered.body["total_merchant_cost"], COST, "stream: {stream}");
            assert_eq!(metered.body["marks"], json!([]), "stream: {stream}");
        }
        merchant.nothing_is_held().await;
    });
}

#[test]
fn an_error_of_the_provider_passes_in_the_clients_format_with_its_status() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        for status in [400, 401, 429, 500, 529] {
            let endpoint = managed.anthropic.endpoint_ending("/v1/messages", move |_| {
                let error =
                    json!({"type": "error", "error": {"type": "overloaded_error", "message": "Too much."}});
                let body = error.to_string();
                whole(status, &[("Content-Type", "application/json"), ("Retry-After", "7")], body.as_bytes())
            });
            let response = managed
                .send(
                    &merchant.secret_key,
                    rewrite("openai", &endpoint.url, &openai_body("claude-haiku-4-5")),
                )
                .await;
            assert_eq!(response.status, status, "{}", response.text());
            assert_eq!(response.head.header("retry-after"), Some("7"));
            let error = response.json();
            assert_eq!(error["error"]["message"], "Too much.", "{error}");
            assert!(error.get("type").is_none(), "{error}");
            let failed = merchant.failed(&response).await;
            assert_eq!(failed["reason"], "provider_status");
        }
        // Whatever the body is, also none.
        for body in ["", "<html>", "[]"] {
            let endpoint = managed.openai.endpoint_ending("/v1/chat/completions", move |_| {
                whole(503, &[("Content-Type", "text/html")], body.as_bytes())
            });
            let response = managed
                .send(&merchant.secret_key, rewrite("anthropic", &endpoint.url, &anthropic_body("gpt-4o")))
                .await;
            assert_eq!(response.status, 503, "{body}");
            assert_eq!(response.json()["type"], "error", "{body}: {}", response.text());
            assert!(response.json()["error"]["message"].is_string());
            merchant.failed(&response).await;
        }
        merchant.nothing_is_held().await;
    });
}

#[test]
fn a_response_that_cannot_be_converted_is_charged_and_the_caller_gets_an_error() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let usage = "\"usage\":{\"prompt_tokens\":1000,\"completion_tokens\":100}";
        let bodies: [(Vec<u8>, Option<&str>, &str); 3] = [
            (format!("{{{usage}, \"choices\": 7}}").into_bytes(), None, COST),
            (format!("{{{usage}}} and more").into_bytes(), None, COST),
            (gzip(COMPLETION.as_bytes()), Some("gzip"), COST),
        ];
        for (body, coding, cost) in bodies {
            let endpoint = managed.openai.endpoint_ending("/v1/chat/completions", move |_| {
                let mut headers = vec![("Content-Type", "application/json")];
                headers.extend(coding.map(|coding| ("Content-Encoding", coding)));
                whole(200, &headers, &body)
            });
            let request = rewrite("anthropic", &endpoint.url, &anthropic_body("gpt-4o"));
            let keyed = request.clone().header("Idempotency-Key", endpoint.path.as_str());
            // On the caller's own key the call costs nothing. One text is true of both.
            let own = token(&json!({"secret_key": merchant.secret_key, "provider_key": "sk-own"}));
            for (credential, request, cost) in [
                (&merchant.secret_key, request.clone(), cost),
                (&merchant.secret_key, keyed.clone(), cost),
                (&own, request, "0.0000000000"),
            ] {
                let response = managed.send(credential, request).await;
                let error = response.refused(502, "provider_unreachable");
                assert!(
                    error["message"].as_str().unwrap().ends_with(" and any charge for it stands."),
                    "{error}"
                );
                assert_eq!(merchant.charged(&response).await["total_merchant_cost"], cost);
            }
            managed.send(&merchant.secret_key, keyed).await.refused(409, "idempotency_completed");
            assert_eq!(endpoint.calls().len(), 3);
        }
        // One that breaks off before its end is no response.
        let broken = managed.openai.endpoint_ending("/v1/chat/completions", |_| {
            let head = head(200, &[("Content-Type", "application/json"), ("Content-Length", "5000")]);
            vec![head, Step::Bytes(COMPLETION.as_bytes().to_vec()), Step::Close]
        });
        let response = managed
            .send(&merchant.secret_key, rewrite("anthropic", &broken.url, &anthropic_body("gpt-4o")))
            .await;
        response.refused(502, "provider_unreachable");
        let metered = merchant.charged(&response).await;
        assert_eq!((&metered["total_merchant_cost"], &metered["marks"]), (&json!(COST), &json!(["partial"])));
        merchant.nothing_is_held().await;
    });
}

#[test]
fn a_stream_without_an_event_is_no_answer_and_the_caller_gets_an_error() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let stream = [("Content-Type", "text/event-stream")];
        let empty = managed.openai.endpoint_ending("/v1/chat/completions", move |_| whole(200, &stream, b""));
        let chunked = managed.openai.endpoint_ending("/v1/chat/completions", |_| {
            vec![event_stream(), chunk(": comment\n\n"), last_chunk()]
        });
        let only_end = managed.openai.endpoint_ending("/v1/chat/completions", |_| {
            vec![event_stream(), chunk(STREAM[4]), last_chunk()]
        });
        for endpoint in [&empty, &chunked, &only_end] {
            for stream in [true, false] {
                let mut body = anthropic_body("gpt-4o");
                body["stream"] = json!(stream);
                let request = rewrite("anthropic", &endpoint.url, &body);
                let response = managed.send(&merchant.secret_key, request).await;
                response.refused(502, "provider_unreachable");
                assert_eq!(response.head.header("content-type"), Some("application/json"));
                // It is an answer without usage, as one that cannot be read.
                merchant.charged(&response).await;
            }
            assert_eq!(endpoint.calls().len(), 2);
        }
        // What comes before the break is no answer either. What was reported is charged.
        let broken = managed.openai.endpoint_ending("/v1/chat/completions", |_| {
            vec![event_stream(), chunk("data: {\"choices\":[],\"usage\":{\"prompt_to"), Step::Close]
        });
        let mut body = anthropic_body("gpt-4o");
        body["stream"] = json!(true);
        let response = managed.send(&merchant.secret_key, rewrite("anthropic", &broken.url, &body)).await;
        response.refused(502, "provider_unreachable");
        assert_eq!(merchant.failed(&response).await["reason"], "provider_gone");
        merchant.nothing_is_held().await;
    });
}

#[test]
fn the_head_of_a_converted_stream_waits_for_its_first_event_and_a_caller_may_leave_meanwhile() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let gate = Gate::default();
        let waits = gate.clone();
        let endpoint = managed.openai.endpoint_ending("/v1/chat/completions", move |_| {
            let mut steps = vec![event_stream(), chunk(": comment\n\n"), Step::Wait(waits.clone())];
            steps.extend(STREAM.map(chunk));
            steps.push(last_chunk());
            steps
        });
        let mut body = anthropic_body("gpt-4o");
        body["stream"] = json!(true);
        let request = rewrite("anthropic", &endpoint.url, &body).bearer(&merchant.secret_key);
        let mut stays = Connection::open(managed.address()).await.unwrap();
        stays.send(&request).await.unwrap();
        let mut leaves = Connection::open(managed.address()).await.unwrap();
        leaves.send(&request).await.unwrap();
        eventually("both are called", async || (endpoint.calls().len() == 2).then_some(())).await;
        let early = tokio::time::timeout(std::time::Duration::from_millis(300), stays.head("POST")).await;
        assert!(early.is_err(), "the head comes before the first event");
        drop(leaves);
        gate.open();
        let metered = eventually("both are charged", async || {
            let events = merchant.events().await.into_iter();
            let metered: Vec<_> = events.filter(|event| event.kind == "request.metered").collect();
            (metered.len() == 2).then_some(metered)
        })
        .await;
        for event in metered {
            assert_eq!(
                (&event.body["total_merchant_cost"], &event.body["marks"]),
                (&json!(COST), &json!([]))
            );
        }
        merchant.nothing_is_held().await;
    });
}

#[test]
fn a_stream_that_was_not_asked_for_is_charged_and_the_caller_gets_an_error() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let endpoint = streamed(&managed);
        let google = format!("{}/v1beta/models/gpt-4o:generateContent", endpoint.url);
        let contents = json!([{"role": "user", "parts": [{"text": "Hi"}]}]);
        for request in [
            rewrite("anthropic", &endpoint.url, &anthropic_body("gpt-4o")),
            rewrite("google", &google, &json!({"contents": contents})),
        ] {
            let response = managed.send(&merchant.secret_key, request).await;
            response.refused(502, "provider_unreachable");
            assert_eq!(response.head.header("content-type"), Some("application/json"));
            let metered = merchant.charged(&response).await;
            assert_eq!((&metered["total_merchant_cost"], &metered["marks"]), (&json!(COST), &json!([])));
        }
        merchant.nothing_is_held().await;
    });
}

/// The format of a call, its URL and body, and what reads the text in the events of its response.
type Ask<'a> = (&'a str, String, &'a Value, fn(&[Value]) -> String);

#[test]
fn a_whole_response_to_a_call_for_a_stream_reaches_the_client_as_a_stream_and_is_charged() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let endpoint = completions(&managed);
        let url = &endpoint.url;
        let anthropics = json!({"model": "gpt-4o", "max_tokens": 100, "stream": true,
            "messages": [{"role": "user", "content": "Hi"}]});
        let responses = json!({"model": "gpt-4o", "input": "Hi", "stream": true});
        let googles = json!({"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]});
        let google = format!("{url}/v1beta/models/gpt-4o:streamGenerateContent?alt=sse");
        let asks: [Ask<'_>; 3] = [
            ("anthropic", url.clone(), &anthropics, |events| {
                assert_eq!(events.last().unwrap()["type"], "message_stop");
                anthropic_text(events)
            }),
            ("openai", format!("{url}/responses"), &responses, |events| {
                let end = events.last().unwrap();
                assert_eq!(end["type"], "response.completed");
                assert_eq!(end["response"]["usage"]["output_tokens"], 100);
                events.iter().filter_map(|event| event["delta"].as_str()).collect()
            }),
            ("google", google, &googles, |events| {
                let parts = events.iter().map(|event| &event["candidates"][0]["content"]["parts"][0]["text"]);
                parts.filter_map(Value::as_str).collect()
            }),
        ];
        for (format, url, body, text_of) in asks {
            let request = rewrite(format, &url, body);
            let response = managed.send(&merchant.secret_key, request).await;
            assert_eq!((response.status, response.complete), (200, true), "{}", response.text());
            assert_eq!(response.head.header("content-type"), Some("text/event-stream"), "{format}");
            assert_eq!(text_of(&events(&response.text())), "Hello.", "{format}: {}", response.text());
            let metered = merchant.charged(&response).await;
            assert_eq!((&metered["total_merchant_cost"], &metered["marks"]), (&json!(COST), &json!([])));
        }
        // One that is no response is no stream either, and an error stays whole.
        let unreadable = managed.openai.endpoint_ending("/v1/chat/completions", |_| {
            let body = r#"{"usage":{"prompt_tokens":1000,"completion_tokens":100},"choices":7}"#;
            whole(200, &[("Content-Type", "application/json")], body.as_bytes())
        });
        let request = rewrite("anthropic", &unreadable.url, &anthropics);
        let response = managed.send(&merchant.secret_key, request).await;
        response.refused(502, "provider_unreachable");
        assert_eq!(response.head.header("content-type"), Some("application/json"));
        assert_eq!(merchant.charged(&response).await["total_merchant_cost"], COST);
        let failing = managed.openai.endpoint_ending("/v1/chat/completions", |_| {
            whole(500, &[("Content-Type", "application/json")], br#"{"error":{"message":"No."}}"#)
        });
        let request = rewrite("anthropic", &failing.url, &anthropics);
        let response = managed.send(&merchant.secret_key, request).await;
        assert_eq!(response.status, 500, "{}", response.text());
        assert_eq!(response.head.header("content-type"), Some("application/json"));
        assert_eq!(response.json()["error"]["message"], "No.");
        merchant.failed(&response).await;
        merchant.nothing_is_held().await;
    });
}

#[test]
fn a_converted_response_is_replayed_under_its_idempotency_key() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let (whole, stream) = (completions(&managed), streamed(&managed));
        let keyed = |endpoint: &Endpoint, key: &str, body: &Value| {
            rewrite("anthropic", &endpoint.url, body).header("Idempotency-Key", key)
        };
        let body = anthropic_body("gpt-4o");
        let first = managed.send(&merchant.secret_key, keyed(&whole, "one", &body)).await;
        assert_eq!(first.expect(200)["content"][0]["text"], "Hello.");
        let again = managed.send(&merchant.secret_key, keyed(&whole, "one", &body)).await;
        assert_eq!((again.status, &again.body), (200, &first.body));
        assert_eq!(again.head.header("content-type"), Some("application/json"));
        assert_eq!(again.head.header("idempotency-replayed"), Some("true"));
        let mut body = body;
        body["stream"] = json!(true);
        let first = managed.send(&merchant.secret_key, keyed(&stream, "two", &body)).await;
        assert_eq!((first.status, first.complete), (200, true));
        managed
            .send(&merchant.secret_key, keyed(&stream, "two", &body))
            .await
            .refused(409, "idempotency_completed");
        assert_eq!((whole.calls().len(), stream.calls().len()), (1, 1));
    });
}
