//! Work on a thread of its own, which tasks of the shared threads cannot hold up: leases and heartbeats. If these are late,
//! other gateways take a living one for dead.

use tokio_util::task::TaskTracker;

use crate::abort_on_panic::AbortOnPanic;

/// Runs what `work` returns on a thread of its own until it ends. `name` is that of the thread, at most 15 bytes.
pub fn spawn<F>(tasks: &TaskTracker, name: &'static str, work: impl FnOnce() -> F + Send + 'static)
where
    F: Future<Output = ()>,
{
    let token = tasks.token();
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        let _token = token;
        let _guard = AbortOnPanic(name);
        match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(work()),
            Err(error) => {
                tracing::error!(event = "own_thread.failed", %error, name, "a thread cannot be started");
            }
        }
    });
    // Without it the others would take this process for dead.
    thread.expect("a thread can be started");
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn busy_shared_threads_do_not_hold_it_up() {
        let (free, until_free) = mpsc::channel::<()>();
        let (is_busy, busy) = mpsc::channel();
        tokio::spawn(async move {
            is_busy.send(()).unwrap();
            let _ = until_free.recv();
        });
        busy.recv().unwrap();
        let (beat, beats) = mpsc::channel();
        let tasks = TaskTracker::new();
        spawn(&tasks, "a heart", move || async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            beat.send(()).unwrap();
        });
        let has_beaten = beats.recv_timeout(Duration::from_mins(1));
        free.send(()).unwrap();
        assert!(has_beaten.is_ok());
        tasks.close();
        tasks.wait().await;
    }
}
