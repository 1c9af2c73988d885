//! Read models with nothing to write: readers see by idle spans how far they have come, whatever their checkpoints say.

use farthing_tests::client::Response;
use farthing_tests::instance::Instance;
use farthing_tests::merchant::Merchant;
use farthing_tests::process::signal;
use farthing_tests::wait::eventually;
use serde_json::json;

use crate::twins::is_stale;
use crate::{put_away, run};

/// Puts the checkpoint of the plans in partition $1 at the position $2.
const PUT_CHECKPOINT: &str = "UPDATE plans.checkpoint SET position = $2 WHERE partition = $1";

/// Puts the idle span of the plans in partition $1 after position $2, up to $3.
const PUT_SPAN: &str = "UPDATE ledger.idle_spans SET starts_after = $2, ends_at = $3 WHERE partition = $1 AND read_model = 'plans'";

/// Whether the plans are shown further than their checkpoint in partition $1.
const IS_IDLE: &str = "\
SELECT s.ends_at > c.position FROM plans.checkpoint AS c JOIN ledger.idle_spans AS s USING (partition)
WHERE partition = $1 AND s.read_model = 'plans' AND s.starts_after <= c.position";

/// Lets nothing be written into the plans.
const REFUSE_PLANS: &str = "\
CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused'; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON plans.plans FOR EACH ROW EXECUTE FUNCTION public.refuse()";

const LET_PLANS: &str = "DROP TRIGGER refuse ON plans.plans";

async fn plans(merchant: &Merchant) -> Response {
    let shown = merchant.get("/v1/plans").await;
    shown.expect(200);
    shown
}

#[test]
fn a_read_model_without_changes_is_fresh_before_its_checkpoint_moves() {
    run(async {
        let instance = Instance::of_test(1).await;
        let merchant = Merchant::of(instance).await;
        let partition = merchant.partition().await;
        eventually("a checkpoint stays behind an idle span", async || {
            merchant.post("/v1/customers", &json!({})).await.expect(201);
            assert!(!is_stale(&plans(&merchant).await));
            let found = merchant.log.sql.query_opt(IS_IDLE, &[&partition]).await.unwrap();
            found.is_some_and(|row| row.get(0)).then_some(())
        })
        .await;
        // A change is written at once, and ends the span.
        let plan = json!({"name": "free", "period_amount": 0, "included_credit": "1"});
        let made = merchant.post("/v1/plans", &plan).await.expect(201);
        let shown = plans(&merchant).await;
        assert!(!is_stale(&shown));
        assert_eq!(shown.json()["data"][0]["plan_id"], made["plan_id"]);
        let report = instance.operate(&["projections", "verify", "plans"]).await;
        assert_eq!(report["differences"], 0, "{report}");
        put_away(instance).await;
    });
}

/// A merchant, and its partition, in which no merchant has a plan or a meter: the checkpoint of the plans can be put back
/// there to any position, because no row is written twice.
async fn merchant_without_plans(instance: &'static Instance) -> (Merchant, i16) {
    const ARE_PLANS: &str = "SELECT EXISTS (SELECT FROM plans.meter_slugs WHERE partition = $1)";
    loop {
        let merchant = Merchant::of(instance).await;
        let partition = merchant.partition().await;
        // The demo's merchant and its meter were made before the instance was ready.
        let are_shown = async || (!is_stale(&plans(&merchant).await)).then_some(());
        eventually("the plans of the partition are shown", are_shown).await;
        let found = merchant.log.sql.query_one(ARE_PLANS, &[&partition]).await.unwrap();
        if !found.get::<_, bool>(0) {
            return (merchant, partition);
        }
    }
}

#[test]
fn an_idle_span_counts_only_from_a_checkpoint_inside_it() {
    run(async {
        let instance = Instance::of_test(1).await;
        let (merchant, partition) = merchant_without_plans(instance).await;
        let sql = &merchant.log.sql;
        eventually("the projector has written a span", async || {
            merchant.post("/v1/customers", &json!({})).await.expect(201);
            (sql.execute(PUT_SPAN, &[&partition, &0_i64, &0_i64]).await.unwrap() == 1).then_some(())
        })
        .await;
        let lag = async || {
            let listed = instance.operate(&["partitions"]).await;
            listed["data"][usize::try_from(partition).unwrap()]["read_model_lag"].as_i64().unwrap()
        };
        eventually("all read models are at the head", async || (lag().await == 0).then_some(())).await;
        let projector = instance.ready().pids.projectors[0];
        signal(projector, "STOP");
        let heads = merchant.log.heads().await;
        let head = heads.iter().find(|head| head.partition == partition).unwrap().position;
        assert!(head > 2);
        for (checkpoint, (after, end), fresh) in [
            (0_i64, (0_i64, head), true),
            (1, (0, head), true),
            (0, (1, head), false),
            (0, (0, head - 1), false),
            (head, (0, 1), true),
        ] {
            sql.execute(PUT_CHECKPOINT, &[&partition, &checkpoint]).await.unwrap();
            sql.execute(PUT_SPAN, &[&partition, &after, &end]).await.unwrap();
            let shown = plans(&merchant).await;
            let case = format!("the checkpoint at {checkpoint}, a span after {after} up to {end}");
            assert_eq!((!is_stale(&shown), lag().await == 0), (fresh, fresh), "{case}");
        }
        sql.execute(PUT_CHECKPOINT, &[&partition, &0_i64]).await.unwrap();
        signal(projector, "CONT");
        // With the next events the projector is fenced, and begins at the checkpoint that it finds.
        eventually("the plans are fresh", async || {
            merchant.post("/v1/customers", &json!({})).await.expect(201);
            (!is_stale(&plans(&merchant).await)).then_some(())
        })
        .await;
        put_away(instance).await;
    });
}

#[test]
fn a_read_model_that_cannot_be_written_holds_up_no_other() {
    run(async {
        let instance = Instance::of_test(1).await;
        let merchant = Merchant::of(instance).await;
        merchant.log.sql.batch_execute(REFUSE_PLANS).await.unwrap();
        let plan = json!({"name": "free", "period_amount": 0, "included_credit": "1"});
        let made = merchant.post("/v1/plans", &plan).await.expect(201);
        let shown = plans(&merchant).await;
        assert!(is_stale(&shown) && shown.json()["data"] == json!([]), "{}", shown.text());
        for path in ["/v1/customers", "/v1/meters", "/v1/requests"] {
            let customer = merchant.post("/v1/customers", &json!({})).await.expect(201);
            let shown = merchant.get(path).await;
            assert!(!is_stale(&shown), "{path}: {}", shown.text());
            let shown = merchant.get("/v1/customers?limit=1").await;
            assert!(!is_stale(&shown));
            assert_eq!(shown.expect(200)["data"][0]["customer_id"], customer["customer_id"]);
        }
        assert!(is_stale(&plans(&merchant).await));
        merchant.log.sql.batch_execute(LET_PLANS).await.unwrap();
        eventually("the plans are fresh", async || (!is_stale(&plans(&merchant).await)).then_some(())).await;
        assert_eq!(plans(&merchant).await.json()["data"][0]["plan_id"], made["plan_id"]);
        let report = instance.operate(&["projections", "verify", "plans"]).await;
        assert_eq!(report["differences"], 0, "{report}");
        put_away(instance).await;
    });
}
