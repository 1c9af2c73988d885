//! Measures what the metrics of one forwarded call cost: the counts, the gauges, the histograms and the ages of its two
//! commands, and the instants that they take. All threads count in the same metrics, as the threads of a gateway do.
//!
//! `cargo run --release -p farthing-telemetry --example metrics_cost -- [THREADS]`

#![expect(clippy::print_stdout, clippy::unwrap_used)]

use std::hint::black_box;
use std::thread;
use std::time::Instant;

use farthing_telemetry::{Ages, Counted, Counter, Gauge, Histogram, Metrics};

/// The calls of each thread.
const CALLS: u32 = 2_000_000;

/// How often a call at the clock for its metrics: at its begin and its end, and before and after the waits for the
/// provider's head and for the caller. The ages of its commands look, too.
const INSTANTS: usize = 6;

/// The metrics that one call counts in. Those of a record batch are shared by its commands, and left out.
#[derive(Clone)]
struct CallMetrics {
    calls: Counter,
    duration: Histogram,
    added: Histogram,
    open: Gauge,
    in_flight: Gauge,
    queue: Ages,
}

impl CallMetrics {
    fn new(metrics: &Metrics) -> Self {
        Self {
            calls: metrics.counter("calls_total", "Calls"),
            duration: metrics.durations("duration_seconds", "Duration"),
            added: metrics.durations("added_seconds", "Added"),
            open: metrics.gauge("open", "Open calls"),
            in_flight: metrics.gauge("in_flight", "Calls in flight"),
            queue: Ages::default(),
        }
    }

    fn count_call(&self) {
        let began = Instant::now();
        for _ in 2..INSTANTS {
            black_box(Instant::now());
        }
        let _gauges = (Counted::new(&self.open), Counted::new(&self.in_flight));
        // The opening and the settlement.
        for _ in 0..2 {
            drop(black_box(self.queue.begin()));
        }
        self.calls.inc();
        let duration = began.elapsed();
        self.duration.observe(duration);
        self.added.observe(duration / 2);
    }
}

fn main() {
    let threads: u32 = std::env::args().nth(1).map_or(1, |threads| threads.parse().unwrap());
    let metrics = Metrics::default();
    let of_call = CallMetrics::new(&metrics);
    let began = Instant::now();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| (0..CALLS).for_each(|_| of_call.count_call()));
        }
    });
    let each = began.elapsed() / CALLS;
    let counted = of_call.calls.get();
    println!("{threads} threads: {each:?} for the metrics of a call, {counted} calls");
    let began = Instant::now();
    let bytes = metrics.text().unwrap().len();
    println!("a scrape of these metrics: {:?}, {bytes} bytes", began.elapsed());
}
