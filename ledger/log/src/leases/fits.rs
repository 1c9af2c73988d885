//! Which partitions this program can lead. It is read beside the rounds, over the connections for reads: on Citus the heads
//! are on several servers, and the loss of one of them must not keep a gateway from renewing its leases. A gateway that
//! learns late that it cannot lead does no harm: the epoch and the shape of the head fence it out.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use farthing_core::state::{generation, shape};
use tokio::sync::watch;

use crate::generations::MAX_BEHIND;
use crate::reads::{self, ReadPool, within};

/// The shapes of the partitions, and how far the states of generation $1 are behind, if they are built.
const SHAPES: &str = "\
SELECT h.shape, h.generation, CASE WHEN c.built THEN h.position - c.position END AS behind
FROM ledger.heads AS h
LEFT JOIN ledger.checkpoints AS c ON c.partition = h.partition AND c.generation = $1
ORDER BY h.partition";

/// Whether this program can lead a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    /// It can.
    Fits,
    /// It can, and its release has led it already: no older program can any more.
    Ours,
    /// A newer program has led it.
    Newer,
    /// The states of this program's generation are not built, or too far behind.
    Unbuilt,
}

impl Fit {
    pub(super) const fn can_lead(self) -> bool {
        match self {
            Self::Fits | Self::Ours => true,
            Self::Newer | Self::Unbuilt => false,
        }
    }

    fn of(row: &tokio_postgres::Row) -> Result<Self, tokio_postgres::Error> {
        let (behind, theirs): (Option<i64>, i64) = (row.try_get("behind")?, row.try_get("shape")?);
        let ours = i64::from(shape());
        Ok(if theirs > ours {
            Self::Newer
        } else if row.try_get::<_, i16>("generation")? == generation()
            || behind.is_some_and(|behind| behind <= MAX_BEHIND)
        {
            if theirs == ours { Self::Ours } else { Self::Fits }
        } else {
            Self::Unbuilt
        })
    }
}

/// The fits of all partitions by their numbers, as they were read last; none before they were read.
pub(super) type KnownFits = Option<Arc<[Fit]>>;

/// Reads the fits again and again, with this pause between. While they cannot be read, the last ones stay.
pub(super) async fn follow(
    reads: &ReadPool,
    pause: Duration,
    known: &watch::Sender<KnownFits>,
) -> Infallible {
    let mut is_read = true;
    loop {
        match read(reads).await {
            Ok(fits) => {
                is_read = true;
                known.send_if_modified(|known| {
                    let is_new = known.as_ref() != Some(&fits);
                    *known = Some(fits);
                    is_new
                });
            }
            Err(error) => {
                if is_read {
                    tracing::warn!(event = "leases.shapes_unread", %error, "the shapes of the log cannot be read");
                }
                is_read = false;
            }
        }
        tokio::time::sleep(pause).await;
    }
}

async fn read(reads: &ReadPool) -> Result<Arc<[Fit]>, reads::Error> {
    let client = reads.connection().await?;
    let rows = within(client.query(SHAPES, &[&generation()])).await??;
    Ok(rows.iter().map(Fit::of).collect::<Result<_, _>>()?)
}
