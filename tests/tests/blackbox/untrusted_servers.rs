//! Servers that a process must not trust, or that refuse its login: the process uses none of them, and says why.

use std::net::SocketAddr;

use farthing_log::nats::NatsConfig;
use farthing_tests::client::Request;
use farthing_tests::log::Log;
use farthing_tests::merchant::encoded;
use farthing_tests::nats_server::{NatsServer, nkey};
use farthing_tests::run;
use farthing_tests::scrape::get;
use farthing_tests::scratch::operate;
use farthing_tests::servers;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::side_projector::{SideProjector, StartedProjector};
use farthing_tests::tls::Validity;
use farthing_tests::wait::eventually_ok;

use crate::tls_servers::{Scene, fails};

/// Client sessions of a database, whatever they do.
const SESSIONS: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND backend_type = 'client backend'";

/// Waits until a line of a log has this event and this reason, in any letter case.
async fn says(logged: impl Fn() -> String, event: &str, reason: &str) {
    let event = format!("event=\"{event}\"");
    eventually_ok("the log says why", async || {
        let logged = logged();
        let is_said = |line: &str| line.contains(&event) && line.to_ascii_lowercase().contains(reason);
        if logged.lines().any(is_said) {
            Ok(())
        } else {
            Err(format!("no {event} with {reason:?} in:\n{logged}"))
        }
    })
    .await;
}

/// Waits until `/readyz` answers so.
async fn answers(operator: SocketAddr, status: u16) {
    eventually_ok(&format!("/readyz is {status}"), async || {
        let ready = get(operator, "/readyz").await;
        if ready.status == status { Ok(()) } else { Err(ready.text()) }
    })
    .await;
}

async fn sessions(log: &Log, database: &str) -> i64 {
    log.sql.query_one(SESSIONS, &[&database]).await.unwrap().get(0)
}

#[test]
fn a_gateway_and_a_projector_do_not_start_on_a_postgres_that_cannot_be_trusted() {
    if !servers::has_own_postgres("changes the settings of Postgres") {
        return;
    }
    run(async {
        let scene = Scene::turn().await;
        let instance = &scene.instance;
        scene.create("tls_untrusted", "").await;
        let url = |ca: &str| {
            let parameters = format!("sslmode=verify-full&sslrootcert={}", encoded(ca));
            scene.url("tls_untrusted", "localhost", &parameters)
        };
        let trusting = url(&scene.ca);
        operate(&trusting, &["migrate", "--mode", "test", "--partitions", "1"]).await;
        let file = |name: &str| instance.file(name);
        let other = scene.authority.issue(&file("process-other"), "x", &["db.example"], Validity::Now);
        let expired = scene.authority.issue(&file("process-expired"), "x", &["localhost"], Validity::Expired);
        let (password, log) =
            (trusting.split('@').next().unwrap().rsplit(':').next().unwrap(), instance.log().await);
        for (url, shown, reason) in [
            (url(&scene.strange_ca), &scene.server, "invalid peer certificate"),
            (trusting.clone(), &other, "not valid for name"),
            (trusting.clone(), &expired, "certificate expired"),
        ] {
            scene.postgres.show(shown).await;
            let projector = StartedProjector::with(instance, &["--database-url", &url]);
            says(|| projector.logged(), "projector.database_unreachable", reason).await;
            assert!(
                !projector.is_ready() && !projector.logged().contains(password),
                "{}",
                projector.logged()
            );
            let gateway = fails(&["gateway", "--listen=127.0.0.1:0", "--database-url", &url], &[], 1).await;
            let said = gateway.to_ascii_lowercase();
            assert!(said.contains("postgres: ") && said.contains(reason), "{gateway}");
            assert!(!gateway.contains(password), "{gateway}");
            assert_eq!(sessions(&log, "tls_untrusted").await, 0, "{reason}");
        }

        // The same commands start once the server can be trusted.
        scene.postgres.show(&scene.server).await;
        let servers = ["--database-url", trusting.as_str()];
        let _projector = SideProjector::with(instance, &servers).await;
        let _gateway = SideGateway::with(instance, &servers, &[]).await;
    });
}

#[test]
fn pools_of_running_processes_take_no_connection_of_a_postgres_whose_certificate_has_expired() {
    if !servers::has_own_postgres("changes the settings of Postgres") {
        return;
    }
    run(async {
        let scene = Scene::turn().await;
        let instance = &scene.instance;
        scene.create("tls_pools", "").await;
        let parameters = format!("sslmode=verify-full&sslrootcert={}", encoded(&scene.ca));
        let url = scene.url("tls_pools", "localhost", &parameters);
        operate(&url, &["migrate", "--mode", "test", "--partitions", "1"]).await;
        let merchant = operate(&url, &["merchant", "create"]).await;
        let servers = ["--database-url", url.as_str()];
        let projector = SideProjector::with(instance, &servers).await;
        let gateway = SideGateway::with(instance, &servers, &[]).await;
        let read = Request::new("GET", "/v1/customers").bearer(merchant["secret_key"].as_str().unwrap());
        read.send(gateway.address).await.unwrap().expect(200);

        let expired =
            scene.authority.issue(&instance.file("pools-expired"), "x", &["localhost"], Validity::Expired);
        scene.postgres.show(&expired).await;
        let log = instance.log().await;
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'tls_pools'";
        log.sql.batch_execute(end).await.unwrap();
        says(|| gateway.logged(), "leases.round_failed", "certificate expired").await;
        says(|| projector.logged(), "projection.restarted", "certificate expired").await;
        answers(gateway.operator, 503).await;
        let refused = read.send(gateway.address).await.unwrap();
        assert_eq!(refused.status, 503, "{}", refused.text());
        assert_eq!(sessions(&log, "tls_pools").await, 0, "nothing is connected");

        scene.postgres.show(&scene.server).await;
        answers(gateway.operator, 200).await;
        answers(projector.operator, 200).await;
        read.send(gateway.address).await.unwrap().expect(200);
    });
}

#[test]
fn a_gateway_and_a_projector_say_why_they_use_no_nats_server() {
    if !servers::has_own_postgres("changes the settings of Postgres") {
        return;
    }
    run(async {
        let scene = Scene::turn().await;
        let instance = &scene.instance;
        scene.postgres.create("tls_nats").await;
        let url = scene.url("tls_nats", "127.0.0.1", "");
        operate(&url, &["migrate", "--mode", "test", "--partitions", "1"]).await;
        operate(&url, &["merchant", "create"]).await;
        let file = |name: &str| instance.file(name);
        let other = scene.authority.issue(&file("nats-process-other"), "x", &["nats.example"], Validity::Now);
        let expired =
            scene.authority.issue(&file("nats-process-expired"), "x", &["localhost"], Validity::Expired);
        let certificate = [
            format!("--nats-cert-file={}", scene.client.certificate),
            format!("--nats-key-file={}", scene.client.key),
        ];
        let trusting = |ca: &str| {
            certificate.iter().cloned().chain([format!("--nats-ca-file={ca}")]).collect::<Vec<String>>()
        };
        let (public, _) = nkey();
        let (_, seed) = nkey();
        let nkeys = format!("authorization {{ users: [{{ nkey: {public} }}] }}");
        let of_another = vec![format!("--nats-nkey-file={}", instance.secret_file(&seed))];
        let silent = "authorization { users: [{ user: u, password: \"pass-word\", permissions: \
                      { publish: { deny: \"farthing.head.>\" } } }] }";
        for (scheme, configuration, flags, reason) in [
            (
                "tls://",
                scene.nats_tls(&scene.server),
                trusting(&scene.strange_ca),
                "invalid peer certificate",
            ),
            ("tls://", scene.nats_tls(&other), trusting(&scene.ca), "not valid for name"),
            ("tls://", scene.nats_tls(&expired), trusting(&scene.ca), "certificate expired"),
            ("nats://", nkeys, of_another, "authorization violation"),
        ] {
            let nats = NatsServer::start(instance, &configuration).await;
            let nats_url = format!("{scheme}localhost:{}", nats.port);
            let mut servers = vec!["--database-url", url.as_str(), "--nats-url", nats_url.as_str()];
            servers.extend(flags.iter().map(String::as_str));
            let gateway = SideGateway::with(instance, &servers, &[]).await;
            let projector = SideProjector::with(instance, &servers).await;
            says(|| gateway.logged(), "wake_up.unavailable", reason).await;
            says(|| projector.logged(), "wake_up.unavailable", reason).await;
            says(|| projector.logged(), "relay.restarted", reason).await;
            let said = gateway.logged().matches("wake_up.unavailable").count();
            assert_eq!(said, 1, "a reason is said once: {}", gateway.logged());
            assert!(!gateway.logged().contains(seed.trim()) && !projector.logged().contains(seed.trim()));
            // It serves without NATS.
            answers(gateway.operator, 200).await;
            drop(projector);
            drop(gateway);
        }

        // A login that may not publish the notifications.
        let nats = NatsServer::start(instance, silent).await;
        let nats_url = format!("nats://u:pass-word@127.0.0.1:{}", nats.port);
        NatsConfig::at(nats_url.as_str()).connect(|options| options).await.unwrap();
        let servers = ["--database-url", url.as_str(), "--nats-url", nats_url.as_str()];
        let gateway = SideGateway::with(instance, &servers, &[]).await;
        operate(&url, &["merchant", "create"]).await;
        says(|| gateway.logged(), "wake_up.unavailable", "permissions violation for publish").await;
        assert!(!gateway.logged().contains("pass-word"), "{}", gateway.logged());
    });
}
