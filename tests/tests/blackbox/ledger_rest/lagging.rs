//! The ledger over REST while something is wrong: events that left the log, a read model that lags behind it, and an event
//! whose figures do not add up.

use chrono::TimeDelta;
use farthing_core::event::Event;
use farthing_tests::client::{Request, Response};
use farthing_tests::instance::Instance;
use farthing_tests::log::Logged;
use farthing_tests::made_log::{MadeLog, golden};
use farthing_tests::run;
use farthing_tests::scrape::scrape;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::side_projector::SideProjector;
use farthing_tests::wait::eventually;
use serde_json::{Value, json};

use super::{accounts, named, shown, shown_accounts, time};

/// A credit by hand, the `number`th.
fn credit(number: u8) -> Event {
    golden(
        "wallet.credited.v1",
        &[("credit_id", json!(format!("crd_01M3250V0628T5CY4TQKFF04{number:02}"))), ("amount", json!("1.5"))],
    )
}

async fn events(made: &MadeLog) -> Vec<Logged> {
    made.log.of_merchant(&made.merchant_id.to_string(), 0).await
}

async fn ask(made: &MadeLog, gateway: &SideGateway, target: &str) -> Response {
    let request = Request::new("GET", format!("/v1/ledger/{target}")).bearer(&made.secret_key);
    request.send(gateway.address).await.unwrap()
}

#[test]
fn a_page_of_events_ends_before_one_that_is_archived() {
    run(async {
        let instance = Instance::shared().await;
        let made = MadeLog::new(instance, "archived_page").await;
        made.append(vec![credit(1), credit(2)]).await;
        let kept = made.append(vec![credit(3), credit(4), credit(5)]).await;
        made.project("journal").await;
        let events = events(&made).await;
        let gateway = SideGateway::on(instance, &made.database_url, &[]).await;
        let whole = ask(&made, &gateway, "events?limit=100").await.expect(200);
        assert_eq!(whole["data"].as_array().unwrap().len(), events.len(), "{whole}");

        // The older record batches leave the log, as they do when they are archived.
        let sql = &made.log.sql;
        sql.batch_execute("ALTER TABLE ledger.batches DISABLE TRIGGER ALL").await.unwrap();
        let leave = "DELETE FROM ledger.batches WHERE partition = $1 AND first_position < $2";
        assert!(sql.execute(leave, &[&made.partition.number(), &kept]).await.unwrap() > 0);

        let there: Vec<_> = events.iter().rev().filter(|event| event.position >= kept).map(shown).collect();
        assert_eq!(there.len(), 3);
        let from = events.iter().find(|event| event.position == kept).unwrap().occurred_at;
        for (filter, count) in [
            // The page is full: only the look-ahead reaches an archived event.
            ("limit=3".to_owned(), 3),
            ("limit=2".to_owned(), 2),
            ("limit=100".to_owned(), 3),
            ("limit=3&kind=wallet.credited".to_owned(), 3),
            (format!("limit=3&from={}", time(from - TimeDelta::seconds(60))), 3),
        ] {
            let page = ask(&made, &gateway, &format!("events?{filter}")).await.expect(200);
            assert_eq!(page["data"].as_array().unwrap(), &there[..count], "{filter}");
            assert_eq!(page["has_more"], json!(true), "{filter}: {page}");
            assert_eq!(page["next_cursor"], there[count - 1]["id"], "{filter}: {page}");
        }
        let beyond = format!("events?cursor={kept}");
        ask(&made, &gateway, &beyond).await.refused(503, "ledger_unavailable");
    });
}

#[test]
fn a_trial_balance_of_a_moment_that_the_read_model_has_not_reached_is_refused() {
    run(async {
        let instance = Instance::shared().await;
        let made = MadeLog::new(instance, "lagging_balance").await;
        let first = made.append(vec![credit(1), credit(2)]).await;
        made.project("journal").await;
        let behind = made.append(vec![credit(3)]).await;
        let events = events(&made).await;
        let at = time(events.last().unwrap().occurred_at + TimeDelta::milliseconds(1));
        let gateway = SideGateway::on(instance, &made.database_url, &[]).await;
        let balance = async |moment: &str| ask(&made, &gateway, &format!("trial_balance?{moment}")).await;
        let expected = |last: i64| named(accounts(&events, |event| event.position <= last));

        for moment in [format!("position={behind}"), format!("at={at}")] {
            balance(&moment).await.refused(503, "ledger_unavailable");
        }
        // What the read model has reached is exact, and not stale.
        let reached = balance(&format!("position={}", first + 1)).await;
        assert_eq!(reached.head.header("x-service-stale"), None);
        assert_eq!(shown_accounts(&reached.expect(200)), expected(first + 1));
        // The present balance says that it is old, and up to which event it is.
        let now = balance("").await;
        assert_eq!(now.head.header("x-service-stale"), Some("true"));
        let now = now.expect(200);
        assert_eq!((&now["position"], shown_accounts(&now)), (&json!(first + 1), expected(first + 1)));

        made.project("journal").await;
        for moment in [format!("position={behind}"), format!("at={at}"), String::new()] {
            let answer = balance(&moment).await;
            assert_eq!(answer.head.header("x-service-stale"), None, "{moment}");
            let answer: Value = answer.expect(200);
            assert_eq!(shown_accounts(&answer), expected(behind), "{moment}");
        }
        balance(&format!("position={}", behind + 1)).await.refused(400, "validation_error");
    });
}

#[test]
fn an_event_that_does_not_add_up_is_shown_and_alarmed_and_the_projection_goes_on() {
    run(async {
        let instance = Instance::shared().await;
        let made = MadeLog::new(instance, "doubtful_event").await;
        let sources = json!([{"source": "balance", "amount": "1.5"}]);
        let debited = golden(
            "wallet.debited.v1",
            &[
                ("wallet_id", json!(made.wallet_id)),
                ("customer_id", Value::Null),
                ("amount", json!("2")),
                ("sources", sources),
            ],
        );
        made.append(vec![debited]).await;
        let last = made.append(vec![credit(1)]).await;
        let projector = SideProjector::on(instance, &made.database_url).await;
        let gateway = SideGateway::on(instance, &made.database_url, &[]).await;
        let balance = eventually("the read model has passed the event", async || {
            let answer = ask(&made, &gateway, &format!("trial_balance?position={last}")).await;
            (answer.status == 200).then(|| answer.expect(200))
        })
        .await;
        assert_eq!(
            (&balance["sum"], &balance["position"]),
            (&json!("-0.5000000000"), &json!(last)),
            "{balance}"
        );
        let before = ask(&made, &gateway, &format!("trial_balance?position={}", last - 1)).await.expect(200);
        assert_eq!(before["sum"], "-0.5000000000", "{before}");
        let sound = ask(&made, &gateway, &format!("trial_balance?position={}", last - 2)).await.expect(200);
        assert_eq!(sound["sum"], "0.0000000000", "{sound}");
        let page = ask(&made, &gateway, "events?limit=1&kind=wallet.debited").await.expect(200);
        assert_eq!(page["data"][0]["position"], json!(last - 1), "{page}");
        let labels = [("read_model", "journal")];
        let counted = async |name: &str| scrape(projector.operator).await.count(name, &labels);
        eventually("the projector has raised an alarm", async || {
            (counted("farthing_projection_doubtful_events_total").await == 1).then_some(())
        })
        .await;
        assert_eq!(counted("farthing_projection_restarts_total").await, 0);
    });
}
