//! Checkout sessions over REST: creating, reading and listing them, and the link to the hosted page.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use farthing_tests::client::{Connection, Request};
use farthing_tests::merchant::Merchant;
use farthing_tests::run;
use farthing_tests::side_gateway::SideGateway;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

const ORIGIN: &str = "https://app.example";

fn onboarding() -> Value {
    json!({"checkout_mode": "onboarding", "origin_url": ORIGIN})
}

fn token_of(session: &Value) -> Value {
    let token = session["checkout_session_token"].as_str().unwrap();
    serde_json::from_slice(&STANDARD.decode(token).unwrap()).unwrap()
}

#[test]
fn a_session_is_created_and_read_and_its_token_opens_its_page() {
    run(async {
        let merchant = Merchant::new().await;
        let body = json!({"checkout_mode": "onboarding", "origin_url": "https://app.example/cart", "reference_id": "ada"});
        let made = merchant.post("/v1/checkout_sessions", &body).await.expect(201);
        let id = made["checkout_session_id"].as_str().unwrap();
        assert!(id.starts_with("cs_"), "{made}");
        assert_eq!(made["checkout_mode"], "onboarding");
        assert_eq!(made["origin_url"], "https://app.example/cart");
        assert_eq!(made["reference_id"], "ada");
        let absent = [
            "customer_id",
            "connection_id",
            "subscription_config_id",
            "plan_id",
            "credit_bundle_id",
            "completed_at",
        ];
        for none in absent {
            assert_eq!(made.get(none), None, "{none}");
        }
        let at = |name: &str| made[name].as_str().unwrap().parse::<chrono::DateTime<chrono::Utc>>().unwrap();
        assert_eq!(at("expires_at") - at("created_at"), chrono::TimeDelta::hours(24));

        let token = token_of(&made);
        let base = merchant.instance.ready().pages_url;
        assert_eq!(token["base"], base.as_str());
        let secret = token["secret"].as_str().unwrap();
        assert!(secret.starts_with("css_"), "{secret}");
        assert_eq!(made["url"], format!("{base}embed/checkout/{secret}"));

        assert_eq!(merchant.get(&format!("/v1/checkout_sessions/{id}")).await.expect(200), made);
        assert_eq!(merchant.get("/v1/checkout_sessions").await.expect(200)["data"], json!([made]));
        let logged = merchant.events().await;
        let secrets = logged.iter().filter(|event| event.text.contains("css_"));
        assert_eq!(secrets.count(), 0, "the secret is derived, never stored");
    });
}

#[test]
fn an_existing_customer_is_found_by_each_of_its_ids() {
    run(async {
        let merchant = Merchant::new().await;
        let customer = merchant.customer("0").await;
        for named in [
            json!({"customer_id": customer.id}),
            json!({"connection_id": customer.id}),
            json!({"customer_id": customer.reference_id}),
            json!({"reference_id": customer.reference_id}),
            json!({"customer_id": customer.id, "reference_id": customer.reference_id}),
        ] {
            let mut body = onboarding();
            body.as_object_mut().unwrap().extend(named.as_object().unwrap().clone());
            let made = merchant.post("/v1/checkout_sessions", &body).await.expect(201);
            assert_eq!(made["customer_id"], customer.id.as_str(), "{named}");
            assert_eq!(made["connection_id"], customer.id.as_str(), "{named}");
            assert_eq!(made["reference_id"], customer.reference_id.as_str(), "{named}");
        }
        let other = json!({
            "checkout_mode": "topup", "origin_url": ORIGIN, "customer_id": customer.id, "reference_id": "another",
        });
        let refused = merchant.post("/v1/checkout_sessions", &other).await.refused(400, "validation_error");
        assert_eq!(refused["issues"][0]["path"], json!(["reference_id"]));
        let unknown = json!({"checkout_mode": "topup", "origin_url": ORIGIN, "customer_id": "nobody"});
        merchant.post("/v1/checkout_sessions", &unknown).await.refused(404, "customer_not_found");
    });
}

#[test]
fn a_session_for_a_customer_has_its_present_reference_id_and_is_found_by_it() {
    run(async {
        let merchant = Merchant::new().await;
        let made = merchant.post("/v1/customers", &json!({})).await.expect(201);
        let id = made["customer_id"].as_str().unwrap();
        let session = async |mode: &str, name: &str| {
            let body = json!({"checkout_mode": mode, "origin_url": ORIGIN, name: id});
            merchant.post("/v1/checkout_sessions", &body).await.expect(201)
        };
        let without = session("onboarding", "customer_id").await;
        assert_eq!((without["customer_id"].as_str(), without.get("reference_id")), (Some(id), None));
        let path = format!("/v1/customers/{id}");
        let mut last = Value::Null;
        for (reference, mode, name) in
            [("ada", "topup", "customer_id"), ("grace", "onboarding", "connection_id")]
        {
            merchant.patch(&path, &json!({"reference_id": reference})).await.expect(200);
            last = session(mode, name).await;
            assert_eq!(last["reference_id"], reference);
            let found = merchant.get(&format!("/v1/checkout_sessions?reference_id={reference}")).await;
            assert_eq!(found.expect(200)["data"], json!([last]));
        }
        let shown = format!("/v1/checkout_sessions/{}", last["checkout_session_id"].as_str().unwrap());
        assert_eq!(merchant.get(&shown).await.expect(200), last);
        let shown = format!("/v1/checkout_sessions/{}", without["checkout_session_id"].as_str().unwrap());
        assert_eq!(merchant.get(&shown).await.expect(200), without);
    });
}

#[test]
fn each_mode_requires_its_own_fields() {
    run(async {
        let merchant = Merchant::new().await;
        let customer = merchant.customer("0").await;
        let plan_id = "sc_01ARZ3NDEKTSV4RRFFQ69G5FAV";
        let bundle_id = "cb_01ARZ3NDEKTSV4RRFFQ69G5FAV";
        for (fields, path) in [
            (json!({"checkout_mode": "subscription"}), "plan_id"),
            (json!({"checkout_mode": "credit_bundle", "customer_id": customer.id}), "credit_bundle_id"),
            (json!({"checkout_mode": "credit_bundle", "credit_bundle_id": bundle_id}), "customer_id"),
            (json!({"checkout_mode": "gift"}), "checkout_mode"),
            (json!({"checkout_mode": "topup", "origin_url": "javascript:alert(1)"}), "origin_url"),
            (json!({"checkout_mode": "topup", "origin_url": "https://a.example;script-src *"}), "origin_url"),
            (json!({"checkout_mode": "topup", "origin_url": "https://*"}), "origin_url"),
            (json!({"checkout_mode": "topup", "origin_url": null}), "origin_url"),
        ] {
            let mut body = json!({"origin_url": ORIGIN});
            body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            let refused =
                merchant.post("/v1/checkout_sessions", &body).await.refused(400, "validation_error");
            assert_eq!(refused["issues"][0]["path"], json!([path]), "{body}");
        }
        for (fields, code) in [
            (json!({"checkout_mode": "subscription", "plan_id": plan_id}), "plan_not_found"),
            (
                json!({"checkout_mode": "credit_bundle", "customer_id": customer.id, "credit_bundle_id": bundle_id}),
                "credit_bundle_not_found",
            ),
        ] {
            let mut body = json!({"origin_url": ORIGIN});
            body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            merchant.post("/v1/checkout_sessions", &body).await.refused(404, code);
        }
        assert_eq!(merchant.get("/v1/checkout_sessions").await.expect(200)["data"], json!([]));
    });
}

#[test]
fn sessions_are_listed_newest_first_page_by_page_and_by_reference_id() {
    run(async {
        let merchant = Merchant::new().await;
        let mut made = Vec::new();
        for number in 0..5 {
            let mut body = onboarding();
            body["reference_id"] = json!(if number % 2 == 0 { "even" } else { "odd" });
            made.push(merchant.post("/v1/checkout_sessions", &body).await.expect(201));
        }
        made.reverse();
        assert_eq!(merchant.pages("/v1/checkout_sessions", 2).await, made);
        let even: Vec<_> = made.iter().filter(|one| one["reference_id"] == "even").cloned().collect();
        assert_eq!(merchant.pages("/v1/checkout_sessions?reference_id=even", 2).await, even);
        assert_eq!(merchant.pages("/v1/checkout_sessions?reference_id=none", 2).await, Vec::<Value>::new());
        merchant.get("/v1/checkout_sessions?cursor=cs_x").await.refused(400, "cursor_invalid");
    });
}

#[test]
fn a_session_is_created_once_under_an_idempotency_key() {
    run(async {
        let merchant = Merchant::new().await;
        let ask = || {
            let request = Request::new("POST", "/v1/checkout_sessions").header("Idempotency-Key", "one");
            request.json(&onboarding())
        };
        let first = merchant.rest(ask()).await;
        let second = merchant.rest(ask()).await;
        assert_eq!(
            (first.expect(201), second.head.header("idempotency-replayed")),
            (second.expect(201), Some("true"))
        );
        let listed = merchant.get("/v1/checkout_sessions").await.expect(200);
        assert_eq!(listed["data"].as_array().unwrap().len(), 1);
    });
}

#[test]
fn the_page_url_is_the_operators_whatever_the_caller_says() {
    run(async {
        let merchant = Merchant::new().await;
        let base = merchant.instance.ready().pages_url;
        let named = SideGateway::start(merchant.instance, &["--pages-url=https://pay.example:8443"]).await;
        for (gateway, base) in
            [(merchant.gateway(), base.as_str()), (named.address, "https://pay.example:8443/")]
        {
            for (name, value) in [
                ("X-Forwarded-Host", "evil.example"),
                ("Forwarded", "host=evil.example;proto=https"),
                ("X-Host", "evil.example"),
            ] {
                let request = Request::new("POST", "/v1/checkout_sessions").bearer(&merchant.secret_key);
                let request = request.header(name, value).header("X-Forwarded-Proto", "https");
                let created = request.json(&onboarding()).send(gateway).await.unwrap().expect(201);
                assert_eq!(token_of(&created)["base"], base, "{name}");
                let url = created["url"].as_str().unwrap();
                assert!(url.starts_with(&format!("{base}embed/checkout/css_")), "{name}: {url}");

                let id = created["checkout_session_id"].as_str().unwrap();
                let mut connection = Connection::open(gateway).await.unwrap();
                let (path, key) = (format!("/v1/checkout_sessions/{id}"), &merchant.secret_key);
                let head = format!(
                    "GET {path} HTTP/1.1\r\nHost: evil.example\r\nAuthorization: Bearer {key}\r\n\r\n"
                );
                connection.write.write_all(head.as_bytes()).await.unwrap();
                assert_eq!(connection.response("GET").await.unwrap().expect(200), created);
                let absolute = Request::new("GET", format!("http://evil.example{path}")).bearer(key);
                assert_eq!(absolute.send(gateway).await.unwrap().expect(200), created);
            }
        }
    });
}
