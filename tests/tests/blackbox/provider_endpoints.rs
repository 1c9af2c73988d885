//! Endpoints of built-in providers besides chat: speech, transcriptions, embeddings, images, files, batches, and Amazon
//! Bedrock's. What reports usage is metered; what does not is not sold on a managed key.

use farthing_tests::client::{Body, Connection};
use farthing_tests::instance::Instance;
use farthing_tests::managed::Managed;
use farthing_tests::merchant::{Merchant, forward, token};
use farthing_tests::provider::{Gate, Step, chunk, event_stream, head, json, json_text, whole};
use farthing_tests::run;
use farthing_tests::wait::eventually;
use serde_json::{Value, json};

use super::providers::{Keys, gateway_with, prices, tokens};

#[test]
fn speech_is_billed_by_the_characters_of_its_input() {
    run(async {
        let prices = prices(
            r#"{"provider":"openai","model":"tts-ours","per_character":"0.001"},{"provider":"openai","model":"tts-by-tokens","input_per_1m":"1","output_per_1m":"2"}"#,
        );
        let managed = Managed::start(&[&prices]).await;
        let merchant = Merchant::funded("100").await;
        let customer = merchant.customer("100").await;
        let meter = merchant
            .meter(json!({
                "name": "spoken", "rate_type": "fixed", "tier_type": "characters_1m",
                "tiers": [{"start": 0, "rate": "100000"}],
            }))
            .await;
        let endpoint = managed.openai.endpoint_ending("/v1/audio/speech", |_| {
            whole(200, &[("Content-Type", "audio/mpeg")], b"\xff\xfb\x90{\"usage\":{\"total_tokens\":7}}")
        });
        let ask = |model: &str| {
            forward("POST", &endpoint.url).json(&json!({"model": model, "voice": "v", "input": "café 😀"}))
        };
        // Six characters, of eleven bytes.
        let response = managed.send(&merchant.billing(&customer, &meter), ask("tts-ours")).await;
        assert_eq!(response.status, 200);
        let metered = merchant.charged(&response).await;
        assert_eq!(metered["usage"]["characters"], json!({"input": 6, "output": 0}), "{metered}");
        assert_eq!(metered["model_cost"]["total"], "0.0060000000");
        assert_eq!(metered["fee"]["amount"], "0.6000000000");
        assert_eq!(metered["total_wallet_cost"], "0.6174000000");
        assert_eq!(metered["hold"]["wallet"], "0.6174000000", "its price is known before the call");
        let shown = merchant.shown(&response.request_id(), "completed").await;
        assert_eq!(shown["model_usage"]["input_characters"], 6);
        assert!(shown.get("marks").is_none(), "{shown}");

        let own = json!({
            "secret_key": merchant.secret_key, "customer_id": customer.id, "meter_slug": meter.slug,
            "provider_key": "sk-theirs",
        });
        let response = managed.send(&token(&own), ask("tts-ours")).await;
        let metered = merchant.charged(&response).await;
        assert_eq!(metered["model_cost"]["total"], "0.0060000000", "for information");
        assert_eq!(metered["fee"]["amount"], "0.6000000000");

        // What is no text has no characters that could be billed.
        let calls = endpoint.calls().len();
        for input in [r#"["a text"]"#, "7", "null", r#""half of a pair: \ud800""#] {
            let body = format!(r#"{{"model":"tts-ours","voice":"v","input":{input}}}"#);
            let request = forward("POST", &endpoint.url)
                .header("Content-Type", "application/json")
                .body(Body::Whole(body.into_bytes()));
            let refused = managed.send(&merchant.secret_key, request).await.refused(400, "validation_error");
            assert_eq!(refused["issues"][0]["path"], json!(["input"]), "{input}");
        }
        assert_eq!(endpoint.calls().len(), calls);

        // Sound reports no tokens, so a price by tokens would bill nothing.
        let refused = managed.send(&merchant.secret_key, ask("tts-by-tokens")).await;
        let refused = refused.refused(400, "model_not_priced");
        assert!(
            refused["message"].as_str().unwrap().contains("neither per_character nor per_request"),
            "{refused}"
        );
        let twice = Body::Whole(br#"{"model":"tts-ours","input":"x","input":"a much longer text"}"#.to_vec());
        let twice = forward("POST", &endpoint.url).header("Content-Type", "application/json").body(twice);
        managed.send(&merchant.secret_key, twice).await.refused(400, "validation_error");
        assert_eq!(endpoint.calls().len(), 2);
        merchant.nothing_is_held().await;
    });
}

/// With a rate per token of output its cost has no bound, so the default hold may be less than its characters cost.
#[test]
fn speech_with_rates_per_character_and_per_token_that_falls_silent_pays_at_least_its_characters() {
    run(async {
        let prices = prices(
            r#"{"provider":"openai","model":"tts-both","per_character":"0.005","output_per_1m":"12"}"#,
        );
        let managed = Managed::start(&[&prices, "--silence-timeout-seconds=3"]).await;
        let merchant = Merchant::funded("100").await;
        let customer = merchant.customer("100").await;
        let credential = token(&json!({"secret_key": merchant.secret_key, "customer_id": customer.id}));
        let gate = Gate::default();
        let waits = gate.clone();
        let silent = managed.openai.endpoint_ending("/v1/audio/speech", move |_| {
            let headers = [("Content-Type", "audio/mpeg"), ("Transfer-Encoding", "chunked")];
            vec![head(200, &headers), chunk(b"\xff\xfb\x90"), Step::Wait(waits.clone())]
        });
        for (input, characters, cost) in [("café 😀", 6, "0.0300000000"), ("x", 1, "0.0100000000")] {
            let asked = json!({"model": "tts-both", "voice": "v", "input": input});
            let response = managed.send(&credential, forward("POST", &silent.url).json(&asked)).await;
            assert!(!response.complete);
            let metered = merchant.charged(&response).await;
            assert_eq!(metered["hold"]["wallet"], "0.0100000000", "the default hold: {metered}");
            assert_eq!(metered["marks"], json!(["usage_missing", "hold_charged", "partial"]), "{metered}");
            assert_eq!(metered["counted"], json!({"input": 0, "output": 0, "characters": characters}));
            assert_eq!(metered["usage"]["characters"], json!({"input": 0, "output": 0}), "{metered}");
            assert_eq!(metered["total_wallet_cost"], cost, "{metered}");
            assert_eq!(metered["model_cost"]["total"], cost, "{metered}");
        }
        gate.open();
        merchant.nothing_is_held().await;
    });
}

/// What is known of speech before its answer is charged only if the provider has made the answer, as far as one knows.
#[test]
fn speech_that_its_provider_does_not_finish_is_charged_as_other_calls_without_usage() {
    run(async {
        let prices = prices(r#"{"provider":"openai","model":"tts-broken","per_character":"0.001"}"#);
        let managed = Managed::start(&[&prices, "--silence-timeout-seconds=3"]).await;
        let merchant = Merchant::funded("100").await;
        let customer = merchant.customer("100").await;
        let meter = merchant
            .meter(json!({
                "name": "spoken", "rate_type": "fixed", "tier_type": "characters_1m",
                "tiers": [{"start": 0, "rate": "100000"}], "service_charge_payer": "merchant",
                "on_disconnect": "cancel",
            }))
            .await;
        let managed_key = merchant.billing(&customer, &meter);
        let own_key = token(&json!({
            "secret_key": merchant.secret_key, "customer_id": customer.id, "meter_slug": meter.slug,
            "provider_key": "sk-theirs",
        }));
        let gate = Gate::default();
        let begun = |end: Step| {
            managed.openai.endpoint_ending("/v1/audio/speech", move |_| {
                let headers = [("Content-Type", "audio/mpeg"), ("Transfer-Encoding", "chunked")];
                vec![head(200, &headers), chunk(b"\xff\xfb\x90"), end.clone()]
            })
        };
        let (breaks_off, is_silent) = (begun(Step::Close), begun(Step::Wait(gate.clone())));
        let reports = managed.openai.endpoint_ending("/v1/audio/speech", |_| {
            let done =
                r#"data: {"type":"speech.audio.done","usage":{"input_tokens":14,"output_tokens":101}}"#;
            vec![event_stream(), chunk(format!("{done}\n\n")), Step::Close]
        });
        let ask = |url: &str| {
            forward("POST", url).json(&json!({"model": "tts-broken", "voice": "v", "input": "café 😀"}))
        };
        let six = json!({"input": 6, "output": 0});

        for (credential, cost) in [(&own_key, "0.6000000000"), (&managed_key, "0.6060000000")] {
            let response = managed.send(credential, ask(&breaks_off.url)).await;
            assert!(!response.complete);
            assert_eq!(merchant.failed(&response).await["reason"], "provider_gone");

            // A caller that leaves pays: it cannot make its call cheaper.
            let mut connection = Connection::open(managed.address()).await.unwrap();
            connection.send(&ask(&is_silent.url).bearer(credential)).await.unwrap();
            let head = connection.head("POST").await.unwrap();
            connection.read.piece().await.unwrap();
            drop(connection);
            let key = format!("{}/metered", head.header("x-service-request-id").unwrap());
            let left = eventually("the call is settled", async || merchant.log.event(&key).await).await.body;
            assert_eq!((&left["usage"]["characters"], &left["marks"]), (&six, &json!(["partial"])), "{left}");
            assert_eq!(left["total_wallet_cost"], cost, "{left}");

            // The answer was made if its provider says what it used.
            let response = managed.send(credential, ask(&reports.url)).await;
            assert!(!response.complete);
            let metered = merchant.charged(&response).await;
            let shown = (&metered["usage"]["characters"], &metered["usage"]["tokens"]);
            assert_eq!(shown, (&six, &tokens(14, 101)), "{metered}");
            assert_eq!(metered["marks"], json!(["partial"]), "{metered}");
            assert_eq!(metered["total_wallet_cost"], cost, "{metered}");
        }

        let response = managed.send(&own_key, ask(&is_silent.url)).await;
        assert!(!response.complete);
        assert_eq!(merchant.failed(&response).await["reason"], "provider_gone");
        let response = managed.send(&managed_key, ask(&is_silent.url)).await;
        assert!(!response.complete);
        let metered = merchant.charged(&response).await;
        assert_eq!(metered["marks"], json!(["usage_missing", "hold_charged", "partial"]), "{metered}");
        assert_eq!(metered["total_wallet_cost"], metered["hold"]["wallet"], "{metered}");
        gate.open();
        merchant.nothing_is_held().await;
    });
}

#[test]
fn speech_on_a_spend_key_takes_its_exact_price_of_the_limit() {
    run(async {
        let prices = prices(r#"{"provider":"openai","model":"tts-limited","per_character":"0.001"}"#);
        let managed = Managed::start(&[&prices]).await;
        let merchant = Merchant::funded("100").await;
        let endpoint = managed.openai.endpoint_ending("/v1/audio/speech", |_| {
            whole(200, &[("Content-Type", "audio/mpeg")], b"\xff\xfb\x90")
        });
        let limit = json!({"name": "speaks", "spend_limit": {"amount": "0.01", "cycle": "total"}});
        let key =
            merchant.post("/v1/spend_keys", &limit).await.expect(201)["key"].as_str().unwrap().to_owned();
        let say = |characters: usize| {
            let body = json!({"model": "tts-limited", "voice": "v", "input": "é".repeat(characters)});
            forward("POST", &endpoint.url).json(&body)
        };
        managed.send(&key, say(11)).await.refused(402, "spend_limit_exceeded");
        let response = managed.send(&key, say(6)).await;
        assert_eq!(response.status, 200, "{}", response.text());
        let metered = merchant.charged(&response).await;
        assert_eq!(metered["total_merchant_cost"], "0.0060000000");
        assert_eq!(metered["hold"]["merchant"], "0.0060000000");
        managed.send(&key, say(5)).await.refused(402, "spend_limit_exceeded");
        let response = managed.send(&key, say(4)).await;
        assert_eq!(merchant.charged(&response).await["total_merchant_cost"], "0.0040000000");
        managed.send(&key, say(1)).await.refused(402, "spend_limit_exceeded");
        assert_eq!(endpoint.calls().len(), 2);
        assert_eq!(merchant.own_balance().await, "99.9900000000");
        merchant.nothing_is_held().await;
    });
}

#[test]
fn a_form_with_sound_that_gives_a_decisive_field_twice_is_refused() {
    run(async {
        let prices = prices(
            r#"{"provider":"openai","model":"whisper-cheap","per_second":"0.001"},{"provider":"openai","model":"whisper-dear","per_second":"1"}"#,
        );
        let managed = Managed::start(&[&prices]).await;
        let merchant = Merchant::funded("100").await;
        let settings = json!({"name": "hears", "allowed_models": ["whisper-cheap"]});
        let key =
            merchant.post("/v1/spend_keys", &settings).await.expect(201)["key"].as_str().unwrap().to_owned();
        let endpoint = managed
            .openai
            .endpoint_ending("/v1/audio/transcriptions", |_| json_text(200, r#"{"text":"x","duration":9}"#));
        let events = merchant.events().await.len();
        let ask = async |credential: &str, fields: &[(&str, &str)]| {
            let part = |(name, value): &(&str, &str)| {
                format!("--b1\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
            };
            let form = format!("{}--b1--\r\n", fields.iter().map(part).collect::<String>());
            let request = forward("POST", &endpoint.url)
                .header("Content-Type", "multipart/form-data; boundary=b1")
                .body(Body::Whole(form.into_bytes()));
            managed.send(credential, request).await
        };
        for (fields, name) in [
            (&[("model", "whisper-cheap"), ("model", "whisper-dear")][..], "model"),
            (&[("model", "whisper-cheap"), ("model", "whisper-cheap")], "model"),
            (&[("model", "whisper-cheap"), ("Model", "whisper-dear")], "model"),
            (
                &[("model", "whisper-cheap"), ("response_format", "json"), ("response_format", "text")],
                "response_format",
            ),
            (&[("model", "whisper-cheap"), ("stream", "false"), ("stream", "true")], "stream"),
        ] {
            for credential in [&merchant.secret_key, &key] {
                let error = ask(credential, fields).await.refused(400, "validation_error");
                assert_eq!(error["issues"][0]["path"], json!([name]), "{fields:?}: {error}");
            }
        }
        // A list of models holds on the caller's own key, too.
        let own = token(&json!({"spend_key": key, "provider_key": "sk-theirs"}));
        let error = ask(&own, &[("model", "whisper-cheap"), ("model", "whisper-dear")]).await;
        error.refused(400, "validation_error");
        assert_eq!((endpoint.calls().len(), merchant.events().await.len()), (0, events));
        let response = ask(&key, &[("model", "whisper-cheap"), ("response_format", "json")]).await;
        assert_eq!(merchant.charged(&response).await["total_merchant_cost"], "0.0090000000");
        merchant.nothing_is_held().await;
    });
}

#[test]
fn a_transcription_is_billed_by_the_seconds_that_its_answer_reports() {
    run(async {
        let prices = prices(r#"{"provider":"openai","model":"whisper-ours","per_second":"0.001"}"#);
        let managed = Managed::start(&[&prices]).await;
        let merchant = Merchant::funded("100").await;
        let customer = merchant.customer("100").await;
        let meter = merchant
            .meter(json!({
                "name": "heard", "rate_type": "fixed", "tier_type": "minutes",
                "tiers": [{"start": 0, "rate": "60"}],
            }))
            .await;
        let own = token(&json!({
            "secret_key": merchant.secret_key, "customer_id": customer.id, "meter_slug": meter.slug,
            "provider_key": "sk-theirs",
        }));
        let form = concat!(
            "--b1\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nwhisper-ours\r\n",
            "--b1\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.mp3\"\r\n",
            "Content-Type: audio/mpeg\r\n\r\nID3\r\n--b1--\r\n"
        );
        for (answer, seconds, cost, fee) in [
            (r#"{"text":"x","usage":{"type":"duration","seconds":9}}"#, "9", "0.0090000000", "9.0000000000"),
            (r#"{"text":"x","duration":8.5,"segments":[]}"#, "8.5", "0.0085000000", "8.5000000000"),
            // As OpenAI writes it: a binary number with all its digits.
            (
                r#"{"text":"x","duration":8.470000267028809,"segments":[]}"#,
                "8.470000267",
                "0.0084700003",
                "8.4700002670",
            ),
            (
                r#"{"duration":8.470000267028809,"text":"x","usage":{"type":"duration","seconds":9}}"#,
                "9",
                "0.0090000000",
                "9.0000000000",
            ),
        ] {
            let endpoint =
                managed.openai.endpoint_ending("/v1/audio/transcriptions", move |_| json_text(200, answer));
            let request = |credential: &str| {
                let body = Body::Whole(form.as_bytes().to_vec());
                let request = forward("POST", &endpoint.url).bearer(credential);
                request.header("Content-Type", "multipart/form-data; boundary=b1").body(body)
            };
            for (credential, paid) in [(own.as_str(), false), (merchant.secret_key.as_str(), true)] {
                let response = request(credential).send(managed.address()).await.unwrap();
                assert_eq!(response.status, 200, "{}", response.text());
                let metered = merchant.charged(&response).await;
                assert_eq!(metered["usage"]["seconds"]["input"], seconds, "{metered}");
                assert_eq!(metered["model_cost"]["total"], cost);
                let charged = if paid { &metered["total_merchant_cost"] } else { &metered["fee"]["amount"] };
                assert_eq!(charged, if paid { cost } else { fee });
                assert_eq!(endpoint.calls().pop().unwrap().body, form.as_bytes());
            }
        }
        merchant.nothing_is_held().await;
    });
}

#[test]
fn what_is_not_sold_on_a_managed_key_is_refused_with_the_reason() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let instance = Instance::shared().await;
        let key = instance.provider_key("openai", "sk-managed-openai");
        let gateway = farthing_tests::side_gateway::SideGateway::start(instance, &[&key]).await;
        let ask = async |path: &str, body: Value| {
            let request = forward("POST", &format!("https://api.openai.com{path}")).json(&body);
            let response = request.bearer(&merchant.secret_key).send(gateway.address).await.unwrap();
            response.refused(400, "model_not_priced")["message"].as_str().unwrap().to_owned()
        };
        for (path, body, why) in [
            ("/v1/images/generations", json!({"model": "gpt-4o"}), "does not answer at once with its usage"),
            ("/v1/images/generations", json!({"prompt": "x"}), "does not answer at once with its usage"),
            ("/v1/batches", json!({"model": "gpt-4o"}), "does not answer at once with its usage"),
            ("/v1/batches", json!({"input_file_id": "f"}), "does not answer at once with its usage"),
            ("/v1/files", json!({"model": "gpt-4o"}), "does not answer at once with its usage"),
            ("/v1/chat/completions", json!({"messages": []}), "names no model that can be read"),
            ("/v1/chat/completions", json!({"model": "unheard-of"}), "does not list the model"),
            ("/v1/embeddings", json!({"model": "unheard-of"}), "does not list the model"),
            (
                "/v1/audio/speech",
                json!({"model": "gpt-4o", "input": "x"}),
                "the model's listed price has neither per_character nor per_request",
            ),
        ] {
            let message = ask(path, body).await;
            assert!(message.contains(why), "{path}: {message}");
            assert!(!message.contains("No price is listed"), "{path}: {message}");
        }
        // At a host of the operator's an embedding is metered by its tokens.
        let endpoint = managed.openai.endpoint_ending("/v1/embeddings", |_| {
            json(200, &json!({"data": [], "usage": {"prompt_tokens": 10_000, "total_tokens": 10_000}}))
        });
        let request =
            forward("POST", &endpoint.url).json(&json!({"model": "text-embedding-3-small", "input": "x"}));
        let response = managed.send(&merchant.secret_key, request).await;
        assert_eq!(merchant.charged(&response).await["model_cost"]["total"], "0.0002000000");
        merchant.nothing_is_held().await;
    });
}

#[test]
fn files_images_and_batches_on_the_callers_own_key_pass_and_are_counted_as_calls() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let customer = merchant.customer("100").await;
        let meter = merchant.call_meter("0.5").await;
        let own = token(&json!({
            "secret_key": merchant.secret_key, "customer_id": customer.id, "meter_slug": meter.slug,
            "provider_key": "sk-theirs",
        }));
        for (method, path, answer, expected) in [
            ("POST", "/v1/files", r#"{"id":"file-1","bytes":3}"#, tokens(0, 0)),
            ("GET", "/v1/files/file-1/content", r#"{"usage":{"prompt_tokens":5}}"#, tokens(5, 0)),
            ("POST", "/v1/batches", r#"{"id":"batch_1","status":"validating"}"#, tokens(0, 0)),
            (
                "POST",
                "/v1/images/generations",
                r#"{"created":1,"data":[],"usage":{"input_tokens":50,"output_tokens":272,"total_tokens":322,"input_tokens_details":{"text_tokens":10,"image_tokens":40}}}"#,
                tokens(50, 272),
            ),
        ] {
            let endpoint = managed.openai.endpoint_ending(path, move |_| json_text(200, answer));
            let response = managed.send(&own, forward(method, &endpoint.url)).await;
            assert_eq!(response.status, 200, "{path}");
            let metered = merchant.charged(&response).await;
            assert_eq!(metered["fee"]["amount"], "0.5000000000", "{path}");
            assert_eq!(
                metered.get("usage").map_or(json!(null), |usage| usage["tokens"].clone()),
                expected,
                "{path}: {metered}"
            );
        }
    });
}

#[test]
fn what_reports_a_unit_of_its_own_passes_on_the_callers_own_key_and_is_counted_as_a_call() {
    run(async {
        let (managed, providers) = gateway_with(&["cohere"], Keys::None, &[]).await;
        let merchant = Merchant::funded("100").await;
        let customer = merchant.customer("100").await;
        let meter = merchant.call_meter("0.5").await;
        let own = token(&json!({
            "secret_key": merchant.secret_key, "customer_id": customer.id, "meter_slug": meter.slug,
            "provider_key": "sk-theirs",
        }));
        for (provider, path, answer, marks) in [
            (
                &providers[0],
                "/v2/rerank",
                r#"{"results":[],"meta":{"billed_units":{"search_units":1}}}"#,
                json!([]),
            ),
            (
                &managed.mistral,
                "/v1/ocr",
                r#"{"pages":[],"model":"m","usage_info":{"pages_processed":3}}"#,
                json!(["usage_missing"]),
            ),
            (
                &managed.openai,
                "/v1/moderations",
                r#"{"id":"modr-1","model":"m","results":[]}"#,
                json!(["usage_missing"]),
            ),
        ] {
            let endpoint = provider.endpoint_ending(path, move |_| json_text(200, answer));
            let request = forward("POST", &endpoint.url).json(&json!({"model": "m", "input": "x"}));
            let response = managed.send(&own, request).await;
            assert_eq!((response.status, response.text().as_str()), (200, answer), "{path}");
            let metered = merchant.charged(&response).await;
            assert_eq!(metered["usage"]["tokens"], tokens(0, 0), "{path}: {metered}");
            assert_eq!(metered["fee"]["amount"], "0.5000000000", "{path}: {metered}");
            assert_eq!(metered["marks"], marks, "{path}: {metered}");
        }
        merchant.nothing_is_held().await;
    });
}

/// A message of Amazon's event stream.
pub(super) fn message(payload: &str) -> Vec<u8> {
    let headers = b"\x0b:event-type\x07\x00\x05chunk";
    let total = u32::try_from(16 + headers.len() + payload.len()).unwrap();
    let mut message = total.to_be_bytes().to_vec();
    message.extend(u32::try_from(headers.len()).unwrap().to_be_bytes());
    message.extend([0; 4]);
    message.extend_from_slice(headers);
    message.extend_from_slice(payload.as_bytes());
    message.extend([0; 4]);
    message
}

/// A message with an event of the model's own form.
pub(super) fn wrapped(text: &str) -> Vec<u8> {
    use base64::Engine as _;

    let bytes = base64::engine::general_purpose::STANDARD.encode(text);
    message(&format!(r#"{{"bytes":"{bytes}","p":"abcdefgh"}}"#))
}

#[test]
fn bedrock_is_metered_on_the_callers_own_key_or_signature_in_each_of_its_forms() {
    run(async {
        let (managed, providers) = gateway_with(&["bedrock"], Keys::None, &[]).await;
        let merchant = Merchant::funded("1").await;
        let bedrock = &providers[0];
        let invoked = [
            wrapped(r#"{"type":"message_start","message":{"id":"msg_1","usage":{"input_tokens":3,"cache_read_input_tokens":40,"output_tokens":1}}}"#),
            wrapped(r#"{"type":"message_delta","usage":{"output_tokens":55}}"#),
            wrapped(r#"{"type":"message_stop","amazon-bedrock-invocationMetrics":{"inputTokenCount":3,"outputTokenCount":55,"cacheReadInputTokenCount":40}}"#),
        ]
        .concat();
        let conversed = [
            message(r#"{"contentBlockIndex":0,"delta":{"text":"Hi"},"p":"ab"}"#),
            message(r#"{"stopReason":"end_turn","p":"abc"}"#),
            message(r#"{"metrics":{"latencyMs":1},"usage":{"inputTokens":30,"outputTokens":12,"totalTokens":42},"p":"a"}"#),
        ]
        .concat();
        let whole_answer = r#"{"output":{},"stopReason":"end_turn","usage":{"inputTokens":30,"outputTokens":12,"totalTokens":62,"cacheReadInputTokens":20}}"#;
        let stream = ("Content-Type", "application/vnd.amazon.eventstream");
        let counts = [
            ("Content-Type", "application/json"),
            ("X-Amzn-Bedrock-Input-Token-Count", "7"),
            ("X-Amzn-Bedrock-Output-Token-Count", "9"),
        ];
        for (path, endpoint, expected) in [
            (
                "converse",
                bedrock.endpoint_ending("/model/a.nova%3A0/converse", move |_| json_text(200, whole_answer)),
                tokens(50, 12),
            ),
            (
                "converse-stream",
                bedrock.endpoint_ending("/model/a.nova:0/converse-stream", move |_| {
                    whole(200, &[stream], &conversed)
                }),
                tokens(30, 12),
            ),
            (
                "invoke",
                bedrock.endpoint_ending("/model/a.llama/invoke", move |_| {
                    whole(200, &counts, br#"{"generation":"x"}"#)
                }),
                tokens(7, 9),
            ),
            (
                "invoke-with-response-stream",
                bedrock.endpoint_ending("/model/a.claude/invoke-with-response-stream", move |_| {
                    whole(200, &[stream], &invoked)
                }),
                tokens(43, 55),
            ),
        ] {
            // A signature of the caller's own passes, and so does a key for Bedrock in the token.
            let signature = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20261123/us-east-1/bedrock/aws4_request, SignedHeaders=host, Signature=0a";
            let signed = forward("POST", &endpoint.url)
                .header("Authorization", signature)
                .header("x-api-key", &merchant.secret_key)
                .json(&json!({"messages": []}));
            let by_key = token(&json!({"secret_key": merchant.secret_key, "provider_key": "ABSK-theirs"}));
            let keyed = forward("POST", &endpoint.url).header("x-api-key", &by_key).json(&json!({}));
            for (request, authorization) in [(signed, signature), (keyed, "Bearer ABSK-theirs")] {
                let response = request.send(managed.address()).await.unwrap();
                assert_eq!(response.status, 200, "{path}");
                let metered = merchant.charged(&response).await;
                assert_eq!(metered["usage"]["tokens"], expected, "{path}: {metered}");
                let shown = merchant.shown(&response.request_id(), "completed").await;
                assert_eq!(shown["provider"], "bedrock");
                assert!(shown["model"].as_str().unwrap().starts_with("a."), "{shown}");
                let call = endpoint.calls().pop().unwrap();
                assert_eq!(call.head.all("authorization"), [authorization]);
                assert!(call.head.all("x-api-key").is_empty());
            }
        }
    });
}
