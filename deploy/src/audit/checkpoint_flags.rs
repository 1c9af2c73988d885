//! Flags of `farthing audit verify` about signed checkpoints: where a run begins, and what it leaves for the next one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use farthing_log::verify::published_heads::Signer;
use farthing_log::verify::signed_checkpoints::{Beginning, CheckpointPlan};

use super::operator_key::{OperatorKey, TrustedKey};

/// Flags about checkpoints.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct CheckpointFlags {
    /// Folder of signed checkpoints. Each partition is verified from its last one on that is signed with the key of
    /// --public-key-file, or else with that of --key-file.
    #[arg(long, value_name = "FOLDER", conflicts_with = "from")]
    checkpoints: Option<PathBuf>,
    /// Ed25519 key in PEM that signs new checkpoints, which are written while the log is verified. Without it none are.
    #[arg(long, env = "FARTHING_AUDIT_KEY_FILE", value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Events of a partition from one new checkpoint to the next. There is one at the end, too.
    #[arg(long, value_name = "EVENTS", default_value_t = 1_000_000, requires = "checkpoints",
        value_parser = clap::value_parser!(i64).range(1..))]
    checkpoint_every: i64,
    /// Verify from the first event on, whatever checkpoints there are, and write new ones.
    #[arg(long, requires = "checkpoints")]
    recompute: bool,
}

impl CheckpointFlags {
    /// What the run does with checkpoints; nothing without --checkpoints. A checkpoint of an unknown key proves nothing, so a
    /// key is needed.
    pub(super) fn plan(&self, public_key_file: Option<&Path>) -> Result<Option<CheckpointPlan>> {
        let Some(folder) = &self.checkpoints else { return Ok(None) };
        let read = |file| OperatorKey::read("--key-file", file);
        let signer = self.key_file.as_deref().map(read).transpose()?;
        let given = public_key_file.map(|file| TrustedKey::read(Some(file))).transpose()?;
        let own = signer.as_ref().map(TrustedKey::of);
        if let (Some(given), Some(own)) = (&given, &own) {
            ensure!(given == own, "--key-file and --public-key-file are not of one key");
        }
        let trusted = given.or(own).context("--checkpoints needs --public-key-file or --key-file")?;
        let beginning = if self.recompute { Beginning::FirstEvent } else { Beginning::Checkpoint };
        Ok(Some(CheckpointPlan {
            folder: folder.clone(),
            trusted: Arc::new(trusted),
            beginning,
            signer: signer.map(|signer| -> Arc<dyn Signer + Send + Sync> { Arc::new(signer) }),
            every: self.checkpoint_every,
        }))
    }
}
