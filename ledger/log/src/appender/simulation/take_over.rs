//! What a leader does when it begins again.

use std::time::Duration;

use farthing_core::state::StateKey;
use tokio::time::{sleep, timeout};

use super::disk::Disk;
use super::merchant::{issue, merchant_id};
use super::single_gateway::{held, id, queued, with_leader};
use crate::appender::store::ATTEMPT_TIMEOUT;
use crate::appender::{Error, Lease, QueueLimits};

#[test]
fn commands_behind_one_that_changes_nothing_are_decided_after_a_failure() {
    with_leader(QueueLimits::default(), async |database, appender, _| {
        assert_eq!(appender.submit(None, issue(id(0))).await, Ok(()));
        // Nothing is left to store, so nothing else wakes the leader.
        sleep(Duration::from_secs(1)).await;
        let is_stored = |disk: &Disk| disk.checkpoint_position == disk.head.position;
        assert!(is_stored(&database.disk()));
        // The second command repeats a fact. Its batch fails, and each command is decided again by itself.
        let both = async {
            tokio::join!(
                appender.states(None, vec![StateKey::Merchant(merchant_id())]),
                appender.submit(None, issue(id(0)))
            )
        };
        let (read, repeated) = timeout(Duration::from_secs(5), both).await.expect("both are answered");
        assert!(matches!(read.as_deref(), Ok([Some(_)])), "{read:?}");
        assert!(matches!(repeated, Err(Error::Internal(_))), "{repeated:?}");
    });
}

#[test]
fn a_gateway_that_loses_its_lease_while_it_takes_over_does_not_lead() {
    with_leader(QueueLimits::default(), async |database, appender, lease| {
        lease.send_replace(Lease::None);
        queued().await;
        assert!(!*appender.leads().borrow());
        database.leases().give(database.partition(), "another");
        let lock = database.lock_head().await;
        lease.send_replace(held());
        queued().await;
        lease.send_replace(Lease::None);
        drop(lock);
        queued().await;
        assert!(!*appender.leads().borrow());
        assert_eq!(appender.submit(None, issue(id(0))).await, Err(Error::Moved));
    });
}

#[test]
fn a_gateway_whose_append_is_fenced_after_it_lost_its_lease_leads_no_more() {
    with_leader(QueueLimits::default(), async |database, appender, lease| {
        let lock = database.lock_head().await;
        let fenced = tokio::spawn({
            let appender = appender.clone();
            async move { appender.submit(None, issue(id(0))).await }
        });
        queued().await;
        database.leases().give(database.partition(), "another");
        assert!(database.lead("another").is_some());
        lease.send_replace(Lease::None);
        queued().await;
        drop(lock);
        assert_eq!(fenced.await.unwrap(), Err(Error::Moved));
        queued().await;
        assert!(!*appender.leads().borrow(), "it would never be given the lease again");
        database.leases().give(database.partition(), "gateway");
        lease.send_replace(held());
        assert_eq!(appender.submit(None, issue(id(0))).await, Ok(()));
    });
}

#[test]
fn a_leader_that_cannot_learn_whether_it_has_committed_counts_it_and_leaves() {
    with_leader(QueueLimits::default(), async |database, appender, lease| {
        let lock = database.lock_head().await;
        let doubtful = tokio::spawn({
            let appender = appender.clone();
            async move { appender.submit(None, issue(id(0))).await }
        });
        // The append has no answer, and neither has any look-up.
        sleep(5 * ATTEMPT_TIMEOUT).await;
        let failures = *appender.failures().borrow();
        assert!((3..=5).contains(&failures), "{failures}");
        assert!(*appender.leads().borrow());
        lease.send_replace(Lease::None);
        let mut leads = appender.leads();
        let has_left = timeout(3 * ATTEMPT_TIMEOUT, leads.wait_for(|leads| !leads)).await.is_ok();
        assert!(has_left, "it holds on to the partition");
        let answer = doubtful.await.unwrap();
        assert!(matches!(answer, Err(Error::Unknown(_))), "{answer:?}");
        drop(lock);
        queued().await;
        lease.send_replace(held());
        assert_eq!(appender.submit(None, issue(id(1))).await, Ok(()));
        assert_eq!(*appender.failures().borrow(), 0);
    });
}

#[test]
fn appends_that_fail_count_until_one_succeeds_although_terms_begin() {
    with_leader(QueueLimits::default(), async |database, appender, _| {
        database.refuse_appends(true);
        for failed in 1..4 {
            let answer = appender.submit(None, issue(id(0))).await;
            assert!(matches!(answer, Err(Error::Unavailable(_))), "{answer:?}");
            queued().await;
            let read = appender.states(None, vec![StateKey::Merchant(merchant_id())]).await;
            assert!(read.is_ok(), "it leads: {read:?}");
            assert_eq!(*appender.failures().borrow(), failed);
        }
        database.refuse_appends(false);
        assert_eq!(appender.submit(None, issue(id(0))).await, Ok(()));
        assert_eq!(*appender.failures().borrow(), 0);
        // A command that fails for its own data says nothing about the leader.
        assert!(matches!(appender.submit(None, issue(id(0))).await, Err(Error::Internal(_))));
        assert_eq!(*appender.failures().borrow(), 0);
    });
}
