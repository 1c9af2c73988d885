//! `farthing doctor`: checks a deployment and says what to do. Invariant: it changes nothing anywhere.
//!
//! A check reads facts and judges them. The judgement is a function of the facts alone. What keeps a check from its facts
//! becomes its finding, and the others go on.

mod catalogue;
mod clocks;
mod connections;
mod database;
mod disk;
mod feed;
mod finding;
mod lag;
mod nats;
mod processes;
mod report;
mod rights;
mod server;
mod session;
mod tls;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use farthing_core::partition::Partitions;
use farthing_log::nats::NatsConfig;
use farthing_log::positions::Positions;

use self::connections::Given;
use self::finding::Finding;
use self::nats::{Nats as NatsConnection, Reached};
use self::report::Report;
use self::session::Session;
use crate::database::{Database, KeyOverride};
use crate::nats::Nats;
use crate::output::{self, OutputFormat};
use crate::value_parsers;

/// Flags of `doctor`: those that the processes are given, so that it sees what they see.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    key: KeyOverride,
    #[command(flatten)]
    nats: Nats,
    /// The number of NATS servers that store the feed, as the projector is given it.
    #[arg(long, env = "FARTHING_FEED_REPLICAS", value_name = "N", default_value_t = 1,
        value_parser = value_parsers::feed_replicas())]
    feed_replicas: u8,
    /// A gateway's connections to Postgres, as the gateways are given them.
    #[arg(long, env = "FARTHING_POSTGRES_CONNECTIONS", value_name = "N",
        value_parser = value_parsers::postgres_connections())]
    postgres_connections: Option<u32>,
    /// A projector's connections for rows, as it is given them.
    #[arg(long, env = "FARTHING_WRITE_CONNECTIONS", value_name = "N", default_value_t = 4,
        value_parser = value_parsers::write_connections())]
    write_connections: u16,
    /// How long a check may take, in seconds.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(4..=300))]
    timeout_seconds: u64,
    #[command(flatten)]
    format: OutputFormat,
}

/// What the checks of NATS need from the log.
#[derive(Debug, Default)]
struct Log {
    partitions: Option<Partitions>,
    heads: Option<Positions>,
}

/// Runs the subcommand. The exit code is that of the report; 2 if it cannot be printed.
pub(crate) async fn run(args: Args) -> ExitCode {
    let format = args.format;
    let report = Report::new(catalogue::complete(examine(args).await));
    let printed = if format.is_json() {
        format.print(&report)
    } else {
        report.write_text(&mut anstream::stdout().lock()).context("cannot write to stdout")
    };
    match printed {
        Ok(()) => report.exit_code(),
        Err(error) => {
            output::print_error(&error);
            ExitCode::from(2)
        }
    }
}

async fn examine(args: Args) -> Vec<Finding> {
    let limit = Duration::from_secs(args.timeout_seconds);
    let nats = args.nats.config();
    let has_nats = !matches!(nats, Ok(None));
    let mut findings = Vec::new();
    let mut log = Log::default();
    let session = match open(&args.database, limit).await {
        Ok(session) => Some(session),
        Err(error) => {
            let advice = "check the database URL, the login, the network, and whether the server runs";
            findings.push(Finding::failed("postgres.reached", error, advice));
            None
        }
    };
    if let Some(session) = &session {
        findings.push(Finding::ok("postgres.reached", "Postgres takes the login"));
        findings.extend(server::check(session).await);
        let given = Given { of_gateway: args.postgres_connections, for_rows: args.write_connections };
        findings.push(connections::check(session, given).await);
        findings.extend(tls::check(session).await);
        findings.extend(disk::check(session).await);
        findings.extend(rights::check(session).await);
        findings.extend(database::check(session, &args.key).await);
        findings.extend(clocks::check(session).await);
        findings.extend(processes::check(session, has_nats).await);
        findings.extend(lag::check(session).await);
        log = read_log(session).await;
    }
    match nats {
        Ok(None) => {
            findings.push(Finding::skipped("nats.reached", "no --nats-url is given: there is no feed"));
        }
        Ok(Some(config)) => {
            findings.extend(
                examine_nats(&config, session.as_ref(), &log, args.feed_replicas.into(), limit).await,
            );
        }
        Err(error) => {
            findings.push(Finding::failed(
                "nats.reached",
                format!("{error:#}"),
                "correct the settings of NATS",
            ));
        }
    }
    findings
}

/// Opens the session; the error is for people.
async fn open(database: &Database, limit: Duration) -> Result<Session, String> {
    let url = database.url().map_err(|error| format!("{error:#}"))?;
    Session::open(&url, limit).await
}

/// Reads what the checks of NATS need. Why it cannot be read, the checks of the log say.
async fn read_log(session: &Session) -> Log {
    let partitions =
        session.facts(async { Ok(farthing_log::partitions::load(&session.client).await?) }).await;
    let heads = session.facts(lag::heads(session)).await;
    Log { partitions: partitions.ok().flatten(), heads: heads.ok() }
}

async fn examine_nats(
    config: &NatsConfig,
    session: Option<&Session>,
    log: &Log,
    replicas: usize,
    limit: Duration,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    match NatsConnection::open(config, limit).await {
        Err(error) => {
            let advice =
                "check the URL, the login, the certificates, the network, and whether the server runs";
            findings.push(Finding::failed("nats.reached", error, advice));
            findings.extend(nats::check_tls(config, limit, Reached::No).await);
        }
        Ok(nats) => {
            findings.push(Finding::ok("nats.reached", "NATS takes the login"));
            findings.extend(nats::check_tls(config, limit, Reached::Yes).await);
            let names = &config.names;
            let streams = match log.partitions {
                Some(partitions) => Some(feed::streams(&nats, names, partitions).await),
                None => None,
            };
            let missing = streams.as_ref().and_then(|found| Some(feed::missing(found.as_ref().ok()?).len()));
            findings.extend(nats::check(&nats, missing).await);
            match (streams, &log.heads) {
                (Some(streams), Some(heads)) => {
                    findings.extend(feed::check(&nats, session, names, streams, replicas, heads).await);
                }
                _ => {
                    findings
                        .push(Finding::skipped("feed.streams", "the partitions of the log are not known"));
                }
            }
        }
    }
    findings
}
