//! A call is settled before its last byte is released, even if the caller or the provider disconnects.

use farthing_tests::client::Connection;
use farthing_tests::merchant::{Customer, Merchant, Meter, forward};
use farthing_tests::provider::{Gate, Step, chunk, event_stream, head, json, last_chunk};
use farthing_tests::run;
use farthing_tests::scrape::scrape;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::eventually;
use serde_json::json;

async fn shop() -> (Merchant, Customer, Meter) {
    shop_of(Merchant::new().await).await
}

async fn shop_of(merchant: Merchant) -> (Merchant, Customer, Meter) {
    merchant.credit_own("100").await;
    let customer = merchant.customer("100").await;
    let meter = merchant
        .meter(json!({
            "name": "tokens", "rate_type": "fixed", "tier_type": "tokens_1m",
            "tiers": [{"start": 0, "rate": "1"}], "service_charge_payer": "merchant",
        }))
        .await;
    (merchant, customer, meter)
}

#[test]
fn a_settlement_is_in_the_log_before_the_response_ends() {
    run(async {
        let (merchant, customer, meter) = shop().await;
        let credential = merchant.billing(&customer, &meter);
        let sized = merchant.instance.provider.endpoint(|_| json(200, &json!({"usage": {"tokens": 1}})));
        let streamed = merchant
            .instance
            .provider
            .endpoint(|_| vec![event_stream(), chunk("data: {\"usage\":{\"tokens\":1}}\n\n"), last_chunk()]);
        let closed = merchant.instance.provider.endpoint(|_| {
            vec![head(200, &[]), Step::Bytes(b"{\"usage\":{\"tokens\":1}}".to_vec()), Step::Close]
        });
        let empty = merchant.instance.provider.endpoint(|_| vec![head(200, &[("Content-Length", "0")])]);
        let no_content = merchant.instance.provider.endpoint(|_| vec![head(204, &[])]);
        for _ in 0..20 {
            for endpoint in [&sized, &streamed, &closed, &empty, &no_content] {
                let response = merchant.call(&credential, &endpoint.url).await;
                assert!(response.complete && matches!(response.status, 200 | 204));
                merchant.charged(&response).await;
            }
        }
        merchant.nothing_is_held().await;
    });
}

#[test]
fn the_hold_lasts_as_long_as_the_call() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let customer = merchant.customer("1").await;
        let meter = merchant.call_meter("0.6").await;
        let gate = Gate::default();
        let held = gate.clone();
        let slow = merchant.instance.provider.endpoint(move |_| {
            let mut steps = vec![Step::Wait(held.clone())];
            steps.extend(json(200, &json!({})));
            steps
        });
        let credential = merchant.billing(&customer, &meter);
        let mut first = Connection::open(merchant.gateway()).await.unwrap();
        first.send(&forward("GET", &slow.url).bearer(&credential)).await.unwrap();
        eventually("the first call reaches the provider", async || (!slow.calls().is_empty()).then_some(()))
            .await;
        let second = merchant.fetch(&credential, &slow.url).await;
        second.refused(402, "insufficient_balance");
        assert!(merchant.log.event(&format!("{}/opened", second.request_id())).await.is_none());
        assert_eq!(slow.calls().len(), 1, "a refused call does not reach the provider");
        gate.open();
        first.response("GET").await.unwrap().expect(200);
        merchant.nothing_is_held().await;
        assert_eq!(merchant.balance(&customer).await, "0.4000000000");
    });
}

#[test]
fn a_caller_who_disconnects_mid_stream_is_charged_the_final_report() {
    run(async {
        let (merchant, customer, meter) = shop().await;
        let gate = Gate::default();
        let held = gate.clone();
        let endpoint = merchant.instance.provider.endpoint(move |_| {
            vec![
                event_stream(),
                chunk("data: {\"a\":1}\n\n"),
                Step::Wait(held.clone()),
                chunk("data: {\"usage\":{\"tokens\":500000}}\n\n"),
                last_chunk(),
            ]
        });
        let credential = merchant.billing(&customer, &meter);
        let mut connection = Connection::open(merchant.gateway()).await.unwrap();
        connection.send(&forward("POST", &endpoint.url).bearer(&credential).json(&json!({}))).await.unwrap();
        let answer = connection.head("POST").await.unwrap();
        let id = answer.header("x-service-request-id").unwrap().to_owned();
        connection.read.piece().await.unwrap();
        drop(connection);
        gate.open();
        let metered =
            eventually("the call is settled", async || merchant.log.event(&format!("{id}/metered")).await)
                .await;
        assert_eq!(metered.body["total_wallet_cost"], "0.5000000000");
        assert_eq!(metered.body["marks"], json!([]));
        merchant.nothing_is_held().await;
    });
}

#[test]
fn a_caller_who_disconnects_before_the_response_begins_is_charged() {
    run(async {
        let (merchant, customer, meter) = shop().await;
        let gate = Gate::default();
        let held = gate.clone();
        let endpoint = merchant.instance.provider.endpoint(move |_| {
            let mut steps = vec![Step::Wait(held.clone())];
            steps.extend(json(200, &json!({"usage": {"tokens": 1_000_000}})));
            steps
        });
        let credential = merchant.billing(&customer, &meter);
        let mut connection = Connection::open(merchant.gateway()).await.unwrap();
        connection.send(&forward("GET", &endpoint.url).bearer(&credential)).await.unwrap();
        eventually("the call reaches the provider", async || (!endpoint.calls().is_empty()).then_some(()))
            .await;
        drop(connection);
        gate.open();
        eventually("the call is charged", async || {
            (merchant.balance(&customer).await == "99.0000000000").then_some(())
        })
        .await;
        merchant.nothing_is_held().await;
    });
}

#[test]
fn a_caller_who_disconnects_while_sending_the_body_is_not_charged() {
    run(async {
        let (merchant, customer, meter) = shop().await;
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({"usage": {"tokens": 1}})));
        let credential = merchant.billing(&customer, &meter);
        let request = forward("POST", &endpoint.url).header("Content-Length", "10000000").bearer(&credential);
        let mut connection = Connection::open(merchant.gateway()).await.unwrap();
        connection.send_head(&request).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut connection.write, &vec![b'x'; 2_000_000]).await.unwrap();
        drop(connection);
        merchant.nothing_is_held().await;
        assert_eq!(merchant.balance(&customer).await, "100.0000000000");
        assert!(merchant.events().await.iter().all(|event| event.kind != "request.metered"));
    });
}

#[test]
fn a_provider_that_disconnects_after_reporting_usage_is_charged_in_part_and_the_response_stays_incomplete() {
    run(async {
        let (merchant, customer, meter) = shop().await;
        let endpoint = merchant.instance.provider.endpoint(|_| {
            vec![
                event_stream(),
                chunk("data: {\"usage\":{\"tokens\":250000}}\n\n"),
                chunk("data: more"),
                Step::Close,
            ]
        });
        let response = merchant.call(&merchant.billing(&customer, &meter), &endpoint.url).await;
        assert!(!response.complete, "an interrupted response must not look complete");
        let metered = eventually("the call is settled", async || merchant.metered(&response).await).await;
        assert_eq!(metered["marks"], json!(["partial"]));
        assert_eq!(metered["total_wallet_cost"], "0.2500000000");
        merchant.nothing_is_held().await;
    });
}

#[test]
fn a_provider_that_disconnects_without_usage_costs_nothing() {
    run(async {
        let (merchant, customer, meter) = shop().await;
        let per_call = merchant.call_meter("0.5").await;
        let half_a_stream = merchant
            .instance
            .provider
            .endpoint(|_| vec![event_stream(), chunk("data: {\"a\":1}\n\n"), Step::Close]);
        let half_a_document = merchant.instance.provider.endpoint(|_| {
            let headers = [("Content-Type", "application/json"), ("Content-Length", "1000")];
            vec![head(200, &headers), Step::Bytes(b"{\"usage\":{\"tok".to_vec()), Step::Close]
        });
        for endpoint in [&half_a_stream, &half_a_document] {
            for meter in [&meter, &per_call] {
                let response = merchant.call(&merchant.billing(&customer, meter), &endpoint.url).await;
                assert!(!response.complete);
                let failed = merchant.failed(&response).await;
                assert_eq!(failed["reason"], "provider_gone");
            }
        }
        merchant.nothing_is_held().await;
        assert_eq!(merchant.balance(&customer).await, "100.0000000000");
    });
}

/// What is shown is what is charged: a response whose end is that of its connection is taken for broken off only if it ends
/// within a document of JSON, and then it breaks off for its caller, too.
#[test]
fn a_response_without_a_length_breaks_off_for_its_caller_if_it_is_taken_for_broken_off() {
    run(async {
        let (merchant, customer, meter) = shop().await;
        let per_call = merchant.call_meter("0.5").await;
        let reported = "data: {\"usage\":{\"tokens\":250000}}\n\n";
        let half_an_event = format!("{reported}data: {{\"a\":");
        let partial = Some((json!(["partial"]), ["0.2500000000", "0.5000000000"]));
        let whole = Some((json!(["usage_missing"]), ["0.0000000000", "0.5000000000"]));
        for (content_type, body, charged, is_whole) in [
            ("application/json", "{\"usage\":{\"tok", None, false),
            ("text/event-stream", "data: {\"a\":1}\n\ndata: {", None, false),
            ("text/event-stream", half_an_event.as_str(), partial, false),
            // Brackets mean nothing in what is no JSON.
            ("text/plain", "I see (and [hear {", whole.clone(), true),
            ("application/json", "Sorry: {", whole.clone(), true),
            ("text/html", "<script>if (a) {", whole.clone(), true),
            ("text/plain", "[2026-11-30] \u{1b}[32mINFO", whole.clone(), true),
            ("application/octet-stream", "{[", whole.clone(), true),
            ("audio/mpeg", "ID3{[", whole.clone(), true),
            ("audio/pcm", "{[", whole, true),
        ] {
            let sent = body.to_owned();
            let endpoint = merchant.instance.provider.endpoint(move |_| {
                let head = head(200, &[("Content-Type", content_type)]);
                vec![head, Step::Bytes(sent.clone().into_bytes()), Step::Close]
            });
            for (at, meter) in [&meter, &per_call].into_iter().enumerate() {
                let call = forward("POST", &endpoint.url).json(&json!({"input": "hello"}));
                let call = call.header("Idempotency-Key", format!("{}-{at}", endpoint.path));
                let response = merchant.send(&merchant.billing(&customer, meter), call.clone()).await;
                assert_eq!((response.status, response.complete), (200, is_whole), "{content_type} {body}");
                assert_eq!(response.text(), body, "all of it passes");
                match &charged {
                    Some((marks, costs)) => {
                        let metered = merchant.charged(&response).await;
                        assert_eq!(&metered["marks"], marks, "{content_type} {body}");
                        assert_eq!(metered["total_wallet_cost"], costs[at], "{content_type} {body}");
                    }
                    None => assert_eq!(merchant.failed(&response).await["reason"], "provider_gone"),
                }
                // Only a whole response is shown again.
                let again = merchant.send(&merchant.billing(&customer, meter), call).await;
                if is_whole && content_type != "text/event-stream" {
                    assert_eq!((again.text().as_str(), again.complete), (body, true));
                } else {
                    again.refused(409, "idempotency_completed");
                }
            }
            assert_eq!(endpoint.calls().len(), 2);
        }
        merchant.nothing_is_held().await;
    });
}

#[test]
fn an_unreachable_or_non_http_provider_is_502_and_costs_nothing() {
    run(async {
        let (merchant, customer, meter) = shop().await;
        let credential = merchant.billing(&customer, &meter);
        // A port that was just free.
        let port = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        let silent = merchant.instance.provider.endpoint(|_| vec![Step::Close]);
        let rubbish = merchant
            .instance
            .provider
            .endpoint(|_| vec![Step::Bytes(b"\0\0rubbish\r\n\r\n".to_vec()), Step::Close]);
        for url in
            [&format!("http://127.0.0.1:{port}/"), "http://no-such-host.invalid/", &silent.url, &rubbish.url]
        {
            let response = merchant.call(&credential, url).await;
            response.refused(502, "provider_unreachable");
            assert_eq!(merchant.failed(&response).await["reason"], "provider_unreachable", "{url}");
        }
        merchant.nothing_is_held().await;
        assert_eq!(merchant.balance(&customer).await, "100.0000000000");
    });
}

#[test]
fn an_early_response_is_passed_back_and_settled() {
    run(async {
        let (merchant, customer, meter) = shop().await;
        let credential = merchant.billing(&customer, &meter);
        let endpoint = merchant.instance.provider.endpoint(|_| json(413, &json!({"error": "too large"})));
        let body = farthing_tests::client::Body::Whole(vec![b'x'; 3_000_000]);
        let response = merchant.send(&credential, forward("POST", &endpoint.url).body(body)).await;
        assert_eq!(response.status, 413);
        assert_eq!(merchant.failed(&response).await["reason"], "provider_status");
        merchant.nothing_is_held().await;
    });
}

/// The statements that make the database refuse the events of a `kind` of one merchant for good, as a bug would. The term of
/// the partition's leader ends then, so the instance is the test's own. On a
/// cluster each is executed alone; the setting means nothing to plain Postgres.
fn refusing(merchant: &Merchant, kind: &str) -> [String; 3] {
    let name = format!("unsettleable_{}", merchant.id);
    [
        "SET citus.enable_unsafe_triggers = on".to_owned(),
        format!(
            "CREATE FUNCTION ledger.{name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                RAISE EXCEPTION 'a test' USING ERRCODE = 'check_violation';
            END $$"
        ),
        format!(
            "CREATE TRIGGER {name} BEFORE INSERT ON ledger.batches FOR EACH ROW
                WHEN (convert_from(NEW.events, 'UTF8') ~ '\"{kind}\"[^\\n]*\"{}\"')
                EXECUTE FUNCTION ledger.{name}()",
            merchant.id
        ),
    ]
}

#[test]
fn a_settlement_that_cannot_be_appended_ends_the_request_as_failed() {
    run(async {
        let (merchant, customer, meter) = shop_of(Merchant::alone(1).await).await;
        let credential = merchant.billing(&customer, &meter);
        let endpoint =
            merchant.instance.provider.endpoint(|_| json(200, &json!({"usage": {"tokens": 500_000}})));
        let gateway = SideGateway::start(merchant.instance, &["--allow-address=127.0.0.0/8"]).await;
        for statement in refusing(&merchant, "request.metered") {
            merchant.log.sql.batch_execute(&statement).await.unwrap();
        }
        let mut connection = Connection::open(gateway.address).await.unwrap();
        connection.send(&forward("GET", &endpoint.url).bearer(&credential)).await.unwrap();
        let response = connection.response("GET").await;
        assert!(
            !response.is_ok_and(|response| response.complete && response.status == 200),
            "the response is complete and not charged"
        );
        let events = merchant.events().await;
        let failed = &events.iter().find(|event| event.kind == "request.failed").unwrap().body;
        assert_eq!((&failed["reason"], &failed["http_status"]), (&json!("unsettleable"), &json!(200)));
        assert!(failed["raw_usage"].as_str().unwrap().contains("500000"), "{failed}");
        merchant.nothing_is_held().await;
        assert_eq!(merchant.balance(&customer).await, "100.0000000000");
        let logged = gateway.logged();
        assert!(logged.contains("settlement.unsettleable"), "{logged}");
        assert_eq!(logged.matches("forward.call_left_unsettled").count(), 1, "{logged}");
        assert_eq!(scrape(gateway.operator).await.count("farthing_calls_unsettled_total", &[]), 1);
        let request_id = failed["request_id"].as_str().unwrap();
        let shown = merchant.get(&format!("/v1/requests/{request_id}")).await.expect(200);
        assert_eq!(
            (&shown["status"], &shown["failure_reason"]),
            (&json!("error"), &json!("unsettleable")),
            "{shown}"
        );
        // The others are settled meanwhile.
        let other = Merchant::funded("1").await;
        let url = other.instance.provider.endpoint(|_| json(200, &json!({}))).url;
        let response = other.call(&other.secret_key, &url).await;
        other.charged(&response).await;
        refuse_no_more(&merchant).await;
        let response = merchant.call(&credential, &endpoint.url).await;
        merchant.charged(&response).await;
    });
}

async fn refuse_no_more(merchant: &Merchant) {
    let name = format!("unsettleable_{}", merchant.id);
    // With `CASCADE`, Citus would lock the shards before the table: a deadlock with an append.
    for drop in [format!("DROP TRIGGER {name} ON ledger.batches"), format!("DROP FUNCTION ledger.{name}()")] {
        merchant.log.sql.batch_execute(&drop).await.unwrap();
    }
}

#[test]
fn a_call_that_was_never_opened_is_not_counted_as_unsettled() {
    run(async {
        let (merchant, customer, meter) = shop_of(Merchant::alone(1).await).await;
        let credential = merchant.billing(&customer, &meter);
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({"usage": {"tokens": 1}})));
        let gateway = SideGateway::start(merchant.instance, &["--allow-address=127.0.0.0/8"]).await;
        for statement in refusing(&merchant, "request.opened") {
            merchant.log.sql.batch_execute(&statement).await.unwrap();
        }
        for _ in 0..5 {
            let call = forward("GET", &endpoint.url).bearer(&credential).send(gateway.address).await.unwrap();
            // At a follower, only the leader knows what went wrong.
            assert!([500, 503].contains(&call.status), "{} {}", call.status, call.text());
        }
        assert_eq!(
            merchant.events().await.iter().filter(|event| event.kind.starts_with("request.")).count(),
            0
        );
        let scraped = scrape(gateway.operator).await;
        assert_eq!(scraped.count("farthing_calls_unsettled_total", &[]), 0);
        assert_eq!(scraped.count("farthing_calls_total", &[]), 0);
        assert!(!gateway.logged().contains("left_unsettled"), "{}", gateway.logged());
        refuse_no_more(&merchant).await;
        let response = merchant.call(&credential, &endpoint.url).await;
        merchant.charged(&response).await;
    });
}
