//! Amazon Bedrock with AWS credentials, the instance's and callers': the provider of the test verifies each signature from
//! the bytes that it received, by a computation of its own. It is behind TLS: no managed key goes over plain HTTP.

use std::sync::Arc;

use farthing_tests::client::{Connection, Request, Response};
use farthing_tests::dns::{Answer, NameServer};
use farthing_tests::instance::Instance;
use farthing_tests::managed::Managed;
use farthing_tests::merchant::{Merchant, forward, token};
use farthing_tests::provider::{
    Call, Endpoint, Gate, Provider, Step, chunk, head, json_text, last_chunk, whole,
};
use farthing_tests::run;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::tls::{Authority, Front, Validity};
use farthing_tests::wait::eventually;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::provider_endpoints::{message, wrapped};
use super::providers::{prices, tokens};

const HOST: &str = "vpce-0a1b.bedrock-runtime.eu-west-1.vpce.amazonaws.com";
const MODEL: &str = "/model/eu.anthropic.claude-ours-v1%3A0";

const OURS: (&str, &str) = ("AKIAMANAGEDEXAMPLE01", "oursJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLE");
const THEIRS: (&str, &str) = ("ASIACALLERSEXAMPLE02", "theirsalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPL");
const ROTATED: (&str, &str) = ("AKIAROTATEDEXAMPLE03", "rotatedlrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPL");

const ANSWER: &str = r#"{"output":{},"stopReason":"end_turn","usage":{"inputTokens":1000,"outputTokens":10,"totalTokens":1010}}"#;

const PRICES: &str = r#"{"provider":"bedrock","model":"eu.anthropic.claude-ours-v1:0","input_per_1m":"3","output_per_1m":"15"},
    {"provider":"bedrock","model":"cached","input_per_1m":"3","output_per_1m":"15","cache_read_per_1m":"0.3","cache_write_per_1m":"3.75"},
    {"provider":"bedrock","model":"mistral.ours","input_per_1m":"3","output_per_1m":"15"},
    {"provider":"bedrock","model":"eu-west-1/ai21.j2-ours","input_per_1m":"3","output_per_1m":"15"},
    {"provider":"bedrock","model":"cohere.embed-ours","input_per_1m":"3"},
    {"provider":"bedrock","model":"stability.form-unknown","input_per_1m":"3","output_per_1m":"15"}"#;

/// A gateway, and a provider that is a private endpoint of Bedrock to it.
struct Scene {
    managed: Managed,
    bedrock: Provider,
    front: Front,
    merchant: Merchant,
    _names: NameServer,
}

impl Scene {
    /// Starts it with a managed key.
    async fn start(key: &str) -> Self {
        let names = NameServer::start(|name| match name {
            HOST => Answer::of(&["127.0.0.1"], 60),
            _ => Answer::NoSuchName,
        })
        .await;
        let bedrock = Provider::start().await;
        let merchant = Merchant::funded("100").await;
        let authority = Authority::new();
        let front = authority.front(&bedrock.authority(), &[HOST], Validity::Now).await;
        let trusted = authority.write_to(&merchant.instance.file(&format!("{}.pem", merchant.id)));
        let flags = [
            format!("--provider-host=bedrock={HOST}:{}", front.port()),
            format!("--trust-ca={}", trusted.display()),
            merchant.instance.provider_key("bedrock", key),
            names.flag(),
            prices(PRICES),
        ];
        let managed = Managed::start(&flags.each_ref().map(String::as_str)).await;
        Self { managed, bedrock, front, merchant, _names: names }
    }

    /// The URL of `path` at the host that has a region.
    fn url(&self, path: &str) -> String {
        format!("https://{HOST}:{}{path}", self.front.port())
    }

    fn endpoint(&self, path: &str) -> Endpoint {
        self.bedrock.endpoint_at(path, |_| json_text(200, ANSWER))
    }

    async fn ask(&self, credential: &str, path: &str, body: &Value) -> Response {
        self.send(credential, forward("POST", &self.url(path)).json(body)).await
    }

    async fn send(&self, credential: &str, request: Request) -> Response {
        self.managed.send(credential, request).await
    }
}

fn credentials((id, secret): (&str, &str)) -> String {
    format!("{id}:{secret}")
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.concat()
}

/// Computes the signature of a call from the bytes that were received, as AWS documents it (Signature Version 4), and
/// compares it with the one that the call carries.
fn is_signed(call: &Call, body: &[u8], (id, secret): (&str, &str)) -> bool {
    let authorization = call.head.header("authorization").unwrap_or_default();
    let Some(fields) = authorization.strip_prefix("AWS4-HMAC-SHA256 ") else { return false };
    let field = |name: &str| {
        let mut fields = fields.split(", ").filter_map(|field| field.split_once('='));
        fields.find(|(given, _)| *given == name).map(|(_, value)| value.to_owned()).unwrap_or_default()
    };
    let date = call.head.header("x-amz-date").unwrap_or_default();
    let scope = format!("{}/eu-west-1/bedrock/aws4_request", date.get(..8).unwrap_or_default());
    let names = field("SignedHeaders");
    let signed: Vec<&str> = names.split(';').collect();
    // Everything that concerns AWS must be covered.
    let is_covered = |name: &str| {
        let name = name.to_ascii_lowercase();
        let must = name == "host" || name == "content-type" || name.starts_with("x-amz");
        !must || signed.contains(&name.as_str())
    };
    if field("Credential") != format!("{id}/{scope}")
        || !signed.contains(&"host")
        || !call.head.headers.iter().all(|(name, _)| is_covered(name))
    {
        return false;
    }
    let (path, query) = call.target().split_once('?').unwrap_or((call.target(), ""));
    let encoded: String = path
        .bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                char::from(byte).to_string()
            }
            byte => format!("%{byte:02X}"),
        })
        .collect();
    let headers: Vec<String> = signed
        .iter()
        .map(|name| {
            let values: Vec<&str> = call.head.all(name).into_iter().map(str::trim).collect();
            format!("{name}:{}\n", values.join(","))
        })
        .collect();
    let headers = headers.concat();
    let canonical =
        format!("{}\n{encoded}\n{query}\n{headers}\n{names}\n{}", call.method(), hex(&Sha256::digest(body)));
    let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", hex(&Sha256::digest(canonical)));
    let key = [&date[..8], "eu-west-1", "bedrock", "aws4_request"]
        .into_iter()
        .fold(format!("AWS4{secret}").into_bytes(), |key, part| mac(&key, part));
    hex(&mac(&key, &text)) == field("Signature")
}

/// The last call, whose signature is checked, and which has no part of a secret.
fn signed_call(endpoint: &Endpoint, by: (&str, &str)) -> Arc<Call> {
    let call = endpoint.calls().pop().unwrap();
    assert!(is_signed(&call, &call.body, by), "{:?}", call.head);
    for (name, value) in &call.head.headers {
        for (_, secret) in [OURS, THEIRS, ROTATED] {
            assert!(!value.contains(secret), "{name} has a secret access key");
        }
    }
    assert!(call.head.all("x-api-key").is_empty());
    call
}

#[test]
fn a_managed_call_is_signed_with_the_credentials_of_the_instance_and_charged_exactly() {
    run(async {
        let scene = Scene::start(&credentials(OURS)).await;
        let merchant = &scene.merchant;
        let path = format!("{MODEL}/converse");
        let endpoint = scene.endpoint(&path);
        let body = json!({"messages": [{"role": "user", "content": [{"text": "hé"}]}],
                          "inferenceConfig": {"maxTokens": 100}});
        let response = scene.ask(&merchant.secret_key, &path, &body).await;
        assert_eq!(response.status, 200, "{}", response.text());
        let metered = merchant.charged(&response).await;
        assert_eq!(metered["usage"]["tokens"], tokens(1000, 10));
        assert_eq!(metered["model_cost"]["total"], "0.0031500000");
        assert_eq!(metered["total_merchant_cost"], "0.0031500000");
        let shown = merchant.shown(&response.request_id(), "completed").await;
        assert_eq!(shown["provider_key_type"], "managed");
        assert_eq!(shown["model"], "eu.anthropic.claude-ours-v1:0");

        let call = signed_call(&endpoint, OURS);
        assert_eq!(call.body, body.to_string().as_bytes());
        assert!(call.head.all("x-amz-security-token").is_empty());
        // The check itself fails for any other bytes and any other key.
        let mut tampered = call.body.clone();
        *tampered.last_mut().unwrap() ^= 1;
        assert!(!is_signed(&call, &tampered, OURS));
        assert!(!is_signed(&call, &call.body, (OURS.0, ROTATED.1)));

        // A signature of the caller's own, without its key, changes nothing.
        let request = forward("POST", &scene.url(&path))
            .header("x-amz-security-token", "theirs")
            .header("x-amz-date", "20200101T000000Z")
            .json(&body);
        scene.send(&merchant.secret_key, request).await.expect(200);
        assert!(signed_call(&endpoint, OURS).head.all("x-amz-security-token").is_empty());
        for logged in merchant.events().await {
            let text = &logged.text;
            assert!(!text.contains(OURS.0) && !text.contains(OURS.1), "{text}");
        }
        merchant.nothing_is_held().await;
    });
}

#[test]
fn streams_of_both_forms_are_signed_and_charged() {
    run(async {
        let scene = Scene::start(&credentials(OURS)).await;
        let merchant = &scene.merchant;
        let stream = ("Content-Type", "application/vnd.amazon.eventstream");
        let conversed = [
            message(r#"{"contentBlockIndex":0,"delta":{"text":"Hi"}}"#),
            message(r#"{"usage":{"inputTokens":1000,"outputTokens":10,"totalTokens":1010}}"#),
        ]
        .concat();
        let invoked = [
            wrapped(r#"{"type":"message_start","message":{"id":"msg_1","usage":{"input_tokens":1000,"output_tokens":1}}}"#),
            wrapped(r#"{"type":"message_delta","usage":{"output_tokens":10}}"#),
        ]
        .concat();
        for (operation, answer, body) in [
            ("converse-stream", conversed, json!({"inferenceConfig": {"maxTokens": 100}})),
            ("invoke-with-response-stream", invoked, json!({"max_tokens": 100, "messages": []})),
        ] {
            let path = format!("{MODEL}/{operation}");
            let given = answer.clone();
            let endpoint = scene.bedrock.endpoint_at(&path, move |_| whole(200, &[stream], &given));
            let response = scene.ask(&merchant.secret_key, &path, &body).await;
            assert_eq!((response.status, &response.body), (200, &answer), "{operation}");
            let metered = merchant.charged(&response).await;
            assert_eq!(metered["model_cost"]["total"], "0.0031500000", "{operation}");
            signed_call(&endpoint, OURS);
        }
        merchant.nothing_is_held().await;
    });
}

#[test]
fn a_stream_in_a_models_own_form_that_is_left_at_its_beginning_is_charged_its_hold() {
    run(async {
        let scene = Scene::start(&credentials(OURS)).await;
        let merchant = &scene.merchant;
        let customer = merchant.customer("100").await;
        let meter = merchant
            .meter(json!({
                "name": "cancelling", "rate_type": "fixed", "tier_type": "requests",
                "tiers": [{"start": 0, "rate": "0.5"}], "base_cost_payer": "wallet",
                "service_charge_payer": "merchant", "on_disconnect": "cancel",
            }))
            .await;
        let credential = merchant.billing(&customer, &meter);
        let path = format!("{MODEL}/invoke-with-response-stream");
        let begin = wrapped(
            r#"{"type":"message_start","message":{"id":"m","usage":{"input_tokens":9,"output_tokens":1}}}"#,
        );
        let delta = wrapped(r#"{"type":"message_delta","usage":{"output_tokens":7}}"#);
        let gate = Gate::default();
        let waits = gate.clone();
        let (first, both) = (begin.clone(), [begin, delta].concat());
        let endpoint = scene.bedrock.endpoint_at(&path, move |call| {
            let stream = head(
                200,
                &[("Content-Type", "application/vnd.amazon.eventstream"), ("Transfer-Encoding", "chunked")],
            );
            let is_first = String::from_utf8_lossy(&call.body).contains("\"begin\"");
            let before = if is_first { &first } else { &both };
            vec![stream, chunk(before), Step::Wait(waits.clone()), last_chunk()]
        });
        for (text, is_reported) in [("begin", false), ("both", true)] {
            let asked = json!({"max_tokens": 50, "messages": [{"role": "user", "content": text}]});
            let request = forward("POST", &scene.url(&path)).json(&asked).bearer(&credential);
            let mut connection = Connection::open(scene.managed.address()).await.unwrap();
            connection.send(&request).await.unwrap();
            let answer = connection.head("POST").await.unwrap();
            connection.read.piece().await.unwrap();
            let id = answer.header("x-service-request-id").unwrap().to_owned();
            drop(connection);
            let opened = merchant.log.event(&format!("{id}/opened")).await.unwrap().body;
            let key = format!("{id}/metered");
            let metered = eventually("it is charged", async || merchant.log.event(&key).await).await.body;
            let (marks, output) = if is_reported {
                assert_ne!(metered["total_wallet_cost"], opened["hold"]["wallet"], "{metered}");
                (json!(["partial"]), 7)
            } else {
                assert_eq!(metered["total_wallet_cost"], opened["hold"]["wallet"], "{metered}");
                (json!(["hold_charged", "partial"]), 1)
            };
            assert_eq!((&metered["marks"], &metered["usage"]["tokens"]), (&marks, &tokens(9, output)));
        }
        assert_eq!(endpoint.calls().len(), 2);
        gate.open();
        merchant.nothing_is_held().await;
    });
}

#[test]
fn a_caller_may_bring_aws_credentials_with_and_without_a_session_token() {
    run(async {
        let scene = Scene::start(&credentials(OURS)).await;
        let merchant = &scene.merchant;
        let path = "/model/anything/invoke";
        let endpoint = scene.endpoint(path);
        let session = "FwoGZXIvYXdzE".repeat(60);
        // Longer than what is read ahead of any other body.
        let long = json!({"prompt": "x".repeat(400_000)});
        for (by, token_text, body) in [
            (THEIRS, None, json!({"prompt": "x"})),
            (THEIRS, Some(session.as_str()), json!({"prompt": "x"})),
            (ROTATED, None, long),
        ] {
            let mut key = credentials(by);
            if let Some(text) = token_text {
                key.push(':');
                key.push_str(text);
            }
            let credential = token(&json!({"secret_key": merchant.secret_key, "provider_key": key}));
            let response = scene.ask(&credential, path, &body).await;
            assert_eq!(response.status, 200, "{}", response.text());
            let call = signed_call(&endpoint, by);
            assert_eq!(call.body, body.to_string().as_bytes());
            assert_eq!(call.head.header("x-amz-security-token"), token_text);
            let shown = merchant.shown(&response.request_id(), "completed").await;
            assert_eq!(shown["provider_key_type"], "unmanaged");
            assert!(!shown.to_string().contains(by.1));
        }
        // A Bedrock API key is sent as it is.
        let credential = token(&json!({"secret_key": merchant.secret_key, "provider_key": "ABSKtheirs"}));
        scene.ask(&credential, path, &json!({"prompt": "x"})).await.expect(200);
        assert_eq!(endpoint.calls().pop().unwrap().head.all("authorization"), ["Bearer ABSKtheirs"]);
        let made = endpoint.calls().len();
        for malformed in
            [THEIRS.0.to_owned(), format!("{}:short", THEIRS.0), format!("{}:{}:", THEIRS.0, THEIRS.1)]
        {
            let credential = token(&json!({"secret_key": merchant.secret_key, "provider_key": malformed}));
            let refused = scene.ask(&credential, path, &json!({})).await;
            let error = refused.refused(400, "forward_token_json_invalid");
            assert_eq!(error["issues"][0]["path"], json!(["provider_key"]), "{error}");
            let text = error.to_string();
            assert!(
                text.contains("ACCESS_KEY_ID") && !text.contains(THEIRS.0) && !text.contains(THEIRS.1),
                "{text}"
            );
        }
        assert_eq!(endpoint.calls().len(), made);
        merchant.nothing_is_held().await;
    });
}

#[test]
fn a_rotated_key_signs_the_calls_of_gateways_that_have_it() {
    run(async {
        for by in [OURS, ROTATED] {
            let scene = Scene::start(&credentials(by)).await;
            let path = format!("{MODEL}/converse");
            let endpoint = scene.endpoint(&path);
            scene.ask(&scene.merchant.secret_key, &path, &json!({"messages": []})).await.expect(200);
            signed_call(&endpoint, by);
        }
        let scene = Scene::start("ABSKmanaged").await;
        let path = format!("{MODEL}/converse");
        let endpoint = scene.endpoint(&path);
        scene.ask(&scene.merchant.secret_key, &path, &json!({"messages": []})).await.expect(200);
        assert_eq!(endpoint.only_call().head.all("authorization"), ["Bearer ABSKmanaged"]);
    });
}

#[test]
fn a_managed_call_chooses_no_other_price_and_no_other_endpoint() {
    run(async {
        let scene = Scene::start(&credentials(OURS)).await;
        let merchant = &scene.merchant;
        let key = &merchant.secret_key;
        let path = format!("{MODEL}/converse");
        let endpoint = scene.endpoint(&path);
        for (body, member) in [
            (json!({"performanceConfig": {"latency": "optimized"}}), "performanceConfig"),
            (json!({"guardrailConfig": {"guardrailIdentifier": "g"}}), "guardrailConfig"),
            (json!({"serviceTier": {"type": "priority"}}), "serviceTier"),
            (json!({"system": [{"cachePoint": {"type": "default"}}]}), "cachePoint"),
            (json!({"toolConfig": {"tools": [{"systemTool": {"name": "nova_grounding"}}]}}), "toolConfig"),
            (json!({"additionalModelRequestFields": {"x": 1}}), "additionalModelRequestFields"),
        ] {
            let error = scene.ask(key, &path, &body).await.refused(400, "validation_error");
            assert_eq!(error["issues"][0]["path"], json!([member]), "{error}");
        }
        for name in ["x-amzn-bedrock-guardrailidentifier", "x-amzn-bedrock-performanceconfig-latency"] {
            let request = forward("POST", &scene.url(&path)).header(name, "x").json(&json!({}));
            let error = scene.send(key, request).await.refused(400, "validation_error");
            assert_eq!(error["issues"][0]["path"], json!([name]), "{error}");
        }
        let with_query = scene.ask(key, &format!("{path}?X-Amz-Expires=1"), &json!({})).await;
        with_query.refused(400, "validation_error");
        let repeated = br#"{"inferenceConfig":{"maxTokens":1},"inferenceConfig":{"maxTokens":9000}}"#;
        let repeated = farthing_tests::client::Body::Whole(repeated.to_vec());
        let request =
            forward("POST", &scene.url(&path)).header("Content-Type", "application/json").body(repeated);
        scene.send(key, request).await.refused(400, "validation_error");
        for (other, why) in [
            ("/model/anthropic.claude-ours-v1%3A0/converse", "does not list the model"),
            ("/model/arn%3Aaws%3Abedrock%3Aeu-west-1%3A1%3Aprovisioned-model%2Fx/converse", "does not list"),
            ("/model/stability.form-unknown/invoke", "use converse"),
            ("/model/cached/count-tokens", "does not answer at once"),
            ("/x/model/cached/converse", "does not answer at once"),
            ("/openai/v1/chat/completions", "does not answer at once"),
        ] {
            let refused = scene.ask(key, other, &json!({"model": "cached"})).await;
            let error = refused.refused(400, "model_not_priced");
            assert!(error["message"].as_str().unwrap().contains(why), "{other}: {error}");
        }
        let embedding = "/model/cohere.embed-ours/invoke";
        let images = json!({"input_type": "image", "images": ["data:image/png;base64,aGk="]});
        let error = scene.ask(key, embedding, &images).await.refused(400, "validation_error");
        assert_eq!(error["issues"][0]["path"], json!(["images"]), "{error}");
        assert!(error.to_string().contains("only the tokens of texts are reported"), "{error}");
        assert!(endpoint.calls().is_empty());

        // What is priced passes, and is metered.
        let cached = scene.bedrock.endpoint_at("/model/cached/converse", |_| {
            json_text(200, r#"{"usage":{"inputTokens":100,"outputTokens":10,"cacheReadInputTokens":1000,"cacheWriteInputTokens":2000}}"#)
        });
        let body = json!({"system": [{"text": "x"}, {"cachePoint": {"type": "default"}}]});
        let response = scene.ask(key, "/model/cached/converse", &body).await;
        assert_eq!(response.status, 200, "{}", response.text());
        // 100 × 3 + 1000 × 0.3 + 2000 × 3.75 + 10 × 15, per million.
        assert_eq!(merchant.charged(&response).await["model_cost"]["total"], "0.0082500000");
        signed_call(&cached, OURS);
        merchant.nothing_is_held().await;
    });
}

#[test]
fn an_output_limit_bounds_the_hold_and_one_that_cannot_be_read_takes_the_hold_cap() {
    run(async {
        let scene = Scene::start(&credentials(OURS)).await;
        let merchant = &scene.merchant;
        let poor = merchant.customer("0.009").await;
        let credential = token(&json!({"secret_key": merchant.secret_key, "customer_id": poor.id}));
        let path = format!("{MODEL}/converse");
        let endpoint = scene.endpoint(&path);
        // 100 tokens of output are 0.0015; what the body says under another name is no limit.
        let limited = json!({"inferenceConfig": {"maxTokens": 100}});
        for (path, body) in [
            (path.as_str(), json!({"max_tokens": 1})),
            ("/model/mistral.ours/invoke", json!({"max_tokens": 1, "max_completion_tokens": "1"})),
            // A limit of another form, alone and beside the one that counts.
            ("/model/ai21.j2-ours/invoke", json!({"max_tokens": 1})),
            ("/model/ai21.j2-ours/invoke", json!({"max_tokens": 1, "maxTokens": 8000})),
            ("/model/mistral.ours/invoke", json!({"max_tokens": 1, "max_completion_tokens": 8000})),
        ] {
            scene.ask(&credential, path, &body).await.refused(402, "insufficient_balance");
        }
        assert!(endpoint.calls().is_empty());
        scene.ask(&credential, &path, &limited).await.expect(200);
        assert_eq!(merchant.balance(&poor).await, "0.0058500000");
    });
}

#[test]
fn regions_that_the_operator_did_not_name_and_hosts_without_a_region_get_no_signature() {
    run(async {
        let merchant = Merchant::funded("100").await;
        let instance = Instance::shared().await;
        let elsewhere = Provider::start().await;
        let endpoint = elsewhere.endpoint_at("/model/cached/converse", |_| json_text(200, ANSWER));
        let start = async |hosts: &[&str]| {
            let mut flags = vec![
                instance.provider_key("bedrock", &credentials(OURS)),
                prices(PRICES),
                "--allow-address=127.0.0.0/8".to_owned(),
            ];
            flags.extend(hosts.iter().map(|host| format!("--provider-host=bedrock={host}")));
            SideGateway::start(instance, &flags.iter().map(String::as_str).collect::<Vec<_>>()).await
        };
        let ask = async |gateway: &SideGateway, credential: &str, url: &str| {
            let request = forward("POST", url).json(&json!({"messages": []}));
            request.bearer(credential).send(gateway.address).await.unwrap()
        };
        let key = &merchant.secret_key;
        let gateway = start(&["bedrock-runtime.eu-west-1.amazonaws.com"]).await;
        for host in
            ["bedrock-runtime.us-east-1.amazonaws.com", "bedrock-runtime-fips.eu-west-1.amazonaws.com"]
        {
            let url = format!("https://{host}/model/cached/converse");
            ask(&gateway, key, &url).await.refused(400, "provider_key_missing");
        }
        let url = "http://bedrock-runtime.eu-west-1.amazonaws.com:443/model/cached/converse";
        ask(&gateway, key, url).await.refused(400, "provider_key_missing");
        let url = "https://bedrock-runtime.eu-west-1.amazonaws.com/model/cached/count-tokens";
        ask(&gateway, key, url).await.refused(400, "model_not_priced");

        // In two regions a price without a region is that of neither.
        let gateway =
            start(&["bedrock-runtime.eu-west-1.amazonaws.com", "bedrock-runtime.us-west-2.amazonaws.com"])
                .await;
        let url = "https://bedrock-runtime.us-west-2.amazonaws.com/model/cached/converse";
        let error = ask(&gateway, key, url).await.refused(400, "model_not_priced");
        assert!(error["message"].as_str().unwrap().contains("in this region"), "{error}");

        let gateway = start(&[&elsewhere.authority()]).await;
        let own = token(&json!({"secret_key": key, "provider_key": credentials(THEIRS)}));
        for credential in [key, &own] {
            let error = ask(&gateway, credential, &endpoint.url).await.refused(400, "forward_url_invalid");
            assert!(error["message"].as_str().unwrap().contains("names no AWS region"), "{error}");
        }
        assert!(endpoint.calls().is_empty());
        merchant.nothing_is_held().await;
    });
}

#[test]
fn a_callers_aws_credentials_reach_no_other_provider() {
    run(async {
        let merchant = Merchant::new().await;
        let elsewhere = Provider::start().await;
        let endpoint = elsewhere.endpoint(|_| json_text(200, "{}"));
        for key in [credentials(THEIRS), format!("{}:FwoG", credentials(THEIRS)), THEIRS.0.to_owned()] {
            let own = token(&json!({"secret_key": merchant.secret_key, "provider_key": key}));
            for url in [&endpoint.url, "https://api.openai.com/v1/chat/completions"] {
                let refused = merchant.send(&own, forward("POST", url).json(&json!({"model": "m"}))).await;
                let error = refused.refused(400, "forward_token_json_invalid");
                assert_eq!(error["issues"][0]["path"], json!(["provider_key"]), "{error}");
                assert!(!error.to_string().contains(THEIRS.1), "{error}");
            }
        }
        assert!(endpoint.calls().is_empty());
        merchant.nothing_is_held().await;
    });
}
