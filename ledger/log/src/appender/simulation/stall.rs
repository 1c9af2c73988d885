//! Gateways that stop running for a while, as a process does that is paused or starved.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

/// Whether a gateway's tasks run.
#[derive(Debug, Clone, Default)]
pub(super) struct Stall(Arc<Mutex<(bool, Vec<Waker>)>>);

impl Stall {
    /// From now on nothing of the gateway runs.
    pub(super) fn begin(&self) {
        self.0.lock().unwrap().0 = true;
    }

    /// The gateway runs again.
    pub(super) fn end(&self) {
        let wakers = {
            let mut stall = self.0.lock().unwrap();
            stall.0 = false;
            std::mem::take(&mut stall.1)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Runs `task` of the gateway, except while it is stalled.
    pub(super) async fn run<T>(self, task: impl Future<Output = T>) -> T {
        let mut task = pin!(task);
        std::future::poll_fn(|context| {
            let mut stall = self.0.lock().unwrap();
            if stall.0 {
                stall.1.push(context.waker().clone());
                return Poll::Pending;
            }
            drop(stall);
            task.as_mut().poll(context)
        })
        .await
    }
}
