//! Commands that fail in one batch with others.

use farthing_core::command::{Command, DecideError, Decision, Refusal, RevokeSecretKey, Revoker};
use farthing_core::idempotency::{Claim, Scope};
use farthing_core::ids::SecretKeyId;
use farthing_core::state::{StateCache, StateKey};
use tokio::task::JoinHandle;

use super::check::check_log;
use super::database::Database;
use super::merchant::{NOW, issue, merchant_id, server_key};
use super::single_gateway::{id, queued, with_leader};
use crate::appender::leader::MAX_CONFLICTS;
use crate::appender::{Appender, ClaimRecord, Error, QueueLimits};

/// A command whose decision panics.
struct Panics;

impl Command for Panics {
    type Outcome = ();

    fn decide(&self, _: &StateCache) -> Result<Decision<()>, DecideError> {
        panic!("a bug in a decision")
    }
}

fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(future)
}

/// Submits commands of ten numbers and, among them, what `bad` starts; all in one batch. Returns the answers to `bad`
/// once the ten have succeeded.
async fn among_ten_good<T: Send + 'static>(
    database: &Database,
    appender: &Appender,
    bad: impl Fn() -> Vec<JoinHandle<Result<T, Error>>>,
) -> Vec<Result<T, Error>> {
    let lock = database.lock_head().await;
    // Its batch waits for the lock, and all others for that batch.
    let first = spawn({
        let appender = appender.clone();
        async move { appender.submit(None, issue(id(0))).await }
    });
    queued().await;
    let good = |number| {
        let appender = appender.clone();
        spawn(async move { appender.submit(None, issue(id(number))).await })
    };
    let mut all: Vec<_> = (1..6).map(good).collect();
    let bad = bad();
    all.extend((6..11).map(good));
    queued().await;
    drop(lock);
    for command in all.into_iter().chain([first]) {
        assert_eq!(command.await.unwrap(), Ok(()));
    }
    let mut answers = Vec::new();
    for command in bad {
        answers.push(command.await.unwrap());
    }
    answers
}

/// Checks that the log is whole, and that exactly the good commands of so many numbers are in it.
fn holds_the_good(database: &Database, good: usize) {
    let disk = database.disk();
    check_log(&disk);
    let keys: Vec<_> = (0..12).map(|number| format!("{}/issued", id(number))).collect();
    assert_eq!(disk.events.iter().filter(|row| keys.contains(&row.key)).count(), good);
    assert_eq!(disk.events.len(), 2 + good, "the merchant, its first key and the commands");
}

#[test]
fn a_batch_that_the_store_undid_for_another_is_tried_again() {
    let database = with_leader(QueueLimits::default(), async |database, appender, _| {
        database.conflict(MAX_CONFLICTS);
        assert_eq!(appender.submit(None, issue(id(0))).await, Ok(()));
        database.conflict(MAX_CONFLICTS);
        assert_eq!(appender.submit(None, issue(id(1))).await, Ok(()), "after a commit they are counted anew");
    });
    holds_the_good(&database, 2);
}

#[test]
fn conflicts_without_an_end_are_answered_truthfully() {
    let database = with_leader(QueueLimits::default(), async |database, appender, _| {
        database.conflict(u32::MAX);
        let refused = appender.submit(None, issue(id(0))).await;
        assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
        database.conflict(0);
        assert_eq!(appender.submit(None, issue(id(1))).await, Ok(()));
    });
    holds_the_good(&database, 1);
}

#[test]
fn a_decision_that_panics_fails_alone() {
    let database = with_leader(QueueLimits::default(), async |database, appender, _| {
        let submit = || {
            let appender = appender.clone();
            spawn(async move { appender.submit(None, Panics).await })
        };
        let answers = among_ten_good(&database, &appender, || vec![submit(), submit(), submit()]).await;
        assert_eq!(answers.len(), 3);
        for answer in answers {
            let Err(Error::Internal(why)) = answer else { panic!("{answer:?}") };
            assert!(why.contains("a bug in a decision"), "{why}");
        }
        assert_eq!(appender.submit(None, issue(id(11))).await, Ok(()), "the appender goes on");
    });
    holds_the_good(&database, 12);
}

#[test]
fn a_rendering_that_panics_fails_alone_and_leaves_no_facts() {
    let database = with_leader(QueueLimits::default(), async |database, appender, _| {
        let submit = || {
            let appender = appender.clone();
            let scope = Scope { merchant_id: merchant_id(), method: "POST", path: "/v1/secret_keys" };
            let claim = Claim::new(&server_key(), scope, "a key", &[b"a body"]);
            let record = |_: &Result<(), Refusal>| -> ClaimRecord { panic!("a bug in a rendering") };
            vec![spawn(async move { appender.submit_idempotent(None, issue(id(100)), claim, record).await })]
        };
        let answers = among_ten_good(&database, &appender, submit).await;
        assert!(matches!(answers[..], [Err(Error::Internal(_))]), "{answers:?}");
    });
    holds_the_good(&database, 11);
    assert!(database.disk().claims.is_empty());
}

#[test]
fn a_command_with_an_unreadable_state_fails_alone() {
    let database = with_leader(QueueLimits::default(), async |database, appender, _| {
        let secret_key_id = SecretKeyId::new(ulid::Ulid::from_parts(9, 9));
        let garbled = StateKey::IssuedKey(secret_key_id).stored();
        database.disk().states.insert(garbled.clone(), "\"garbled\"".to_owned());
        let revoke = RevokeSecretKey { revoker: Revoker::Operator, secret_key_id, now: NOW };
        let submit = || {
            let (appender, revoke) = (appender.clone(), revoke.clone());
            vec![spawn(async move { appender.submit(None, revoke).await })]
        };
        let answers = among_ten_good(&database, &appender, submit).await;
        assert!(matches!(answers[..], [Err(Error::Unavailable(_))]), "{answers:?}");
        database.disk().states.remove(&garbled);
    });
    holds_the_good(&database, 11);
}
