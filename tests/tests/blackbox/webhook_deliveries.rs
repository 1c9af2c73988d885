//! Webhook deliveries: signed, in order per customer, retried until the receiver accepts them, and never sent to a forbidden
//! address. The receivers are servers of the tests; the published library verifies the signatures.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use farthing_tests::client::Request;
use farthing_tests::instance::Instance;
use farthing_tests::merchant::{Customer, Merchant};
use farthing_tests::provider::{Call, Endpoint, Gate, Step, json, whole};
use farthing_tests::run;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::eventually;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

/// A webhook with a receiver.
struct Hook {
    id: String,
    secret: String,
    receiver: Endpoint,
}

impl Hook {
    /// A webhook of `merchant` whose receiver responds with `respond`.
    async fn new(
        merchant: &Merchant,
        events: Value,
        respond: impl Fn(&Call) -> Vec<Step> + Send + Sync + 'static,
    ) -> Self {
        let receiver = merchant.instance.provider.endpoint(respond);
        let body = json!({"url": receiver.url, "events": events});
        let made = merchant.post("/v1/webhooks", &body).await.expect(201);
        let text = |name: &str| made[name].as_str().unwrap().to_owned();
        Self { id: text("webhook_id"), secret: text("webhook_secret"), receiver }
    }

    /// The received deliveries, in order.
    fn received(&self) -> Vec<Value> {
        self.receiver.calls().iter().map(|call| serde_json::from_slice(&call.body).unwrap()).collect()
    }

    /// Waits for a delivery of `event` and returns the first.
    async fn received_event(&self, event: &str) -> Value {
        eventually(event, async || self.received().into_iter().find(|delivery| delivery["event"] == event))
            .await
    }

    /// Its deliveries as the API shows them, newest first.
    async fn deliveries(&self, merchant: &Merchant) -> Vec<Value> {
        merchant.pages(&format!("/v1/webhooks/{}/deliveries", self.id), 100).await
    }

    /// Waits until all of its deliveries satisfy `so` and returns them.
    async fn once(&self, merchant: &Merchant, what: &str, so: impl Fn(&Value) -> bool) -> Vec<Value> {
        eventually(what, async || {
            let deliveries = self.deliveries(merchant).await;
            (!deliveries.is_empty() && deliveries.iter().all(&so)).then_some(deliveries)
        })
        .await
    }
}

fn ok(_: &Call) -> Vec<Step> {
    json(200, &json!({}))
}

/// Responds to the first call with 500 once `gate` is open, and to every later one with 200.
fn fails_once(gate: Gate) -> impl Fn(&Call) -> Vec<Step> + Send + Sync + 'static {
    let is_tried = AtomicBool::new(false);
    move |_: &Call| {
        if is_tried.swap(true, Ordering::SeqCst) {
            return json(200, &json!({}));
        }
        [vec![Step::Wait(gate.clone())], json(500, &json!({}))].concat()
    }
}

fn customer_of(delivery: &Value) -> String {
    delivery["data"]["customer"]["customer_id"].as_str().unwrap_or_default().to_owned()
}

/// Makes a call of the customer and returns its request id.
async fn call(merchant: &Merchant, customer: &Customer) -> String {
    let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({"usage": {"tokens": 3}})));
    let meter = merchant.call_meter("0.25").await;
    let called = merchant.call(&merchant.billing(customer, &meter), &endpoint.url).await;
    assert_eq!(called.status, 200, "{}", called.text());
    called.request_id()
}

#[test]
fn deliveries_have_both_signatures() {
    run(async {
        let merchant = Merchant::new().await;
        let hook = Hook::new(&merchant, Value::Null, ok).await;
        merchant.customer("0").await;
        let received = hook.received_event("customer.created").await;
        let call = hook.receiver.only_call();
        assert_eq!(call.method(), "POST");
        assert_eq!(call.head.header("content-type"), Some("application/json"));

        let mut headers = http::HeaderMap::new();
        for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
            headers.insert(name, call.head.header(name).unwrap().parse().unwrap());
        }
        let library = standardwebhooks::Webhook::new(&hook.secret).unwrap();
        library.verify(&call.body, &headers).unwrap();
        assert_eq!(headers["webhook-id"], received["webhook_event_id"].as_str().unwrap());
        let mut forged = call.body.clone();
        forged.push(b' ');
        library.verify(&forged, &headers).unwrap_err();

        let mut mac = Hmac::<Sha256>::new_from_slice(hook.secret.as_bytes()).unwrap();
        mac.update(&call.body);
        let mut hex = String::new();
        for byte in mac.finalize().into_bytes() {
            write!(hex, "{byte:02x}").unwrap();
        }
        assert_eq!(call.head.header("x-webhook-signature"), Some(hex.as_str()));
    });
}

/// Makes 40,000 old deliveries out of one of the webhook $1.
const MAKE_OLD: &str = "\
INSERT INTO webhooks.delivery
    (partition, webhook_id, position, event_id, topic, lane, created_at, queued_at, status)
SELECT d.partition, d.webhook_id, -n, d.event_id || n, d.topic, d.lane, d.created_at, now() - interval '31 days', 'delivered'
FROM (SELECT * FROM webhooks.delivery WHERE webhook_id = $1 ORDER BY position LIMIT 1) AS d
CROSS JOIN generate_series(1, 40000) AS n";

const OLD: &str = "SELECT count(*) FROM webhooks.delivery WHERE position < 0";

#[test]
fn old_deliveries_are_deleted_without_a_pause_until_none_is_left() {
    run(async {
        let merchant = Merchant::alone(1).await;
        let hook = Hook::new(&merchant, Value::Null, ok).await;
        merchant.customer("0").await;
        let is_delivered = |delivery: &Value| delivery["status"] == "delivered";
        let kept = hook.once(&merchant, "the delivery", is_delivered).await;
        let sql = &merchant.log.sql;
        assert_eq!(sql.execute(MAKE_OLD, &[&hook.id]).await.unwrap(), 40_000);
        eventually("no old delivery is left", async || {
            let old: i64 = sql.query_one(OLD, &[]).await.unwrap().get(0);
            (old == 0).then_some(())
        })
        .await;
        assert_eq!(hook.deliveries(&merchant).await, kept);
    });
}

#[test]
fn another_gateway_delivers_for_a_leader_that_delivers_none() {
    run(async {
        let side = SideGateway::start(Instance::shared().await, &[]).await;
        let merchant = side.merchant_of_its_own(Instance::shared().await, "1").await;
        let hook = Hook::new(&merchant, Value::Null, ok).await;
        merchant.customer("0").await;
        hook.received_event("customer.created").await;
        drop(side);
    });
}

#[test]
fn each_event_carries_its_resource() {
    run(async {
        let merchant = Merchant::funded("5").await;
        let hook = Hook::new(&merchant, Value::Null, ok).await;
        let body = json!({"reference_id": "ada", "name": "Ada Lovelace", "metadata": {"team": "engine"}});
        let made = merchant.post("/v1/customers", &body).await.expect(201);
        let customer =
            Customer { id: made["customer_id"].as_str().unwrap().to_owned(), reference_id: "ada".to_owned() };
        let received = hook.received_event("customer.created").await;
        assert_eq!(received["data"], json!({"customer": made}));
        assert_eq!(received["created_at"], made["created_at"]);
        assert!(received["webhook_event_id"].as_str().unwrap().starts_with("evt_"));

        merchant.credit(&customer, "2").await;
        let received = hook.received_event("customer.wallet.balance.updated").await;
        assert_eq!(received["data"]["wallet"]["balance"], "2.0000000000");
        assert_eq!(received["data"]["customer"], made);

        let request_id = call(&merchant, &customer).await;
        let received = hook.received_event("request.completed").await;
        assert_eq!(received["data"]["request"], merchant.shown(&request_id, "completed").await);
        assert_eq!(customer_of(&received), customer.id);
        eventually("the debit is delivered", async || {
            hook.received()
                .into_iter()
                .find(|delivery| delivery["data"]["wallet"]["balance"] == "1.7500000000")
        })
        .await;

        let body = json!({"name": "k", "customer_id": customer.id});
        let key = merchant.post("/v1/spend_keys", &body).await.expect(201);
        let path = format!("/v1/spend_keys/{}", key["spend_key_id"].as_str().unwrap());
        let rotated = merchant.post(&format!("{path}/rotate"), &json!({})).await.expect(200);
        let received = hook.received_event("spend_key.rotated").await;
        assert_eq!(received["data"]["spend_key"], merchant.get(&path).await.expect(200));
        assert_eq!(customer_of(&received), customer.id);
        assert!(
            !received.to_string().contains(rotated["key"].as_str().unwrap()),
            "a raw key is never delivered"
        );

        merchant.delete(&format!("/v1/customers/{}", customer.id)).await.expect(200);
        let received = hook.received_event("customer.deleted").await;
        let shown = &received["data"]["customer"];
        assert_eq!((&shown["customer_id"], &shown["reference_id"]), (&json!(customer.id), &json!("ada")));
        assert_eq!((&shown["contact"]["first_name"], &shown["metadata"]), (&Value::Null, &json!({})));

        // Changes of the merchant's own wallet are not delivered.
        let events: Vec<_> =
            hook.received().iter().map(|delivery| delivery["event"].as_str().unwrap().to_owned()).collect();
        assert_eq!(
            events.iter().filter(|event| *event == "customer.wallet.balance.updated").count(),
            2,
            "{events:?}"
        );
        let ids: std::collections::BTreeSet<_> =
            hook.received().iter().map(|delivery| delivery["webhook_event_id"].to_string()).collect();
        assert_eq!(ids.len(), events.len(), "each event has its own id");
    });
}

#[test]
fn a_webhook_receives_the_events_it_names_and_none_while_it_is_disabled() {
    run(async {
        let merchant = Merchant::new().await;
        let all = Hook::new(&merchant, Value::Null, ok).await;
        let some = Hook::new(&merchant, json!(["customer.deleted"]), ok).await;
        let path = format!("/v1/webhooks/{}", some.id);
        let delete = async |customer: &Customer| {
            merchant.delete(&format!("/v1/customers/{}", customer.id)).await.expect(200);
        };
        let first = merchant.customer_called("first", "0").await;
        delete(&first).await;
        // A delivery that is pending when the webhook is disabled would be given up.
        eventually("the first is delivered", async || (some.received().len() == 1).then_some(())).await;
        merchant.patch(&path, &json!({"enabled": false})).await.expect(200);
        delete(&merchant.customer_called("second", "0").await).await;
        merchant.patch(&path, &json!({"enabled": true})).await.expect(200);
        let third = merchant.customer_called("third", "0").await;
        delete(&third).await;
        eventually("everything is delivered", async || {
            (some.received().len() >= 2 && all.received().len() >= 6).then_some(())
        })
        .await;
        let deliveries = some.deliveries(&merchant).await;
        assert_eq!(deliveries.len(), 2, "nothing else was queued: {deliveries:?}");
        let received: Vec<_> = some.received().iter().map(customer_of).collect();
        assert_eq!(received.len(), 2);
        assert!(received.contains(&first.id) && received.contains(&third.id), "{received:?}");
        // A delivery is recorded after it was received.
        all.once(&merchant, "every delivery is recorded", |delivery| delivery["status"] == "delivered").await;
        let listed = all.deliveries(&merchant).await;
        assert_eq!(listed.len(), 6);
        let paths = [&all.id, &some.id].map(|id| format!("/v1/webhooks/{id}/deliveries"));
        assert_eq!(merchant.pages(&paths[0], 2).await, listed, "page by page");
        let cursor = listed[0]["webhook_event_id"].as_str().unwrap();
        for cursor in [cursor, "evt_01ARZ3NDEKTSV4RRFFQ69G5FAV", "x"] {
            merchant.get(&format!("{}?cursor={cursor}", paths[1])).await.refused(400, "cursor_invalid");
        }
    });
}

#[test]
fn a_receiver_that_was_down_gets_everything_in_order_per_customer() {
    run(async {
        let merchant = Merchant::new().await;
        let up = Arc::new(AtomicBool::new(false));
        let is_up = Arc::clone(&up);
        let status = move |_: &Call| json(if is_up.load(Ordering::SeqCst) { 204 } else { 503 }, &json!({}));
        let hook = Hook::new(&merchant, Value::Null, status).await;
        let mut wanted: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for name in ["a", "b", "c"] {
            let customer = merchant.customer_called(name, "0").await;
            let mut balances = vec![Value::Null.to_string()];
            for total in 1..=4 {
                merchant.credit(&customer, "1").await;
                balances.push(json!(format!("{total}.0000000000")).to_string());
            }
            wanted.insert(customer.id, balances);
        }
        let deliveries = hook.deliveries(&merchant).await;
        assert_eq!(deliveries.len(), 15);
        assert!(deliveries.iter().all(|delivery| delivery["status"] == "pending"), "{deliveries:?}");
        eventually("each customer's first delivery is retried", async || {
            let deliveries = hook.deliveries(&merchant).await;
            let tried = deliveries.iter().filter(|shown| shown["attempts"].as_u64() >= Some(2));
            let tried: Vec<_> = tried.collect();
            assert!(
                tried.iter().all(|shown| shown["last_status_code"] == 503 && shown["last_error"].is_string())
            );
            // Later deliveries wait for it.
            assert!(
                deliveries.iter().all(|shown| shown["event"] == "customer.created" || shown["attempts"] == 0)
            );
            (tried.len() == 3).then_some(())
        })
        .await;
        up.store(true, Ordering::SeqCst);
        let before = hook.received().len();
        hook.once(&merchant, "everything is delivered", |delivery| delivery["status"] == "delivered").await;
        let mut received: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for delivery in &hook.received()[before.saturating_sub(3)..] {
            let balances = received.entry(customer_of(delivery)).or_default();
            let balance = delivery["data"]["wallet"]["balance"].to_string();
            if balances.last() != Some(&balance) {
                balances.push(balance);
            }
        }
        assert_eq!(received, wanted, "none is lost, and each customer's are in order");
    });
}

#[test]
fn failing_deliveries_of_one_customer_do_not_delay_another() {
    run(async {
        let merchant = Merchant::new().await;
        let stuck = merchant.customer_called("stuck", "0").await;
        let id = stuck.id.clone();
        let hook = Hook::new(&merchant, json!(["customer.wallet.balance.updated"]), move |call| {
            let delivery: Value = serde_json::from_slice(&call.body).unwrap();
            json(if customer_of(&delivery) == id { 500 } else { 200 }, &json!({}))
        })
        .await;
        merchant.credit(&stuck, "1").await;
        merchant.credit(&stuck, "1").await;
        let free = merchant.customer_called("free", "1").await;
        eventually("the other customer's event is delivered", async || {
            hook.received().iter().any(|delivery| customer_of(delivery) == free.id).then_some(())
        })
        .await;
        let received = hook.received();
        let of_stuck: Vec<_> = received.iter().filter(|delivery| customer_of(delivery) == stuck.id).collect();
        assert!(
            of_stuck.iter().all(|delivery| delivery["data"]["wallet"]["balance"] == "1.0000000000"),
            "{of_stuck:?}"
        );
    });
}

#[test]
fn a_failed_delivery_is_shown_and_can_be_resent() {
    run(async {
        let merchant = Merchant::new().await;
        let up = Arc::new(AtomicBool::new(false));
        let is_up = Arc::clone(&up);
        let status = move |_: &Call| json(if is_up.load(Ordering::SeqCst) { 200 } else { 410 }, &json!({}));
        let hook = Hook::new(&merchant, Value::Null, status).await;
        let path = format!("/v1/webhooks/{}", hook.id);
        merchant.customer("0").await;
        hook.once(&merchant, "it is tried", |delivery| delivery["last_status_code"] == 410).await;
        // Pending deliveries of a disabled webhook are given up.
        merchant.patch(&path, &json!({"enabled": false})).await.expect(200);
        let failed = hook.once(&merchant, "it is given up", |delivery| delivery["status"] == "failed").await;
        assert_eq!(failed[0]["next_attempt_at"], Value::Null, "{failed:?}");
        let event_id = failed[0]["webhook_event_id"].as_str().unwrap();
        merchant.patch(&path, &json!({"enabled": true})).await.expect(200);
        up.store(true, Ordering::SeqCst);

        let resend = |id: &str| Request::new("POST", format!("{path}/deliveries/{id}/resend"));
        let again = merchant.rest(resend(event_id).header("Idempotency-Key", "again")).await;
        assert_eq!(again.expect(200)["status"], "pending");
        let received =
            hook.once(&merchant, "it is delivered", |delivery| delivery["status"] == "delivered").await;
        assert_eq!(received[0]["webhook_event_id"], event_id);
        assert_eq!((&received[0]["attempts"], &received[0]["last_error"]), (&json!(1), &Value::Null));
        assert!(received[0]["delivered_at"].is_string());
        let ids: Vec<_> =
            hook.received().iter().map(|delivery| delivery["webhook_event_id"].clone()).collect();
        assert!(ids.len() >= 2 && ids.iter().all(|id| *id == event_id), "{ids:?}");

        // A replayed call sends nothing; a new one does, even after a success.
        let count = hook.received().len();
        assert_eq!(
            merchant.rest(resend(event_id).header("Idempotency-Key", "again")).await.expect(200)["status"],
            "pending"
        );
        assert_eq!(hook.deliveries(&merchant).await[0]["status"], "delivered");
        merchant.rest(resend(event_id)).await.expect(200);
        eventually("it is delivered once more", async || (hook.received().len() == count + 1).then_some(()))
            .await;

        merchant.rest(resend("evt_01ARZ3NDEKTSV4RRFFQ69G5FAV")).await.refused(404, "webhook_event_not_found");
        merchant.rest(resend("x")).await.refused(404, "webhook_event_not_found");
    });
}

/// A delivery is resent during an attempt that fails after that.
async fn a_resend_during_an_attempt_counts(flags: &'static [&'static str]) {
    let instance = Instance::of_test_with(1, flags).await;
    let merchant = Merchant::of(instance).await;
    let gate = Gate::default();
    let hook = Hook::new(&merchant, json!(["customer.created"]), fails_once(gate.clone())).await;
    merchant.customer("0").await;
    eventually("an attempt runs", async || (hook.receiver.calls().len() == 1).then_some(())).await;
    let deliveries = hook.deliveries(&merchant).await;
    let id = deliveries[0]["webhook_event_id"].as_str().unwrap();
    let path = format!("/v1/webhooks/{}/deliveries/{id}/resend", hook.id);
    let again = merchant.rest(Request::new("POST", path)).await.expect(200);
    assert_eq!(again["status"], "pending");
    assert!(!hook.receiver.only_call().is_finished(), "the attempt still runs");
    gate.open();
    let sent = hook.once(&merchant, "it is sent again", |delivery| delivery["status"] == "delivered").await;
    assert_eq!((&sent[0]["attempts"], &sent[0]["last_error"]), (&json!(1), &Value::Null), "{sent:?}");
    assert_eq!(hook.receiver.calls().len(), 2);
    instance.stop().await;
    instance.clear();
}

#[test]
fn a_resend_during_an_attempt_does_not_wait_for_the_retry_of_that_attempt() {
    run(a_resend_during_an_attempt_counts(&["--webhook-retry-ms=3600000"]));
}

#[test]
fn a_resend_during_the_last_attempt_is_not_given_up_with_it() {
    run(a_resend_during_an_attempt_counts(&["--webhook-give-up-seconds=0"]));
}

/// Holds up the bodies of events about customers.
const HOLD_BODIES: &str = "BEGIN; LOCK TABLE customers.customers IN ACCESS EXCLUSIVE MODE";

/// The claimed queues of the webhook $1, while a gateway waits for a lock that a test has.
const HELD_UP: &str = "\
SELECT count(*) FROM webhooks.lane WHERE webhook_id = $1 AND claim IS NOT NULL AND EXISTS (
    SELECT FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'farthing_gateway' AND wait_event_type = 'Lock')";

const PENDING: &str = "SELECT count(*) FROM webhooks.delivery WHERE webhook_id = $1 AND status = 'pending'";

#[test]
fn a_call_that_begins_after_a_change_goes_to_the_new_url_and_none_to_a_deleted_webhook() {
    run(async {
        let instance = Instance::of_test_with(1, &["--webhook-retry-ms=3600000"]).await;
        let merchant = Merchant::of(instance).await;
        let fails = |_: &Call| json(500, &json!({}));
        let hook = Hook::new(&merchant, json!(["customer.created"]), fails).await;
        let newer = instance.provider.endpoint(fails);
        merchant.customer("0").await;
        let is_tried = |delivery: &Value| delivery["attempts"] == 1;
        let tried = hook.once(&merchant, "the first attempt fails", is_tried).await;
        let path = format!("/v1/webhooks/{}", hook.id);
        let id = tried[0]["webhook_event_id"].as_str().unwrap();
        let resend = format!("{path}/deliveries/{id}/resend");
        let holder = instance.log().await.sql;
        let sql = &merchant.log.sql;
        // The next attempt has begun, and its call has not.
        let held_up = async || {
            holder.batch_execute(HOLD_BODIES).await.unwrap();
            merchant.rest(Request::new("POST", &resend)).await.expect(200);
            eventually("the next attempt is held up", async || {
                let held_up = sql.query_one(HELD_UP, &[&hook.id]).await.unwrap();
                (held_up.get::<_, i64>(0) == 1).then_some(())
            })
            .await;
        };

        held_up().await;
        merchant.patch(&path, &json!({"url": newer.url})).await.expect(200);
        holder.batch_execute("ROLLBACK").await.unwrap();
        hook.once(&merchant, "the second attempt fails", is_tried).await;
        assert_eq!((hook.receiver.calls().len(), newer.calls().len()), (1, 1));

        held_up().await;
        merchant.delete(&path).await.expect(200);
        holder.batch_execute("ROLLBACK").await.unwrap();
        eventually("the delivery is given up", async || {
            let pending = sql.query_one(PENDING, &[&hook.id]).await.unwrap();
            (pending.get::<_, i64>(0) == 0).then_some(())
        })
        .await;
        assert_eq!((hook.receiver.calls().len(), newer.calls().len()), (1, 1));
        instance.stop().await;
        instance.clear();
    });
}

#[test]
fn a_rotated_key_that_is_deleted_before_its_event_is_sent_is_shown() {
    run(async {
        let merchant = Merchant::new().await;
        let gate = Gate::default();
        let hook = Hook::new(&merchant, json!(["spend_key.rotated"]), fails_once(gate.clone())).await;
        let key = merchant.post("/v1/spend_keys", &json!({"name": "k"})).await.expect(201);
        let path = format!("/v1/spend_keys/{}", key["spend_key_id"].as_str().unwrap());
        merchant.post(&format!("{path}/rotate"), &json!({})).await.expect(200);
        eventually("an attempt runs", async || (hook.receiver.calls().len() == 1).then_some(())).await;
        merchant.delete(&path).await.expect(200);
        merchant.get(&path).await.refused(404, "spend_key_not_found");
        gate.open();
        hook.once(&merchant, "it is delivered", |delivery| delivery["status"] == "delivered").await;
        let received = hook.received();
        assert_eq!(received[0]["data"]["spend_key"]["spend_key_id"], key["spend_key_id"]);
        assert_eq!(received.last().unwrap()["data"], received[0]["data"]);
    });
}

/// Counts how often the deliveries of a webhook are queued again.
const COUNT_RESENT: &str = "\
CREATE SEQUENCE public.resent;
CREATE FUNCTION public.count_resent() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    PERFORM nextval('public.resent');
    RETURN NEW;
END $$;
CREATE TRIGGER count_resent BEFORE UPDATE ON webhooks.delivery FOR EACH ROW
WHEN (NEW.webhook_id = '{webhook}' AND NEW.queued_at <> OLD.queued_at) EXECUTE FUNCTION public.count_resent()";

#[test]
fn an_idempotent_resend_is_made_once_at_any_gateway() {
    run(async {
        let merchant = Merchant::new().await;
        let hook = Hook::new(&merchant, Value::Null, ok).await;
        merchant.customer("0").await;
        let delivered =
            hook.once(&merchant, "it is delivered", |delivery| delivery["status"] == "delivered").await;
        let id = delivered[0]["webhook_event_id"].as_str().unwrap();
        let path = format!("/v1/webhooks/{}/deliveries/{id}/resend", hook.id);
        let sql = &merchant.log.sql;
        sql.batch_execute(&COUNT_RESENT.replace("{webhook}", &hook.id)).await.unwrap();
        // One of the two leads the merchant's partition.
        for gateway in 0..2 {
            for _ in 0..2 {
                let resend = Request::new("POST", &path).header("Idempotency-Key", format!("at {gateway}"));
                let resend = resend.bearer(&merchant.secret_key);
                let answer = resend.send(merchant.instance.gateway(gateway)).await.unwrap();
                assert_eq!(answer.expect(200)["webhook_event_id"], id);
            }
        }
        let resent = sql.query_one("SELECT last_value FROM public.resent", &[]).await.unwrap();
        assert_eq!(resent.get::<_, i64>(0), 2, "once for each key");
        sql.batch_execute("DROP FUNCTION public.count_resent CASCADE; DROP SEQUENCE public.resent")
            .await
            .unwrap();
    });
}

#[test]
fn redirects_are_not_followed_and_forbidden_addresses_are_not_called() {
    run(async {
        let merchant = Merchant::new().await;
        let elsewhere = merchant.instance.provider.endpoint(ok);
        let there = elsewhere.url.clone();
        let redirected =
            Hook::new(&merchant, Value::Null, move |_| whole(302, &[("Location", &there)], b"")).await;
        let body = json!({"url": "http://10.0.0.1:9/"});
        let made = merchant.post("/v1/webhooks", &body).await.expect(201);
        let forbidden = Hook {
            id: made["webhook_id"].as_str().unwrap().to_owned(),
            secret: String::new(),
            receiver: elsewhere,
        };
        merchant.customer("0").await;
        redirected.once(&merchant, "it is tried", |delivery| delivery["last_status_code"] == 302).await;
        let tried =
            forbidden.once(&merchant, "it is tried", |delivery| delivery["last_error"].is_string()).await;
        assert_eq!(tried[0]["last_error"], "the receiver's address is not allowed");
        assert_eq!(tried[0]["last_status_code"], Value::Null);
        assert!(forbidden.received().is_empty(), "the redirect was followed");
    });
}

#[test]
fn a_receiver_that_does_not_answer_times_out_and_a_given_up_delivery_delays_nothing() {
    run(async {
        let flags = &["--webhook-timeout-seconds=1", "--webhook-give-up-seconds=0", "--webhook-retry-ms=50"];
        let instance = Instance::of_test_with(1, flags).await;
        let merchant = Merchant::of(instance).await;
        let gate = Gate::default();
        let hook = Hook::new(&merchant, Value::Null, move |call| {
            let delivery: Value = serde_json::from_slice(&call.body).unwrap();
            if delivery["event"] == "customer.created" { vec![Step::Wait(gate.clone())] } else { ok(call) }
        })
        .await;
        merchant.customer("1").await;
        let deliveries = eventually("both have ended", async || {
            let deliveries = hook.deliveries(&merchant).await;
            let ended = deliveries.iter().filter(|delivery| delivery["status"] != "pending").count();
            (ended == 2).then_some(deliveries)
        })
        .await;
        assert_eq!((&deliveries[1]["status"], &deliveries[1]["attempts"]), (&json!("failed"), &json!(1)));
        assert_eq!(deliveries[1]["last_error"], "the receiver did not answer in time");
        assert_eq!(deliveries[0]["status"], "delivered", "{deliveries:?}");
        instance.stop().await;
        instance.clear();
    });
}

#[test]
fn a_failing_resent_delivery_does_not_delay_newer_ones() {
    run(async {
        let merchant = Merchant::new().await;
        let customer = merchant.customer_called("again", "0").await;
        let refuses = Arc::new(AtomicBool::new(false));
        let refuses_first = Arc::clone(&refuses);
        let hook = Hook::new(&merchant, json!(["customer.wallet.balance.updated"]), move |call| {
            let delivery: Value = serde_json::from_slice(&call.body).unwrap();
            let is_first = delivery["data"]["wallet"]["balance"] == "1.0000000000";
            json(if is_first && refuses_first.load(Ordering::SeqCst) { 400 } else { 200 }, &json!({}))
        })
        .await;
        merchant.credit(&customer, "1").await;
        let received =
            hook.once(&merchant, "it is delivered", |delivery| delivery["status"] == "delivered").await;
        refuses.store(true, Ordering::SeqCst);
        let id = received[0]["webhook_event_id"].as_str().unwrap();
        let path = format!("/v1/webhooks/{}/deliveries/{id}/resend", hook.id);
        let again = merchant.rest(Request::new("POST", path)).await.expect(200);
        assert_eq!((&again["status"], &again["delivered_at"]), (&json!("pending"), &Value::Null));
        eventually("it is refused", async || {
            (hook.deliveries(&merchant).await[0]["last_status_code"] == 400).then_some(())
        })
        .await;
        merchant.credit(&customer, "1").await;
        eventually("the newer event is delivered", async || {
            let received = hook.received();
            received
                .iter()
                .any(|delivery| delivery["data"]["wallet"]["balance"] == "2.0000000000")
                .then_some(())
        })
        .await;
        eventually("the newer one is shown as delivered", async || {
            let shown = hook.deliveries(&merchant).await;
            assert_eq!(shown[1]["status"], "pending", "the resent delivery waits for its next attempt");
            (shown[0]["status"] == "delivered").then_some(())
        })
        .await;
        refuses.store(false, Ordering::SeqCst);
        hook.once(&merchant, "both are delivered", |delivery| delivery["status"] == "delivered").await;
    });
}

#[test]
fn receivers_that_do_not_answer_do_not_delay_another_merchant() {
    run(async {
        let (slow, other) = (Merchant::new().await, Merchant::new().await);
        let gate = Gate::default();
        let mut hooks = Vec::new();
        for _ in 0..3 {
            let waits = gate.clone();
            let respond = move |_: &Call| {
                let mut steps = vec![Step::Wait(waits.clone())];
                steps.extend(whole(200, &[], b""));
                steps
            };
            hooks.push(Hook::new(&slow, json!(["customer.created"]), respond).await);
        }
        for number in 0..30 {
            slow.customer_called(&format!("slow {number}"), "0").await;
        }
        // Each of the instance's gateways delivers at most eight queues of one webhook at once.
        let waiting = || hooks.iter().map(|hook| hook.receiver.calls().len()).sum::<usize>();
        eventually("the slow receivers are called", async || (waiting() >= 24).then_some(())).await;
        let hook = Hook::new(&other, json!(["customer.created"]), ok).await;
        for number in 0..30 {
            other.customer_called(&format!("other {number}"), "0").await;
        }
        eventually("the other merchant's are delivered", async || {
            (hook.received().len() >= 30).then_some(())
        })
        .await;
        gate.open();
        for hook in &hooks {
            hook.once(&slow, "all are delivered", |delivery| delivery["status"] == "delivered").await;
        }
    });
}
