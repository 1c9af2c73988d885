//! `farthing audit head --append FILE`: adds the head of every partition to a file, signed with the operator's key.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};
use chrono::Utc;
use farthing_log::connect::{self, Role};
use farthing_log::verify::published_heads::{self, PublishedHeads};
use serde::Serialize;

use super::operator_key::{OperatorKey, TrustedKey};
use crate::database::Database;
use crate::output::OutputFormat;

/// Flags of `audit head`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: Database,
    /// File that the head is added to, one line each time. It is made if it is absent. All its lines have one key, or none.
    #[arg(long, value_name = "FILE")]
    append: PathBuf,
    /// Ed25519 key in PEM that signs the head, as `openssl genpkey -algorithm ed25519` makes one.
    #[arg(long, env = "FARTHING_AUDIT_KEY_FILE", value_name = "FILE")]
    key_file: Option<PathBuf>,
    #[command(flatten)]
    format: OutputFormat,
}

/// What was published.
#[derive(Debug, Serialize)]
struct Published {
    file: String,
    line: usize,
    signed: bool,
}

/// Runs the subcommand.
pub(super) async fn run(args: &Args) -> Result<()> {
    let key = args.key_file.as_deref().map(|file| OperatorKey::read("--key-file", file)).transpose()?;
    let client = connect::connect(&args.database.reachable_url().await?, Role::Owner).await;
    let client = client.context("cannot connect to the database")?;
    let shown = || farthing_tls::shown(&args.append);
    // Another run waits until this one has added its line, which follows from the line before it.
    let mut file = open(args).with_context(|| format!("cannot open {}", shown()))?;
    let mut before = String::new();
    file.read_to_string(&mut before).with_context(|| format!("cannot read {}", shown()))?;
    if !before.is_empty() {
        continued(&before, key.as_ref())
            .with_context(|| format!("{} cannot be continued: nothing was changed", shown()))?;
    }
    let line = published_heads::line(&client, Utc::now(), before.lines().next_back(), key.as_ref()).await;
    let line = line.context("cannot read the heads of the log")?;
    append(&mut file, &line, before.len()).with_context(|| format!("cannot write {}", shown()))?;
    let line = before.lines().count() + 1;
    let file = args.append.display().to_string();
    args.format.print(&Published { file, line, signed: key.is_some() })
}

/// The file, locked for this run.
fn open(args: &Args) -> io::Result<File> {
    let file = OpenOptions::new().read(true).append(true).create(true).open(&args.append)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    file.lock()?;
    Ok(file)
}

/// Adds a line to a file of so many bytes. A part of a line is taken back: with one the file would be refused.
fn append(file: &mut File, line: &str, before: usize) -> Result<()> {
    let written = file.write_all(format!("{line}\n").as_bytes()).and_then(|()| file.sync_all());
    let Err(error) = written else { return Ok(()) };
    file.set_len(u64::try_from(before)?)
        .and_then(|()| file.sync_all())
        .with_context(|| format!("{error}, and its end, which may be a part of a line, cannot be removed"))?;
    Err(error.into())
}

/// An error unless a line with `key` may follow the lines of a file: a file with lines of several keys, or of none among
/// others, is refused by whoever verifies it.
fn continued(before: &str, key: Option<&OperatorKey>) -> Result<()> {
    PublishedHeads::read(before, &key.map_or(TrustedKey::Any, TrustedKey::of))?;
    if key.is_none() && PublishedHeads::is_signed(before) {
        bail!("its lines are signed, and no --key-file is given");
    }
    ensure!(before.ends_with('\n'), "its last line is not complete");
    Ok(())
}
