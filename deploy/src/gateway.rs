//! `farthing gateway`: serves the forward endpoint and the REST API.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use farthing_api::{Config, ProviderHost, Timeouts, WebhookTiming};
use farthing_core::command::RequestSettings;
use farthing_core::money::{Amount, SCALE, parse_decimal};
use http::uri::Authority;
use ipnet::IpNet;
use rust_decimal::Decimal;

use crate::database::{Database, KeyOverride, Nats};
use crate::failure::{Failure, IntoFailure as _};
use crate::lifetime::Lifetime;
use crate::prices::Prices;
use crate::provider_keys::ProviderKeys;
use crate::text;

/// Where a provider is, unless its port is named.
const HTTPS_PORT: u16 = 443;

/// Flags of `gateway`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    key: KeyOverride,
    #[command(flatten)]
    nats: Nats,
    /// The address to serve at; a port of 0 means any free one.
    #[arg(long, env = "FARTHING_LISTEN", default_value = "127.0.0.1:8080", value_name = "ADDR")]
    listen: SocketAddr,
    /// End the requests of a gateway that has not been heard of for so long.
    #[arg(long, env = "FARTHING_SWEEP_AFTER_SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    sweep_after_seconds: u64,
    /// Give calls in flight so long when told to stop; what is left then is cut off and settled as far as it came.
    #[arg(long, env = "FARTHING_GRACE_SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    grace_seconds: u64,
    /// Believe `X-Forwarded-Host` and `X-Forwarded-Proto`, which a proxy in front sets: addresses of hosted pages are
    /// made of them. Without a proxy, callers could set them.
    #[arg(long, env = "FARTHING_TRUST_FORWARDED")]
    trust_forwarded: bool,
    /// Tell no webhooks: other gateways do, such as those that may call out.
    #[arg(long, env = "FARTHING_NO_WEBHOOKS")]
    no_webhooks: bool,
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    lifetime: Lifetime,
}

/// Settings that are the same for every gateway of an instance.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Settings {
    /// Let providers be at these addresses too; private and loopback ones are refused otherwise.
    #[arg(
        long = "allow-address",
        env = "FARTHING_ALLOW_ADDRESS",
        value_delimiter = ',',
        value_name = "CIDR"
    )]
    pub(crate) allow_addresses: Vec<IpNet>,
    /// Trust the certificate authorities in this PEM file, beside those that the machine trusts, when calling https
    /// providers.
    #[arg(long = "trust-ca", env = "FARTHING_TRUST_CA", value_delimiter = ',', value_name = "FILE")]
    pub(crate) trusted_authorities: Vec<PathBuf>,
    /// Take the host for a built-in provider: `openai=api.example.com:443`; without a port, 443.
    #[arg(
        long = "provider-host",
        env = "FARTHING_PROVIDER_HOST",
        value_delimiter = ',',
        value_name = "NAME=HOST[:PORT]",
        value_parser = provider_host
    )]
    pub(crate) provider_hosts: Vec<NamedHost>,
    #[command(flatten)]
    pub(crate) provider_keys: ProviderKeys,
    #[command(flatten)]
    pub(crate) prices: Prices,
    /// The service charge as a share of the fee.
    #[arg(long, env = "FARTHING_SERVICE_CHARGE_RATE", default_value = "0.019", value_parser = share)]
    pub(crate) service_charge_rate: Decimal,
    /// The hold, in dollars, of a call whose size has no upper bound.
    #[arg(long, env = "FARTHING_DEFAULT_HOLD", default_value = "0.01", value_parser = text::amount)]
    pub(crate) default_hold: Amount,
    /// The most, in dollars, that is held for one call whose price is not known exactly.
    #[arg(long, env = "FARTHING_HOLD_CAP", default_value = "1", value_parser = text::amount)]
    pub(crate) hold_cap: Amount,
    #[command(flatten)]
    pub(crate) waits: Waits,
    #[command(flatten)]
    pub(crate) webhooks: Webhooks,
}

/// Bounds on waiting, in seconds.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Waits {
    /// Wait so long for the head of a request, idle time on a kept connection included.
    #[arg(long = "head-timeout-seconds", env = "FARTHING_HEAD_TIMEOUT_SECONDS", default_value_t = 75, value_name = "N", value_parser = seconds())]
    head: u64,
    /// Wait so long for a body that is read whole, and for the next piece of one that streams.
    #[arg(long = "body-timeout-seconds", env = "FARTHING_BODY_TIMEOUT_SECONDS", default_value_t = 60, value_name = "N", value_parser = seconds())]
    body: u64,
    /// Take a caller for gone that takes nothing of its answer for so long.
    #[arg(long = "stall-timeout-seconds", env = "FARTHING_STALL_TIMEOUT_SECONDS", default_value_t = 300, value_name = "N", value_parser = seconds())]
    stall: u64,
    /// Wait so long for a connection to a provider: its name, its address and TLS.
    #[arg(long = "connect-timeout-seconds", env = "FARTHING_CONNECT_TIMEOUT_SECONDS", default_value_t = 30, value_name = "N", value_parser = seconds())]
    connect: u64,
    /// Wait so long for a provider to begin its answer.
    #[arg(long = "answer-timeout-seconds", env = "FARTHING_ANSWER_TIMEOUT_SECONDS", default_value_t = 600, value_name = "N", value_parser = seconds())]
    answer: u64,
    /// Let a provider be silent for so long within an answer.
    #[arg(long = "silence-timeout-seconds", env = "FARTHING_SILENCE_TIMEOUT_SECONDS", default_value_t = 300, value_name = "N", value_parser = seconds())]
    silence: u64,
}

/// How webhooks are told, and told again.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Webhooks {
    /// Wait so long for a webhook's receiver to answer.
    #[arg(long = "webhook-timeout-seconds", env = "FARTHING_WEBHOOK_TIMEOUT_SECONDS", default_value_t = 10, value_name = "N", value_parser = seconds())]
    timeout: u64,
    /// Tell a webhook again after these times in milliseconds, one after the other; after the last of them ever again.
    #[arg(
        long = "webhook-retry-ms",
        env = "FARTHING_WEBHOOK_RETRY_MS",
        value_delimiter = ',',
        value_name = "N,…",
        default_value = "5000,30000,120000,600000,1800000,3600000",
        value_parser = clap::value_parser!(u64).range(1..=86_400_000)
    )]
    retry_ms: Vec<u64>,
    /// Give up telling a webhook what has been queued for so long.
    #[arg(long = "webhook-give-up-seconds", env = "FARTHING_WEBHOOK_GIVE_UP_SECONDS", default_value_t = 86_400, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=2_592_000))]
    give_up: u64,
}

impl Webhooks {
    fn flags(&self) -> Vec<String> {
        let delays: Vec<_> = self.retry_ms.iter().map(ToString::to_string).collect();
        vec![
            format!("--webhook-timeout-seconds={}", self.timeout),
            format!("--webhook-retry-ms={}", delays.join(",")),
            format!("--webhook-give-up-seconds={}", self.give_up),
        ]
    }

    fn timing(&self) -> WebhookTiming {
        WebhookTiming {
            timeout: Duration::from_secs(self.timeout),
            retry_after: self.retry_ms.iter().copied().map(Duration::from_millis).collect(),
            give_up_after: Duration::from_secs(self.give_up),
        }
    }
}

fn seconds() -> clap::builder::RangedU64ValueParser<u64> {
    clap::value_parser!(u64).range(1..=86_400)
}

impl Waits {
    fn flags(&self) -> Vec<String> {
        vec![
            format!("--head-timeout-seconds={}", self.head),
            format!("--body-timeout-seconds={}", self.body),
            format!("--stall-timeout-seconds={}", self.stall),
            format!("--connect-timeout-seconds={}", self.connect),
            format!("--answer-timeout-seconds={}", self.answer),
            format!("--silence-timeout-seconds={}", self.silence),
        ]
    }

    fn with_grace(&self, grace_seconds: u64) -> Timeouts {
        Timeouts {
            head: Duration::from_secs(self.head),
            body: Duration::from_secs(self.body),
            stall: Duration::from_secs(self.stall),
            connect: Duration::from_secs(self.connect),
            answer: Duration::from_secs(self.answer),
            silence: Duration::from_secs(self.silence),
            grace: Duration::from_secs(grace_seconds),
        }
    }
}

/// A host that is taken for a built-in provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedHost {
    /// The provider's name.
    pub(crate) name: String,
    /// Host and port.
    pub(crate) authority: String,
}

impl Settings {
    /// The flags that give another process the same settings; keys travel by [`ProviderKeys::variables`].
    pub(crate) fn flags(&self) -> Vec<String> {
        let mut flags = vec![
            format!("--service-charge-rate={}", self.service_charge_rate),
            format!("--default-hold={}", self.default_hold),
            format!("--hold-cap={}", self.hold_cap),
        ];
        flags.extend(self.waits.flags());
        flags.extend(self.webhooks.flags());
        let authorities = self.trusted_authorities.iter();
        flags.extend(authorities.map(|file| format!("--trust-ca={}", file.display())));
        flags.extend(self.prices.price_files.iter().map(|path| format!("--prices={}", path.display())));
        flags.extend(self.allow_addresses.iter().map(|net| format!("--allow-address={net}")));
        let hosts = self.provider_hosts.iter();
        flags.extend(hosts.map(|host| format!("--provider-host={}={}", host.name, host.authority)));
        flags
    }
}

fn share(text: &str) -> Result<Decimal, String> {
    let share = parse_decimal(text, SCALE).map_err(|error| error.to_string())?;
    if (Decimal::ZERO..=Decimal::ONE).contains(&share) {
        Ok(share)
    } else {
        Err("must be between 0 and 1".to_owned())
    }
}

fn provider_host(text: &str) -> Result<NamedHost, String> {
    let (name, authority) = text.split_once('=').ok_or("must be NAME=HOST or NAME=HOST:PORT")?;
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
    if name.is_empty() || !name.bytes().all(plain) {
        return Err("the provider's name must be of lower-case letters, digits, `-` and `_`".to_owned());
    }
    let parsed: Authority = authority.parse().map_err(|_| "HOST:PORT is malformed")?;
    let port = match (parsed.port_u16(), parsed.host() == authority) {
        (Some(port), _) => port,
        (None, true) => HTTPS_PORT,
        (None, false) => return Err("HOST:PORT is malformed".to_owned()),
    };
    if parsed.host().is_empty() || authority.contains('@') {
        return Err("HOST:PORT is malformed".to_owned());
    }
    let authority = format!("{}:{port}", parsed.host().to_ascii_lowercase());
    Ok(NamedHost { name: name.to_owned(), authority })
}

/// Runs the role until it is told to stop.
pub(crate) async fn run(args: Args) -> Result<(), Failure> {
    let stop = args.lifetime.begin()?;
    let provider_keys = args.settings.provider_keys.read()?;
    let catalogue = args.settings.prices.catalogue()?;
    let hosts = args.settings.provider_hosts.into_iter();
    let config = Config {
        database_url: args.database.database_url,
        nats_url: args.nats.nats_url,
        listen: args.listen,
        server_key: args.key.server_key,
        allow_addresses: args.settings.allow_addresses,
        trusted_authorities: args.settings.trusted_authorities,
        provider_hosts: hosts
            .filter_map(|named| {
                let (host, port) = named.authority.rsplit_once(':')?;
                Some(ProviderHost { name: named.name, host: host.to_owned(), port: port.parse().ok()? })
            })
            .collect(),
        provider_keys,
        catalogue,
        settings: RequestSettings {
            service_charge_rate: args.settings.service_charge_rate,
            default_hold: args.settings.default_hold,
            hold_cap: args.settings.hold_cap,
        },
        sweep_after: Duration::from_secs(args.sweep_after_seconds),
        trust_forwarded: args.trust_forwarded,
        timeouts: args.settings.waits.with_grace(args.grace_seconds),
        webhooks: (!args.no_webhooks).then(|| args.settings.webhooks.timing()),
    };
    let lifetime = args.lifetime;
    let ended = farthing_api::run(config, stop, move |address| lifetime.up(vec![address])).await;
    ended.or_fail("the gateway stopped")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_host_has_a_name_and_an_authority() {
        let host = provider_host("openai=Api.Example.com:443").unwrap();
        assert_eq!((host.name.as_str(), host.authority.as_str()), ("openai", "api.example.com:443"));
        for (text, authority) in [
            ("openai=api.example.com", "api.example.com:443"),
            ("openai=api.example.com.:80", "api.example.com.:80"),
            ("openai=[::1]:80", "[::1]:80"),
            ("openai=[::1]", "[::1]:443"),
        ] {
            assert_eq!(provider_host(text).unwrap().authority, authority, "{text}");
        }
        for text in [
            "",
            "openai",
            "=h:1",
            "openai=",
            "openai=h:",
            "openai=h:x",
            "openai=h:70000",
            "openai=u@h:1",
            "openai=u@h",
            "Open AI=h:1",
            "openai=h:1/x",
            "openai=h/x",
        ] {
            assert!(provider_host(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_service_charge_is_a_share() {
        assert!(share("0.019").is_ok());
        assert!(share("1.1").is_err());
        assert!(share("-0.1").is_err());
    }
}
