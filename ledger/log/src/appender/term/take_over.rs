//! The beginning of a term: the states are brought up to the head of the partition.

use std::sync::Arc;

use tokio::time::Instant;

use super::super::cache_bound::{CACHED_AFTER_SHRINKING, CacheBound, MAX_CACHED};
use super::super::failure::Failure;
use super::super::store::{Head, LogSession as _, LogStore};
use super::{CHECKPOINT_INTERVAL, Group, Term};
use crate::folding::folded_first;
use farthing_core::event::Fact;
use farthing_core::state::{EvolveError, Missing, StateCache, StateKey};

/// The events of the tail that are read and folded at once. It is small in tests, so that the simulation reaches it.
const TAIL_PAGE: i64 = if cfg!(test) { 10 } else { 5_000 };

impl<S: LogStore> Term<S> {
    /// Takes the partition over: loads what was appended since the checkpoint. `None` if the lease is another gateway's.
    pub(in crate::appender) async fn begin(store: &S, name: &str) -> Result<Option<Self>, Failure> {
        let session = Arc::new(store.open().await.map_err(Failure::Unreachable)?);
        let side = if session.appends_elsewhere() {
            Arc::clone(&session)
        } else {
            Arc::new(store.open().await.map_err(Failure::Unreachable)?)
        };
        let Some((head, stored)) = session.lead().await? else { return Ok(None) };
        let next_checkpoint = Instant::now() + CHECKPOINT_INTERVAL;
        let mut term = Self {
            name: name.to_owned(),
            session,
            side,
            states: StateCache::default(),
            bound: CacheBound::default(),
            decided: head,
            durable: head.position,
            next: Group::after(head, name),
            committing: None,
            stored,
            storing: None,
            next_checkpoint,
            checkpoint_timer: Box::pin(tokio::time::sleep_until(next_checkpoint)),
        };
        term.fold_tail(head).await?;
        Ok(Some(term))
    }

    /// Folds the events between the checkpoint and `head`. A long tail is stored on the way.
    async fn fold_tail(&mut self, head: Head) -> Result<(), Failure> {
        let mut position = self.stored;
        while position < head.position {
            let facts = self.side.read(position, TAIL_PAGE).await?;
            if facts.is_empty() {
                return Err(Failure::Tail(format!("no event follows position {position}")));
            }
            let end = position + i64::try_from(facts.len()).unwrap_or(i64::MAX);
            let mut left = facts.as_slice();
            while !left.is_empty() {
                let (part, others) = folded_first(&self.states, left);
                left = others;
                let unknown: Vec<StateKey> = self.states.unknown_states(part).into_iter().collect();
                let found = self.side.load(&unknown).await?;
                for (key, state) in unknown.into_iter().zip(found) {
                    self.states.load(key, state);
                }
                self.fold(part)?;
                position += i64::try_from(part.len()).unwrap_or(i64::MAX);
                let is_enough = position == end || self.states.size().exceeds(MAX_CACHED);
                if is_enough && head.position - position > 0 && self.states.has_changes() {
                    let changes = self.states.take_changes();
                    if !self.side.store_states(head.epoch, position, &changes).await? {
                        return Err(Failure::Fenced);
                    }
                    self.states.confirm_stored();
                    self.stored = position;
                    self.states.shrink_to(CACHED_AFTER_SHRINKING);
                }
            }
        }
        if position == head.position {
            Ok(())
        } else {
            Err(Failure::Tail("it is longer than the head".to_owned()))
        }
    }

    fn fold(&mut self, facts: &[Fact]) -> Result<(), Failure> {
        for fact in facts {
            self.states.evolve(std::slice::from_ref(fact)).map_err(|error| match error {
                EvolveError::Missing(Missing(keys)) => Failure::Tail(format!("{keys:?} were not loaded")),
                EvolveError::InvariantBroken(broken) => Failure::Tail(broken.to_string()),
            })?;
        }
        Ok(())
    }
}
