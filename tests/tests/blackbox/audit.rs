//! `farthing audit`: the trial balance adds up to zero at every moment, and statements add up and have every entry once.

use std::collections::BTreeMap;
use std::process::{Output, Stdio};

use farthing_tests::books::decimal;
use farthing_tests::instance::{Instance, program};
use farthing_tests::log::Logged;
use farthing_tests::merchant::{Customer, Merchant, encoded};
use farthing_tests::provider::json as answer_json;
use farthing_tests::recurring::{Means, PAYS, instant};
use farthing_tests::run;
use rust_decimal::Decimal;
use serde_json::{Value, json};

/// Runs `farthing audit` without `--json`.
async fn audit(instance: &Instance, arguments: &[&str]) -> Output {
    let mut command = tokio::process::Command::new(program());
    command.arg("audit").args(arguments).args(["--database-url", &instance.ready().database_url]);
    command.stdin(Stdio::null()).output().await.unwrap()
}

/// The text that a command prints, which must succeed.
pub(crate) async fn text(instance: &Instance, arguments: &[&str]) -> String {
    let output = audit(instance, arguments).await;
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Asserts that a command is refused with this exit code, says `why` and prints no result.
pub(crate) async fn refused(instance: &Instance, arguments: &[&str], code: i32, why: &str) {
    let output = audit(instance, arguments).await;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
    assert!(stderr.contains(why), "{arguments:?}: {stderr}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{arguments:?}");
}

/// A merchant alone on its instance. Its customer has a balance of 1, pays 10 for a plan with 2 of credit and 5 for a bundle
/// with 4, makes five calls at 1, loses the rest of the bundle at the end of the cycle, renews, and makes three more.
pub(crate) struct Story {
    pub(crate) instance: &'static Instance,
    merchant: Merchant,
    customer: Customer,
    pub(crate) wallet_id: String,
    pub(crate) events: Vec<Logged>,
    /// The accounts before it. The instance has credited wallets of its own.
    before: Accounts,
}

type Accounts = BTreeMap<String, Decimal>;

async fn trial_balance(instance: &Instance, more: &[&str]) -> Accounts {
    let arguments = [&["audit", "trial-balance"], more].concat();
    let report = instance.operate(&arguments).await;
    assert_eq!((&report["ok"], &report["sum"]), (&json!(true), &json!("0.0000000000")), "{report}");
    assert_eq!(report["findings"], json!([]), "{report}");
    let accounts = report["accounts"].as_object().unwrap();
    let accounts: Accounts =
        accounts.iter().map(|(name, balance)| (name.clone(), decimal(balance))).collect();
    assert_eq!(accounts.values().sum::<Decimal>(), Decimal::ZERO, "{report}");
    accounts
}

impl Story {
    pub(crate) async fn tell() -> Self {
        let instance = Instance::of_test(1).await;
        let before = trial_balance(instance, &[]).await;
        let merchant = Merchant::of(instance).await;
        merchant.credit_own("5").await;
        let plan = json!({
            "name": "Two", "period_amount": "10", "included_credit": "2", "rollover_type": "none",
            "bundle_rollover_type": "none",
            "credit_bundles": [{"name": "Four", "cost": "5", "credit_amount": "4"}],
        });
        let plan = merchant.post("/v1/plans", &plan).await.expect(201);
        let (customer, meter) = (merchant.customer("1").await, merchant.call_meter("1").await);
        let began = merchant.subscribe(&customer, &plan, Means::Card(PAYS)).await;
        merchant.buy(&customer, &plan["credit_bundles"][0], Means::Known).await;
        let endpoint = instance.provider.endpoint(|_| answer_json(200, &json!({})));
        let credential = merchant.billing(&customer, &meter);
        for _ in 0..5 {
            merchant.fetch(&credential, &endpoint.url).await.expect(200);
        }
        merchant.clock_to(instant(&began["cycle_end_at"])).await;
        merchant.comes_to(began["subscription_id"].as_str().unwrap(), "subscription.renewed", 1).await;
        for _ in 0..3 {
            merchant.fetch(&credential, &endpoint.url).await.expect(200);
        }
        merchant.nothing_is_held().await;
        let state = merchant.log.state("customer", &customer.id).await.unwrap();
        let wallet_id = state["wallet_id"].as_str().unwrap().to_owned();
        let events = merchant.events().await;
        Self { instance, merchant, customer, wallet_id, events, before }
    }

    fn only(&self, kind: &str) -> &Logged {
        let mut found = self.events.iter().filter(|event| event.kind == kind);
        let event = found.next().unwrap_or_else(|| panic!("{kind}"));
        assert!(found.next().is_none(), "{kind}");
        event
    }

    async fn trial_balance(&self, more: &[&str]) -> Accounts {
        trial_balance(self.instance, more).await
    }

    async fn statement(&self, more: &[&str]) -> Value {
        self.instance.operate(&[&["audit", "statement", "--wallet", &self.wallet_id], more].concat()).await
    }
}

#[test]
fn the_books_of_a_merchant_add_up_at_every_moment() {
    run(async {
        let story = Story::tell().await;
        trial_balances(&story).await;
        statements(&story).await;
        story_in_text(&story).await;
        over_rest(&story).await;
    });
}

async fn trial_balances(story: &Story) {
    let one = |text: &str| text.parse::<Decimal>().unwrap();
    let metered = story.events.iter().filter(|event| event.kind == "request.metered");
    let charges: Decimal = metered.map(|event| decimal(&event.body["service_charge"]["amount"])).sum();
    assert!(charges > Decimal::ZERO, "the merchant pays the service charge");
    let expected = [
        ("customer_balances", one("0")),
        ("plan_credit", one("0")),
        ("bundle_credit", one("0")),
        ("merchant_wallets", charges - one("5")),
        ("payments_received", one("25")),
        ("manual_credits", one("6")),
        // Granted 2 + 4 + 2, paid 10 + 5 + 10.
        ("plan_revenue", one("8") - one("25")),
        ("expired_credit", one("-1")),
        ("fee_revenue", one("-8")),
        ("service_charge", -charges),
        ("payments_clearing", one("0")),
        ("calls_clearing", one("0")),
    ];
    let now = story.trial_balance(&[]).await;
    for (account, moved) in expected {
        let before = story.before.get(account).copied().unwrap_or_default();
        assert_eq!(now[account] - before, moved, "{account}");
    }
    assert_eq!(now.len(), expected.len(), "{now:?}");

    let partition = story.merchant.partition().await;
    let last = story.events.last().unwrap().position;
    for event in story.events.iter().step_by(7) {
        story.trial_balance(&["--at", &format!("{partition}:{}", event.position)]).await;
    }
    let at_end = story.trial_balance(&["--at", &format!("{partition}:{last}")]).await;
    assert_eq!((at_end["fee_revenue"], at_end["expired_credit"]), (one("-8"), one("-1")));

    // Events at the instant itself do not count.
    let ended = story.only("subscription.cycle_ended").occurred_at;
    let before = story.trial_balance(&["--at", &ended.to_rfc3339()]).await;
    assert_eq!((before.get("expired_credit"), before["bundle_credit"]), (None, one("-1")));
    let after = (ended + chrono::TimeDelta::milliseconds(1)).to_rfc3339();
    let after = story.trial_balance(&["--at", &after]).await;
    assert_eq!((after["expired_credit"], after["bundle_credit"]), (one("-1"), one("0")));
    assert_eq!(story.trial_balance(&["--at", "2020-01-01"]).await, BTreeMap::new());

    let beyond = format!("{partition}:{}", last + 1_000);
    let why = format!("partition {partition} has no position {} yet", last + 1_000);
    refused(story.instance, &["trial-balance", "--at", &beyond], 2, &why).await;
    refused(story.instance, &["trial-balance", "--at", "999:1"], 2, "the log has no partition 999").await;
    refused(story.instance, &["trial-balance", "--at", "12"], 2, "a position names its partition").await;
    refused(story.instance, &["trial-balance", "--csv", "--json"], 2, "cannot be used with").await;
}

/// The parts of funds: balance, plan credit, bundle credit.
fn parts(funds: &Value) -> [Decimal; 3] {
    ["balance", "plan_credit", "bundle_credit"].map(|name| decimal(&funds[name]))
}

async fn statements(story: &Story) {
    let whole = story.statement(&[]).await;
    assert_eq!((&whole["ok"], &whole["wallet_id"]), (&json!(true), &json!(story.wallet_id)), "{whole}");
    let entries = whole["entries"].as_array().unwrap();
    let kinds: Vec<_> = entries.iter().map(|entry| entry["kind"].as_str().unwrap()).collect();
    let calls = |count| vec!["debit"; count];
    let expected = [vec!["credit", "grant", "bundle_grant"], calls(5), vec!["expiry", "grant"], calls(3)];
    assert_eq!(kinds, expected.concat());
    assert_eq!(whole["count"], json!(entries.len()));
    let mut funds = parts(&whole["opening"]);
    assert_eq!(funds, [Decimal::ZERO; 3]);
    for entry in entries {
        let change = parts(&entry["change"]);
        funds = [0, 1, 2].map(|part| funds[part] + change[part]);
        assert_eq!(parts(&entry["after"]), funds, "{entry}");
        let logged = story.events.iter().find(|event| event.position == entry["position"]).unwrap();
        assert_eq!(instant(&entry["occurred_at"]), logged.occurred_at, "{entry}");
    }
    assert_eq!(parts(&whole["closing"]), funds);
    assert_eq!(funds[0].to_string(), story.merchant.balance(&story.customer).await);

    // Two periods that meet have every entry once.
    let cut = story.only("subscription.cycle_ended").occurred_at.to_rfc3339();
    let (first, second) = (story.statement(&["--to", &cut]).await, story.statement(&["--from", &cut]).await);
    assert_eq!((&first["closing"], first["count"].as_u64()), (&second["opening"], Some(8)), "{first}");
    assert_eq!(parts(&first["closing"]).map(|part| part.normalize().to_string()), ["1", "0", "1"]);
    let joined = [first["entries"].as_array().unwrap().as_slice(), second["entries"].as_array().unwrap()];
    assert_eq!(&joined.concat(), entries);
    let none = story.statement(&["--from", "2020-01-01", "--to", "2020-01-02"]).await;
    assert_eq!((&none["entries"], &none["opening"]), (&json!([]), &none["closing"]), "{none}");

    let own = story.instance.operate(&["audit", "statement", "--wallet", &story.merchant.wallet_id]).await;
    assert_eq!(own["closing"]["balance"], json!(story.merchant.own_balance().await));
    let nobody = "wal_01ARZ3NDEKTSV4RRFFQ69G5FAV";
    let why = format!("no event of the log names the wallet {nobody}");
    refused(story.instance, &["statement", "--wallet", nobody], 2, &why).await;
    refused(story.instance, &["statement", "--wallet", "x"], 2, "is not an id").await;
    let period = ["--from", "2026-12-01", "--to", "2026-11-01"];
    let backwards = [["statement", "--wallet", story.wallet_id.as_str()].as_slice(), &period].concat();
    refused(story.instance, &backwards, 2, "--to is not after --from").await;
    let never = ["statement", "--wallet", nobody, "--from", "yesterday"];
    refused(story.instance, &never, 2, "must be a date").await;
}

/// The same as text and as comma-separated values.
async fn story_in_text(story: &Story) {
    let rows = text(story.instance, &["trial-balance", "--csv"]).await;
    let rows: Vec<Vec<_>> = rows.lines().map(|row| row.split(',').collect()).collect();
    assert_eq!(rows[0], ["account", "debit", "credit"]);
    let total = rows.last().unwrap();
    assert_eq!((total[0], total[1]), ("total", total[2]));
    let sum = |column: usize| -> Decimal {
        let amounts = rows[1..rows.len() - 1].iter().filter(|row| !row[column].is_empty());
        amounts.map(|row| row[column].parse::<Decimal>().unwrap()).sum()
    };
    assert_eq!((sum(1), sum(2)), (total[1].parse().unwrap(), total[2].parse().unwrap()));
    let shown = text(story.instance, &["trial-balance"]).await;
    assert!(shown.contains("fee_revenue") && shown.contains("8.0000000000"), "{shown}");

    let wallet = story.wallet_id.as_str();
    let rows = text(story.instance, &["statement", "--wallet", wallet, "--csv"]).await;
    let rows: Vec<Vec<_>> = rows.lines().map(|row| row.split(',').collect()).collect();
    let kinds: Vec<_> = rows.iter().map(|row| row[0]).collect();
    assert_eq!((kinds[0], kinds[1], *kinds.last().unwrap()), ("kind", "opening", "closing"));
    assert_eq!(rows.len(), 13 + 3, "{rows:?}");
    let zero = "0.0000000000";
    assert_eq!(rows.last().unwrap()[9..], [zero, zero, zero]);
    let shown = text(story.instance, &["statement", "--wallet", wallet]).await;
    let lines: Vec<_> = shown.lines().collect();
    assert_eq!(lines.len(), 13 + 4, "{shown}");
    assert!(lines[1].contains("opening") && lines[15].contains("closing"), "{shown}");
    let closing = rows.last().unwrap();
    let place = format!("partition {}: read to position {}, hash {}", closing[2], closing[3], closing[4]);
    assert_eq!((lines[16], closing[4].len()), (place.as_str(), 64));
}

/// The entry of a statement as REST shows it.
fn as_rest(entry: &Value) -> Value {
    json!({
        "id": entry["position"].to_string(), "wallet_id": entry["wallet_id"], "customer_id": entry["customer_id"],
        "kind": entry["kind"], "change": entry["change"], "after": entry["after"],
    })
}

/// The members of an entry that the log's statement has, too.
fn of_rest(entry: &Value) -> Value {
    let names = ["id", "wallet_id", "customer_id", "kind", "change", "after"];
    names
        .map(|name| (name.to_owned(), entry[name].clone()))
        .into_iter()
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// The read model shows what the log says, in pages.
async fn over_rest(story: &Story) {
    let (merchant, wallet) = (&story.merchant, story.wallet_id.as_str());
    let log = story.statement(&[]).await;
    let expected: Vec<_> = log["entries"].as_array().unwrap().iter().map(as_rest).collect();
    let newest_first = merchant.pages(&format!("/v1/ledger/entries?wallet_id={wallet}"), 4).await;
    let shown: Vec<_> = newest_first.iter().rev().map(of_rest).collect();
    assert_eq!(shown, expected);
    assert_eq!((&newest_first[12]["reason"], &newest_first[0]["reason"]), (&json!("a test"), &Value::Null));
    assert!(newest_first[0]["reference"].as_str().unwrap().starts_with("req_"), "{:?}", newest_first[0]);

    let cut = story.only("subscription.cycle_ended").occurred_at;
    let cut = encoded(&cut.to_rfc3339_opts(chrono::SecondsFormat::Millis, true));
    let (mut entries, mut opening) = (Vec::new(), log["opening"].clone());
    for period in [format!("start=2020-01-01T00:00:00Z&end={cut}"), format!("start={cut}")] {
        let mut cursor = String::new();
        let closing = loop {
            let target = format!("/v1/ledger/statement?wallet_id={wallet}&{period}&limit=3{cursor}");
            let page = merchant.get(&target).await.expect(200);
            assert_eq!(page["opening"], opening, "{page}");
            entries.extend(page["entries"].as_array().unwrap().iter().map(of_rest));
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break page["closing"].clone(),
            }
        };
        assert_eq!(entries.last().unwrap()["after"], closing);
        opening = closing;
    }
    assert_eq!((&entries, &opening), (&expected, &log["closing"]));
    let empty = "start=2020-01-01T00:00:00Z&end=2020-01-02T00:00:00Z";
    let empty = merchant.get(&format!("/v1/ledger/statement?wallet_id={wallet}&{empty}")).await.expect(200);
    assert_eq!((&empty["entries"], &empty["opening"]), (&json!([]), &log["opening"]), "{empty}");

    let target = |parameters: &str| format!("/v1/ledger/statement?wallet_id={wallet}&{parameters}");
    let backwards = merchant.get(&target("start=2026-01-02T00:00:00Z&end=2026-01-01T00:00:00Z")).await;
    assert_eq!(backwards.refused(400, "validation_error")["issues"][0]["path"], json!(["end"]));
    let ahead = merchant.get(&target("start=2999-01-01T00:00:00Z")).await;
    assert_eq!(ahead.refused(400, "validation_error")["issues"][0]["path"], json!(["start"]));
    let start = "start=2020-01-01T00:00:00Z";
    merchant.get(&target(&format!("{start}&cursor=999999"))).await.refused(400, "cursor_invalid");
    merchant.get(&format!("/v1/ledger/statement?{start}")).await.refused(400, "validation_error");
    // The cursor of another period, whose entries do not add up with this one's funds.
    let first = merchant.get(&target(&format!("{start}&limit=1"))).await.expect(200);
    let cursor = first["next_cursor"].as_str().unwrap();
    for other in [format!("start={cut}"), "start=2020-01-01T00:00:00Z&end=2020-01-02T00:00:00Z".to_owned()] {
        merchant.get(&target(&format!("{other}&cursor={cursor}"))).await.refused(400, "cursor_invalid");
    }
    // Another merchant's wallet.
    let other = Merchant::of(story.instance).await;
    for path in [format!("entries?wallet_id={wallet}"), format!("statement?wallet_id={wallet}&{start}")] {
        other.get(&format!("/v1/ledger/{path}")).await.refused(404, "wallet_not_found");
    }
    let report = story.instance.operate(&["projections", "verify", "entries"]).await;
    assert_eq!(report["differences"], 0, "{report}");
}

#[test]
fn credit_that_ends_with_its_subscription_is_an_entry_of_statement_rest_and_export() {
    run(async {
        let merchant = Merchant::new().await;
        let customer = merchant.customer("2").await;
        let plan = json!({"name": "free", "period_amount": 0, "included_credit": "1"});
        let plan = merchant.post("/v1/plans", &plan).await.expect(201);
        let subscription = json!({"customer_id": customer.id, "plan_id": plan["plan_id"]});
        merchant.post("/v1/subscriptions", &subscription).await.expect(201);
        let state = merchant.log.state("customer", &customer.id).await.unwrap();
        let wallet = state["wallet_id"].as_str().unwrap();
        merchant.delete(&format!("/v1/customers/{}", customer.id)).await.expect(200);

        let instance = merchant.instance;
        let statement = instance.operate(&["audit", "statement", "--wallet", wallet]).await;
        let entries = statement["entries"].as_array().unwrap();
        let ended = entries.iter().find(|entry| entry["kind"] == "cancellation").expect("an entry");
        let change = json!({"balance": "0.0000000000", "plan_credit": "-1.0000000000", "bundle_credit": "0.0000000000"});
        assert_eq!((&ended["change"], &ended["after"]["plan_credit"]), (&change, &json!("0.0000000000")));
        let shown = merchant.get(&format!("/v1/ledger/entries?wallet_id={wallet}")).await.expect(200);
        let shown: Vec<_> = shown["data"].as_array().unwrap().iter().rev().map(of_rest).collect();
        assert_eq!(shown, entries.iter().map(as_rest).collect::<Vec<_>>());
        let out = instance.file("cancellation").into_os_string().into_string().unwrap();
        instance.operate(&["export", "--format", "ndjson", "--out", &out, "--merchant", &merchant.id]).await;
        let lines = std::fs::read_to_string(format!("{out}/entries.ndjson")).unwrap();
        assert_eq!(lines.matches(r#""kind":"cancellation""#).count(), 1, "{lines}");
    });
}
