//! Another projector on an instance's database.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::instance::{Instance, program_under};
use crate::wait::within;

/// A projector beside the instance's own. It stops when the value is dropped.
pub struct SideProjector {
    started: StartedProjector,
    /// Its operator's address.
    pub operator: SocketAddr,
}

/// The process of one that may never work. It stops when the value is dropped.
pub struct StartedProjector {
    process: Child,
    log: PathBuf,
    ready_file: PathBuf,
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

    /// Starts one with these flags that name its database and its NATS server.
    pub async fn with(instance: &Instance, servers: &[&str]) -> Self {
        Self::under(instance, &[], servers).await
    }

    /// The same through another program, such as `env` with its arguments.
    pub async fn under(instance: &Instance, wrapper: &[&str], servers: &[&str]) -> Self {
        let mut started = StartedProjector::under(instance, wrapper, servers);
        let up: Value = within(Duration::from_mins(1), "the side projector comes up", async || {
            let ended = started.process.try_wait().expect("a child can be waited for");
            assert!(ended.is_none(), "the side projector ended: {ended:?}");
            serde_json::from_str(&std::fs::read_to_string(&started.ready_file).ok()?).ok()
        })
        .await;
        let operator = up["operator"].as_str().and_then(|address| address.parse().ok());
        Self { started, operator: operator.unwrap_or_else(|| panic!("no address in {up}")) }
    }

    /// Its log output.
    pub fn logged(&self) -> String {
        self.started.logged()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.started.process.id()
    }
}

impl StartedProjector {
    /// Starts one with these flags that name its servers, and does not wait for it.
    pub fn with(instance: &Instance, servers: &[&str]) -> Self {
        Self::under(instance, &[], servers)
    }

    fn under(instance: &Instance, wrapper: &[&str], servers: &[&str]) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::SeqCst);
        let ready_file = instance.file(&format!("side-projector-{number}.json"));
        let log = instance.file(&format!("side-projector-{number}.log"));
        let process = program_under(wrapper)
            .args(["projector", "--operator-listen", "127.0.0.1:0", "--stop-with-stdin"])
            .args(servers)
            .arg("--ready-file")
            .arg(&ready_file)
            .envs(instance.release())
            .envs(instance.nats_names())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log).expect("a log file can be made"))
            .spawn()
            .expect("the program can be run");
        Self { process, log, ready_file }
    }

    /// Its log output.
    pub fn logged(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Whether it has come up.
    pub fn is_ready(&self) -> bool {
        self.ready_file.exists()
    }
}

impl Drop for StartedProjector {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}
