//! The benchmark: appends, forwarded calls and projection, in one run on one machine, as Markdown.
//!
//! `cargo build --release -p farthing -p farthing-tests && target/release/benchmark [SECONDS | appends | lists | rate]`
//!
//! It starts a separate instance in the temporary folder and removes it; `SECONDS` (5) is the length of each measurement;
//! `appends` measures appends alone, of one wallet and of many, `lists` the long lists, `rate` a minute of a spend key's
//! rate limit. All processes and the load share the machine.

mod appends;
mod calls;
mod http;
mod latency;
mod lists;
mod machine;
mod projection;
mod rate;

use std::io::Write as _;
use std::time::Duration;

use farthing_tests::instance::Instance;
use farthing_tests::process::signal;
use farthing_tests::run;

/// Clients, or connections, of each measurement.
const WIDTHS: [usize; 3] = [1, 16, 64];

/// Write-ahead segments, of 16 MiB each, that exist before the measurements.
const WAL_SEGMENTS: usize = 120;

fn main() {
    let argument = std::env::args().nth(1).unwrap_or_default();
    let seconds = argument.parse().unwrap_or(5);
    let length = Duration::from_secs(seconds);
    let gateways = if argument == "rate" { 2 } else { 1 };
    run(async {
        let instance = Instance::of_test_with(gateways, &["--no-journal"]).await;
        say(&machine::description(instance).await);
        match argument.as_str() {
            "rate" => say(&rate::measure(instance).await),
            "lists" => say(&lists::measure(instance).await),
            "appends" => {
                in_steady_state(instance).await;
                let _paused = Paused::projector(instance);
                say(&appends::measure(instance, length).await);
                say(&appends::wallets(instance, length).await);
            }
            _ => {
                in_steady_state(instance).await;
                let paused = Paused::projector(instance);
                say(&appends::measure(instance, length).await);
                drop(paused);
                say(&projection::catch_up(instance).await);
                say(&calls::measure(instance, length).await);
                say(&projection::rebuild(instance).await);
                say(&lists::measure(instance).await);
            }
        }
        instance.stop().await;
        instance.clear();
    });
}

/// A process that stands still until this is dropped.
struct Paused(u32);

impl Paused {
    /// Reading while writing would add to the cost of a write.
    fn projector(instance: &Instance) -> Self {
        let projector = instance.ready().pids.projectors[0];
        signal(projector, "STOP");
        Self(projector)
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        signal(self.0, "CONT");
    }
}

/// Creates write-ahead segments for Postgres to recycle, as in a server that has run for a while: creating one takes tens of
/// milliseconds.
async fn in_steady_state(instance: &Instance) {
    let log = instance.log().await;
    for statement in ["ALTER SYSTEM SET min_wal_size = '3GB'", "SELECT pg_reload_conf()"] {
        log.sql.batch_execute(statement).await.expect("the benchmark's own cluster can be set");
    }
    for _ in 0..WAL_SEGMENTS {
        log.sql
            .batch_execute("SELECT pg_logical_emit_message(false, 'benchmark', '')")
            .await
            .expect("a record");
        log.sql.batch_execute("SELECT pg_switch_wal()").await.expect("a segment can be ended");
    }
    for _ in 0..2 {
        log.sql.batch_execute("CHECKPOINT").await.expect("a checkpoint can be asked for");
    }
}

fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).expect("standard output is open");
}
