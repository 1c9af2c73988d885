//! The independent check after a fault: the callers' observations, the provider's journal, the log, the states, the REST
//! responses and the feed must agree.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use farthing_tests::books::{Books, ClaimStatus, decimal};
use farthing_tests::feed;
use farthing_tests::instance::Instance;
use farthing_tests::log::{Log, check_chain};
use farthing_tests::merchant::{Merchant, encoded};
use farthing_tests::wait::within;
use rust_decimal::Decimal;
use serde_json::Value;

use crate::load::{Ended, tokens_of};
use crate::read_tables;

const RECOVERY_TIMEOUT: Duration = Duration::from_mins(1);

/// Checks everything.
pub(crate) async fn check(instance: &'static Instance, load: &Ended) {
    let log = within(RECOVERY_TIMEOUT, "the database is back", async || {
        Log::try_open(&instance.ready().database_url).await.ok()
    })
    .await;
    quiet(&log).await;
    let events = log.after(0).await;
    check_chain(&events, &log.heads().await);
    let books = Books::of(&events);
    charges(load, &books);
    states(&log, &books).await;
    rest(load, &books).await;
    let report = instance.operate(&["log", "verify"]).await;
    assert_eq!(report["ok"], true, "{report}");
    read_tables::equal_their_rebuild(instance, &[]).await;
    feed::check(instance, &events).await;
}

/// Waits until no request is open: the sweeper has ended those of dead processes.
async fn quiet(log: &Log) {
    within(RECOVERY_TIMEOUT, "every open request is ended", async || {
        log.states("request").await.is_empty().then_some(())
    })
    .await;
}

/// Compares the callers' observations and the provider's journal with the log.
fn charges(load: &Ended, books: &Books) {
    let mut served = BTreeSet::new();
    for call in load.parties.endpoint.calls() {
        let marker = call.target().split("m=").nth(1).unwrap_or_default().to_owned();
        assert!(served.insert(marker.clone()), "{marker}: sent to the provider twice");
    }
    let mut charged: BTreeMap<String, (&String, Decimal)> = BTreeMap::new();
    for (id, request) in &books.requests {
        let ClaimStatus::Completed(metered) = &request.standing else { continue };
        if request.merchant_id != load.parties.merchant.id {
            continue;
        }
        let marker = metered["response_id"].as_str().unwrap_or_else(|| panic!("{id}: {metered}")).to_owned();
        assert!(served.contains(&marker), "{id}: charged for {marker}, which the provider never served");
        assert_eq!(metered["usage"]["tokens"]["input"], tokens_of(&marker), "{id}");
        let cost = decimal(&metered["total_wallet_cost"]);
        let twice = charged.insert(marker.clone(), (id, cost));
        assert!(twice.is_none(), "{marker}: charged twice, as {id} and {twice:?}");
    }
    let mut complete = 0;
    for seen in &load.seen {
        let charge = charged.get(&seen.marker);
        match (seen.complete, seen.status) {
            (true, 200) => {
                complete += 1;
                let (id, _) = charge.unwrap_or_else(|| panic!("complete and not charged: {seen:?}"));
                assert_eq!(Some(*id), seen.request_id.as_ref());
            }
            (true, 503) => {
                assert!(charge.is_none() || seen.is_unknown, "refused and charged: {seen:?}");
            }
            (true, status) => panic!("unexpected status {status}: {seen:?}"),
            (false, _) => {}
        }
    }
    assert!(complete >= 250, "only {complete} calls were completed");
    for customer in &load.parties.customers {
        let account = books.of_customer(&customer.id);
        let mine = |request: &&farthing_tests::books::Request| {
            request.opened["parties"]["customer_id"] == customer.id.as_str()
        };
        let owed: Decimal = books
            .requests
            .values()
            .filter(mine)
            .map(|request| match &request.standing {
                ClaimStatus::Completed(metered) => decimal(&metered["total_wallet_cost"]),
                ClaimStatus::Pending | ClaimStatus::Error(_) => Decimal::ZERO,
            })
            .sum();
        assert_eq!(account.debits, owed, "{}: debits", customer.id);
        assert_eq!(account.held, Decimal::ZERO, "{}: held", customer.id);
        assert_eq!(account.debits, expected_fees(load, books, &customer.id), "{}: fees", customer.id);
    }
}

/// The expected fees of a customer, from the provider's tokens alone: graduated by their sum, since the order of calls does
/// not affect it.
fn expected_fees(load: &Ended, books: &Books, customer_id: &str) -> Decimal {
    let of_meter = |meter: String| {
        books.requests.values().filter_map(move |request| match &request.standing {
            ClaimStatus::Completed(metered)
                if metered["parties"]["customer_id"] == customer_id
                    && metered["meter_id"] == meter.as_str() =>
            {
                Some(tokens_of(metered["response_id"].as_str().unwrap_or_default()))
            }
            ClaimStatus::Completed(_) | ClaimStatus::Pending | ClaimStatus::Error(_) => None,
        })
    };
    let tokens: u64 = of_meter(load.parties.meters[0].id.clone()).sum();
    let calls = of_meter(load.parties.meters[1].id.clone()).count();
    let first = tokens.min(1_000_000);
    // 10 and then 7 dollars per million tokens; a thousandth of a dollar per call.
    Decimal::new(i64::try_from(first * 10).unwrap(), 6)
        + Decimal::new(i64::try_from((tokens - first) * 7).unwrap(), 6)
        + Decimal::new(i64::try_from(calls).unwrap(), 3)
}

/// Asserts that the stored states are a fold of the log.
async fn states(log: &Log, books: &Books) {
    let wallets = log.states("wallet").await;
    assert_eq!(wallets.len(), books.wallets.len());
    for (id, state) in wallets {
        let account = &books.wallets[&id];
        // The next release of the tests of upgrades may store a wallet within an object.
        let state = state.get("wallet").unwrap_or(&state);
        assert_eq!(decimal(&state["balance"]), account.balance(), "{id}");
        assert_eq!(decimal(&state["held"]), account.held, "{id}");
    }
}

/// Asserts that the REST responses are a fold of the log.
async fn rest(load: &Ended, books: &Books) {
    let merchant = &load.parties.merchant;
    let expected = books.newest_first(&merchant.id);
    let newest = expected.first().expect("calls were made");
    within(RECOVERY_TIMEOUT, "the read models catch up", async || {
        let shown = try_get(merchant, &format!("/v1/requests/{}", newest.0)).await?;
        (shown["status"] == newest.1.status()).then_some(())
    })
    .await;
    let mut shown = Vec::new();
    let mut cursor = String::new();
    loop {
        let path = format!("/v1/requests?limit=100{cursor}");
        let page = within(RECOVERY_TIMEOUT, "a page is shown", async || try_get(merchant, &path).await).await;
        shown.extend(page["data"].as_array().expect("data").clone());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(shown.len(), expected.len(), "all requests are shown");
    for (shown, (id, request)) in shown.iter().zip(&expected) {
        assert_eq!(shown["request_id"], id.as_str(), "in order");
        assert_eq!(shown["status"], request.status(), "{id}");
        assert_eq!(shown["connection_id"], request.opened["parties"]["customer_id"], "{id}");
        assert_eq!(shown["product_id"], request.opened["terms"]["meter_id"], "{id}");
        assert_eq!(shown["endpoint"], request.opened["endpoint"], "{id}");
        assert_eq!(shown["metadata"], request.opened["metadata"], "{id}");
        let created: chrono::DateTime<chrono::Utc> =
            shown["created_at"].as_str().unwrap_or_default().parse().unwrap();
        assert_eq!(created, request.opened_at, "{id}");
        match &request.standing {
            ClaimStatus::Completed(metered) => {
                for name in ["total_request_cost", "total_wallet_cost", "total_merchant_cost", "response_id"]
                {
                    assert_eq!(shown[name], metered[name], "{id}: {name}");
                }
                assert_eq!(shown["fee"]["amount"], metered["fee"]["amount"], "{id}");
                assert_eq!(shown["service_charge"]["amount"], metered["service_charge"]["amount"], "{id}");
                assert_eq!(shown["model_usage"]["input_tokens"], metered["usage"]["tokens"]["input"], "{id}");
            }
            ClaimStatus::Error(_) | ClaimStatus::Pending => {
                assert_eq!(shown["total_request_cost"], "0.0000000000", "{id}");
            }
        }
    }
    for customer in &load.parties.customers {
        let path = format!("/v1/connections/{}", encoded(&customer.id));
        let shown =
            within(RECOVERY_TIMEOUT, "the connection is shown", async || try_get(merchant, &path).await)
                .await;
        assert_eq!(
            decimal(&shown["wallet"]["balance"]),
            books.of_customer(&customer.id).balance(),
            "{}",
            customer.id
        );
    }
}

async fn try_get(merchant: &Merchant, path: &str) -> Option<Value> {
    let request = farthing_tests::client::Request::new("GET", path).bearer(&merchant.secret_key);
    let response = request.send(merchant.gateway()).await.ok()?;
    let fresh = response.head.header("x-service-stale").is_none();
    (response.status == 200 && response.complete && fresh).then(|| response.json())
}
