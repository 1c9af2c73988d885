//! The built-in providers at the model endpoints: each is called where it serves chat completions, and where one cannot be
//! called, the refusal says why.

use farthing_tests::client::Request;
use farthing_tests::instance::Instance;
use farthing_tests::managed::Managed;
use farthing_tests::merchant::{Merchant, token};
use farthing_tests::provider::{Endpoint, chunk, event_stream, json_text, last_chunk};
use farthing_tests::run;
use serde_json::{Value, json};

use super::provider_calls::{Column, PROVIDERS, price_list};
use super::provider_table::provider_called;
use super::providers::{Keys, gateway_with, prices, tokens};

const COMPLETION: &str = r#"{"id":"c-1","object":"chat.completion","created":1700000000,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hello."},"finish_reason":"stop"}],"usage":{"prompt_tokens":1000,"completion_tokens":50,"total_tokens":1050}}"#;

const MESSAGE: &str = r#"{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"Hello."}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":1000,"output_tokens":50}}"#;

const GENERATED: &str = r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"Hello."}]},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":1000,"candidatesTokenCount":50,"totalTokenCount":1050},"modelVersion":"m","responseId":"r-1"}"#;

const RESPONSE: &str = r#"{"id":"resp_1","object":"response","created_at":1700000000,"status":"completed","model":"m","output":[{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Hello.","annotations":[]}]}],"usage":{"input_tokens":1000,"output_tokens":50,"total_tokens":1050}}"#;

const EMBEDDINGS: &str = r#"{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5]}],"model":"m","usage":{"prompt_tokens":1000,"total_tokens":1000}}"#;

/// Where a call of `/v1/chat/completions` for a model of a provider arrives, and the answer there.
fn chat_of_model_endpoint(name: &str) -> (String, &'static str) {
    match name {
        "anthropic" => ("/v1/messages".to_owned(), MESSAGE),
        "google" => ("/v1beta/models/m:generateContent".to_owned(), GENERATED),
        // Each of these documents a second path.
        "deepseek" => ("/v1/chat/completions".to_owned(), COMPLETION),
        "azure" => ("/openai/v1/chat/completions".to_owned(), COMPLETION),
        name => {
            let (_, endpoints) = PROVIDERS.iter().find(|(provider, _)| *provider == name).unwrap();
            let (_, path) = endpoints.iter().find(|(column, _)| *column == Column::Chat).unwrap();
            ((*path).to_owned(), COMPLETION)
        }
    }
}

#[test]
fn each_provider_is_called_and_metered_by_the_name_of_its_model() {
    run(async {
        let fixed = ["openai", "anthropic", "google", "mistral"];
        let names = PROVIDERS.iter().map(|(name, _)| *name);
        let others: Vec<&str> = names.filter(|name| !fixed.contains(name)).collect();
        let mistrals_key = Instance::shared().await.provider_key("mistral", "sk-managed-mistral");
        let prices = price_list();
        let (managed, providers) = gateway_with(&others, Keys::Managed, &[&prices, &mistrals_key]).await;
        let merchant = Merchant::funded("100").await;
        let own = token(&json!({"secret_key": merchant.secret_key, "provider_key": "sk-theirs"}));
        let listed = async |to: &Managed| -> Vec<(String, String)> {
            let listed = to.send(&merchant.secret_key, Request::new("GET", "/v1/models")).await.expect(200);
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let models = listed["data"].as_array().unwrap().iter();
            models.map(|model| (text(&model["owned_by"]), text(&model["id"]))).collect()
        };
        let models = listed(&managed).await;
        for (name, _) in PROVIDERS {
            let provider = provider_called(name, &managed, &others, &providers);
            let (path, answer) = chat_of_model_endpoint(name);
            let endpoint = provider.endpoint_at(&path, move |_| json_text(200, answer));
            let body = json!({
                "model": format!("{name}/m"), "max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}],
            });
            for (credential, key_type) in [(&own, "unmanaged"), (&merchant.secret_key, "managed")] {
                let request = Request::new("POST", "/v1/chat/completions").json(&body);
                let response = managed.send(credential, request).await;
                assert_eq!(response.status, 200, "{name}: {}", response.text());
                assert_eq!(response.json()["choices"][0]["message"]["content"], "Hello.", "{name}");
                let metered = merchant.charged(&response).await;
                assert_eq!(metered["usage"]["tokens"], tokens(1000, 50), "{name}: {metered}");
                assert_eq!(metered["model_cost"]["total"], "0.0022000000", "{name}");
                let shown = merchant.shown(&response.request_id(), "completed").await;
                assert_eq!(
                    (&shown["provider"], &shown["provider_key_type"], &shown["endpoint"]),
                    (&json!(name), &json!(key_type), &json!(format!("POST {}", endpoint.url))),
                    "{shown}"
                );
            }
            assert_eq!(endpoint.calls().len(), 2, "{name}");
            // The name alone leads to the first provider in the table.
            let listed_as = if name == "openai" { "m".to_owned() } else { format!("{name}/m") };
            let is_called_m = |id: &str| id == "m" || id.ends_with("/m");
            let of_provider = models.iter().filter(|(owner, id)| owner == name && is_called_m(id));
            let ids: Vec<_> = of_provider.map(|(_, id)| id).collect();
            assert_eq!(ids, [&listed_as], "{name} is listed once");
        }
        merchant.nothing_is_held().await;
        // Where the operator names no resource of Azure's and no region of Bedrock's, none is called and none is listed.
        let elsewhere = Managed::start(&[&prices]).await;
        assert!(listed(&elsewhere).await.iter().all(|(name, _)| name != "azure"));
        let events = merchant.events().await.len();
        for model in ["azure/m", "bedrock/openai.m", "bedrock/amazon.nova"] {
            for credential in [&own, &merchant.secret_key] {
                let request = Request::new("POST", "/v1/chat/completions")
                    .json(&json!({"model": model, "messages": []}));
                let refused = elsewhere.send(credential, request).await.refused(400, "validation_error");
                let why = refused["issues"][0]["message"].as_str().unwrap();
                let reason = if model.contains("amazon") { "not converted" } else { "--provider-host" };
                assert!(why.contains(reason), "{model}: {refused}");
            }
        }
        assert_eq!(merchant.events().await.len(), events);
    });
}

/// Where the document says that the model endpoints call a provider.
struct Served {
    provider: String,
    /// The path for a call of `/v1/responses`.
    responses: String,
    /// The path for a call of `/v1/embeddings`, if they are served.
    embeddings: Option<String>,
}

/// The rows of the table of model endpoints in `docs/providers.md`.
fn served_by_the_document() -> Vec<Served> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/providers.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (_, section) = page.split_once("\n## Model endpoints\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let rows = rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [provider, chat, responses, embeddings] = cells[..] else { panic!("four cells: {row}") };
        let quoted = |cell: &str| cell.split('`').nth(1).map(|path| path.replace("MODEL", "m"));
        let embeddings = match embeddings {
            "none" => None,
            path => Some(quoted(path).unwrap()),
        };
        let responses = if responses == "the same" { quoted(chat) } else { quoted(responses) };
        Served { provider: quoted(provider).unwrap(), responses: responses.unwrap(), embeddings }
    });
    rows.collect()
}

#[test]
fn responses_and_embeddings_are_served_and_metered_at_each_provider_where_the_document_says_so() {
    run(async {
        let fixed = ["openai", "anthropic", "google", "mistral"];
        let served = served_by_the_document();
        let names = || served.iter().map(|row| row.provider.as_str());
        let known = PROVIDERS.iter().map(|(name, _)| *name).chain(["bedrock"]);
        assert_eq!(names().collect::<Vec<_>>(), known.collect::<Vec<_>>(), "the rows of the document");
        let others: Vec<&str> = names().filter(|name| !fixed.contains(name)).collect();
        let mistrals_key = Instance::shared().await.provider_key("mistral", "sk-managed-mistral");
        let prices = price_list();
        let (managed, providers) = gateway_with(&others, Keys::Managed, &[&prices, &mistrals_key]).await;
        let merchant = Merchant::funded("100").await;
        let own = token(&json!({"secret_key": merchant.secret_key, "provider_key": "sk-theirs"}));
        for Served { provider: name, responses, embeddings } in &served {
            let provider = provider_called(name, &managed, &others, &providers);
            // Of Bedrock's models only these are served, on the caller's own key.
            let model = if name == "bedrock" { "bedrock/openai.m".to_owned() } else { format!("{name}/m") };
            let answer = match responses {
                path if path.ends_with("/chat/completions") => COMPLETION,
                path if path.ends_with("/messages") => MESSAGE,
                path if path.ends_with(":generateContent") => GENERATED,
                path if path.ends_with("/responses") => RESPONSE,
                path => panic!("{name} has a path of no format: {path}"),
            };
            let responses = provider.endpoint_at(responses, move |_| json_text(200, answer));
            let embeddings =
                embeddings.as_ref().map(|path| provider.endpoint_at(path, |_| json_text(200, EMBEDDINGS)));
            let ask = Request::new("POST", "/v1/responses");
            let ask = ask.json(&json!({"model": model, "max_output_tokens": 100, "input": "Hi"}));
            let embed = Request::new("POST", "/v1/embeddings").json(&json!({"model": model, "input": "x"}));
            for (credential, key_type) in [(&own, "unmanaged"), (&merchant.secret_key, "managed")] {
                if (name.as_str(), key_type) == ("bedrock", "managed") {
                    managed.send(credential, ask.clone()).await.refused(400, "model_not_priced");
                    managed.send(credential, embed.clone()).await.refused(404, "model_not_found");
                    continue;
                }
                let metered = async |request: &Request, endpoint: &Endpoint, counted: Value, cost: &str| {
                    let response = managed.send(credential, request.clone()).await;
                    assert_eq!(response.status, 200, "{name}: {}", response.text());
                    let metered = merchant.charged(&response).await;
                    assert_eq!(metered["usage"]["tokens"], counted, "{name}: {metered}");
                    if name != "bedrock" {
                        assert_eq!(metered["model_cost"]["total"], cost, "{name}");
                    }
                    let charged = if key_type == "managed" { cost } else { "0.0000000000" };
                    assert_eq!(metered["total_merchant_cost"], charged, "{name}, {key_type}");
                    let shown = merchant.shown(&response.request_id(), "completed").await;
                    assert_eq!(
                        (&shown["provider"], &shown["provider_key_type"], &shown["endpoint"]),
                        (&json!(name), &json!(key_type), &json!(format!("POST {}", endpoint.url))),
                        "{shown}"
                    );
                    response
                };
                let response = metered(&ask, &responses, tokens(1000, 50), "0.0022000000").await;
                let output = &response.json()["output"];
                assert_eq!(output[0]["content"][0]["text"], "Hello.", "{name}: {}", response.text());
                match &embeddings {
                    Some(endpoint) => {
                        let response = metered(&embed, endpoint, tokens(1000, 0), "0.0020000000").await;
                        assert_eq!(response.text(), EMBEDDINGS, "{name}");
                        let sent: Value =
                            serde_json::from_slice(&endpoint.calls().pop().unwrap().body).unwrap();
                        assert_eq!(sent, json!({"model": "m", "input": "x"}), "{name}");
                    }
                    None => {
                        managed.send(credential, embed.clone()).await.refused(404, "model_not_found");
                    }
                }
            }
        }
        merchant.nothing_is_held().await;
    });
}

#[test]
fn openais_models_at_bedrock_are_called_on_the_callers_own_key_where_the_operator_names_a_region() {
    run(async {
        let prices = prices(
            r#"{"provider":"bedrock","model":"openai.m","input_per_1m":"2","output_per_1m":"4"},{"provider":"bedrock","model":"amazon.m","input_per_1m":"2","output_per_1m":"4"}"#,
        );
        let (managed, providers) = gateway_with(&["bedrock"], Keys::Managed, &[&prices]).await;
        let merchant = Merchant::funded("100").await;
        let own = token(&json!({"secret_key": merchant.secret_key, "provider_key": "ABSK-theirs"}));
        let path = "/openai/v1/chat/completions";
        let endpoint = providers[0].endpoint_at(path, move |call| {
            let body: Value = serde_json::from_slice(&call.body).unwrap();
            if body["stream"] != json!(true) {
                return json_text(200, COMPLETION);
            }
            assert_eq!(body["stream_options"], json!({"include_usage": true}));
            let events = [
                r#"{"id":"c-1","model":"m","choices":[{"index":0,"delta":{"content":"Hello."},"finish_reason":"stop"}]}"#,
                r#"{"id":"c-1","model":"m","choices":[],"usage":{"prompt_tokens":1000,"completion_tokens":50,"total_tokens":1050}}"#,
                "[DONE]",
            ];
            let events = events.into_iter().map(|data| chunk(format!("data: {data}\n\n")));
            std::iter::once(event_stream()).chain(events).chain([last_chunk()]).collect()
        });
        let message = |model: &str, stream: bool| {
            let messages = json!([{"role": "user", "content": "Hi"}]);
            let body = json!({"model": model, "max_tokens": 100, "messages": messages, "stream": stream});
            Request::new("POST", "/v1/messages").json(&body)
        };
        for (model, stream) in [("bedrock/openai.m", false), ("bedrock/openai.m", true)] {
            let response = managed.send(&own, message(model, stream)).await;
            assert_eq!((response.status, response.complete), (200, true), "{}", response.text());
            assert!(response.text().contains("Hello."), "{}", response.text());
            let metered = merchant.charged(&response).await;
            assert_eq!(metered["usage"]["tokens"], tokens(1000, 50), "stream: {stream}");
            assert_eq!(metered["model_cost"]["total"], "0.0022000000", "stream: {stream}");
            assert_eq!(metered["total_merchant_cost"], "0.0000000000", "the provider bills its owner");
            let shown = merchant.shown(&response.request_id(), "completed").await;
            assert_eq!(shown["provider"], "bedrock");
            let call = endpoint.calls().pop().unwrap();
            let sent: Value = serde_json::from_slice(&call.body).unwrap();
            assert_eq!(sent["model"], "openai.m");
            assert_eq!((&sent["max_completion_tokens"], &sent["max_tokens"]), (&json!(100), &Value::Null));
            assert_eq!(call.head.all("authorization"), ["Bearer ABSK-theirs"]);
        }
        // Which endpoints are sold on a managed key is for Bedrock's own formats.
        let refused = managed.send(&merchant.secret_key, message("bedrock/openai.m", false)).await;
        let refused = refused.refused(400, "model_not_priced");
        assert!(refused["message"].as_str().unwrap().contains("send your own"), "{refused}");
        let refused = managed.send(&own, message("bedrock/amazon.m", false)).await;
        assert_eq!(refused.refused(400, "validation_error")["issues"][0]["path"], json!(["model"]));
        assert_eq!(endpoint.calls().len(), 2);
        let listed = managed.send(&merchant.secret_key, Request::new("GET", "/v1/models")).await.expect(200);
        let models = listed["data"].as_array().unwrap().iter();
        let of_bedrock = models.filter(|model| model["owned_by"] == "bedrock").map(|model| &model["id"]);
        assert_eq!(of_bedrock.collect::<Vec<_>>(), ["openai.m"]);
        merchant.nothing_is_held().await;
    });
}
