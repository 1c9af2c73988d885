//! `farthing`: one program for every role. Reads the command line, starts the runtime that the subcommand needs and
//! maps the result to an exit code: 0 for success, 2 for bad usage, 1 for any other failure. `doctor` has codes of its own, and
//! the commands that judge the ledger have the rule of `exit_code.rs`.

mod archive;
mod audit;
mod bounded_file;
mod csv_text;
mod database;
#[cfg(feature = "dev")]
mod dev;
mod doctor;
mod exit_code;
mod export;
mod gateway;
mod key;
mod lifetime;
mod log;
mod log_format;
mod machine;
mod merchant;
mod migrate;
#[cfg(feature = "dev")]
mod mock_provider;
mod nats;
mod operator;
mod operator_listener;
mod output;
mod partitions;
mod price_files;
mod prices;
mod projections;
mod projector;
mod prune;
mod secret_file;
mod value_parsers;
mod wallet;

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use farthing_log::archive::Store;
use tokio::runtime::{Builder, Runtime};

use self::exit_code::Soundness;
use self::log_format::LogFormat;
use self::machine::Machine;

/// A call allocates and frees many short strings. The system allocator spends a tenth of the CPU time on them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Farthing: an event-sourced billing ledger with an AI forwarding gateway.
#[derive(Debug, Parser)]
#[command(name = "farthing", version, propagate_version = true)]
struct Program {
    /// Archive of old ranges of the log, such as `file:///srv/archive` or `s3://bucket/folder`. Whoever reads the log from its
    /// beginning needs it once something was archived.
    #[arg(long, env = "FARTHING_ARCHIVE", hide_env_values = true, value_name = "URL", global = true)]
    archive: Option<String>,
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Serve the forward endpoint, the REST API and the hosted pages.
    Gateway(Box<gateway::Args>),
    /// Publish the log to NATS JetStream and keep the read models up to date.
    Projector(projector::Args),
    /// Create or upgrade the database. Roles of the release before may run.
    Migrate(migrate::Args),
    /// Drop what only the release before uses. Stop all of its roles first.
    Prune(prune::Args),
    /// Create and list merchants.
    #[command(subcommand)]
    Merchant(merchant::Command),
    /// Issue, list and revoke secret keys.
    #[command(subcommand)]
    Key(key::Command),
    /// Credit wallets.
    #[command(subcommand)]
    Wallet(wallet::Command),
    /// Verify and rebuild read models.
    #[command(subcommand)]
    Projections(projections::Command),
    /// Verify the ledger, publish its head, and read it: trial balance, statements of wallets, requests explained.
    #[command(subcommand)]
    Audit(audit::Command),
    /// Move old ranges of the log to files, verify them, and load them back.
    #[command(subcommand)]
    Archive(archive::Command),
    /// Export requests, entries and events of the log to files: CSV, Parquet, NDJSON or FOCUS.
    Export(Box<export::Args>),
    /// Verify the append-only log.
    #[command(subcommand)]
    Log(log::Command),
    /// List the partitions of the log: leader, epoch, position and lags.
    Partitions(partitions::Args),
    /// Show, compare and check list prices of models. Needs no database.
    #[command(subcommand)]
    Prices(prices::Command),
    /// Check a deployment, and say what to do. Changes nothing.
    Doctor(Box<doctor::Args>),
    /// Run a private test instance on this machine, with its own Postgres, NATS and mock AI provider.
    #[cfg(feature = "dev")]
    Dev(Box<dev::Args>),
    /// Serve a MOCK of an AI provider, for tests. No model answers.
    #[cfg(feature = "dev")]
    MockProvider(mock_provider::Args),
}

impl Role {
    /// The format of its log. Roles without the flag write text.
    const fn log_format(&self) -> LogFormat {
        match self {
            Self::Gateway(args) => args.log_format(),
            Self::Projector(args) => args.log_format(),
            Self::Migrate(_)
            | Self::Prune(_)
            | Self::Merchant(_)
            | Self::Key(_)
            | Self::Wallet(_)
            | Self::Projections(_)
            | Self::Archive(_)
            | Self::Audit(_)
            | Self::Export(_)
            | Self::Log(_)
            | Self::Partitions(_)
            | Self::Prices(_)
            | Self::Doctor(_) => LogFormat::Text,
            #[cfg(feature = "dev")]
            Self::Dev(args) => args.log_format(),
            #[cfg(feature = "dev")]
            Self::MockProvider(args) => args.log_format(),
        }
    }
}

/// The exit code of the parser of the command line.
const BAD_USAGE: u8 = 2;

fn main() -> ExitCode {
    #[cfg(debug_assertions)]
    become_next_release();
    let Program { archive, role } = Program::parse();
    let format = role.log_format();
    if let Err(error) = use_archive(archive) {
        format.show_error(&error);
        return ExitCode::from(BAD_USAGE);
    }
    match run(role) {
        Ok(code) => code,
        Err(error) => {
            format.show_error(&error);
            ExitCode::FAILURE
        }
    }
}

/// Names the archive that this process reads. Nothing is read yet: no role needs it every day.
fn use_archive(location: Option<String>) -> Result<()> {
    if let Some(location) = location {
        farthing_log::archive::use_for_process(Store::open(&location).context("--archive cannot be used")?);
    }
    Ok(())
}

/// Makes this process one of the release that the tests of upgrades take for the next one, if they say so. Debug builds
/// alone have this.
#[cfg(debug_assertions)]
fn become_next_release() {
    use farthing_core::release::{self, Change};
    match std::env::var("FARTHING_TEST_NEXT_RELEASE").as_deref() {
        Ok("form") => release::become_next(Change::Form),
        Ok("fold") => {
            release::become_next(Change::Fold);
            farthing_schema::read_model::become_next_release();
        }
        Ok(_) | Err(_) => {}
    }
}

fn run(role: Role) -> Result<ExitCode> {
    let done = match role {
        Role::Prices(command) => return prices::run(command),
        Role::Doctor(args) => return Ok(one_thread("error")?.block_on(doctor::run(*args))),
        Role::Gateway(args) => {
            let machine = Machine::find_for_a_server();
            runtime(args.log_format(), args.threads(&machine))?.block_on(gateway::run(*args, machine))
        }
        Role::Projector(args) => {
            let machine = Machine::find_for_a_server();
            runtime(args.log_format(), args.threads(&machine))?.block_on(projector::run(args, machine))
        }
        Role::Migrate(args) => one_thread("warn")?.block_on(migrate::run(&args)),
        Role::Prune(args) => one_thread("warn")?.block_on(prune::run(&args)),
        Role::Merchant(command) => one_thread("warn")?.block_on(merchant::run(command)),
        Role::Key(command) => one_thread("warn")?.block_on(key::run(command)),
        Role::Wallet(command) => one_thread("warn")?.block_on(wallet::run(command)),
        Role::Partitions(args) => one_thread("warn")?.block_on(partitions::run(&args)),
        Role::Archive(command) => return Ok(judged(all_cores(), archive::run(command))),
        Role::Audit(command) => return Ok(judged(all_cores(), audit::run(command))),
        Role::Export(args) => return Ok(judged(one_thread("warn"), export::run(&args))),
        Role::Log(command) => return Ok(judged(all_cores(), log::run(&command))),
        Role::Projections(command) => {
            return Ok(judged(many_threads(LogFormat::Text), projections::run(&command)));
        }
        // One thread: the kernel signals the children when the thread that started them ends, not the process.
        #[cfg(feature = "dev")]
        Role::Dev(args) => one_thread_logging("info", args.log_format())?.block_on(dev::run(*args)),
        #[cfg(feature = "dev")]
        Role::MockProvider(args) => many_threads(args.log_format())?.block_on(mock_provider::run(args)),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// Runs a command that judges the ledger.
fn judged(runtime: Result<Runtime>, command: impl Future<Output = Result<Soundness>>) -> ExitCode {
    Soundness::exit_code(runtime.and_then(|runtime| runtime.block_on(command)))
}

fn one_thread(log_level: &str) -> Result<Runtime> {
    one_thread_logging(log_level, LogFormat::Text)
}

fn one_thread_logging(log_level: &str, format: LogFormat) -> Result<Runtime> {
    format.log_to_stderr(log_level);
    Builder::new_current_thread().enable_all().build().context("cannot start the runtime")
}

fn many_threads(format: LogFormat) -> Result<Runtime> {
    runtime(format, Machine::find().threads())
}

/// A thread for each core, for a command that computes much.
fn all_cores() -> Result<Runtime> {
    runtime(LogFormat::Text, Machine::find().cores)
}

fn runtime(format: LogFormat, threads: usize) -> Result<Runtime> {
    format.log_to_stderr("info");
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(threads).enable_all().build().context("cannot start the runtime")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Program::command().debug_assert();
    }

    #[test]
    fn invalid_values_are_refused_while_the_command_line_is_parsed() {
        let id = "mer_01ARZ3NDEKTSV4RRFFQ69G5FAV";
        let credit = |target: &str, amount: &str, reason: &str| {
            let url = "--database-url=postgres://nowhere";
            let line = [
                "farthing",
                "wallet",
                "credit",
                url,
                "--merchant",
                target,
                "--amount",
                amount,
                "--reason",
                reason,
            ];
            Program::try_parse_from(line).map(|_| ())
        };
        assert!(credit(id, "1.5", "paid by transfer").is_ok());
        for amount in ["0", "-1", "1e3", "NaN", "1.00000000001", "", "9999999999999"] {
            assert!(credit(id, amount, "r").is_err(), "{amount}");
        }
        for reason in ["", " ", "a\0b", "line\nbreak", &"x".repeat(256)] {
            assert!(credit(id, "1", reason).is_err(), "{reason:?}");
        }
        for target in ["", "con_01ARZ3NDEKTSV4RRFFQ69G5FAV", "mer_1"] {
            assert!(credit(target, "1", "r").is_err(), "{target}");
        }
        assert!(credit(id, "1", &"é".repeat(255)).is_ok());
    }

    #[test]
    fn a_key_in_place_of_its_id_is_not_repeated() {
        let revoke = |id| {
            let line = ["farthing", "key", "revoke", "--database-url=postgres://nowhere", id];
            Program::try_parse_from(line).map(drop).map_err(|error| error.to_string())
        };
        let error = revoke("aks_secret").unwrap_err();
        assert!(error.contains("key_<ULID>") && !error.contains("secret"), "{error}");
        assert!(revoke("key_01ARZ3NDEKTSV4RRFFQ69G5FAV").is_ok());
    }

    #[test]
    fn the_gateway_takes_a_url_for_the_others_that_they_can_reach() {
        let takes = |url: &str| {
            let line = ["farthing", "gateway", "--database-url=postgres://nowhere", "--gateways-url", url];
            Program::try_parse_from(line).map(drop)
        };
        assert!(takes("http://gateway-2.internal:8090").is_ok());
        for url in ["", "hello world", "https://gateway:8090", "gateway:8090", "http://a:secret@gateway"] {
            let error = takes(url).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{url}");
            let text = error.to_string();
            assert!(text.contains("--gateways-url must be http") && !text.contains("secret"), "{text}");
        }
    }

    #[test]
    fn a_url_of_the_pages_that_is_refused_is_not_repeated() {
        let refused = |line: &[&str], url: &str| {
            let flag = format!("--pages-url={url}");
            let line = line.iter().copied().chain([flag.as_str()]);
            let error = Program::try_parse_from(line).map(drop).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{url}");
            let text = error.to_string();
            assert!(text.contains("--pages-url must be http") && !text.contains("secret"), "{text}");
        };
        let gateway = &["farthing", "gateway", "--database-url=postgres://nowhere"][..];
        for url in ["", "https://a:secret@pay.example", "https://secret@pay/", "ftp://pay.example?secret"] {
            refused(gateway, url);
            #[cfg(feature = "dev")]
            refused(&["farthing", "dev"][..], url);
        }
        let takes = ["--pages-url=https://pay.example"];
        assert!(Program::try_parse_from(gateway.iter().copied().chain(takes)).is_ok());
    }

    #[test]
    fn the_doctor_takes_what_the_processes_take() {
        let takes = |role: &str, flag: &str| {
            Program::try_parse_from(["farthing", role, "--database-url=postgres://nowhere", flag]).is_ok()
        };
        for (role, flag, least, most) in [
            ("projector", "--feed-replicas", 1, 5),
            ("projector", "--write-connections", 1, 100),
            ("gateway", "--postgres-connections", 8, 2_000),
        ] {
            for (value, is_taken) in [(least - 1, false), (least, true), (most, true), (most + 1, false)] {
                let flag = format!("{flag}={value}");
                for role in [role, "doctor"] {
                    assert_eq!(takes(role, &flag), is_taken, "{role} {flag}");
                }
            }
        }
    }

    #[test]
    fn a_credit_names_exactly_one_wallet() {
        let parse = |extra: &[&str]| {
            let mut line =
                vec!["farthing", "wallet", "credit", "--database-url=x", "--amount=1", "--reason=r"];
            line.extend_from_slice(extra);
            Program::try_parse_from(line).map(|_| ())
        };
        let (merchant, connection) =
            ("--merchant=mer_01ARZ3NDEKTSV4RRFFQ69G5FAV", "--connection=con_01ARZ3NDEKTSV4RRFFQ69G5FAV");
        assert!(parse(&[merchant]).is_ok());
        assert!(parse(&[connection]).is_ok());
        assert!(parse(&[]).is_err());
        assert!(parse(&[merchant, connection]).is_err());
    }
}
