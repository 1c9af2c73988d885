//! `Idempotency-Key` on the forward endpoint: a key never causes a second call to a provider.

use std::collections::HashSet;

use farthing_tests::client::{Body, Connection, Request, Response};
use farthing_tests::merchant::{Merchant, chunks, encoded, forward, token};
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

/// The responses to the same call on both gateways.
async fn again(merchant: &Merchant, credential: &str, request: &Request) -> Vec<Response> {
    let mut answers = Vec::new();
    for gateway in [1, 0] {
        let request = request.clone().bearer(credential);
        answers.push(request.send(merchant.instance.gateway(gateway)).await.unwrap());
    }
    answers
}

/// Asserts that every further call is 409 `idempotency_completed` and names the first one.
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
        let first = first.expect("one call got a response");
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
fn a_complete_response_is_replayed_and_another_body_is_refused() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let endpoints = [
            merchant.instance.provider.endpoint(|_| json(200, &json!({"a": 1}))),
            merchant.instance.provider.endpoint(|_| json(400, &json!({"error": "the provider's own"}))),
            merchant.instance.provider.endpoint(|_| json(429, &json!({"error": "the provider's own"}))),
            merchant.instance.provider.endpoint(|_| whole(204, &[], b"")),
            merchant.instance.provider.endpoint(|_| whole(200, &[], &vec![b'x'; 256 * 1024])),
            merchant.instance.provider.endpoint(|_| {
                let json = [("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")];
                vec![head(200, &json), chunk("{\"a\":"), chunk("1}"), last_chunk()]
            }),
        ];
        for endpoint in &endpoints {
            let key = endpoint.path.as_str();
            let request = keyed(endpoint, key, &json!({"input": "hello"}));
            let first = merchant.send(&merchant.secret_key, request.clone()).await;
            assert!(!is_replay(&first));
            for answer in again(&merchant, &merchant.secret_key, &request).await {
                assert_eq!((answer.status, &answer.body), (first.status, &first.body));
                assert!(is_replay(&answer) && answer.request_id() == first.request_id());
            }
            let other = keyed(endpoint, key, &json!({"input": "another"}));
            merchant.send(&merchant.secret_key, other.clone()).await.refused(422, "idempotency_key_reused");
            let put = Request { method: "PUT".to_owned(), ..request };
            let put = merchant.send(&merchant.secret_key, put).await;
            assert!(put.status == first.status && !is_replay(&put), "another method is another scope");
            assert_eq!(endpoint.calls().len(), 2);
        }
        let other = Merchant::funded("10").await;
        let request = keyed(&endpoints[0], &endpoints[0].path, &json!({"input": "hello"}));
        let theirs = other.send(&other.secret_key, request).await;
        assert!(theirs.status == 200 && !is_replay(&theirs), "another merchant's key is a different key");
        // Safe methods ignore the header.
        for _ in 0..2 {
            let request = forward("GET", &endpoints[0].url).header("Idempotency-Key", "one");
            assert!(!is_replay(&merchant.send(&merchant.secret_key, request).await));
        }
        assert_eq!(endpoints[0].calls().len(), 5);
    });
}

/// A request to this path of the endpoint.
fn at(path: &str, target: &str) -> Request {
    let request = Request::new("POST", format!("{path}?u={target}")).json(&json!({"input": "hello"}));
    request.header("Idempotency-Key", "one")
}

#[test]
fn a_key_cannot_be_reused_for_another_target_or_payer() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let (customer, other_customer) =
            (merchant.customer("10").await, merchant.customer_called("another", "10").await);
        let (meter, other_meter) = (merchant.call_meter("0.5").await, merchant.call_meter("0.25").await);
        let provider = &merchant.instance.provider;
        let endpoint = provider.endpoint(|_| json(200, &json!({"a": 1})));
        let elsewhere = provider.endpoint(|_| json(200, &json!({"a": 2})));
        let key = &merchant.secret_key;
        let connection = merchant.get(&format!("/v1/connections/{}", customer.id)).await.expect(200);
        let with = |fields: Value| {
            let mut all = json!({"secret_key": key, "provider_key": "sk-theirs"});
            all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            token(&all)
        };
        let credential = with(json!({"customer_id": customer.id, "meter_slug": meter.slug}));
        let request =
            || at("/v1/forward", &endpoint.url).header("x-service-metadata", r#"{"a":"1","b":"2"}"#);
        let first = merchant.send(&credential, request()).await;
        first.expect(200);
        assert!(!is_replay(&first));

        // The same call in other spellings.
        let metadata = |request: Request, text: &str| request.header("x-service-metadata", text);
        let plain = encoded(&endpoint.url);
        for (credential, request) in [
            (credential.clone(), request()),
            (credential.clone(), metadata(at("/v1/forward/", &endpoint.url), r#"{"b":"2","a":"1"}"#)),
            (credential.clone(), metadata(at("/v1/forward", &plain), r#"{ "a": "1", "b": "2" }"#)),
            (with(json!({"customer_id": customer.reference_id, "product_secret": meter.secret})), request()),
            (
                with(json!({"connection_secret": connection["connection_secret"], "meter_id": meter.id})),
                request(),
            ),
        ] {
            let answer = merchant.send(&credential, request).await;
            assert!(is_replay(&answer) && answer.request_id() == first.request_id(), "{}", answer.text());
        }

        // A different call under the same key.
        let meant = json!({"customer_id": customer.id, "meter_slug": meter.slug});
        let changed = |name: &str, value: Value| {
            let mut fields = meant.clone();
            fields[name] = value;
            with(fields)
        };
        for (credential, request) in [
            (credential.clone(), metadata(at("/v1/forward", &elsewhere.url), r#"{"a":"1","b":"2"}"#)),
            (
                credential.clone(),
                metadata(at("/v1/forward", &format!("{}?x=1", endpoint.url)), r#"{"a":"1","b":"2"}"#),
            ),
            (credential.clone(), at("/v1/forward", &endpoint.url)),
            (credential.clone(), metadata(at("/v1/forward", &endpoint.url), r#"{"a":"1","b":"3"}"#)),
            (credential.clone(), request().header("x-api-key", "sk-another")),
            (changed("provider_key", json!("sk-another")), request()),
            (changed("customer_id", json!(other_customer.id)), request()),
            (changed("customer_id", json!(other_customer.reference_id)), request()),
            (changed("meter_slug", json!(other_meter.slug)), request()),
            (changed("disable_billing", json!(true)), request()),
            (key.clone(), request()),
        ] {
            merchant.send(&credential, request).await.refused(422, "idempotency_key_reused");
        }
        for (name, code) in [("customer_id", "customer_not_found"), ("meter_slug", "meter_not_found")] {
            merchant.send(&changed(name, json!("nobodys")), request()).await.refused(404, code);
        }
        assert_eq!((endpoint.calls().len(), elsewhere.calls().len()), (1, 0));
        assert_eq!(merchant.balance(&customer).await, "9.5000000000");
        // A deleted customer's credential is refused at once and gets no replay either.
        merchant.delete(&format!("/v1/customers/{}", customer.id)).await.expect(200);
        merchant.send(&credential, request()).await.refused(404, "customer_not_found");
        assert_eq!(endpoint.calls().len(), 1);
    });
}

#[test]
fn a_providers_failure_ends_the_call_and_is_reported_instead_of_replayed() {
    run(async {
        let merchant = Merchant::funded("10").await;
        for status in [500, 502, 503, 529] {
            let endpoint = merchant
                .instance
                .provider
                .endpoint(move |_| json(status, &json!({"error": "the provider's own"})));
            let request = keyed(&endpoint, &endpoint.path, &json!({}));
            let first = merchant.send(&merchant.secret_key, request.clone()).await;
            assert_eq!((first.status, first.json()), (status, json!({"error": "the provider's own"})));
            is_completed(&merchant, &merchant.secret_key, &request, &first.request_id()).await;
            assert_eq!(endpoint.calls().len(), 1, "the key never causes a second call");
        }
    });
}

#[test]
fn a_response_that_is_not_stored_is_reported_and_the_provider_is_not_called_again() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let provider = &merchant.instance.provider;
        let streamed = provider.endpoint(|_| vec![event_stream(), chunk("data: {}\n\n"), last_chunk()]);
        let long = provider.endpoint(|_| whole(200, &[], &vec![b'x'; 256 * 1024 + 1]));
        let broken = provider.endpoint(|_| vec![head(200, &[("Content-Length", "10")]), Step::Close]);
        for endpoint in [&streamed, &long, &broken] {
            let request = keyed(endpoint, &endpoint.path, &json!({"input": "hello"}));
            let first = merchant.send(&merchant.secret_key, request.clone()).await.request_id();
            is_completed(&merchant, &merchant.secret_key, &request, &first).await;
            let other = keyed(endpoint, &endpoint.path, &json!({"input": "another"}));
            merchant.send(&merchant.secret_key, other).await.refused(422, "idempotency_key_reused");
            assert_eq!(endpoint.calls().len(), 1);
        }
        // A body too long to be buffered is identified by its beginning and its length, and its response is not stored.
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
        // The framing and the content type of a short body do not matter.
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
        assert!(!is_replay(&first), "a refused call does not count as a call");

        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let nobody = forward("POST", &format!("http://{closed}/")).header("Idempotency-Key", "two");
        let mut ids = HashSet::new();
        for answer in again(&merchant, &credential, &nobody).await {
            answer.refused(502, "provider_unreachable");
            assert_eq!(merchant.failed(&answer).await["reason"], "provider_unreachable");
            ids.insert(answer.request_id());
        }
        assert_eq!(ids.len(), 2, "each attempt is a separate call");
        assert_eq!(merchant.balance(&customer).await, "0.5000000000");
    });
}

#[test]
fn a_call_that_its_caller_left_before_it_reached_a_provider_leaves_its_key_free() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let meter = json!({"name": "cancelled", "rate_type": "fixed", "tier_type": "requests",
                           "tiers": [{"start": 0, "rate": "0.5"}], "service_charge_payer": "merchant",
                           "on_disconnect": "cancel"});
        let (meter, customer) = (merchant.meter(meter).await, merchant.customer("5").await);
        // It takes connections and never greets as a server for TLS, so no connection is ever made.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}/", silent.local_addr().unwrap());
        let request = forward("POST", &url).json(&json!({})).header("Idempotency-Key", "one");
        let request = request.bearer(&merchant.billing(&customer, &meter));
        let mut ids = HashSet::new();
        for gateway in [0, 1] {
            let mut connection = Connection::open(merchant.instance.gateway(gateway)).await.unwrap();
            connection.send(&request).await.unwrap();
            let id = eventually("a further call is open", async || {
                let opened = merchant.of_kind("request.opened").await;
                let id = opened.last()?.text("request_id").to_owned();
                ids.insert(id.clone()).then_some(id)
            })
            .await;
            drop(connection);
            assert_eq!(merchant.failed_request(&id).await["reason"], "caller_gone");
        }
        merchant.nothing_is_held().await;
        assert_eq!(merchant.balance(&customer).await, "5.0000000000");
    });
}

#[test]
fn a_response_whose_caller_disconnected_is_stored_for_the_next_attempt() {
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
        let answer = eventually("the response is stored for the next attempt", async || {
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
fn an_invalid_key_is_refused_before_a_request_is_opened() {
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
