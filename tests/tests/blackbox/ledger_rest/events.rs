//! `GET /ledger/events` shows a merchant's own events as they stand in the log, without secrets.

use chrono::TimeDelta;
use farthing_tests::log::Logged;
use farthing_tests::merchant::{Merchant, encoded};
use farthing_tests::run;
use serde_json::{Map, Value, json};

use super::{HIDDEN, Story, shown, time};

/// The pages of the events with these filters, which must be those that pass `passes`, newest first.
async fn lists(story: &Story, events: &[Logged], filter: &str, passes: impl Fn(&Logged) -> bool) -> usize {
    let expected: Vec<_> = events.iter().rev().filter(|event| passes(event)).map(shown).collect();
    for limit in [3, 100] {
        let pages = story.merchant.pages(&format!("/v1/ledger/events?{filter}"), limit).await;
        assert_eq!(pages, expected, "{filter} by {limit}");
    }
    expected.len()
}

fn customer(event: &Logged) -> Option<&str> {
    [&event.body["customer_id"], &event.body["parties"]["customer_id"]].into_iter().find_map(Value::as_str)
}

#[test]
fn a_merchants_events_are_shown_as_they_stand_in_the_log() {
    run(async {
        let story = Story::tell(Merchant::new().await).await;
        let (merchant, [first, second]) = (&story.merchant, &story.customers);
        let events = merchant.events().await;
        assert!(lists(&story, &events, "", |_| true).await > 20);
        let all = merchant.get("/v1/ledger/events?limit=100").await;
        for hidden in HIDDEN {
            assert!(events.iter().any(|event| event.text.contains(hidden)), "no event has {hidden}");
            assert!(!all.text().contains(&format!("\"{hidden}\"")), "{hidden}");
        }

        for kind in ["wallet.debited", "customer.created", "key.rotated", "webhook.created"] {
            lists(&story, &events, &format!("kind={kind}"), |event| event.kind == kind).await;
        }
        let several = ["wallet.credited", "payment.succeeded"];
        let found = lists(&story, &events, &format!("kind={}", several.join(",")), |event| {
            several.contains(&event.kind.as_str())
        })
        .await;
        assert_eq!(found, 4, "two credits by hand, a payment and its credit");
        for by in [&first.id, &first.reference_id] {
            let filter = format!("customer_id={by}");
            let found = lists(&story, &events, &filter, |event| customer(event) == Some(&first.id)).await;
            assert!(found > 8, "{found}");
        }
        let filter = format!("connection_id={}&kind=subscription.started,wallet.debited", second.id);
        let found = lists(&story, &events, &filter, |event| {
            customer(event) == Some(&second.id)
                && ["subscription.started", "wallet.debited"].contains(&event.kind.as_str())
        });
        assert_eq!(found.await, 2);
        for (call, count) in story.calls.iter().zip([4, 4, 4, 2]) {
            let of_call = |event: &Logged| event.key.starts_with(call.as_str());
            let filter = format!("request_id={call}");
            assert_eq!(lists(&story, &events, &filter, of_call).await, count, "{call}");
            let filter = format!("{filter}&kind=wallet.debited");
            let is_debit = |event: &Logged| of_call(event) && event.kind == "wallet.debited";
            assert_eq!(lists(&story, &events, &filter, is_debit).await, count - 2, "{call}");
        }
        periods(&story, &events).await;
        merchant.delete(&format!("/v1/customers/{}", first.id)).await.expect(200);
        let events = merchant.events().await;
        lists(&story, &events, &format!("customer_id={}", first.id), |event| {
            customer(event) == Some(&first.id)
        })
        .await;
    });
}

/// Those of other calls in its neighbourhood are as long as a merchant can make them, and few are read at once.
#[test]
fn the_events_of_a_call_are_found_among_long_ones_of_others() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let meter = merchant.call_meter("0.01").await;
        let metadata: Map<_, _> =
            (0..100).map(|number| (format!("{number:k>200}"), "\u{1}".repeat(255).into())).collect();
        let report = |id: String, metadata: Value| json!({"request_id": id, "meter_slug": meter.slug, "usage": {"requests": 1}, "metadata": metadata});
        for number in 0..20 {
            let long = report(format!("long {number}"), metadata.clone().into());
            merchant.post("/v1/requests", &long).await.expect(201);
            let short = report(format!("short {number}"), json!({}));
            merchant.post("/v1/requests", &short).await.expect(201);
        }
        let events = merchant.events().await;
        assert!(events.iter().any(|event| event.text.len() > 150_000));
        for id in ["short 0", "long 7", "short 13", "long 19"] {
            let path = format!("/v1/ledger/events?limit=100&request_id={}", encoded(id));
            let found = merchant.get(&path).await.expect(200);
            let opened = events.iter().find(|event| event.body["reported_id"] == id).unwrap();
            let own = &opened.key[.."req_".len() + 26];
            let expected: Vec<_> =
                events.iter().rev().filter(|event| event.key.starts_with(own)).map(shown).collect();
            assert_eq!(expected.len(), 2);
            assert_eq!(found["data"], json!(expected), "{id}");
        }
    });
}

/// The events from one instant on and before another one.
async fn periods(story: &Story, events: &[Logged]) {
    let times: Vec<_> = events.iter().map(|event| event.occurred_at).collect();
    for (from, to) in [(0, 5), (3, events.len() - 1), (7, 7), (4, 12)] {
        let (from, to) = (times[from].min(times[to]), times[to].max(times[from]));
        for (from, to) in [(from, to), (from - TimeDelta::milliseconds(1), to + TimeDelta::milliseconds(1))] {
            lists(story, events, &format!("from={}&to={}", time(from), time(to)), |event| {
                (from..to).contains(&event.occurred_at)
            })
            .await;
            lists(story, events, &format!("from={}", time(from)), |event| event.occurred_at >= from).await;
            let filter = format!("to={}&customer_id={}", time(to), story.customers[0].id);
            lists(story, events, &filter, |event| {
                event.occurred_at < to && customer(event) == Some(&story.customers[0].id)
            })
            .await;
        }
    }
    let never = "from=2000-01-01T00:00:00Z&to=2000-01-02T00:00:00Z";
    assert_eq!(lists(story, events, never, |_| false).await, 0);
}

#[test]
fn filters_and_cursors_that_name_nothing_of_the_merchant_are_told_apart() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let other = Merchant::funded("1").await;
        let events = async |filter: String| merchant.get(&format!("/v1/ledger/events?{filter}")).await;
        let nobody = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
        for filter in [
            format!("customer_id=con_{nobody}"),
            "customer_id=nobody".to_owned(),
            format!("request_id=req_{nobody}"),
            "request_id=nothing".to_owned(),
            "kind=checkout_session.completed".to_owned(),
        ] {
            let page = events(filter.clone()).await.expect(200);
            assert_eq!((&page["data"], &page["has_more"]), (&json!([]), &json!(false)), "{filter}");
        }
        for (filter, path) in [
            ("kind=wallet.exploded", "kind"),
            ("kind=", "kind"),
            ("kind=wallet.credited,,", "kind"),
            ("from=yesterday", "from"),
            ("from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z", "to"),
        ] {
            let error = events(filter.to_owned()).await.refused(400, "validation_error");
            assert_eq!(error["issues"][0]["path"], json!([path]), "{filter}: {error}");
        }
        let own = merchant.events().await.last().unwrap().position;
        let theirs = other.events().await.last().unwrap().clone();
        let own_partition = merchant.partition().await;
        let foreign = if theirs.partition == own_partition { theirs.position } else { own + 1_000_000 };
        for cursor in [foreign.to_string(), "0".to_owned(), "-1".to_owned(), i64::MAX.to_string()] {
            events(format!("cursor={cursor}")).await.refused(400, "cursor_invalid");
        }
        let page = events(format!("cursor={own}&limit=100")).await.expect(200);
        assert_eq!(page["data"].as_array().unwrap().len() + 1, merchant.events().await.len());
    });
}
