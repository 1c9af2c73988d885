//! The metrics of every process, under their usual names. Memory, CPU and file descriptors are read from `/proc`; where
//! there is none, they are left out.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::Metrics;

/// The time of a clock tick in `/proc/self/stat`, the same on every Linux that this program runs on.
const TICK: Duration = Duration::from_millis(10);

/// Adds the metrics of this process, whose role has this name.
pub fn register(metrics: &Metrics, role: &'static str, version: &'static str) {
    let labels = [("version", version), ("role", role)];
    metrics.info("farthing_build_info", "The version and the role of the process; always 1", &labels);
    metrics.gauge_from("process_resident_memory_bytes", "Resident memory", resident_bytes);
    metrics.counter_from("process_cpu_seconds_total", "CPU time in user and system mode", cpu_seconds);
    metrics.gauge_from("process_open_fds", "Open file descriptors", open_files);
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let started = move || Some(started);
    metrics.gauge_from("process_start_time_seconds", "Start of the process, since the epoch", started);
}

fn resident_bytes() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(number(kib.checked_mul(1_024)?))
}

fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program, in parentheses, may hold anything. The 14th and 15th fields are 12 and 13 after it.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: u32 = fields.next()?.parse().ok()?;
    let system: u32 = fields.next()?.parse().ok()?;
    Some((TICK * user.checked_add(system)?).as_secs_f64())
}

fn open_files() -> Option<f64> {
    Some(number(u64::try_from(fs::read_dir("/proc/self/fd").ok()?.count()).ok()?))
}

#[expect(clippy::cast_precision_loss, reason = "below 2^53")]
const fn number(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn the_process_is_read() {
        assert!(resident_bytes().is_some_and(|bytes| bytes > 100_000.0));
        assert!(cpu_seconds().is_some());
        assert!(open_files().is_some_and(|files| files >= 3.0));
    }
}
