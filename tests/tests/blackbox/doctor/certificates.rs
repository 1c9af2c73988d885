//! TLS: whether connections are verified, and certificates that are close to their end or past it.

use farthing_tests::instance::Instance;
use farthing_tests::merchant::encoded;
use farthing_tests::nats_server::NatsServer;
use farthing_tests::run;
use farthing_tests::servers;
use farthing_tests::tls::{Authority, CertificateFiles, Validity};

use super::{doctor, migrated};
use crate::tls_servers::Scene;

#[test]
fn the_certificate_of_nats_is_verified_and_its_end_is_watched() {
    run(async {
        let instance = Instance::shared().await;
        let database_url = migrated(instance, "doctor_nats_tls").await;
        let authority = Authority::new();
        let ca = authority.write_to(&instance.file("doctor-ca.pem"));
        let ca = format!("--nats-ca-file={}", ca.display());
        for (name, validity, verdict, said) in [
            ("doctor-now", Validity::Now, "ok", "the server's certificate ends at"),
            ("doctor-ending", Validity::Ending, "warning", "the server's certificate ends at"),
            ("doctor-expired", Validity::Expired, "failed", "ends at 2002-01-01"),
        ] {
            let CertificateFiles { certificate, key } =
                authority.issue(&instance.file(name), name, &["localhost"], validity);
            let tls = format!("tls {{ cert_file: \"{certificate}\", key_file: \"{key}\" }}");
            let nats = NatsServer::start(instance, &tls).await;
            let report =
                doctor(&database_url, &[&format!("--nats-url=tls://localhost:{}", nats.port), &ca]).await;
            report.expect("nats.certificate", verdict, said);
            if validity == Validity::Expired {
                report.expect("nats.reached", "failed", "xpired");
            } else {
                report.expect("nats.tls", "ok", "verified by its name");
            }
        }
    });
}

#[test]
fn the_end_of_an_authority_is_a_warning_and_ends_no_connection() {
    run(async {
        let instance = Instance::shared().await;
        let database_url = migrated(instance, "doctor_authority").await;
        for (name, validity, verdict) in [
            ("doctor-ca-now", Validity::Now, "ok"),
            ("doctor-ca-ending", Validity::Ending, "warning"),
            ("doctor-ca-expired", Validity::Expired, "warning"),
        ] {
            let authority = Authority::with(validity);
            let ca = authority.write_to(&instance.file(&format!("{name}.pem")));
            let CertificateFiles { certificate, key } =
                authority.issue(&instance.file(name), name, &["localhost"], Validity::Now);
            let tls = format!("tls {{ cert_file: \"{certificate}\", key_file: \"{key}\" }}");
            let nats = NatsServer::start(instance, &tls).await;
            let flags = [
                format!("--nats-url=tls://localhost:{}", nats.port),
                format!("--nats-ca-file={}", ca.display()),
            ];
            let report = doctor(&database_url, &flags.each_ref().map(String::as_str)).await;
            report.expect("nats.tls", "ok", "verified by its name");
            report.expect("nats.certificate", verdict, "the last of the trusted authorities ends at");
        }
    });
}

#[test]
fn the_certificate_of_postgres_is_verified_and_its_end_is_watched() {
    if !servers::has_own_postgres("changes the settings of Postgres") {
        return;
    }
    run(async {
        let scene = Scene::turn().await;
        scene.create("tls_doctor", "").await;
        let ca = encoded(&scene.ca);
        let url = |parameters: &str| scene.url("tls_doctor", "localhost", parameters);
        let full = url(&format!("sslmode=verify-full&sslrootcert={ca}"));
        let unchecked = url("sslmode=require");

        let whole = doctor(&full, &[]).await;
        whole.expect("postgres.tls", "ok", "verified by its name");
        whole.expect("postgres.certificate", "ok", "the server's certificate ends at");
        doctor(&unchecked, &[]).await.expect("postgres.tls", "ok", "stays on this machine");

        let file = |name: &str| scene.instance.file(name);
        let ending = scene.authority.issue(&file("doctor-ending"), "x", &["localhost"], Validity::Ending);
        scene.postgres.show(&ending).await;
        doctor(&full, &[]).await.expect(
            "postgres.certificate",
            "warning",
            "the server's certificate ends at",
        );

        let expired = scene.authority.issue(&file("doctor-expired"), "x", &["localhost"], Validity::Expired);
        scene.postgres.show(&expired).await;
        doctor(&full, &[]).await.expect("postgres.reached", "failed", "expired");
        let taken = doctor(&unchecked, &[]).await;
        taken.expect("postgres.certificate", "failed", "ends at 2002-01-01");

        let old = Authority::with(Validity::Expired);
        let old_ca = old.write_to(&file("doctor-old-ca.pem")).into_os_string().into_string().unwrap();
        scene.postgres.show(&old.issue(&file("doctor-of-old"), "x", &["localhost"], Validity::Now)).await;
        let by_old = url(&format!("sslmode=verify-full&sslrootcert={}", encoded(&old_ca)));
        let of_old = doctor(&by_old, &[]).await;
        of_old.expect("postgres.tls", "ok", "verified by its name");
        of_old.expect("postgres.certificate", "warning", "authorities ends at 2002-01-01");

        let wrong =
            doctor(&url(&format!("sslmode=verify-full&sslrootcert={}", encoded(&scene.strange_ca))), &[])
                .await;
        wrong.expect("postgres.reached", "failed", "certificate");
        scene.postgres.show(&scene.server).await;
    });
}
