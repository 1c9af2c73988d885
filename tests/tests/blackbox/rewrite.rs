//! The rewrite endpoint: a client of one format calls a provider of another one, at the URL in the path (completion.md
//! section 12).

use farthing_tests::client::{Body, Request, Response};
use farthing_tests::managed::Managed;
use farthing_tests::merchant::{Merchant, encoded, forward, token};
use farthing_tests::provider::{Endpoint, json, json_text};
use farthing_tests::run;
use farthing_tests::side_gateway::SideGateway;
use serde_json::{Value, json};

/// The list price of gpt-4o for 1,000 input tokens and 100 output tokens.
pub(super) const COST: &str = "0.0035000000";

pub(super) const COMPLETION: &str = r#"{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"gpt-4o","choices":[{"index":0,"message":{"role":"assistant","content":"Hello."},"finish_reason":"stop"}],"usage":{"prompt_tokens":1000,"completion_tokens":100,"total_tokens":1100}}"#;

const MESSAGE: &str = r#"{"id":"msg_1","type":"message","role":"assistant","model":"claude-haiku-4-5","content":[{"type":"text","text":"Hello."}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":1000,"output_tokens":100}}"#;

/// A call of a client of `format` to the provider at `url`, by this body.
pub(super) fn rewrite(format: &str, url: &str, body: &Value) -> Request {
    Request::new("POST", format!("/v1/rewrite/{format}/{url}")).json(body)
}

pub(super) fn openai_body(model: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 100})
}

pub(super) fn anthropic_body(model: &str) -> Value {
    openai_body(model)
}

fn google_body() -> Value {
    json!({"contents": [{"role": "user", "parts": [{"text": "Hi"}]}], "generationConfig": {"maxOutputTokens": 100}})
}

pub(super) fn completions(managed: &Managed) -> Endpoint {
    managed.openai.endpoint_ending("/v1/chat/completions", |_| json_text(200, COMPLETION))
}

fn messages(managed: &Managed) -> Endpoint {
    managed.anthropic.endpoint_ending("/v1/messages", |_| json_text(200, MESSAGE))
}

#[test]
fn the_provider_is_called_at_its_url_however_it_is_written_and_charged_as_forward_charges() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let key = &merchant.secret_key;
        let endpoint = messages(&managed);
        let forwarded = forward("POST", &endpoint.url).json(&anthropic_body("claude-haiku-4-5"));
        let oracle = merchant.charged(&managed.send(key, forwarded).await).await;
        assert_eq!(oracle["total_merchant_cost"], "0.0015000000");
        let (raw, all) = (endpoint.url.clone(), encoded(&endpoint.url));
        for url in [
            raw.clone(),
            all.clone(),
            format!("{raw}/chat/completions"),
            format!("{raw}/v1/chat/completions"),
            format!("{all}/chat/completions"),
            raw.replace("http://", "http:/"),
            format!("{raw}?beta=true&key={key}"),
            format!("{all}%3Fbeta%3Dtrue/chat/completions"),
        ] {
            let request = rewrite("openai", &url, &openai_body("claude-haiku-4-5"));
            let response = managed.send(key, request).await;
            let answer = response.expect(200);
            assert_eq!(answer["choices"][0]["message"]["content"], "Hello.", "{url}: {answer}");
            assert_eq!(answer["usage"]["completion_tokens"], 100, "{answer}");
            let call = endpoint.calls().pop().unwrap();
            let query = if url.contains("beta") { "?beta=true" } else { "" };
            assert_eq!(call.target(), format!("{}{query}", endpoint.path));
            assert_eq!(call.head.all("anthropic-version"), ["2023-06-01"]);
            let metered = merchant.charged(&response).await;
            for name in ["usage", "total_merchant_cost", "total_request_cost", "marks"] {
                assert_eq!(metered[name], oracle[name], "{url}: {name}");
            }
            let shown = merchant.shown(&response.request_id(), "completed").await;
            assert_eq!(shown["endpoint"], format!("POST {}{query}", endpoint.url));
        }
        merchant.nothing_is_held().await;
    });
}

#[test]
fn clients_of_every_format_call_a_provider_of_another_one() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let key = &merchant.secret_key;
        let endpoint = completions(&managed);
        let url = &endpoint.url;
        let answer = managed
            .send(key, rewrite("anthropic", &format!("{url}/v1/messages"), &anthropic_body("gpt-4o")))
            .await;
        assert_eq!(answer.expect(200)["content"][0]["text"], "Hello.");
        assert_eq!(merchant.charged(&answer).await["total_merchant_cost"], COST);
        let path = format!("{url}/v1beta/models/gpt-4o:generateContent");
        let request = rewrite("google", &path, &google_body()).header("x-goog-api-key", key);
        let answer = request.send(managed.address()).await.unwrap();
        assert_eq!(answer.expect(200)["candidates"][0]["content"]["parts"][0]["text"], "Hello.");
        assert_eq!(merchant.charged(&answer).await["total_merchant_cost"], COST);
        // As a client of Azure sends its key.
        let request = rewrite("anthropic", url, &anthropic_body("gpt-4o")).header("api-key", key);
        let answer = request.send(managed.address()).await.unwrap();
        assert_eq!(answer.expect(200)["content"][0]["text"], "Hello.");
        assert_eq!(merchant.charged(&answer).await["total_merchant_cost"], COST);
        let body = json!({"model": "gpt-4o", "input": "Hi"});
        let answer = managed.send(key, rewrite("openai", &format!("{url}/responses"), &body)).await;
        assert_eq!(answer.expect(200)["object"], "response");
        for call in endpoint.calls() {
            let sent: Value = serde_json::from_slice(&call.body).unwrap();
            assert_eq!(sent["model"], "gpt-4o", "{sent}");
            assert_eq!(sent["messages"][0]["role"], "user", "{sent}");
            assert!(!format!("{:?}", call.head).contains(key.as_str()));
        }
        // The same format on both sides: nothing is changed.
        let body = r#"{ "model":"gpt-4o", "messages":[] , "x":1.50}"#;
        let request = Request::new("POST", format!("/v1/rewrite/openai/{url}"))
            .header("Content-Type", "application/json");
        let same = managed.send(key, request.body(Body::Whole(body.as_bytes().to_vec()))).await;
        assert_eq!((same.status, same.text().as_str()), (200, COMPLETION));
        assert_eq!(endpoint.calls().pop().unwrap().body, body.as_bytes());
        merchant.nothing_is_held().await;
    });
}

#[test]
fn anthropics_limit_is_the_catalogues_where_the_client_names_none() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let key = &merchant.secret_key;
        let endpoint = managed.anthropic.endpoint_at("/v1/messages", |_| json_text(200, MESSAGE));
        let chat = |model: &str| json!({"model": model, "messages": [{"role": "user", "content": "Hi"}]});
        let response = |model: &str| json!({"model": model, "input": "Hi"});
        // As deploy/prices/catalogue.json has them.
        for (model, most) in [("claude-haiku-4-5", 64_000), ("claude-sonnet-4-6", 128_000)] {
            for request in [
                rewrite("openai", &endpoint.url, &chat(model)),
                Request::new("POST", "/v1/chat/completions").json(&chat(model)),
                Request::new("POST", "/v1/responses").json(&response(model)),
            ] {
                managed.send(key, request).await.expect(200);
                let sent: Value = serde_json::from_slice(&endpoint.calls().pop().unwrap().body).unwrap();
                assert_eq!(sent["max_tokens"], most, "{model}: {sent}");
            }
        }
        // The caller's own key calls a model that the catalogue does not have.
        let calls = endpoint.calls().len();
        let own = token(&json!({"secret_key": key, "provider_key": "sk-own"}));
        let refused = managed.send(&own, rewrite("openai", &endpoint.url, &chat("claude-unlisted"))).await;
        let error = refused.refused(400, "conversion_unsupported");
        assert_eq!(error["issues"][0]["path"], json!(["max_completion_tokens"]), "{error}");
        assert_eq!(endpoint.calls().len(), calls);
        merchant.nothing_is_held().await;
    });
}

#[test]
fn a_field_without_a_counterpart_is_named_to_a_client_of_each_format() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let (completions, messages) = (completions(&managed), messages(&managed));
        let mut biased = openai_body("claude-haiku-4-5");
        biased["logit_bias"] = json!({"1": 5});
        let mut top = anthropic_body("gpt-4o");
        top["top_k"] = json!(5);
        let mut google_top = google_body();
        google_top["generationConfig"]["topK"] = json!(5);
        let google = format!("{}/v1beta/models/gpt-4o:generateContent", completions.url);
        // With the managed key, Google could read a file of the operator's.
        let gemini =
            format!("http://{}/v1beta/models/gemini-2.5-flash:generateContent", managed.google.authority());
        let file = "https://generativelanguage.googleapis.com/v1beta/files/1";
        let mut pictured = openai_body("gemini-2.5-flash");
        let image = json!([{"type": "image_url", "image_url": {"url": file}}]);
        pictured["messages"] = json!([{"role": "user", "content": image}]);
        let events = merchant.events().await.len();
        for (format, url, body, path) in [
            ("openai", &messages.url, &biased, json!(["logit_bias"])),
            ("anthropic", &completions.url, &top, json!(["top_k"])),
            ("google", &google, &google_top, json!(["generationConfig", "topK"])),
            ("openai", &gemini, &pictured, json!(["messages", "0", "content", "0", "image_url", "url"])),
        ] {
            let refused = managed.send(&merchant.secret_key, rewrite(format, url, body)).await;
            let error = refused.refused(400, "conversion_unsupported");
            assert_eq!(error["issues"][0]["path"], path, "{error}");
        }
        assert_eq!(merchant.events().await.len(), events, "a refused call is recorded");
        assert!(completions.calls().is_empty() && messages.calls().is_empty());
    });
}

#[test]
fn a_url_that_is_no_endpoint_or_holds_a_credential_is_refused() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let secret = &merchant.secret_key;
        let endpoint = completions(&managed);
        let events = merchant.events().await.len();
        let origin = format!("http://{}", managed.openai.authority());
        let urls = [
            "https://api.openai.com/v1".to_owned(),
            "https://api.openai.com/v1/models".to_owned(),
            "ftp://api.openai.com/v1/chat/completions".to_owned(),
            encoded(&encoded(&endpoint.url)),
            format!("{origin}/{secret}/chat/completions"),
            format!("{origin}/{}/chat/completions", encoded(&encoded(secret))),
            format!("{}?x={secret}", endpoint.url),
            format!("{}%3Fkey%3D{secret}", encoded(&endpoint.url)),
            format!("{origin}%5C@internal/chat/completions"),
            format!("{origin}/x/../chat/completions"),
            "user@127.0.0.1/v1/chat/completions".to_owned(),
        ];
        for url in urls {
            let refused = managed.send(secret, rewrite("anthropic", &url, &anthropic_body("gpt-4o"))).await;
            assert_eq!(refused.refused(400, "forward_url_invalid")["status"], 400, "{url}");
        }
        for target in
            ["/v1/rewrite/mistral/x/messages", "/v1/rewrite/%ff/%ff", "/v1/rewrite/OpenAI/h/messages"]
        {
            let request = Request::new("POST", target).json(&json!({}));
            managed.send(secret, request).await.refused(404, "route_not_found");
        }
        let url = format!("{}/v1beta/models/gpt-4o:streamGenerateContent", endpoint.url);
        let error = managed.send(secret, rewrite("google", &url, &google_body())).await;
        assert_eq!(error.refused(400, "conversion_unsupported")["issues"][0]["path"], json!(["alt"]));
        let twice = r#"{"model":"gpt-4o","messages":[],"max_tokens":1,"model":"gpt-4o-mini"}"#;
        let request = Request::new("POST", format!("/v1/rewrite/anthropic/{}", endpoint.url));
        let request =
            request.header("Content-Type", "application/json").body(Body::Whole(twice.as_bytes().to_vec()));
        managed.send(secret, request).await.refused(400, "validation_error");
        assert!(endpoint.calls().is_empty());
        assert_eq!(merchant.events().await.len(), events);
    });
}

#[test]
fn private_and_local_addresses_are_refused_by_the_guard_in_every_spelling() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let guarded = SideGateway::start(merchant.instance, &[]).await;
        let endpoint = merchant.instance.provider.endpoint_ending("/messages", |_| json_text(200, MESSAGE));
        let port = merchant.instance.provider.authority().split(':').nth(1).unwrap().to_owned();
        let call = async |gateway: &SideGateway, url: &str| {
            let request = rewrite("openai", url, &openai_body("m")).bearer(&merchant.secret_key);
            let response = request.send(gateway.address).await.unwrap();
            let code = response.json()["error"]["code"].as_str().map(str::to_owned);
            (response.status, code.unwrap_or_default())
        };
        let (forbidden, invalid) = ("forward_url_forbidden", "forward_url_invalid");
        for (host, code) in [
            ("127.0.0.1", forbidden),
            ("localhost", forbidden),
            ("0.0.0.0", forbidden),
            ("[::1]", forbidden),
            ("[::ffff:127.0.0.1]", forbidden),
            ("[64:ff9b::7f00:1]", forbidden),
            ("10.0.0.1", forbidden),
            ("169.254.169.254", forbidden),
            ("[fd00:ec2::254]", forbidden),
            // Some readers take these for addresses, so no URL may have them.
            ("127.1", invalid),
            ("2130706433", invalid),
            ("0x7f000001", invalid),
            ("0177.0.0.1", invalid),
        ] {
            let url = format!("{host}:{port}{}", endpoint.path);
            for url in [
                format!("http://{url}"),
                encoded(&format!("http://{url}")),
                format!("http:/{url}"),
                encoded(&url),
            ] {
                assert_eq!(call(&guarded, &url).await, (400, code.to_owned()), "{url}");
            }
        }
        assert!(endpoint.calls().is_empty(), "an internal address was called");
        // An allowance alone makes the difference.
        let allowing = SideGateway::start(merchant.instance, &["--allow-address=127.0.0.0/8"]).await;
        for host in ["127.0.0.1", "[::ffff:127.0.0.1]", "localhost"] {
            let url = format!("http://{host}:{port}{}", endpoint.path);
            assert_eq!(call(&allowing, &url).await.0, 200, "{host}");
        }
        assert_eq!(endpoint.calls().len(), 3);
        // This is a name, which has no address.
        let name = format!("http://127.0.0.1.:{port}{}", endpoint.path);
        for gateway in [&guarded, &allowing] {
            assert_eq!(call(gateway, &name).await, (502, "provider_unreachable".to_owned()));
        }
        assert_eq!(endpoint.calls().len(), 3);
    });
}

#[test]
fn an_unknown_provider_is_called_on_the_callers_key_and_only_its_fee_is_charged() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let (customer, meter) = (merchant.customer("10").await, merchant.call_meter("0.5").await);
        let endpoint =
            merchant.instance.provider.endpoint_ending("/v1/messages", |_| json_text(200, MESSAGE));
        let credential = token(&json!({
            "secret_key": merchant.secret_key, "customer_id": customer.id, "meter_slug": meter.slug, "provider_key": "sk-own",
        }));
        let request =
            rewrite("openai", &format!("{}/chat/completions", endpoint.url), &openai_body("a-model"));
        let response: Response = merchant.send(&credential, request).await;
        assert_eq!(response.expect(200)["choices"][0]["message"]["content"], "Hello.");
        let call = endpoint.only_call();
        assert_eq!(call.head.all("authorization"), ["Bearer sk-own"], "the slot that carried the credential");
        let metered = merchant.charged(&response).await;
        assert_eq!(metered["usage"]["tokens"], json!({"input": 1000, "output": 100}));
        assert_eq!(metered["total_wallet_cost"], "0.5000000000");
        merchant.nothing_is_held().await;
    });
}

#[test]
fn embeddings_pass_unchanged_to_a_provider_of_the_same_format_and_are_not_converted() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let answer = r#"{"object":"list","data":[],"usage":{"prompt_tokens":10000,"total_tokens":10000}}"#;
        let endpoint = managed.openai.endpoint_ending("/v1/embeddings", move |_| json_text(200, answer));
        let body = json!({"model": "text-embedding-3-small", "input": ["x", "y"]});
        for url in [endpoint.url.clone(), format!("{}/embeddings", endpoint.url)] {
            let response = managed.send(&merchant.secret_key, rewrite("openai", &url, &body)).await;
            assert_eq!((response.status, response.text().as_str()), (200, answer), "{url}");
            assert_eq!(merchant.charged(&response).await["model_cost"]["total"], "0.0002000000");
            assert_eq!(endpoint.calls().pop().unwrap().body, body.to_string().as_bytes());
        }
        let made = endpoint.calls().len();
        let answer = r#"{"embeddings":[{"values":[0.5]}],"usageMetadata":{"promptTokenCount":10000}}"#;
        let path = "/v1beta/models/gemini-embedding-001:batchEmbedContents";
        let googles = managed.google.endpoint_ending(path, move |_| json_text(200, answer));
        let texts = json!({"requests": [{"model": "models/gpt-4o", "content": {"parts": [{"text": "x"}]}}]});
        let response = managed.send(&merchant.secret_key, rewrite("google", &googles.url, &texts)).await;
        assert_eq!((response.status, response.text().as_str()), (200, answer));
        // The model is that of the URL, whatever the body names.
        assert_eq!(merchant.charged(&response).await["model_cost"]["total"], "0.0015000000");
        let call = googles.only_call();
        assert_eq!(
            (call.body.as_slice(), call.head.header("x-goog-api-key")),
            (texts.to_string().as_bytes(), Some("managed-google"))
        );
        let google =
            managed.google.endpoint_ending("/v1beta/models/m:embedContent", |_| json(200, &json!({})));
        let cohere = managed.openai.endpoint_ending("/v2/embed", |_| json(200, &json!({})));
        for (format, url) in [
            ("openai", google.url.clone()),
            ("openai", format!("{}/embeddings", google.url)),
            ("openai", format!("{}/embeddings", cohere.url)),
            ("anthropic", endpoint.url.clone()),
            ("anthropic", google.url.clone()),
            ("google", endpoint.url.clone()),
            ("google", format!("{}/v1beta/models/m:embedContent", endpoint.url)),
        ] {
            let refused = managed.send(&merchant.secret_key, rewrite(format, &url, &body)).await;
            let error = refused.refused(400, "conversion_unsupported");
            assert!(error["message"].as_str().unwrap().contains("embeddings are not converted"), "{error}");
        }
        assert_eq!(endpoint.calls().len(), made);
        assert!(google.calls().is_empty() && cohere.calls().is_empty());
        merchant.nothing_is_held().await;
    });
}
