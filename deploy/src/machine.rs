//! The machine that a role runs on, and the defaults that follow it. Each has a flag, and `settings.chosen` in the log says
//! what a process has chosen.

use std::num::{NonZero, NonZeroUsize};

/// Bytes.
pub(crate) const MIB: usize = 1024 * 1024;

/// The variable that sets the number of threads if no flag does.
const TOKIO_WORKER_THREADS: &str = "TOKIO_WORKER_THREADS";

/// The most memory that decoders get by default, in MiB, and the fewest.
const MOST_DECODER_MIB: usize = 256;
const FEWEST_DECODER_MIB: usize = 16;

/// Their share of the memory.
const DECODER_SHARE: usize = 16;

/// What a process may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Machine {
    /// The cores, by the process's affinity and its control group.
    pub(crate) cores: usize,
    /// The memory, in MiB, of the machine or of the process's control group; `None` where it cannot be read.
    pub(crate) memory_mib: Option<usize>,
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
        let text = |file: &str| std::fs::read_to_string(file).ok();
        let limits = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
        let limit = limits.iter().find_map(|file| text(file)?.trim().parse::<usize>().ok());
        let all = text("/proc/meminfo").and_then(|meminfo| total_memory(&meminfo));
        let memory_mib = [limit, all].into_iter().flatten().min().map(|bytes| bytes / MIB);
        Self { cores, memory_mib }
    }

    /// The threads that serve, unless a flag says otherwise.
    pub(crate) fn threads(&self) -> usize {
        let given = std::env::var(TOKIO_WORKER_THREADS).ok();
        let given = given.and_then(|given| given.parse::<NonZeroUsize>().ok());
        given.map_or_else(|| half_of(self.cores), NonZero::get)
    }

    /// The memory of the decoders of compressed responses, in MiB: a sixteenth of all.
    pub(crate) fn decoder_mib(&self) -> u32 {
        let share = self.memory_mib.map_or(MOST_DECODER_MIB, |memory| memory / DECODER_SHARE);
        u32::try_from(share.clamp(FEWEST_DECODER_MIB, MOST_DECODER_MIB)).unwrap_or(u32::MAX)
    }
}

/// Half of the cores. The other half is for the servers that a role waits on; and a task that stays on its thread costs less
/// than one that moves between threads.
const fn half_of(cores: usize) -> usize {
    cores.div_ceil(2)
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
        Machine { cores, memory_mib }
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
    fn this_machine_has_a_core() {
        assert!(Machine::find().cores > 0);
    }
}
