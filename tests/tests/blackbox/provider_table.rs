//! Each built-in provider at each endpoint that it documents, whole and streamed, on the caller's own key and on a managed
//! key, against a stand-in that answers as the provider does. What passed is the table of `docs/providers.md`, which is
//! compared; `WRITE_TABLE=1` writes it.

use std::path::Path;

use farthing_tests::client::{Body, Request};
use farthing_tests::instance::Instance;
use farthing_tests::merchant::{Merchant, forward, token};
use farthing_tests::provider::{Endpoint, Provider, chunk, event_stream, json_text, last_chunk, whole};
use farthing_tests::run;
use serde_json::{Value, json};

use super::providers::{Keys, gateway_with, prices, tokens};

/// The columns of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Chat,
    Responses,
    Messages,
    GenerateContent,
    Embeddings,
    Speech,
    Transcription,
}

use Column::{Chat, Embeddings, GenerateContent, Messages, Responses, Speech, Transcription};

const COLUMNS: [(Column, &str); 7] = [
    (Chat, "chat"),
    (Responses, "responses"),
    (Messages, "messages"),
    (GenerateContent, "generateContent"),
    (Embeddings, "embeddings"),
    (Speech, "speech"),
    (Transcription, "transcription"),
];

/// The providers and the paths of the endpoints that they document.
pub(super) const PROVIDERS: [(&str, &[(Column, &str)]); 25] = [
    (
        "openai",
        &[
            (Chat, "/v1/chat/completions"),
            (Responses, "/v1/responses"),
            (Embeddings, "/v1/embeddings"),
            (Speech, "/v1/audio/speech"),
            (Transcription, "/v1/audio/transcriptions"),
        ],
    ),
    ("anthropic", &[(Messages, "/v1/messages"), (Chat, "/v1/chat/completions")]),
    (
        "google",
        &[
            (GenerateContent, "/v1beta/models/m:generateContent"),
            (Chat, "/v1beta/openai/chat/completions"),
            (Embeddings, "/v1beta/openai/embeddings"),
        ],
    ),
    ("deepseek", &[(Chat, "/chat/completions"), (Messages, "/anthropic/v1/messages")]),
    ("mistral", &[(Chat, "/v1/chat/completions"), (Embeddings, "/v1/embeddings")]),
    ("xai", &[(Chat, "/v1/chat/completions"), (Responses, "/v1/responses"), (Messages, "/v1/messages")]),
    (
        "groq",
        &[
            (Chat, "/openai/v1/chat/completions"),
            (Responses, "/openai/v1/responses"),
            (Speech, "/openai/v1/audio/speech"),
            (Transcription, "/openai/v1/audio/transcriptions"),
        ],
    ),
    (
        "together",
        &[
            (Chat, "/v1/chat/completions"),
            (Embeddings, "/v1/embeddings"),
            (Speech, "/v1/audio/speech"),
            (Transcription, "/v1/audio/transcriptions"),
        ],
    ),
    (
        "fireworks",
        &[
            (Chat, "/inference/v1/chat/completions"),
            (Responses, "/inference/v1/responses"),
            (Embeddings, "/inference/v1/embeddings"),
        ],
    ),
    ("cohere", &[(Chat, "/compatibility/v1/chat/completions"), (Embeddings, "/compatibility/v1/embeddings")]),
    ("cerebras", &[(Chat, "/v1/chat/completions")]),
    ("perplexity", &[(Chat, "/chat/completions")]),
    ("openrouter", &[(Chat, "/api/v1/chat/completions"), (Responses, "/api/v1/responses")]),
    ("deepinfra", &[(Chat, "/v1/openai/chat/completions"), (Embeddings, "/v1/openai/embeddings")]),
    ("nebius", &[(Chat, "/v1/chat/completions"), (Embeddings, "/v1/embeddings")]),
    ("sambanova", &[(Chat, "/v1/chat/completions")]),
    ("hyperbolic", &[(Chat, "/v1/chat/completions")]),
    ("moonshot", &[(Chat, "/v1/chat/completions"), (Messages, "/anthropic/v1/messages")]),
    ("zai", &[(Chat, "/api/paas/v4/chat/completions"), (Messages, "/api/anthropic/v1/messages")]),
    (
        "dashscope",
        &[(Chat, "/compatible-mode/v1/chat/completions"), (Embeddings, "/compatible-mode/v1/embeddings")],
    ),
    ("nvidia", &[(Chat, "/v1/chat/completions"), (Embeddings, "/v1/embeddings")]),
    ("github", &[(Chat, "/inference/chat/completions"), (Embeddings, "/inference/embeddings")]),
    ("huggingface", &[(Chat, "/v1/chat/completions"), (Responses, "/v1/responses")]),
    ("vercel", &[(Chat, "/v1/chat/completions"), (Embeddings, "/v1/embeddings")]),
    (
        "azure",
        &[
            (Chat, "/openai/deployments/m/chat/completions"),
            (Responses, "/openai/v1/responses"),
            (Embeddings, "/openai/deployments/m/embeddings"),
            (Speech, "/openai/deployments/s/audio/speech"),
            (Transcription, "/openai/deployments/t/audio/transcriptions"),
        ],
    ),
];

/// Cells with a test of their own: its file, which must have it.
const OWN_TESTS: [(&str, Column, &str, &str); 12] = [
    (
        "openai",
        Chat,
        "managed_streams",
        "stream_usage_is_requested_on_the_callers_behalf_and_removed_from_the_response",
    ),
    ("openai", Speech, "provider_endpoints", "speech_is_billed_by_the_characters_of_its_input"),
    (
        "openai",
        Transcription,
        "provider_endpoints",
        "a_transcription_is_billed_by_the_seconds_that_its_answer_reports",
    ),
    ("groq", Chat, "providers", "groqs_stream_reports_its_usage_in_a_member_of_its_own"),
    ("cohere", Chat, "providers", "cohere_is_metered_by_the_units_that_it_bills"),
    ("cohere", Embeddings, "providers", "cohere_is_metered_by_the_units_that_it_bills"),
    ("cohere", Chat, "providers", "coheres_own_chat_and_embeddings_are_charged_on_a_managed_key"),
    ("cohere", Embeddings, "providers", "coheres_own_chat_and_embeddings_are_charged_on_a_managed_key"),
    (
        "openrouter",
        Chat,
        "providers",
        "openrouters_usage_counts_its_cache_and_a_managed_call_chooses_no_other_price",
    ),
    (
        "xai",
        Messages,
        "providers",
        "an_openai_compatible_provider_that_serves_messages_reports_as_anthropic_does",
    ),
    (
        "azure",
        Chat,
        "providers",
        "azure_bills_by_the_deployment_in_the_url_and_takes_a_managed_key_at_a_named_host_alone",
    ),
    (
        "bedrock",
        Chat,
        "provider_endpoints",
        "bedrock_is_metered_on_the_callers_own_key_or_signature_in_each_of_its_forms",
    ),
];

const SOURCES: [(&str, &str); 3] = [
    ("managed_streams", include_str!("managed_streams.rs")),
    ("provider_endpoints", include_str!("provider_endpoints.rs")),
    ("providers", include_str!("providers.rs")),
];

/// What is asked, what is answered and what is metered at an endpoint.
struct Case {
    request: Request,
    endpoint: Endpoint,
    /// The member of the usage that counts, and its value.
    counted: (&'static str, Value),
    /// What the prices of the test make of it.
    cost: &'static str,
}

fn case(provider: &Provider, column: Column, path: &str) -> Case {
    let speech = || whole(200, &[("Content-Type", "audio/mpeg")], b"\xff\xfb\x90");
    let endpoint = provider.endpoint_ending(path, move |_| match column {
        Chat => json_text(
            200,
            r#"{"id":"c-1","choices":[],"usage":{"prompt_tokens":1000,"completion_tokens":50,"total_tokens":1050}}"#,
        ),
        Responses => json_text(
            200,
            r#"{"id":"resp_1","output":[],"usage":{"input_tokens":1000,"output_tokens":50,"total_tokens":1050}}"#,
        ),
        Messages => json_text(
            200,
            r#"{"id":"msg_1","type":"message","content":[],"usage":{"input_tokens":1000,"output_tokens":50}}"#,
        ),
        GenerateContent => json_text(
            200,
            r#"{"candidates":[],"usageMetadata":{"promptTokenCount":1000,"candidatesTokenCount":50,"totalTokenCount":1050}}"#,
        ),
        Embeddings => json_text(200, r#"{"data":[],"usage":{"prompt_tokens":1000,"total_tokens":1000}}"#),
        Speech => speech(),
        Transcription => json_text(200, r#"{"text":"x","usage":{"type":"duration","seconds":9}}"#),
    });
    let post = forward("POST", &endpoint.url);
    let (request, counted, cost) = match column {
        Chat | Responses | Messages => {
            let body = json!({"model": "m", "max_tokens": 100, "messages": [], "input": []});
            (post.json(&body), ("tokens", tokens(1000, 50)), "0.0022000000")
        }
        GenerateContent => {
            let body = json!({"contents": [], "generationConfig": {"maxOutputTokens": 100}});
            (post.json(&body), ("tokens", tokens(1000, 50)), "0.0022000000")
        }
        Embeddings => {
            (post.json(&json!({"model": "m", "input": "x"})), ("tokens", tokens(1000, 0)), "0.0020000000")
        }
        Speech => {
            let body = json!({"model": "s", "voice": "v", "input": "café 😀"});
            (post.json(&body), ("characters", json!({"input": 6, "output": 0})), "0.0060000000")
        }
        Transcription => {
            let form = concat!(
                "--b1\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nt\r\n",
                "--b1\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.mp3\"\r\n",
                "Content-Type: audio/mpeg\r\n\r\nID3\r\n--b1--\r\n"
            );
            let post = post.header("Content-Type", "multipart/form-data; boundary=b1");
            let post = post.body(Body::Whole(form.as_bytes().to_vec()));
            (post, ("seconds", json!({"input": "9", "output": "0"})), "0.0090000000")
        }
    };
    Case { request, endpoint, counted, cost }
}

/// The call again as a stream, which reports in its last event; None where the endpoint has no streams. It asks for its
/// usage where `asks` says so; without, the gateway does so on a managed key, if the provider must be asked.
fn streamed(provider: &Provider, column: Column, path: &str, asks: bool) -> Option<(Request, Endpoint)> {
    let events: &[&str] = match column {
        Chat => &[
            r#"{"id":"c-1","choices":[{"delta":{"content":"x"}}]}"#,
            r#"{"id":"c-1","choices":[],"usage":{"prompt_tokens":1000,"completion_tokens":50,"total_tokens":1050}}"#,
            "[DONE]",
        ],
        Responses => &[
            r#"{"type":"response.created","response":{"id":"resp_1"}}"#,
            r#"{"type":"response.completed","response":{"id":"resp_1","usage":{"input_tokens":1000,"output_tokens":50,"total_tokens":1050}}}"#,
        ],
        Messages => &[
            r#"{"type":"message_start","message":{"id":"msg_1","usage":{"input_tokens":1000,"output_tokens":1}}}"#,
            r#"{"type":"message_delta","usage":{"output_tokens":50}}"#,
            r#"{"type":"message_stop"}"#,
        ],
        GenerateContent => &[
            r#"{"candidates":[{"content":{"parts":[{"text":"x"}]}}],"usageMetadata":{"promptTokenCount":1000,"candidatesTokenCount":1}}"#,
            r#"{"candidates":[],"usageMetadata":{"promptTokenCount":1000,"candidatesTokenCount":50,"totalTokenCount":1050}}"#,
        ],
        Embeddings | Speech | Transcription => return None,
    };
    let path = path.replace(":generateContent", ":streamGenerateContent");
    let endpoint = provider.endpoint_ending(&path, move |_| {
        let events = events.iter().map(|data| chunk(format!("data: {data}\n\n")));
        std::iter::once(event_stream()).chain(events).chain([last_chunk()]).collect()
    });
    if column == GenerateContent {
        let body = json!({"contents": [], "generationConfig": {"maxOutputTokens": 100}});
        return Some((forward("POST", &format!("{}?alt=sse", endpoint.url)).json(&body), endpoint));
    }
    let mut body = json!({"model": "m", "max_tokens": 100, "messages": [], "input": [], "stream": true});
    if asks {
        body["stream_options"] = json!({"include_usage": true});
    }
    Some((forward("POST", &endpoint.url).json(&body), endpoint))
}

/// Prices of the same numbers at every provider.
pub(super) fn price_list() -> String {
    let models = PROVIDERS.iter().flat_map(|(provider, _)| {
        [
            format!(r#"{{"provider":"{provider}","model":"m","input_per_1m":"2","output_per_1m":"4"}}"#),
            format!(r#"{{"provider":"{provider}","model":"s","per_character":"0.001"}}"#),
            format!(r#"{{"provider":"{provider}","model":"t","per_second":"0.001"}}"#),
        ]
    });
    prices(&models.collect::<Vec<_>>().join(","))
}

#[test]
fn each_provider_is_metered_at_each_endpoint_of_the_table_in_the_documents() {
    run(async {
        // The fixture has these at hosts of its own.
        let fixed = ["openai", "anthropic", "google", "mistral"];
        let names = PROVIDERS.iter().map(|(name, _)| *name);
        let others: Vec<&str> = names.filter(|name| !fixed.contains(name)).collect();
        let mistrals_key = Instance::shared().await.provider_key("mistral", "sk-managed-mistral");
        let more = [price_list(), mistrals_key];
        let more: Vec<&str> = more.iter().map(String::as_str).collect();
        let (managed, providers) = gateway_with(&others, Keys::Managed, &more).await;
        let merchant = Merchant::funded("100").await;
        let own = token(&json!({"secret_key": merchant.secret_key, "provider_key": "sk-theirs"}));
        let mut passed = Vec::new();
        for (name, endpoints) in PROVIDERS {
            let provider = match name {
                "openai" => &managed.openai,
                "anthropic" => &managed.anthropic,
                "google" => &managed.google,
                "mistral" => &managed.mistral,
                name => &providers[others.iter().position(|other| *other == name).unwrap()],
            };
            for &(column, path) in endpoints {
                let case = case(provider, column, path);
                // On a managed key transcriptions are sold at OpenAI alone.
                let is_sold = column != Transcription || name == "openai";
                let credentials = [(&own, "unmanaged")].into_iter();
                let credentials = credentials.chain(is_sold.then_some((&merchant.secret_key, "managed")));
                for (credential, key_type) in credentials {
                    let response = managed.send(credential, case.request.clone()).await;
                    assert_eq!(response.status, 200, "{name}{path}: {}", response.text());
                    let metered = merchant.charged(&response).await;
                    let (unit, count) = &case.counted;
                    assert_eq!(metered["usage"][unit], *count, "{name}{path}: {metered}");
                    assert_eq!(metered["model_cost"]["total"], case.cost, "{name}{path}");
                    let charged = if key_type == "managed" { case.cost } else { "0.0000000000" };
                    assert_eq!(metered["total_merchant_cost"], charged, "{name}{path}, {key_type}");
                    let shown = merchant.shown(&response.request_id(), "completed").await;
                    assert_eq!(
                        (&shown["provider"], &shown["provider_key_type"], shown.get("marks")),
                        (&json!(name), &json!(key_type), None),
                        "{shown}"
                    );
                }
                assert_eq!(case.endpoint.calls().len(), if is_sold { 2 } else { 1 });
                for (credential, is_managed) in [(&own, false), (&merchant.secret_key, true)] {
                    let Some((request, endpoint)) = streamed(provider, column, path, !is_managed) else {
                        continue;
                    };
                    let response = managed.send(credential, request).await;
                    if (name, is_managed) == ("cohere", true) {
                        // Whether it would report its usage is not known.
                        response.refused(400, "validation_error");
                        assert!(endpoint.calls().is_empty(), "{name}{path}");
                        continue;
                    }
                    assert_eq!(response.status, 200, "{name}{path}: {}", response.text());
                    let metered = merchant.charged(&response).await;
                    assert_eq!(metered["usage"]["tokens"], tokens(1000, 50), "{name}{path}: {metered}");
                    let charged = if is_managed { case.cost } else { "0.0000000000" };
                    assert_eq!(metered["total_merchant_cost"], charged, "{name}{path}");
                    assert_eq!(metered["marks"], json!([]), "{name}{path}: {metered}");
                    let shown = merchant.shown(&response.request_id(), "completed").await;
                    let key_type = if is_managed { "managed" } else { "unmanaged" };
                    assert_eq!(shown["provider_key_type"], key_type, "{name}{path}");
                    assert_eq!(endpoint.calls().len(), 1);
                }
                passed.push((name, column));
            }
        }
        merchant.nothing_is_held().await;
        compare_table(&table(&passed));
    });
}

/// The table: 1 is this test, the other numbers are [`OWN_TESTS`].
fn table(passed: &[(&str, Column)]) -> String {
    let mut tests = vec![("provider_table", this_test())];
    for (_, _, file, test) in OWN_TESTS {
        let (_, source) = SOURCES.iter().find(|(name, _)| *name == file).unwrap();
        assert!(source.contains(&format!("#[test]\nfn {test}()")), "{file}.rs has no test {test}");
        if !tests.contains(&(file, test)) {
            tests.push((file, test));
        }
    }
    let number = |test: &str| tests.iter().position(|(_, name)| *name == test).unwrap() + 1;
    let mut lines = vec![
        format!("| provider | {} |", COLUMNS.map(|(_, title)| title).join(" | ")),
        format!("|---{}|", "|---".repeat(COLUMNS.len())),
    ];
    for name in PROVIDERS.iter().map(|(name, _)| *name).chain(["bedrock"]) {
        let cells = COLUMNS.map(|(column, _)| {
            let mut numbers = Vec::new();
            if passed.contains(&(name, column)) {
                numbers.push(1);
            }
            let of_cell = OWN_TESTS.iter().filter(|(provider, of, ..)| (*provider, *of) == (name, column));
            numbers.extend(of_cell.map(|(_, _, _, test)| number(test)));
            numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
        });
        lines.push(format!("| `{name}` | {} |", cells.join(" | ")));
    }
    lines.push(String::new());
    for (at, (file, test)) in tests.iter().enumerate() {
        lines.push(format!("{}. `{file}::{test}`", at + 1));
    }
    lines.join("\n")
}

fn this_test() -> &'static str {
    "each_provider_is_metered_at_each_endpoint_of_the_table_in_the_documents"
}

const BEGINNING: &str = "<!-- table: provider_table.rs -->\n";
const END: &str = "\n<!-- end -->";

fn compare_table(table: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/providers.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGINNING).expect("docs/providers.md has the mark of the table");
    let (written, after) = rest.split_once(END).expect("docs/providers.md has the end of the table");
    if std::env::var_os("WRITE_TABLE").is_some() {
        std::fs::write(&path, format!("{before}{BEGINNING}{table}{END}{after}")).unwrap();
    } else {
        assert_eq!(written, table, "WRITE_TABLE=1 writes what passed into docs/providers.md");
    }
}

/// A name of a test is in backticks, and longer than any other name of the page.
const LEAST_WORDS_OF_A_TEST: usize = 5;

#[test]
fn every_test_that_the_page_of_providers_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = String::new();
    for folder in
        ["tests/blackbox", "tests/attacks", "../gateway/api/src/providers", "../gateway/api/src/forward"]
    {
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "rs") {
                sources.push_str(&std::fs::read_to_string(path).unwrap());
            }
        }
    }
    let page = std::fs::read_to_string(root.join("../docs/providers.md")).unwrap();
    let quoted = page.split('`').skip(1).step_by(2).map(|name| name.rsplit("::").next().unwrap());
    let is_test = |name: &&str| {
        name.split('_').count() >= LEAST_WORDS_OF_A_TEST
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    };
    let named: Vec<&str> = quoted.filter(is_test).collect();
    assert!(named.len() > 10, "the page names its tests: {named:?}");
    for name in named {
        assert!(sources.contains(&format!("#[test]\nfn {name}()")), "there is no test {name}");
    }
}
