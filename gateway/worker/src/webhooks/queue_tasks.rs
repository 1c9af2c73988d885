//! The tasks that deliver queues. The dispatcher keeps to the limits in all and per webhook. A task that panics frees its
//! slot like any other.

use std::collections::HashMap;

use farthing_core::ids::WebhookId;
use tokio::task::{self, JoinError, JoinSet};

/// Queues that are delivered at once.
pub(super) const MAX_QUEUES: usize = 256;

/// Queues of one webhook that are delivered at once, so that a slow receiver leaves slots for the others.
pub(super) const MAX_QUEUES_PER_WEBHOOK: usize = 8;

/// The running tasks.
#[derive(Debug, Default)]
pub(super) struct QueueTasks {
    tasks: JoinSet<()>,
    webhooks: HashMap<task::Id, WebhookId>,
}

impl QueueTasks {
    /// How many further tasks may start.
    pub(super) fn room(&self) -> usize {
        MAX_QUEUES.saturating_sub(self.webhooks.len())
    }

    /// The webhooks with running tasks, and how many each has.
    pub(super) fn by_webhook(&self) -> HashMap<WebhookId, usize> {
        let mut running: HashMap<WebhookId, usize> = HashMap::new();
        for webhook_id in self.webhooks.values() {
            *running.entry(*webhook_id).or_default() += 1;
        }
        running
    }

    /// Starts a task that delivers a queue of `webhook_id`.
    pub(super) fn spawn(&mut self, webhook_id: WebhookId, task: impl Future<Output = ()> + Send + 'static) {
        let id = self.tasks.spawn(task).id();
        self.webhooks.insert(id, webhook_id);
    }

    /// Frees the slots of tasks that have ended.
    pub(super) fn reap(&mut self) {
        while let Some(ended) = self.tasks.try_join_next_with_id() {
            self.free(ended);
        }
    }

    /// Waits until a task ends and frees its slot; `None` when none runs.
    pub(super) async fn join_next(&mut self) -> Option<()> {
        let ended = self.tasks.join_next_with_id().await?;
        self.free(ended);
        Some(())
    }

    fn free(&mut self, ended: Result<(task::Id, ()), JoinError>) {
        match ended {
            Ok((id, ())) => {
                self.webhooks.remove(&id);
            }
            Err(error) => {
                let webhook_id = self.webhooks.remove(&error.id()).map(|id| id.to_string());
                tracing::error!(
                    event = "webhook.delivery_panicked",
                    webhook_id,
                    %error,
                    "a webhook delivery task panicked"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    fn webhook(number: u128) -> WebhookId {
        WebhookId::new(ulid::Ulid(number))
    }

    #[tokio::test]
    async fn a_panic_frees_one_place_of_its_own_webhook() {
        let (slow, failing) = (webhook(1), webhook(2));
        let mut tasks = QueueTasks::default();
        for _ in 0..MAX_QUEUES_PER_WEBHOOK {
            tasks.spawn(slow, pending());
        }
        for _ in 1..MAX_QUEUES_PER_WEBHOOK {
            tasks.spawn(failing, pending());
        }
        tasks.spawn(failing, async { panic!("this panic is part of the test") });
        let full = MAX_QUEUES_PER_WEBHOOK;
        assert_eq!(tasks.by_webhook(), HashMap::from([(slow, full), (failing, full)]));

        tasks.join_next().await.unwrap();
        assert_eq!(tasks.by_webhook(), HashMap::from([(slow, full), (failing, full - 1)]));
    }

    #[tokio::test]
    async fn a_task_that_ends_frees_its_place() {
        let mut tasks = QueueTasks::default();
        for number in 0..MAX_QUEUES {
            assert_eq!(tasks.room(), MAX_QUEUES - number);
            tasks.spawn(webhook(u128::try_from(number).unwrap()), async {});
        }
        assert_eq!(tasks.room(), 0);
        tasks.join_next().await.unwrap();
        assert!(tasks.room() > 0);
        while !tasks.webhooks.is_empty() {
            task::yield_now().await;
            tasks.reap();
        }
        assert!(tasks.join_next().await.is_none());
    }
}
