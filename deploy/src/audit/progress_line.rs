//! The progress of an audit as a line on a terminal: events, their rate and the time left.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use farthing_log::verify::Progress;

/// The time between two updates of the line.
const INTERVAL: Duration = Duration::from_millis(500);

/// Shows `progress` of the reading of `what` until the future is dropped. Without a terminal on stderr it shows nothing.
pub(super) async fn show(what: &str, progress: Arc<Progress>) -> Infallible {
    if !std::io::stderr().is_terminal() {
        return std::future::pending().await;
    }
    let _line = Line;
    let started = Instant::now();
    let mut ticks = tokio::time::interval(INTERVAL);
    loop {
        ticks.tick().await;
        let text = text(what, progress.events(), started.elapsed());
        let _ = write!(std::io::stderr().lock(), "\r\u{1b}[K{text}");
    }
}

/// The line on the terminal, which is cleared at its end.
struct Line;

impl Drop for Line {
    fn drop(&mut self) {
        let _ = write!(std::io::stderr().lock(), "\r\u{1b}[K");
    }
}

/// The line after `elapsed`, with `done` of `total` events of `what`.
fn text(what: &str, (done, total): (i64, i64), elapsed: Duration) -> String {
    let milliseconds = i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX).max(1);
    let rate = done.saturating_mul(1_000) / milliseconds;
    let total = total.max(done);
    let percent = if total == 0 { 100 } else { done.saturating_mul(100) / total };
    let mut text = format!("{what}: {percent:3} %  {done} of {total} events  {rate} events/s");
    if rate > 0 {
        let left = (total - done) / rate;
        let _ = write!(text, "  {}:{:02} left", left / 60, left % 60);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_rate_and_time_left() {
        let shown = |done, total, seconds| text("log", (done, total), Duration::from_secs(seconds));
        assert_eq!(shown(0, 1_000, 0), "log:   0 %  0 of 1000 events  0 events/s");
        assert_eq!(shown(250, 1_000, 2), "log:  25 %  250 of 1000 events  125 events/s  0:06 left");
        assert_eq!(shown(60, 6_100, 1), "log:   0 %  60 of 6100 events  60 events/s  1:40 left");
        assert_eq!(
            shown(12, 10, 1),
            "log: 100 %  12 of 12 events  12 events/s  0:00 left",
            "the log has grown"
        );
        assert_eq!(shown(0, 0, 1), "log: 100 %  0 of 0 events  0 events/s");
    }
}
