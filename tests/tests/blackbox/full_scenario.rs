//! A complete scenario in one test: customer, checkout, plan, forwarded calls, used-up credit, 402, bundle, renewals with
//! rollover, usage, downgrade, cancellation. Every figure is computed by hand from the specification: the service charge is
//! 0.019 of a fee and paid by the wallet.

use chrono::{FixedOffset, TimeDelta};
use farthing_tests::books::{Books, decimal};
use farthing_tests::client::Response;
use farthing_tests::merchant::{Customer, Merchant, Meter};
use farthing_tests::provider::{Endpoint, json as answer_json};
use farthing_tests::recurring::{Means, PAYS, instant};
use farthing_tests::run;
use farthing_tests::wait::eventually;
use rust_decimal::Decimal;
use serde_json::{Value, json};

use crate::usage_report;

/// The sources of money: plan credit, bundle credit, balance.
type Left = [&'static str; 3];

/// The sources of a debit, in order.
#[derive(Debug, Clone, Copy)]
enum From {
    Plan(&'static str),
    Bundle(&'static str),
    Balance(&'static str),
}

/// The price of a call for the wallet: its fee and the service charge on it.
#[derive(Debug, Clone, Copy)]
struct Price(&'static str, &'static str);

/// A call on the meter `calls`: 1.25 and 0.019 of it.
const A_CALL: Price = Price("1.25", "0.02375");

/// A call on the meter `outside`: 0.01 and 0.019 of it.
const OUTSIDE: Price = Price("0.01", "0.00019");

struct Walk {
    merchant: Merchant,
    customer: Customer,
    subscription_id: String,
    /// The only bundle that is bought.
    bundle_id: String,
    calls: Meter,
    tokens: Meter,
    outside: Meter,
    endpoint: Endpoint,
    receiver: Endpoint,
    /// The expected deliveries in order: the event, and its id or balance.
    expected: Vec<(&'static str, String)>,
}

/// An amount with ten fractional digits, as the API writes it.
fn ten(amount: &str) -> String {
    format!("{:.10}", amount.parse::<Decimal>().unwrap())
}

fn sum(amounts: &[&str]) -> String {
    format!("{:.10}", amounts.iter().map(|amount| amount.parse::<Decimal>().unwrap()).sum::<Decimal>())
}

impl Walk {
    async fn begin() -> Self {
        let merchant = Merchant::new().await;
        let receiver = merchant.instance.provider.endpoint(|_| answer_json(200, &json!({})));
        merchant.post("/v1/webhooks", &json!({"url": receiver.url})).await.expect(201);
        let customer = merchant.customer_called("ada", "0.5").await;
        let meter = async |name: &str, tier_type: &str, tiers: Value| {
            let body = json!({"name": name, "rate_type": "fixed", "tier_type": tier_type, "tiers": tiers});
            merchant.meter(body).await
        };
        let calls = meter("calls", "requests", json!([{"start": 0, "rate": "1.25"}])).await;
        let tiers = json!([{"start": 0, "rate": "2.4"}, {"start": 250_000, "rate": "1.2"}]);
        let tokens = meter("tokens", "tokens_1m", tiers).await;
        let outside = meter("outside", "requests", json!([{"start": 0, "rate": "0.01"}])).await;
        let endpoint = merchant.instance.provider.endpoint(|call| {
            let tokens: u64 = call.target().split_once("tokens=").unwrap().1.parse().unwrap();
            answer_json(200, &json!({"usage": {"input_tokens": tokens}}))
        });
        let expected = vec![("customer.created", String::new()), ("balance", ten("0.5"))];
        let (subscription_id, bundle_id) = (String::new(), String::new());
        Self {
            merchant,
            customer,
            subscription_id,
            bundle_id,
            calls,
            tokens,
            outside,
            endpoint,
            receiver,
            expected,
        }
    }

    async fn try_call(&self, meter: &Meter, tokens: u64) -> Response {
        let url = format!("{}?tokens={tokens}", self.endpoint.url);
        self.merchant.fetch(&self.merchant.billing(&self.customer, meter), &url).await
    }

    /// Makes a call that costs `price`, and asserts the sources of the debit and the remaining amounts.
    async fn call(&mut self, meter: &Meter, tokens: u64, price: Price, from: &[From], left: Left) {
        let called = self.try_call(meter, tokens).await;
        called.expect(200);
        let id = called.request_id();
        let Price(fee, service_charge) = price;
        let total = sum(&[fee, service_charge]);
        let shown = self.merchant.get(&format!("/v1/requests/{id}")).await.expect(200);
        for (path, wanted) in [
            ("/status", json!("completed")),
            ("/customer_id", json!(self.customer.id)),
            ("/connection_id", json!(self.customer.id)),
            ("/meter_id", json!(meter.id)),
            ("/product_id", json!(meter.id)),
            ("/model_usage/total_tokens", json!(tokens)),
            ("/fee/amount", json!(ten(fee))),
            ("/charge/amount", json!(ten(fee))),
            ("/service_charge/amount", json!(ten(service_charge))),
            ("/service_charge/payer", json!("wallet")),
            ("/cost", json!(ten("0"))),
            ("/total_request_cost", json!(total)),
            ("/total_wallet_cost", json!(total)),
            ("/total_merchant_cost", json!(ten("0"))),
        ] {
            assert_eq!(shown.pointer(path), Some(&wanted), "{path} of {shown}");
        }
        let debit = self.merchant.of_kind("wallet.debited").await.pop().unwrap();
        assert_eq!(debit.text("request_id"), id);
        let sources: Vec<_> = from
            .iter()
            .map(|from| match from {
                From::Plan(part) => {
                    json!({"source": {"plan_credit": self.subscription_id}, "amount": ten(part)})
                }
                From::Bundle(part) => {
                    json!({"source": {"bundle_credit": self.bundle_id}, "amount": ten(part)})
                }
                From::Balance(part) => json!({"source": "balance", "amount": ten(part)}),
            })
            .collect();
        assert_eq!(debit.body["sources"], json!(sources), "the order of spending");
        self.has(left).await;
        self.expected.extend([("request.completed", id), ("balance", ten(left[2]))]);
    }

    /// Makes a call that the wallet does not cover: it opens no request and changes nothing.
    async fn refused(&self, meter: &Meter, left: Left) {
        let before = self.merchant.get("/v1/requests?limit=1").await.expect(200);
        let calls = self.endpoint.calls().len();
        self.try_call(meter, 7).await.refused(402, "insufficient_balance");
        assert_eq!(self.endpoint.calls().len(), calls, "the provider is not called");
        assert_eq!(self.merchant.get("/v1/requests?limit=1").await.expect(200), before);
        self.has(left).await;
    }

    async fn subscription(&self) -> Value {
        self.merchant.get(&format!("/v1/subscriptions/{}", self.subscription_id)).await.expect(200)
    }

    /// Asserts the remaining amounts wherever they are shown.
    async fn has(&self, left: Left) {
        let [plan, bundle, balance] = left.map(ten);
        let subscription = self.subscription().await;
        let credits = json!({
            "total_remaining": sum(&left[..2]), "cycle_remaining": plan, "bundle_remaining": bundle,
        });
        assert_eq!(subscription["credits"], credits, "{subscription}");
        let connection = self.merchant.get("/v1/connections/ada").await.expect(200);
        assert_eq!(connection["wallet"]["balance"], balance, "{connection}");
        assert_eq!(connection["has_credit_balance"], decimal(&json!(sum(&left[..2]))) > Decimal::ZERO);
        let older = self.merchant.get("/v1/active-subscriptions").await.expect(200);
        assert_eq!(older[0]["wallet"]["active_balance"], sum(&left), "{older}");
        assert_eq!(older[0]["status"], subscription["status"]);
        let wallet_id = subscription["wallet_id"].as_str().unwrap();
        let state = self.merchant.log.state("wallet", wallet_id).await.unwrap();
        let in_bundles: Decimal = state["bundles"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|credit| decimal(&credit["remaining"]))
            .sum();
        assert_eq!((&state["balance"], &state["held"]), (&json!(balance), &json!(ten("0"))));
        assert_eq!(
            (decimal(&state["plan"]["remaining"]), in_bundles),
            (decimal(&json!(plan)), decimal(&json!(bundle)))
        );
    }

    /// Asserts the subscription's plan and cycle, which is the usage period.
    async fn is_on(&self, plan: &Value, cycle: (&Value, &Value)) -> Value {
        let subscription = self.subscription().await;
        assert_eq!(self.merchant.subscription_of(&self.customer).await, subscription);
        assert_eq!((&subscription["cycle_start_at"], &subscription["cycle_end_at"]), cycle);
        let plan_id = &plan["plan_id"];
        for name in ["plan_id", "subscription_config_id"] {
            assert_eq!((&subscription[name], &subscription["plan"][name]), (plan_id, plan_id));
        }
        for name in ["name", "period_amount", "included_credit", "rollover_type", "bundle_rollover_type"] {
            assert_eq!(subscription["plan"][name], plan[name], "{name}");
        }
        let customer = self.merchant.get("/v1/customers/ada").await.expect(200);
        let short = json!({
            "subscription_id": self.subscription_id, "active_subscription_id": self.subscription_id,
            "plan_id": plan_id, "subscription_config_id": plan_id, "name": plan["name"],
        });
        assert_eq!(customer["subscription"], short);
        let connection = self.merchant.get("/v1/connections/ada").await.expect(200);
        assert_eq!((&connection["previous_usage_reset"], &connection["next_usage_reset"]), cycle);
        let older = self.merchant.get("/v1/active-subscriptions").await.expect(200);
        assert_eq!(older.as_array().unwrap().len(), 1, "{older}");
        assert_eq!(
            (&older[0]["active_subscription_id"], &older[0]["subscription_config"]["subscription_config_id"]),
            (&json!(self.subscription_id), plan_id)
        );
        assert_eq!(older[0]["subscription_config"]["period_amount"], plan["period_amount"]);
        subscription
    }

    /// Advances the clock to the end of the cycle and waits for the `number`th renewal.
    async fn renews(&self, number: usize, plan: &Value, left: Left) -> Value {
        let before = self.subscription().await;
        self.merchant.clock_to(instant(&before["cycle_end_at"])).await;
        self.merchant.comes_to(&self.subscription_id, "subscription.renewed", number).await;
        let after = self.subscription().await;
        let next = self.is_on(plan, (&before["cycle_end_at"], &after["cycle_end_at"])).await;
        let days = (instant(&next["cycle_end_at"]) - instant(&next["cycle_start_at"])).num_days();
        assert!((28..=31).contains(&days), "a month: {next}");
        assert_eq!(next["pending_change"], Value::Null);
        self.has(left).await;
        next
    }

    /// Asserts that `GET /usage` has these values and equals the sum of the listed requests.
    async fn usage(&self, totals: Value) {
        let created = self.merchant.get("/v1/customers/ada").await.expect(200)["created_at"].clone();
        let start =
            (instant(&created) - TimeDelta::days(1)).with_timezone(&FixedOffset::east_opt(20_700).unwrap());
        let end = instant(&created) + TimeDelta::days(300);
        let of_tokens = format!("&meter_id={}", self.tokens.slug);
        for filter in ["", "&customer_id=ada", &of_tokens] {
            usage_report::check(&self.merchant, start, end, filter).await;
        }
        let (start, end) = (start.to_utc().to_rfc3339(), end.to_rfc3339());
        let path = format!("/v1/usage?start={}&end={}", start.replace('+', "%2B"), end.replace('+', "%2B"));
        let shown = self.merchant.get(&path).await.expect(200);
        assert_eq!(shown["totals"], totals);
    }

    /// Asserts that the webhook received everything in order.
    async fn received_everything(&self) {
        let received = eventually("everything is delivered", async || {
            let received: Vec<Value> = self
                .receiver
                .calls()
                .iter()
                .map(|call| serde_json::from_slice(&call.body).unwrap())
                .collect();
            (received.len() >= self.expected.len()).then_some(received)
        })
        .await;
        let mut last = String::new();
        let mut delivered = Vec::new();
        for delivery in received {
            let data = &delivery["data"];
            assert_eq!(data["customer"]["customer_id"], self.customer.id.as_str(), "{delivery}");
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            // A delivery may be repeated under its own id.
            if std::mem::replace(&mut last, text(&delivery["webhook_event_id"]))
                == text(&delivery["webhook_event_id"])
            {
                continue;
            }
            delivered.push(match delivery["event"].as_str().unwrap() {
                "customer.created" => ("customer.created", String::new()),
                "customer.wallet.balance.updated" => ("balance", text(&data["wallet"]["balance"])),
                "request.completed" => ("request.completed", text(&data["request"]["request_id"])),
                "subscription.started" => ("subscription.started", data["subscription"].to_string()),
                "subscription.cancelled" => ("subscription.cancelled", data["subscription"].to_string()),
                other => panic!("{other}"),
            });
        }
        assert_eq!(delivered, self.expected);
    }

    fn subscription_event(&self, plan: &Value, status: &str) -> String {
        json!({"subscription_id": self.subscription_id, "plan_id": plan["plan_id"], "status": status})
            .to_string()
    }
}

/// The expensive plan, whose credit is for two meters and rolls over, with a bundle; and the cheap one, whose credit is for
/// all meters.
async fn plans(walk: &Walk) -> (Value, Value) {
    let pro = json!({
        "name": "Pro", "period_amount": "10", "included_credit": "4", "billing_interval": "month",
        "rollover_type": "full", "bundle_rollover_type": "full", "meter_ids": [walk.calls.id, walk.tokens.id],
        "credit_bundles": [{"name": "Six", "cost": "5", "credit_amount": "6"}],
    });
    let basic = json!({"name": "Basic", "period_amount": 2, "rollover_type": "none"});
    (
        walk.merchant.post("/v1/plans", &pro).await.expect(201),
        walk.merchant.post("/v1/plans", &basic).await.expect(201),
    )
}

#[test]
fn a_subscription_from_checkout_to_cancellation() {
    run(async {
        let mut walk = Walk::begin().await;
        let (calls, tokens, outside) = (walk.calls.clone(), walk.tokens.clone(), walk.outside.clone());
        let (pro, basic) = plans(&walk).await;

        // Checkout: the plan is paid on its page, and its credit is added.
        let made = walk.merchant.subscribe(&walk.customer, &pro, Means::Card(PAYS)).await;
        walk.subscription_id = made["subscription_id"].as_str().unwrap().to_owned();
        walk.expected.push(("subscription.started", walk.subscription_event(&pro, "active")));
        walk.is_on(&pro, (&made["started_at"], &made["cycle_end_at"])).await;
        assert_eq!((&made["status"], &made["pending_change"]), (&json!("active"), &Value::Null));
        walk.has(["4", "0", "0.5"]).await;

        // Calls: the plan's credit pays on its meters, the balance on others; then one call takes from both.
        walk.call(&outside, 5, OUTSIDE, &[From::Balance("0.01019")], ["4", "0", "0.48981"]).await;
        let from = [From::Plan("1.27375")];
        walk.call(&calls, 7, A_CALL, &from, ["2.72625", "0", "0.48981"]).await;
        walk.call(&calls, 7, A_CALL, &from, ["1.4525", "0", "0.48981"]).await;
        walk.call(&calls, 7, A_CALL, &from, ["0.17875", "0", "0.48981"]).await;
        walk.refused(&calls, ["0.17875", "0", "0.48981"]).await;
        // 250,000 tokens at 2.4 per million; further ones are in the next tier, at 1.2.
        let from = [From::Plan("0.17875"), From::Balance("0.43265")];
        walk.call(&tokens, 250_000, Price("0.6", "0.0114"), &from, ["0", "0", "0.05716"]).await;
        let (price, from) = (Price("0.014814", "0.000281466"), [From::Balance("0.015095466")]);
        walk.call(&tokens, 12_345, price, &from, ["0", "0", "0.042064534"]).await;
        walk.refused(&calls, ["0", "0", "0.042064534"]).await;

        // A bundle, paid with the stored card: its credit is for any call.
        walk.merchant.buy(&walk.customer, &pro["credit_bundles"][0], Means::Known).await;
        let bought = walk.merchant.of_kind("bundle.purchased").await;
        walk.bundle_id = bought[0].text("payment_id").to_owned();
        walk.has(["0", "6", "0.042064534"]).await;
        walk.call(&calls, 7, A_CALL, &[From::Bundle("1.27375")], ["0", "4.72625", "0.042064534"]).await;
        walk.call(&outside, 5, OUTSIDE, &[From::Bundle("0.01019")], ["0", "4.71606", "0.042064534"]).await;

        // The next cycle: new credit, which is drawn before the bundle's, and the tiers start again.
        walk.renews(1, &pro, ["4", "4.71606", "0.042064534"]).await;
        let (price, from) = (Price("0.029628", "0.000562932"), [From::Plan("0.030190932")]);
        walk.call(&tokens, 12_345, price, &from, ["3.969809068", "4.71606", "0.042064534"]).await;
        let from = [From::Plan("1.27375")];
        walk.call(&calls, 7, A_CALL, &from, ["2.696059068", "4.71606", "0.042064534"]).await;
        // The cycle after it: the remaining credit rolls over.
        let third = walk.renews(2, &pro, ["6.696059068", "4.71606", "0.042064534"]).await;

        // A downgrade at the end of the cycle; nothing is paid before.
        let asked = walk.merchant.subscribe(&walk.customer, &basic, Means::None).await;
        let pending = json!({
            "type": "downgrade", "effective_at": third["cycle_end_at"], "plan_id": basic["plan_id"],
            "subscription_config_id": basic["plan_id"],
        });
        assert_eq!(asked["pending_change"], pending);
        assert_eq!((&asked["plan_id"], &asked["cycle_end_at"]), (&pro["plan_id"], &third["cycle_end_at"]));
        assert_eq!(walk.merchant.charges().await.len(), 4);
        walk.call(&calls, 7, A_CALL, &from, ["5.422309068", "4.71606", "0.042064534"]).await;
        walk.renews(3, &basic, ["7.422309068", "4.71606", "0.042064534"]).await;
        // Its credit is for all meters.
        let from = [From::Plan("0.01019")];
        walk.call(&outside, 5, OUTSIDE, &from, ["7.412119068", "4.71606", "0.042064534"]).await;

        // Cancellation at the end of the cycle: the plan's credit expires, the rest is kept and drawn.
        let path = format!("/v1/subscriptions/{}", walk.subscription_id);
        let ending = walk.merchant.delete(&path).await.expect(200)["subscription"].clone();
        let pending = json!({"type": "cancellation", "effective_at": ending["cycle_end_at"]});
        assert_eq!((&ending["pending_change"], &ending["status"]), (&pending, &json!("active")));
        walk.has(["7.412119068", "4.71606", "0.042064534"]).await;
        walk.merchant.clock_to(instant(&ending["cycle_end_at"])).await;
        walk.merchant.comes_to(&walk.subscription_id, "subscription.cancelled", 1).await;
        walk.expected.push(("subscription.cancelled", walk.subscription_event(&basic, "cancelled")));
        let ended = walk.subscription().await;
        assert_eq!((&ended["status"], &ended["pending_change"]), (&json!("cancelled"), &Value::Null));
        assert!(instant(&ended["cancelled_at"]) >= instant(&ending["cycle_end_at"]), "{ended}");
        assert_eq!(walk.merchant.subscription_of(&walk.customer).await, Value::Null);
        assert_eq!(walk.merchant.get("/v1/customers/ada").await.expect(200)["subscription"], Value::Null);
        walk.has(["0", "4.71606", "0.042064534"]).await;
        let from = [From::Bundle("1.27375")];
        walk.call(&calls, 7, A_CALL, &from, ["0", "3.44231", "0.042064534"]).await;
        walk.call(&calls, 7, A_CALL, &from, ["0", "2.16856", "0.042064534"]).await;
        walk.call(&calls, 7, A_CALL, &from, ["0", "0.89481", "0.042064534"]).await;
        walk.refused(&calls, ["0", "0.89481", "0.042064534"]).await;
        walk.call(&outside, 5, OUTSIDE, &[From::Bundle("0.01019")], ["0", "0.88462", "0.042064534"]).await;

        // 9 calls of 1.25, 4 of 0.01, and 0.6 + 0.014814 + 0.029628 for tokens.
        let fees = ten("11.934442");
        let total = ten("12.161196398");
        walk.usage(json!({
            "total_requests": 16, "total_usage_tokens": 274_773, "total_cost": ten("0"), "total_usage_cost": ten("0"),
            "total_charge": fees, "total_fee_amount": fees, "total_service_charge_amount": ten("0.226754398"),
            "total_request_cost": total, "total_wallet_cost": total, "total_merchant_cost": ten("0"),
        }))
        .await;
        let charged = ["10", "5", "10", "10", "2"].map(|amount| (amount.parse::<Decimal>().unwrap(), None));
        assert_eq!(walk.merchant.charges().await, charged);
        let books = Books::of(&walk.merchant.events().await);
        let account = books.of_customer(&walk.customer.id);
        let credit: Decimal = account.credit.values().sum();
        assert_eq!((account.balance(), credit), ("0.042064534".parse().unwrap(), "0.88462".parse().unwrap()));
        walk.received_everything().await;
        walk.merchant.nothing_is_held().await;
    });
}
