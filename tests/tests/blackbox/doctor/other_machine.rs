//! Servers on another machine: to the doctor, those at an address that is not the loopback.

use std::net::SocketAddr;

use farthing_tests::instance::Instance;
use farthing_tests::link::Link;
use farthing_tests::merchant::encoded;
use farthing_tests::nats_server::NatsServer;
use farthing_tests::run;
use farthing_tests::servers;
use farthing_tests::tls::{Authority, CertificateFiles, Validity};

use super::{doctor, migrated};
use crate::tls_servers::Scene;

/// The URL of a database, split into what is before its host, host and port, and what follows.
fn parts(url: &str) -> (&str, SocketAddr, &str) {
    let (before, server) = url.rsplit_once('@').unwrap();
    let (address, database) = server.split_once('/').unwrap();
    (before, address.parse().unwrap(), database)
}

/// The URL of a database over a link.
fn over(link: &Link, url: &str) -> String {
    let (before, _, database) = parts(url);
    format!("{before}@{}/{database}", link.address)
}

#[test]
fn a_server_on_another_machine_without_tls_is_a_warning() {
    run(async {
        let instance = Instance::shared().await;
        let url = migrated(instance, "doctor_other_machine").await;
        let nats = NatsServer::start(instance, "").await;
        let near = format!("--nats-url=nats://127.0.0.1:{}", nats.port);
        let Some(postgres) = Link::over_a_network(parts(&url).1).await else { return };
        let Some(to_nats) = Link::over_a_network(([127, 0, 0, 1], nats.port).into()).await else { return };
        let far = format!("--nats-url=nats://{}", to_nats.address);

        let report = doctor(&over(&postgres, &url), &[&far]).await;
        for (reached, tls) in [("postgres.reached", "postgres.tls"), ("nats.reached", "nats.tls")] {
            report.expect(reached, "ok", "");
            report.expect(tls, "warning", "not encrypted: who reads the traffic sees all of it");
        }
        doctor(&url, &[&near]).await.expect(
            "nats.tls",
            "ok",
            "not encrypted; the connection stays on this machine",
        );
    });
}

#[test]
fn a_nats_server_on_another_machine_is_verified_by_its_address() {
    run(async {
        let instance = Instance::shared().await;
        let url = migrated(instance, "doctor_other_nats").await;
        let authority = Authority::new();
        let ca = authority.write_to(&instance.file("doctor-other-ca.pem"));
        let ca = format!("--nats-ca-file={}", ca.display());
        let Some(host) = Link::over_a_network(([127, 0, 0, 1], 9).into()).await else { return };
        let host = host.address.ip().to_string();
        let issued = authority.issue(&instance.file("doctor-other"), "x", &[&host], Validity::Now);
        let CertificateFiles { certificate, key } = issued;
        let tls = format!("tls {{ cert_file: \"{certificate}\", key_file: \"{key}\" }}");
        let nats = NatsServer::start(instance, &tls).await;
        let Some(link) = Link::over_a_network(([127, 0, 0, 1], nats.port).into()).await else { return };
        let report = doctor(&url, &[&format!("--nats-url=tls://{}", link.address), &ca]).await;
        report.expect("nats.tls", "ok", "verified by its name");
    });
}

#[test]
fn a_postgres_on_another_machine_whose_name_is_not_verified_is_a_warning() {
    if !servers::has_own_postgres("changes the settings of Postgres") {
        return;
    }
    run(async {
        let scene = Scene::turn().await;
        scene.create("tls_other_machine", "").await;
        let url = scene.url("tls_other_machine", "127.0.0.1", "");
        let Some(link) = Link::over_a_network(parts(&url).1).await else { return };
        let host = link.address.ip().to_string();
        let issued = scene.authority.issue(&scene.instance.file("doctor-far"), "x", &[&host], Validity::Now);
        scene.postgres.show(&issued).await;
        let ca = encoded(&scene.ca);
        for (parameters, verdict, said) in [
            ("sslmode=require".to_owned(), "warning", "the server is not verified: it may be anyone"),
            (format!("sslmode=verify-ca&sslrootcert={ca}"), "warning", "checked, but not for its name"),
            (format!("sslmode=verify-full&sslrootcert={ca}"), "ok", "verified by its name"),
        ] {
            let report = doctor(&format!("{}{parameters}", over(&link, &url)), &[]).await;
            report.expect("postgres.tls", verdict, said);
        }
        scene.postgres.show(&scene.server).await;
    });
}
