//! `farthing dev`: everything on this machine, as child processes of this one, under one data folder: a Postgres
//! cluster and a nats-server of its own, gateways, projector, a mock AI provider, and on the first start a demo
//! merchant. Invariant: nothing outside the data folder is touched, and nothing of it lingers when this process ends.

mod account;
mod demo;
mod examples;
mod fleet;
mod folder;
mod nats;
mod ports;
mod postgres;
mod process;
mod ready;
mod rest;
mod roles;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use ipnet::IpNet;
use tokio::sync::watch;

use self::account::Account;
use self::fleet::Fleet;
use self::folder::Folder;
use self::ports::Ports;
use self::ready::Ready;
use self::roles::Roles;
use crate::database::KeyOverride;
use crate::failure::Failure;
use crate::gateway::{NamedHost, Settings};
use crate::lifetime::{Lifetime, on_signal};
use crate::output::say;
use crate::{lifetime, migrate};

/// Where providers may be in a trial on one machine.
const LOOPBACK: [&str; 2] = ["127.0.0.0/8", "::1/128"];

/// Flags of `dev`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// The folder that holds everything; made if it is not there.
    #[arg(long, default_value = "farthing-data", value_name = "DIR")]
    data: PathBuf,
    /// The address of the first gateway; a port of 0 means any free one. The others are beside it.
    #[arg(long, default_value = "127.0.0.1:8080", value_name = "ADDR")]
    listen: SocketAddr,
    /// How many gateways.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    gateways: u16,
    /// How many projectors.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=4))]
    projectors: u16,
    /// End the requests of a gateway that has not been heard of for so long.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    sweep_after_seconds: u64,
    /// Give a gateway's calls in flight so long when all is stopped.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    grace_seconds: u64,
    /// Let the mock provider keep no journal: for benchmarks.
    #[arg(long)]
    no_journal: bool,
    #[command(flatten)]
    key: KeyOverride,
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    lifetime: Lifetime,
}

/// Starts everything, keeps it up until told to stop, stops everything.
pub(crate) async fn run(args: Args) -> Result<(), Failure> {
    let stop = if args.lifetime.stop_with_stdin { args.lifetime.begin()? } else { on_signal()? };
    // A file that cannot be read is told before anything is started.
    args.settings.prices.catalogue()?;
    let folder = Folder::open(&args.data)?;
    if let Some(path) = &args.lifetime.ready_file {
        // An old ready file would tell a waiting tool of processes that are gone.
        let _ = std::fs::remove_file(path);
    }
    let (told, changes) = watch::channel(());
    let mut fleet = Fleet::new(told);
    let kept = tokio::select! {
        kept = keep_up(&args, &folder, &mut fleet, changes) => kept,
        () = stop.cancelled() => Ok(()),
    };
    fleet.stop().await;
    if let Some(path) = &args.lifetime.ready_file {
        let _ = std::fs::remove_file(path);
    }
    kept
}

async fn keep_up(
    args: &Args,
    folder: &Folder,
    fleet: &mut Fleet,
    mut changes: watch::Receiver<()>,
) -> Result<(), Failure> {
    let mut ports = Ports::remembered(folder);
    let account = Account::find(folder)?;
    let cluster = postgres::Cluster::open(folder, account, &mut ports).await?;
    fleet.start_postgres(cluster.plan());
    let database_url = cluster.await_up(fleet.postgres()?).await?;
    migrate::apply(&database_url, "test", args.key.server_key.clone()).await?;

    let server = nats::Server::open(folder, &mut ports)?;
    fleet.start_nats(server.plan());
    let nats_url = server.await_up(fleet.nats()?).await?;

    let local_url = cluster.local_url(&database_url);
    let roles = Roles::new(folder, &local_url, &nats_url)?;
    let local = IpAddr::from([127, 0, 0, 1]);
    let provider = SocketAddr::new(local, ports.take("provider", local)?);
    let openai = SocketAddr::new(local, ports.take("openai", local)?);
    fleet.start_provider(roles.mock_provider(provider, openai, args.no_journal));
    let settings = settings(&args.settings, openai)?;
    let mut listens = Vec::new();
    for index in 0..args.gateways {
        let listen = match (index, args.listen.port()) {
            (0, 1..) => args.listen,
            _ => {
                SocketAddr::new(args.listen.ip(), ports.take(&format!("gateway-{index}"), args.listen.ip())?)
            }
        };
        listens.push(listen);
        fleet.start_gateway(roles.gateway(
            index,
            listen,
            args.sweep_after_seconds,
            args.grace_seconds,
            &settings,
        )?);
    }
    for index in 0..args.projectors {
        fleet.start_projector(roles.projector(index));
    }
    ports.remember(folder)?;
    for process in fleet.roles() {
        roles.await_up(process).await?;
    }

    let bases: Vec<_> = listens.iter().map(|listen| ready::base_url(*listen)).collect();
    let demo =
        demo::ensure(folder, &database_url, &args.key, *listens.first().unwrap_or(&args.listen)).await?;
    let mut ready = Ready::new(bases, demo, provider, openai, database_url, nats_url);
    examples::write(folder, &ready)?;
    loop {
        ready.pids = fleet.pids();
        if let Some(path) = &args.lifetime.ready_file {
            lifetime::write_json(path, &ready)?;
        }
        if ready.announced() {
            say(examples::announcement(folder, &ready))?;
        }
        if changes.changed().await.is_err() {
            return Ok(());
        }
    }
}

/// The user's settings, with loopback allowed and the mock taken for `openai`.
fn settings(given: &Settings, openai: SocketAddr) -> Result<Settings, Failure> {
    let mut settings = given.clone();
    for net in LOOPBACK {
        let net: IpNet = net.parse().map_err(|_| Failure::new("a loopback network is malformed"))?;
        settings.allow_addresses.push(net);
    }
    settings.provider_hosts.push(NamedHost { name: "openai".to_owned(), authority: openai.to_string() });
    Ok(settings)
}
