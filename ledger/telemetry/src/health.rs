//! Whether a process can serve.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

/// The longest time that one check may take.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the outcome of a check that costs something is kept.
const KEPT_FOR: Duration = Duration::from_secs(1);

/// The outcome of a check: an error says why the process cannot serve, without a secret.
pub type Outcome = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

type Check = Arc<dyn Fn() -> Outcome + Send + Sync>;

/// A check that fails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failing {
    /// The name of the check.
    pub check: &'static str,
    /// Why it fails.
    pub reason: String,
}

/// Whether a process that stops had started to serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WasServing {
    /// It had.
    Yes,
    /// It had not.
    No,
}

/// How far the process has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It starts, and waits for this.
    Starting(&'static str),
    Serving,
    Stopping,
}

/// Whether a process can serve, by its phase and its checks. Copies share everything.
#[derive(Clone)]
pub struct Health(Arc<Inner>);

struct Inner {
    phase: Mutex<Phase>,
    checks: Mutex<Vec<(&'static str, Check)>>,
}

impl Default for Health {
    fn default() -> Self {
        let phase = Mutex::new(Phase::Starting("the process starts"));
        Self(Arc::new(Inner { phase, checks: Mutex::default() }))
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Health").field(&*self.phase()).finish()
    }
}

/// When a check was made, and what came out.
type Kept = (Instant, Result<(), String>);

impl Health {
    /// The process starts, and waits for `what`.
    pub fn starting(&self, what: &'static str) {
        self.enter(Phase::Starting(what));
    }

    /// The process has started.
    pub fn started(&self) {
        self.enter(Phase::Serving);
    }

    /// Goes on to `next`, unless the process stops already.
    fn enter(&self, next: Phase) {
        let mut phase = self.phase();
        if *phase != Phase::Stopping {
            *phase = next;
        }
    }

    /// The process stops. Returns whether it could serve until now.
    pub fn stopping(&self) -> WasServing {
        match std::mem::replace(&mut *self.phase(), Phase::Stopping) {
            Phase::Serving => WasServing::Yes,
            Phase::Starting(_) | Phase::Stopping => WasServing::No,
        }
    }

    /// Adds a check, which is made whenever somebody asks whether the process can serve.
    pub fn add_check(&self, name: &'static str, check: impl Fn() -> Outcome + Send + Sync + 'static) {
        self.checks().push((name, Arc::new(check)));
    }

    /// Adds a check that costs something. However many ask, it is made once at a time, and at most once a second.
    pub fn add_costly_check(&self, name: &'static str, check: impl Fn() -> Outcome + Send + Sync + 'static) {
        let check = Arc::new(check);
        let kept: Arc<tokio::sync::Mutex<Option<Kept>>> = Arc::default();
        self.add_check(name, move || {
            let (check, kept) = (Arc::clone(&check), Arc::clone(&kept));
            Box::pin(async move {
                let mut kept = kept.lock().await;
                if let Some((at, outcome)) = &*kept
                    && at.elapsed() < KEPT_FOR
                {
                    return outcome.clone();
                }
                let outcome = check().await;
                *kept = Some((Instant::now(), outcome.clone()));
                outcome
            })
        });
    }

    /// Makes all checks, and returns those that fail. The process can serve if there are none.
    pub async fn failing(&self) -> Vec<Failing> {
        let mut failing = Vec::new();
        let phase = *self.phase();
        match phase {
            Phase::Starting(what) => failing.push(Failing { check: "started", reason: what.to_owned() }),
            Phase::Serving => {}
            Phase::Stopping => {
                failing.push(Failing { check: "stopping", reason: "the process stops".to_owned() });
            }
        }
        let checks = self.checks().clone();
        for (check, run) in checks {
            let outcome = tokio::time::timeout(CHECK_TIMEOUT, run()).await;
            if let Err(reason) = outcome.unwrap_or_else(|_| Err("no answer in time".to_owned())) {
                failing.push(Failing { check, reason });
            }
        }
        failing
    }

    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.0.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn checks(&self) -> MutexGuard<'_, Vec<(&'static str, Check)>> {
        self.0.checks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    async fn reasons(health: &Health) -> Vec<String> {
        health.failing().await.into_iter().map(|failing| failing.reason).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_can_serve_while_it_neither_starts_nor_stops_and_no_check_fails() {
        let health = Health::default();
        health.starting("waits for Postgres");
        assert_eq!(reasons(&health).await, ["waits for Postgres"]);
        health.started();
        assert_eq!(health.failing().await, []);
        health.add_check("slow", || Box::pin(std::future::pending()));
        health.add_check("broken", || Box::pin(async { Err("broken".to_owned()) }));
        health.add_check("well", || Box::pin(async { Ok(()) }));
        assert_eq!(reasons(&health).await, ["no answer in time", "broken"]);
        assert_eq!(health.stopping(), WasServing::Yes);
        assert_eq!(reasons(&health).await.len(), 3);
        health.started();
        assert_eq!(health.stopping(), WasServing::No);
        assert_eq!(reasons(&health).await.len(), 3, "a process that stops does not start again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_costly_check_is_made_once_a_second_however_many_ask() {
        let (health, made) = (Health::default(), Arc::new(AtomicU32::new(0)));
        health.started();
        let counted = Arc::clone(&made);
        health.add_costly_check("postgres", move || {
            let number = counted.fetch_add(1, Ordering::SeqCst);
            Box::pin(async move {
                tokio::time::sleep(KEPT_FOR / 2).await;
                if number == 0 { Err("away".to_owned()) } else { Ok(()) }
            })
        });
        let all = async || tokio::join!(reasons(&health), reasons(&health), reasons(&health));
        let away = vec!["away".to_owned()];
        assert_eq!(all().await, (away.clone(), away.clone(), away.clone()));
        assert_eq!(all().await, (away.clone(), away.clone(), away));
        assert_eq!(made.load(Ordering::SeqCst), 1);
        tokio::time::advance(KEPT_FOR).await;
        assert_eq!(all().await, (Vec::new(), Vec::new(), Vec::new()));
        assert_eq!(made.load(Ordering::SeqCst), 2);
    }
}
