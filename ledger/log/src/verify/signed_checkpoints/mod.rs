//! Signed checkpoints: the states of a partition at a position, as an audit folded them from the events before it, signed
//! with the operator's key and kept outside of the database. A later audit begins there.
//!
//! A checkpoint is two files of a folder. `partition-3-position-1000000.json` is the signed manifest; it has the hash of the
//! event at that position and the digest of the states. `partition-3-position-1000000.states.gz` has the states. The
//! manifest is written last, so a checkpoint is there as a whole or not at all.
//! Invariant: what is not signed with the trusted key is not used, and a checkpoint is written only if nothing before it is
//! broken.

mod content;
mod manifest;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::{SecondsFormat, Utc};
use farthing_core::partition::Partition;
use farthing_core::secret::hex;
use farthing_core::state::{generation, shape};

pub(super) use self::manifest::Signed;
use self::manifest::{Content, FORMAT, MAX_MANIFEST, Manifest};
use super::fold::{Fold, Sums};
use super::published_heads::{SignatureCheck, Signer};
use super::verdict::{Check, Tallies};
use crate::chain::Hash;

/// The checks of events one by one. A checkpoint has how many things they looked at.
const CARRIED: [Check; 6] = [
    Check::RecordBatches,
    Check::Positions,
    Check::HashChain,
    Check::Events,
    Check::States,
    Check::BalancesAfter,
];

/// The end of a manifest's name, and that of its states.
const MANIFEST: &str = "json";
const STATES: &str = "states.gz";

/// The end of the name of a file that is being written.
const UNFINISHED: &str = "unfinished";

/// The file whose lock keeps a second run from writing to the folder.
const LOCK: &str = "lock";

/// The most checkpoints of a folder.
const MAX_CHECKPOINTS: usize = 100_000;

/// An error that stops the audit.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The folder or a file in it cannot be read or written.
    #[error("the folder of the checkpoints: {action} {}: {source}", .path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// Another run writes to the folder.
    #[error("another run writes checkpoints to {}", .0.display())]
    InUse(PathBuf),
    /// The folder has too many checkpoints.
    #[error("{} has more than {MAX_CHECKPOINTS} checkpoints: remove the oldest ones", .0.display())]
    TooMany(PathBuf),
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::File { action, path: path.to_owned(), source }
}

/// Where an audit begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beginning {
    /// Each partition at its last trusted checkpoint.
    Checkpoint,
    /// Each partition at its first event, whatever checkpoints there are.
    FirstEvent,
}

/// What an audit does with checkpoints.
#[derive(Clone)]
pub struct CheckpointPlan {
    /// The folder of the checkpoints.
    pub folder: PathBuf,
    /// Knows the key that a checkpoint must be signed with.
    pub trusted: Arc<dyn SignatureCheck + Send + Sync>,
    /// Where the audit begins.
    pub beginning: Beginning,
    /// Signs new checkpoints; `None` writes none.
    pub signer: Option<Arc<dyn Signer + Send + Sync>>,
    /// The number of events of a partition from one new checkpoint to the next. There is one at the end, too.
    pub every: i64,
}

impl std::fmt::Debug for CheckpointPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CheckpointPlan")
            .field("folder", &self.folder)
            .field("beginning", &self.beginning)
            .field("writes", &self.signer.is_some())
            .field("every", &self.every)
            .finish_non_exhaustive()
    }
}

/// The checkpoints of a folder when an audit begins.
#[derive(Debug)]
pub(super) struct Checkpoints {
    plan: CheckpointPlan,
    /// Those that are signed with the trusted key, the lowest position first.
    signed: BTreeMap<Partition, Vec<Signed>>,
    /// What was passed over, each with its reason.
    passed_over: Vec<String>,
    /// Held while the audit runs, if it writes.
    _lock: Option<File>,
}

impl Checkpoints {
    /// Reads the manifests of the folder, and makes the folder if the plan is to write to it.
    pub(super) fn open(plan: CheckpointPlan) -> Result<Self, Error> {
        let folder = &plan.folder;
        let lock = if plan.signer.is_some() {
            std::fs::create_dir_all(folder).map_err(failed("cannot make", folder))?;
            Some(lock(folder)?)
        } else {
            None
        };
        let (mut signed, mut passed_over) = (BTreeMap::<_, Vec<Signed>>::new(), Vec::new());
        let mut count = 0;
        for entry in std::fs::read_dir(folder).map_err(failed("cannot read", folder))? {
            let path = entry.map_err(failed("cannot read", folder))?.path();
            let extension = path.extension().and_then(|extension| extension.to_str());
            if extension == Some(UNFINISHED) && lock.is_some() {
                std::fs::remove_file(&path).map_err(failed("cannot remove", &path))?;
            }
            if extension != Some(MANIFEST) {
                continue;
            }
            count += 1;
            if count > MAX_CHECKPOINTS {
                return Err(Error::TooMany(folder.clone()));
            }
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let mut text = String::new();
            let read = open_regular(&path).and_then(|file| file.take(MAX_MANIFEST).read_to_string(&mut text));
            let manifest = match read {
                Ok(_) => Signed::read(text.trim_end(), &*plan.trusted),
                Err(error) => Err(error.to_string()),
            };
            match manifest {
                Ok(manifest) if file_name(manifest.partition(), manifest.position(), MANIFEST) == name => {
                    signed.entry(manifest.partition()).or_default().push(manifest);
                }
                Ok(_) => passed_over.push(format!("{name}: it is the checkpoint of another place")),
                Err(why) => passed_over.push(format!("{name}: {why}")),
            }
        }
        for of_partition in signed.values_mut() {
            of_partition.sort_by_key(Signed::position);
        }
        passed_over.sort();
        Ok(Self { plan, signed, passed_over, _lock: lock })
    }

    /// The checkpoints of `partition` that are signed with the trusted key, the lowest position first.
    pub(super) fn of(&self, partition: Partition) -> &[Signed] {
        self.signed.get(&partition).map_or(&[], Vec::as_slice)
    }

    /// Says what was passed over, and why.
    pub(super) fn tell(&self, tallies: &mut Tallies) {
        if self.signed.is_empty() {
            let reason = "the folder has no checkpoint that is trusted";
            // A first run writes one.
            if self.plan.signer.is_some() {
                tallies.skip(Check::SignedCheckpoints, reason);
            } else {
                tallies.miss(Check::SignedCheckpoints, reason);
            }
        }
        for passed_over in &self.passed_over {
            tallies.miss(Check::SignedCheckpoints, passed_over.clone());
        }
    }

    pub(super) const fn beginning(&self) -> Beginning {
        self.plan.beginning
    }

    /// Reads the states of `signed` into `fold`, which is new; says why not if they are not those that were signed.
    pub(super) fn load(&self, signed: &Signed, fold: &mut Fold) -> Result<(), String> {
        let path = self.plan.folder.join(file_name(signed.partition(), signed.position(), STATES));
        let Manifest { content, sums, .. } = signed.manifest();
        let loaded = content::read(&path, content).map_err(|error| error.to_string())?;
        fold.states = loaded.states;
        fold.sums = Sums::resume(sums, loaded.expired_wallets);
        Ok(())
    }

    /// The writer of the checkpoints of a partition, of which `begin` is what the audit begins at.
    pub(super) fn writer(&self, partition: Partition, begin: Option<&Signed>) -> Option<Writer<'_>> {
        let signer = &**self.plan.signer.as_ref()?;
        let position = begin.map_or(0, Signed::position);
        let (folder, every) = (self.plan.folder.as_path(), self.plan.every);
        let previous = begin.map(|begin| begin.digest().to_owned());
        Some(Writer { folder, every, signer, partition, position, previous })
    }
}

fn file_name(partition: Partition, position: i64, end: &str) -> String {
    format!("partition-{partition}-position-{position}.{end}")
}

fn lock(folder: &Path) -> Result<File, Error> {
    let path = folder.join(LOCK);
    let file = File::options().write(true).create(true).truncate(false).open(&path);
    let file = file.map_err(failed("cannot write", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(Error::InUse(folder.to_owned())),
        Err(std::fs::TryLockError::Error(source)) => Err(failed("cannot lock", &path)(source)),
    }
}

/// Writes the checkpoints of a partition.
pub(super) struct Writer<'a> {
    folder: &'a Path,
    every: i64,
    signer: &'a (dyn Signer + Send + Sync),
    partition: Partition,
    /// The position of the last checkpoint.
    position: i64,
    /// The digest of its manifest.
    previous: Option<String>,
}

impl Writer<'_> {
    /// Whether a checkpoint is due after `position`.
    pub(super) const fn is_due(&self, position: i64) -> bool {
        position - self.position >= self.every
    }

    /// Writes the states of `fold` after the event at `position` with `hash`. Nothing is written if something is broken, if
    /// the states are not known, or if there is no new event. Returns whether it was.
    pub(super) fn write(
        &mut self,
        (position, hash): (i64, &Hash),
        fold: &Fold,
        tallies: &Tallies,
    ) -> Result<bool, Error> {
        if !fold.is_whole || tallies.is_broken() || position <= self.position {
            return Ok(false);
        }
        let states = self.folder.join(file_name(self.partition, position, STATES));
        let content = finished(&states, |file| content::write(file, fold))?;
        let manifest = Manifest {
            format: FORMAT,
            partition: self.partition,
            position,
            hash: hex(hash),
            generation: generation(),
            shape: shape(),
            written_at: Utc::now().to_rfc3339_opts(SecondsFormat::Millis, true),
            previous: self.previous.clone(),
            checked: CARRIED.map(|check| (check, tallies.covered(check))).into_iter().collect(),
            sums: fold.sums.moved(),
            content,
        };
        let (line, digest) = manifest::sign(&manifest, self.signer);
        let path = self.folder.join(file_name(self.partition, position, MANIFEST));
        finished(&path, |file| io::Write::write_all(file, line.as_bytes()))?;
        (self.position, self.previous) = (position, Some(digest));
        Ok(true)
    }
}

/// Writes a file under another name and renames it when it is on the disk.
fn finished<T>(path: &Path, write: impl FnOnce(&mut File) -> io::Result<T>) -> Result<T, Error> {
    let unfinished = path.with_added_extension(UNFINISHED);
    let folder = path.parent().unwrap_or(Path::new("."));
    let write = || {
        let mut file = private_file(&unfinished)?;
        let written = write(&mut file)?;
        file.sync_all()?;
        std::fs::rename(&unfinished, path)?;
        File::open(folder)?.sync_all()?;
        Ok(written)
    };
    write().map_err(failed("cannot write", path))
}

/// A file to read. To open a pipe would wait for its writer.
fn open_regular(path: &Path) -> io::Result<File> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    File::open(path)
}

/// States have hashes of keys and the addresses of webhooks, so nobody else may read them.
fn private_file(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    File::options().write(true).create(true).truncate(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests;
