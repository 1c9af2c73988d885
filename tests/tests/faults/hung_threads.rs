//! A gateway whose shared threads hang, while its threads of leases and heartbeats run on.

use farthing_tests::client::{Connection, Request};
use farthing_tests::instance::Instance;
use farthing_tests::leader::{led, spread, taken_over};
use farthing_tests::log::Log;
use farthing_tests::merchant::Merchant;
use farthing_tests::process::is_running;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::eventually;
use serde_json::json;

use crate::leaders::FLAGS;
use crate::{put_away, run};

/// A line for each command that is sent to another gateway, written on the shared threads alone.
const FILTER: (&str, &str) = ("FARTHING_LOG", "info,hyper_util=trace");

/// Whether a gateway sends heartbeats.
const BEAT: &str = "SELECT beat FROM ledger.gateway_lease WHERE gateway_id = $1";

async fn beat(log: &Log, gateway: &str) -> Option<i64> {
    log.sql.query_opt(BEAT, &[&gateway]).await.unwrap().map(|row| row.get(0))
}

#[test]
fn a_gateway_that_hangs_on_a_log_that_nobody_reads_leads_no_longer() {
    run(async {
        let instance = Instance::of_test(1).await;
        // More threads would need more lines of the log to hang.
        let flags = [&FLAGS[..], &["--threads", "1"]].concat();
        let (side, pipe) = SideGateway::with_log_pipe(instance, &flags, &[FILTER]).await;
        let (log, side_id) = (instance.log().await, side.id().await);
        let own_id = spread(&log.sql, 2).await.into_keys().find(|gateway| *gateway != side_id).unwrap();
        let of_side = Merchant::led_by(instance, &side_id).await;
        let partition = of_side.partition().await;
        // Its commands are sent to the instance's gateway.
        let of_own = Merchant::led_by(instance, &own_id).await;
        let request = Request::new("POST", "/v1/customers").bearer(&of_own.secret_key).json(&json!({}));

        pipe.set_read(false);
        let requests: Vec<_> = (0..8)
            .map(|_| {
                let (request, address) = (request.clone(), side.address);
                tokio::spawn(async move {
                    let mut connection = Connection::open(address).await.unwrap();
                    // The last one is not answered before the pipe is read again.
                    while connection.send(&request).await.is_ok() && connection.response("POST").await.is_ok()
                    {
                    }
                })
            })
            .collect();
        assert_eq!(taken_over(&log.sql, partition, &side_id).await, own_id);
        assert!(is_running(side.pid()), "it hangs and has not ended");
        assert!(led(&log.sql).await.into_keys().eq([own_id]));
        of_side.credit_own("1").await;
        eventually("a sweeper takes it for dead", async || {
            beat(&log, &side_id).await.is_none().then_some(())
        })
        .await;

        pipe.set_read(true);
        spread(&log.sql, 2).await;
        eventually("it sends heartbeats again", async || beat(&log, &side_id).await).await;
        for task in requests {
            task.abort();
        }
        of_side.credit_own("1").await;
        eventually("it says why", async || {
            side.logged().contains("the shared threads of this process hang").then_some(())
        })
        .await;
        drop(side);
        put_away(instance).await;
    });
}
