//! Where the audit of a partition begins: after the last checkpoint that is trusted, if there is one.

use farthing_core::partition::Partition;
use farthing_core::secret::hex;
use farthing_core::state::generation;
use tokio_postgres::Client;

use super::batch::StoredBatch;
use super::chain_walk::ChainWalk;
use super::fold::Fold;
use super::signed_checkpoints::{Beginning, Checkpoints, Signed};
use super::stored_states::CHECKPOINT;
use super::verdict::{Check, Finding, Place, Tallies};
use super::{Error, archives};
use crate::batch_pages::BatchPages;
use crate::chain::Hash;
use crate::reader;

/// What the log has at a position.
enum At {
    Event(Begin),
    Nothing,
    /// The position is archived in this file, which is damaged. That is reported.
    DamagedFile(String),
}

impl At {
    async fn load(
        client: &Client,
        partition: Partition,
        position: i64,
        tallies: &mut Tallies,
    ) -> Result<Self, Error> {
        match Begin::load(client, partition, position).await {
            Ok(begin) if begin.has_event => Ok(Self::Event(begin)),
            Ok(_) | Err(Error::NoBeginning { .. }) => Ok(Self::Nothing),
            Err(Error::Log(reader::Error::DamagedArchive { first_position, object, damage })) => {
                archives::damaged(tallies, Place { partition, position: first_position }, &object, damage);
                Ok(Self::DamagedFile(object))
            }
            Err(error) => Err(error),
        }
    }
}

/// Compares the hashes of the partition's `checkpoints` with those of the log, which ends at `end`, and reads the states of the
/// last one that the audit can begin at into `fold`, which is new. That is one whose hash is that of the log, not after `to`,
/// and not after the stored states, which are compared on the way.
pub(super) async fn find<'c>(
    client: &Client,
    partition: Partition,
    (checkpoints, to, end): (&'c Checkpoints, i64, i64),
    tallies: &mut Tallies,
    fold: &mut Fold,
) -> Result<Option<(&'c Signed, Begin)>, Error> {
    let mut agreed: Vec<(&Signed, Begin)> = Vec::new();
    for signed in checkpoints.of(partition) {
        let found = match At::load(client, partition, signed.position(), tallies).await? {
            At::Event(begin) if begin.hash == *signed.hash() => {
                tallies.checked(Check::SignedCheckpoints, 1);
                agreed.push((signed, begin));
                continue;
            }
            At::Event(begin) => Some(begin.hash),
            At::Nothing => None,
            At::DamagedFile(object) => {
                let place = Place { partition, position: signed.position() };
                tallies.miss(Check::SignedCheckpoints, format!("{place}: {object} is damaged"));
                continue;
            }
        };
        tallies.checked(Check::SignedCheckpoints, 1);
        let before = agreed.last().map_or(0, |(signed, _)| signed.position());
        let finding = departure(signed, (before, end), found.map(|hash| hex(&hash)));
        tallies.find(Check::SignedCheckpoints, finding);
    }
    if checkpoints.beginning() == Beginning::FirstEvent {
        return Ok(None);
    }
    let stored = client.query_opt(CHECKPOINT, &[&partition.number(), &generation()]).await?;
    let stored: i64 = stored.map_or(Ok(i64::MAX), |stored| stored.try_get(0))?;
    let last = stored.min(to);
    for (signed, begin) in agreed.into_iter().rev().filter(|(signed, _)| signed.position() <= last) {
        let why = signed.is_of_another_fold().or_else(|| checkpoints.load(signed, fold).err());
        let Some(why) = why else {
            for (check, count) in signed.checked() {
                tallies.trust(check, count);
            }
            return Ok(Some((signed, begin)));
        };
        // Its event was found; the run begins earlier.
        let place = Place { partition, position: signed.position() };
        tallies.skip(Check::SignedCheckpoints, format!("{place}: {why}"));
    }
    Ok(None)
}

/// The log, which ends at `end`, does not contain the event of a checkpoint. The last checkpoint that agrees is at `before`.
fn departure(signed: &Signed, (before, end): (i64, i64), found: Option<String>) -> Finding {
    let (partition, signed_at) = (signed.partition(), signed.position());
    let position = if found.is_some() { signed_at } else { signed_at.min(end + 1) };
    let place = Place { partition, position };
    let text = if found.is_some() {
        format!(
            "{place}: the event is not the one that a checkpoint was signed after; positions {} to {position} were \
             rewritten, or some of them, or the checkpoint is of another log",
            before + 1
        )
    } else {
        format!(
            "{place}: the event is missing or cannot be read; a checkpoint was signed after position {signed_at}"
        )
    };
    let expected = format!("position {signed_at}, hash {}", hex(signed.hash()));
    let found =
        found.map_or_else(|| "no event".to_owned(), |hash| format!("position {signed_at}, hash {hash}"));
    Finding { partition, position, text, expected, found }
}

/// The walk from the trusted checkpoint at `position` on, where `begin` is. The heads that were published up to there are
/// compared with the hashes that are stored at their positions.
pub(super) async fn after(
    client: &Client,
    partition: Partition,
    (mut walk, position, begin): (ChainWalk, i64, &Begin),
    tallies: &mut Tallies,
) -> Result<ChainWalk, Error> {
    while let Some(published) = walk.next_published(position) {
        match At::load(client, partition, published, tallies).await? {
            At::Event(stored) => walk.compare_published(published, stored.hash, tallies),
            At::Nothing => walk.miss_published(tallies),
            At::DamagedFile(object) => walk.pass_published(&object, tallies),
        }
    }
    Ok(walk.after(position, begin.hash))
}

/// Where a run begins that does not begin with the first event.
pub(super) struct Begin {
    /// The hash of the event before.
    pub(super) hash: Hash,
    /// Whether the record batch with this hash can be read and has an event for each of its hashes. A hash alone is no event.
    has_event: bool,
    pub(super) pages: BatchPages,
}

impl Begin {
    /// After the event at `position`, whose stored hash is taken as it is.
    pub(super) async fn load(client: &Client, partition: Partition, position: i64) -> Result<Self, Error> {
        let missing = Error::NoBeginning { partition, position };
        let found = BatchPages::after(client, partition, position).await?;
        let Some((pages, row)) = found else { return Err(missing) };
        let batch = StoredBatch::of(&row);
        let index = usize::try_from(position - batch.first_position).unwrap_or(0);
        let Some(hash) = batch.hash(index) else { return Err(missing) };
        let has_event = batch.last_position() >= position && batch.text().is_ok();
        Ok(Self { hash: *hash, has_event, pages })
    }
}
