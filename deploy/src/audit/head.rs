//! `farthing audit head --append FILE`: adds the head of every partition to a file, signed with the operator's key.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
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
    /// File that the head is added to, one line each time. It is made if it is absent.
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
    let before = text_of(&args.append)?;
    if !before.is_empty() {
        PublishedHeads::read(&before, &TrustedKey::Any).with_context(|| {
            format!("{} cannot be continued: nothing was changed", farthing_tls::shown(&args.append))
        })?;
        ensure!(before.ends_with('\n'), "the last line of the file is not complete: nothing was changed");
    }
    let client = connect::connect(&args.database.reachable_url().await?, Role::Owner).await;
    let client = client.context("cannot connect to the database")?;
    let line = published_heads::line(&client, Utc::now(), before.lines().next_back(), key.as_ref()).await;
    append(&args.append, &line.context("cannot read the heads of the log")?)?;
    let line = before.lines().count() + 1;
    let file = args.append.display().to_string();
    args.format.print(&Published { file, line, signed: key.is_some() })
}

/// The text of a file; empty if there is none.
fn text_of(file: &Path) -> Result<String> {
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", farthing_tls::shown(file))),
    }
}

fn append(file: &Path, line: &str) -> Result<()> {
    let write = || {
        let mut file = OpenOptions::new().append(true).create(true).open(file)?;
        file.write_all(format!("{line}\n").as_bytes())?;
        file.sync_all()
    };
    write().with_context(|| format!("cannot write {}", farthing_tls::shown(file)))
}
