//! Bodies of managed calls that hide what is priced apart, or how usage is reported, from the gateway's reader.

use farthing_tests::client::{Body, Request};
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::{Endpoint, json};
use farthing_tests::run;
use serde_json::json;

use farthing_tests::managed::Managed;

fn post(endpoint: &Endpoint, content_type: &str, body: impl Into<Vec<u8>>) -> Request {
    forward("POST", &endpoint.url).header("Content-Type", content_type).body(Body::Whole(body.into()))
}

fn endpoint(managed: &Managed) -> Endpoint {
    managed.openai.endpoint_ending("/v1/responses", |_| {
        json(200, &json!({"usage": {"input_tokens": 1, "output_tokens": 1}}))
    })
}

/// An endpoint whose path names the model, as Google's do.
fn of_google(managed: &Managed) -> Endpoint {
    managed.google.endpoint_ending("/v1beta/models/gemini-2.5-pro:generateContent", |_| {
        json(200, &json!({"usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1}}))
    })
}

/// Sends each body, which must be refused for the member beside it before anything is sent.
async fn are_refused(managed: &Managed, at: &Endpoint, content_type: &str, bodies: &[(Vec<u8>, &str)]) {
    let merchant = Merchant::funded("10").await;
    for (body, member) in bodies {
        let refused = managed.send(&merchant.secret_key, post(at, content_type, body.clone())).await;
        let shown = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
        assert_eq!(refused.status, 400, "{shown}: {}", refused.text());
        let error = refused.refused(400, "validation_error");
        assert_eq!(error["issues"][0]["path"], json!([member]), "{shown}");
    }
    assert!(at.calls().is_empty());
    merchant.nothing_is_held().await;
}

#[test]
fn a_body_that_cannot_be_read_does_not_hide_what_is_priced_apart() {
    run(async {
        let managed = Managed::start(&[]).await;
        let deep = format!("{}{}", "[".repeat(130), "]".repeat(130));
        let unreadable = [
            r#""description":"\ud800""#.to_owned(),
            r#""maximum":1e999"#.to_owned(),
            format!(r#""p":{deep}"#),
        ];
        let mut bodies = Vec::new();
        for priced in ["web_search_preview", "code_interpreter"] {
            for hidden in &unreadable {
                let function = format!(r#"{{"type":"function","name":"f",{hidden}}}"#);
                for tools in [
                    format!(r#"[{{"type":"{priced}"}},{function}]"#),
                    format!(r#"[{function},{{"type":"{priced}"}}]"#),
                ] {
                    bodies.push((format!(r#"{{"model":"gpt-4o","tools":{tools}}}"#).into_bytes(), "tools"));
                }
            }
            for tool in [
                format!(r#"{{"type":"{priced}","type":"function"}}"#),
                format!(r#"{{"type":"function","TYPE":"{priced}"}}"#),
            ] {
                bodies.push((format!(r#"{{"model":"gpt-4o","tools":[{tool}]}}"#).into_bytes(), "tools"));
                bodies.push((format!(r#"{{"model":"gpt-4o","Tools":[{tool}]}}"#).into_bytes(), "tools"));
                bodies.push((format!(r#"{{"model":"gpt-4o","toolſ":[{tool}]}}"#).into_bytes(), "tools"));
            }
        }
        for hidden in &unreadable {
            let cached =
                format!(r#"{{"model":"gpt-4o","system":[{{"cache_control":{{"ttl":"1h"}}}}],{hidden}}}"#);
            bodies.push((cached.into_bytes(), "cache_control"));
        }
        are_refused(&managed, &endpoint(&managed), "application/json", &bodies).await;
    });
}

#[test]
fn a_model_in_the_path_does_not_excuse_a_body_that_cannot_be_read() {
    run(async {
        let managed = Managed::start(&[]).await;
        let at = of_google(&managed);
        let search = r#""tools":[{"googleSearch":{}}]"#;
        let padded = format!(r#"{{"x":"{}",{search}}}"#, "x".repeat(256 * 1024));
        let bodies = [
            (format!("{{{search},}}").into_bytes(), "body"),
            (format!(r#"{{{search},"\ud800":1}}"#).into_bytes(), "body"),
            (format!("{{'a':1,{search}}}").into_bytes(), "body"),
            ([b"{\"a\":\"\xff\",", search.as_bytes(), b"}"].concat(), "body"),
            (padded.into_bytes(), "body"),
            (br#"{"tools":{"googleSearch":{}}}"#.to_vec(), "tools"),
            (br#"{"tools":"googleSearch"}"#.to_vec(), "tools"),
            (format!("{{{search}}}").into_bytes(), "tools"),
        ];
        are_refused(&managed, &at, "application/json", &bodies).await;
        let plain = [(format!("{{{search}}}").into_bytes(), "body")];
        for content_type in ["text/plain", "application/x-www-form-urlencoded", ""] {
            are_refused(&managed, &at, content_type, &plain).await;
        }
        // What can be read is sent, and with the caller's own key everything is.
        let merchant = Merchant::funded("10").await;
        let plain = post(
            &at,
            "application/json; charset=utf-8",
            r#"{"contents":[],"tools":[{"functionDeclarations":[]}]}"#,
        );
        managed.send(&merchant.secret_key, plain).await.expect(200);
        let own = post(&at, "text/plain", format!("{{{search},}}")).header("x-goog-api-key", "theirs");
        managed.send(&merchant.secret_key, own).await.expect(200);
        assert_eq!(at.calls().len(), 2);
    });
}
