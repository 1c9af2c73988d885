//! Attacks by webhooks: URLs that call the gateway itself, receivers that hang or answer without end, and data that is odd.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use farthing_tests::client::Request;
use farthing_tests::dns::{Answer, NameServer};
use farthing_tests::instance::Instance;
use farthing_tests::merchant::{Merchant, encoded};
use farthing_tests::provider::{Call, Endpoint, Gate, Step, head, json as answer_json, whole};
use farthing_tests::run;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::{eventually, settled};
use serde_json::{Value, json};

/// Queues of one webhook that are served at once (docs/webhooks.md).
const QUEUES_PER_WEBHOOK: usize = 8;

/// Queues of all webhooks that a gateway serves at once.
const QUEUES_OF_ALL: usize = 256;

/// For how long no further delivery begins when all have begun that may.
const CALM: Duration = Duration::from_secs(3);

/// The most of an endless response that a sender of it may get rid of: what the buffers of two sockets take.
const MAX_SENT: u64 = 16 * 1024 * 1024;

/// The pending deliveries of a webhook.
const PENDING: &str = "SELECT count(*) FROM webhooks.delivery WHERE webhook_id = $1 AND status = 'pending'";

/// More queues of a webhook than one claim may read.
const MANY_QUEUES: i32 = 50_000;

/// More rows than a search reads on average: a claim reads a thousand due queues.
const ROWS_OF_A_SEARCH: i64 = 2_000;

/// Searches after which their cost is known: the first ones may not be counted yet.
const SEARCHES_ENOUGH: i64 = 200;

/// Gives a webhook of a partition more due queues.
const ADD_QUEUES: &str = "\
INSERT INTO webhooks.lane (partition, webhook_id, lane, due_at)
SELECT $1, $2, 'further' || n, now() - interval '1 hour' FROM generate_series(1, $3) AS n";

/// The queues of a webhook that are left of these.
const QUEUES_LEFT: &str = "SELECT count(*) FROM webhooks.lane WHERE partition = $1 AND webhook_id = $2";

const REMOVE_QUEUES: &str = "DELETE FROM webhooks.lane WHERE partition = $1 AND lane LIKE 'further%'";

/// The searches of the queues, and the rows that they read.
const SEARCHES: &str = "\
SELECT (seq_scan + idx_scan)::bigint, (seq_tup_read + read.by_index)::bigint
FROM pg_stat_user_tables AS t CROSS JOIN LATERAL (
    SELECT sum(idx_tup_read) AS by_index FROM pg_stat_user_indexes AS i WHERE i.relid = t.relid) AS read
WHERE schemaname = 'webhooks' AND relname = 'lane'";

pub(super) async fn hook(merchant: &Merchant, url: &str, events: &[&str]) -> String {
    let made = merchant.post("/v1/webhooks", &json!({"url": url, "events": events})).await.expect(201);
    made["webhook_id"].as_str().unwrap().to_owned()
}

pub(super) fn receiver(
    merchant: &Merchant,
    respond: impl Fn(&Call) -> Vec<Step> + Send + Sync + 'static,
) -> Endpoint {
    merchant.instance.provider.endpoint(respond)
}

/// A receiver that does not answer until `gate` opens.
fn hanging_until(gate: &Gate, merchant: &Merchant) -> Endpoint {
    let gate = gate.clone();
    receiver(merchant, move |_| [vec![Step::Wait(gate.clone())], answer_json(200, &json!({}))].concat())
}

async fn deliveries(merchant: &Merchant, id: &str) -> Vec<Value> {
    merchant.pages(&format!("/v1/webhooks/{id}/deliveries"), 100).await
}

/// The searches of the queues until now, and the rows that they read.
async fn searched(sql: &tokio_postgres::Client) -> (i64, i64) {
    let row = sql.query_one(SEARCHES, &[]).await.unwrap();
    (row.get(0), row.get(1))
}

/// Waits for enough searches after those `before`, and returns how many there were and the rows that they read.
async fn searched_since(sql: &tokio_postgres::Client, before: (i64, i64)) -> (i64, i64) {
    eventually("queues are searched again and again", async || {
        let (searches, rows) = searched(sql).await;
        (searches - before.0 >= SEARCHES_ENOUGH).then_some((searches - before.0, rows - before.1))
    })
    .await
}

/// Waits until the events of so many new customers of `merchant` have arrived at a webhook, and returns its id.
async fn events_arrive(merchant: &Merchant, customers: usize) -> String {
    let good = receiver(merchant, |_| answer_json(200, &json!({})));
    let id = hook(merchant, &good.url, &["customer.created"]).await;
    for number in 0..customers {
        merchant.customer_called(&format!("c{number}"), "0").await;
    }
    eventually("all of the other merchant's events arrive", async || {
        (good.calls().len() == customers).then_some(())
    })
    .await;
    id
}

/// Waits until the first delivery of a webhook was attempted, and returns it.
pub(super) async fn attempted(merchant: &Merchant, id: &str) -> Value {
    eventually("a delivery is attempted", async || {
        let first = deliveries(merchant, id).await.pop()?;
        (first["attempts"].as_u64() > Some(0)).then_some(first)
    })
    .await
}

#[test]
fn a_webhook_cannot_make_the_gateway_call_itself_for_ever() {
    run(async {
        let merchant = Merchant::funded("100").await;
        let (customer, meter) = (merchant.customer("50").await, merchant.call_meter("0.01").await);
        let provider = receiver(&merchant, |_| answer_json(200, &json!({})));
        let key = json!({"name": "loop", "connection_id": customer.id});
        let key = merchant.post("/v1/spend_keys", &key).await.expect(201);
        let mut hooks = Vec::new();
        for credential in [key["key"].as_str().unwrap(), merchant.secret_key.as_str()] {
            let url = format!(
                "http://{}/v1/forward?u={}&key={}",
                merchant.gateway(),
                encoded(&provider.url),
                encoded(credential)
            );
            hooks.push(hook(&merchant, &url, &["request.completed"]).await);
        }
        merchant.call(&merchant.billing(&customer, &meter), &provider.url).await.expect(200);
        for id in &hooks {
            let delivery = attempted(&merchant, id).await;
            assert_eq!(delivery["last_status_code"], 400, "{delivery}");
            assert_eq!(deliveries(&merchant, id).await.len(), 1, "one event of the first call");
        }
        assert_eq!(provider.calls().len(), 1);
        assert_eq!(merchant.of_kind("request.opened").await.len(), 1);
    });
}

#[test]
fn receivers_of_one_merchant_that_hang_do_not_keep_another_merchants_waiting() {
    run(async {
        let (slow, other) = (Merchant::new().await, Merchant::new().await);
        let gate = Gate::default();
        let hanging = hanging_until(&gate, &slow);
        for _ in 0..3 {
            hook(&slow, &hanging.url, &["customer.created"]).await;
        }
        let customers = 5 * QUEUES_PER_WEBHOOK;
        for number in 0..customers {
            slow.customer_called(&format!("c{number}"), "0").await;
        }
        eventually("the queues of its webhooks are full", async || {
            (hanging.calls().len() >= 3 * QUEUES_PER_WEBHOOK).then_some(())
        })
        .await;
        let id = events_arrive(&other, customers).await;
        assert!(hanging.calls().iter().all(|call| !call.is_finished()), "the gate is closed");
        let sent = eventually("their outcomes are recorded", async || {
            let sent = deliveries(&other, &id).await;
            sent.iter().all(|delivery| delivery["status"] == "delivered").then_some(sent)
        })
        .await;
        assert!(sent.iter().all(|delivery| delivery["attempts"] == 1), "{sent:?}");
        gate.open();
    });
}

#[test]
fn many_due_queues_of_a_webhook_that_is_full_cost_the_other_webhooks_nothing() {
    run(async {
        let instance = Merchant::new().await.instance;
        // No attempt ends by its timeout while this test waits.
        let flags = ["--allow-address=127.0.0.0/8", "--webhook-timeout-seconds=120"];
        let gateway = SideGateway::start(instance, &flags).await;
        let slow = gateway.merchant_of_its_own(instance, "1").await;
        let other = slow.neighbour().await;
        let (partition, sql) = (slow.partition().await, &slow.log.sql);
        let gate = Gate::default();
        let hanging = hanging_until(&gate, &slow);
        let full = hook(&slow, &hanging.url, &["customer.created"]).await;
        for number in 0..QUEUES_PER_WEBHOOK {
            slow.customer_called(&format!("c{number}"), "0").await;
        }
        eventually("its queues are served", async || {
            (hanging.calls().len() == QUEUES_PER_WEBHOOK).then_some(())
        })
        .await;
        sql.execute(ADD_QUEUES, &[&partition, &full, &MANY_QUEUES]).await.unwrap();
        sql.batch_execute("ANALYZE webhooks.lane").await.unwrap();
        let before = searched(sql).await;

        events_arrive(&other, 2 * QUEUES_PER_WEBHOOK).await;
        let (searches, rows) = searched_since(sql, before).await;
        sql.execute(REMOVE_QUEUES, &[&partition]).await.unwrap();
        assert!(hanging.calls().iter().all(|call| !call.is_finished()), "the gate is closed");
        assert!(rows < searches * ROWS_OF_A_SEARCH, "{searches} searches read {rows} rows");
        gate.open();
    });
}

#[test]
fn many_due_queues_of_a_webhook_do_not_come_before_another_merchants_deliveries() {
    run(async {
        let instance = Merchant::new().await.instance;
        let gateway = SideGateway::start(instance, &["--allow-address=127.0.0.0/8"]).await;
        let busy = gateway.merchant_of_its_own(instance, "1").await;
        let other = busy.neighbour().await;
        let (partition, sql) = (busy.partition().await, &busy.log.sql);
        let good = receiver(&other, |_| answer_json(200, &json!({})));
        hook(&other, &good.url, &["customer.created"]).await;
        let backlog = hook(&busy, &good.url, &["customer.deleted"]).await;
        let left = async || {
            let row = sql.query_one(QUEUES_LEFT, &[&partition, &backlog]).await.unwrap();
            row.get::<_, i64>(0)
        };
        // The statistics know nothing of the queues that follow.
        sql.batch_execute("ANALYZE webhooks.lane").await.unwrap();
        let before = searched(sql).await;
        sql.execute(ADD_QUEUES, &[&partition, &backlog, &MANY_QUEUES]).await.unwrap();

        other.customer_called("c", "0").await;
        eventually("the other merchant's event arrives", async || (good.calls().len() == 1).then_some(()))
            .await;
        let waiting = left().await;
        assert!(waiting > i64::from(MANY_QUEUES) / 2, "{waiting} of {MANY_QUEUES} queues still wait");
        let (searches, rows) = searched_since(sql, before).await;
        assert!(rows < searches * ROWS_OF_A_SEARCH, "{searches} searches read {rows} rows");

        busy.delete(&format!("/v1/webhooks/{backlog}")).await.expect(200);
        eventually("the queues of the deleted webhook are closed", async || {
            (left().await == 0).then_some(())
        })
        .await;
    });
}

#[test]
fn webhooks_that_are_made_and_deleted_again_and_again_leave_no_attempts_behind() {
    run(async {
        let instance = Merchant::new().await.instance;
        // Longer than this test waits for anything: no attempt ends by its timeout.
        let flags = ["--allow-address=127.0.0.0/8", "--webhook-timeout-seconds=120"];
        let gateway = SideGateway::start(instance, &flags).await;
        let slow = gateway.merchant_of_its_own(instance, "1").await;
        let other = gateway.merchant_of_its_own(instance, "1").await;
        let gate = Gate::default();
        let hanging = hanging_until(&gate, &slow);
        // More attempts than a gateway makes at once. The webhooks of every second round are disabled first.
        let rounds = QUEUES_OF_ALL / (3 * QUEUES_PER_WEBHOOK) + 2;
        for round in 1..=rounds {
            let mut hooks = Vec::new();
            for _ in 0..3 {
                hooks.push(hook(&slow, &hanging.url, &["customer.created"]).await);
            }
            for number in 0..QUEUES_PER_WEBHOOK {
                slow.customer_called(&format!("c{round}.{number}"), "0").await;
            }
            eventually("the queues of its webhooks are full", async || {
                (hanging.calls().len() >= round * 3 * QUEUES_PER_WEBHOOK).then_some(())
            })
            .await;
            for id in hooks {
                let url = format!("/v1/webhooks/{id}");
                if round % 2 == 0 {
                    slow.patch(&url, &json!({"enabled": false})).await.expect(200);
                    eventually("its deliveries are given up", async || {
                        let pending = slow.log.sql.query_one(PENDING, &[&id]).await.unwrap();
                        (pending.get::<_, i64>(0) == 0).then_some(())
                    })
                    .await;
                }
                slow.delete(&url).await.expect(200);
            }
        }
        let good = receiver(&other, |_| answer_json(200, &json!({})));
        hook(&other, &good.url, &["customer.created"]).await;
        other.customer_called("c", "0").await;
        eventually("the other merchant's event arrives", async || (good.calls().len() == 1).then_some(()))
            .await;
        assert!(hanging.calls().iter().all(|call| !call.is_finished()), "the gate is closed");
        gate.open();
    });
}

#[test]
fn many_merchants_whose_receivers_hang_leave_deliveries_to_others() {
    run(async {
        let instance = Merchant::new().await.instance;
        // No attempt ends by its timeout while this test waits.
        let flags = ["--allow-address=127.0.0.0/8", "--webhook-timeout-seconds=120"];
        let gateway = SideGateway::start(instance, &flags).await;
        let other = gateway.merchant_of_its_own(instance, "1").await;
        let gate = Gate::default();
        let hanging = hanging_until(&gate, &other);
        // One merchant more than would take all deliveries of the gateway.
        for _ in 0..=QUEUES_OF_ALL / (3 * QUEUES_PER_WEBHOOK) {
            let slow = gateway.merchant_of_its_own(instance, "1").await;
            for _ in 0..3 {
                hook(&slow, &hanging.url, &["customer.created"]).await;
            }
            for number in 0..QUEUES_PER_WEBHOOK {
                slow.customer_called(&format!("c{number}"), "0").await;
            }
        }
        let held = settled(CALM, async || hanging.calls().len()).await;
        assert!(held > QUEUES_OF_ALL / 2, "they hold {held}");
        events_arrive(&other, 2 * QUEUES_PER_WEBHOOK).await;
        assert!(hanging.calls().iter().all(|call| !call.is_finished()), "the gate is closed");
        gate.open();
        eventually("so do all of the others, in the end", async || {
            let all = (QUEUES_OF_ALL / (3 * QUEUES_PER_WEBHOOK) + 1) * 3 * QUEUES_PER_WEBHOOK;
            (hanging.calls().len() == all).then_some(())
        })
        .await;
    });
}

#[test]
fn what_a_receiver_answers_costs_one_attempt_and_no_memory() {
    run(async {
        let merchant = Merchant::new().await;
        let inner = receiver(&merchant, |_| answer_json(200, &json!({})));
        let (body, heads) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let location = inner.url.clone();
        let redirect = move |status: u16| whole(status, &[("Location", &location)], b"");
        let flood = |sent: &Arc<AtomicU64>| Step::Flood(u64::MAX, Arc::clone(sent));
        let endless = [("Content-Length", "1000000000000")];
        let bomb = [("Content-Encoding", "br"), ("Content-Type", "application/json")];
        let answers: BTreeMap<&str, (Vec<Step>, Option<u16>, bool)> = BTreeMap::from([
            ("redirect 301", (redirect(301), Some(301), false)),
            ("redirect 302", (redirect(302), Some(302), false)),
            ("redirect 303", (redirect(303), Some(303), false)),
            ("redirect 307", (redirect(307), Some(307), false)),
            ("redirect 308", (redirect(308), Some(308), false)),
            ("endless body", (vec![head(200, &endless), flood(&body)], Some(200), true)),
            ("endless body of an error", (vec![head(500, &endless), flood(&body)], Some(500), false)),
            (
                "endless head",
                (vec![Step::Bytes(b"HTTP/1.1 200 OK\r\nX: ".to_vec()), flood(&heads)], None, false),
            ),
            (
                "body that never comes",
                (vec![head(200, &endless), Step::Wait(Gate::default())], Some(200), true),
            ),
            (
                "another protocol",
                (vec![head(101, &[("Connection", "upgrade"), ("Upgrade", "x")])], Some(101), false),
            ),
            ("not HTTP", (vec![Step::Bytes(b"SSH-2.0-OpenSSH\r\n\r\n".to_vec()), Step::Close], None, false)),
            (
                "two lengths",
                (vec![head(200, &[("Content-Length", "1"), ("Content-Length", "2")])], None, false),
            ),
            ("bomb", (whole(200, &bomb, &b"[".repeat(60_000)), Some(200), true)),
        ]);
        for (what, (steps, status, delivered)) in answers {
            let hostile = receiver(&merchant, move |_| steps.clone());
            let id = hook(&merchant, &hostile.url, &["customer.created"]).await;
            merchant.customer_called(what, "0").await;
            let delivery = attempted(&merchant, &id).await;
            assert_eq!(delivery["last_status_code"], json!(status), "{what}: {delivery}");
            assert_eq!(delivery["status"] == "delivered", delivered, "{what}: {delivery}");
            let error = delivery["last_error"].as_str().unwrap_or_default();
            assert!(!error.contains("127.0.0.1") && !error.contains("SSH"), "{what}: {error}");
            merchant.delete(&format!("/v1/webhooks/{id}")).await.expect(200);
        }
        assert!(inner.calls().is_empty(), "redirects are not followed");
        for sent in [&body, &heads] {
            assert!(sent.load(Ordering::SeqCst) < MAX_SENT, "{sent:?}");
        }
    });
}

#[test]
fn a_webhook_is_not_sent_to_an_address_of_the_inside_however_it_is_written() {
    run(async {
        let merchant = Merchant::new().await;
        let good = receiver(&merchant, |_| answer_json(200, &json!({})));
        let id = hook(&merchant, &good.url, &["customer.created"]).await;
        for url in [
            "http://169.254.169.254/latest/meta-data/",
            "http://[::ffff:169.254.169.254]/",
            "http://[::ffff:a9fe:a9fe]/",
            "http://[64:ff9b::a9fe:a9fe]/",
            "http://[2002:a9fe:a9fe::]/",
            "http://[fe80::1]/",
            "http://[fd00:ec2::254]/",
            "http://[::]/",
            "http://0.0.0.0/",
            "http://0/",
            "http://2852039166/",
            "http://0xa9fea9fe/",
            "http://0251.0376.0251.0376/",
            "http://169.254.43518/",
            "http://169.254.169.254.:80/",
            "http://10.0.0.1:5432/",
            "http://192.168.1.1/",
            "http://100.64.0.1/",
            "http://\u{ff11}\u{ff16}\u{ff19}.254.169.254/",
            "http://user@169.254.169.254/",
            "http://good.example@169.254.169.254/",
            "http://169.254.169.254#@good.example/",
            "http://good.example\\@169.254.169.254/",
            "http://169.254.169.254\t/",
            "http:/169.254.169.254/",
            "http:169.254.169.254",
            "gopher://169.254.169.254/",
            "unix:/tmp/socket",
            "http://169.254.169.254:99999/",
            "http://a\r\nHost: b/",
        ] {
            let body = json!({"url": url, "events": ["customer.created"]});
            let made = merchant.post("/v1/webhooks", &body).await;
            let changed = merchant.patch(&format!("/v1/webhooks/{id}"), &json!({"url": url})).await;
            assert_eq!(made.status == 201, changed.status == 200, "{url}: {}", changed.text());
            if made.status != 201 {
                made.refused(400, "validation_error");
                continue;
            }
            // What a name resolves to is known when it is dialled.
            let made = made.json()["webhook_id"].as_str().unwrap().to_owned();
            merchant.customer_called(url, "0").await;
            for id in [&made, &id] {
                let delivery = eventually("it is not sent", async || {
                    let delivery = deliveries(&merchant, id).await.into_iter().next()?;
                    (delivery["attempts"].as_u64() > Some(0)).then_some(delivery)
                })
                .await;
                // A host with a dot at its end is a name, which nobody knows.
                let error = delivery["last_error"].as_str().unwrap();
                let refused = ["the receiver's address is not allowed", "the receiver could not be reached"];
                assert!(refused.contains(&error), "{url}: {delivery}");
                assert_eq!(delivery["last_status_code"], Value::Null);
            }
            merchant.delete(&format!("/v1/webhooks/{made}")).await.expect(200);
        }
        assert!(good.calls().is_empty());
    });
}

#[test]
fn a_name_that_turns_inward_after_its_webhook_was_made_is_not_dialled() {
    run(async {
        let turned = Arc::new(AtomicBool::new(false));
        let is_turned = Arc::clone(&turned);
        let servers = NameServer::start(move |_| {
            Answer::of(&[if is_turned.load(Ordering::SeqCst) { "10.0.0.1" } else { "127.0.0.1" }], 0)
        })
        .await;
        let flags = ["--allow-address=127.0.0.0/8", "--webhook-retry-ms=50", &servers.flag()];
        let gateway = SideGateway::start(Instance::shared().await, &flags).await;
        let merchant = gateway.merchant_of_its_own(Instance::shared().await, "1").await;
        let closing = receiver(&merchant, |_| {
            [whole(200, &[("Connection", "close")], b""), vec![Step::Close]].concat()
        });
        let url = closing.url.replace("127.0.0.1", "hook.test");
        let id = hook(&merchant, &url, &["customer.created"]).await;
        merchant.customer_called("before", "0").await;
        eventually("the name is dialled", async || (!closing.calls().is_empty()).then_some(())).await;
        turned.store(true, Ordering::SeqCst);
        let mut number = 0;
        let refused = eventually("the name is refused", async || {
            // An answer that is kept may serve a few more.
            number += 1;
            merchant.customer_called(&format!("after {number}"), "0").await;
            let all = deliveries(&merchant, &id).await;
            all.into_iter().find(|delivery| !delivery["last_error"].is_null())
        })
        .await;
        assert_eq!(refused["last_error"], "the receiver's address is not allowed");
    });
}

#[test]
fn odd_and_large_data_are_refused_or_delivered_as_they_are() {
    run(async {
        let merchant = Merchant::new().await;
        let good = receiver(&merchant, |_| answer_json(200, &json!({})));
        hook(&merchant, &good.url, &["customer.created"]).await;
        for body in [
            r#"{"metadata": {"a": "\ud800"}}"#,
            r#"{"metadata": {"a": "\u0000"}}"#,
            r#"{"name": "\udfff\ud800"}"#,
            r#"{"name": "a\u0000b"}"#,
            r#"{"reference_id": "\u0000"}"#,
            "{\"metadata\": {\"a\": \"\u{0}\"}}",
        ] {
            let request = Request::new("POST", "/v1/customers").header("Content-Type", "application/json");
            let request = request.body(farthing_tests::client::Body::Whole(body.as_bytes().to_vec()));
            let refused = merchant.rest(request).await;
            assert_eq!(refused.status, 400, "{body:?}: {}", refused.text());
        }
        let bytes = b"{\"name\": \"\xed\xa0\x80\xff\"}".to_vec();
        let request = Request::new("POST", "/v1/customers").header("Content-Type", "application/json");
        let refused = merchant.rest(request.body(farthing_tests::client::Body::Whole(bytes))).await;
        assert_eq!(refused.status, 400, "{}", refused.text());
        assert_eq!(merchant.of_kind("customer.created").await.len(), 0);

        let largest = "\u{10ffff}".repeat(255);
        let metadata: serde_json::Map<String, Value> =
            (0..100).map(|number| (format!("{number:0>255}"), json!(largest))).collect();
        let body = json!({
            "reference_id": "\r\n\"event\":\"x\"}\u{2028}\u{202e}</script>", "name": "\u{1}\u{7f} \\\"",
            "metadata": metadata,
        });
        let made = merchant.post("/v1/customers", &body).await.expect(201);
        let call = eventually("it is delivered", async || good.calls().into_iter().next()).await;
        let delivered: Value = serde_json::from_slice(&call.body).unwrap();
        assert_eq!(delivered["event"], "customer.created");
        assert_eq!(delivered["data"], json!({"customer": made}));
        assert_eq!(call.head.header("content-length"), Some(call.body.len().to_string().as_str()));
        assert!(
            !merchant.instance.output().contains("whsec_"),
            "the program's output has a webhook's secret"
        );
    });
}
