//! Programs whose clock differs from the machine's, by `faketime`.

use std::process::{Command, Stdio};

use crate::left_out;

/// The command that runs a program, which follows, with a clock so many seconds ahead, or behind if below zero. Its timers
/// run as before. `None` where there is no `faketime`: then this says that the test is left out.
pub fn faketime(seconds: i64) -> Option<[String; 5]> {
    let found =
        Command::new("faketime").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if found.is_err() {
        let test = std::thread::current().name().unwrap_or_default().to_owned();
        left_out(&format!("{test}: there is no faketime"));
        return None;
    }
    let offset = format!("{seconds:+}s");
    Some(["faketime", "-m", "--exclude-monotonic", "-f", &offset].map(str::to_owned))
}
