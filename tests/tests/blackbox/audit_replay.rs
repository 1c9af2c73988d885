//! `farthing audit replay`: the states as of a position or a time are those that were stored then, and as of a time a wallet
//! has the balance of its statement.

use std::collections::BTreeMap;
use std::process::{Output, Stdio};

use farthing_tests::books::decimal;
use farthing_tests::instance::{Instance, program};
use farthing_tests::merchant::{Customer, Merchant};
use farthing_tests::provider::json as answer_json;
use farthing_tests::recurring::{Means, PAYS, instant};
use farthing_tests::{run, wait};
use serde_json::{Value, json};

const STATES: &str = "\
SELECT s.kind, s.id, s.body FROM ledger.state AS s
JOIN ledger.heads AS h ON h.partition = s.partition AND h.generation = s.generation WHERE s.partition = $1";
const ENDS: &str = "\
SELECT h.position, c.position FROM ledger.heads AS h
JOIN ledger.checkpoints AS c ON c.partition = h.partition AND c.generation = h.generation
WHERE h.partition = $1";

type States = BTreeMap<(String, String), Value>;

/// What was stored and shown at a position.
struct Then {
    position: i64,
    states: States,
    balance: Option<String>,
}

/// Runs `farthing audit replay`.
async fn run_replay(instance: &Instance, arguments: &[&str]) -> Output {
    let mut command = tokio::process::Command::new(program());
    command.args(["audit", "replay"]).args(arguments);
    command.args(["--database-url", &instance.ready().database_url]);
    command.stdin(Stdio::null()).output().await.unwrap()
}

/// The states and the summary of a replay, which must succeed.
async fn replay(instance: &Instance, arguments: &[&str]) -> (States, Value) {
    let output = run_replay(instance, &[arguments, &["--json"]].concat()).await;
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let summary = lines.pop().unwrap()["summary"].take();
    assert_eq!(summary["ok"], json!(true), "{summary}");
    let state = |mut line: Value| {
        let text = |name: &str| line[name].as_str().unwrap().to_owned();
        ((text("kind"), text("id")), line["state"].take())
    };
    (lines.into_iter().map(state).collect(), summary)
}

async fn refused(instance: &Instance, arguments: &[&str], why: &str) {
    let output = run_replay(instance, arguments).await;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
    assert!(stderr.contains(why), "{arguments:?}: {stderr}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{arguments:?}");
}

/// The states of the merchant's partition, once those of all its events are stored.
async fn then(merchant: &Merchant, customer: Option<&Customer>) -> Then {
    let partition = merchant.partition().await;
    let sql = &merchant.log.sql;
    let balance = match customer {
        Some(customer) => Some(merchant.balance(customer).await),
        None => None,
    };
    wait::eventually("the states of the last event are stored", async || {
        let ends = async || {
            let row = sql.query_one(ENDS, &[&partition]).await.unwrap();
            (row.get::<_, i64>(0), row.get::<_, i64>(1))
        };
        let (position, stored) = ends().await;
        let rows = sql.query(STATES, &[&partition]).await.unwrap();
        let is_still = position == stored && ends().await == (position, stored);
        let state = |row: &tokio_postgres::Row| {
            let body: String = row.get(2);
            ((row.get(0), row.get(1)), serde_json::from_str(&body).unwrap())
        };
        let balance = balance.clone();
        is_still.then(|| Then { position, states: rows.iter().map(state).collect(), balance })
    })
    .await
}

#[test]
fn each_position_of_a_history_replays_to_the_states_of_then() {
    run(async {
        let instance = Instance::of_test(1).await;
        let merchant = Merchant::of(instance).await;
        let mut history = vec![then(&merchant, None).await];
        merchant.credit_own("5").await;
        history.push(then(&merchant, None).await);
        let (customer, meter) = (merchant.customer("1").await, merchant.call_meter("1").await);
        history.push(then(&merchant, Some(&customer)).await);
        let plan = json!({
            "name": "Two", "period_amount": "10", "included_credit": "2", "rollover_type": "none",
            "bundle_rollover_type": "none",
            "credit_bundles": [{"name": "Four", "cost": "5", "credit_amount": "4"}],
        });
        let plan = merchant.post("/v1/plans", &plan).await.expect(201);
        history.push(then(&merchant, Some(&customer)).await);
        let began = merchant.subscribe(&customer, &plan, Means::Card(PAYS)).await;
        merchant.buy(&customer, &plan["credit_bundles"][0], Means::Known).await;
        history.push(then(&merchant, Some(&customer)).await);
        let endpoint = instance.provider.endpoint(|_| answer_json(200, &json!({})));
        for _ in 0..3 {
            merchant.fetch(&merchant.billing(&customer, &meter), &endpoint.url).await.expect(200);
            merchant.nothing_is_held().await;
            history.push(then(&merchant, Some(&customer)).await);
        }
        let spend_key = json!({"name": "one", "connection_id": customer.id});
        let spend_key = merchant.post("/v1/spend_keys", &spend_key).await.expect(201);
        history.push(then(&merchant, Some(&customer)).await);
        merchant.clock_to(instant(&began["cycle_end_at"])).await;
        let subscription_id = began["subscription_id"].as_str().unwrap();
        merchant.comes_to(subscription_id, "subscription.renewed", 1).await;
        history.push(then(&merchant, Some(&customer)).await);
        let wallet_id = merchant.log.state("customer", &customer.id).await.unwrap()["wallet_id"].clone();
        let wallet_id = wallet_id.as_str().unwrap();
        times(&merchant, wallet_id).await;
        merchant.delete(&format!("/v1/customers/{}", customer.id)).await.expect(200);
        history.push(then(&merchant, None).await);

        let partition = merchant.partition().await;
        let at = |position: i64| format!("{partition}:{position}");
        for Then { position, states, balance } in &history {
            let at = at(*position);
            let (replayed, summary) = replay(instance, &["--at", &at]).await;
            assert_eq!(&replayed, states, "{at}");
            assert_eq!(summary["events"], json!(position), "{summary}");
            let wallet = states.get(&("wallet".to_owned(), wallet_id.to_owned()));
            if let (Some(balance), Some(wallet)) = (balance, wallet) {
                assert_eq!(&wallet["balance"], balance, "{at}");
                // One thing alone is as in the whole.
                let (alone, _) = replay(instance, &["--at", &at, &customer.id]).await;
                assert!(alone.contains_key(&("wallet".to_owned(), wallet_id.to_owned())), "{alone:?}");
                for (key, state) in &alone {
                    assert_eq!(Some(state), states.get(key), "{at}: {key:?}");
                }
            }
        }
        moments(&merchant, &history).await;
        let last = history.last().unwrap();
        let before = &history[history.len() - 2];
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let mut keys = before.states.iter().filter(|((kind, _), _)| kind == "secret_key");
        let (_, secret_key) = keys.next().expect("the merchant's key");
        for (id, kinds) in [
            (text(&secret_key["secret_key_id"]), vec!["issued_key"]),
            (wallet_id.to_owned(), vec!["wallet"]),
            (text(&spend_key["spend_key_id"]), vec!["spend_key", "spending"]),
            (meter.id.clone(), vec!["meter"]),
            (text(&plan["plan_id"]), vec!["credit_bundle", "plan"]),
            (subscription_id.to_owned(), vec!["subscription"]),
            (customer.id.clone(), vec!["customer", "position", "subscription", "wallet"]),
            (merchant.id.clone(), vec!["merchant", "wallet"]),
        ] {
            let (alone, _) = replay(instance, &["--at", &at(before.position), &id]).await;
            let found: Vec<_> = alone.keys().map(|(kind, _)| kind.as_str()).collect();
            assert_eq!(found, kinds, "{id}");
            for (key, state) in &alone {
                assert_eq!(Some(state), before.states.get(key), "{key:?}");
            }
        }
        gone_and_refused(&merchant, &customer, last.position).await;
    });
}

/// As of a time, everything has the states of then: those at the last position whose event is before the time.
async fn moments(merchant: &Merchant, history: &[Then]) {
    let (events, partition) = (merchant.events().await, merchant.partition().await);
    let mut replayed = 0;
    for Then { position, states, .. } in history {
        let (until, after): (Vec<_>, Vec<_>) = events.iter().partition(|event| event.position <= *position);
        let last = until.iter().map(|event| event.occurred_at).max();
        let Some(next) = after.iter().map(|event| event.occurred_at).min().filter(|next| last < Some(*next))
        else {
            continue;
        };
        let time = next.to_rfc3339();
        let output = run_replay(merchant.instance, &["--at", &time, "--json"]).await;
        assert!(output.status.success(), "{time}: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let shown: States = lines
            .filter(|line| line["partition"] == json!(partition))
            .map(|line| {
                let text = |name: &str| line[name].as_str().unwrap().to_owned();
                ((text("kind"), text("id")), line["state"].clone())
            })
            .collect();
        assert_eq!(&shown, states, "{time}, position {position}");
        replayed += 1;
    }
    assert!(replayed >= 5, "{replayed} of {} moments have a time of their own", history.len());
}

/// As of the time of each entry, and between them, the wallet has the balance of the statement until then.
async fn times(merchant: &Merchant, wallet_id: &str) {
    let instance = merchant.instance;
    let whole = instance.operate(&["audit", "statement", "--wallet", wallet_id]).await;
    let entries = whole["entries"].as_array().unwrap();
    assert!(entries.len() >= 6, "{whole}");
    let partition = merchant.partition().await;
    for entry in entries {
        let at = format!("{partition}:{}", entry["position"]);
        let (states, _) = replay(instance, &[wallet_id, "--at", &at]).await;
        let wallet = states.values().next().unwrap();
        assert_eq!(wallet["balance"], entry["after"]["balance"], "{entry}");
        let time = entry["occurred_at"].as_str().unwrap();
        let until = instance.operate(&["audit", "statement", "--wallet", wallet_id, "--to", time]).await;
        let (states, summary) = replay(instance, &[wallet_id, "--at", time]).await;
        let closing = &until["closing"];
        match states.values().next() {
            Some(wallet) => {
                assert_eq!(wallet["balance"], closing["balance"], "{time}");
                let credits = decimal(&closing["plan_credit"]) + decimal(&closing["bundle_credit"]);
                assert_eq!(decimal(&summary["wallets"]["credits"]), credits, "{time}");
            }
            None => assert_eq!(closing["balance"], "0.0000000000", "{time}"),
        }
    }
    let (states, _) = replay(instance, &[wallet_id]).await;
    assert_eq!(states.values().next().unwrap()["balance"], whole["closing"]["balance"]);
}

async fn gone_and_refused(merchant: &Merchant, customer: &Customer, last: i64) {
    let (instance, partition) = (merchant.instance, merchant.partition().await);
    let (states, _) = replay(instance, &[&customer.id]).await;
    assert!(states.keys().all(|(kind, _)| kind != "customer"), "{states:?}");
    let output = run_replay(instance, &["--at", "2020-01-01", &customer.id]).await;
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && shown.contains("has no state before 2020-01-01"), "{shown}");
    let shown = String::from_utf8(run_replay(instance, &[&merchant.wallet_id]).await.stdout).unwrap();
    assert!(shown.contains(&format!("wallet {}\n", merchant.wallet_id)), "{shown}");
    assert!(shown.contains(&merchant.own_balance().await), "{shown}");
    let shown = String::from_utf8(run_replay(instance, &[]).await.stdout).unwrap();
    assert!(shown.contains("states now, folded from") && shown.contains("open holds"), "{shown}");

    let beyond = format!("{partition}:{}", last + 1_000);
    refused(instance, &["--at", &beyond], "has no position").await;
    refused(instance, &["--at", "12"], "a position names its partition").await;
    refused(instance, &["wal_01ARZ3NDEKTSV4RRFFQ69G5FAV"], "no event of what was read names wal_01ARZ").await;
    refused(instance, &["somebody"], "must be an id such as").await;
}
