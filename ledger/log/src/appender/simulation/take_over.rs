//! What a leader does when it begins again.

use std::time::Duration;

use farthing_core::state::StateKey;
use tokio::time::{sleep, timeout};

use super::disk::Disk;
use super::merchant::{issue, merchant_id};
use super::single_gateway::{held, id, queued, with_leader};
use crate::appender::{Error, Lease, QueueLimits};

#[test]
fn commands_behind_one_that_changes_nothing_are_decided_after_a_failure() {
    with_leader(QueueLimits::default(), async |database, appender, _| {
        assert_eq!(appender.submit(issue(id(0))).await, Ok(()));
        // Nothing is left to store, so nothing else wakes the leader.
        sleep(Duration::from_secs(1)).await;
        let is_stored = |disk: &Disk| disk.checkpoint_position == disk.head.position;
        assert!(is_stored(&database.disk()));
        // The second command repeats a fact. Its batch fails, and each command is decided again by itself.
        let both = async {
            tokio::join!(
                appender.states(vec![StateKey::Merchant(merchant_id())]),
                appender.submit(issue(id(0)))
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
        database.disk().release_lease("gateway");
        database.disk().take_lease("another", Duration::from_mins(1));
        let lock = database.lock_head().await;
        lease.send_replace(held());
        queued().await;
        lease.send_replace(Lease::None);
        drop(lock);
        queued().await;
        assert!(!*appender.leads().borrow());
        assert_eq!(appender.submit(issue(id(0))).await, Err(Error::Moved));
    });
}
