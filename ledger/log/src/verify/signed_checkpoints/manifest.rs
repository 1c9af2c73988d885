//! The manifest of a checkpoint: `{"checkpoint":…,"public_key":…,"signature":…}`. The signature is Ed25519 over the exact
//! bytes of the member `checkpoint`.

use std::collections::BTreeMap;

use farthing_core::partition::Partition;
use farthing_core::secret::hex;
use farthing_core::state::{generation, shape};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::super::fold::Moved;
use super::super::published_heads::{SignatureCheck, Signer, hash_of};
use super::super::verdict::Check;
use crate::chain::Hash;

/// The form of a checkpoint. Increment it when its content, or what the checks before it look at, changes.
pub(super) const FORMAT: u32 = 1;

/// The most bytes of a manifest.
pub(super) const MAX_MANIFEST: u64 = 16 * 1_024;

/// What is signed.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    pub(super) format: u32,
    pub(super) partition: Partition,
    pub(super) position: i64,
    /// The hash of the event at the position, in hexadecimal.
    pub(super) hash: String,
    /// The generation and the shape of the states.
    pub(super) generation: i16,
    pub(super) shape: i16,
    pub(super) written_at: String,
    /// SHA-256 of the manifest of the checkpoint that the audit went on from, in hexadecimal; `null` if it read every event
    /// from the first one on.
    pub(super) previous: Option<String>,
    /// How much the checks have looked at, from the first event on.
    pub(super) checked: BTreeMap<Check, u64>,
    pub(super) sums: Moved,
    pub(super) content: Content,
}

/// The content of the file of the states, before compression.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Content {
    pub(super) states: u64,
    pub(super) expired_wallets: u64,
    pub(super) bytes: u64,
    /// SHA-256 in hexadecimal.
    pub(super) sha256: String,
}

#[derive(Serialize)]
struct WrittenLine<'a> {
    checkpoint: &'a RawValue,
    public_key: String,
    signature: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    #[serde(borrow)]
    checkpoint: &'a RawValue,
    #[serde(default)]
    public_key: Option<String>,
    #[serde(default)]
    signature: Option<String>,
}

/// A manifest whose signature is that of the trusted key.
#[derive(Debug, Clone)]
pub(in super::super) struct Signed {
    manifest: Manifest,
    hash: Hash,
    digest: String,
}

impl Signed {
    /// Reads the text of a manifest; says why it is not trusted if it is not.
    pub(super) fn read(text: &str, trusted: &dyn SignatureCheck) -> Result<Self, String> {
        let malformed = |error: serde_json::Error| format!("it is no manifest of a checkpoint: {error}");
        let Line { checkpoint, public_key, signature } = serde_json::from_str(text).map_err(malformed)?;
        let message = checkpoint.get().as_bytes();
        trusted.verify(public_key.as_deref(), signature.as_deref(), message)?;
        let manifest: Manifest = serde_json::from_str(checkpoint.get()).map_err(malformed)?;
        if manifest.format != FORMAT {
            return Err(format!("its form is {}, this program's is {FORMAT}", manifest.format));
        }
        let hash = hash_of(&manifest.hash).ok_or("its hash is not 64 hexadecimal digits")?;
        if manifest.position < 1 {
            return Err("its position is below 1".to_owned());
        }
        Ok(Self { manifest, hash, digest: hex(&Sha256::digest(text)) })
    }

    pub(super) const fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    pub(in super::super) const fn partition(&self) -> Partition {
        self.manifest.partition
    }

    pub(in super::super) const fn position(&self) -> i64 {
        self.manifest.position
    }

    /// The hash of the event at its position.
    pub(in super::super) const fn hash(&self) -> &Hash {
        &self.hash
    }

    pub(in super::super) fn written_at(&self) -> &str {
        &self.manifest.written_at
    }

    /// SHA-256 of the manifest.
    pub(super) fn digest(&self) -> &str {
        &self.digest
    }

    /// How much the checks looked at before it.
    pub(in super::super) fn checked(&self) -> impl Iterator<Item = (Check, u64)> {
        self.manifest.checked.iter().map(|(check, count)| (*check, *count))
    }

    /// Why its states are not those that this program folds, if they are not.
    pub(in super::super) fn is_of_another_fold(&self) -> Option<String> {
        let (own, its) = ((generation(), shape()), (self.manifest.generation, self.manifest.shape));
        let text = || {
            format!(
                "its states are of generation {} and shape {}, this program's of {} and {}",
                its.0, its.1, own.0, own.1
            )
        };
        (own != its).then(text)
    }
}

/// The text of a signed manifest, and its digest.
pub(super) fn sign(manifest: &Manifest, signer: &dyn Signer) -> (String, String) {
    let checkpoint = serde_json::value::to_raw_value(manifest).expect("a manifest has string keys");
    let (public_key, signature) = signer.sign(checkpoint.get().as_bytes());
    let line = WrittenLine { checkpoint: &checkpoint, public_key, signature };
    let text = serde_json::to_string(&line).expect("a line has string keys");
    let digest = hex(&Sha256::digest(&text));
    (text, digest)
}
