//! Threads of lower priority, on which long answers are decoded, so that other work gets a processor first.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

/// How much the threads give way: at 5 a thread gets a quarter of the time of a core, if one of usual priority wants it
/// too.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 5;

type Job = Box<dyn FnOnce() + Send>;

/// A few threads and their queue. The threads end with the queue. It needs no bound of its own: a job holds one of the
/// gateway's turns, of which there are as many as threads.
#[derive(Debug)]
pub(super) struct DecoderThreads(Sender<Job>);

impl DecoderThreads {
    pub(super) fn start(count: usize) -> io::Result<Self> {
        let (queue, jobs) = channel();
        let jobs = Arc::new(Mutex::new(jobs));
        for _ in 0..count {
            let jobs = Arc::clone(&jobs);
            std::thread::Builder::new().name("decoder".to_owned()).spawn(move || run(&jobs))?;
        }
        Ok(Self(queue))
    }

    /// Runs `work` on one of the threads. `None` if it panicked there, or if there is no thread.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (done, result) = oneshot::channel();
        let job: Job = Box::new(move || {
            // The task that waited may have ended.
            let _ = done.send(work());
        });
        self.0.send(job).ok()?;
        result.await.ok()
    }
}

fn run(jobs: &Mutex<Receiver<Job>>) {
    give_way();
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        // The panic hook reports a panic, and the task that waits gets no result.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
    }
}

/// Lowers the priority of this thread, and never raises it. Where only whole processes have one, or it cannot be lowered, nothing
/// changes.
fn give_way() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::getpriority_process(None)
        .and_then(|own| rustix::process::setpriority_process(None, NICENESS.max(own)))
    {
        tracing::debug!(event = "forward.decoder_priority", %error, "the priority of a thread cannot be lowered");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn its_threads_alone_give_way() {
        let threads = DecoderThreads::start(1).unwrap();
        let before = rustix::process::getpriority_process(None).unwrap();
        let theirs = threads.run(|| rustix::process::getpriority_process(None).unwrap()).await;
        assert_eq!(theirs, Some(NICENESS.max(before)));
        assert_eq!(rustix::process::getpriority_process(None).unwrap(), before);
    }

    #[tokio::test]
    async fn a_panic_ends_its_own_work_alone() {
        let threads = DecoderThreads::start(1).unwrap();
        assert_eq!(threads.run(|| -> u8 { panic!("expected by the test") }).await, None);
        assert_eq!(threads.run(|| 1).await, Some(1));
    }
}
