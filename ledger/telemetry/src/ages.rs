//! The number of things that wait, and the age of the oldest one, without a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// Ages are kept in steps of this length, in milliseconds.
const STEP_MS: usize = 50;

/// The number of steps. The age of what waits for longer than all of them, 100 s, is shown too small.
const STEPS: usize = 2_048;

/// The things that wait, by the step in which each began to.
#[derive(Debug, Clone)]
pub struct Ages(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    since: Instant,
    begun: Box<[AtomicU32]>,
}

impl Default for Ages {
    fn default() -> Self {
        let begun = (0..STEPS).map(|_| AtomicU32::new(0)).collect();
        Self(Arc::new(Inner { since: Instant::now(), begun }))
    }
}

impl Ages {
    /// Another thing that waits, until the value is dropped.
    pub fn begin(&self) -> Age {
        let step = self.0.step();
        self.0.begun[step].fetch_add(1, Ordering::Relaxed);
        Age { ages: Arc::clone(&self.0), step }
    }

    /// The number of things that wait.
    pub fn count(&self) -> u32 {
        self.0.begun.iter().map(|begun| begun.load(Ordering::Relaxed)).sum()
    }

    /// The age of the oldest, to a step.
    pub fn oldest(&self) -> Duration {
        let now = self.0.step();
        let age = (1..STEPS).rev().find(|age| {
            let step = (now + STEPS - age) % STEPS;
            self.0.begun[step].load(Ordering::Relaxed) > 0
        });
        let millis = age.and_then(|age| u64::try_from(age * STEP_MS).ok());
        Duration::from_millis(millis.unwrap_or(0))
    }
}

impl Inner {
    fn step(&self) -> usize {
        let millis = usize::try_from(self.since.elapsed().as_millis()).unwrap_or(0);
        millis / STEP_MS % STEPS
    }
}

/// A thing that waits.
#[derive(Debug)]
pub struct Age {
    ages: Arc<Inner>,
    step: usize,
}

impl Drop for Age {
    fn drop(&mut self) {
        self.ages.begun[self.step].fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_oldest_is_as_old_as_it_has_waited() {
        let ages = Ages::default();
        assert_eq!((ages.count(), ages.oldest()), (0, Duration::ZERO));
        let first = ages.begin();
        tokio::time::advance(Duration::from_secs(3)).await;
        let second = ages.begin();
        assert_eq!((ages.count(), ages.oldest()), (2, Duration::from_secs(3)));
        drop(first);
        tokio::time::advance(Duration::from_secs(90)).await;
        assert_eq!((ages.count(), ages.oldest()), (1, Duration::from_secs(90)));
        drop(second);
        assert_eq!((ages.count(), ages.oldest()), (0, Duration::ZERO));
    }
}
