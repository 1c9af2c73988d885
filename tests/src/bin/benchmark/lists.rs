//! Lists: the first and the ten-thousandth page of a merchant's million requests.

use std::fmt::Write as _;
use std::time::Instant;

use farthing_tests::client::{Connection, Request};
use farthing_tests::instance::Instance;
use farthing_tests::merchant::encoded;
use farthing_tests::scratch::Scratch;
use farthing_tests::side_gateway::SideGateway;

use crate::latency::{Latencies, millis, since};

/// Requests of the merchant.
const REQUESTS: u64 = 1_000_000;

/// Items of a page.
const PAGE: u64 = 100;

/// How often each page is read, in turn with the others.
const ROUNDS: usize = 200;

/// Pages read with one key: fewer than its rate limit per minute.
const ROUNDS_PER_KEY: usize = 100;

/// Measures and returns the results.
pub(crate) async fn measure(instance: &Instance) -> String {
    let scratch = Scratch::filled(instance, "lists", REQUESTS).await;
    let gateway = SideGateway::on(instance, &scratch.database_url, &[]).await;
    let filter = |pairs: &str| format!("&metadata_filters={}", encoded(pairs));
    // The page after so many others in a list of every `step`th request.
    let deep = |pages: u64, step: u64, remainder: u64| {
        let item = REQUESTS - pages * PAGE * step;
        format!("&cursor={}", Scratch::request(item - item % step + remainder))
    };
    let env = filter(r#"[["env","production"]]"#);
    let team = filter(r#"[["team","team 7"]]"#);
    let customer = "&customer_id=con_01000000000000000000000007".to_owned();
    let pages = [
        ("all requests, page 1", String::new()),
        ("all requests, page 10,000", deep(9_999, 1, 1)),
        ("metadata of every request, page 1", env.clone()),
        ("metadata of every request, page 10,000", format!("{env}{}", deep(9_999, 1, 1))),
        ("metadata of one in a hundred, page 1", team.clone()),
        ("metadata of one in a hundred, page 100", format!("{team}{}", deep(99, 100, 7))),
        ("metadata of ten requests", filter(r#"[["env","production"],["rare","yes"]]"#)),
        ("a customer's, page 1", customer.clone()),
        ("a customer's, page 100", format!("{customer}{}", deep(99, 100, 7))),
    ];
    let mut micros = vec![Vec::with_capacity(ROUNDS); pages.len()];
    let mut connection = Connection::open(gateway.address).await.expect("the gateway listens");
    let mut key = String::new();
    for round in 0..ROUNDS {
        if round.is_multiple_of(ROUNDS_PER_KEY) {
            key = scratch.further_key().await;
        }
        for ((name, query), micros) in pages.iter().zip(&mut micros) {
            let request = Request::new("GET", format!("/v1/requests?limit={PAGE}{query}")).bearer(&key);
            let sent = Instant::now();
            connection.send(&request).await.expect("a kept connection");
            let answer = connection.response("GET").await.expect("an answer");
            micros.push(since(sent));
            let items = answer.expect(200)["data"].as_array().map_or(0, Vec::len);
            assert!(items == 100 || (items == 10 && name.contains("ten")), "{name}: {items} items");
        }
    }
    let mut text = format!(
        "## Lists\n\n`GET /requests?limit={PAGE}` of a merchant with {REQUESTS} requests in the read tables (made-up rows, \
         as the projection writes them), over one kept connection, the pages in turn.\n\n\
         | page | p50 ms | p99 ms | p50 against page 1 of all |\n|---|---|---|---|\n"
    );
    let mut first = None;
    for ((name, _), micros) in pages.iter().zip(micros) {
        let latencies = Latencies::join(&[micros], std::time::Duration::ZERO);
        let median = latencies.percentile(500);
        let hundredths = u64::from(median) * 100 / u64::from(*first.get_or_insert(median)).max(1);
        let _ = writeln!(
            text,
            "| {name} | {} | {} | {}.{:02} |",
            millis(median),
            millis(latencies.percentile(990)),
            hundredths / 100,
            hundredths % 100
        );
    }
    text
}
