//! Streams that are left: what was counted of them, and what was reported, is charged.

use farthing_tests::books::{Books, decimal};
use farthing_tests::client::{Body, Connection, Request};
use farthing_tests::managed::Managed;
use farthing_tests::merchant::{Merchant, Meter, forward, token};
use farthing_tests::provider::{Endpoint, Gate, Provider, Step, chunk, event_stream, last_chunk};
use farthing_tests::run;
use farthing_tests::wait::eventually;
use rust_decimal::Decimal;
use serde_json::{Value, json};

use super::leaving::{cancelling_meter, events, leave};

/// The dearest prices of a token of input and of output of a model, in 10^-10 dollars.
pub(super) type TokenPrices = (u64, u64);

/// Of gpt-4o: 2.5 and 10 dollars for a million.
pub(super) const GPT_4O: TokenPrices = (25_000, 100_000);

/// Of claude-sonnet-4-6: 3.75 dollars for a million that are written to a cache, and 15.
const SONNET: TokenPrices = (37_500, 150_000);

/// Of gemini-2.5-flash: 0.3 and 2.5 dollars for a million.
pub(super) const FLASH: TokenPrices = (3_000, 25_000);

/// The price of so many tokens of input and of output.
pub(super) fn dollars((of_input, of_output): TokenPrices, input: u64, output: u64) -> String {
    let units = input * of_input + output * of_output;
    format!("{}.{:010}", units / 10_000_000_000, units % 10_000_000_000)
}

/// A meter without a fee.
pub(super) async fn meter_without_fee(merchant: &Merchant) -> Meter {
    merchant
        .meter(json!({
            "name": "no fee", "rate_type": "fixed", "tier_type": "requests", "tiers": [{"start": 0, "rate": "0"}],
            "base_cost_payer": "wallet", "service_charge_payer": "merchant", "on_disconnect": "cancel",
        }))
        .await
}

/// A stream of this one document that does not end before the gate is open; and its length until then.
fn going_on(provider: &Provider, path: &str, gate: &Gate, document: &Value) -> (Endpoint, usize) {
    let (event, gate) = (format!("data: {document}\n\n"), gate.clone());
    let length = event.len();
    let endpoint = provider.endpoint_ending(path, move |_| {
        vec![event_stream(), chunk(&event), Step::Wait(gate.clone()), last_chunk()]
    });
    (endpoint, length)
}

/// Begins a call, reads so many bytes of its stream and leaves. Returns the opening and the charge.
async fn leave_after(
    managed: &Managed,
    merchant: &Merchant,
    request: Request,
    bytes: usize,
) -> (Value, Value) {
    let mut connection = Connection::open(managed.address()).await.unwrap();
    connection.send(&request).await.unwrap();
    let head = connection.head("POST").await.unwrap();
    assert!(head.first_line.contains(" 200 "), "{head:?}");
    let mut read = 0;
    while read < bytes {
        read += connection.read.piece().await.unwrap().unwrap().len();
    }
    drop(connection);
    events(merchant, head.header("x-service-request-id").unwrap()).await
}

#[test]
fn a_stream_without_an_output_limit_that_is_left_is_charged_what_was_streamed() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let gate = Gate::default();
        let words = "all that was wanted ".repeat(300);
        let whole = [words.clone(), words.clone()].concat();
        let waits = gate.clone();
        let endpoint = managed.openai.endpoint_ending("/v1/chat/completions", move |_| {
            let event =
                json!({"id": "chatcmpl-1", "model": "gpt-4o", "choices": [{"delta": {"content": words}}]});
            let event = format!("data: {event}\n\n");
            vec![event_stream(), chunk(event.clone()), chunk(event), Step::Wait(waits.clone()), last_chunk()]
        });
        let waits = gate.clone();
        let mute =
            managed.openai.endpoint_ending("/v1/chat/completions", move |_| vec![Step::Wait(waits.clone())]);
        let asked =
            json!({"model": "gpt-4o", "stream": true, "messages": [{"role": "user", "content": "x"}]});
        let (customer, poor) =
            (merchant.customer("100").await, merchant.customer_called("poor", "0.02").await);
        let meter = meter_without_fee(&merchant).await;
        for customer in [&customer, &poor] {
            let credential = merchant.billing(customer, &meter);
            let call = forward("POST", &endpoint.url).json(&asked).bearer(&credential);
            let (opened, metered) = leave_after(&managed, &merchant, call, whole.len()).await;
            let body = metered["counted"]["input"].as_u64().unwrap();
            assert!((50..200).contains(&body), "{metered}");
            assert_eq!(metered["counted"]["output"], whole.len(), "{metered}");
            assert_eq!(metered["marks"][0], "usage_missing");
            assert_eq!(metered["usage"]["tokens"], json!({"input": 0, "output": 0}));
            let cost = dollars(GPT_4O, body, whole.len() as u64);
            assert_eq!(metered["model_cost"]["total"], cost, "{metered}");
            assert_eq!(opened["hold"]["wallet"], "0.0100000000", "the default hold");
            let marks: Vec<_> =
                metered["marks"].as_array().unwrap().iter().map(|mark| mark.as_str().unwrap()).collect();
            if customer.id == poor.id {
                assert_eq!(marks, ["usage_missing", "hold_charged", "partial", "overrun"]);
                assert_eq!(metered["total_wallet_cost"], "0.0200000000", "a wallet is never below zero");
            } else {
                assert_eq!(marks, ["usage_missing", "hold_charged", "partial"]);
                assert_eq!(metered["total_wallet_cost"], cost);
                assert_eq!(metered["total_merchant_cost"], "0.0000000000");
            }
        }
        // Of a call that is left before its response nothing is counted, however long its body is.
        let calls = mute.calls().len();
        let before = merchant.events().await.len();
        let mut connection = Connection::open(managed.address()).await.unwrap();
        let credential = merchant.billing(&customer, &meter);
        let long = json!({
            "model": "gpt-4o", "stream": true, "messages": [{"role": "user", "content": "x".repeat(200_000)}],
        });
        connection.send(&forward("POST", &mute.url).json(&long).bearer(&credential)).await.unwrap();
        eventually("it is sent", async || (mute.calls().len() > calls).then_some(())).await;
        drop(connection);
        let charged = async || {
            let events = merchant.events().await.into_iter().skip(before);
            events.into_iter().find(|event| event.kind == "request.metered")
        };
        let metered = eventually("it is charged", charged).await.body;
        assert_eq!(metered["counted"], Value::Null);
        assert_eq!(metered["total_wallet_cost"], metered["hold"]["wallet"], "{metered}");
        gate.open();
        merchant.nothing_is_held().await;
        Books::of(&merchant.log.after(0).await);
    });
}

#[test]
fn the_input_of_a_call_that_is_left_is_charged_once_for_all_answers() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let customer = merchant.customer("100").await;
        let credential = merchant.billing(&customer, &meter_without_fee(&merchant).await);
        let gate = Gate::default();
        let message = json!({"role": "user", "content": "x"});
        let messages = Value::Array(vec![message.clone(); 33]);
        for (path, document, asked) in [
            (
                "/v1/responses",
                json!({"type": "response.output_text.delta", "delta": "abc"}),
                json!({"model": "gpt-4o", "stream": true, "input": messages}),
            ),
            (
                "/v1/chat/completions",
                json!({"choices": [{"delta": {"content": "abc"}}]}),
                json!({
                    "model": "gpt-4o", "stream": true, "stream_options": {"include_usage": true}, "n": 33,
                    "messages": [message],
                }),
            ),
        ] {
            let (endpoint, length) = going_on(&managed.openai, path, &gate, &document);
            // With blanks it has more bytes than the model reads tokens.
            let body = asked.to_string().replacen('{', &format!("{{{}", " ".repeat(250_000)), 1);
            let call = forward("POST", &endpoint.url).header("Content-Type", "application/json");
            let call = call.body(Body::Whole(body.into_bytes())).bearer(&credential);
            let (_, metered) = leave_after(&managed, &merchant, call, length).await;
            assert_eq!(metered["counted"], json!({"input": 128_000, "output": 3}), "{path}");
            assert_eq!(metered["total_wallet_cost"], dollars(GPT_4O, 128_000, 3), "{path}: {metered}");
        }
        gate.open();
        merchant.nothing_is_held().await;
        Books::of(&merchant.log.after(0).await);
    });
}

/// A call of claude-sonnet-4-6 that is left after so much text.
async fn leave_messages(
    managed: &Managed,
    merchant: &Merchant,
    credential: &str,
    max_tokens: u64,
    text: usize,
) -> (Value, Value) {
    let gate = Gate::default();
    let delta = json!({"type": "text_delta", "text": "x".repeat(text)});
    let document = json!({"type": "content_block_delta", "index": 0, "delta": delta});
    let (endpoint, length) = going_on(&managed.anthropic, "/v1/messages", &gate, &document);
    let asked =
        json!({"model": "claude-sonnet-4-6", "stream": true, "max_tokens": max_tokens, "messages": []});
    let call = forward("POST", &endpoint.url).json(&asked).bearer(credential);
    let ended = leave_after(managed, merchant, call, length).await;
    gate.open();
    ended
}

/// The price of what was counted of a call of claude-sonnet-4-6.
fn by_count(metered: &Value) -> Decimal {
    let count = |name: &str| metered["counted"][name].as_u64().unwrap_or_default();
    dollars(SONNET, count("input"), count("output")).parse().unwrap()
}

#[test]
fn a_stream_whose_output_limit_costs_more_than_the_hold_cap_is_charged_what_was_streamed() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let customer = merchant.customer("100").await;
        let credential = merchant.billing(&customer, &meter_without_fee(&merchant).await);
        for (max_tokens, text, counted) in [
            (128_000, 80_000, Some(80_000)),
            // The limit bounds the charge as well.
            (70_000, 80_000, Some(70_000)),
            (128_000, 1_000, Some(1_000)),
            // The hold is the bound: nothing needs to be counted.
            (60_000, 80_000, None),
        ] {
            let (opened, metered) = leave_messages(&managed, &merchant, &credential, max_tokens, text).await;
            assert_eq!(metered["marks"], json!(["usage_missing", "hold_charged", "partial"]));
            assert_eq!(metered["counted"]["output"], json!(counted), "{max_tokens}: {metered}");
            let (hold, by_count) = (decimal(&opened["hold"]["wallet"]), by_count(&metered));
            assert_eq!(hold == Decimal::ONE, counted.is_some(), "{max_tokens}: {opened}");
            assert_eq!(by_count > hold, counted > Some(1_000), "{max_tokens} {text}: {metered}");
            assert_eq!(decimal(&metered["total_wallet_cost"]), by_count.max(hold), "{metered}");
            assert_eq!(metered["model_cost"]["total"], metered["total_wallet_cost"]);
        }
        merchant.nothing_is_held().await;
        Books::of(&merchant.log.after(0).await);
    });
}

#[test]
fn a_stream_whose_fee_took_a_part_of_the_hold_cap_is_charged_what_was_streamed() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let customer = merchant.customer("100").await;
        // The cost is at most 0.9 dollars, and so is the fee: both are held within one dollar.
        let meter = merchant
            .meter(json!({
                "name": "doubled", "rate_type": "percentage", "tiers": [{"start": 0, "rate": "100"}],
                "base_cost_payer": "merchant", "service_charge_payer": "merchant", "on_disconnect": "cancel",
            }))
            .await;
        let credential = merchant.billing(&customer, &meter);
        let (opened, metered) = leave_messages(&managed, &merchant, &credential, 60_000, 20_000).await;
        assert_eq!(metered["counted"]["output"], 20_000, "{metered}");
        let by_count = by_count(&metered);
        assert!(by_count > decimal(&opened["hold"]["merchant"]), "{opened}");
        assert_eq!(decimal(&metered["total_merchant_cost"]), by_count, "{metered}");
        assert_eq!(metered["total_wallet_cost"], "0.0000000000");
        merchant.nothing_is_held().await;
        Books::of(&merchant.log.after(0).await);
    });
}

#[test]
fn arguments_of_a_tool_that_are_an_object_are_charged_as_text_is() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let customer = merchant.customer("100").await;
        let credential = merchant.billing(&customer, &meter_without_fee(&merchant).await);
        let gate = Gate::default();
        // A type of the arguments' own says nothing of the event.
        let arguments = json!({"type": "x.done", "program": "x y ".repeat(5_000), "lines": [1, 2, 3]});
        let counted = arguments.to_string().len() as u64;
        let parts = json!([{"functionCall": {"name": "f", "args": arguments}}]);
        let google = json!({"candidates": [{"content": {"parts": parts, "role": "model"}}]});
        let block = json!({"type": "tool_use", "id": "toolu_1", "name": "f", "input": arguments});
        let anthropic = json!({"type": "content_block_start", "index": 0, "content_block": block});
        let message = json!({"role": "user", "content": "x"});
        let (of_google, of_anthropic) = (
            json!({"contents": [{"role": "user", "parts": [{"text": "x"}]}]}),
            json!({"model": "claude-sonnet-4-6", "stream": true, "messages": [message]}),
        );
        let path = "/v1beta/models/gemini-2.5-flash:streamGenerateContent";
        for (provider, path, query, document, asked, prices) in [
            (&managed.google, path, "?alt=sse", google, of_google, FLASH),
            (&managed.anthropic, "/v1/messages", "", anthropic, of_anthropic, SONNET),
        ] {
            let (endpoint, length) = going_on(provider, path, &gate, &document);
            let call = forward("POST", &format!("{}{query}", endpoint.url)).json(&asked);
            let call = call.bearer(&credential);
            let (opened, metered) = leave_after(&managed, &merchant, call, length).await;
            assert_eq!(opened["hold"]["wallet"], "0.0100000000", "the default hold");
            assert_eq!(metered["counted"]["output"], counted, "{path}: {metered}");
            let body = metered["counted"]["input"].as_u64().unwrap();
            assert_eq!(metered["total_wallet_cost"], dollars(prices, body, counted), "{path}: {metered}");
        }
        gate.open();
        merchant.nothing_is_held().await;
        Books::of(&merchant.log.after(0).await);
    });
}

#[test]
fn a_stream_whose_input_alone_was_reported_is_charged_its_hold_too() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let customer = merchant.customer("100").await;
        let meter = cancelling_meter(&merchant, "wallet").await;
        let credential = merchant.billing(&customer, &meter);
        let gate = Gate::default();
        let start =
            r#"{"type":"message_start","message":{"id":"m","usage":{"input_tokens":9,"output_tokens":1}}}"#;
        let delta = r#"{"type":"message_delta","usage":{"output_tokens":7}}"#;
        for (events_before, is_reported) in [(vec![start], false), (vec![start, delta], true)] {
            let waits = gate.clone();
            let endpoint = managed.anthropic.endpoint_ending("/v1/messages", move |_| {
                let mut steps = vec![event_stream()];
                let all: Vec<_> = events_before.iter().map(|event| format!("data: {event}\n\n")).collect();
                let all = all.concat();
                steps.extend([chunk(all), Step::Wait(waits.clone()), last_chunk()]);
                steps
            });
            let asked =
                json!({"model": "claude-sonnet-4-6", "stream": true, "max_tokens": 50, "messages": []});
            let call = forward("POST", &endpoint.url).json(&asked);
            let id = leave(&managed, &credential, call).await;
            let (opened, metered) = events(&merchant, &id).await;
            if is_reported {
                assert_eq!(metered["marks"], json!(["partial"]));
                assert_ne!(metered["total_wallet_cost"], opened["hold"]["wallet"], "{metered}");
                assert_eq!(metered["usage"]["tokens"], json!({"input": 9, "output": 7}));
            } else {
                assert_eq!(metered["marks"], json!(["hold_charged", "partial"]));
                assert_eq!(metered["total_wallet_cost"], opened["hold"]["wallet"], "{metered}");
                assert_eq!(metered["usage"]["tokens"], json!({"input": 9, "output": 1}));
            }
        }
        gate.open();
        merchant.nothing_is_held().await;
    });
}

#[test]
fn on_an_own_key_the_input_that_was_reported_is_charged_up_to_the_largest_fee() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let customer = merchant.customer("100").await;
        let gate = Gate::default();
        let waits = gate.clone();
        let start =
            r#"{"type":"message_start","message":{"id":"m","usage":{"input_tokens":9,"output_tokens":1}}}"#;
        let endpoint = managed.anthropic.endpoint_ending("/v1/messages", move |_| {
            let start = format!("data: {start}\n\n");
            vec![event_stream(), chunk(start), Step::Wait(waits.clone()), last_chunk()]
        });
        for max_fee in ["10", "9.99"] {
            let meter = merchant
                .meter(json!({
                    "name": max_fee, "rate_type": "fixed", "tier_type": "tokens_1m", "max_fee": max_fee,
                    "tiers": [{"start": 0, "rate": "1000000"}], "service_charge_payer": "merchant",
                    "on_disconnect": "cancel",
                }))
                .await;
            let own = token(&json!({
                "secret_key": merchant.secret_key, "customer_id": customer.id, "meter_slug": meter.slug,
                "provider_key": "sk-theirs",
            }));
            let asked =
                json!({"model": "claude-sonnet-4-6", "stream": true, "max_tokens": 5, "messages": []});
            let id = leave(&managed, &own, forward("POST", &endpoint.url).json(&asked)).await;
            if max_fee == "10" {
                let (_, metered) = events(&merchant, &id).await;
                assert_eq!(metered["marks"], json!(["partial"]), "{metered}");
                assert_eq!(metered["fee"]["amount"], "10.0000000000", "{metered}");
                assert_eq!(metered["total_wallet_cost"], "10.0000000000", "{metered}");
            } else {
                assert_eq!(merchant.failed_request(&id).await["reason"], "usage_invalid");
            }
        }
        gate.open();
        assert_eq!(merchant.balance(&customer).await, "90.0000000000");
        merchant.nothing_is_held().await;
    });
}
