//! Another projector on an instance's database.

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::instance::{Instance, program};
use crate::wait::within;

/// A projector beside the instance's own. It stops when the value is dropped.
pub struct SideProjector {
    process: Child,
}

impl SideProjector {
    /// Starts one, and waits until it works.
    pub async fn start(instance: &Instance) -> Self {
        let ready = instance.ready();
        Self::with(instance, &["--database-url", &ready.database_url, "--nats-url", &ready.nats_url]).await
    }

    /// Starts one on another database of the instance's server, without a feed.
    pub async fn on(instance: &Instance, database_url: &str) -> Self {
        Self::with(instance, &["--database-url", database_url]).await
    }

    async fn with(instance: &Instance, servers: &[&str]) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::SeqCst);
        let ready_file = instance.file(&format!("side-projector-{number}.json"));
        let log = std::fs::File::create(instance.file(&format!("side-projector-{number}.log")));
        let log = log.expect("a log file can be made");
        let process = Command::new(program())
            .args(["projector", "--stop-with-stdin"])
            .args(servers)
            .arg("--ready-file")
            .arg(&ready_file)
            .envs(instance.release())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the program can be run");
        let side = Self { process };
        within(std::time::Duration::from_mins(1), "the side projector comes up", async || {
            ready_file.exists().then_some(())
        })
        .await;
        side
    }
}

impl Drop for SideProjector {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}
