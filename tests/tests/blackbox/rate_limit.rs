//! The rate limit of the standard endpoints: exact across all gateways, shown on every response, and not applied to forward.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use farthing_tests::client::{Connection, Request, Response};
use farthing_tests::merchant::Merchant;
use farthing_tests::provider::json;
use farthing_tests::run;
use serde_json::json;

const LIMIT: u64 = 1000;

/// Concurrent connections, half of them to each of two gateways.
const CONNECTIONS: usize = 20;

/// How often a test may fail to fill a window before it ends.
const ATTEMPTS: usize = 5;

/// Rows of the counter that belong to no key.
const STRANGERS: &str = "SELECT count(*) FROM ledger.rate_window AS w WHERE NOT EXISTS (
    SELECT FROM ledger.events WHERE kind IN ('secret_key.issued', 'spend_key.created', 'key.rotated')
        AND body->>'key_hash' = w.key_hash)";

fn number(response: &Response, name: &str) -> u64 {
    response.head.header(name).unwrap_or_else(|| panic!("no {name}: {response:?}")).parse().unwrap()
}

async fn calls(to: SocketAddr, request: Request, count: usize) -> Vec<Response> {
    let mut connection = Connection::open(to).await.unwrap();
    let mut answers = Vec::new();
    for _ in 0..count {
        connection.send(&request).await.unwrap();
        answers.push(connection.response(&request.method).await.unwrap());
    }
    answers
}

/// 1,100 calls of a new merchant over two gateways, all in one window.
async fn within_one_window() -> (Merchant, Vec<Response>) {
    for _ in 0..ATTEMPTS {
        let merchant = Merchant::new().await;
        let request = Request::new("GET", "/v1/spend_keys/nobody").bearer(&merchant.secret_key);
        let tasks: Vec<_> = (0..CONNECTIONS)
            .map(|at| {
                tokio::spawn(calls(merchant.instance.gateway(at % 2), request.clone(), 1100 / CONNECTIONS))
            })
            .collect();
        let mut answers = Vec::new();
        for task in tasks {
            answers.extend(task.await.unwrap());
        }
        let windows: BTreeSet<u64> =
            answers.iter().map(|answer| number(answer, "x-ratelimit-reset")).collect();
        if windows.len() == 1 {
            return (merchant, answers);
        }
    }
    panic!("every window ended before it was full");
}

#[test]
fn exactly_a_thousand_calls_are_admitted_in_a_window_across_two_gateways() {
    run(async {
        let (merchant, answers) = within_one_window().await;
        assert_ne!(merchant.instance.gateway(0), merchant.instance.gateway(1));
        let mut left = Vec::new();
        for answer in &answers {
            assert_eq!(number(answer, "x-ratelimit-limit"), LIMIT);
            let remaining = number(answer, "x-ratelimit-remaining");
            if answer.status == 429 {
                answer.refused(429, "rate_limit_exceeded");
                assert!((1..=60).contains(&number(answer, "retry-after")));
                assert_eq!(remaining, 0);
            } else {
                answer.refused(404, "spend_key_not_found");
                left.push(remaining);
            }
        }
        left.sort_unstable();
        assert_eq!(
            left,
            (0..LIMIT).collect::<Vec<_>>(),
            "each of the thousand remaining counts was returned once"
        );

        // Another merchant's key has its own count, and forwarded calls are not counted.
        let fresh = Merchant::new().await.get("/v1/requests").await;
        fresh.expect(200);
        assert_eq!(number(&fresh, "x-ratelimit-remaining"), LIMIT - 1);
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({})));
        let forwarded = merchant.fetch(&merchant.secret_key, &endpoint.url).await;
        forwarded.expect(200);
        assert_eq!(forwarded.head.header("x-ratelimit-limit"), None);
    });
}

#[test]
fn a_key_that_does_not_exist_is_not_counted() {
    run(async {
        let merchant = Merchant::new().await;
        for stranger in 0..50 {
            let request = Request::new("GET", "/v1/requests").bearer(&format!("aks_test_nobody{stranger}"));
            let refused = request.send(merchant.gateway()).await.unwrap();
            refused.refused(401, "secret_key_invalid");
            assert_eq!(refused.head.header("x-ratelimit-limit"), None);
            let request = Request::new("GET", "/v1/models").bearer(&format!("spk_nobody{stranger}"));
            request.send(merchant.gateway()).await.unwrap().refused(401, "spend_key_invalid");
        }
        let rows = merchant.log.sql.query_one(STRANGERS, &[]).await.unwrap();
        assert_eq!(rows.get::<_, i64>(0), 0);
        merchant.get("/v1/requests").await.expect(200);
    });
}
