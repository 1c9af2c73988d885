//! `farthing dev` on servers that it has not started, beside another instance on the same servers.

use std::process::Stdio;

use async_nats::jetstream;
use farthing_tests::instance::{Instance, program};
use farthing_tests::merchant::Merchant;
use farthing_tests::process::signal;
use farthing_tests::run;
use farthing_tests::wait::{eventually, within};
use serde_json::Value;

/// The time for `farthing dev` to start.
const START: std::time::Duration = std::time::Duration::from_mins(2);

#[test]
fn an_instance_on_given_servers_keeps_to_its_own_names_and_leaves_the_servers_running() {
    run(async {
        let instance = Instance::shared().await;
        let (shared, name) = (instance.ready(), instance.name_of("given"));
        let database_url = instance.create_database("given").await;
        let ready_file = instance.file("given.json");
        let mut dev = tokio::process::Command::new(program())
            .args(["dev", "--listen=127.0.0.1:0", "--nats-prefix", &name, "--data"])
            .arg(instance.file("given"))
            .arg("--ready-file")
            .arg(&ready_file)
            .env("FARTHING_DEV_DATABASE_URL", &database_url)
            .env("FARTHING_DEV_NATS_URL", &shared.nats_url)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let ready: Value = within(START, "the instance comes up", async || {
            assert!(dev.try_wait().unwrap().is_none(), "farthing dev ended at once");
            serde_json::from_str(&std::fs::read_to_string(&ready_file).ok()?).ok()
        })
        .await;
        assert_eq!(ready["database_url"], database_url);
        assert_eq!(ready["nats_prefix"], name);
        assert_eq!((&ready["pids"]["postgres"], &ready["pids"]["nats"]), (&Value::Null, &Value::Null));

        // The demo merchant's events are in the streams of this instance, and in no other.
        let context = jetstream::new(instance.nats().await);
        eventually("the demo merchant is in the feed", async || {
            let mut published = 0;
            for partition in 0..8 {
                let stream = context.get_stream(format!("{name}-LEDGER-{partition}")).await.ok()?;
                let info = stream.get_info().await.ok()?;
                assert_eq!(info.config.subjects, [format!("{name}.ledger.{partition}")]);
                published += info.state.messages;
            }
            (published > 0).then_some(())
        })
        .await;

        signal(dev.id().unwrap(), "TERM");
        assert!(dev.wait().await.unwrap().success());
        // Both servers run, and the other instance was not disturbed.
        Merchant::new().await.get("/v1/requests").await.expect(200);
        for partition in 0..8 {
            context.delete_stream(format!("{name}-LEDGER-{partition}")).await.unwrap();
        }
    });
}
