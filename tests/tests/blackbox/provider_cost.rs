//! The provider cost of a call and who pays it: list prices, managed provider keys, percentage meters (completion.md
//! sections 3 to 5).

use std::collections::BTreeMap;
use std::path::Path;

use farthing_tests::books::Books;
use farthing_tests::instance::program;
use farthing_tests::managed::Managed;
use farthing_tests::merchant::{Customer, Merchant, Meter, forward, token};
use farthing_tests::provider::{
    Endpoint, Provider, Step, chunk, event_stream, json, json_text, last_chunk, whole,
};
use farthing_tests::run;
use serde_json::{Value, json};

const CATALOGUE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/prices/catalogue.json");

const NOTHING: &str = "0.0000000000";

/// The price of [`CACHED`] on gpt-4o by the published figures.
const COST: &str = "0.0056150000";

const CACHED: &str = r#"{"id":"chatcmpl-1","model":"gpt-4o-2024-08-06","usage":{"prompt_tokens":2006,"completion_tokens":300,
    "total_tokens":2306,"prompt_tokens_details":{"cached_tokens":1920}}}"#;

async fn percentage_meter(merchant: &Merchant, rate: &str, payers: (&str, &str)) -> Meter {
    merchant
        .meter(json!({
            "name": "percentage", "rate_type": "percentage", "tiers": [{"start": 0, "rate": rate}],
            "base_cost_payer": payers.0, "service_charge_payer": payers.1,
        }))
        .await
}

/// What `sha256sum` prints of a file.
fn sha256sum(file: &Path) -> String {
    let output = std::process::Command::new("sha256sum").arg(file).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()[..64].to_owned()
}

/// The amounts of a call: cost, fee, service charge, and the shares of wallet and merchant.
fn sums(metered: &Value) -> [&str; 5] {
    [
        &metered["model_cost"]["total"],
        &metered["fee"]["amount"],
        &metered["service_charge"]["amount"],
        &metered["total_wallet_cost"],
        &metered["total_merchant_cost"],
    ]
    .map(|amount| amount.as_str().unwrap_or_default())
}

#[test]
fn the_cost_of_a_managed_call_is_charged_to_the_payer_in_the_table() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let customer = merchant.customer("100").await;
        let endpoint = managed.openai.endpoint(|_| json_text(200, CACHED));
        let key = &merchant.secret_key;
        let meter = async |cost: &str| {
            let fields = json!({
                "name": cost, "rate_type": "fixed", "tier_type": "requests", "tiers": [{"start": 0, "rate": "1"}],
                "base_cost_payer": cost, "service_charge_payer": "merchant",
            });
            merchant.meter(fields).await
        };
        let (on_wallet, on_merchant) = (meter("wallet").await, meter("merchant").await);
        let billed = |meter: &Meter, more: Value| {
            let mut fields = json!({"secret_key": key, "customer_id": customer.id, "meter_slug": meter.slug});
            fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            token(&fields)
        };
        let (fee, charge) = ("1.0000000000", "0.0190000000");
        for (credential, payer, expected) in [
            (key.clone(), "merchant", [COST, NOTHING, NOTHING, NOTHING, COST]),
            (
                token(&json!({"secret_key": key, "meter_slug": on_wallet.slug})),
                "merchant",
                [COST, fee, NOTHING, NOTHING, COST],
            ),
            (
                token(&json!({"secret_key": key, "customer_id": customer.id})),
                "wallet",
                [COST, NOTHING, NOTHING, COST, NOTHING],
            ),
            (billed(&on_wallet, json!({})), "wallet", [COST, fee, charge, "1.0056150000", charge]),
            (billed(&on_merchant, json!({})), "merchant", [COST, fee, charge, fee, "0.0246150000"]),
            (
                billed(&on_wallet, json!({"disable_billing": true})),
                "merchant",
                [COST, fee, charge, NOTHING, "1.0246150000"],
            ),
        ] {
            let response = managed.ask(&credential, &endpoint.url, "gpt-4o").await;
            assert_eq!((response.status, response.text().as_str()), (200, CACHED));
            let metered = merchant.charged(&response).await;
            assert_eq!(sums(&metered), expected, "{payer}: {metered}");
            let shown = merchant.shown(&response.request_id(), "completed").await;
            assert_eq!(shown["provider_key_type"], "managed");
            assert_eq!((&shown["model_usage"]["payer"], &shown["cost"]), (&json!(payer), &json!(COST)));
            assert_eq!(shown["model_usage"]["total_cost"], COST);
            assert_eq!(shown["model_usage"]["input_cost"], "0.0026150000");
            assert_eq!(shown["model_usage"]["output_cost"], "0.0030000000");
            assert_eq!(shown["model_usage"]["cache_read_tokens"], 1920);
            assert_eq!(shown["total_wallet_cost"], expected[3]);
            assert_eq!(shown["total_merchant_cost"], expected[4]);
            let call = endpoint.calls().pop().unwrap();
            assert_eq!(call.head.all("authorization"), ["Bearer sk-managed-openai"]);
        }
        merchant.nothing_is_held().await;
        Books::of(&merchant.log.after(0).await);
        // Six calls at COST, three of them with fee and service charge; 100 were credited to each wallet.
        let expected = [
            ("customer_balances", "-97.98877"),
            ("fee_revenue", "-3"),
            ("manual_credits", "200"),
            ("merchant_wallets", "-98.92054"),
            ("provider_cost", "-0.03369"),
            ("service_charge", "-0.057"),
        ];
        let expected = expected.map(|(account, balance)| (account.to_owned(), balance.parse().unwrap()));
        assert_eq!(merchant.trial_balance().await, BTreeMap::from(expected));
    });
}

#[test]
fn a_call_with_the_callers_provider_key_shows_its_cost_and_charges_none() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let customer = merchant.customer("100").await;
        let endpoint = managed.openai.endpoint(|_| json_text(200, CACHED));
        let meter = percentage_meter(&merchant, "10", ("wallet", "wallet")).await;
        let credential = token(&json!({
            "secret_key": merchant.secret_key, "customer_id": customer.id, "meter_slug": meter.slug,
            "provider_key": "sk-theirs",
        }));
        let response = managed.ask(&credential, &endpoint.url, "gpt-4o").await;
        let expected = [COST, "0.0005615000", "0.0000106685", "0.0005721685", NOTHING];
        assert_eq!(sums(&merchant.charged(&response).await), expected);
        let shown = merchant.shown(&response.request_id(), "completed").await;
        assert_eq!(shown["provider_key_type"], "unmanaged");
        assert_eq!((&shown["model_usage"]["payer"], &shown["cost"]), (&json!("none"), &json!(COST)));
        assert_eq!(endpoint.calls().pop().unwrap().head.all("authorization"), ["Bearer sk-theirs"]);

        let beside = forward("POST", &endpoint.url).header("x-api-key", "sk-theirs");
        let response = managed.send(&merchant.secret_key, beside.json(&json!({"model": "gpt-4o"}))).await;
        assert_eq!(sums(&merchant.charged(&response).await), [COST, NOTHING, NOTHING, NOTHING, NOTHING]);
        assert_eq!(endpoint.calls().pop().unwrap().head.header("authorization"), None);
    });
}

#[test]
fn a_percentage_meter_charges_its_share_of_the_provider_cost() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let customer = merchant.customer("100").await;
        // 0.0581 dollars on gpt-4o, the published figure.
        let endpoint = managed.openai.endpoint(|_| {
            json(200, &json!({"usage": {"prompt_tokens": 22_040, "completion_tokens": 300, "total_tokens": 22_340}}))
        });
        for (payers, wallet, own) in [
            (("wallet", "wallet"), "0.0640203900", NOTHING),
            (("merchant", "merchant"), "0.0058100000", "0.0582103900"),
        ] {
            let meter = percentage_meter(&merchant, "10", payers).await;
            let response = managed.ask(&merchant.billing(&customer, &meter), &endpoint.url, "gpt-4o").await;
            let metered = merchant.charged(&response).await;
            assert_eq!(sums(&metered), ["0.0581000000", "0.0058100000", "0.0001103900", wallet, own]);
            let shown = merchant.shown(&response.request_id(), "completed").await;
            assert_eq!(shown["fee"]["rate_type"], "percentage");
            assert_eq!(shown["charge"]["rate_type"], "percentage");
            assert_eq!(shown["fee"]["breakdown"][0]["tier"]["rate"], "10.0000000000");
            assert_eq!(shown["fee"]["breakdown"][0]["tokens"], 22_340);
        }
        let product = json!({"name": "p", "billingBasis": "tokens", "feeStructure": {"percentageFee": 10}});
        let meter = merchant.meter(product).await;
        let billing = merchant.billing(&customer, &meter);
        let response = managed.ask(&billing, &endpoint.url, "gpt-4o").await;
        assert_eq!(merchant.charged(&response).await["fee"]["amount"], "0.0058100000");

        // Provider `other` costs nothing by definition; an unlisted model would be an uncharged cost.
        let other = merchant.instance.provider.endpoint(|_| json(200, &json!({"usage": {"tokens": 5}})));
        let response = managed.ask(&billing, &other.url, "gpt-4o").await;
        assert_eq!(sums(&merchant.charged(&response).await), [NOTHING; 5]);
        managed.ask(&billing, &endpoint.url, "unheard-of").await.refused(400, "model_not_priced");
        let own_key = token(&json!({
            "secret_key": merchant.secret_key, "customer_id": customer.id, "meter_slug": meter.slug,
            "provider_key": "sk-theirs",
        }));
        managed.ask(&own_key, &endpoint.url, "unheard-of").await.refused(400, "model_not_priced");
        assert_eq!(endpoint.calls().len(), 3);
        merchant.nothing_is_held().await;
    });
}

#[test]
fn a_call_without_a_list_price_is_not_sent_with_a_managed_key() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let endpoint = managed.openai.endpoint(|_| json(200, &json!({"object": "list", "data": []})));
        let key = &merchant.secret_key;
        let post = |body: &str| {
            let body = farthing_tests::client::Body::Whole(body.as_bytes().to_vec());
            forward("POST", &endpoint.url).header("Content-Type", "application/json").body(body)
        };
        for body in [
            r#"{"model":"gpt-4o-2099-01-01"}"#,
            r#"{"model":"GPT-4O"}"#,
            r#"{"model":7}"#,
            "{}",
            "[]",
            "x",
            "",
        ] {
            managed.send(key, post(body)).await.refused(400, "model_not_priced");
        }
        managed
            .send(key, post(r#"{"model":"gpt-4o-mini","model":"gpt-4o"}"#))
            .await
            .refused(400, "validation_error");
        for method in ["GET", "DELETE"] {
            managed.send(key, forward(method, &endpoint.url)).await.refused(400, "model_not_priced");
        }
        assert!(endpoint.calls().is_empty());
        // With the caller's own key the call is not restricted.
        let named = managed.mistral.endpoint(|_| json(200, &json!({"usage": {"prompt_tokens": 5}})));
        let response = managed.ask(key, &named.url, "unheard-of").await;
        assert_eq!(merchant.charged(&response).await["usage"]["tokens"]["input"], 5);
        assert_eq!(named.only_call().head.header("authorization"), None);
        // A known provider is not called without any key, nor without TLS.
        for url in ["https://api.mistral.ai/v1/models", "http://api.openai.com/v1/models"] {
            managed.send(key, forward("GET", url)).await.refused(400, "provider_key_missing");
        }
        merchant.nothing_is_held().await;
    });
}

#[test]
fn the_hold_of_a_managed_call_covers_its_highest_possible_cost() {
    run(async {
        let managed = Managed::start(&["--hold-cap=5"]).await;
        let merchant = Merchant::funded("1").await;
        let endpoint = managed.openai.endpoint_ending("/v1/chat/completions", |_| json_text(200, CACHED));
        let ask = async |limit: u64| {
            let request =
                forward("POST", &endpoint.url).json(&json!({"model": "gpt-4o", "max_tokens": limit}));
            managed.send(&merchant.secret_key, request).await
        };
        // Output at 10 per million: 99,000 tokens are 0.99, 100,000 with the input more than the wallet holds.
        ask(100_000).await.refused(402, "insufficient_balance");
        ask(99_000).await.expect(200);
        assert_eq!(merchant.own_balance().await, "0.9943850000");
        merchant.nothing_is_held().await;
    });
}

/// A response in Anthropic's format, whole or as events.
fn anthropic(provider: &Provider) -> [Endpoint; 2] {
    let usage = r#"{"input_tokens":3,"cache_creation_input_tokens":12304,"cache_read_input_tokens":0,"output_tokens":550}"#;
    let message = format!(r#"{{"id":"msg_1","model":"claude-sonnet-4-6","usage":{usage}}}"#);
    let begun = message.replace("\"output_tokens\":550", "\"output_tokens\":1");
    let events = [
        format!("event: message_start\ndata: {{\"type\":\"message_start\",\"message\":{begun}}}\n\n"),
        "event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":550}}\n\n"
            .to_owned(),
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n".to_owned(),
    ];
    let steps = move || {
        let mut steps = vec![event_stream()];
        steps.extend(events.iter().map(chunk));
        steps.push(last_chunk());
        steps
    };
    [
        provider.endpoint(move |_| json_text(200, &message)),
        provider.endpoint(move |_| -> Vec<Step> { steps() }),
    ]
}

#[test]
fn anthropics_cached_tokens_are_billed_once() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        for endpoint in anthropic(&managed.anthropic) {
            let response = managed.ask(&merchant.secret_key, &endpoint.url, "claude-sonnet-4-6").await;
            assert_eq!(response.status, 200, "{}", response.text());
            let metered = merchant.charged(&response).await;
            assert_eq!(sums(&metered), ["0.0543990000", NOTHING, NOTHING, NOTHING, "0.0543990000"]);
            assert_eq!(metered["usage"]["tokens"], json!({"input": 12_307, "output": 550}));
            assert_eq!(metered["response_id"], "msg_1");
            let call = endpoint.only_call();
            assert_eq!(call.head.all("x-api-key"), ["sk-managed-anthropic"]);
            assert_eq!(call.head.header("authorization"), None);
        }
    });
}

#[test]
fn cached_and_reasoning_tokens_are_shown_beside_the_usage() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let completion = json!({"id": "c1", "model": "gpt-4o", "choices": [], "usage": {
            "prompt_tokens": 100, "completion_tokens": 40, "total_tokens": 140,
            "prompt_tokens_details": {"cached_tokens": 50}, "completion_tokens_details": {"reasoning_tokens": 30}}});
        let message = json!({"id": "m1", "model": "claude-sonnet-4-6", "content": [], "usage": {
            "input_tokens": 10, "output_tokens": 4, "cache_creation_input_tokens": 6, "cache_read_input_tokens": 5}});
        let openai = managed.openai.endpoint(move |_| json(200, &completion));
        let anthropic = managed.anthropic.endpoint(move |_| json(200, &message));
        for (endpoint, model, counts) in [
            (openai, "gpt-4o", [json!(100), json!(40), json!(50), Value::Null, json!(30)]),
            (anthropic, "claude-sonnet-4-6", [json!(21), json!(4), json!(5), json!(6), Value::Null]),
        ] {
            let response = managed.ask(&merchant.secret_key, &endpoint.url, model).await;
            assert_eq!(response.status, 200, "{}", response.text());
            let shown = merchant.shown(&response.request_id(), "completed").await["model_usage"].clone();
            let names = [
                "input_tokens",
                "output_tokens",
                "cache_read_tokens",
                "cache_write_tokens",
                "reasoning_tokens",
            ];
            assert_eq!(names.map(|name| shown[name].clone()), counts, "{shown}");
        }
    });
}

#[test]
fn googles_responses_are_read_in_both_forms_and_priced_by_length() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        for (input, cost) in [(200_000, "0.2500100000"), (200_001, "0.5000175000")] {
            let part = |tokens: u64| {
                json!({"candidates": [], "modelVersion": "gemini-2.5-pro", "responseId": "g1", "usageMetadata": {
                    "promptTokenCount": input, "candidatesTokenCount": tokens, "totalTokenCount": input + tokens}})
            };
            let list = json!([part(0), part(1)]).to_string();
            let events = format!("data: {}\r\n\r\ndata: {}\r\n\r\n", part(0), part(1));
            let single = part(1).to_string();
            for (content_type, body) in
                [("application/json", list), ("text/event-stream", events), ("application/json", single)]
            {
                let endpoint = managed
                    .google
                    .endpoint(move |_| whole(200, &[("Content-Type", content_type)], body.as_bytes()));
                // Google's paths name the model; here the body does, in Google's form.
                let response =
                    managed.ask(&merchant.secret_key, &endpoint.url, "models/gemini-2.5-pro").await;
                let metered = merchant.charged(&response).await;
                assert_eq!(metered["model_cost"]["total"], cost, "{content_type}");
                assert_eq!(
                    (&metered["response_id"], &metered["model"]),
                    (&json!("g1"), &json!("gemini-2.5-pro"))
                );
                assert_eq!(endpoint.only_call().head.all("x-goog-api-key"), ["managed-google"]);
            }
        }
    });
}

#[test]
fn a_managed_key_reaches_only_its_provider() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let customer: Customer = merchant.customer("100").await;
        let key = &merchant.secret_key;
        let other = merchant
            .instance
            .provider
            .endpoint(|call| json(200, &json!({"seen": format!("{:?}", call.head)})));
        let response = managed.ask(key, &other.url, "gpt-4o").await;
        assert!(!response.text().contains("managed"), "{}", response.text());
        // A redirect is returned to the caller and not followed with the key.
        let location = other.url.clone();
        let redirect = managed.openai.endpoint(move |_| whole(307, &[("Location", location.as_str())], b""));
        let response = managed.ask(key, &redirect.url, "gpt-4o").await;
        assert_eq!((response.status, response.head.header("location")), (307, Some(other.url.as_str())));
        assert_eq!(other.calls().len(), 1);
        // Errors do not reveal it either: a provider's error, a refusal, an unreachable provider.
        let broken = managed.openai.endpoint(|_| vec![Step::Close]);
        let mut seen = String::new();
        for (url, model) in [(&broken.url, "gpt-4o"), (&broken.url, "unheard-of")] {
            seen.push_str(&managed.ask(key, url, model).await.text());
        }
        let credential = token(&json!({"secret_key": key, "customer_id": customer.id}));
        let redirected = managed.ask(&credential, &redirect.url, "gpt-4o").await;
        seen.extend([redirected.text(), format!("{:?}", redirected.head)]);
        for event in merchant.events().await {
            seen.push_str(&event.body.to_string());
        }
        assert!(!seen.contains("managed-openai") && !seen.contains("managed-google"), "{seen}");
    });
}

#[test]
fn an_operators_prices_override_the_built_in_ones_and_an_invalid_file_prevents_the_start() {
    run(async {
        let folder = std::env::temp_dir().join(format!("farthing-prices-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = |name: &str, models: &str| {
            let path = folder.join(name);
            let text = format!(r#"{{"source":"s","licence":"l","taken":"2026-11-21","models":[{models}]}}"#);
            std::fs::write(&path, text).unwrap();
            format!("--prices={}", path.display())
        };
        let good = file(
            "good.json",
            r#"{"provider":"openai","model":"gpt-4o","input_per_1m":"1000","output_per_1m":"0"},
               {"provider":"openai","model":"ours","aliases":["ours-latest"],"per_request":"0.25"}"#,
        );
        let managed = Managed::start(&[&good, "--hold-cap=10"]).await;
        let merchant = Merchant::funded("100").await;
        let endpoint = managed.openai.endpoint(|_| json_text(200, CACHED));
        for (model, cost) in
            [("gpt-4o", "2.0060000000"), ("ours", "0.2500000000"), ("ours-latest", "0.2500000000")]
        {
            let response = managed.ask(&merchant.secret_key, &endpoint.url, model).await;
            assert_eq!(merchant.charged(&response).await["model_cost"]["total"], cost, "{model}");
        }
        let listed = managed.ask(&merchant.secret_key, &endpoint.url, "gpt-4o-mini").await;
        merchant.charged(&listed).await;
        let opened = merchant.of_kind("request.opened").await;
        let recorded: Vec<_> = opened.iter().map(|event| event.body["model_price"]["file"].clone()).collect();
        let own = json!({"taken": "2026-11-21", "sha256": sha256sum(&folder.join("good.json"))});
        let catalogue: Value = serde_json::from_str(&std::fs::read_to_string(CATALOGUE).unwrap()).unwrap();
        let built_in = json!({"taken": catalogue["taken"], "sha256": sha256sum(Path::new(CATALOGUE))});
        assert_eq!(recorded, [own.clone(), own.clone(), own, built_in]);
        let bad = file("bad.json", r#"{"provider":"openai","model":"m","input_per_1m":0.15}"#);
        let database_url = merchant.instance.ready().database_url;
        let output = tokio::process::Command::new(program())
            .args(["gateway", "--listen=127.0.0.1:0", "--database-url", &database_url, &bad])
            .output()
            .await
            .unwrap();
        let output_text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success());
        assert!(
            output_text.contains("bad.json is not a price catalogue")
                && output_text.contains("expected a string"),
            "{output_text}"
        );
        std::fs::remove_dir_all(&folder).unwrap();
    });
}
