//! Another gateway on an instance's database.

use std::io::{PipeReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::instance::{Instance, START_TIMEOUT, SWEEP_AFTER, program_under};
use crate::merchant::Merchant;
use crate::process::signal;
use crate::wait::{eventually, within};

/// A gateway beside the instance's own, with its own flags. It stops when the value is dropped.
pub struct SideGateway {
    started: StartedGateway,
    /// Its address.
    pub address: SocketAddr,
    /// The address of its hosted pages.
    pub pages: SocketAddr,
    /// Its operator's address.
    pub operator: SocketAddr,
}

/// The process of one that may never serve. It stops when the value is dropped.
pub struct StartedGateway {
    process: Child,
    log: PathBuf,
    ready_file: PathBuf,
}

/// How one is started.
#[derive(Clone, Copy, Default)]
struct Start<'a> {
    /// Another program that runs it, with its arguments.
    wrapper: &'a [&'a str],
    /// The flags that name its database and its NATS server.
    servers: &'a [&'a str],
    flags: &'a [&'a str],
    variables: &'a [(&'a str, &'a str)],
}

/// The gateway that leads a partition.
const LEADER: &str =
    "SELECT gateway FROM ledger.leases WHERE partition = $1 AND expires_at > clock_timestamp()";

impl SideGateway {
    /// Starts one. It allows only the addresses in `flags`.
    pub async fn start(instance: &Instance, flags: &[&str]) -> Self {
        Self::on(instance, &instance.ready().database_url, flags).await
    }

    /// Starts one on another database of the instance's server.
    pub async fn on(instance: &Instance, database_url: &str, flags: &[&str]) -> Self {
        Self::start_on(instance, database_url, &instance.ready().nats_url, flags).await
    }

    /// Starts one with these URLs of its database and its NATS server.
    pub async fn start_on(instance: &Instance, database_url: &str, nats_url: &str, flags: &[&str]) -> Self {
        Self::with(instance, &["--database-url", database_url, "--nats-url", nats_url], flags).await
    }

    /// Starts one with these flags that name its database and its NATS server.
    pub async fn with(instance: &Instance, servers: &[&str], flags: &[&str]) -> Self {
        Self::run(instance, Start { servers, flags, ..Start::default() }).await
    }

    /// Starts one that logs into a pipe, with these environment variables.
    pub async fn with_log_pipe(
        instance: &Instance,
        flags: &[&str],
        variables: &[(&str, &str)],
    ) -> (Self, LogPipe) {
        let ready = instance.ready();
        let servers = ["--database-url", &ready.database_url, "--nats-url", &ready.nats_url];
        let log = new_log(instance);
        let (read, write) = std::io::pipe().expect("a pipe can be made");
        let pipe = LogPipe::read(read, &log);
        let start = Start { servers: &servers, flags, variables, ..Start::default() };
        let started = StartedGateway::logging_to((write.into(), log), instance, start);
        (started.serves().await, pipe)
    }

    /// Starts one with these flags through another program, such as `taskset` with its arguments.
    pub async fn under(instance: &Instance, wrapper: &[&str], servers: &[&str], flags: &[&str]) -> Self {
        Self::run(instance, Start { wrapper, servers, flags, variables: &[] }).await
    }

    /// Starts one with these environment variables.
    pub async fn with_variables(instance: &Instance, flags: &[&str], variables: &[(&str, &str)]) -> Self {
        let ready = instance.ready();
        let servers = ["--database-url", &ready.database_url, "--nats-url", &ready.nats_url];
        Self::run(instance, Start { servers: &servers, flags, variables, ..Start::default() }).await
    }

    async fn run(instance: &Instance, start: Start<'_>) -> Self {
        StartedGateway::run(instance, start).serves().await
    }

    /// A funded merchant of `instance` whose partition it leads. Merchants are registered until there is one.
    pub async fn merchant_of_its_own(&self, instance: &'static Instance, funds: &str) -> Merchant {
        eventually("the gateway leads a merchant's partition", async || {
            let merchant = Merchant::of(instance).await;
            merchant.credit_own(funds).await;
            let partition = merchant.log.partition_of(&merchant.id).await.number();
            let row =
                merchant.log.sql.query_one(LEADER, &[&partition]).await.expect("the leases can be read");
            let leader: Option<String> = row.get(0);
            leader.is_some_and(|leader| self.logged().contains(&leader)).then_some(merchant)
        })
        .await
    }

    /// Its log output.
    pub fn logged(&self) -> String {
        self.started.logged()
    }

    /// Its name in the leases.
    pub async fn id(&self) -> String {
        within(START_TIMEOUT, "the side gateway says its name", async || {
            let logged = self.logged();
            let (_, after) = logged.split_once("event=\"gateway.listening\"")?.1.split_once("gateway_id=")?;
            let (id, _) = after.split_once('\n')?;
            Some(id.trim().to_owned())
        })
        .await
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.started.process.id()
    }

    /// Asks it to stop, as a service manager does.
    pub fn terminate(&self) {
        signal(self.started.process.id(), "TERM");
    }

    /// Waits for a gateway that was asked to stop; returns its exit status.
    pub async fn ended(&mut self) -> ExitStatus {
        within(START_TIMEOUT, "the side gateway ends", async || {
            self.started.process.try_wait().expect("a child can be waited for")
        })
        .await
    }
}

impl StartedGateway {
    /// Starts one with these URLs of its database and its NATS server, and does not wait for it.
    pub fn on(instance: &Instance, database_url: &str, nats_url: &str, flags: &[&str]) -> Self {
        let servers = ["--database-url", database_url, "--nats-url", nats_url];
        Self::run(instance, Start { servers: &servers, flags, ..Start::default() })
    }

    fn run(instance: &Instance, start: Start<'_>) -> Self {
        let log = new_log(instance);
        let stderr = std::fs::File::create(&log).expect("a log file can be made");
        Self::logging_to((stderr.into(), log), instance, start)
    }

    fn logging_to((stderr, log): (Stdio, PathBuf), instance: &Instance, start: Start<'_>) -> Self {
        let Start { wrapper, servers, flags, variables } = start;
        let ready_file = log.with_extension("json");
        // It allows fewer addresses than the instance's own gateways, and would fail deliveries that those can make.
        let delivers = flags.iter().any(|flag| flag.starts_with("--webhook"));
        let sweeps = flags.iter().any(|flag| flag.starts_with("--sweep-after-seconds"));
        let process = program_under(wrapper)
            .args([
                "gateway",
                "--listen",
                "127.0.0.1:0",
                "--operator-listen",
                "127.0.0.1:0",
                "--stop-with-stdin",
            ])
            .args(servers)
            .args(flags)
            .args((!sweeps).then_some(SWEEP_AFTER))
            .args((!delivers).then_some("--no-webhooks"))
            .envs(instance.release())
            .envs(instance.nats_names())
            .envs(variables.iter().copied())
            .arg("--ready-file")
            .arg(&ready_file)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .expect("the program can be run");
        Self { process, log, ready_file }
    }

    /// Waits until it serves.
    pub async fn serves(mut self) -> SideGateway {
        let up: Value = within(START_TIMEOUT, "the side gateway comes up", async || {
            // One that ended is not waited for: its log says why.
            let ended = self.process.try_wait().expect("a process can be looked at");
            assert!(ended.is_none(), "the side gateway ended, {ended:?}: {}", self.logged());
            serde_json::from_str(&std::fs::read_to_string(&self.ready_file).ok()?).ok()
        })
        .await;
        let address = |address: &Value| {
            let address = address.as_str().and_then(|address| address.parse().ok());
            address.unwrap_or_else(|| panic!("no address in {up}"))
        };
        let (listen, operator) = (&up["listen"], address(&up["operator"]));
        SideGateway { started: self, address: address(&listen[0]), pages: address(&listen[1]), operator }
    }

    /// Its operator's address, which it serves from its start.
    pub async fn operator(&self) -> SocketAddr {
        within(START_TIMEOUT, "the side gateway says its operator's address", async || {
            let logged = self.logged();
            let (_, after) = logged.split_once("event=\"operator.listening\"")?.1.split_once("address=")?;
            after.split_once('\n')?.0.split_whitespace().next()?.parse().ok()
        })
        .await
    }

    /// Its log output.
    pub fn logged(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

/// The path of the log of another one.
fn new_log(instance: &Instance) -> PathBuf {
    static MADE: AtomicU32 = AtomicU32::new(0);
    instance.file(&format!("side-gateway-{}.log", MADE.fetch_add(1, Ordering::SeqCst)))
}

/// The reading end of a pipe that a gateway logs into. What is read goes to the file of its log.
pub struct LogPipe(Arc<AtomicBool>);

impl LogPipe {
    fn read(mut pipe: PipeReader, log: &Path) -> Self {
        let mut log = std::fs::File::create(log).expect("a log file can be made");
        let is_read = Arc::new(AtomicBool::new(true));
        let reads = Arc::clone(&is_read);
        // Ends with the gateway.
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            loop {
                while !reads.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(10));
                }
                match pipe.read(&mut bytes) {
                    Ok(0) | Err(_) => return,
                    Ok(count) => log.write_all(&bytes[..count]).expect("a log can be written"),
                }
            }
        });
        Self(is_read)
    }

    /// Leaves the pipe to fill, or reads on.
    pub fn set_read(&self, is_read: bool) {
        self.0.store(is_read, Ordering::SeqCst);
    }
}

impl Drop for LogPipe {
    fn drop(&mut self) {
        self.set_read(true);
    }
}

impl Drop for StartedGateway {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}
