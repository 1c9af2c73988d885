//! Turns of a merchant's long bodies to be converted. The callers of the merchant get them one after the other: however many
//! bodies one of them has waiting, another one waits for at most one body of each.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::caller_key::CallerKey;

/// The turns of one merchant.
#[derive(Debug, Clone)]
pub(super) struct ConversionTurns(Arc<Mutex<Queues>>);

#[derive(Debug)]
struct Queues {
    /// Turns that nobody has. None while a body waits.
    free: usize,
    /// The callers with bodies that wait, each once, the next one first.
    waiting: VecDeque<Waiting>,
}

/// The bodies of one caller that wait, in the order in which they came. There is at least one.
#[derive(Debug)]
struct Waiting {
    caller: CallerKey,
    bodies: VecDeque<oneshot::Sender<ConversionTurn>>,
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub(super) struct ConversionTurn(Option<ConversionTurns>);

impl ConversionTurns {
    /// So many turns at once.
    pub(super) fn new(at_once: usize) -> Self {
        Self(Arc::new(Mutex::new(Queues { free: at_once, waiting: VecDeque::new() })))
    }

    /// Waits for a turn of a body of this caller.
    pub(super) async fn take(&self, caller: CallerKey) -> ConversionTurn {
        let waiting = {
            let mut queues = self.lock();
            if queues.free > 0 {
                queues.free -= 1;
                return ConversionTurn(Some(self.clone()));
            }
            queues.wait(caller)
        };
        waiting.await.expect("a body that waits keeps its place until it has its turn")
    }

    /// Gives a turn that has ended to the next body that still waits.
    fn pass_on(&self) {
        loop {
            let next = {
                let mut queues = self.lock();
                let next = queues.next();
                if next.is_none() {
                    queues.free += 1;
                }
                next
            };
            let Some(next) = next else { return };
            match next.send(ConversionTurn(Some(self.clone()))) {
                Ok(()) => return,
                // The body waits no longer. The next one gets the turn.
                Err(mut refused) => refused.0 = None,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queues {
    fn wait(&mut self, caller: CallerKey) -> oneshot::Receiver<ConversionTurn> {
        let (turn, waiting) = oneshot::channel();
        match self.waiting.iter_mut().find(|waiting| waiting.caller == caller) {
            Some(waiting) => waiting.bodies.push_back(turn),
            None => self.waiting.push_back(Waiting { caller, bodies: VecDeque::from([turn]) }),
        }
        waiting
    }

    /// The first body of the next caller, which is the last one after that. Bodies that wait no longer take no turn.
    fn next(&mut self) -> Option<oneshot::Sender<ConversionTurn>> {
        while let Some(mut waiting) = self.waiting.pop_front() {
            let bodies = &mut waiting.bodies;
            let next = std::iter::from_fn(|| bodies.pop_front()).find(|body| !body.is_closed());
            if !waiting.bodies.is_empty() {
                self.waiting.push_back(waiting);
            }
            if next.is_some() {
                return next;
            }
        }
        None
    }
}

impl Drop for ConversionTurn {
    fn drop(&mut self) {
        if let Some(turns) = self.0.take() {
            turns.pass_on();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn callers_get_turns_one_after_the_other() {
        let turns = ConversionTurns::new(1);
        let first = turns.take(CallerKey::of_test(1)).await;
        let (served, order) = (Arc::new(Mutex::new(Vec::new())), [1, 1, 1, 2, 2, 3, 1]);
        let mut waiting = Vec::new();
        for caller in order {
            let (turns, served) = (turns.clone(), Arc::clone(&served));
            let mut body = Box::pin(async move {
                let turn = turns.take(CallerKey::of_test(caller)).await;
                served.lock().unwrap().push(caller);
                drop(turn);
            });
            assert!(body.as_mut().now_or_never().is_none(), "the turn is taken");
            waiting.push(body);
        }
        drop(first);
        futures_util::future::join_all(waiting).await;
        assert_eq!(*served.lock().unwrap(), [1, 2, 3, 1, 2, 1, 1]);
        assert_eq!(turns.lock().free, 1);
    }

    #[tokio::test]
    async fn a_body_that_waits_no_longer_gives_its_turn_to_the_next() {
        let turns = ConversionTurns::new(1);
        let [first, second, third] = [1, 2, 3].map(CallerKey::of_test);
        let turn = turns.take(first).await;
        let mut waiting: Vec<_> =
            [first, first, second, third].into_iter().map(|caller| Box::pin(turns.take(caller))).collect();
        for body in &mut waiting {
            assert!(body.as_mut().now_or_never().is_none());
        }
        // One leaves before it has its turn, and one when it has it.
        drop(waiting.remove(1));
        drop(turn);
        drop(waiting.remove(0));
        let turn = waiting.remove(0).await;
        drop(waiting);
        drop(turn);
        let queues = turns.lock();
        assert_eq!((queues.free, queues.waiting.len()), (1, 0));
    }
}
