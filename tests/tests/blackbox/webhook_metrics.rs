//! The metrics of webhook deliveries: attempts by their outcome, and how long what is due has waited.

use farthing_tests::instance::Instance;
use farthing_tests::merchant::Merchant;
use farthing_tests::provider::json;
use farthing_tests::run;
use farthing_tests::scrape::{Scrape, scrape};
use farthing_tests::wait::eventually_ok;
use serde_json::json;

/// Lets the only pending delivery have been due for two hours, while its queue still waits.
const MAKE_DUE: &str = "\
UPDATE webhooks.delivery SET next_attempt_at = now() - interval '2 hours' WHERE status = 'pending'";
const PENDING: &str = "SELECT count(*) FROM webhooks.delivery WHERE status = 'pending' AND attempts = 1";

/// The metrics of the gateway once they satisfy `is_so`.
async fn once(instance: &Instance, what: &str, is_so: impl Fn(&Scrape) -> bool) -> Scrape {
    eventually_ok(what, async || {
        let now = scrape(instance.operator(0)).await;
        let attempts = now.count("farthing_webhook_attempts_total", &[]);
        let overdue = now.values("farthing_webhook_overdue_seconds", &[]);
        if is_so(&now) { Ok(now) } else { Err(format!("{attempts} {overdue:?}")) }
    })
    .await
}

#[test]
fn a_delivery_that_waits_for_its_retry_is_not_overdue_and_one_that_is_due_is() {
    run(async {
        let flags = &["--webhook-retry-ms=3600000"];
        let instance = Instance::of_test_with(1, flags).await;
        let merchant = Merchant::of(instance).await;
        let fails = instance.provider.endpoint(|_| json(500, &json!({})));
        let webhook = json!({"url": fails.url, "events": ["customer.created"]});
        merchant.post("/v1/webhooks", &webhook).await.expect(201);
        merchant.customer("0").await;
        let queues = |now: &Scrape| format!("{:?}", now.values("farthing_webhook_queues", &[])) == "[1.0]";
        let overdue = |now: &Scrape| now.values("farthing_webhook_overdue_seconds", &[])[0];
        // It was counted after its attempt, since it has a queue only until then and after it.
        eventually_ok("the attempt fails", async || {
            let pending: i64 = merchant.log.sql.query_one(PENDING, &[]).await.unwrap().get(0);
            if pending == 1 { Ok(()) } else { Err(pending.to_string()) }
        })
        .await;
        let waiting = once(instance, "its queue is counted", |now| queues(now) && overdue(now) <= 0.0).await;
        assert_eq!(waiting.count("farthing_webhook_attempts_total", &[("outcome", "failed")]), 1);
        assert_eq!(waiting.count("farthing_webhook_attempts_total", &[]), 1);
        let projector = scrape(instance.projector_operator()).await;
        assert_eq!(projector.count("farthing_webhook_deliveries_queued_total", &[]), 1);
        assert_eq!(merchant.log.sql.execute(MAKE_DUE, &[]).await.unwrap(), 1);
        let late = once(instance, "it is overdue", |now| overdue(now) >= 7_200.0).await;
        assert!(queues(&late) && overdue(&late) < 10_000.0, "{}", overdue(&late));
        instance.stop().await;
        instance.clear();
    });
}
