//! `farthing audit verify`: the verdict of every check of the log, the states and the read tables.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use farthing_core::partition::Partition;
use farthing_log::verify::published_heads::PublishedHeads;
use farthing_log::verify::verdict::{Check, Tallies};
use farthing_log::verify::{self, Head, Plan, Progress};
use farthing_projector::ReadModel;
use tokio::task::JoinSet;

use super::checkpoint_flags::CheckpointFlags;
use super::operator_key::TrustedKey;
use super::progress_line;
use super::verdict_report::VerdictReport;
use crate::bounded_file;
use crate::database::Database;
use crate::exit_code::Soundness;
use crate::output::OutputFormat;

/// The most partitions that are verified at once by default.
const MOST_JOBS: usize = 8;

/// The size of the largest file of published heads: that of some 250,000 heads of 8 partitions.
const MOST_HEAD_BYTES: u64 = 256 * 1_024 * 1_024;

/// The most read models that are compared at once. Each takes three connections.
const MOST_READ_MODELS: usize = 4;

/// Flags of `audit verify`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: Database,
    /// Verify one partition alone.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i16).range(0..1_024))]
    partition: Option<i16>,
    /// The first position of the partition that is verified. States are folded only from position 1.
    #[arg(long, value_name = "POSITION", requires = "partition", default_value_t = 1,
        value_parser = clap::value_parser!(i64).range(1..))]
    from: i64,
    /// The last position of the partition that is verified.
    #[arg(long, value_name = "POSITION", requires = "partition", value_parser = clap::value_parser!(i64).range(1..))]
    to: Option<i64>,
    /// File of `audit head`: the log must contain every head in it.
    #[arg(long, value_name = "FILE")]
    head: Option<PathBuf>,
    /// Ed25519 public key in PEM that must have signed every line of the file, and every checkpoint.
    #[arg(long, env = "FARTHING_AUDIT_PUBLIC_KEY_FILE", value_name = "FILE")]
    public_key_file: Option<PathBuf>,
    #[command(flatten)]
    checkpoints: CheckpointFlags,
    /// Leave out the read tables, which are folded again into a copy beside them.
    #[arg(long)]
    skip_read_tables: bool,
    /// Partitions that are verified at once; each takes two connections to Postgres. After them as many read models, at most 4;
    /// each takes three. The default follows the cores.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: Option<u16>,
    #[command(flatten)]
    format: OutputFormat,
}

/// Runs the subcommand.
pub(super) async fn run(args: Args) -> Result<Soundness> {
    let started = Instant::now();
    ensure!(args.to.is_none_or(|to| to >= args.from), "--to is before --from");
    let partition = args.partition.map(Partition::new);
    let plan = Plan {
        partition,
        from: args.from,
        to: args.to,
        published: published(&args)?,
        checkpoints: args.checkpoints.plan(args.public_key_file.as_deref())?,
        jobs: jobs(&args),
    };
    let url = args.database.reachable_url().await?;
    let progress = Arc::<Progress>::default();
    let audit = tokio::select! {
        audit = verify::run(&url, plan, &progress) => audit,
        never = progress_line::show("log", Arc::clone(&progress)) => match never {},
    };
    let mut audit = audit.context("cannot verify the log")?;
    if !audit.is_headless {
        let of_rows = read_tables(&args, &url, &audit.heads).await?;
        audit.tallies.add(of_rows);
    }
    let report = VerdictReport::new(audit, started.elapsed().as_millis());
    if args.format.is_json() {
        args.format.print(&report)?;
    } else {
        report.write_text(&mut anstream::stdout().lock()).context("cannot write to stdout")?;
    }
    Ok(report.soundness())
}

fn jobs(args: &Args) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(MOST_JOBS);
    args.jobs.map_or_else(cores, usize::from)
}

/// The published heads of `--head`.
fn published(args: &Args) -> Result<Option<PublishedHeads>> {
    let trusted = TrustedKey::read(args.public_key_file.as_deref())?;
    let Some(file) = &args.head else { return Ok(None) };
    let shown = farthing_tls::shown(file);
    let bytes = bounded_file::read(file, MOST_HEAD_BYTES).context("--head")?;
    let text = String::from_utf8(bytes).with_context(|| format!("--head: cannot read {shown}"))?;
    PublishedHeads::read(&text, &trusted).map(Some).with_context(|| format!("--head: {shown}"))
}

/// Compares the read tables with the log.
async fn read_tables(args: &Args, url: &str, heads: &[Head]) -> Result<Tallies> {
    let mut tallies = Tallies::default();
    let left_out = if args.skip_read_tables {
        Some("--skip-read-tables")
    } else if args.from > 1 || args.to.is_some() {
        Some(
            "rows are folded from the first event of a partition to their checkpoint, without --from and --to",
        )
    } else {
        None
    };
    if let Some(reason) = left_out {
        tallies.skip(Check::ReadTables, reason);
        return Ok(tallies);
    }
    let progress = Arc::<Progress>::default();
    for _ in ReadModel::ALL {
        progress.expect(heads.iter().map(|head| head.position).sum());
    }
    tokio::select! {
        audited = read_models(args, url, &progress) => audited,
        never = progress_line::show("read tables", Arc::clone(&progress)) => match never {},
    }
}

/// Compares every read model with the log, several at once.
async fn read_models(args: &Args, url: &str, progress: &Arc<Progress>) -> Result<Tallies> {
    let (partition, url): (_, Arc<str>) = (args.partition.map(Partition::new), url.into());
    let (mut tasks, mut tallies, mut whole) = (JoinSet::new(), BTreeMap::new(), Tallies::default());
    let mut next = ReadModel::ALL.into_iter().enumerate();
    loop {
        while tasks.len() < jobs(args).min(MOST_READ_MODELS)
            && let Some((place, model)) = next.next()
        {
            let (url, progress) = (Arc::clone(&url), Arc::clone(progress));
            tasks.spawn(async move {
                (place, model, farthing_projector::audit(&url, model, partition, &progress).await)
            });
        }
        let Some(done) = tasks.join_next().await else { break };
        let (place, model, audited) = match done {
            Ok(done) => done,
            Err(error) => {
                let mut missed = Tallies::default();
                missed.miss(Check::ReadTables, format!("a read model cannot be compared: {error}"));
                whole.add(missed);
                continue;
            }
        };
        let name = model.name();
        let of_model = match audited {
            Ok(of_model) => of_model,
            Err(error) if error.is_of_the_events() => {
                return Err(error).with_context(|| format!("cannot verify the read model {name}"));
            }
            // What is known of the log and of the other read models is said all the same.
            Err(error) => {
                let mut missed = Tallies::default();
                let error = anyhow::Error::from(error);
                missed.miss(Check::ReadTables, format!("{name}: it cannot be compared: {error:#}"));
                missed
            }
        };
        tallies.insert(place, of_model);
    }
    for of_model in tallies.into_values() {
        whole.add(of_model);
    }
    Ok(whole)
}
