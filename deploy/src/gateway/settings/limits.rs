//! Flags that bound the work in progress, with defaults that follow the machine.

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use anyhow::Result;
use farthing_api::{ConnectionSettings, DecoderMemory, ReadsPerMerchant, ServerLimits};
use farthing_log::appender::QueueLimits;

use crate::machine::{MIB, Machine};
use crate::value_parsers;

/// A KiB, in bytes.
const KIB: u64 = 1_024;

/// Flags that bound the work in progress. Beyond them a call gets 503 with `Retry-After`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Limits")]
pub(in crate::gateway) struct Limits {
    /// Most connections of callers. Further ones wait until they are accepted. The default is twice --max-calls or
    /// its default, whichever is more, as far as the files that the process may have open allow.
    #[arg(long, env = "FARTHING_MAX_CONNECTIONS", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) max_connections: Option<u32>,
    /// Most connections of one address, of IPv6 of one /64 network; 0 is no limit. Further ones are closed at once. The
    /// default is half of --max-connections.
    #[arg(long, env = "FARTHING_MAX_CONNECTIONS_PER_ADDRESS", value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub(super) max_connections_per_address: Option<u32>,
    /// Most calls in flight. The default is one for each MiB of the machine's memory, at most 2,048.
    #[arg(long, env = "FARTHING_MAX_CALLS", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) max_calls: Option<u32>,
    /// Most calls in flight of one merchant; 0 is no limit. The default is half of --max-calls.
    #[arg(long, env = "FARTHING_MAX_CALLS_PER_MERCHANT", value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub(super) max_calls_per_merchant: Option<u32>,
    /// Most calls of one merchant that begin in a second at this gateway; 0 is no limit. Further ones wait for up to a
    /// second, and get 503 then. The default is no limit.
    #[arg(long, env = "FARTHING_MAX_CALL_RATE_PER_MERCHANT", value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub(super) max_call_rate_per_merchant: Option<u32>,
    /// Most responses of one merchant that are stored under idempotency keys in a second at this gateway, in KiB, and as much
    /// again of those of up to 4 KiB each; 0 is no limit. Further ones wait, and with them the ends of their calls.
    #[arg(long, env = "FARTHING_STORED_RESPONSE_RATE_PER_MERCHANT", default_value_t = 4_096, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=4_000_000))]
    pub(super) stored_response_rate_per_merchant: u32,
    /// Most reads of one merchant's rows at once; 0 is no limit, nor on its short reads. Further ones wait for up to 5 s.
    /// All merchants together have those of --read-connections but two. The default is 2, and 1 with fewer than six
    /// connections for reads.
    #[arg(long, env = "FARTHING_MAX_READS_PER_MERCHANT", value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub(super) max_reads_per_merchant: Option<u32>,
    /// Connections to Postgres, without one for each partition that this gateway leads, and four of a test instance. The
    /// default is a twelfth of what the server allows, at least 8 and at most 16.
    #[arg(long, env = "FARTHING_POSTGRES_CONNECTIONS", value_name = "N", value_parser = value_parsers::postgres_connections())]
    pub(super) postgres_connections: Option<u32>,
    /// Connections to Postgres for reads, opened when they are needed. The default is what the others leave of
    /// --postgres-connections.
    #[arg(long, env = "FARTHING_READ_CONNECTIONS", value_name = "N", value_parser = clap::value_parser!(u32).range(3..=1_000))]
    pub(super) read_connections: Option<u32>,
    /// Connections to Postgres for deliveries of webhooks, opened when they are needed. The default is a third of what the
    /// fixed ones leave of --postgres-connections, at most 4.
    #[arg(long, env = "FARTHING_DELIVERY_CONNECTIONS", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(super) delivery_connections: Option<u32>,
    /// Most memory of the decoders of compressed responses, in MiB. Beyond it responses pass without being read. The default
    /// is a sixteenth of the machine's memory, at most 256.
    #[arg(long, env = "FARTHING_DECODER_MIB", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4_000))]
    pub(super) decoder_mib: Option<u32>,
    /// Most of this memory for the calls of one merchant, in MiB; at most half of it in any case.
    #[arg(long, env = "FARTHING_DECODER_MIB_PER_MERCHANT", default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4_000))]
    pub(super) decoder_mib_per_merchant: u32,
    /// Most commands that wait for one partition of the ledger. Settlements do not count. The default is twice that
    /// of --max-calls.
    #[arg(long, env = "FARTHING_MAX_QUEUED_COMMANDS", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) max_queued_commands: Option<u32>,
    /// Most memory of commands that wait for one partition of the ledger, in MiB. The default is one for each 128 MiB of
    /// the machine's memory, at least 4 and at most 32.
    #[arg(long, env = "FARTHING_MAX_QUEUED_MIB", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4_000))]
    pub(super) max_queued_mib: Option<u32>,
    /// Longest time that a command waits for the ledger.
    #[arg(long, env = "FARTHING_QUEUE_TIMEOUT_SECONDS", default_value_t = 5, value_name = "N", value_parser = super::seconds())]
    pub(super) queue_timeout_seconds: u64,
}

impl Limits {
    /// The limits on this machine.
    pub(in crate::gateway) fn on(&self, machine: &Machine) -> Result<Chosen> {
        let given = |given: Option<u32>| given.map(usize::try_from).transpose();
        let connections = given(self.max_connections)?;
        let calls = given(self.max_calls)?.unwrap_or_else(|| machine.calls());
        let connections = connections.unwrap_or_else(|| machine.connections(calls));
        let queued_mib = given(self.max_queued_mib)?.unwrap_or_else(|| machine.queued_mib());
        let decoder_mib = given(self.decoder_mib)?.unwrap_or_else(|| machine.decoder_mib());
        Ok(Chosen {
            server: ServerLimits {
                connections,
                connections_per_address: of_one(self.max_connections_per_address, connections)?,
                calls,
                calls_per_merchant: of_one(self.max_calls_per_merchant, calls)?,
                call_rate_per_merchant: self.max_call_rate_per_merchant.and_then(NonZeroU32::new),
                strangers: None,
            },
            decoder_memory: DecoderMemory {
                gateway: decoder_mib * MIB,
                merchant: usize::try_from(self.decoder_mib_per_merchant)? * MIB,
            },
            stored_response_rate: NonZeroU64::new(u64::from(self.stored_response_rate_per_merchant) * KIB),
            queue: QueueLimits {
                commands: given(self.max_queued_commands)?.unwrap_or_else(|| 2 * machine.calls()),
                bytes: queued_mib * MIB,
                timeout: Duration::from_secs(self.queue_timeout_seconds),
            },
            name_lookups: machine.name_lookups(connections, calls),
        })
    }

    /// The connections to Postgres.
    pub(in crate::gateway) fn connections(&self) -> Result<ConnectionSettings> {
        let count = |count: Option<u32>| count.map(usize::try_from).transpose();
        Ok(ConnectionSettings {
            all: count(self.postgres_connections)?,
            reads: count(self.read_connections)?,
            deliveries: count(self.delivery_connections)?,
            reads_per_merchant: match count(self.max_reads_per_merchant)? {
                None => ReadsPerMerchant::Fitting,
                Some(0) => ReadsPerMerchant::Unlimited,
                Some(most) => ReadsPerMerchant::Most(most),
            },
        })
    }
}

/// The limits of a gateway.
#[derive(Debug, Clone, Copy)]
pub(in crate::gateway) struct Chosen {
    /// Connections and calls in flight.
    pub(in crate::gateway) server: ServerLimits,
    /// The memory of the decoders of compressed responses.
    pub(in crate::gateway) decoder_memory: DecoderMemory,
    /// The bytes of a merchant's responses that are stored in a second.
    pub(in crate::gateway) stored_response_rate: Option<NonZeroU64>,
    /// The bounds of the queue of commands.
    pub(in crate::gateway) queue: QueueLimits,
    /// The lookups of names at once.
    pub(in crate::gateway) name_lookups: usize,
}

impl Chosen {
    /// Logs what the gateway uses of `machine`, and warns if it may not have as many open files.
    pub(in crate::gateway) fn log(&self, machine: &Machine, threads: usize) {
        let files = machine.open_files;
        tracing::info!(
            event = "settings.chosen",
            cores = machine.cores,
            memory_mib = machine.memory_mib,
            open_files = files,
            threads,
            max_connections = self.server.connections,
            max_calls = self.server.calls,
            decoder_mib = self.decoder_memory.gateway / MIB,
            decoder_mib_per_merchant = self.decoder_memory.merchant / MIB,
            max_queued_commands = self.queue.commands,
            max_queued_mib = self.queue.bytes / MIB,
            max_name_lookups = self.name_lookups,
            "what this gateway uses of the machine"
        );
        let needed = Machine::files_of(self.server.connections, self.server.calls);
        if files.is_some_and(|files| needed > files) {
            tracing::warn!(
                event = "settings.files_do_not_fit",
                open_files = files,
                needed,
                "the process may not have as many open files as its limits of connections and calls need: calls can fail; \
                 raise the limit of open files, or lower --max-connections and --max-calls"
            );
        }
    }
}

/// The most that one address or one merchant may have of `all`: half, unless `most` says otherwise; 0 is no limit.
fn of_one(most: Option<u32>, all: usize) -> Result<Option<usize>> {
    Ok(match most {
        None => Some(all.div_ceil(2)),
        Some(0) => None,
        Some(most) => Some(usize::try_from(most)?),
    })
}
