//! A whole deployment with a login for each role: it is well, and then its processes stop.

use farthing_log::nats::NatsConfig;
use farthing_tests::client::Request;
use farthing_tests::instance::Instance;
use farthing_tests::nats_server::NatsServer;
use farthing_tests::run;
use farthing_tests::servers;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::side_projector::SideProjector;
use farthing_tests::tenant::Tenant;
use farthing_tests::wait::{DEADLINE, eventually_ok};
use futures_util::StreamExt as _;
use serde_json::json;

use super::nats::documented_logins;
use super::{Report, doctor};

/// What depends on the machine, and on other tests that use its Postgres.
const OF_THE_MACHINE: [&str; 2] = ["postgres.connections", "postgres.disk"];

const PREFIX: &str = "--nats-prefix=doctor";

/// Waits until a report is as it is expected.
async fn report_until(url: &str, flags: &[&str], what: &str, is_there: impl Fn(&Report) -> bool) -> Report {
    eventually_ok(what, async || {
        let report = doctor(url, flags).await;
        if is_there(&report) { Ok(report) } else { Err(report.json.to_string()) }
    })
    .await
}

#[test]
fn a_deployment_with_a_login_for_each_role_is_well_until_its_processes_stop() {
    run(async {
        let instance = Instance::shared().await;
        let tenant = Tenant::on(instance, "doctor_deployment", "test").await;
        let (_, server) = tenant.database_url.split_once('@').unwrap();
        let (gateway_login, projector_login) =
            (instance.name_of("doctor_gateway"), instance.name_of("doctor_projector"));
        let create = format!(
            "CREATE ROLE {gateway_login} LOGIN PASSWORD 'secret'; GRANT farthing_gateway TO {gateway_login};
             CREATE ROLE {projector_login} LOGIN PASSWORD 'secret'; GRANT farthing_projector TO {projector_login}"
        );
        tenant.log.sql.batch_execute(&create).await.unwrap();
        let of_gateway = format!("postgres://{gateway_login}:secret@{server}");
        let of_projector = format!("postgres://{projector_login}:secret@{server}");
        let nats = NatsServer::start(instance, &documented_logins("doctor")).await;
        let nats_url = |login: &str| format!("nats://{login}:secret@127.0.0.1:{}", nats.port);
        let [gateway_nats, projector_nats] =
            ["gateway", "projector"].map(|login| format!("--nats-url={}", nats_url(login)));
        let flags = [projector_nats.as_str(), PREFIX];
        let outside = NatsConfig::at(nats_url("projector")).connect(|options| options).await.unwrap();
        let mut wake_ups = outside.subscribe("doctor.farthing.head.*").await.unwrap();
        outside.flush().await.unwrap();

        let before = doctor(&tenant.database_url, &flags).await;
        before.expect("processes.gateways", "failed", "no gateway runs");
        before.expect("processes.leaders", "failed", "partitions without a leader: 0, 1, 2, 3, 4, 5, 6, 7");
        before.expect("processes.projector", "failed", "no projector runs");
        before.expect("feed.streams", "failed", "streams are missing: doctor-LEDGER-0, doctor-LEDGER-1");

        let servers = [
            ["--database-url", &of_gateway, &gateway_nats, PREFIX],
            ["--database-url", &of_projector, &projector_nats, PREFIX],
        ];
        let gateway = SideGateway::with(instance, &servers[0], &["--webhook-timeout-seconds=10"]).await;
        tenant.post(gateway.address, "/v1/customers", &json!({"reference_id": "ada"})).await.expect(201);
        let next = tokio::time::timeout(DEADLINE, wake_ups.next()).await;
        assert!(next.is_ok_and(|message| message.is_some()), "the gateway notifies: {}", gateway.logged());
        let projector = SideProjector::with(instance, &servers[1]).await;

        let has_lz4 = servers::has_lz4(&tenant.log).await;
        let is_well = |report: &Report| {
            let not_well = [report.with("failed"), report.with("warning")].concat();
            let of_the_server = |check: &str| check == "postgres.compression" && !has_lz4;
            not_well.iter().all(|check| OF_THE_MACHINE.contains(check) || of_the_server(check))
        };
        let well = report_until(&tenant.database_url, &flags, "the deployment is well", is_well).await;
        let skipped = well.with("skipped");
        let not_of_machine: Vec<_> =
            skipped.into_iter().filter(|check| !OF_THE_MACHINE.contains(check)).collect();
        assert_eq!(not_of_machine, ["postgres.certificate", "nats.certificate"], "no TLS, on one machine");
        well.expect("processes.leaders", "ok", "all 8 partitions have a leader");
        well.expect("rights.processes", "ok", "");
        well.expect("feed.streams", "ok", "8 streams");
        well.expect("lag.relay", "ok", "up to date");

        // The login of a process sees less, and nothing seems broken to it.
        for (url, nats_flag, hidden) in [
            (&of_gateway, &gateway_nats, ["database.migrations"].as_slice()),
            (
                &of_projector,
                &projector_nats,
                &["database.migrations", "processes.gateways", "processes.leaders"],
            ),
        ] {
            let report = report_until(url, &[nats_flag, PREFIX], "it is well for the process", is_well).await;
            for check in hidden {
                report.expect(check, "skipped", "may not read");
            }
            report.expect("rights.login", "ok", "alone");
            report.expect("nats.reached", "ok", "takes the login");
            if nats_flag == &gateway_nats {
                report.expect("nats.jetstream", "skipped", "this login may not");
                report.expect("feed.streams", "skipped", "this login may not");
                report.expect("lag.relay", "skipped", "see nats.jetstream");
            } else {
                report.expect("lag.relay", "ok", "up to date");
            }
        }
        for log in [gateway.logged(), projector.logged()] {
            assert!(!log.to_ascii_lowercase().contains("permissions violation"), "{log}");
        }

        let replicas = doctor(&tenant.database_url, &[flags[0], PREFIX, "--feed-replicas=3"]).await;
        replicas.expect("feed.replicas", "warning", "doctor-LEDGER-0 has 1");

        drop(projector);
        let stopped = |report: &Report| report.of("processes.projector") == ("failed", "no projector runs");
        report_until(&tenant.database_url, &flags, "the projector has stopped", stopped).await;
        tenant.post(gateway.address, "/v1/customers", &json!({"reference_id": "bob"})).await.expect(201);
        let lagging = doctor(&tenant.database_url, &flags).await;
        for check in ["lag.read_models", "lag.webhook_outbox", "lag.relay"] {
            let (verdict, found) = lagging.of(check);
            assert!(
                ["warning", "failed"].contains(&verdict) && found.contains("events behind"),
                "{check}: {found}"
            );
        }

        drop(gateway);
        let alone = report_until(&tenant.database_url, &flags, "no gateway runs", |report| {
            report.of("processes.gateways").1 == "no gateway runs"
        })
        .await;
        alone.expect("processes.leaders", "failed", "partitions without a leader");
        assert_eq!(alone.exit_code, Some(2));
        let shown = tenant.log.sql.query_one("SELECT count(*) FROM ledger.heads", &[]).await.unwrap();
        assert_eq!(shown.get::<_, i64>(0), 8);
    });
}

#[test]
fn a_call_goes_on_while_the_doctor_looks() {
    run(async {
        let instance = Instance::shared().await;
        let ready = instance.ready();
        let prefix = format!("--nats-prefix={}", ready.nats_prefix);
        let mut flags = vec!["--nats-url", ready.nats_url.as_str()];
        flags.extend((!ready.nats_prefix.is_empty()).then_some(prefix.as_str()));
        let report = doctor(&ready.database_url, &flags);
        let read = async {
            let request = Request::new("GET", "/v1/customers").bearer(&ready.secret_key);
            request.send(instance.gateway(0)).await.unwrap().expect(200)
        };
        let (report, _) = tokio::join!(report, read);
        for check in ["processes.gateways", "processes.leaders", "database.append_only", "nats.jetstream"] {
            report.expect(check, "ok", "");
        }
    });
}
