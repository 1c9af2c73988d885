//! Every list of the API document, page by page: each item once and in one order, for any page length; cursors stay valid.
//! Lists without pages are named here.

use std::collections::BTreeSet;

use farthing_tests::client::Request;
use farthing_tests::document::{Document, Operation};
use farthing_tests::merchant::{Merchant, encoded};
use farthing_tests::provider::json as answer_json;
use farthing_tests::run;
use farthing_tests::wait::eventually;
use serde_json::{Value, json};

/// Items of each list.
const ITEMS: usize = 3;

/// Deliveries of three webhooks, each of the customers created after it.
const DELIVERIES: usize = 5 + 4 + 3;

/// Lists without pages: two are bare arrays by the specification, the others are short.
const WHOLE: [&str; 6] = [
    "list_active_subscriptions",
    "list_subscription_configs",
    "list_models",
    "list_payment_methods",
    "list_customer_payment_methods",
    "list_connection_payment_methods",
];

/// A merchant with three items in every list.
struct Owner {
    merchant: Merchant,
    webhook_id: String,
}

impl Owner {
    async fn new() -> Self {
        let merchant = Merchant::funded("10").await;
        let receiver = merchant.instance.provider.endpoint(|_| answer_json(200, &json!({})));
        let mut webhook_id = String::new();
        let bundle = json!({"name": "more", "cost": "1", "credit_amount": "1"});
        for number in 0..ITEMS {
            let made = async |path: &str, body: &Value| merchant.post(path, body).await.expect(201);
            let webhook = json!({"url": receiver.url, "events": ["customer.created"]});
            let webhook = made("/v1/webhooks", &webhook).await;
            webhook["webhook_id"].as_str().unwrap().clone_into(&mut webhook_id);
            let plan = json!({"name": "free", "period_amount": 0, "credit_bundles": [bundle]});
            let plan = made("/v1/plans", &plan).await;
            let customer = merchant.customer_called(&format!("customer {number}"), "0").await;
            made("/v1/subscriptions", &json!({"customer_id": customer.id, "plan_id": plan["plan_id"]})).await;
            made("/v1/spend_keys", &json!({"name": "a key"})).await;
            merchant.call_meter("1").await;
            merchant.credit_own("1").await;
            made("/v1/requests", &json!({"request_id": format!("report {number}"), "tokens": 1})).await;
            let session = json!({"checkout_mode": "onboarding", "origin_url": "https://app.example"});
            made("/v1/checkout_sessions", &session).await;
            if number > 0 {
                merchant.instance.operate(&["key", "issue", "--merchant", &merchant.id]).await;
            }
        }
        // The deliveries of the last webhook: customers created after it.
        for _ in 1..ITEMS {
            merchant.post("/v1/customers", &json!({})).await.expect(201);
        }
        let owner = Self { merchant, webhook_id };
        let deliveries = format!("/v1/webhooks/{}/deliveries", owner.webhook_id);
        // Reads count against the key's rate limit: they begin when the receiver has all.
        eventually("the receiver has everything", async || {
            (receiver.calls().len() >= DELIVERIES).then_some(())
        })
        .await;
        eventually("everything is delivered", async || {
            let deliveries = owner.merchant.get(&deliveries).await.expect(200);
            let deliveries = deliveries["data"].as_array().unwrap();
            (deliveries.len() >= ITEMS && deliveries.iter().all(|delivery| delivery["status"] == "delivered"))
                .then_some(())
        })
        .await;
        owner
    }

    /// The operation's target, ready for further parameters.
    fn target(&self, operation: &Operation) -> String {
        let target = operation.target(|segment| match segment {
            "webhooks" => self.webhook_id.clone(),
            _ => panic!("{}: no value for the parameter after {segment}/", operation.name()),
        });
        let wallet = operation.query.iter().any(|name| name == "wallet_id");
        let wallet = wallet.then(|| format!("wallet_id={}&", self.merchant.wallet_id));
        format!("{target}?{}", wallet.unwrap_or_default())
    }
}

/// An item without the parts that depend on the gateway: a checkout session's URL has the address the caller used.
fn wherever(mut item: Value) -> Value {
    for name in ["url", "checkout_session_token"] {
        item.as_object_mut().unwrap().remove(name);
    }
    item
}

/// The id of an item.
fn id(item: &Value) -> String {
    const IDS: [&str; 13] = [
        "webhook_event_id",
        "webhook_id",
        "checkout_session_id",
        "request_id",
        "spend_key_id",
        "secret_key_id",
        "subscription_id",
        "credit_bundle_id",
        "plan_id",
        "meter_id",
        "connection_id",
        "customer_id",
        "id",
    ];
    let found = IDS.iter().find_map(|name| item[*name].as_str());
    found.unwrap_or_else(|| panic!("{item} has no id")).to_owned()
}

/// When an item was created.
fn made_at(item: &Value) -> &str {
    let found = ["created_at", "started_at", "recorded_at"].iter().find_map(|name| item[*name].as_str());
    found.unwrap_or_else(|| panic!("{item} has no creation time"))
}

/// Whether the operation is a list with pages. The pages of a statement, oldest first, are tested in `audit`.
fn has_pages(operation: &Operation) -> bool {
    operation.query.iter().any(|name| name == "cursor") && operation.id != "get_ledger_statement"
}

async fn page(owner: &Owner, gateway: usize, target: &str) -> Value {
    let request = Request::new("GET", target).bearer(&owner.merchant.secret_key);
    let mut page = request.send(owner.merchant.instance.gateway(gateway)).await.unwrap().expect(200);
    let items = page["data"].as_array().unwrap().iter().cloned().map(wherever).collect();
    page["data"] = Value::Array(items);
    page
}

#[test]
fn every_list_gives_each_item_once_page_by_page_in_one_order() {
    run(async {
        let owner = Owner::new().await;
        let mut lists = 0;
        for operation in Document::served().await.standard() {
            if !has_pages(&operation) {
                continue;
            }
            lists += 1;
            let target = owner.target(&operation);
            let all = page(&owner, 0, &format!("{target}limit=100")).await;
            assert_eq!((&all["has_more"], all.get("next_cursor")), (&json!(false), None), "{target}");
            let items = all["data"].as_array().unwrap();
            assert!(items.len() >= ITEMS, "{target}: {} items", items.len());
            let order: Vec<_> = items.iter().map(id).collect();
            assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), order.len(), "{target}: one comes twice");
            let made: Vec<_> = items.iter().map(made_at).collect();
            assert!(made.is_sorted_by(|newer, older| newer >= older), "{target}: newest first: {made:?}");
            for limit in [1, 2, items.len() - 1, items.len()] {
                let (mut seen, mut cursor) = (Vec::new(), String::new());
                loop {
                    // Another gateway may serve the next page.
                    let page = page(&owner, seen.len(), &format!("{target}limit={limit}{cursor}")).await;
                    let data = page["data"].as_array().unwrap();
                    assert!((1..=limit).contains(&data.len()), "{target}: {page}");
                    seen.extend(data.clone());
                    if page["has_more"] == json!(false) {
                        assert_eq!(page.get("next_cursor"), None, "{target}");
                        break;
                    }
                    assert_eq!(
                        (data.len(), &page["next_cursor"]),
                        (limit, &json!(id(&seen[seen.len() - 1]))),
                        "{target}"
                    );
                    cursor = format!("&cursor={}", encoded(&id(&seen[seen.len() - 1])));
                }
                assert_eq!(seen, *items, "{target} by {limit}");
            }
            // Ten without a limit.
            let unasked = page(&owner, 1, &target).await;
            assert_eq!(unasked["data"].as_array().unwrap()[..], items[..items.len().min(10)], "{target}");
            // Nothing comes after the cursor of the last item.
            let beyond =
                page(&owner, 1, &format!("{target}cursor={}", encoded(&id(&items[items.len() - 1])))).await;
            assert_eq!((&beyond["data"], &beyond["has_more"]), (&json!([]), &json!(false)), "{target}");
        }
        assert!(lists >= 14, "{lists} lists");
    });
}

#[test]
fn every_list_operation_has_pages_or_is_named_here() {
    run(async {
        for operation in Document::served().await.standard() {
            let has_pages = has_pages(&operation);
            let comes_whole = WHOLE.contains(&operation.id.split("_at_").next().unwrap());
            let is_list = operation.id.starts_with("list_");
            assert_eq!(is_list, has_pages || comes_whole, "{}", operation.name());
            assert!(!(has_pages && comes_whole), "{}", operation.name());
        }
    });
}
