//! `Idempotency-Key` on the forward endpoint: a key never causes a second call to a provider.

use std::collections::HashSet;

use farthing_tests::client::{Body, Connection, Request, Response};
use farthing_tests::merchant::{Merchant, chunks, forward, token};
use farthing_tests::provider::{Endpoint, Gate, Step, chunk, event_stream, head, json, last_chunk, whole};
use farthing_tests::run;
use farthing_tests::wait::eventually;
use serde_json::{Value, json};

fn keyed(endpoint: &Endpoint, key: &str, body: &Value) -> Request {
    forward("POST", &endpoint.url).json(body).header("Idempotency-Key", key)
}

fn is_replay(response: &Response) -> bool {
    match response.head.header("idempotency-replayed") {
        Some(value) => value == "true" || panic!("{value}"),
        None => false,
    }
}

/// The answers to the same call on either gateway.
async fn again(merchant: &Merchant, credential: &str, request: &Request) -> Vec<Response> {
    let mut answers = Vec::new();
    for gateway in [1, 0] {
        let request = request.clone().bearer(credential);
        answers.push(request.send(merchant.instance.gateway(gateway)).await.unwrap());
    }
    answers
}

/// Every further call is 409 `idempotency_completed` and names the first one.
async fn is_completed(merchant: &Merchant, credential: &str, request: &Request, first: &str) {
    for answer in again(merchant, credential, request).await {
        let error = answer.refused(409, "idempotency_completed");
        assert!(error["message"].as_str().unwrap().contains(first), "{error}");
        assert_eq!(answer.request_id(), first);
    }
}

#[test]
fn fifty_calls_with_one_key_on_two_gateways_reach_the_provider_once_and_are_charged_once() {
    run(async {
        let merchant: &'static Merchant = Box::leak(Box::new(Merchant::funded("10").await));
        let customer = merchant.customer("10").await;
        let meter = merchant.call_meter("0.5").await;
        let gate = Gate::default();
        let waits = gate.clone();
        let endpoint = merchant.instance.provider.endpoint(move |_| {
            let mut steps = vec![Step::Wait(waits.clone())];
            steps.extend(whole(
                200,
                &[
                    ("Content-Type", "application/json"),
                    ("X-Odd", "caf\u{e9}"),
                    ("X-Twice", "1"),
                    ("X-Twice", "2"),
                ],
                b"{\"usage\":{\"tokens\":1}, \"a\":  1}\n",
            ));
            steps
        });
        let credential = merchant.billing(&customer, &meter);
        let request = keyed(&endpoint, "one", &json!({"input": "hello"}));
        let calls: Vec<_> = (0..50)
            .map(|number| {
                let request = request.clone().bearer(&credential);
                tokio::spawn(
                    async move { request.send(merchant.instance.gateway(number % 2)).await.unwrap() },
                )
            })
            .collect();
        eventually("all but one are refused", async || {
            (calls.iter().filter(|call| call.is_finished()).count() == 49).then_some(())
        })
        .await;
        gate.open();
        let (mut first, mut others) = (None, Vec::new());
        for call in calls {
            let answer = call.await.unwrap();
            if answer.status == 200 { first = Some(answer) } else { others.push(answer) }
        }
        let first = first.expect("one call was answered");
        assert!(!is_replay(&first) && first.complete);
        for other in &others {
            let error = other.refused(409, "idempotency_in_progress");
            assert!(error["message"].as_str().unwrap().contains(&first.request_id()));
            assert!(other.head.header("retry-after").is_some_and(|seconds| seconds.parse::<u32>().is_ok()));
        }
        for answer in again(merchant, &credential, &request).await {
            assert!(is_replay(&answer) && answer.complete);
            assert_eq!((answer.status, &answer.body), (200, &first.body));
            assert_eq!(answer.request_id(), first.request_id());
            for name in ["content-type", "x-odd", "x-twice", "content-length"] {
                assert_eq!(answer.head.all(name), first.head.all(name), "{name}");
            }
        }
        assert_eq!(endpoint.calls().len(), 1);
        let events = merchant.events().await;
        let count = |kind: &str| events.iter().filter(|event| event.kind == kind).count();
        assert_eq!((count("request.opened"), count("request.metered")), (1, 1));
        assert_eq!(merchant.balance(&customer).await, "9.5000000000");
        merchant.nothing_is_held().await;
    });
}

#[test]
fn a_whole_answer_is_given_again_whatever_its_status_and_another_request_is_another() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let endpoints = [
            merchant.instance.provider.endpoint(|_| json(200, &json!({"a": 1}))),
            merchant.instance.provider.endpoint(|_| json(500, &json!({"error": "the provider's own"}))),
            merchant.instance.provider.endpoint(|_| whole(204, &[], b"")),
            merchant.instance.provider.endpoint(|_| whole(200, &[], &vec![b'x'; 256 * 1024])),
            merchant.instance.provider.endpoint(|_| {
                let json = [("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")];
                vec![head(200, &json), chunk("{\"a\":"), chunk("1}"), last_chunk()]
            }),
        ];
        for endpoint in &endpoints {
            let request = keyed(endpoint, "one", &json!({"input": "hello"}));
            let first = merchant.send(&merchant.secret_key, request.clone()).await;
            assert!(!is_replay(&first), "another URL is another scope");
            for answer in again(&merchant, &merchant.secret_key, &request).await {
                assert_eq!((answer.status, &answer.body), (first.status, &first.body));
                assert!(is_replay(&answer) && answer.request_id() == first.request_id());
            }
            let other = keyed(endpoint, "one", &json!({"input": "another"}));
            merchant.send(&merchant.secret_key, other.clone()).await.refused(422, "idempotency_key_reused");
            let payer = token(&json!({"secret_key": merchant.secret_key, "customer_id": "somebody"}));
            let for_another = keyed(endpoint, "one", &json!({"input": "hello"}));
            merchant.send(&payer, for_another).await.refused(422, "idempotency_key_reused");
            let put = Request { method: "PUT".to_owned(), ..request };
            let put = merchant.send(&merchant.secret_key, put).await;
            assert!(put.status == first.status && !is_replay(&put), "another method is another scope");
            assert_eq!(endpoint.calls().len(), 2);
        }
        let other = Merchant::funded("10").await;
        let request = keyed(&endpoints[0], "one", &json!({"input": "hello"}));
        let theirs = other.send(&other.secret_key, request).await;
        assert!(theirs.status == 200 && !is_replay(&theirs), "another merchant's key is another");
        // A method that changes nothing has no such keys.
        for _ in 0..2 {
            let request = forward("GET", &endpoints[0].url).header("Idempotency-Key", "one");
            assert!(!is_replay(&merchant.send(&merchant.secret_key, request).await));
        }
        assert_eq!(endpoints[0].calls().len(), 5);
    });
}

#[test]
fn an_answer_that_is_not_kept_is_named_and_the_provider_is_not_called_again() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let provider = &merchant.instance.provider;
        let streamed = provider.endpoint(|_| vec![event_stream(), chunk("data: {}\n\n"), last_chunk()]);
        let long = provider.endpoint(|_| whole(200, &[], &vec![b'x'; 256 * 1024 + 1]));
        let broken = provider.endpoint(|_| vec![head(200, &[("Content-Length", "10")]), Step::Close]);
        for endpoint in [&streamed, &long, &broken] {
            let request = keyed(endpoint, "one", &json!({"input": "hello"}));
            let first = merchant.send(&merchant.secret_key, request.clone()).await.request_id();
            is_completed(&merchant, &merchant.secret_key, &request, &first).await;
            let other = keyed(endpoint, "one", &json!({"input": "another"}));
            merchant.send(&merchant.secret_key, other).await.refused(422, "idempotency_key_reused");
            assert_eq!(endpoint.calls().len(), 1);
        }
        // A body too long to be held is told apart by its beginning and its length, and its answer is not kept.
        let whole_body = provider.endpoint(|_| json(200, &json!({})));
        let with_body = |bytes: Vec<u8>, key: &str| {
            forward("POST", &whole_body.url).body(Body::Whole(bytes)).header("Idempotency-Key", key)
        };
        let body: Vec<u8> = (0..=255).cycle().take(300 * 1024).collect();
        let first = merchant.send(&merchant.secret_key, with_body(body.clone(), "long")).await;
        first.expect(200);
        assert_eq!(whole_body.only_call().body, body, "it reaches the provider unchanged");
        let id = first.request_id();
        is_completed(&merchant, &merchant.secret_key, &with_body(body.clone(), "long"), &id).await;
        let (mut changed, mut longer) = (body.clone(), body);
        changed[1] ^= 1;
        longer.push(0);
        for other in [changed, longer] {
            let other = merchant.send(&merchant.secret_key, with_body(other, "long")).await;
            other.refused(422, "idempotency_key_reused");
        }
        assert_eq!(whole_body.calls().len(), 1);
        // However a short body is framed or called, it is the same.
        let chunked =
            forward("POST", &whole_body.url).body(chunks(&["a", "bc"])).header("Idempotency-Key", "c");
        let first = merchant.send(&merchant.secret_key, chunked).await;
        first.expect(200);
        let same = merchant.send(&merchant.secret_key, with_body(b"abc".to_vec(), "c")).await;
        assert!(is_replay(&same) && same.body == first.body);
    });
}

#[test]
fn a_call_that_never_reached_a_provider_leaves_its_key_free() {
    run(async {
        let merchant = Merchant::new().await;
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({})));
        let meter = merchant.call_meter("0.5").await;
        let customer = merchant.customer("0").await;
        let credential = merchant.billing(&customer, &meter);
        let request = keyed(&endpoint, "one", &json!({}));
        merchant.send(&credential, request.clone()).await.refused(402, "insufficient_balance");
        merchant.credit(&customer, "1").await;
        merchant.credit_own("1").await;
        let first = merchant.send(&credential, request.clone()).await;
        first.expect(200);
        assert!(!is_replay(&first), "a refused call is no call");

        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let nobody = forward("POST", &format!("http://{closed}/")).header("Idempotency-Key", "one");
        let mut ids = HashSet::new();
        for answer in again(&merchant, &credential, &nobody).await {
            answer.refused(502, "provider_unreachable");
            assert_eq!(merchant.failed(&answer).await["reason"], "provider_unreachable");
            ids.insert(answer.request_id());
        }
        assert_eq!(ids.len(), 2, "each try is a call of its own");
        assert_eq!(merchant.balance(&customer).await, "0.5000000000");
    });
}

#[test]
fn an_answer_whose_caller_has_gone_is_kept_for_the_next_try() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let gate = Gate::default();
        let waits = gate.clone();
        let endpoint = merchant.instance.provider.endpoint(move |_| {
            let mut steps = vec![Step::Wait(waits.clone())];
            steps.extend(json(200, &json!({"done": true})));
            steps
        });
        let request = keyed(&endpoint, "one", &json!({})).bearer(&merchant.secret_key);
        let mut connection = Connection::open(merchant.gateway()).await.unwrap();
        connection.send(&request).await.unwrap();
        eventually("the call is in flight", async || (endpoint.calls().len() == 1).then_some(())).await;
        drop(connection);
        gate.open();
        let answer = eventually("the answer is there for the next try", async || {
            let answer = request.send(merchant.instance.gateway(1)).await.unwrap();
            (answer.status != 409).then_some(answer)
        })
        .await;
        assert_eq!(answer.expect(200), json!({"done": true}));
        assert!(is_replay(&answer));
        assert_eq!(endpoint.calls().len(), 1);
    });
}

#[test]
fn a_key_that_is_none_is_refused_before_anything_is_opened() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({})));
        let events = merchant.events().await.len();
        for bad in ["", &"x".repeat(256), "caf\u{e9}"] {
            let request = keyed(&endpoint, bad, &json!({}));
            let error = merchant.send(&merchant.secret_key, request).await.refused(400, "validation_error");
            assert_eq!(error["issues"][0]["path"], json!(["Idempotency-Key"]));
        }
        merchant
            .send("aks_test_nobody", keyed(&endpoint, "k", &json!({})))
            .await
            .refused(401, "secret_key_invalid");
        assert_eq!((endpoint.calls().len(), merchant.events().await.len()), (0, events));
    });
}
