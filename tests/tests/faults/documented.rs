//! The documented errors that require a fault, on every operation that documents them: an unavailable ledger, an unreadable
//! state, an interrupted payment. `blackbox/documented` tests all others.

use std::net::SocketAddr;

use farthing_tests::client::{Request, Response};
use farthing_tests::document::{Document, Operation};
use farthing_tests::instance::Instance;
use farthing_tests::leader;
use farthing_tests::merchant::{Merchant, encoded};
use farthing_tests::provider::{Endpoint, json as answer_json};
use farthing_tests::proxy::{Fault, Proxy};
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::eventually;
use serde_json::{Value, json};

use crate::{instance, put_away, run};

/// The flags of the dev instance's gateways: loopback addresses are allowed, and the sweeper is fast.
const FLAGS: [&str; 4] = ["--allow-address", "127.0.0.0/8", "--sweep-after-seconds", "5"];

/// Forwarded calls of a key that the gateway has seen read nothing before the ledger decides, and a state that the
/// appender cannot read makes the ledger unavailable. A 500 would require a bug in the program.
const READ_NOTHING: [&str; 2] = ["GET", "HEAD"];

const GARBLE: &str = "\
UPDATE ledger.state SET body = '\"garbled\"' WHERE kind = 'secret_key' AND body LIKE '%' || $1 || '%'";

const CHARGES: &str = "SELECT count(*) FROM test_processor.charge WHERE payment_id = $1 AND declined IS NULL";

/// A call of the operation with any ids.
fn call(merchant: &Merchant, endpoint: &Endpoint, operation: &Operation) -> Request {
    let target = match operation.path.as_str() {
        "/forward/{url}" => format!("/v1/forward/{}", endpoint.url),
        path if path.starts_with("/forward") => format!("/v1{path}?u={}", encoded(&endpoint.url)),
        path if path.starts_with("/rewrite") => {
            format!("/v1/rewrite/openai/{}", encoded(&format!("{}/chat/completions", endpoint.url)))
        }
        _ => operation.target(|_| "nobody".to_owned()),
    };
    let request = Request::new(&operation.method, target).bearer(&merchant.secret_key);
    match operation.path.as_str() {
        "/responses" | "/embeddings" => request.json(&json!({"model": "openai/a-model", "input": "Hi"})),
        _ if operation.body.is_none() => request,
        _ if operation.takes_secret_key => request.json(&json!({})),
        path if path.starts_with("/forward") => request,
        _ => request.json(&json!({
            "model": "openai/a-model", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}],
        })),
    }
}

/// Asserts that the response is the documented error `code`, as far as the method shows it.
fn is_documented_error(operation: &Operation, answer: &Response, code: &str) {
    if operation.method == "HEAD" {
        assert_eq!(Some(answer.status), operation.status_of(code), "{}", operation.name());
        assert_eq!(answer.body.len(), 0, "{}", operation.name());
    } else {
        assert_eq!(operation.refuses(answer, code), code, "{}: {}", operation.name(), answer.text());
    }
}

/// The operations that document the error `code`.
async fn naming(instance: &Instance, code: &str) -> Vec<Operation> {
    let operations = Document::of(instance).await.operations();
    let naming: Vec<_> =
        operations.into_iter().filter(|operation| operation.status_of(code).is_some()).collect();
    assert!(naming.len() > 80, "{} operations document {code}", naming.len());
    naming
}

async fn merchant(instance: &'static Instance) -> (Merchant, Endpoint) {
    let merchant = Merchant::of(instance).await;
    merchant.credit_own("10").await;
    let endpoint = instance.provider.endpoint(|_| answer_json(200, &json!({"usage": {"tokens": 1}})));
    (merchant, endpoint)
}

#[test]
fn every_operation_reports_an_unavailable_ledger_and_nothing_is_charged() {
    run(async {
        let instance = instance().await;
        let (merchant, endpoint) = merchant(instance).await;
        let mut operations = naming(instance, "ledger_unavailable").await;
        // The API document needs no ledger; it is refused only because of overload.
        operations.retain(|operation| operation.id != "get_openapi");
        let ready = instance.ready();
        let (proxy, url) = Proxy::before(&ready.database_url).await;
        let gateway = SideGateway::start_on(instance, &url, &ready.nats_url, &FLAGS).await;
        let events = merchant.events().await.len();
        proxy.sever();
        let answers = operations.iter().map(|operation| {
            let request = call(&merchant, &endpoint, operation);
            async move { request.send(gateway.address).await.unwrap() }
        });
        let answers = futures_util::future::join_all(answers).await;
        for (operation, answer) in operations.iter().zip(&answers) {
            is_documented_error(operation, answer, "ledger_unavailable");
            assert_eq!(answer.head.header("retry-after"), Some("1"), "{}", operation.name());
        }
        assert!(endpoint.calls().is_empty(), "a provider was called");
        assert_eq!(merchant.events().await.len(), events, "something was written");
        assert_eq!(merchant.own_balance().await, "10.0000000000");
        drop(gateway);
        put_away(instance).await;
    });
}

#[test]
fn an_unreadable_state_is_an_internal_error_on_every_operation_and_changes_nothing() {
    run(async {
        let instance = instance().await;
        let (merchant, endpoint) = merchant(instance).await;
        let operations = naming(instance, "rest_internal_server_error").await;
        merchant.log.stored().await;
        let garbled = merchant.log.sql.execute(GARBLE, &[&merchant.id]).await.unwrap();
        assert_eq!(garbled, 1);
        leader::reload(&merchant.log.sql).await;
        let events = merchant.events().await.len();
        let mut number = 0;
        for operation in &operations {
            let forwards = !operation.takes_secret_key;
            if forwards && READ_NOTHING.contains(&operation.method.as_str()) {
                continue;
            }
            let mut request = call(&merchant, &endpoint, operation);
            if forwards {
                request = request.header("Idempotency-Key", format!("call {number}"));
            }
            let answer = request.send(instance.gateway(number)).await.unwrap();
            is_documented_error(operation, &answer, "rest_internal_server_error");
            assert!(
                !answer.text().contains("garbled"),
                "the response reveals internal details: {}",
                answer.text()
            );
            number += 1;
        }
        // Forward has two forms, and rewrite one.
        assert_eq!(number + 3 * READ_NOTHING.len(), operations.len());
        assert!(endpoint.calls().is_empty(), "a provider was called");
        assert_eq!(merchant.events().await.len(), events, "something was written");
        put_away(instance).await;
    });
}

async fn fund(merchant: &Merchant, to: SocketAddr, key: &str) -> Response {
    let request = Request::new("POST", "/v1/wallet/fund").json(&json!({"amount": "20"}));
    request.bearer(&merchant.secret_key).header("Idempotency-Key", key).send(to).await.unwrap()
}

#[test]
fn a_payment_interrupted_after_the_charge_is_in_progress_and_credited_once() {
    run(async {
        let instance = instance().await;
        let ready = instance.ready();
        let (proxy, url) = Proxy::before(&ready.database_url).await;
        let gateway = SideGateway::start_on(instance, &url, &ready.nats_url, &FLAGS).await;
        // Its partition is led behind the proxy.
        leader::spread(&instance.log().await.sql, 3).await;
        let merchant = Merchant::led_by(instance, &gateway.id().await).await;
        merchant.credit_own("10").await;
        let card = json!({"number": "4242424242424242", "exp_month": 12, "exp_year": 2040, "cvc": "123"});
        merchant.post("/v1/payment_methods", &json!({"card": card})).await.expect(201);
        let operations = Document::of(instance).await.operations();
        let fund_wallet = operations.iter().find(|operation| operation.id == "fund_wallet").unwrap();
        let (mut strike, mut asked, mut under_way) = (None, 0, None);
        // Another gateway may carry out the payment first; then the test requests another one.
        while under_way.is_none() {
            assert!(asked < 20, "no payment was interrupted in time");
            let mut armed = strike.take().unwrap_or_else(|| proxy.strike(Fault::CutWithin(500), 1));
            let key = format!("funding {asked}");
            let answer = fund(&merchant, gateway.address, &key).await;
            asked += 1;
            if answer.status == 409 {
                is_documented_error(fund_wallet, &answer, "payment_in_progress");
                under_way = Some(key.clone());
            }
            strike = (!armed.has_struck()).then_some(armed);
        }
        // A repeated request under the same key gets the outcome.
        let key = under_way.unwrap();
        let funded = eventually("the payment ends", async || {
            let answer = fund(&merchant, instance.gateway(0), &key).await;
            (answer.status == 200).then(|| answer.json())
        })
        .await;
        let payment_id = funded["payment_id"].as_str().unwrap();
        let charges = merchant.log.sql.query_one(CHARGES, &[&payment_id]).await.unwrap();
        assert_eq!(charges.get::<_, i64>(0), 1);
        let credited = merchant.events().await.into_iter().filter(|event| event.kind == "wallet.credited");
        let of_payment = |body: &Value| body["balance_after"] == funded["balance"];
        assert_eq!(credited.filter(|event| of_payment(&event.body)).count(), 1, "credited once");
        drop(gateway);
        put_away(instance).await;
    });
}
