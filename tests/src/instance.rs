//! An instance of the program: `farthing dev` as a child process with a new data folder. It stops when the test process ends
//! for any reason; one of a test alone stops when the test ends.

use std::cell::RefCell;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use serde_json::Value;

use crate::log::Log;
use crate::post_mortem;
use crate::process::is_running;
use crate::provider::Provider;
use crate::ready::Ready;
use crate::servers;
use crate::wait::within;

/// The timeout for an instance to start, on a slow machine that also compiles.
pub(crate) const START_TIMEOUT: Duration = Duration::from_mins(3);

/// The time after which gateways under a test's load count as dead (it also sets the heartbeat): long enough that a slow
/// gateway keeps its calls.
pub(crate) const SWEEP_AFTER: &str = "--sweep-after-seconds=15";

/// Gateways under a test's load keep the partitions that they lead, also when the machine stands still for seconds.
const LONG_LEASE: (&str, &str) = ("FARTHING_LEASE_SECONDS", "15");

/// The flags of an instance on a Citus cluster and a cluster of NATS servers, with two projectors.
pub const CLUSTER: [&str; 2] = ["--cluster", "--projectors=2"];

/// Runs `farthing dev` until stdin says `stop` or closes, then stops it. If stdin closes, the test process has ended, and the
/// data folder is removed, and what the instance has on servers that were given.
const KEEPER: &str = r#"
[ -z "$TEST_UMASK" ] || umask "$TEST_UMASK"
"$@" </dev/null >>"$FOLDER/dev.log" 2>&1 &
dev=$!
echo "$dev" >"$FOLDER/dev.pid"
trap '' TERM INT
read -r word
kill -TERM "$dev" 2>/dev/null
wait "$dev"
ended=$?
[ "$word" = stop ] || [ -n "$FARTHING_TEST_KEEP" ] || {
    rm -rf "$FOLDER"
    [ -z "$REMOVER" ] || "$REMOVER" "$NAME"
}
exit "$ended"
"#;

thread_local! {
    /// The instances of the test that this thread runs.
    static OF_TEST: RefCell<Vec<&'static Instance>> = const { RefCell::new(Vec::new()) };
}

/// Ends the instances of this thread's test when the test ends. An idle instance takes time from the other tests.
pub(crate) struct EndOfTest;

/// A running instance with providers of the test.
pub struct Instance {
    /// Its data folder.
    pub data: PathBuf,
    folder: PathBuf,
    flags: &'static [&'static str],
    /// Further variables of its processes.
    variables: &'static [(&'static str, &'static str)],
    /// A provider that is `other` to the gateways.
    pub provider: Provider,
    /// A provider that the gateways know as `openai`.
    pub openai: Provider,
    keeper: Mutex<Option<Child>>,
    upgrade: Mutex<Upgrade>,
    /// One command at a time verifies or rebuilds a read model; a second one would be refused.
    read_models: tokio::sync::Mutex<()>,
}

/// The next release, beside or in place of the instance's own.
#[derive(Debug, Clone, Copy, Default)]
struct Upgrade {
    /// What it changes, as `farthing_core::release` knows it.
    change: Option<&'static str>,
    /// Its gateway, in place of the instance's.
    gateway: Option<SocketAddr>,
}

/// The program under test: the one that was built beside the test, or the one that `FARTHING_TEST_PROGRAM` names.
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        if let Some(program) = std::env::var_os("FARTHING_TEST_PROGRAM").filter(|path| !path.is_empty()) {
            let program = PathBuf::from(program);
            let program = program.canonicalize();
            return program.unwrap_or_else(|error| panic!("FARTHING_TEST_PROGRAM cannot be used: {error}"));
        }
        let test = std::env::current_exe().expect("a test knows its own path");
        let folder =
            test.parent().and_then(|deps| if deps.ends_with("deps") { deps.parent() } else { Some(deps) });
        let program = folder.expect("a test lies in a folder").join("farthing");
        assert!(program.exists(), "{} is missing: run `cargo build -p farthing` first", program.display());
        program
    })
}

/// A command of the program; under another one, such as `taskset` with its arguments, if `wrapper` names it.
pub fn program_under(wrapper: &[&str]) -> Command {
    let Some((outer, arguments)) = wrapper.split_first() else { return Command::new(program()) };
    let mut command = Command::new(outer);
    command.args(arguments).arg(program());
    command
}

/// A new folder that every user may enter (Postgres runs as another user when the test runs as root).
fn fresh_folder() -> PathBuf {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let number = MADE.fetch_add(1, Ordering::SeqCst);
    let folder = std::env::temp_dir().join(format!("farthing-test-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).expect("and be opened");
    folder
}

impl Instance {
    /// The instance that all black-box tests of a process share: two gateways and a projector.
    pub async fn shared() -> &'static Self {
        static SHARED: tokio::sync::OnceCell<Instance> = tokio::sync::OnceCell::const_new();
        // Short webhook retries: no test waits for minutes.
        let start = async || {
            let flags = &["--webhook-retry-ms=100,200,400", SWEEP_AFTER];
            let instance = Self::start_in(2, flags, &[LONG_LEASE]).await;
            post_mortem::watch_shared(&instance.folder);
            instance
        };
        SHARED.get_or_init(start).await
    }

    /// Starts an instance for this test alone. It ends with the test.
    pub async fn of_test(gateways: u32) -> &'static Self {
        Self::of_test_with(gateways, &[]).await
    }

    /// The same with further flags of `farthing dev`.
    pub async fn of_test_with(gateways: u32, flags: &'static [&'static str]) -> &'static Self {
        Self::of_test_in(gateways, flags, &[]).await
    }

    /// The same whose processes deny other users nothing by their umask.
    pub async fn of_test_without_umask(gateways: u32) -> &'static Self {
        Self::of_test_in(gateways, &[], &[("TEST_UMASK", "000")]).await
    }

    /// The same whose gateways have leases of a minute.
    pub async fn of_test_with_long_leases(gateways: u32) -> &'static Self {
        Self::of_test_in(gateways, &[], &[("FARTHING_LEASE_SECONDS", "60")]).await
    }

    async fn of_test_in(
        gateways: u32,
        flags: &'static [&'static str],
        variables: &'static [(&'static str, &'static str)],
    ) -> &'static Self {
        let instance: &'static Self = Box::leak(Box::new(Self::start_in(gateways, flags, variables).await));
        OF_TEST.with_borrow_mut(|instances| instances.push(instance));
        instance
    }

    /// Starts a separate instance.
    pub async fn start(gateways: u32) -> Self {
        Self::start_with(gateways, &[]).await
    }

    /// Starts a separate instance with further flags of `farthing dev`.
    pub async fn start_with(gateways: u32, flags: &'static [&'static str]) -> Self {
        Self::start_in(gateways, flags, &[]).await
    }

    /// The same with variables of the processes.
    async fn start_in(
        gateways: u32,
        flags: &'static [&'static str],
        variables: &'static [(&'static str, &'static str)],
    ) -> Self {
        let folder = fresh_folder();
        post_mortem::watch(&folder);
        let (provider, openai) = (Provider::start().await, Provider::start().await);
        let data = folder.join("data");
        let instance = Self {
            data,
            folder,
            flags,
            variables,
            provider,
            openai,
            keeper: Mutex::default(),
            upgrade: Mutex::default(),
            read_models: tokio::sync::Mutex::default(),
        };
        instance.launch(gateways).await;
        instance
    }

    /// Starts the processes, for the first time or again on the same data.
    pub async fn launch(&self, gateways: u32) {
        let _ = std::fs::remove_file(self.ready_file());
        let _ = std::fs::remove_file(self.folder.join("dev.pid"));
        let (variables, flags) = servers::of_instance(&self.name()).await;
        let keeper = Command::new("sh")
            .args(["-c", KEEPER, "keeper"])
            .arg(program())
            .args(["dev", "--listen", "127.0.0.1:0", "--gateways", &gateways.to_string(), "--data"])
            .arg(&self.data)
            .arg("--ready-file")
            .arg(self.ready_file())
            .args(["--provider-host", &format!("openai={}", self.openai.authority())])
            .args(self.flags)
            .args(self.cluster_flags())
            .args(flags)
            .envs(variables)
            .envs(self.variables.iter().copied())
            .env("FOLDER", &self.folder)
            .env("NAME", self.name())
            .env("REMOVER", servers::remover().unwrap_or_default())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh can be run");
        *self.keeper() = Some(keeper);
        within(START_TIMEOUT, "the instance comes up", async || {
            assert!(!self.has_ended(), "farthing dev ended at once: {}", self.output());
            self.ready_file().exists().then_some(())
        })
        .await;
    }

    /// The flags that put it on clusters, if all instances of this run are to be on them and its own flags do not say so.
    fn cluster_flags(&self) -> Vec<&'static str> {
        let is_asked = std::env::var_os("FARTHING_TEST_CLUSTER").is_some_and(|set| !set.is_empty());
        let lacks = |flag: &str| !self.flags.iter().any(|own| own.starts_with(flag));
        if !is_asked || !lacks(CLUSTER[0]) {
            return Vec::new();
        }
        if lacks("--projectors") { CLUSTER.to_vec() } else { vec![CLUSTER[0]] }
    }

    /// Stops it as Ctrl-C does, and waits for its end. The data is kept until [`Self`] is dropped.
    pub async fn stop(&self) -> ExitStatus {
        let keeper = self.keeper().take();
        let mut keeper = keeper.expect("the instance runs");
        let mut stdin = keeper.stdin.take().expect("the keeper listens");
        stdin.write_all(b"stop\n").expect("the keeper listens");
        tokio::task::spawn_blocking(move || keeper.wait().expect("a child can be waited for"))
            .await
            .expect("waiting does not panic")
    }

    /// Removes the data of a stopped instance.
    pub fn clear(&self) {
        let _ = std::fs::remove_dir_all(&self.folder);
        servers::remove(&self.name());
    }

    /// Stops it, if it runs, and removes its data.
    fn end(&self) {
        let keeper = self.keeper().take();
        match keeper {
            Some(mut keeper) => {
                drop(keeper.stdin.take());
                let _ = keeper.wait();
            }
            None => self.clear(),
        }
    }

    /// Its name on servers that other instances use as well: after its folder.
    fn name(&self) -> String {
        let folder = self.folder.file_name().and_then(|name| name.to_str()).expect("a folder has a name");
        folder.replace('-', "_")
    }

    /// The name of a database or of a role called `name`, on a server that other instances may use as well.
    pub fn name_of(&self, name: &str) -> String {
        format!("{}_{name}", self.name())
    }

    /// Creates a database called `name` on its server, which must be new. Returns the URL, as its owner.
    pub async fn create_database(&self, name: &str) -> String {
        let name = self.name_of(name);
        servers::create_database(&self.log().await, &name).await;
        servers::with_database(&self.ready().database_url, &name)
    }

    /// The path of a file for the test, removed with the instance.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The path of a new file with this secret.
    pub fn secret_file(&self, secret: &str) -> String {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let file = self.file(&format!("secret-{}", MADE.fetch_add(1, Ordering::SeqCst)));
        std::fs::write(&file, format!("{secret}\n")).expect("a file can be written");
        file.into_os_string().into_string().expect("a path of a test is UTF-8")
    }

    /// The flag that gives a gateway a managed key of a provider.
    pub fn provider_key(&self, name: &str, key: &str) -> String {
        format!("--provider-key-file={name}={}", self.secret_file(key))
    }

    /// The process id of `farthing dev` itself.
    pub fn pid(&self) -> Option<u32> {
        std::fs::read_to_string(self.folder.join("dev.pid")).ok()?.trim().parse().ok()
    }

    /// Whether `farthing dev` has ended unasked.
    pub fn has_ended(&self) -> bool {
        self.pid().is_some_and(|pid| !is_running(pid))
    }

    fn keeper(&self) -> MutexGuard<'_, Option<Child>> {
        self.keeper.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ready_file(&self) -> PathBuf {
        self.folder.join("ready.json")
    }

    /// The output of `farthing dev` so far.
    pub fn output(&self) -> String {
        std::fs::read_to_string(self.folder.join("dev.log")).unwrap_or_default()
    }

    /// Reads the ready file.
    pub fn ready(&self) -> Ready {
        let text = std::fs::read_to_string(self.ready_file()).expect("the ready file can be read");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Reads the ready file, if it exists.
    pub fn try_ready(&self) -> Option<Ready> {
        serde_json::from_str(&std::fs::read_to_string(self.ready_file()).ok()?).ok()
    }

    /// From now on operators' commands, side gateways and side projectors are of the next release, which changes the
    /// `form` or the `fold` of states.
    pub fn upgrade_to(&self, change: &'static str) {
        self.upgrade().change = Some(change);
    }

    /// From now on this gateway takes the place of the instance's.
    pub fn replace_gateways_by(&self, gateway: SocketAddr) {
        self.upgrade().gateway = Some(gateway);
    }

    fn upgrade(&self) -> MutexGuard<'_, Upgrade> {
        self.upgrade.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The variable that makes a process one of the next release, if this is so.
    pub(crate) fn release(&self) -> Option<(&'static str, &'static str)> {
        self.upgrade().change.map(|change| ("FARTHING_TEST_NEXT_RELEASE", change))
    }

    /// The address of a gateway, if the instance is up.
    pub fn try_gateway(&self, number: usize) -> Option<SocketAddr> {
        if let Some(gateway) = self.upgrade().gateway {
            return Some(gateway);
        }
        let ready = self.try_ready()?;
        Some(address_of(&ready.gateways[number % ready.gateways.len()]))
    }

    /// The address of a gateway.
    pub fn gateway(&self, number: usize) -> SocketAddr {
        self.try_gateway(number).expect("the instance is up")
    }

    /// The operator's address of a gateway.
    pub fn operator(&self, number: usize) -> SocketAddr {
        address_of(&self.ready().operators.gateways[number])
    }

    /// The operator's address of the first projector.
    pub fn projector_operator(&self) -> SocketAddr {
        address_of(&self.ready().operators.projectors[0])
    }

    /// The address of a gateway's hosted pages.
    pub fn hosted_pages(&self, number: usize) -> SocketAddr {
        let ready = self.ready();
        address_of(&ready.pages[number % ready.pages.len()])
    }

    /// The variable that gives other processes of this instance its names at NATS, if they have a prefix.
    pub(crate) fn nats_names(&self) -> Option<(&'static str, String)> {
        let prefix = self.ready().nats_prefix;
        (!prefix.is_empty()).then_some(("FARTHING_NATS_PREFIX", prefix))
    }

    /// A NATS client.
    pub async fn nats(&self) -> async_nats::Client {
        nats(&self.ready().nats_url).await.expect("NATS can be reached")
    }

    /// A connection to the log.
    pub async fn log(&self) -> Log {
        Log::open(&self.ready().database_url).await
    }

    /// Runs an operator's command with `--json` and returns its output.
    pub async fn operate(&self, arguments: &[&str]) -> Value {
        let output = self.command(arguments).await;
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            panic!("{arguments:?}: {error}: {}", String::from_utf8_lossy(&output.stdout))
        })
    }

    /// Runs an operator's command with `--json`, which may fail. Commands that work on read models take turns.
    pub async fn command(&self, arguments: &[&str]) -> std::process::Output {
        let takes_turns = arguments.first().is_some_and(|role| ["projections", "audit"].contains(role));
        let _turn = if takes_turns { Some(self.read_models.lock().await) } else { None };
        self.command_beside_others(arguments).await
    }

    /// The same without turns. The caller works on other read models than everybody else.
    pub async fn command_beside_others(&self, arguments: &[&str]) -> std::process::Output {
        let mut command = tokio::process::Command::new(program());
        command.args(arguments).args(["--json", "--database-url", &self.ready().database_url]);
        command.envs(self.release());
        command.stdin(Stdio::null()).output().await.expect("the program can be run")
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.end();
    }
}

impl Drop for EndOfTest {
    fn drop(&mut self) {
        OF_TEST.take().into_iter().for_each(Instance::end);
    }
}

/// A NATS client of the servers at `urls`, with commas between them, and the login in the first one.
pub async fn nats(urls: &str) -> Result<async_nats::Client, async_nats::ConnectError> {
    let (_, rest) = urls.split_once("://").expect("a URL has a scheme");
    let login = rest.split_once('@').and_then(|(login, _)| login.split_once(':'));
    let options = match login {
        Some((user, password)) => {
            async_nats::ConnectOptions::with_user_and_password(user.to_owned(), password.to_owned())
        }
        None => async_nats::ConnectOptions::new(),
    };
    options.connect(urls.split(',').collect::<Vec<_>>()).await
}

/// The address in a URL of the form `http://host:port/…`.
pub fn address_of(url: &str) -> SocketAddr {
    let authority = url.strip_prefix("http://").and_then(|rest| rest.split('/').next()).unwrap_or(url);
    authority.parse().unwrap_or_else(|error| panic!("{url}: {error}"))
}
