//! The failures of a provider at the model endpoints: they pass with their status, in the format of the client (completion.md
//! section 11).

use farthing_tests::client::Request;
use farthing_tests::managed::Managed;
use farthing_tests::merchant::Merchant;
use farthing_tests::provider::{Endpoint, Provider, whole};
use farthing_tests::run;
use serde_json::{Value, json};

/// An endpoint that fails with `status` and `body`.
fn failing(provider: &Provider, path: &str, status: u16, body: &str) -> Endpoint {
    let body = body.to_owned();
    provider.endpoint_at(path, move |_| {
        whole(status, &[("Content-Type", "application/json"), ("Retry-After", "7")], body.as_bytes())
    })
}

fn call(path: &str, model: &str) -> Request {
    let body = match path {
        "/v1/responses" => json!({"model": model, "input": "Hi", "max_output_tokens": 100}),
        "/v1/embeddings" => json!({"model": model, "input": "Hi"}),
        _ => json!({"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 100}),
    };
    Request::new("POST", path).json(&body)
}

/// An error as a client of OpenAI's formats reads it.
fn openais(message: &str, kind: &str) -> Value {
    json!({"error": {"message": message, "type": kind, "param": null, "code": null}})
}

/// An error as a client of Anthropic's format reads it.
fn anthropics(message: &str, kind: &str) -> Value {
    json!({"type": "error", "error": {"type": kind, "message": message}})
}

#[test]
fn a_failure_of_the_provider_passes_with_its_status_in_the_format_of_each_client() {
    run(async {
        // Each provider's own status and names of a failure, and those that OpenAI's and Anthropic's clients know.
        for (status, anthropics_name, googles_name, openai_kind, anthropic_kind) in [
            (
                400,
                "invalid_request_error",
                "INVALID_ARGUMENT",
                "invalid_request_error",
                "invalid_request_error",
            ),
            (401, "authentication_error", "UNAUTHENTICATED", "authentication_error", "authentication_error"),
            (404, "not_found_error", "NOT_FOUND", "not_found_error", "not_found_error"),
            (429, "rate_limit_error", "RESOURCE_EXHAUSTED", "rate_limit_error", "rate_limit_error"),
            (500, "api_error", "INTERNAL", "server_error", "api_error"),
            (529, "overloaded_error", "UNAVAILABLE", "overloaded_error", "overloaded_error"),
        ] {
            let managed = Managed::start(&[]).await;
            let merchant = Merchant::funded("100").await;
            let of_openai =
                json!({"error": {"message": "Too much.", "type": "theirs", "param": null, "code": null}});
            let of_anthropic = anthropics("Too much.", anthropics_name);
            let of_google =
                json!({"error": {"code": status, "message": "Too much.", "status": googles_name}});
            let [of_openai, of_anthropic, of_google] =
                [of_openai, of_anthropic, of_google].map(|error| error.to_string());
            let google = "/v1beta/models/gemini-2.5-flash:generateContent";
            let endpoints = [
                failing(&managed.openai, "/v1/chat/completions", status, &of_openai),
                failing(&managed.openai, "/v1/responses", status, &of_openai),
                failing(&managed.openai, "/v1/embeddings", status, &of_openai),
                failing(&managed.anthropic, "/v1/messages", status, &of_anthropic),
                failing(&managed.google, google, status, &of_google),
            ];
            let (for_openai, for_anthropic) = (
                openais("Too much.", openai_kind).to_string(),
                anthropics("Too much.", anthropic_kind).to_string(),
            );
            let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap();
            for (path, model, expected) in [
                // Converted.
                ("/v1/chat/completions", "claude-haiku-4-5", &for_openai),
                ("/v1/chat/completions", "gemini-2.5-flash", &for_openai),
                ("/v1/responses", "claude-haiku-4-5", &for_openai),
                ("/v1/responses", "gemini-2.5-flash", &for_openai),
                ("/v1/messages", "gpt-4o", &for_anthropic),
                ("/v1/messages", "gemini-2.5-flash", &for_anthropic),
                // As the provider sends it.
                ("/v1/chat/completions", "gpt-4o", &of_openai),
                ("/v1/responses", "gpt-4o", &of_openai),
                ("/v1/embeddings", "text-embedding-3-small", &of_openai),
                ("/v1/messages", "claude-haiku-4-5", &of_anthropic),
            ] {
                let response = managed.send(&merchant.secret_key, call(path, model)).await;
                assert_eq!(response.status, status, "{path} {model}: {}", response.text());
                assert_eq!(response.json(), parsed(expected), "{status} {path} {model}");
                assert_eq!(response.head.header("content-type"), Some("application/json"), "{path} {model}");
                assert_eq!(response.head.header("retry-after"), Some("7"), "{path} {model}");
                let failed = merchant.failed(&response).await;
                assert_eq!(failed["reason"], "provider_status", "{path} {model}");
            }
            let calls = endpoints.iter().map(|endpoint| endpoint.calls().len());
            assert_eq!(calls.sum::<usize>(), 10, "{status}");
            merchant.nothing_is_held().await;
        }
    });
}
