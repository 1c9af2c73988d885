//! The benchmark: appends, forwarded calls and projection, in one run on one machine, as Markdown.
//!
//! `cargo build --release -p farthing -p farthing-tests && target/release/benchmark [SECONDS]`
//!
//! It starts an instance of its own under the temporary folder and removes it again; `SECONDS` (5) is the length of
//! each measurement. All processes and the load share the machine.

mod appends;
mod calls;
mod http;
mod latency;
mod machine;
mod projection;

use std::io::Write as _;
use std::time::Duration;

use farthing_tests::instance::{Instance, signal};
use farthing_tests::run;

/// Clients, or connections, of each measurement.
const WIDTHS: [usize; 3] = [1, 16, 64];

fn main() {
    let seconds = std::env::args().nth(1).and_then(|seconds| seconds.parse().ok()).unwrap_or(5);
    let length = Duration::from_secs(seconds);
    run(async {
        let instance: &'static Instance =
            Box::leak(Box::new(Instance::start_with(1, &["--no-journal"]).await));
        say(&machine::description(instance).await);
        // What is read while it is written has no part in what a write costs.
        let projector = instance.ready().pids.projectors[0];
        signal(projector, "STOP");
        say(&appends::measure(instance, length).await);
        signal(projector, "CONT");
        say(&projection::catch_up(instance).await);
        say(&calls::measure(instance, length).await);
        say(&projection::rebuild(instance).await);
        instance.stop().await;
        instance.clear();
    });
}

fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).expect("somebody reads");
}
