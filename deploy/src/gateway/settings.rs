//! Settings shared by all gateways of an instance, as command-line flags.

#[cfg(feature = "dev")]
mod arguments;
mod limits;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use farthing_api::catalogue::Catalogue;
use farthing_api::{ProofKey, ProviderHost, ProviderKey, ResponseHeaders, Timeouts, WebhookTiming};
use farthing_core::command::RequestSettings;
use farthing_core::money::{Amount, SCALE, parse_decimal};
use http::uri::Authority;
use ipnet::IpNet;
use rust_decimal::Decimal;

use self::limits::Limits;
use super::provider_keys::ProviderKeys;
use crate::audit::operator_key::OperatorKey;
use crate::price_files::Prices;
use crate::value_parsers;

const HTTPS_PORT: u16 = 443;

const DNS_PORT: u16 = 53;

/// Values of --forward-response-headers.
const CONFINED: &str = "confined";
const UNALTERED: &str = "unaltered";

/// Settings shared by all gateways of an instance.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Settings {
    #[command(flatten)]
    pub(super) providers: Providers,
    #[command(flatten)]
    billing: Billing,
    #[command(flatten)]
    timeouts: TimeoutFlags,
    #[command(flatten)]
    pub(super) limits: Limits,
    #[command(flatten)]
    webhooks: Webhooks,
    #[command(flatten)]
    proofs: Proofs,
}

/// Flags that say which providers a gateway calls, and how.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Providers")]
pub(super) struct Providers {
    /// Allow calls to these addresses. Private and loopback addresses are refused by default.
    #[arg(
        long = "allow-address",
        env = "FARTHING_ALLOW_ADDRESS",
        value_delimiter = ',',
        value_name = "CIDR"
    )]
    pub(super) allow_addresses: Vec<IpNet>,
    /// Look names up at these name servers, at most three, instead of those of /etc/resolv.conf. The default port is 53.
    #[arg(
        long = "dns-servers",
        env = "FARTHING_DNS_SERVERS",
        value_delimiter = ',',
        value_name = "ADDRESS[:PORT]",
        value_parser = name_server
    )]
    pub(super) dns_servers: Vec<SocketAddr>,
    /// Trust the certificate authorities in this PEM file for HTTPS calls, in addition to those of the system.
    #[arg(long = "trust-ca", env = "FARTHING_TRUST_CA", value_delimiter = ',', value_name = "FILE")]
    pub(super) trusted_authorities: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) hosts: ProviderHosts,
    /// Which headers of a provider's response pass to the caller. `unaltered` passes all of them, also those that speak to
    /// browsers and caches; it needs --pages-listen, and a --pages-url on a host of its own.
    #[arg(
        long,
        env = "FARTHING_FORWARD_RESPONSE_HEADERS",
        value_name = "WHICH",
        default_value = CONFINED,
        value_parser = [CONFINED, UNALTERED]
    )]
    forward_response_headers: String,
    #[command(flatten)]
    keys: ProviderKeys,
    #[command(flatten)]
    prices: Prices,
}

/// Flags for charges and holds.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Billing")]
struct Billing {
    /// Service charge, as a share of the fee between 0 and 1.
    #[arg(long, env = "FARTHING_SERVICE_CHARGE_RATE", default_value = "0.019", value_name = "SHARE", value_parser = share)]
    service_charge_rate: Decimal,
    /// Hold for a call whose cost has no upper bound, in dollars.
    #[arg(long, env = "FARTHING_DEFAULT_HOLD", default_value = "0.01", value_name = "DOLLARS", value_parser = value_parsers::amount)]
    default_hold: Amount,
    /// Largest hold for a call whose price is not known exactly, in dollars.
    #[arg(long, env = "FARTHING_HOLD_CAP", default_value = "1", value_name = "DOLLARS", value_parser = value_parsers::amount)]
    hold_cap: Amount,
}

/// Flags that bound every wait on a caller or a provider, in seconds.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Timeouts")]
struct TimeoutFlags {
    /// Longest wait for the head of a request, including idle time on a kept-alive connection.
    #[arg(long = "head-timeout-seconds", env = "FARTHING_HEAD_TIMEOUT_SECONDS", default_value_t = 75, value_name = "N", value_parser = seconds())]
    head: u64,
    /// Longest wait for a whole request body, or for the next piece of a streamed one.
    #[arg(long = "body-timeout-seconds", env = "FARTHING_BODY_TIMEOUT_SECONDS", default_value_t = 60, value_name = "N", value_parser = seconds())]
    body: u64,
    /// Longest time a caller may read nothing of its response. Then it counts as disconnected.
    #[arg(long = "stall-timeout-seconds", env = "FARTHING_STALL_TIMEOUT_SECONDS", default_value_t = 300, value_name = "N", value_parser = seconds())]
    stall: u64,
    /// Longest wait for a connection to a provider: name resolution, TCP and TLS.
    #[arg(long = "connect-timeout-seconds", env = "FARTHING_CONNECT_TIMEOUT_SECONDS", default_value_t = 30, value_name = "N", value_parser = seconds())]
    connect: u64,
    /// Longest wait for the head of a provider's response.
    #[arg(long = "answer-timeout-seconds", env = "FARTHING_ANSWER_TIMEOUT_SECONDS", default_value_t = 600, value_name = "N", value_parser = seconds())]
    answer: u64,
    /// Longest pause within a provider's response body.
    #[arg(long = "silence-timeout-seconds", env = "FARTHING_SILENCE_TIMEOUT_SECONDS", default_value_t = 300, value_name = "N", value_parser = seconds())]
    silence: u64,
}

/// Flags for the delivery of webhooks and its retries.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Webhooks")]
struct Webhooks {
    /// Longest wait for the response of a webhook's receiver.
    #[arg(long = "webhook-timeout-seconds", env = "FARTHING_WEBHOOK_TIMEOUT_SECONDS", default_value_t = 10, value_name = "N", value_parser = seconds())]
    timeout: u64,
    /// Pauses before the retries of a failed delivery, in milliseconds. The last one applies to all further retries.
    #[arg(
        long = "webhook-retry-ms",
        env = "FARTHING_WEBHOOK_RETRY_MS",
        value_delimiter = ',',
        value_name = "N,…",
        default_value = "5000,30000,120000,600000,1800000,3600000",
        value_parser = clap::value_parser!(u64).range(1..=86_400_000)
    )]
    retry_ms: Vec<u64>,
    /// Give up on an event that has been queued for this many seconds.
    #[arg(long = "webhook-give-up-seconds", env = "FARTHING_WEBHOOK_GIVE_UP_SECONDS", default_value_t = 86_400, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=2_592_000))]
    give_up: u64,
}

/// Flags of the proofs of the ledger.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Proofs")]
struct Proofs {
    /// Ed25519 key in PEM that signs the proofs of `GET /v1/ledger/proof`, as `openssl genpkey -algorithm ed25519` makes one.
    /// Without it they have no signature.
    #[arg(long, env = "FARTHING_AUDIT_KEY_FILE", value_name = "FILE")]
    audit_key_file: Option<PathBuf>,
}

impl Settings {
    /// The price catalogue: the built-in one with the operator's files on top.
    pub(crate) fn catalogue(&self) -> Result<Catalogue> {
        self.providers.prices.catalogue()
    }

    /// The managed provider keys, by provider.
    pub(super) fn provider_keys(&self) -> Result<BTreeMap<String, ProviderKey>> {
        self.providers.keys.read(&self.providers.hosts.provider_hosts)
    }

    /// The key that signs proofs.
    pub(super) fn proof_key(&self) -> Result<Option<ProofKey>> {
        let Some(file) = &self.proofs.audit_key_file else { return Ok(None) };
        Ok(Some(ProofKey::new(OperatorKey::read("--audit-key-file", file)?)))
    }

    /// Which headers of a provider pass to the caller.
    pub(super) fn response_headers(&self) -> ResponseHeaders {
        if self.providers.forward_response_headers == UNALTERED {
            ResponseHeaders::Unaltered
        } else {
            ResponseHeaders::Confined
        }
    }

    /// Charges and holds.
    pub(super) fn request_settings(&self) -> RequestSettings {
        RequestSettings {
            service_charge_rate: self.billing.service_charge_rate,
            default_hold: self.billing.default_hold,
            hold_cap: self.billing.hold_cap,
        }
    }

    /// The bounds on waiting; `grace` is the one for calls in flight at shutdown.
    pub(super) fn timeouts(&self, grace: Duration) -> Timeouts {
        Timeouts {
            head: Duration::from_secs(self.timeouts.head),
            body: Duration::from_secs(self.timeouts.body),
            stall: Duration::from_secs(self.timeouts.stall),
            connect: Duration::from_secs(self.timeouts.connect),
            answer: Duration::from_secs(self.timeouts.answer),
            silence: Duration::from_secs(self.timeouts.silence),
            grace,
        }
    }

    /// The timeout and the retries of webhook deliveries.
    pub(super) fn webhook_timing(&self) -> WebhookTiming {
        WebhookTiming {
            timeout: Duration::from_secs(self.webhooks.timeout),
            retry_after: self.webhooks.retry_ms.iter().copied().map(Duration::from_millis).collect(),
            give_up_after: Duration::from_secs(self.webhooks.give_up),
        }
    }
}

fn seconds() -> clap::builder::RangedU64ValueParser<u64> {
    clap::value_parser!(u64).range(1..=86_400)
}

fn share(text: &str) -> Result<Decimal, String> {
    let share = parse_decimal(text, SCALE).map_err(|error| error.to_string())?;
    if (Decimal::ZERO..=Decimal::ONE).contains(&share) {
        Ok(share)
    } else {
        Err("must be between 0 and 1".to_owned())
    }
}

/// The hosts of providers, as the gateways and the check of a price file are given them.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ProviderHosts {
    /// Treat this host as the built-in provider NAME: `openai=api.example.com:443`. The default port is 443.
    #[arg(
        long = "provider-host",
        env = "FARTHING_PROVIDER_HOST",
        value_delimiter = ',',
        value_name = "NAME=HOST[:PORT]",
        value_parser = provider_host
    )]
    pub(crate) provider_hosts: Vec<ProviderHost>,
}

/// Reads `NAME=HOST[:PORT]`.
fn provider_host(text: &str) -> Result<ProviderHost, String> {
    let (name, authority) = text.split_once('=').ok_or("must be NAME=HOST or NAME=HOST:PORT")?;
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
    if name.is_empty() || !name.bytes().all(plain) {
        return Err("the provider's name must consist of lower-case letters, digits, `-` and `_`".to_owned());
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
    let named = ProviderHost::new(name.to_owned(), parsed.host().to_ascii_lowercase(), port);
    named.map_err(|invalid| invalid.to_string())
}

fn name_server(text: &str) -> Result<SocketAddr, String> {
    let bare = || Some(SocketAddr::new(text.parse::<IpAddr>().ok()?, DNS_PORT));
    text.parse().ok().or_else(bare).ok_or_else(|| "must be an IP address, with or without a port".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_server_is_an_address_with_or_without_a_port() {
        for (text, server) in [
            ("10.0.0.2", "10.0.0.2:53"),
            ("10.0.0.2:5353", "10.0.0.2:5353"),
            ("fd00::2", "[fd00::2]:53"),
            ("[fd00::2]:5353", "[fd00::2]:5353"),
        ] {
            assert_eq!(name_server(text).unwrap().to_string(), server);
        }
        for text in ["", "dns.example", "10.0.0.2:", "10.0.0.2:x", "10.0.0.0/8"] {
            assert!(name_server(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_provider_host_has_a_name_a_host_and_a_port() {
        let named = provider_host("openai=Api.Example.com:443").unwrap();
        assert_eq!(named.name, "openai");
        for (text, host, port) in [
            ("openai=Api.Example.com:443", "api.example.com", 443),
            ("openai=api.example.com", "api.example.com", 443),
            ("openai=api.example.com.:80", "api.example.com.", 80),
            ("openai=[::1]:80", "[::1]", 80),
            ("openai=[::1]", "[::1]", 443),
        ] {
            let named = provider_host(text).unwrap();
            assert_eq!((named.host.as_str(), named.port), (host, port), "{text}");
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
            // Bedrock's and Azure's hosts have the names of these providers.
            "openai=bedrock-runtime.eu-west-1.amazonaws.com",
            "my-azure=Ours.openai.azure.com:443",
        ] {
            assert!(provider_host(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_service_charge_is_between_0_and_1() {
        assert!(share("0.019").is_ok());
        assert!(share("1.1").is_err());
        assert!(share("-0.1").is_err());
    }
}
