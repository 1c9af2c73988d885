//! `farthing audit statement`: the entries of a wallet over a period, between its opening and its closing funds. Broken if
//! the log has errors.

use std::io::{self, BufWriter, StdoutLock, Write};

use anyhow::{Context as _, Result};
use chrono::{DateTime, Utc};
use farthing_core::entry::Funds;
use farthing_core::ids::WalletId;
use farthing_core::statement::Period;
use farthing_log::audit::statement::{self, Closing, Output, StatementLine};
use farthing_log::verify::Head;

use super::statement_page::Page;
use crate::csv_text::{self, no_formula};
use crate::database::Database;
use crate::exit_code::Soundness;
use crate::output::{self, Shown, timestamp};
use crate::value_parsers;

/// Flags of `audit statement`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: Database,
    /// The wallet.
    #[arg(long, value_name = "ID")]
    wallet: WalletId,
    /// The first instant of the period: a date, or a time such as 2026-11-01T00:00:00Z [default: the beginning].
    #[arg(long, value_name = "TIME", value_parser = value_parsers::instant)]
    from: Option<DateTime<Utc>>,
    /// The end of the period, which is not part of it [default: now].
    #[arg(long, value_name = "TIME", value_parser = value_parsers::instant)]
    to: Option<DateTime<Utc>>,
    /// The format.
    #[arg(long, value_enum, default_value_t = Format::Text, conflicts_with_all = ["csv", "json"])]
    format: Format,
    /// The same as --format csv.
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// The same as --format json.
    #[arg(long)]
    json: bool,
    /// Name of the wallet's owner, which the page of --format html shows. The log has no names of customers.
    #[arg(long = "for", value_name = "NAME", value_parser = value_parsers::line)]
    owner: Option<String>,
}

/// The format of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// For people.
    Text,
    /// Comma-separated values with a header (RFC 4180).
    Csv,
    /// One JSON object.
    Json,
    /// A page to print.
    Html,
}

impl Args {
    const fn format(&self) -> Format {
        match (self.csv, self.json) {
            (true, _) => Format::Csv,
            (false, true) => Format::Json,
            (false, false) => self.format,
        }
    }
}

/// Runs the command.
pub(super) async fn run(args: &Args) -> Result<Soundness> {
    let url = args.database.reachable_url().await?;
    let period = value_parsers::period(args.from, args.to)?;
    let out = BufWriter::new(io::stdout().lock());
    let closing = match args.format() {
        Format::Text => write(&url, args.wallet, period, Text(out)).await,
        Format::Csv => write(&url, args.wallet, period, Csv(csv_text::writer(out))).await,
        Format::Json => {
            let wallet_id = args.wallet;
            write(&url, wallet_id, period, Json { out, wallet_id, period, has_lines: false }).await
        }
        Format::Html => {
            let page = Page::new(out, args.owner.clone(), args.wallet, period);
            write(&url, args.wallet, period, page).await
        }
    }?;
    Ok(Soundness::of(&closing.findings))
}

type Stdout = BufWriter<StdoutLock<'static>>;

/// Ends a statement.
pub(super) trait Document: Output {
    /// Writes what follows the entries.
    fn close(self, closing: &Closing) -> io::Result<()>;
}

async fn write(url: &str, wallet: WalletId, period: Period, mut document: impl Document) -> Result<Closing> {
    let closing = statement::statement(url, wallet, period, &mut document).await;
    let closing = closing.context("cannot make the statement")?;
    document.close(&closing).context("cannot write to stdout")?;
    Ok(closing)
}

/// Text in columns.
struct Text(Stdout);

impl Text {
    fn row(&mut self, texts: [&str; 4], amounts: [&str; 4], note: &str) -> io::Result<()> {
        let ([at, position, kind, reference], [change, balance, plan, bundles]) = (texts, amounts);
        let row = format!(
            "{at:<24}  {position:>10}  {kind:<12}  {reference:<30}  {change:>18}  {balance:>18}  {plan:>18}  {bundles:>18}  {note}"
        );
        writeln!(self.0, "{}", row.trim_end())
    }

    fn funds(&mut self, texts: [&str; 4], change: &str, funds: Funds, note: &str) -> io::Result<()> {
        let [balance, plan, bundles] = amounts(funds);
        self.row(texts, [change, &balance, &plan, &bundles], note)
    }
}

impl Output for Text {
    fn open(&mut self, opening: Funds) -> io::Result<()> {
        self.row(
            ["time", "position", "kind", "reference"],
            ["change", "balance", "plan credit", "bundle credit"],
            "note",
        )?;
        self.funds(["", "", "opening", ""], "", opening, "")
    }

    fn line(&mut self, line: &StatementLine) -> io::Result<()> {
        let StatementLine { place, occurred_at, entry, after } = line;
        let change = entry.change.total().map_err(io::Error::other)?.to_string();
        let [at, position, reference] =
            [timestamp(*occurred_at), place.position.to_string(), entry.cause.reference()];
        let note = Shown(entry.cause.note()).to_string();
        self.funds([&at, &position, entry.cause.kind(), &reference], &change, *after, &note)
    }
}

impl Document for Text {
    fn close(mut self, closing: &Closing) -> io::Result<()> {
        self.funds(["", "", "closing", ""], "", closing.closing, "")?;
        if let Some(Head { partition, position, hash }) = &closing.head {
            writeln!(self.0, "partition {partition}: read to position {position}, hash {hash}")?;
        }
        if let Some(warning) = closing.findings.warning() {
            writeln!(self.0, "{warning}")?;
        }
        self.0.flush()
    }
}

/// Comma-separated values: opening and closing are rows, too. The closing one has the place and the hash of the last event
/// that was read, and says in its note if the log has errors.
struct Csv(csv::Writer<Stdout>);

const HEADER: [&str; 12] = [
    "kind",
    "occurred_at",
    "partition",
    "position",
    "reference",
    "note",
    "balance_change",
    "plan_credit_change",
    "bundle_credit_change",
    "balance",
    "plan_credit",
    "bundle_credit",
];

impl Csv {
    /// A row without an entry.
    fn funds(&mut self, kind: &str, funds: Funds, head: Option<&Head>, note: &str) -> io::Result<()> {
        let [partition, position, hash] = head.map_or_else(Default::default, |head| {
            [head.partition.to_string(), head.position.to_string(), head.hash.clone()]
        });
        let about = [kind.to_owned(), String::new(), partition, position, hash, note.to_owned()];
        let empty = [const { String::new() }; 3];
        Ok(self.0.write_record(about.into_iter().chain(empty).chain(amounts(funds)))?)
    }
}

impl Output for Csv {
    fn open(&mut self, opening: Funds) -> io::Result<()> {
        self.0.write_record(HEADER)?;
        self.funds("opening", opening, None, "")
    }

    fn line(&mut self, line: &StatementLine) -> io::Result<()> {
        let StatementLine { place, occurred_at, entry, after } = line;
        let about = [
            entry.cause.kind().to_owned(),
            timestamp(*occurred_at),
            place.partition.to_string(),
            place.position.to_string(),
            entry.cause.reference(),
            no_formula(&entry.cause.note()).into_owned(),
        ];
        Ok(self.0.write_record(about.into_iter().chain(amounts(entry.change)).chain(amounts(*after)))?)
    }
}

impl Document for Csv {
    fn close(mut self, closing: &Closing) -> io::Result<()> {
        let note = closing.findings.warning().unwrap_or_default();
        self.funds("closing", closing.closing, closing.head.as_ref(), &note)?;
        self.0.flush()
    }
}

/// The three parts.
pub(super) fn amounts(funds: Funds) -> [String; 3] {
    [funds.balance, funds.plan_credit, funds.bundle_credit].map(|amount| amount.to_string())
}

/// One JSON object, written as its entries are read.
struct Json {
    out: Stdout,
    wallet_id: WalletId,
    period: Period,
    has_lines: bool,
}

impl Output for Json {
    fn open(&mut self, opening: Funds) -> io::Result<()> {
        let Period { from, to } = self.period;
        let (wallet, from, to) = (json(&self.wallet_id)?, json(&from)?, json(&to)?);
        let opening = json(&opening)?;
        write!(self.out, r#"{{"wallet_id":{wallet},"from":{from},"to":{to},"opening":{opening},"entries":["#)
    }

    fn line(&mut self, line: &StatementLine) -> io::Result<()> {
        let comma = if self.has_lines { "," } else { "" };
        self.has_lines = true;
        write!(self.out, "{comma}{}", json(line)?)
    }
}

impl Document for Json {
    fn close(mut self, closing: &Closing) -> io::Result<()> {
        let closing = json(closing)?;
        let members = closing.strip_prefix('{').unwrap_or(&closing);
        writeln!(self.out, "],{members}")?;
        self.out.flush()
    }
}

fn json(value: &impl serde::Serialize) -> io::Result<String> {
    output::json(value).map_err(io::Error::other)
}
