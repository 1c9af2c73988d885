//! The states of a checkpoint, a JSON line each, compressed with gzip: `{"key":…,"state":…}`. The wallets whose credit
//! expired follow, an id each. Neither writing nor reading holds more than a line beside the states.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read as _, Write};
use std::path::Path;

use farthing_core::ids::WalletId;
use farthing_core::secret::hex;
use farthing_core::state::{State, StateKey, shape};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::super::fold::Fold;
use super::{Content, open_regular};

/// Why states are not those of their manifest.
#[derive(Debug, thiserror::Error)]
pub(super) enum ContentError {
    /// The file cannot be read, or is not compressed.
    #[error("its states cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// The content is not what was signed.
    #[error("its states are not those that were signed")]
    Other,
    /// What was signed is no list of states.
    #[error("its states cannot be read: line {line}: {source}")]
    Malformed {
        /// The line.
        line: u64,
        /// Why it cannot be read.
        source: serde_json::Error,
    },
}

#[derive(Serialize)]
struct WrittenLine<'a> {
    key: &'a StateKey,
    state: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    key: StateKey,
    #[serde(borrow)]
    state: &'a RawValue,
}

/// What a checkpoint has beside its sums.
pub(super) struct Loaded {
    pub(super) states: BTreeMap<StateKey, State>,
    pub(super) expired_wallets: BTreeSet<WalletId>,
}

/// Counts and hashes what is written through it.
struct Hashed<W> {
    to: W,
    bytes: u64,
    digest: Sha256,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.digest.update(&bytes[..written]);
        self.bytes += u64::try_from(written).unwrap_or(0);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Writes the states of `fold` to `file`.
pub(super) fn write(file: &mut File, fold: &Fold) -> io::Result<Content> {
    let compressed = GzEncoder::new(BufWriter::new(file), Compression::fast());
    let mut out = BufWriter::new(Hashed { to: compressed, bytes: 0, digest: Sha256::new() });
    let (mut states, mut expired_wallets) = (0, 0);
    for (key, state) in &fold.states {
        let state = RawValue::from_string(state.to_json())?;
        line(&mut out, &WrittenLine { key, state: &state })?;
        states += 1;
    }
    for wallet in fold.sums.expired_wallets() {
        line(&mut out, wallet)?;
        expired_wallets += 1;
    }
    let Hashed { to, bytes, digest } = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    to.finish()?.flush()?;
    Ok(Content { states, expired_wallets, bytes, sha256: hex(&digest.finalize()) })
}

fn line(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

/// Reads the states of `path`, which are to be `content`.
pub(super) fn read(path: &Path, content: &Content) -> Result<Loaded, ContentError> {
    let decompressed = GzDecoder::new(BufReader::new(open_regular(path)?));
    // One byte more shows that there is more than was signed.
    let mut lines = BufReader::new(decompressed.take(content.bytes.saturating_add(1)));
    let (mut digest, mut bytes, mut text) = (Sha256::new(), 0, Vec::new());
    let mut loaded = Loaded { states: BTreeMap::new(), expired_wallets: BTreeSet::new() };
    let mut number = 0;
    while lines.read_until(b'\n', &mut text)? > 0 {
        number += 1;
        bytes += u64::try_from(text.len()).unwrap_or(u64::MAX);
        digest.update(&text);
        let malformed = |source| ContentError::Malformed { line: number, source };
        if number <= content.states {
            let Line { key, state } = serde_json::from_slice(&text).map_err(malformed)?;
            let state = State::from_json(&key, shape(), state.get()).map_err(malformed)?;
            loaded.states.insert(key, state);
        } else {
            loaded.expired_wallets.insert(serde_json::from_slice(&text).map_err(malformed)?);
        }
        text.clear();
    }
    let read = Content {
        states: u64::try_from(loaded.states.len()).unwrap_or(u64::MAX),
        expired_wallets: u64::try_from(loaded.expired_wallets.len()).unwrap_or(u64::MAX),
        bytes,
        sha256: hex(&digest.finalize()),
    };
    if read == *content { Ok(loaded) } else { Err(ContentError::Other) }
}
