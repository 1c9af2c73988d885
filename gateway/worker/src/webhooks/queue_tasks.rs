//! The tasks that deliver queues, limited in all and per webhook. A task that panics frees its slot like any other.

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
    /// Whether another task may start.
    pub(super) fn has_room(&self) -> bool {
        self.webhooks.len() < MAX_QUEUES
    }

    /// Whether another task of this webhook may start.
    pub(super) fn has_room_for(&self, webhook_id: WebhookId) -> bool {
        self.has_room() && self.running(webhook_id) < MAX_QUEUES_PER_WEBHOOK
    }

    /// The webhooks at their limit.
    pub(super) fn full_webhooks(&self) -> Vec<WebhookId> {
        let mut full = Vec::new();
        for webhook_id in self.webhooks.values() {
            if !full.contains(webhook_id) && self.running(*webhook_id) >= MAX_QUEUES_PER_WEBHOOK {
                full.push(*webhook_id);
            }
        }
        full
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

    fn running(&self, webhook_id: WebhookId) -> usize {
        self.webhooks.values().filter(|running| **running == webhook_id).count()
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
        assert!(!tasks.has_room_for(slow) && !tasks.has_room_for(failing));
        assert_eq!(tasks.full_webhooks().len(), 2);

        tasks.join_next().await.unwrap();
        assert!(!tasks.has_room_for(slow), "its limit still holds");
        assert_eq!(tasks.full_webhooks(), [slow]);
        assert!(tasks.has_room_for(failing));
        tasks.spawn(failing, pending());
        assert!(!tasks.has_room_for(failing), "the panic freed one place only");
    }

    #[tokio::test]
    async fn a_task_that_ends_frees_its_place() {
        let mut tasks = QueueTasks::default();
        for number in 0..MAX_QUEUES {
            assert!(tasks.has_room());
            tasks.spawn(webhook(u128::try_from(number).unwrap()), async {});
        }
        assert!(!tasks.has_room() && !tasks.has_room_for(webhook(0)));
        tasks.join_next().await.unwrap();
        assert!(tasks.has_room());
        while !tasks.webhooks.is_empty() {
            task::yield_now().await;
            tasks.reap();
        }
        assert!(tasks.join_next().await.is_none());
    }
}
