//! Spend limits (completion.md section 10): a call on a key with a spend limit takes an upper bound of its cost from the
//! limit until it ends, so that concurrent calls never exceed it together.

use std::net::SocketAddr;

use farthing_tests::client::{Request, Response};
use farthing_tests::managed::Managed;
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::{Call, Endpoint, Gate, Provider, Step, json as answer};
use farthing_tests::run;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::eventually;
use rust_decimal::Decimal;
use serde_json::{Value, json};

/// The path of the endpoints here, whose output limits are known by it.
const CHAT: &str = "/v1/chat/completions";

/// Models at a dollar for 1,000 tokens of output; input is free, except for the one that sees.
fn catalogue() -> Value {
    let model = |name: &str, more: Value| {
        let mut entry = json!({"provider": "openai", "model": name, "output_per_1m": "1000"});
        entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        entry
    };
    let models = [
        model("of-a-cent", json!({"max_output_tokens": 10})),
        model("of-a-dollar", json!({"max_output_tokens": 1000})),
        model("of-five-dollars", json!({"max_output_tokens": 5000})),
        model("endless", json!({})),
        model("sees", json!({"max_output_tokens": 10, "input_per_1m": "1000", "max_input_tokens": 2000})),
        model("of-mistral", json!({"provider": "mistral", "max_output_tokens": 1000})),
        model(
            "finds-search-preview",
            json!({"max_output_tokens": 10, "input_per_1m": "1000", "max_input_tokens": 2000, "per_request": "0.5"}),
        ),
        model("unsold-search-preview", json!({"max_output_tokens": 10})),
        model(
            "grok-multi-agent",
            json!({"provider": "xai", "max_output_tokens": 10, "max_input_tokens": 10}),
        ),
        model("grok", json!({"provider": "xai", "max_output_tokens": 10, "max_input_tokens": 10})),
    ];
    json!({"source": "a test", "licence": "none", "taken": "2026-11-20", "models": models})
}

/// The flag of a file with these prices.
fn prices(merchant: &Merchant, name: &str) -> String {
    let path = merchant.instance.file(name);
    std::fs::write(&path, catalogue().to_string()).unwrap();
    format!("--prices={}", path.display())
}

/// A raw spend key of the merchant with a limit that never resets.
async fn key(merchant: &Merchant, limit: &str) -> String {
    let body = json!({"name": "limited", "spend_limit": {"amount": limit, "cycle": "total"}});
    merchant.post("/v1/spend_keys", &body).await.expect(201)["key"].as_str().unwrap().to_owned()
}

/// An answer that reports so many tokens of output, or as many as the body's `max_tokens` if that is less.
fn reports(tokens: u64) -> impl Fn(&Call) -> Vec<Step> + Send + Sync + 'static {
    move |call| {
        let body: Value = serde_json::from_slice(&call.body).unwrap();
        let tokens = body["max_tokens"].as_u64().map_or(tokens, |limit| limit.min(tokens));
        answer(200, &json!({"usage": {"prompt_tokens": 1, "completion_tokens": tokens}}))
    }
}

fn ask(url: &str, body: &Value) -> Request {
    forward("POST", url).json(body)
}

/// Asserts that a response refuses a call for its spend limit, and says what helps.
fn refused(response: &Response) {
    let error = response.refused(402, "spend_limit_exceeded");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("output limit") && message.contains("max_tokens"), "{message}");
}

/// What the merchant's calls took of the spend limits, and what they held of its wallet.
async fn opened(merchant: &Merchant) -> Vec<(Value, Value)> {
    let events = merchant.events().await.into_iter().filter(|event| event.kind == "request.opened");
    events
        .map(|event| (event.body["spend_key"]["held"].clone(), event.body["hold"]["merchant"].clone()))
        .collect()
}

#[test]
fn a_call_without_an_output_limit_takes_what_its_model_can_answer() {
    run(async {
        let merchant = Merchant::funded("20").await;
        let managed = Managed::start(&[&prices(&merchant, "spend-limits.json")]).await;
        // Found from outside: a limit of 0.05 let a call through that cost 2.50.
        let endpoint = managed.openai.endpoint_ending(CHAT, reports(2_500));
        let small = key(&merchant, "0.05").await;
        for model in ["of-a-dollar", "of-five-dollars", "endless"] {
            for body in [json!({"model": model}), json!({"model": model, "max_tokens": null, "n": 1})] {
                refused(&managed.send(&small, ask(&endpoint.url, &body)).await);
            }
        }
        refused(
            &managed
                .send(&small, ask(&endpoint.url, &json!({"model": "of-a-dollar", "max_tokens": 51})))
                .await,
        );
        assert_eq!(endpoint.calls().len(), 0, "nothing is sent");
        assert_eq!(opened(&merchant).await, [], "a refused call is not a request");

        // Within the limit, with a limit in the body or of the model; and for each answer.
        let limited = |tokens: u64| json!({"model": "of-a-dollar", "max_tokens": tokens});
        managed.send(&small, ask(&endpoint.url, &limited(20))).await.expect(200);
        refused(&managed.send(&small, ask(&endpoint.url, &limited(31))).await);
        refused(&managed.send(&small, ask(&endpoint.url, &json!({"model": "of-a-cent", "n": 4}))).await);
        refused(
            &managed
                .send(
                    &small,
                    ask(&endpoint.url, &json!({"model": "of-a-cent", "prompt": ["a", "b", "c", "d"]})),
                )
                .await,
        );
        managed.send(&small, ask(&endpoint.url, &limited(30))).await.expect(200);
        refused(&managed.send(&small, ask(&endpoint.url, &limited(1))).await);
        assert_eq!(merchant.own_balance().await, "19.9500000000");

        // A bound above the hold cap is no smaller for it, and holds no more of the wallet than before.
        let large = key(&merchant, "7").await;
        managed.send(&large, ask(&endpoint.url, &json!({"model": "of-five-dollars"}))).await.expect(200);
        refused(&managed.send(&large, ask(&endpoint.url, &json!({"model": "of-five-dollars"}))).await);
        // Where neither the body nor the catalogue has a limit, the call takes the hold cap, a dollar.
        let capped = key(&merchant, "1").await;
        managed.send(&capped, ask(&endpoint.url, &json!({"model": "endless"}))).await.expect(200);
        let opened = opened(&merchant).await;
        let [.., of_model, of_cap] = opened.as_slice() else { panic!("{opened:?}") };
        assert_eq!(*of_model, (json!("5.0000000000"), json!("0.0100000000")));
        assert_eq!(*of_cap, (json!("1.0000000000"), json!("0.0100000000")));
        merchant.nothing_is_held().await;
    });
}

#[test]
fn an_image_is_bounded_by_the_input_that_its_model_takes() {
    run(async {
        let merchant = Merchant::funded("20").await;
        let managed = Managed::start(&[&prices(&merchant, "spend-limits-of-images.json")]).await;
        let endpoint = managed.openai.endpoint_ending(CHAT, reports(1));
        let with = |content: Value| json!({"model": "sees", "max_tokens": 1, "messages": [{"role": "user", "content": content}]});
        let image =
            with(json!([{"type": "image_url", "image_url": {"url": "https://images.example/large.png"}}]));
        let limited = key(&merchant, "1").await;
        managed.send(&limited, ask(&endpoint.url, &with(json!("in words")))).await.expect(200);
        refused(&managed.send(&limited, ask(&endpoint.url, &image)).await);
        let enough = key(&merchant, "2.001").await;
        managed.send(&enough, ask(&endpoint.url, &image)).await.expect(200);
        assert_eq!(opened(&merchant).await.last().unwrap().0, "2.0010000000");
        merchant.nothing_is_held().await;
    });
}

#[test]
fn a_model_that_searches_or_calls_models_by_itself_is_not_bounded_by_the_body() {
    run(async {
        let merchant = Merchant::funded("20").await;
        let xai = Provider::start().await;
        let flags = [
            prices(&merchant, "spend-limits-of-agents.json"),
            format!("--provider-host=xai={}", xai.authority()),
            merchant.instance.provider_key("xai", "sk-managed-xai"),
        ];
        let managed = Managed::start(&flags.each_ref().map(String::as_str)).await;
        let chat = managed.openai.endpoint_ending(CHAT, reports(1));
        let of = |model: &str| json!({"model": model, "max_tokens": 1, "messages": []});
        // A price without the fee of a call would leave the searches out.
        let unsold = managed.send(&merchant.secret_key, ask(&chat.url, &of("unsold-search-preview"))).await;
        let error = unsold.refused(400, "model_not_priced");
        assert!(error["message"].as_str().unwrap().contains("per_request"), "{error}");

        // 0.5 for the call, 2,000 tokens of input and one of output, each at a thousandth.
        let (limited, enough) = (key(&merchant, "2.5").await, key(&merchant, "2.501").await);
        refused(&managed.send(&limited, ask(&chat.url, &of("finds-search-preview"))).await);
        managed.send(&enough, ask(&chat.url, &of("finds-search-preview"))).await.expect(200);
        assert_eq!(opened(&merchant).await.last().unwrap().0, "2.5010000000");
        assert_eq!(chat.calls().len(), 1);

        // Its agents' calls are bounded by nothing that is known, so it takes the hold cap, a dollar.
        let responses = xai.endpoint_ending("/v1/responses", reports(1));
        let of = |model: &str| json!({"model": model, "max_output_tokens": 1, "input": "x"});
        let (limited, enough) = (key(&merchant, "0.99").await, key(&merchant, "1").await);
        refused(&managed.send(&limited, ask(&responses.url, &of("grok-multi-agent"))).await);
        managed.send(&limited, ask(&responses.url, &of("grok"))).await.expect(200);
        managed.send(&enough, ask(&responses.url, &of("grok-multi-agent"))).await.expect(200);
        assert_eq!(opened(&merchant).await.last().unwrap().0, "1.0000000000");
        merchant.nothing_is_held().await;
    });
}

#[test]
fn an_output_limit_that_the_provider_does_not_read_or_that_cannot_be_read_is_none() {
    run(async {
        let merchant = Merchant::funded("20").await;
        let mistral_key = merchant.instance.provider_key("mistral", "sk-managed-mistral");
        let prices = prices(&merchant, "spend-limits-by-name.json");
        let managed = Managed::start(&[&prices, &mistral_key]).await;
        let small = key(&merchant, "0.05").await;
        let chat = managed.openai.endpoint_ending(CHAT, reports(1));
        let responses = managed.openai.endpoint_ending("/v1/responses", reports(1));
        let unknown = managed.openai.endpoint_ending("/v1/generate", reports(1));
        let mistral = managed.mistral.endpoint_ending(CHAT, reports(1));
        let limits = [
            (&chat, "of-a-dollar", json!({"max_tokens": 50}), json!({"max_output_tokens": 50})),
            (&chat, "of-a-dollar", json!({"max_completion_tokens": 50}), json!({"maxOutputTokens": 50})),
            (
                &chat,
                "of-a-dollar",
                json!({"max_tokens": 1, "max_completion_tokens": 50}),
                json!({"max_tokens": 1, "max_completion_tokens": 51}),
            ),
            (&responses, "of-a-dollar", json!({"max_output_tokens": 50}), json!({"max_tokens": 50})),
            (&mistral, "of-mistral", json!({"max_tokens": 50}), json!({"max_completion_tokens": 50})),
        ];
        let of = |model: &str, limit: &Value| {
            let mut body = json!({"model": model, "input": "x"});
            body.as_object_mut().unwrap().extend(limit.as_object().unwrap().clone());
            body
        };
        for (endpoint, model, _, not_read) in &limits {
            refused(&managed.send(&small, ask(&endpoint.url, &of(model, not_read))).await);
        }
        refused(
            &managed.send(&small, ask(&unknown.url, &of("of-a-dollar", &json!({"max_tokens": 1})))).await,
        );
        for odd in
            [json!("abc"), json!("5"), json!(1e99), json!(-1), json!(5.5), json!(0), json!([]), json!(null)]
        {
            refused(
                &managed.send(&small, ask(&chat.url, &of("of-a-dollar", &json!({"max_tokens": odd})))).await,
            );
        }
        // How many answers there are decides the price, so it must be known.
        for (name, odd) in [("n", json!("3")), ("n", json!(3.0)), ("n", json!(-1)), ("best_of", json!("3"))] {
            let body = of("of-a-dollar", &json!({"max_tokens": 1, name: odd}));
            for credential in [&small, &merchant.secret_key] {
                let error =
                    managed.send(credential, ask(&chat.url, &body)).await.refused(400, "validation_error");
                assert_eq!(error["issues"][0]["path"], json!([name]), "{error}");
            }
        }
        let reached = [&chat, &responses, &unknown, &mistral].map(|endpoint| endpoint.calls().len());
        assert_eq!(reached, [0; 4], "nothing is sent");
        assert_eq!(opened(&merchant).await, [], "a refused call is not a request");

        // Each limit under the name that is read there fits exactly.
        for (endpoint, model, read, _) in &limits {
            let exact = key(&merchant, "0.05").await;
            managed.send(&exact, ask(&endpoint.url, &of(model, read))).await.expect(200);
            assert_eq!(opened(&merchant).await.last().unwrap().1, "0.0500000000", "{read}");
        }
        // Where the catalogue has no limit either, the call takes the hold cap, a dollar.
        for odd in [json!("abc"), json!(1e99), json!(-1), json!(null)] {
            let capped = key(&merchant, "1").await;
            let body = of("endless", &json!({"max_tokens": odd}));
            managed.send(&capped, ask(&chat.url, &body)).await.expect(200);
            assert_eq!(opened(&merchant).await.last().unwrap().0, "1.0000000000", "{odd}");
            refused(&managed.send(&capped, ask(&chat.url, &body)).await);
        }
        merchant.nothing_is_held().await;
    });
}

/// Two gateways with these prices, whose provider is the test's.
async fn two_gateways(merchant: &Merchant) -> [SideGateway; 2] {
    let flags = [
        prices(merchant, "spend-limits-of-two.json"),
        format!("--provider-host=openai={}", merchant.instance.openai.authority()),
        merchant.instance.provider_key("openai", "sk-managed"),
        "--allow-address=127.0.0.0/8".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    [SideGateway::start(merchant.instance, &flags).await, SideGateway::start(merchant.instance, &flags).await]
}

/// Starts `count` calls at once over both gateways.
fn start(
    gateways: [SocketAddr; 2],
    request: &Request,
    count: usize,
) -> Vec<tokio::task::JoinHandle<Response>> {
    let call = |number: usize| {
        let request = request.clone();
        tokio::spawn(async move { request.send(gateways[number % 2]).await.unwrap() })
    };
    (0..count).map(call).collect()
}

/// An endpoint whose answers wait until all that may be admitted are at the provider.
fn gated(merchant: &Merchant, gate: &Gate, tokens: u64) -> Endpoint {
    let gate = gate.clone();
    merchant.instance.openai.endpoint(move |_| {
        let mut steps = vec![Step::Wait(gate.clone())];
        steps.extend(answer(200, &json!({"usage": {"prompt_tokens": 1, "completion_tokens": tokens}})));
        steps
    })
}

#[test]
fn concurrent_calls_without_an_output_limit_never_exceed_a_spend_limit_together() {
    run(async {
        let merchant = Merchant::funded("20").await;
        let side = two_gateways(&merchant).await;
        let gateways = side.each_ref().map(|gateway| gateway.address);
        let raw = key(&merchant, "0.05").await;
        // All calls are under way before the first one ends: five bounds of a cent fit, whatever the calls cost.
        let gate = Gate::default();
        let endpoint = gated(&merchant, &gate, 4);
        let request = ask(&endpoint.url, &json!({"model": "of-a-cent"})).bearer(&raw);
        let calls = start(gateways, &request, 300);
        eventually("five calls are at the provider", async || (endpoint.calls().len() == 5).then_some(()))
            .await;
        eventually("all others are refused", async || {
            (calls.iter().filter(|call| call.is_finished()).count() == 295).then_some(())
        })
        .await;
        gate.open();
        let mut admitted = 0;
        for call in calls {
            let response = call.await.unwrap();
            match response.status {
                200 => admitted += 1,
                _ => refused(&response),
            }
        }
        assert_eq!((admitted, endpoint.calls().len()), (5, 5));
        // They cost 0.004 each: 0.03 is left again. Calls that follow one another use it up to the last bound that fits.
        let quick = merchant.instance.openai.endpoint(reports(10));
        let request = ask(&quick.url, &json!({"model": "of-a-cent"})).bearer(&raw);
        for call in start(gateways, &request, 300) {
            let response = call.await.unwrap();
            if response.status != 200 {
                refused(&response);
            }
        }
        assert_eq!(quick.calls().len(), 3);
        merchant.nothing_is_held().await;
        assert_eq!(merchant.own_balance().await, "19.9500000000");
        let spent: Decimal = {
            let shown = merchant.get("/v1/spend_keys").await.expect(200);
            shown["data"][0]["total_spend"].as_str().unwrap().parse().unwrap()
        };
        assert_eq!(spent, Decimal::new(5, 2));
    });
}
