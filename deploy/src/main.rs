//! `farthing`: the one program. Every role is a subcommand; this file only reads the command line, starts the
//! runtime that the role needs and turns its end into an exit code (2 for bad usage, 1 for any other failure).

mod database;
mod dev;
mod failure;
mod gateway;
mod key_issue;
mod key_list;
mod key_revoke;
mod lifetime;
mod log_verify;
mod merchant_create;
mod merchant_list;
mod migrate;
mod mock_provider;
mod operator;
mod output;
mod prices;
mod private_file;
mod projections;
mod projector;
mod provider_keys;
mod text;
mod wallet_credit;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tokio::runtime::{Builder, Runtime};
use tracing_subscriber::EnvFilter;

use self::failure::{Failure, IntoFailure as _};

/// Many small texts are made and dropped per call; the system's allocator spends a tenth of the time on them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// An event-sourced billing ledger with an AI forwarding gateway.
#[derive(Debug, Parser)]
#[command(name = "farthing", version, about, propagate_version = true)]
struct Program {
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Start everything on this machine, private and disposable: Postgres, NATS, gateways, projector, a mock AI
    /// provider and a demo merchant.
    Dev(dev::Args),
    /// Serve the forward endpoint and the REST API.
    Gateway(gateway::Args),
    /// Publish the log to JetStream and keep the read models.
    Projector(projector::Args),
    /// Create or upgrade the database, under a lock.
    Migrate(migrate::Args),
    /// Serve a MOCK of an AI provider, for trials and tests; no model answers here.
    MockProvider(mock_provider::Args),
    /// Merchants.
    #[command(subcommand)]
    Merchant(MerchantRole),
    /// Secret keys.
    #[command(subcommand)]
    Key(KeyRole),
    /// Wallets.
    #[command(subcommand)]
    Wallet(WalletRole),
    /// Read models.
    #[command(subcommand)]
    Projections(ProjectionsRole),
    /// The append-only log.
    #[command(subcommand)]
    Log(LogRole),
}

#[derive(Debug, Subcommand)]
enum MerchantRole {
    /// Register a merchant with a wallet and a first secret key, shown this once.
    Create(merchant_create::Args),
    /// List the merchants, a page at a time.
    List(merchant_list::Args),
}

#[derive(Debug, Subcommand)]
enum KeyRole {
    /// Issue one more secret key to a merchant, shown this once.
    Issue(key_issue::Args),
    /// List the secret keys of a merchant that are good, a page at a time.
    List(key_list::Args),
    /// Revoke a secret key: dead at once on every gateway. A merchant's last one stays.
    Revoke(key_revoke::Args),
}

#[derive(Debug, Subcommand)]
enum WalletRole {
    /// Put money into the wallet of a connection or of a merchant.
    Credit(wallet_credit::Args),
}

#[derive(Debug, Subcommand)]
enum ProjectionsRole {
    /// Build a read model anew beside the live one, compare and swap.
    Rebuild(projections::Args),
    /// Build a read model anew, compare with the live one and throw the copy away.
    Verify(projections::Args),
}

#[derive(Debug, Subcommand)]
enum LogRole {
    /// Check positions, hash chain and states of the whole log.
    Verify(log_verify::Args),
}

fn main() -> ExitCode {
    let program = Program::parse();
    match run(program.role) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::complain(&failure);
            ExitCode::FAILURE
        }
    }
}

fn run(role: Role) -> Result<(), Failure> {
    match role {
        // One thread: children that watch for the death of the thread that started them live as long as it does.
        Role::Dev(args) => one_thread("info")?.block_on(dev::run(args)),
        Role::Gateway(args) => many_threads()?.block_on(gateway::run(args)),
        Role::Projector(args) => many_threads()?.block_on(projector::run(args)),
        Role::MockProvider(args) => many_threads()?.block_on(mock_provider::run(args)),
        Role::Migrate(args) => one_thread("warn")?.block_on(migrate::run(&args)),
        Role::Merchant(MerchantRole::Create(args)) => {
            one_thread("warn")?.block_on(merchant_create::run(args))
        }
        Role::Merchant(MerchantRole::List(args)) => one_thread("warn")?.block_on(merchant_list::run(args)),
        Role::Key(KeyRole::List(args)) => one_thread("warn")?.block_on(key_list::run(args)),
        Role::Key(KeyRole::Revoke(args)) => one_thread("warn")?.block_on(key_revoke::run(args)),
        Role::Key(KeyRole::Issue(args)) => one_thread("warn")?.block_on(key_issue::run(args)),
        Role::Wallet(WalletRole::Credit(args)) => one_thread("warn")?.block_on(wallet_credit::run(args)),
        Role::Projections(ProjectionsRole::Rebuild(args)) => {
            many_threads()?.block_on(projections::rebuild(&args))
        }
        Role::Projections(ProjectionsRole::Verify(args)) => {
            many_threads()?.block_on(projections::verify(&args))
        }
        Role::Log(LogRole::Verify(args)) => many_threads()?.block_on(log_verify::run(&args)),
    }
}

fn one_thread(log_level: &str) -> Result<Runtime, Failure> {
    log_to_stderr(log_level);
    Builder::new_current_thread().enable_all().build().or_fail("cannot start the runtime")
}

/// A role takes half of the cores: the other half is for the servers it waits on, and a task that stays on its thread
/// costs less than one that is handed over.
fn many_threads() -> Result<Runtime, Failure> {
    log_to_stderr("info");
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(cores.div_ceil(2)).enable_all().build().or_fail("cannot start the runtime")
}

/// Logs to stderr; `FARTHING_LOG` holds a filter such as `info,farthing_gateway=debug`.
fn log_to_stderr(level: &str) {
    let filter = EnvFilter::try_from_env("FARTHING_LOG")
        .unwrap_or_else(|_| EnvFilter::new(format!("{level},async_nats=warn,refinery_core=warn")));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
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
    fn bad_values_are_refused_before_anything_is_done() {
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
