//! Streams of sound at OpenAI: a transcription that comes as events (`stream`), and speech that does (`stream_format`).
//! Each reports its tokens in its last event.

use farthing_tests::managed::Managed;
use farthing_tests::merchant::{Merchant, forward, token};
use farthing_tests::provider::{Endpoint, chunk, event_stream, last_chunk};
use farthing_tests::run;
use serde_json::{Value, json};

use super::provider_calls::form;
use super::providers::{prices, tokens};

const TRANSCRIPT: [&str; 3] = [
    r#"{"type":"transcript.text.delta","delta":"I see"}"#,
    r#"{"type":"transcript.text.delta","delta":" skies."}"#,
    r#"{"type":"transcript.text.done","text":"I see skies.","usage":{"type":"tokens","input_tokens":14,"input_token_details":{"text_tokens":0,"audio_tokens":14},"output_tokens":101,"total_tokens":115}}"#,
];

const SPEECH: [&str; 2] = [
    r#"{"type":"speech.audio.delta","audio":"SUQz"}"#,
    r#"{"type":"speech.audio.done","usage":{"input_tokens":14,"output_tokens":101,"total_tokens":115}}"#,
];

/// A stream of these events, as it is sent.
fn stream(events: &[&str]) -> String {
    events.iter().flat_map(|&data| ["data: ", data, "\n\n"]).collect()
}

/// An endpoint of OpenAI's that answers with these events.
fn endpoint(managed: &Managed, path: &str, events: &'static [&'static str]) -> Endpoint {
    managed.openai.endpoint_ending(path, move |_| {
        let events = events.iter().map(|data| chunk(format!("data: {data}\n\n")));
        std::iter::once(event_stream()).chain(events).chain([last_chunk()]).collect()
    })
}

/// A token of a customer, billed a cent for each token, with the caller's own key.
async fn own_key(merchant: &Merchant) -> String {
    let customer = merchant.customer("100").await;
    let tiers = json!([{"start": 0, "rate": "10000"}]);
    let fields = json!({"name": "n", "rate_type": "fixed", "tier_type": "tokens_1m", "tiers": tiers});
    let meter = merchant.meter(fields).await;
    token(&json!({
        "secret_key": merchant.secret_key, "customer_id": customer.id, "meter_slug": meter.slug,
        "provider_key": "sk-theirs",
    }))
}

#[test]
fn a_streamed_transcription_is_billed_by_the_tokens_that_its_last_event_reports() {
    run(async {
        let prices = prices(
            r#"{"provider":"openai","model":"heard-by-tokens","input_per_1m":"2.5","output_per_1m":"10"}"#,
        );
        let managed = Managed::start(&[&prices]).await;
        let merchant = Merchant::funded("100").await;
        let endpoint = endpoint(&managed, "/v1/audio/transcriptions", &TRANSCRIPT);
        let own = own_key(&merchant).await;
        for (credential, key_type) in [(&own, "unmanaged"), (&merchant.secret_key, "managed")] {
            let fields = [("model", "heard-by-tokens"), ("response_format", "json"), ("stream", "true")];
            let request = form(forward("POST", &endpoint.url), &fields);
            let response = managed.send(credential, request).await;
            assert_eq!((response.status, response.text()), (200, stream(&TRANSCRIPT)));
            let metered = merchant.charged(&response).await;
            assert_eq!(metered["usage"]["tokens"], tokens(14, 101), "{metered}");
            assert_eq!(metered["marks"], json!([]), "{metered}");
            // 14 × 2.5 and 101 × 10, per million.
            assert_eq!(metered["model_cost"]["total"], "0.0010450000");
            if key_type == "managed" {
                assert_eq!(metered["total_merchant_cost"], "0.0010450000");
            } else {
                assert_eq!(metered["fee"]["amount"], "1.1500000000", "115 × 0.01: {metered}");
            }
            let shown = merchant.shown(&response.request_id(), "completed").await;
            assert_eq!(shown["provider_key_type"], key_type);
            let sent = String::from_utf8(endpoint.calls().pop().unwrap().body.clone()).unwrap();
            assert!(sent.contains("\r\n\r\ntrue\r\n") && !sent.contains("stream_options"), "{sent}");
        }
        merchant.nothing_is_held().await;
    });
}

#[test]
fn streamed_speech_is_billed_by_its_characters_and_shows_the_tokens_that_its_last_event_reports() {
    run(async {
        let prices = prices(
            r#"{"provider":"openai","model":"spoken","per_character":"0.001"},{"provider":"openai","model":"spoken-by-both","per_character":"0.001","output_per_1m":"10"},{"provider":"openai","model":"spoken-by-tokens","input_per_1m":"1","output_per_1m":"10"}"#,
        );
        let managed = Managed::start(&[&prices]).await;
        let merchant = Merchant::funded("100").await;
        let endpoint = endpoint(&managed, "/v1/audio/speech", &SPEECH);
        let ask = |model: &str| {
            let body = json!({"model": model, "voice": "v", "input": "café 😀", "stream_format": "sse"});
            forward("POST", &endpoint.url).json(&body)
        };
        let usage_of =
            |metered: &Value| (metered["usage"]["characters"].clone(), metered["usage"]["tokens"].clone());
        let own = own_key(&merchant).await;
        for (model, cost) in [
            ("spoken", "0.0060000000"),
            // A price by both counts both: 6 × 0.001, and 101 × 10 per million.
            ("spoken-by-both", "0.0070100000"),
        ] {
            let response = managed.send(&merchant.secret_key, ask(model)).await;
            assert_eq!((response.status, response.text()), (200, stream(&SPEECH)));
            let metered = merchant.charged(&response).await;
            assert_eq!(usage_of(&metered), (tokens(6, 0), tokens(14, 101)), "{metered}");
            assert_eq!(metered["total_merchant_cost"], cost, "{model}: {metered}");
            assert_eq!(metered["marks"], json!([]), "{model}: {metered}");
            if model == "spoken" {
                assert_eq!(metered["hold"]["merchant"], cost, "its price is known before the call");
            }
            let response = managed.send(&own, ask(model)).await;
            let metered = merchant.charged(&response).await;
            assert_eq!(usage_of(&metered), (tokens(6, 0), tokens(14, 101)), "{metered}");
            assert_eq!(metered["model_cost"]["total"], cost, "{model}, for information");
            // A meter by tokens counts them: 115 × 0.01.
            assert_eq!(metered["fee"]["amount"], "1.1500000000", "{metered}");
        }
        // The same call without `stream_format` would report nothing, so a price by tokens alone sells neither.
        let refused = managed.send(&merchant.secret_key, ask("spoken-by-tokens")).await;
        let refused = refused.refused(400, "model_not_priced");
        assert!(
            refused["message"].as_str().unwrap().contains("neither per_character nor per_request"),
            "{refused}"
        );
        let response = managed.send(&own, ask("spoken-by-tokens")).await;
        let metered = merchant.charged(&response).await;
        // 14 × 1 and 101 × 10, per million.
        assert_eq!(metered["model_cost"]["total"], "0.0010240000", "for information");
        assert_eq!(endpoint.calls().len(), 5);
        merchant.nothing_is_held().await;
    });
}
