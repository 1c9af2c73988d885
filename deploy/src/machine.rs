//! The machine that a role runs on, and the defaults that follow it. Each has a flag, and `settings.chosen` in the log says
//! what a process has chosen.

use std::num::{NonZero, NonZeroUsize};
use std::path::Path;

use farthing_api::{CONNECTIONS_PER_CALL, FILES_PER_LOOKUP, MOST_LOOKUPS};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Bytes.
pub(crate) const MIB: usize = 1024 * 1024;

/// The variable that sets the number of threads if no flag does.
const TOKIO_WORKER_THREADS: &str = "TOKIO_WORKER_THREADS";

/// The most memory that decoders get by default, in MiB, and the fewest.
const MOST_DECODER_MIB: usize = 256;
const FEWEST_DECODER_MIB: usize = 16;

/// Their share of the memory.
const DECODER_SHARE: usize = 16;

/// The most calls in flight by default, and the fewest. A call takes 1 MiB at the most: the part of its request that is
/// read ahead, and pieces of its bodies on their way.
const MOST_CALLS: usize = 2_048;
const FEWEST_CALLS: usize = 64;

/// The most memory that commands for one partition wait in by default, in MiB, and the least; and its share of the memory.
const MOST_QUEUED_MIB: usize = 32;
const LEAST_QUEUED_MIB: usize = 4;
const QUEUE_SHARE: usize = 128;

/// Open files beside those of connections and calls: connections to Postgres, NATS and other gateways, and lookups of
/// names.
const OTHER_FILES: usize = 256;

/// Those of them for lookups of names.
const LOOKUP_FILES: usize = 128;

/// What a process may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Machine {
    /// The cores, by the process's affinity and its control group.
    pub(crate) cores: usize,
    /// The memory, in MiB, of the machine or of the process's control group; `None` where it cannot be read.
    pub(crate) memory_mib: Option<usize>,
    /// The files that the process may have open; `None`: any number.
    pub(crate) open_files: Option<usize>,
}

/// The flag for the number of threads.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Threads {
    /// Threads that serve. The default is half of the cores.
    #[arg(long, env = "FARTHING_THREADS", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_024))]
    threads: Option<u32>,
}

impl Threads {
    /// The number of threads on this machine.
    pub(crate) fn on(&self, machine: &Machine) -> usize {
        let given = self.threads.and_then(|threads| usize::try_from(threads).ok());
        given.unwrap_or_else(|| machine.threads())
    }
}

impl Machine {
    /// This machine.
    pub(crate) fn find() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let text = |file: &Path| std::fs::read_to_string(file).ok();
        let limit = text(Path::new("/proc/self/cgroup")).and_then(|groups| memory_limit(&groups, text));
        let all = text(Path::new("/proc/meminfo")).and_then(|meminfo| total_memory(&meminfo));
        let memory_mib = [limit, all].into_iter().flatten().min().map(|bytes| bytes / MIB);
        let open_files =
            getrlimit(Resource::Nofile).current.map(|most| usize::try_from(most).unwrap_or(usize::MAX));
        Self { cores, memory_mib, open_files }
    }

    /// This machine, once the process may have as many open files as it can allow itself. Shells allow few by default,
    /// for programs that can wait for few.
    pub(crate) fn find_for_a_server() -> Self {
        let files = getrlimit(Resource::Nofile);
        if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files }) {
            tracing::debug!(event = "process.open_files_limited", %error, "the limit of open files stays");
        }
        Self::find()
    }

    /// The threads that serve, unless a flag says otherwise.
    pub(crate) fn threads(&self) -> usize {
        let given = std::env::var(TOKIO_WORKER_THREADS).ok();
        let given = given.and_then(|given| given.parse::<NonZeroUsize>().ok());
        given.map_or_else(|| half_of(self.cores), NonZero::get)
    }

    /// The memory of the decoders of compressed responses, in MiB: a sixteenth of all.
    pub(crate) fn decoder_mib(&self) -> usize {
        let share = self.memory_mib.map_or(MOST_DECODER_MIB, |memory| memory / DECODER_SHARE);
        share.clamp(FEWEST_DECODER_MIB, MOST_DECODER_MIB)
    }

    /// The calls in flight: one for each MiB of the memory, as far as the open files allow.
    pub(crate) fn calls(&self) -> usize {
        let by_memory = self.memory_mib.unwrap_or(MOST_CALLS);
        let by_files = self.files_for_calls().unwrap_or(MOST_CALLS);
        by_memory.min(by_files).clamp(FEWEST_CALLS, MOST_CALLS)
    }

    /// The connections of callers: two for each of the `calls`, or of those that this machine allows, as far as the open files
    /// do. Where calls are limited to few, those beyond them need connections for their answer.
    pub(crate) fn connections(&self, calls: usize) -> usize {
        let by_files = self.files_for_calls().map_or(usize::MAX, |calls| calls * 2);
        calls.max(self.calls()).saturating_mul(2).min(by_files).max(FEWEST_CALLS)
    }

    /// The memory of the commands that wait for one partition, in MiB.
    pub(crate) fn queued_mib(&self) -> usize {
        let share = self.memory_mib.map_or(MOST_QUEUED_MIB, |memory| memory / QUEUE_SHARE);
        share.clamp(LEAST_QUEUED_MIB, MOST_QUEUED_MIB)
    }

    /// The open files that so many connections and calls need. There are as many connections to the pages as to the API, each
    /// call has [`CONNECTIONS_PER_CALL`] to providers.
    pub(crate) const fn files_of(connections: usize, calls: usize) -> usize {
        let to_providers = calls.saturating_mul(CONNECTIONS_PER_CALL);
        connections.saturating_mul(2).saturating_add(to_providers).saturating_add(OTHER_FILES)
    }

    /// The lookups of names at once: as many as fit into their open files and those that so many connections and calls leave.
    pub(crate) fn name_lookups(&self, connections: usize, calls: usize) -> usize {
        let left = |files: usize| files.saturating_sub(Self::files_of(connections, calls));
        let files = self.open_files.map_or(usize::MAX, |files| LOOKUP_FILES + left(files));
        (files / FILES_PER_LOOKUP).min(MOST_LOOKUPS)
    }

    /// The calls that the open files allow, with two connections of callers for each.
    fn files_for_calls(&self) -> Option<usize> {
        Some(self.open_files?.saturating_sub(OTHER_FILES) / Self::FILES_PER_CALL)
    }

    /// Two connections at each of the two addresses, and those to providers.
    const FILES_PER_CALL: usize = 4 + CONNECTIONS_PER_CALL;
}

/// Half of the cores. The other half is for the servers that a role waits on; and a task that stays on its thread costs less
/// than one that moves between threads.
const fn half_of(cores: usize) -> usize {
    cores.div_ceil(2)
}

/// The least limit of memory, in bytes, of a process's control groups: its own, which the text of `/proc/self/cgroup` names,
/// and those around it. In a container these may be seen from outside, and its own is at the root.
fn memory_limit(groups: &str, read: impl Fn(&Path) -> Option<String>) -> Option<usize> {
    let limits = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (root, file) = match parts.next()? {
            "" => ("/sys/fs/cgroup", "memory.max"),
            controllers if controllers.split(',').any(|controller| controller == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => return None,
        };
        let own = Path::new(root).join(parts.next()?.trim_start_matches('/'));
        let around = own.ancestors().take_while(|group| group.starts_with(root));
        // A group without a limit has the text `max`.
        around.filter_map(|group| read(&group.join(file))?.trim().parse::<usize>().ok()).min()
    });
    limits.min()
}

/// The memory of a machine in bytes, of the text of `/proc/meminfo`.
fn total_memory(meminfo: &str) -> Option<usize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn machine(cores: usize, memory_mib: Option<usize>) -> Machine {
        Machine { cores, memory_mib, open_files: None }
    }

    #[test]
    fn threads_are_half_of_the_cores_unless_a_flag_says_otherwise() {
        assert_eq!([1, 2, 3, 8, 64].map(half_of), [1, 1, 2, 4, 32]);
        assert_eq!(Threads { threads: Some(3) }.on(&machine(8, None)), 3);
    }

    #[test]
    fn decoders_have_a_sixteenth_of_the_memory_within_bounds() {
        for (memory, decoders) in
            [(None, 256), (Some(64), 16), (Some(512), 32), (Some(2_048), 128), (Some(65_536), 256)]
        {
            assert_eq!(machine(1, memory).decoder_mib(), decoders);
        }
    }

    #[test]
    fn calls_and_connections_follow_the_memory_and_the_open_files() {
        for (memory, files, calls, connections) in [
            (None, None, 2_048, 4_096),
            (Some(16), None, 64, 128),
            (Some(512), None, 512, 1_024),
            (Some(65_536), Some(1_048_576), 2_048, 4_096),
            (Some(65_536), Some(65_536), 2_048, 4_096),
            (Some(65_536), Some(4_096), 548, 1_096),
            (Some(65_536), Some(1_024), 109, 218),
            (Some(65_536), Some(256), 64, 64),
        ] {
            let machine = Machine { cores: 1, memory_mib: memory, open_files: files };
            let found = machine.calls();
            assert_eq!((found, machine.connections(found)), (calls, connections), "{machine:?}");
            if files.is_some_and(|files| files > 1_000) {
                assert!(Machine::files_of(connections, calls) <= files.unwrap(), "{machine:?}");
            }
        }
        let few_files = Machine { open_files: Some(1_024), ..machine(1, None) };
        for calls in [1, 10_000] {
            assert_eq!(few_files.connections(calls), 218, "whatever the flag for calls says");
        }
        assert_eq!(machine(1, None).connections(10_000), 20_000);
    }

    #[test]
    fn lookups_of_names_follow_the_open_files_that_connections_and_calls_leave() {
        for (files, connections, calls, lookups) in [
            (None, 4_096, 2_048, 256),
            (Some(65_536), 4_096, 2_048, 256),
            (Some(4_096), 1_096, 548, 16),
            (Some(4_096), 500, 250, 256),
            (Some(1_024), 218, 109, 16),
            (Some(1_024), 100, 50, 68),
            (Some(256), 64, 64, 16),
        ] {
            let machine = Machine { open_files: files, ..machine(1, None) };
            assert_eq!(machine.name_lookups(connections, calls), lookups, "{machine:?}");
        }
    }

    #[test]
    fn queues_have_a_share_of_the_memory_within_bounds() {
        for (memory, queue) in [(None, 32), (Some(64), 4), (Some(1_024), 8), (Some(65_536), 32)] {
            assert_eq!(machine(1, memory).queued_mib(), queue);
        }
    }

    #[test]
    fn a_server_may_have_as_many_open_files_as_it_can_allow_itself() {
        let most = getrlimit(Resource::Nofile).maximum.map(|most| usize::try_from(most).unwrap());
        assert_eq!(Machine::find_for_a_server().open_files, most);
    }

    #[test]
    fn the_memory_of_a_machine_is_read() {
        assert_eq!(
            total_memory("MemFree: 1 kB\nMemTotal:        4030596 kB\nX: 2 kB\n"),
            Some(4_030_596 * 1024)
        );
        for text in ["", "MemTotal: x kB", "MemTotal: 5 MB"] {
            assert_eq!(total_memory(text), None, "{text}");
        }
    }

    #[test]
    fn the_least_limit_of_the_control_groups_around_a_process_counts() {
        let files = |files: &'static [(&str, &str)]| {
            move |path: &Path| {
                let found = files.iter().find(|(name, _)| Path::new(name) == path);
                found.map(|(_, text)| format!("{text}\n"))
            }
        };
        let unit = files(&[
            ("/sys/fs/cgroup/system.slice/memory.max", "1000"),
            ("/sys/fs/cgroup/system.slice/farthing@a.service/memory.max", "max"),
        ]);
        assert_eq!(memory_limit("0::/system.slice/farthing@a.service\n", unit), Some(1_000));
        assert_eq!(memory_limit("0::/user.slice\n", unit), None);
        let first_version = files(&[
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712"),
            ("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "3000"),
            ("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "2000"),
        ]);
        assert_eq!(memory_limit("4:cpu,memory:/a/b\n1:cpu:/\n0::/\n", first_version), Some(2_000));
        assert_eq!(memory_limit("4:memory:/a\n", first_version), Some(3_000));
        // A container that sees its name outside, and its own group at the root.
        let container = files(&[("/sys/fs/cgroup/memory.max", "500")]);
        assert_eq!(memory_limit("0::/docker/1234\n", container), Some(500));
        assert_eq!(memory_limit("0::/\n", container), Some(500));
        for text in ["", "x", "0:", "4:memory\n"] {
            assert_eq!(memory_limit(text, container), None, "{text}");
        }
    }

    #[test]
    fn this_machine_has_a_core() {
        assert!(Machine::find().cores > 0);
    }
}
