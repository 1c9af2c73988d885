//! A gateway that stops while Postgres is unavailable logs the calls that it cannot settle.

use farthing_tests::client::Connection;
use farthing_tests::leader;
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::{Gate, Step, chunk, event_stream, last_chunk, whole};
use farthing_tests::proxy::Proxy;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::{eventually, within};
use serde_json::json;

use crate::abandoned::SWEEP;
use crate::{instance, put_away, run};

#[test]
fn a_gateway_that_stops_without_postgres_logs_the_usage_of_each_call() {
    run(async {
        let instance = instance().await;
        let ready = instance.ready();
        let (proxy, url) = Proxy::before(&ready.database_url).await;
        let flags = ["--allow-address=127.0.0.0/8", "--grace-seconds=1"];
        let mut gateway = SideGateway::start_on(instance, &url, &ready.nats_url, &flags).await;
        // It leads the partition itself: nobody else can settle its calls.
        leader::spread(&instance.log().await.sql, 3).await;
        let merchant = Merchant::led_by(instance, &gateway.id().await).await;
        merchant.credit_own("10").await;
        let gate = Gate::default();
        let (first, second) = (gate.clone(), gate.clone());
        let reported = instance.provider.endpoint(move |_| {
            let usage = chunk("data: {\"id\":\"theirs-1\",\"usage\":{\"tokens\":4711}}\n\n");
            vec![event_stream(), usage, Step::Wait(first.clone()), last_chunk()]
        });
        let failed = instance.provider.endpoint(move |_| {
            let mut steps = vec![Step::Wait(second.clone())];
            steps.extend(whole(500, &[], b"no"));
            steps
        });
        let mut calls = Vec::new();
        for endpoint in [&reported, &failed] {
            let mut connection = Connection::open(gateway.address).await.unwrap();
            connection.send(&forward("GET", &endpoint.url).bearer(&merchant.secret_key)).await.unwrap();
            calls.push(connection);
        }
        let head = calls[0].head("GET").await.unwrap();
        let id = head.header("x-service-request-id").unwrap().to_owned();
        calls[0].read.piece().await.unwrap();
        // A call is sent while its opening commits, and one whose opening fails never was.
        eventually("both are open and in flight", async || {
            let events = merchant.events().await;
            let opened = events.iter().filter(|event| event.kind == "request.opened").count();
            (opened == 2 && failed.calls().len() == 1).then_some(())
        })
        .await;

        proxy.sever();
        gate.open();
        gateway.terminate();
        assert!(gateway.ended().await.success());
        assert!(calls[0].read.rest().await.1.is_err(), "a call that is not settled must not look complete");
        let logged = gateway.logged();
        let lost: Vec<&str> = logged.lines().filter(|line| line.contains("left unsettled")).collect();
        assert_eq!(lost.len(), 2, "{logged}");
        let line = lost.iter().find(|line| line.contains(&id)).unwrap_or_else(|| panic!("{id}: {logged}"));
        for part in ["ERROR", "\\\"input\\\":4711", "Whole", "theirs-1", "request.opened"] {
            assert!(line.contains(part), "{part} is not logged: {line}");
        }
        // The log has the terms of the call, and that nothing was charged.
        assert!(merchant.log.event(&format!("{id}/opened")).await.is_some());
        let ended = within(SWEEP * 2, "the call is swept", async || {
            merchant.log.event(&format!("{id}/failed")).await
        })
        .await;
        assert_eq!(ended.body["reason"], json!("abandoned"));
        merchant.nothing_is_held().await;
        put_away(instance).await;
    });
}
