//! Keys of this service that a caller puts where its model or its metadata belong, and keys of providers in the URLs of
//! calls: they are in nothing that is kept or shown, and decide as they are.

use farthing_tests::client::Request;
use farthing_tests::feed;
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::{json as answer, whole};
use farthing_tests::run;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::eventually;
use serde_json::{Value, json};

/// A provider key that is known by its shape.
const SECRET: &str = "sk-proj-Zq3vN8xK2mT5wR7yB1cD4fG6hJ9kL0pS";

/// The part of it that no test encodes.
const OF_SECRET: &str = "proj-Zq3vN8xK2mT5wR7yB1cD4fG6hJ9kL0pS";

/// A provider key that is known by the name of its parameter alone.
const PLAIN: &str = "hunter2hunter2";

/// Asserts that a text has a mask, and neither of the provider keys.
fn is_masked(text: &str) {
    assert!(text.contains("****"), "{text}");
    assert!(!text.contains(OF_SECRET) && !text.contains(PLAIN), "{text}");
}

async fn spend_key(merchant: &Merchant, settings: Value) -> String {
    let mut body = settings;
    body["name"] = json!("a test's");
    let made = merchant.post("/v1/spend_keys", &body).await.expect(201);
    made["key"].as_str().unwrap().to_owned()
}

/// That none of the keys is in an event of the merchant, nor in what the feed has of it.
async fn is_recorded_nowhere(merchant: &Merchant, keys: &[&str]) {
    let events = merchant.events().await;
    let lines = feed::lines_of(merchant.instance, &events).await;
    for (event, line) in events.iter().zip(&lines) {
        for key in keys {
            assert!(!event.text.contains(key), "{}: {}", event.kind, event.text);
            assert!(!line.contains(key), "in the feed: {line}");
        }
    }
}

#[test]
fn a_key_as_a_model_or_in_metadata_is_masked_in_all_that_is_kept_and_reaches_the_provider_as_it_is() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let receiver = merchant.instance.provider.endpoint(|_| whole(200, &[], b""));
        let hook = json!({"url": receiver.url, "events": ["request.completed"]});
        merchant.post("/v1/webhooks", &hook).await.expect(201);
        let spend_key = spend_key(&merchant, json!({})).await;
        let keys = [spend_key.as_str(), merchant.secret_key.as_str()];
        // The provider repeats the model, and puts the key into what else is read of its answer.
        let usage = json!({"model": keys[0], "id": format!("of {}", keys[1]), "usage": {"tokens": 1}});
        let endpoint = merchant.instance.provider.endpoint(move |_| answer(200, &usage));
        let body = json!({"model": keys[0], "input": "x"});
        let metadata = json!({"note": format!("mine is {}", keys[1]), keys[0]: "v", "plain": "spk_1"});
        for credential in keys {
            let call =
                forward("POST", &endpoint.url).json(&body).header("x-service-metadata", metadata.to_string());
            let answered = merchant.send(credential, call).await;
            assert_eq!(answered.expect(200)["model"], keys[0], "an answer passes as it is");
            let shown = merchant.shown(&answered.request_id(), "completed").await;
            assert_eq!(shown["model"], "spk_****");
            assert_eq!(shown["response_id"], "of aks_test_****");
            let masked = json!({"note": "mine is aks_test_****", "spk_masked": "v", "plain": "spk_1"});
            assert_eq!(shown["metadata"], masked);
        }
        for call in endpoint.calls() {
            assert_eq!(call.body, body.to_string().into_bytes());
        }
        let report = json!({
            "request_id": "r", "model": keys[1], "response_id": keys[0], "metadata": metadata,
            "endpoint": format!("POST https://a.example/{}", keys[0]), "usage": {"tokens": 1},
            "provider": format!("of {}", keys[0]),
        });
        let made = merchant.post("/v1/requests", &report).await.expect(201);
        assert_eq!((&made["model"], &made["response_id"]), (&json!("aks_test_****"), &json!("spk_****")));
        assert_eq!(made["endpoint"], "POST https://a.example/spk_****");
        assert_eq!(made["provider"], "of spk_****");
        assert_eq!(made["metadata"]["note"], "mine is aks_test_****");
        assert_eq!(merchant.get("/v1/requests/r").await.expect(200), made);

        is_recorded_nowhere(&merchant, &keys).await;
        eventually("the calls are delivered", async || (receiver.calls().len() >= 2).then_some(())).await;
        for delivery in receiver.calls() {
            let text = String::from_utf8(delivery.body.clone()).unwrap();
            assert!(!keys.iter().any(|key| text.contains(key)), "{text}");
        }
        let list = merchant.get("/v1/requests").await.text();
        assert!(!keys.iter().any(|key| list.contains(key)), "{list}");
    });
}

/// A name is kept up to 255 characters. What is left of a key at its end has no key's shape.
#[test]
fn a_key_at_the_end_of_what_is_kept_of_a_long_model_is_masked() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let spend_key = spend_key(&merchant, json!({})).await;
        let begin = &spend_key[..12];
        let endpoint = merchant.instance.provider.endpoint(|_| answer(200, &json!({})));
        let rest = "x".repeat(300);
        for before in [219, 254 - spend_key.len(), 254 - begin.len(), 254] {
            let before = "m".repeat(before);
            let body = json!({"model": format!("{before}{spend_key}-{rest}"), "input": "x"});
            let answered = merchant.send(&spend_key, forward("POST", &endpoint.url).json(&body)).await;
            answered.expect(200);
            let shown = merchant.shown(&answered.request_id(), "completed").await;
            let expected: String = format!("{before}spk_****-{rest}").chars().take(255).collect();
            assert_eq!(shown["model"], expected);
        }
        is_recorded_nowhere(&merchant, &[begin]).await;
    });
}

#[test]
fn the_models_of_a_spend_key_and_an_idempotency_key_know_the_model_and_the_metadata_as_they_are() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let endpoint = merchant.instance.provider.endpoint(|_| answer(200, &json!({})));
        let [one, two] = [spend_key(&merchant, json!({})).await, spend_key(&merchant, json!({})).await];
        let limited = spend_key(&merchant, json!({"allowed_models": [one]})).await;
        let call = |model: &str| forward("POST", &endpoint.url).json(&json!({"model": model}));
        merchant.send(&limited, call(&one)).await.expect(200);
        for other in [two.as_str(), "spk_****"] {
            merchant.send(&limited, call(other)).await.refused(403, "model_not_allowed");
        }
        // Calls that are recorded alike are not alike.
        let with = |key: &str| -> Request {
            let metadata = json!({"note": key}).to_string();
            call("m").header("x-service-metadata", metadata).header("idempotency-key", "k")
        };
        merchant.send(&merchant.secret_key, with(&one)).await.expect(200);
        merchant.send(&merchant.secret_key, with(&two)).await.refused(422, "idempotency_key_reused");
        merchant.send(&merchant.secret_key, with(&one)).await.expect(200);
        assert_eq!(endpoint.calls().len(), 2);
    });
}

/// A provider key in the URL: under the names that providers use, under another one by its shape, in the path, and encoded.
#[test]
fn a_provider_key_in_the_url_is_masked_in_all_that_is_kept_and_reaches_the_provider_as_it_is() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let receiver = merchant.instance.provider.endpoint(|_| whole(200, &[], b""));
        merchant.post("/v1/webhooks", &json!({"url": receiver.url})).await.expect(201);
        let escaped = SECRET.replace("sk-", "%73%6B-");
        let twice = escaped.replace('%', "%25");
        let mut shown_as = Vec::new();
        for (path, query) in [
            (String::new(), format!("?key={PLAIN}")),
            (String::new(), format!("?api-version=1&API_Key={PLAIN}&x=1")),
            (String::new(), format!("?%6Bey={PLAIN}")),
            (String::new(), format!("?x={SECRET}")),
            (String::new(), format!("?x={escaped}")),
            (String::new(), format!("?x={twice}")),
            (String::new(), format!("?{SECRET}=x")),
            (format!("/{SECRET}/chat"), String::new()),
            (format!("/{escaped}/chat"), String::new()),
            (format!("/{twice}/chat"), "?x=1".to_owned()),
            (format!("/v1;key={PLAIN}/chat"), String::new()),
            (format!("/{SECRET}"), format!("?token={PLAIN}")),
        ] {
            let endpoint = merchant
                .instance
                .provider
                .endpoint_ending(&path, |_| answer(200, &json!({"usage": {"tokens": 1}})));
            let url = format!("{}{query}", endpoint.url);
            let call = forward("POST", &url).json(&json!({"input": "x"}));
            let answered = merchant.send(&merchant.secret_key, call).await;
            answered.expect(200);
            let id = answered.request_id();
            let shown = merchant.shown(&id, "completed").await;
            let shown = shown["endpoint"].as_str().unwrap().to_owned();
            is_masked(&shown);
            assert_eq!(endpoint.only_call().target(), format!("{}{query}", endpoint.path));
            shown_as.push((id, shown));
        }
        is_recorded_nowhere(&merchant, &[PLAIN, OF_SECRET]).await;
        let list = merchant.get("/v1/requests").await.text();
        is_masked(&list);
        for (id, shown) in &shown_as {
            let delivered = eventually("the call is delivered", async || {
                receiver
                    .calls()
                    .into_iter()
                    .map(|call| String::from_utf8(call.body.clone()).unwrap())
                    .find(|body| body.contains(id))
            })
            .await;
            is_masked(&delivered);
            let delivered: Value = serde_json::from_str(&delivered).unwrap();
            assert_eq!(delivered["event"], "request.completed");
            assert_eq!(delivered["data"]["request"]["endpoint"], shown.as_str());
        }
    });
}

/// The URL of a call that fails is in the log, too: at a provider that refuses the connection, at a name whose address is
/// forbidden, and at one that answers with an error. A call to a forbidden address itself is not recorded.
#[test]
fn a_provider_key_in_the_url_of_a_call_that_fails_is_masked_in_its_events_the_feed_and_webhooks() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let guarded = SideGateway::start(merchant.instance, &[]).await;
        let receiver = merchant.instance.provider.endpoint(|_| whole(200, &[], b""));
        merchant.post("/v1/webhooks", &json!({"url": receiver.url})).await.expect(201);
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let failing = merchant.instance.provider.endpoint(|_| answer(500, &json!({"error": "theirs"})));
        let port = closed.port();
        let escaped = SECRET.replace("sk-", "%73%6B-");
        let end = format!("?%6Bey={PLAIN}&x={escaped}");
        let send = async |gateway, url: &str| {
            let call = forward("POST", url).bearer(&merchant.secret_key).json(&json!({"input": "x"}));
            call.send(gateway).await.unwrap()
        };
        let own = merchant.gateway();
        for (gateway, url, status, reason) in [
            (own, format!("http://{closed}/{SECRET}/chat{end}"), 502, "provider_unreachable"),
            (guarded.address, format!("http://localhost:{port}/{SECRET}{end}"), 400, "address_forbidden"),
            (own, format!("{}{end}", failing.url), 500, "provider_status"),
        ] {
            let answered = send(gateway, &url).await;
            assert_eq!(answered.status, status, "{url}: {}", answered.text());
            assert_eq!(merchant.failed(&answered).await["reason"], reason, "{url}");
            let shown = merchant.shown(&answered.request_id(), "error").await;
            is_masked(shown["endpoint"].as_str().unwrap());
        }
        let before = merchant.events().await.len();
        let refused = send(own, &format!("http://169.254.169.254/{SECRET}{end}")).await;
        refused.refused(400, "forward_url_forbidden");
        assert!(!refused.text().contains(OF_SECRET) && !refused.text().contains(PLAIN));
        assert_eq!(merchant.events().await.len(), before, "it is not recorded");
        is_recorded_nowhere(&merchant, &[PLAIN, OF_SECRET]).await;

        // What comes later is delivered later.
        let good = merchant.instance.provider.endpoint(|_| answer(200, &json!({"usage": {"tokens": 1}})));
        let last = send(own, &format!("{}{end}", good.url)).await;
        last.expect(200);
        let id = last.request_id();
        let deliveries = eventually("the last call is delivered", async || {
            let calls = receiver.calls().into_iter();
            let bodies: Vec<_> = calls.map(|call| String::from_utf8(call.body.clone()).unwrap()).collect();
            bodies.iter().any(|body| body.contains(&id)).then_some(bodies)
        })
        .await;
        for delivery in &deliveries {
            assert!(!delivery.contains(OF_SECRET) && !delivery.contains(PLAIN), "{delivery}");
        }
    });
}
