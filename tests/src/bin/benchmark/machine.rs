//! The machine, and the CPU time of each process on it.

use farthing_tests::instance::Instance;

/// Ticks of the kernel's clock in a second (`USER_HZ`, the same on every Linux).
const TICKS_PER_SECOND: u64 = 100;

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Describes the machine.
pub(crate) async fn description(instance: &Instance) -> String {
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("?");
    let cores = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let memory =
        read("/proc/meminfo").split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0);
    let log = instance.log().await;
    let postgres: String = log.sql.query_one("SHOW server_version", &[]).await.expect("a version").get(0);
    let fsync: String = log.sql.query_one("SHOW fsync", &[]).await.expect("a setting").get(0);
    format!(
        "## The machine\n\n{cores} × {}, {} GiB, Linux {}; Postgres {postgres}, fsync {fsync}; everything, the load \
         included, on it together.\n",
        model.trim_start_matches([' ', '\t', ':']),
        memory / 1024 / 1024,
        read("/proc/sys/kernel/osrelease").trim(),
    )
}

/// CPU time of each part of an instance, in milliseconds since it started.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cpu {
    gateway: u64,
    postgres: u64,
    projector: u64,
    nats: u64,
    provider: u64,
    load: u64,
}

/// The fields of `/proc/<pid>/stat` after the name.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(text.rsplit(')').next()?.split_whitespace().map(str::to_owned).collect())
}

fn cpu_millis(pid: u32) -> u64 {
    let field =
        |fields: &[String], at: usize| fields.get(at).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    stat(pid).map_or(0, |fields| (field(&fields, 11) + field(&fields, 12)) * 1_000 / TICKS_PER_SECOND)
}

fn children(parent: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| stat(*pid).is_some_and(|fields| fields.get(1) == Some(&parent.to_string()))).collect()
}

impl Cpu {
    /// Reads the CPU times of all parts; 0 for servers that were given.
    pub(crate) fn now(instance: &Instance) -> Self {
        let pids = instance.ready().pids;
        let of_postgres = |pid| children(pid).into_iter().map(cpu_millis).sum::<u64>() + cpu_millis(pid);
        Self {
            gateway: pids.gateways.iter().copied().map(cpu_millis).sum(),
            postgres: pids.postgres.map_or(0, of_postgres),
            projector: pids.projectors.iter().copied().map(cpu_millis).sum(),
            nats: pids.nats.map_or(0, cpu_millis),
            provider: cpu_millis(pids.provider),
            load: cpu_millis(std::process::id()),
        }
    }

    /// Microseconds of CPU time per one of `count`, for each part since `before`.
    pub(crate) fn row(&self, before: &Self, count: u64) -> String {
        let each = |now: u64, then: u64| now.saturating_sub(then) * 1_000 / count.max(1);
        format!(
            "{} | {} | {} | {} | {} | {}",
            each(self.gateway, before.gateway),
            each(self.postgres, before.postgres),
            each(self.projector, before.projector),
            each(self.nats, before.nats),
            each(self.provider, before.provider),
            each(self.load, before.load),
        )
    }
}
