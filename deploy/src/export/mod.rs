//! `farthing export`: writes requests, entries and events, or the charges of FOCUS, to files in a new folder, with a manifest.
//! The log is read and verified; if anything is wrong with it, no folder is made.

mod csv_file;
mod folder;
mod hashed_file;
mod manifest;
mod ndjson_file;
mod parquet_file;
mod table_file;

use std::io;
use std::path::PathBuf;

use anyhow::{Context as _, Result, anyhow, ensure};
use chrono::{DateTime, Utc};
use farthing_core::ids::MerchantId;
use farthing_core::partition::Partition;
use farthing_log::audit::export::{self, Output, Selection, Table, Value};

use self::folder::Folder;
use self::manifest::Manifest;
use self::table_file::TableFile;
use crate::database::Database;
use crate::exit_code::Soundness;
use crate::output::{OutputFormat, print_error, print_line};
use crate::value_parsers;

/// Flags of `export`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: Database,
    /// The form of the files. `focus` is CSV with the columns of FOCUS, for cost tools.
    #[arg(long, value_enum)]
    format: Format,
    /// Folder to make. It must not exist.
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// Tables to write [default: all].
    #[arg(long, value_enum, value_delimiter = ',', value_name = "TABLE")]
    table: Vec<TableName>,
    /// The first instant of the period: a date, or a time such as 2026-11-01T00:00:00Z [default: the beginning].
    #[arg(long, value_name = "TIME", value_parser = value_parsers::instant)]
    from: Option<DateTime<Utc>>,
    /// The end of the period, which is not part of it [default: the last event].
    #[arg(long, value_name = "TIME", value_parser = value_parsers::instant)]
    to: Option<DateTime<Utc>>,
    /// Only this merchant.
    #[arg(long, value_name = "ID")]
    merchant: Option<MerchantId>,
    /// Only this partition of the log.
    #[arg(long, value_name = "NUMBER")]
    partition: Option<i16>,
    /// Only what is new since an earlier export, by its manifest. Period, merchant and partition are those of that export.
    #[arg(long, value_name = "MANIFEST", conflicts_with_all = ["from", "to", "merchant", "partition"])]
    since: Option<PathBuf>,
    /// Who issues the invoices, for FOCUS.
    #[arg(long, value_name = "NAME", default_value = "Farthing", value_parser = value_parsers::line)]
    issuer: String,
    #[command(flatten)]
    output: OutputFormat,
}

/// The form of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Comma-separated values with a header (RFC 4180).
    Csv,
    /// Apache Parquet with decimals of 38 digits, 10 of them fractional.
    Parquet,
    /// One JSON object a line.
    Ndjson,
    /// FOCUS, the FinOps Open Cost and Usage Specification, as CSV.
    Focus,
}

/// A table that `--table` names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum TableName {
    /// Ended requests.
    Requests,
    /// Entries of wallets.
    Entries,
    /// Events.
    Events,
}

impl Args {
    fn tables(&self) -> Result<Vec<Table>> {
        if self.format == Format::Focus {
            ensure!(self.table.is_empty(), "--format focus has one table, so it takes no --table");
            return Ok(vec![Table::Focus]);
        }
        let named = |name| self.table.is_empty() || self.table.contains(&name);
        let tables = [
            (TableName::Requests, Table::Requests),
            (TableName::Entries, Table::Entries),
            (TableName::Events, Table::Events),
        ];
        Ok(tables.into_iter().filter(|(name, _)| named(*name)).map(|(_, table)| table).collect())
    }

    fn selection(&self, previous: Option<&Manifest>) -> Result<Selection> {
        let tables = self.tables()?;
        let issuer = self.issuer.clone();
        Ok(match previous {
            Some(previous) => {
                previous.has(&tables)?;
                Selection {
                    tables,
                    period: previous.period,
                    merchant_id: previous.merchant_id,
                    partition: previous.partition,
                    since: Some(previous.log.clone()),
                    issuer,
                }
            }
            None => Selection {
                tables,
                period: value_parsers::period(self.from, self.to)?,
                merchant_id: self.merchant,
                partition: self.partition.map(Partition::new),
                since: None,
                issuer,
            },
        })
    }
}

/// Runs the command.
pub(crate) async fn run(args: &Args) -> Result<Soundness> {
    let previous = args.since.as_deref().map(manifest::read).transpose()?;
    let selection = args.selection(previous.as_ref().map(|(manifest, _)| manifest))?;
    let url = args.database.reachable_url().await?;
    let folder = Folder::create(&args.out)?;
    let mut files = Files::create(&folder, args.format, &selection.tables)?;
    let created_at = Utc::now();
    let exported = export::export(&url, &selection, &mut files).await.context("cannot export")?;
    if Soundness::of(&exported.findings) == Soundness::Broken {
        print_error(&anyhow!("nothing was exported"));
        return Ok(Soundness::Broken);
    }
    let files = files.finish().context("cannot write the files")?;
    let previous = previous.map(|(_, sha256)| sha256);
    let manifest = Manifest::new(args.format, created_at, &selection, previous, files, exported.log);
    folder.finish(&manifest.to_json()?)?;
    if args.output.is_json() {
        args.output.print_done(&manifest, "the export was written")?;
        return Ok(Soundness::Sound);
    }
    for file in &manifest.files {
        print_line(format!("{}: {} rows", args.out.join(&file.name).display(), file.rows))?;
    }
    Ok(Soundness::Sound)
}

/// The files of an export, one for each table.
struct Files(Vec<TableFile>);

impl Files {
    fn create(folder: &Folder, format: Format, tables: &[Table]) -> Result<Self> {
        let files = tables.iter().map(|table| TableFile::create(folder, format, *table));
        Ok(Self(files.collect::<Result<_>>()?))
    }

    fn finish(self) -> io::Result<Vec<manifest::File>> {
        self.0.into_iter().map(TableFile::finish).collect()
    }
}

impl Output for Files {
    fn row(&mut self, table: Table, row: &[Value]) -> io::Result<()> {
        let file = self.0.iter_mut().find(|file| file.table() == table);
        file.expect("the export gives rows of the selected tables alone").row(row)
    }
}
