//! Other processes of this machine: whether they run, how much memory, time, files and threads they use, and signals to them.

use std::process::{Command, Stdio};

/// Whether a process runs and is not a zombie.
pub fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next()).is_some_and(|state| state != "Z")
}

/// The resident memory of a process; 0 where it cannot be read.
pub fn resident_kib(pid: u32) -> u64 {
    status_kib(pid, "VmRSS:")
}

/// The most memory that a process has had resident, in KiB.
pub fn peak_resident_kib(pid: u32) -> u64 {
    status_kib(pid, "VmHWM:")
}

fn status_kib(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// The open files of a process, sockets included.
pub fn open_files(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// The threads of a process.
pub fn threads(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().count()
}

/// The time that a process has had the processor, in ticks of the system's clock.
pub fn cpu_ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // After the name in parentheses: the state is field 3, and the times in user and in system mode are 14 and 15.
    let fields = stat.rsplit(") ").next().unwrap().split_whitespace().skip(11).take(2);
    fields.map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

/// Kills a process as a power cut does. Does nothing if it has ended.
pub fn kill(pid: u32) {
    signal(pid, "KILL");
}

/// Sends a signal. Does nothing if the process has ended. Returns from `STOP` when the process stands still: on a busy
/// machine its threads go on for a while after the signal was sent.
pub fn signal(pid: u32, name: &str) {
    let mut kill = Command::new("kill");
    kill.args([&format!("-{name}"), &pid.to_string()]).stderr(Stdio::null());
    kill.status().expect("kill can be run");
    while name == "STOP" && is_moving(pid) {
        std::thread::yield_now();
    }
}

/// Whether a thread of the process runs or may run. Where Linux does not tell, none does.
fn is_moving(pid: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    threads.flatten().any(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The state follows the name in parentheses: stopped, a zombie, or dead.
        let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
        !matches!(state, None | Some('T' | 't' | 'Z' | 'X'))
    })
}
