//! The queue of an appender whose store is slow.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::merchant::issue;
use super::single_gateway::{held, id, queued, with_leader};
use crate::appender::{Appender, Error, Lease, QueueLimits};

const LIMITS: QueueLimits = QueueLimits { commands: 3, bytes: 1024 * 1024, timeout: Duration::from_secs(5) };

/// Starts a command of each number. Returns once they are queued or refused.
async fn start(appender: &Appender, numbers: std::ops::Range<u128>) -> Vec<JoinHandle<Result<(), Error>>> {
    let submit = |number| {
        let appender = appender.clone();
        tokio::spawn(async move { appender.submit(None, issue(id(number))).await })
    };
    let started = numbers.map(submit).collect();
    queued().await;
    started
}

#[test]
fn a_full_queue_refuses_a_command_at_once_and_takes_a_settlement() {
    with_leader(LIMITS, async |database, appender, _| {
        let lock = database.lock_head().await;
        let waiting = start(&appender, 0..3).await;
        let before = Instant::now();
        assert_eq!(appender.submit(None, issue(id(3))).await, Err(Error::Overloaded));
        assert_eq!(before.elapsed(), Duration::ZERO, "the refusal waited");
        let settlement = tokio::spawn({
            let appender = appender.clone();
            async move { appender.settle(issue(id(4))).await }
        });
        queued().await;
        drop(lock);
        for command in waiting {
            assert_eq!(command.await.unwrap(), Ok(()));
        }
        assert_eq!(settlement.await.unwrap(), Ok(()));
        assert_eq!(appender.submit(None, issue(id(3))).await, Ok(()), "places are free again");
    });
}

#[test]
fn a_command_that_waited_for_too_long_is_refused_and_a_settlement_is_not() {
    let database = with_leader(LIMITS, async |database, appender, lease| {
        lease.send_replace(Lease::None);
        queued().await;
        assert_eq!(appender.submit(None, issue(id(0))).await, Err(Error::Moved));
        // The gateway takes the partition over, which waits for the lock, and commands wait for that.
        let lock = database.lock_head().await;
        lease.send_replace(held());
        queued().await;
        let first = start(&appender, 1..2).await;
        let settlement = tokio::spawn({
            let appender = appender.clone();
            async move { appender.settle(issue(id(2))).await }
        });
        sleep(LIMITS.timeout).await;
        let second = start(&appender, 3..4).await;
        drop(lock);
        for (commands, expected) in [(first, Err(Error::Overloaded)), (second, Ok(()))] {
            for command in commands {
                assert_eq!(command.await.unwrap(), expected);
            }
        }
        assert_eq!(settlement.await.unwrap(), Ok(()));
    });
    for number in [0, 1] {
        assert!(!database.disk().indexed.contains(&format!("{}/issued", id(number))), "nothing was appended");
    }
}
