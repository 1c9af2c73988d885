//! What a gateway makes of its machine: threads follow the cores that it may use, calls and connections its open files and
//! the memory of its control group.

use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use farthing_tests::client::{Connection, Request};
use farthing_tests::instance::Instance;
use farthing_tests::left_out;
use farthing_tests::run;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::eventually;
use futures_util::future::{Either, select};

use crate::default_server::logged_number;

/// What a gateway says of itself at its start.
const CHOSEN: &str = "event=\"settings.chosen\"";
const DO_NOT_FIT: &str = "event=\"settings.files_do_not_fit\"";

/// A gateway of the shared instance under another program. `None`, with a message, where that program is missing.
async fn under(wrapper: &[&str], flags: &[&str]) -> Option<SideGateway> {
    let found =
        Command::new(wrapper[0]).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if found.is_err() {
        let test = std::thread::current().name().unwrap_or_default().to_owned();
        left_out(&format!("{test}: there is no {}", wrapper[0]));
        return None;
    }
    let instance = Instance::shared().await;
    let ready = instance.ready();
    let servers = ["--database-url", &ready.database_url, "--nats-url", &ready.nats_url];
    Some(SideGateway::under(instance, wrapper, &servers, flags).await)
}

/// The numbers that a gateway has chosen.
fn chosen<const N: usize>(gateway: &SideGateway, fields: [&str; N]) -> [usize; N] {
    let logged = gateway.logged();
    fields.map(|field| logged_number(&logged, CHOSEN, field).unwrap_or_else(|| panic!("{field}: {logged}")))
}

/// A core that this test may use.
fn a_core() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or("0");
    allowed.trim().split(['-', ',']).next().unwrap_or("0").to_owned()
}

#[test]
fn threads_follow_the_cores_that_the_process_may_use() {
    run(async {
        let all = std::thread::available_parallelism().map_or(1, NonZero::get);
        let own = SideGateway::start(Instance::shared().await, &[]).await;
        assert_eq!(chosen(&own, ["cores", "threads"]), [all, all.div_ceil(2)]);
        drop(own);
        let core = a_core();
        let on_one = ["taskset", "--cpu-list", core.as_str()];
        for (flags, threads) in [(None, 1), (Some("--threads=3"), 3)] {
            let Some(gateway) = under(&on_one, flags.as_slice()).await else { return };
            assert_eq!(chosen(&gateway, ["cores", "threads"]), [1, threads], "{flags:?}");
        }
    });
}

#[test]
fn calls_and_connections_follow_the_open_files() {
    run(async {
        // The soft limit is raised to the hard one.
        let Some(gateway) = under(&["prlimit", "--nofile=300:1024"], &[]).await else { return };
        let limits = chosen(&gateway, ["open_files", "max_calls", "max_connections", "max_name_lookups"]);
        assert_eq!(limits, [1_024, 109, 218, 16]);
        assert!(!gateway.logged().contains(DO_NOT_FIT), "{}", gateway.logged());
        let own = fs::read_to_string(format!("/proc/{}/limits", gateway.pid())).unwrap();
        let files = own.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
        assert_eq!(files.split_whitespace().collect::<Vec<_>>(), ["1024", "1024", "files"]);

        // Fewer files than the fewest calls and connections need: it says so, unless flags ask for less.
        let few = ["prlimit", "--nofile=512:512"];
        let Some(gateway) = under(&few, &["--max-calls=20", "--max-connections=40"]).await else { return };
        assert!(!gateway.logged().contains(DO_NOT_FIT), "{}", gateway.logged());
        let Some(gateway) = under(&few, &[]).await else { return };
        let limits = chosen(&gateway, ["open_files", "max_calls", "max_connections"]);
        assert_eq!(limits, [512, 64, 72]);
        let logged = gateway.logged();
        assert_eq!(logged_number(&logged, DO_NOT_FIT, "needed"), Some(592), "{logged}");
        only_so_many_connections_are_served(&gateway, limits[2]).await;
    });
}

/// Half of the connections are those of one address. One beyond all of them waits until another ends.
async fn only_so_many_connections_are_served(gateway: &SideGateway, most: usize) {
    let request = Request::new("GET", "/v1/openapi.json");
    let mut held = Vec::new();
    for address in [[127, 0, 0, 2], [127, 0, 0, 3]] {
        for _ in 0..most / 2 {
            let mut connection = Connection::open_from(address.into(), gateway.address).await.unwrap();
            connection.send(&request).await.unwrap();
            connection.response("GET").await.unwrap().expect(200);
            held.push(connection);
        }
    }
    let mut beyond = Connection::open_from([127, 0, 0, 4].into(), gateway.address).await.unwrap();
    beyond.send(&request).await.unwrap();
    let mut first = held.pop().unwrap();
    let others = async {
        for _ in 0..20 {
            first.send(&request).await.unwrap();
            first.response("GET").await.unwrap().expect(200);
        }
    };
    let mut answer = Box::pin(beyond.response("GET"));
    match select(Box::pin(others), &mut answer).await {
        Either::Left(_) => {}
        Either::Right((answer, _)) => panic!("a connection beyond the limit was served: {answer:?}"),
    }
    drop(first);
    answer.await.unwrap().expect(200);
}

/// A control group of a test's own, which limits memory.
struct ControlGroup(PathBuf);

impl ControlGroup {
    /// Makes one with this limit in bytes. `None`, with a message, where that is not permitted.
    fn make(bytes: u64) -> Option<Self> {
        let name = format!("farthing-test-{}", std::process::id());
        for (root, limit) in
            [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")]
        {
            let group = Self(Path::new(root).join(&name));
            let has_limit = || fs::write(group.0.join(limit), bytes.to_string());
            if fs::create_dir(&group.0).is_ok() && group.0.join(limit).exists() && has_limit().is_ok() {
                return Some(group);
            }
        }
        let test = std::thread::current().name().unwrap_or_default().to_owned();
        left_out(&format!("{test}: no control group can be made, which needs root"));
        None
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn memory_is_that_of_the_control_group() {
    run(async {
        let Some(group) = ControlGroup::make(512 * 1024 * 1024) else { return };
        let enter = format!("echo $$ >{}/cgroup.procs && exec \"$@\"", group.0.display());
        let entering = ["prlimit", "--nofile=4096:4096", "sh", "-c", &enter, "sh"];
        let Some(gateway) = under(&entering, &[]).await else { return };
        let fields = ["memory_mib", "max_calls", "max_connections", "decoder_mib", "max_queued_mib"];
        assert_eq!(chosen(&gateway, fields), [512, 512, 1_024, 32, 4]);
        drop(gateway);
        eventually("the group is empty", async || {
            let processes = fs::read_to_string(group.0.join("cgroup.procs")).ok()?;
            processes.is_empty().then_some(())
        })
        .await;
    });
}
