//! Every log line about a call has its request id, as text and as JSON, on a gateway without a trace collector.

use std::net::TcpListener;

use farthing_tests::client::{Connection, Request};
use farthing_tests::codings::gzip;
use farthing_tests::instance::Instance;
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::{Gate, whole};
use farthing_tests::run;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::{eventually, eventually_ok};
use serde_json::{Value, json};

/// Shows the lines of the level debug, too.
const LEVEL: (&str, &str) = ("FARTHING_LOG", "info,farthing_api=debug");

/// A gateway that logs in `format`.
async fn logging(format: &str, flags: &[&str]) -> SideGateway {
    let log_format = format!("--log-format={format}");
    let mut all = vec!["--allow-address=127.0.0.0/8", log_format.as_str()];
    all.extend(flags);
    SideGateway::with_variables(Instance::shared().await, &all, &[LEVEL]).await
}

/// Waits until the gateway has logged `event` with the request id, and no such event without one.
async fn has_logged(gateway: &SideGateway, format: &str, event: &str, request_id: &str) {
    eventually_ok("the line is logged", async || {
        let log = gateway.logged();
        let ids: Vec<Option<String>> = if format == "json" {
            // The last line may be half written.
            let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let of_event = lines.filter(|line| line["event"] == event);
            let id = |line: Value| {
                assert!(line["span"]["trace_id"].is_null(), "not traced: {line}");
                line["request_id"].as_str().map(str::to_owned)
            };
            of_event.map(id).collect()
        } else {
            let of_event = log.lines().filter(|line| line.contains(&format!("event=\"{event}\"")));
            let id = |line: &str| {
                assert!(!line.contains("trace_id"), "not traced: {line}");
                let mut words = line.split_whitespace();
                words.find_map(|word| word.strip_prefix("request_id=")).map(str::to_owned)
            };
            of_event.map(id).collect()
        };
        let is_logged = ids.iter().any(|id| id.as_deref() == Some(request_id));
        if is_logged && ids.iter().all(Option::is_some) {
            Ok(())
        } else {
            Err(format!("{format} {event} {request_id}: {log}"))
        }
    })
    .await;
}

#[test]
fn a_line_about_a_call_to_a_provider_has_its_request_id_without_a_trace() {
    run(async {
        for format in ["text", "json"] {
            let gateway = logging(format, &[]).await;
            let merchant = Merchant::funded("1").await;

            let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let call = forward("POST", &format!("http://{closed}/")).bearer(&merchant.secret_key);
            let failed = call.json(&json!({})).send(gateway.address).await.unwrap();
            failed.refused(502, "provider_unreachable");
            has_logged(&gateway, format, "forward.provider_unreachable", &failed.request_id()).await;

            // The header of gzip, and then a block of a type that does not exist.
            let mut packed = gzip(b"{}");
            packed[10..].fill(0xff);
            let headers = [("content-type", "application/json"), ("content-encoding", "gzip")];
            let endpoint = merchant.instance.provider.endpoint(move |_| whole(200, &headers, &packed));
            let call = forward("GET", &endpoint.url).bearer(&merchant.secret_key);
            let passed = call.send(gateway.address).await.unwrap();
            assert_eq!(passed.status, 200, "{}", passed.text());
            has_logged(&gateway, format, "forward.decoding_failed", &passed.request_id()).await;
        }
    });
}

#[test]
fn a_line_about_a_call_beyond_a_limit_has_its_request_id() {
    run(async {
        // Beyond the limit of all calls a call is refused before its handler, beyond that of a merchant by it.
        for (format, flag) in [
            ("text", "--max-calls=1"),
            ("json", "--max-calls=1"),
            ("text", "--max-calls-per-merchant=1"),
            ("json", "--max-calls-per-merchant=1"),
        ] {
            let gateway = logging(format, &[flag]).await;
            let merchant = Merchant::funded("1").await;
            let gate = Gate::default();
            let endpoint = merchant.instance.provider.endpoint_behind(&gate);
            let call = forward("GET", &endpoint.url).bearer(&merchant.secret_key);
            let mut first = Connection::open(gateway.address).await.unwrap();
            first.send(&call).await.unwrap();
            eventually("the provider is called", async || (!endpoint.calls().is_empty()).then_some(())).await;

            let wallet = Request::new("GET", "/v1/wallet").bearer(&merchant.secret_key);
            for request in [call.clone(), wallet] {
                let refused = request.send(gateway.address).await.unwrap();
                refused.refused(503, "ledger_unavailable");
                has_logged(&gateway, format, "api.overloaded", &refused.request_id()).await;
            }
            gate.open();
            first.response("GET").await.unwrap().expect(200);
        }
    });
}
