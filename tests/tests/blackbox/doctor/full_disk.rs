//! The disk of Postgres becomes full.

use farthing_tests::instance::Instance;
use farthing_tests::postgres_server::PostgresServer;
use farthing_tests::run;
use farthing_tests::small_disk::SmallDisk;

use super::doctor;

/// Enough for an empty cluster, which takes about 50 MB.
const BYTES: u64 = 192 * 1024 * 1024;

#[test]
fn a_disk_of_postgres_that_becomes_full_is_a_warning_and_then_fails() {
    run(async {
        let instance = Instance::shared().await;
        let Some(disk) = SmallDisk::mount(BYTES, &instance.file("small-disk")) else { return };
        let Some(server) = PostgresServer::start_in(disk.folder()).await else { return };
        for (free_percent, verdict) in [(40, "ok"), (10, "warning"), (2, "failed"), (40, "ok")] {
            disk.fill(free_percent);
            let report = doctor(&server.database_url, &[]).await;
            report.expect("postgres.disk", verdict, "are free on the disk of Postgres");
            assert!(report.of("postgres.disk").1.contains("of 192 MiB"), "{}", report.json);
        }
        drop(server);
    });
}
