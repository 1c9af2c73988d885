//! Calls of the rewrite endpoint whose client and provider speak the same format: nothing of them is converted.

use farthing_tests::client::Request;
use farthing_tests::managed::Managed;
use farthing_tests::merchant::Merchant;
use farthing_tests::provider::{json_text, whole};
use farthing_tests::run;
use serde_json::json;

/// A stream of Google's as a list in JSON, which it sends unless it is asked for events.
const LIST: &str = r#"[{"candidates":[{"content":{"role":"model","parts":[{"text":"Hel"}]}}]},
{"candidates":[{"content":{"role":"model","parts":[{"text":"lo."}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":1000,"candidatesTokenCount":100,"totalTokenCount":1100}}]"#;

const EVENTS: &str = "data: {\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[{\"text\":\"Hello.\"}]},\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":1000,\"candidatesTokenCount\":100,\"totalTokenCount\":1100}}\r\n\r\n";

#[test]
fn a_google_client_at_googles_own_url_gets_the_stream_in_the_form_that_it_asks_for() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let model = "/v1beta/models/gemini-2.5-flash";
        let endpoint = managed.google.endpoint_at(&format!("{model}:streamGenerateContent"), |call| {
            if call.target().ends_with("alt=sse") {
                whole(200, &[("Content-Type", "text/event-stream")], EVENTS.as_bytes())
            } else {
                json_text(200, LIST)
            }
        });
        let body = json!({"contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
            "generationConfig": {"maxOutputTokens": 100}});
        for (query, answer) in [("", LIST), ("?alt=json", LIST), ("?alt=sse", EVENTS)] {
            let path = format!("/v1/rewrite/google/{}{query}", endpoint.url);
            let request = Request::new("POST", path).json(&body);
            let response = managed.send(&merchant.secret_key, request).await;
            assert_eq!((response.status, response.text().as_ref()), (200, answer), "{query}");
            let call = endpoint.calls().pop().unwrap();
            assert_eq!(call.target(), format!("{}{query}", endpoint.path));
            assert_eq!(call.body, body.to_string().as_bytes());
            let metered = merchant.charged(&response).await;
            assert_eq!(metered["usage"]["tokens"], json!({"input": 1000, "output": 100}), "{query}");
        }
        // Behind the URL of a provider, a client's own path says that it reads events.
        let path = format!("/v1/rewrite/google/{}{model}:streamGenerateContent?alt=sse", endpoint.url);
        let response = managed.send(&merchant.secret_key, Request::new("POST", path).json(&body)).await;
        assert_eq!((response.status, response.text().as_ref()), (200, EVENTS));
        assert_eq!(endpoint.calls().pop().unwrap().target(), format!("{}?alt=sse", endpoint.path));
        merchant.nothing_is_held().await;
    });
}
