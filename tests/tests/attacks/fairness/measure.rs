//! Latencies, and the limits of this process.

use std::fmt;
use std::process::Command;
use std::time::Duration;

use super::say;

/// Latencies, in order.
pub(super) struct Latencies(Vec<Duration>);

impl Latencies {
    pub(super) fn of(latencies: impl Iterator<Item = Duration>) -> Self {
        let mut latencies: Vec<_> = latencies.collect();
        latencies.sort();
        assert!(!latencies.is_empty(), "no call was measured");
        Self(latencies)
    }

    /// The latency that so many of a hundred calls do not exceed.
    fn percentile(&self, percent: usize) -> Duration {
        self.0[(self.0.len() * percent).div_ceil(100) - 1]
    }

    pub(super) fn p99(&self) -> Duration {
        self.percentile(99)
    }
}

impl fmt::Display for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [median, p90, p99, longest] = [50, 90, 99, 100].map(|percent| self.percentile(percent));
        let count = self.0.len();
        write!(f, "{count} calls, median {median:.1?}, p90 {p90:.1?}, p99 {p99:.1?}, longest {longest:.1?}")
    }
}

/// Lets every thread of this process but one run only when nobody else wants the processor: the attacker has machines of
/// its own, and here it must not take the gateway's.
pub(super) fn give_way_to(one: u32) {
    let own = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let own = own.filter_map(|thread| thread.file_name().to_str()?.parse::<u32>().ok());
    let threads: Vec<_> = own.filter(|thread| *thread != one).map(|id| id.to_string()).collect();
    let renice = Command::new("renice").args(["-n", "19", "-p"]).args(&threads).output();
    if !renice.is_ok_and(|output| output.status.success()) {
        say(
            "the attacker's threads have the priority of all others, and delay the victim's calls by their own work",
        );
    }
}

/// The files that this process may have open; 1,024 where it cannot be read.
pub(super) fn open_files() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(1_024)
}
