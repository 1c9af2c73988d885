//! Credentials: every header that can carry one, in every form (interface.md, Authentication; completion.md section 3).

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use farthing_tests::client::Request;
use farthing_tests::managed::Managed;
use farthing_tests::merchant::{Merchant, encoded, forward, token};
use farthing_tests::provider::{json, json_text};
use farthing_tests::run;
use serde_json::{Value, json};

use super::rewrite::{COMPLETION, COST, openai_body, rewrite};

const CARRIERS: [&str; 6] =
    ["Authorization", "x-api-key", "x-goog-api-key", "xi-api-key", "api-key", "?key="];

fn carried(request: Request, carrier: &str, credential: &str) -> Request {
    match carrier {
        "Authorization" => request.bearer(credential),
        "?key=" => Request { target: format!("{}&key={}", request.target, encoded(credential)), ..request },
        header => request.header(header, credential),
    }
}

/// Every form of a credential of this merchant's secret key, with the mode of charging that it means. The customer and the
/// meter are new.
pub(crate) async fn shapes(merchant: &Merchant) -> Vec<(String, &'static str)> {
    let customer = merchant.customer("100").await;
    let meter = merchant.call_meter("0.01").await;
    let shown = merchant.get(&format!("/v1/connections/{}", customer.id)).await.expect(200);
    let connection_secret = shown["connection_secret"].as_str().unwrap();
    let key = &merchant.secret_key;
    vec![
        (key.clone(), "merchant"),
        (token(&json!({"secret_key": key})), "merchant"),
        (token(&json!({"secret_key": key, "meter_slug": meter.slug})), "meter_only"),
        (token(&json!({"secret_key": key, "product_secret": meter.secret})), "meter_only"),
        (token(&json!({"secret_key": key, "meter_id": meter.id})), "meter_only"),
        (token(&json!({"secret_key": key, "customer_id": customer.id})), "customer"),
        (token(&json!({"secret_key": key, "connection_id": customer.id})), "customer"),
        (token(&json!({"secret_key": key, "connection_secret": connection_secret})), "customer"),
        (merchant.billing(&customer, &meter), "customer_billing"),
        (
            token(
                &json!({"secret_key": key, "customer_id": customer.reference_id, "meter_slug": meter.slug}),
            ),
            "customer_billing",
        ),
        (
            token(
                &json!({"secret_key": key, "connection_secret": connection_secret, "product_secret": meter.secret}),
            ),
            "customer_billing",
        ),
        (
            token(&json!({
                "secret_key": key, "customer_id": customer.id, "connection_secret": connection_secret,
                "meter_id": meter.id, "product_secret": meter.secret,
            })),
            "customer_billing",
        ),
        (
            token(&json!({
                "secret_key": key, "customer_id": customer.id, "meter_slug": meter.slug, "disable_billing": true,
            })),
            "recorded",
        ),
        (
            token(&json!({
                "secret_key": key, "connection_secret": null, "product_secret": null, "provider_key": "theirs",
            })),
            "metering_only",
        ),
    ]
}

#[test]
fn every_carrier_accepts_every_form_of_credential_and_none_reaches_the_provider() {
    run(async {
        let merchant = Merchant::funded("100").await;
        let shapes = shapes(&merchant).await;
        let key = &merchant.secret_key;
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({"usage": {"tokens": 7}})));
        for carrier in CARRIERS {
            for (credential, charge) in &shapes {
                let request = carried(forward("GET", &endpoint.url), carrier, credential);
                let response = request.send(merchant.gateway()).await.unwrap();
                response.expect(200);
                let opened = merchant.log.event(&format!("{}/opened", response.request_id())).await.unwrap();
                assert_eq!(opened.body["charge"], *charge, "{carrier}");
                assert!(merchant.charged(&response).await["usage"]["tokens"]["input"] == 7);
                let call = endpoint.calls().pop().unwrap();
                let seen = format!("{:?}", call.head);
                assert!(
                    !seen.contains(credential) && !seen.contains(&encoded(credential)),
                    "{carrier}: {seen}"
                );
                assert!(!seen.contains(key), "{carrier}: {seen}");
            }
        }
    });
}

/// What a metered call has in common with the same call through forward.
fn terms(metered: &Value) -> Value {
    let names =
        ["usage", "fee", "total_merchant_cost", "total_wallet_cost", "total_request_cost", "marks", "model"];
    names.iter().map(|name| metered[*name].clone()).collect()
}

#[test]
fn every_form_of_credential_is_charged_at_a_model_endpoint_and_by_rewrite_as_forward_charges_it() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let path = "/v1/chat/completions";
        let endpoint = managed.openai.endpoint_at(path, |_| json_text(200, COMPLETION));
        let body = openai_body("gpt-4o");
        let mut seen = BTreeSet::new();
        for (credential, charge) in shapes(&merchant).await {
            let forwarded = managed.send(&credential, forward("POST", &endpoint.url).json(&body)).await;
            forwarded.expect(200);
            let oracle = merchant.charged(&forwarded).await;
            for request in [
                Request::new("POST", path).json(&body),
                Request::new("POST", "/v1/messages").json(&body),
                rewrite("anthropic", &endpoint.url, &body),
            ] {
                let target = request.target.clone();
                let response = managed.send(&credential, request).await;
                response.expect(200);
                let opened = merchant.log.event(&format!("{}/opened", response.request_id())).await.unwrap();
                assert_eq!(opened.body["charge"], charge, "{target}");
                assert_eq!(terms(&merchant.charged(&response).await), terms(&oracle), "{charge} {target}");
                let call = endpoint.calls().pop().unwrap();
                let key = if charge == "metering_only" { "theirs" } else { "sk-managed-openai" };
                assert_eq!(call.head.all("authorization"), [format!("Bearer {key}")], "{charge} {target}");
                let head = format!("{:?}", call.head);
                assert!(
                    !head.contains(&credential) && !head.contains(&merchant.secret_key),
                    "{target}: {head}"
                );
            }
            seen.insert((
                charge,
                oracle["total_merchant_cost"].to_string(),
                oracle["total_wallet_cost"].to_string(),
            ));
        }
        // Each mode has costs of its own: the price of gpt-4o, and the fee with its service charge.
        let expected = [
            ("customer", "0.0000000000", COST),
            ("customer_billing", "0.0001900000", "0.0135000000"),
            ("merchant", COST, "0.0000000000"),
            ("meter_only", COST, "0.0000000000"),
            ("metering_only", "0.0000000000", "0.0000000000"),
            ("recorded", "0.0136900000", "0.0000000000"),
        ];
        let quoted = |amount: &str| format!("\"{amount}\"");
        assert_eq!(
            seen,
            expected.map(|(charge, merchants, wallets)| (charge, quoted(merchants), quoted(wallets))).into()
        );
        merchant.nothing_is_held().await;
    });
}

#[test]
fn a_token_may_be_base64_of_either_alphabet_without_padding() {
    run(async {
        let merchant = Merchant::funded("1").await;
        // A name whose base64 needs the two characters in which the alphabets differ.
        let customer = merchant.customer_called("a?>~~~?>ÿÿ", "0").await;
        let fields =
            json!({"secret_key": merchant.secret_key, "customer_id": customer.reference_id}).to_string();
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({})));
        for credential in [
            STANDARD_NO_PAD.encode(&fields),
            URL_SAFE_NO_PAD.encode(&fields),
            token(&json!({
                "secret_key": merchant.secret_key, "customer_id": customer.reference_id,
            })),
        ] {
            merchant.fetch(&credential, &endpoint.url).await.expect(200);
        }
    });
}

#[test]
fn the_callers_provider_key_replaces_the_credential() {
    run(async {
        let merchant = Merchant::new().await;
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({})));
        let credential = token(&json!({
            "secret_key": merchant.secret_key, "connection_secret": null, "product_secret": null,
            "provider_key": "sk-theirs",
        }));
        for (carrier, slot, value) in [
            ("Authorization", "authorization", "Bearer sk-theirs"),
            ("x-api-key", "x-api-key", "sk-theirs"),
            ("x-goog-api-key", "x-goog-api-key", "sk-theirs"),
            ("xi-api-key", "xi-api-key", "sk-theirs"),
            ("api-key", "api-key", "sk-theirs"),
        ] {
            let request = carried(forward("GET", &endpoint.url), carrier, &credential);
            let response = request.send(merchant.gateway()).await.unwrap();
            response.expect(200);
            assert_eq!(endpoint.calls().pop().unwrap().head.all(slot), [value]);
            let shown = merchant.shown(&response.request_id(), "completed").await;
            assert_eq!(shown["provider_key_type"], "unmanaged");
            assert_eq!(shown["total_request_cost"], "0.0000000000");
        }
    });
}

#[test]
fn an_empty_slot_counts_as_absent() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({})));
        for carrier in CARRIERS.into_iter().filter(|carrier| *carrier != "Authorization") {
            let request = carried(forward("GET", &endpoint.url), carrier, "");
            let alone = request.clone().send(merchant.gateway()).await.unwrap();
            alone.refused(401, "auth_header_missing");
            merchant.send(&merchant.secret_key, request.clone()).await.expect(200);
            let foreign = request.bearer("sk-theirs").send(merchant.gateway()).await.unwrap();
            foreign.refused(400, "forward_token_json_invalid");
        }
        assert_eq!(endpoint.calls().len(), CARRIERS.len() - 1);
    });
}

#[test]
fn a_provider_key_in_another_header_passes_unchanged() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({})));
        let request = forward("GET", &format!("{}?key=provider-key", endpoint.url))
            .header("X-Provider-API-Key", "theirs")
            .header("x-api-key", "sk-ant-theirs")
            .header("api-key", "azures-own");
        merchant.send(&merchant.secret_key, request).await.expect(200);
        let call = endpoint.only_call();
        assert_eq!(call.head.all("x-provider-api-key"), ["theirs"]);
        assert_eq!(call.head.all("x-api-key"), ["sk-ant-theirs"]);
        assert_eq!(call.head.all("api-key"), ["azures-own"]);
        assert_eq!(call.head.header("authorization"), None);
        assert!(call.target().ends_with("?key=provider-key"), "{}", call.target());
    });
}

#[test]
fn every_carrier_accepts_a_spend_key_alone_or_in_a_token_and_it_never_reaches_the_provider() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let made = merchant.post("/v1/spend_keys", &json!({"name": "laptop"})).await.expect(201);
        let spend_key = made["key"].as_str().unwrap();
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({"usage": {"tokens": 3}})));
        let shapes = [
            spend_key.to_owned(),
            token(&json!({"spend_key": spend_key})),
            token(&json!({"secret_key": spend_key, "connection_secret": null, "product_secret": null})),
            token(&json!({"spend_key": spend_key, "provider_key": "theirs"})),
        ];
        for carrier in CARRIERS {
            for credential in &shapes {
                let request = carried(forward("GET", &endpoint.url), carrier, credential);
                let response = request.send(merchant.gateway()).await.unwrap();
                response.expect(200);
                let opened = merchant.log.event(&format!("{}/opened", response.request_id())).await.unwrap();
                assert_eq!(opened.body["charge"], "spend_key", "{carrier}");
                assert_eq!(opened.body["spend_key"]["spend_key_id"], made["spend_key_id"], "{carrier}");
                let seen = format!("{:?}", endpoint.calls().pop().unwrap().head);
                let encoded = encoded(credential);
                assert!(!seen.contains(credential) && !seen.contains(&encoded), "{carrier}: {seen}");
                assert!(!seen.contains(spend_key), "{carrier}: {seen}");
            }
        }
        let calls = endpoint.calls().len();
        let customer = merchant.customer("1").await;
        for fields in [
            json!({"spend_key": spend_key, "customer_id": customer.id}),
            json!({"spend_key": spend_key, "meter_slug": "m"}),
            json!({"spend_key": spend_key, "secret_key": merchant.secret_key}),
            json!({"secret_key": spend_key, "disable_billing": true}),
        ] {
            let refused = merchant.fetch(&token(&fields), &endpoint.url).await;
            refused.refused(400, "forward_token_json_invalid");
        }
        merchant.fetch("spk_nobodys", &endpoint.url).await.refused(401, "spend_key_invalid");
        assert_eq!(endpoint.calls().len(), calls);
    });
}

#[test]
fn revoked_and_foreign_secrets_are_refused_each_with_its_code() {
    run(async {
        let (merchant, other) = (Merchant::funded("1").await, Merchant::funded("1").await);
        let stranger = other.customer("1").await;
        let strange_meter = other.call_meter("0.01").await;
        let shown = other.get(&format!("/v1/connections/{}", stranger.id)).await.expect(200);
        let key = &merchant.secret_key;
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({})));
        let refused = async |fields: Value, status, code| {
            merchant.fetch(&token(&fields), &endpoint.url).await.refused(status, code);
        };
        refused(json!({"secret_key": "aks_test_nobodys"}), 401, "secret_key_invalid").await;
        refused(json!({"secret_key": key, "customer_id": stranger.id}), 404, "customer_not_found").await;
        refused(json!({"secret_key": key, "customer_id": "nobody"}), 404, "customer_not_found").await;
        let secret = &shown["connection_secret"];
        refused(json!({"secret_key": key, "connection_secret": secret}), 401, "connection_secret_invalid")
            .await;
        refused(json!({"secret_key": key, "connection_secret": "cons_x"}), 401, "connection_secret_invalid")
            .await;
        refused(json!({"secret_key": key, "meter_slug": strange_meter.slug + "x"}), 404, "meter_not_found")
            .await;
        refused(json!({"secret_key": key, "meter_id": strange_meter.id}), 404, "meter_not_found").await;
        refused(
            json!({"secret_key": key, "product_secret": strange_meter.secret}),
            401,
            "product_secret_invalid",
        )
        .await;
        // Ids beside secrets of others name two.
        let own = merchant.customer("1").await;
        refused(
            json!({"secret_key": key, "customer_id": own.id, "connection_secret": secret}),
            400,
            "forward_token_json_invalid",
        )
        .await;
        merchant.fetch("aks_test_nobodys", &endpoint.url).await.refused(401, "secret_key_invalid");
        let bare = forward("GET", &endpoint.url).send(merchant.gateway()).await.unwrap();
        bare.refused(401, "auth_header_missing");
        assert!(endpoint.calls().is_empty());
    });
}
