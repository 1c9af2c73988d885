//! A partition that no gateway can lead: its leases go around, and the metrics say that nobody leads it.

use farthing_tests::instance::Instance;
use farthing_tests::leader::spread;
use farthing_tests::merchant::Merchant;
use farthing_tests::scrape::scrape;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::{eventually, eventually_ok, within};

use crate::{HEAL, put_away, run};

/// Nobody can begin a term in the last partition.
const REFUSE: &str = "\
CREATE FUNCTION public.refuse_terms() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a test';
END $$;
CREATE TRIGGER refuse_terms BEFORE UPDATE ON ledger.heads FOR EACH ROW
WHEN (NEW.partition = 7 AND NEW.epoch <> OLD.epoch) EXECUTE FUNCTION public.refuse_terms()";

const ALLOW: &str = "DROP TRIGGER refuse_terms ON ledger.heads";

/// So many scrapes in a row say the same: the leases are free for moments only, while they go around.
const SCRAPES: usize = 50;

#[test]
fn a_partition_that_no_gateway_can_lead_counts_as_one_without_a_leader() {
    run(async {
        let instance = Instance::of_test(1).await;
        let log = instance.log().await;
        spread(&log.sql, 1).await;
        log.sql.batch_execute(REFUSE).await.unwrap();
        // It gets the last four partitions.
        let side = SideGateway::start(instance, &["--allow-address=127.0.0.0/8"]).await;
        let own_log = instance.data.join("logs/gateway-0.log");
        within(HEAL, "both have tried", async || {
            let own = std::fs::read_to_string(&own_log).ok()?;
            [own, side.logged()].iter().all(|logged| logged.contains("leases.given_up")).then_some(())
        })
        .await;
        for operator in [instance.operator(0), side.operator] {
            let shown = scrape(operator).await;
            for name in ["farthing_leases_given_up_total", "farthing_terms_not_begun_total"] {
                assert!(shown.count(name, &[]) > 0, "{name}");
            }
        }
        let unled = async || {
            let mut most: f64 = 0.0;
            for operator in [instance.operator(0), side.operator] {
                most = most.max(scrape(operator).await.values("farthing_partitions_without_leader", &[])[0]);
            }
            format!("{most}")
        };
        eventually("nobody leads it all the while", async || {
            for _ in 0..SCRAPES {
                if unled().await != "1" {
                    return None;
                }
            }
            Some(())
        })
        .await;
        log.sql.batch_execute(ALLOW).await.unwrap();
        eventually_ok("it is led again", async || {
            let unled = unled().await;
            if unled == "0" { Ok(()) } else { Err(unled) }
        })
        .await;
        let merchant = Merchant::whose_partition(instance, |partition| partition == 7).await;
        merchant.credit_own("1").await;
        drop(side);
        put_away(instance).await;
    });
}
