//! Whether the shared threads of this process still work, at least one of them. The threads that tell others that it lives run on when these hang,
//! such as on a log that nobody reads. Its partitions and calls would be left to it, and nothing would be done for them.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const INTERVAL: Duration = Duration::from_millis(250);

/// When the shared threads last worked.
#[derive(Debug, Clone)]
pub struct Pulse {
    last: watch::Receiver<Instant>,
    longest_silence: Duration,
}

impl Pulse {
    /// Begins to beat on the runtime of the caller, until `stop`.
    pub fn start(longest_silence: Duration, stop: CancellationToken, tasks: &TaskTracker) -> Self {
        let (beat, last) = watch::channel(Instant::now());
        tasks.spawn(async move {
            let beats = async {
                loop {
                    sleep(INTERVAL).await;
                    beat.send_replace(Instant::now());
                }
            };
            let _: Option<()> = stop.run_until_cancelled(beats).await;
        });
        Self { last, longest_silence }
    }

    /// Whether the shared threads have hung for longer than they may.
    pub fn is_silent(&self) -> bool {
        self.last.borrow().elapsed() > self.longest_silence
    }

    /// Waits for the next beat. There is none after the end.
    pub async fn beats(&mut self) {
        self.last.mark_unchanged();
        if self.last.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Waits on a thread of the test, without a time: a test that hangs is ended from outside.
    fn wait_until(holds: impl Fn() -> bool) {
        while !holds() {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn it_is_silent_while_all_shared_threads_hang() {
        let shared =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let mut pulse = {
            let _inside = shared.enter();
            Pulse::start(4 * INTERVAL, stop.clone(), &tasks)
        };
        let (free, until_free) = mpsc::channel::<()>();
        let (is_busy, busy) = mpsc::channel();
        shared.spawn(async move {
            is_busy.send(()).unwrap();
            let _ = until_free.recv();
        });
        busy.recv().unwrap();
        wait_until(|| pulse.is_silent());
        free.send(()).unwrap();
        shared.block_on(pulse.beats());
        wait_until(|| !pulse.is_silent());
        stop.cancel();
        tasks.close();
        shared.block_on(tasks.wait());
    }
}
