//! Forwarded calls: directly to the mock provider, and through the gateway, metered and charged.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use farthing_tests::instance::{Instance, address_of};
use farthing_tests::merchant::{Merchant, encoded};

use crate::WIDTHS;
use crate::http::load;
use crate::latency::millis;
use crate::machine::Cpu;
use crate::projection::lag;

const BODY: &str = r#"{"model":"a-model","input":"hello"}"#;

/// Measures and returns the results.
pub(crate) async fn measure(instance: &'static Instance, length: Duration) -> String {
    let merchant = Merchant::of(instance).await;
    merchant.credit_own("1000000").await;
    let customer = merchant.customer("1000000").await;
    let meter = merchant.call_meter("0.0001").await;
    let token = merchant.billing(&customer, &meter);
    let provider = format!("{}/usage", instance.ready().provider_url.trim_end_matches('/'));
    let (mock, gateway) = (address_of(&provider), instance.gateway(0));
    let direct = request(mock, "/usage", "");
    let target = format!("/v1/forward?u={}", encoded(&provider));
    let forwarded = request(gateway, &target, &format!("Authorization: Bearer {token}\r\n"));

    let mut text = "## Forwarded calls\n\nA POST over kept connections; through the gateway each call is admitted with a \
        hold, metered, and charged to a customer's wallet (the service charge to the merchant's): two durable appends, \
        four events. The projector and the relay run. CPU in microseconds per call.\n\n\
        | connections | direct calls/s | p50 ms | p99 ms | gateway calls/s | p50 ms | p99 ms | added p50 ms | added p99 ms \
        | lag in events, all shown after |\n|---|---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    let mut cpu =
        "\n| connections | gateway | Postgres | projector and relay | NATS | mock provider | load |\n\
        |---|---|---|---|---|---|---|\n"
            .to_owned();
    for connections in WIDTHS {
        let plain = load(mock, direct.clone(), connections, length).await;
        let before = Cpu::now(instance);
        let calls = load(gateway, forwarded.clone(), connections, length).await;
        let used = Cpu::now(instance);
        let behind = lag(instance).await;
        let added =
            |thousandths| millis(calls.percentile(thousandths).saturating_sub(plain.percentile(thousandths)));
        let _ = writeln!(
            text,
            "| {connections} | {} | {} | {} | {} | {} | {} | {} | {} | {behind} |",
            plain.per_second(),
            millis(plain.percentile(500)),
            millis(plain.percentile(990)),
            calls.per_second(),
            millis(calls.percentile(500)),
            millis(calls.percentile(990)),
            added(500),
            added(990),
        );
        // The calls of the warm-up second are charged too.
        let all = calls.count() + calls.count() / length.as_secs().max(1);
        let _ = writeln!(cpu, "| {connections} | {} |", used.row(&before, all));
    }
    let state = merchant.log.states("request").await;
    assert!(state.is_empty(), "a call was left open");
    text + &cpu
}

fn request(to: SocketAddr, target: &str, headers: &str) -> Vec<u8> {
    let head = format!(
        "POST {target} HTTP/1.1\r\nHost: {to}\r\n{headers}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        BODY.len()
    );
    (head + BODY).into_bytes()
}
