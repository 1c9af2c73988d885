//! Providers: recognises the provider of a call by its destination, and chooses its key and list price. Pure.

mod aws;
mod bedrock;
mod built_in;
pub mod catalogue;
mod endpoints;
mod facts;
mod limit_members;
mod list_price;
mod plain_http;
mod provider_host;
mod provider_key;
mod recognised;
mod usage_limit;

use std::collections::BTreeMap;

use farthing_core::event::ProviderKeyType;
use http::Uri;

pub use self::aws::InvalidCredentials;
pub(crate) use self::aws::{AwsCredentials, SignatureError, SigningScope, sign};
pub(crate) use self::bedrock::{Operation, operation_of};
pub use self::built_in::BUILT_IN;
pub(crate) use self::endpoints::{BilledBy, method_model_within};
use self::facts::HostOwner;
pub use self::facts::ProviderFacts;
pub(crate) use self::facts::{BesideChat, KeySlot, Served, StreamUsage};
pub(crate) use self::list_price::Unpriced;
use self::provider_host::NamedRegions;
pub use self::provider_host::{InvalidHost, ProviderHost};
pub use self::provider_key::{InvalidKey, ProviderKey};
use self::recognised::Destination;
pub(crate) use self::recognised::{Recognised, Unbounded};
pub(crate) use self::usage_limit::UsageLimit;
use crate::providers::catalogue::Catalogue;
use crate::target;

/// The name of a provider that is not built in.
pub(crate) const OTHER: &str = "other";

/// The port of https.
const HTTPS_PORT: u16 = 443;

/// The providers that this instance knows.
#[derive(Debug)]
pub(crate) struct Providers {
    hosts: Vec<ProviderHost>,
    regions: NamedRegions,
    keys: BTreeMap<String, ProviderKey>,
    catalogue: Catalogue,
}

/// The key that a call carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key<'a> {
    /// The caller's own key, or none.
    Callers,
    /// A managed provider key.
    Managed(&'a ProviderKey),
}

impl Key<'_> {
    /// The key type that the request records.
    pub(crate) fn key_type(self) -> ProviderKeyType {
        match self {
            Self::Callers => ProviderKeyType::Unmanaged,
            Self::Managed(_) => ProviderKeyType::Managed,
        }
    }
}

/// The provider requires a key, and none is available.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyMissing;

/// Whether the call carries the caller's own provider key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallersKey {
    Present,
    Absent,
}

impl Providers {
    pub(crate) fn new(
        hosts: Vec<ProviderHost>,
        keys: BTreeMap<String, ProviderKey>,
        catalogue: Catalogue,
    ) -> Self {
        Self { regions: NamedRegions::of(&hosts), hosts, keys, catalogue }
    }

    /// The price catalogue.
    pub(crate) fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// The provider at `target`. Hosts that the operator configured come first.
    pub(crate) fn at(&self, target: &Uri) -> Recognised<'_> {
        let (host, port) = target::destination(target);
        let public = BUILT_IN.iter().find_map(|facts| Some((facts, facts.owner_of(&host)?)));
        let is_protected = target.scheme_str() == Some("https") && port == 443;
        let needs_naming = |owner| match owner {
            HostOwner::Provider => false,
            HostOwner::ProviderInRegion | HostOwner::Customer => true,
        };
        let named = |known: &&ProviderHost| known.port == port && target::plain_host(&known.host) == host;
        if let Some(known) = self.hosts.iter().find(named) {
            let (facts, destination) = match public {
                // Such a host of the provider has the rules of a public interface.
                Some((facts, owner)) if needs_naming(owner) && facts.name == known.name => {
                    (facts, if is_protected { Destination::Public } else { Destination::Unprotected })
                }
                Some(_) | None => {
                    let is_private = target.scheme_str() == Some("https") || plain_http::permits(&known.host);
                    let destination = if is_private { Destination::Named } else { Destination::NamedInPlain };
                    (facts_of(&known.name), destination)
                }
            };
            return Recognised { name: &known.name, facts, destination };
        }
        let (facts, destination) = match public {
            Some((facts, owner)) if is_protected && needs_naming(owner) => (facts, Destination::Unnamed),
            Some((facts, _)) if is_protected => (facts, Destination::Public),
            Some((facts, _)) => (facts, Destination::Unprotected),
            None => (&built_in::OTHER, Destination::Elsewhere),
        };
        Recognised { name: facts.name, facts, destination }
    }

    /// Scheme, host and port at which the provider `name` is called when a call does not name its URL: the host that the
    /// operator configured, over https, or over http at another port than 443 of a loopback or private address; or else
    /// its public interface.
    pub(crate) fn origin_of(&self, name: &str) -> Option<String> {
        if let Some(ProviderHost { host, port, .. }) = self.hosts.iter().find(|known| known.name == name) {
            let scheme = if *port == HTTPS_PORT || !plain_http::permits(host) { "https" } else { "http" };
            let is_bare_ipv6 = host.contains(':') && !host.starts_with('[');
            let host = if is_bare_ipv6 { format!("[{host}]") } else { host.clone() };
            return Some(format!("{scheme}://{host}:{port}"));
        }
        let public = BUILT_IN.iter().find(|facts| facts.name == name)?.host()?;
        Some(format!("https://{public}"))
    }

    /// The key for a call: the caller's own if present, else a managed one. A provider's public interface requires a
    /// key; a host that the operator configured may not.
    pub(crate) fn key(&self, provider: Recognised<'_>, callers: CallersKey) -> Result<Key<'_>, KeyMissing> {
        if callers == CallersKey::Present {
            return Ok(Key::Callers);
        }
        let ours = self.keys.get(provider.name).map(Key::Managed);
        match provider.destination {
            Destination::Public => ours.ok_or(KeyMissing),
            Destination::Unprotected | Destination::Unnamed => Err(KeyMissing),
            Destination::Named => Ok(ours.unwrap_or(Key::Callers)),
            Destination::NamedInPlain if ours.is_some() => Err(KeyMissing),
            Destination::NamedInPlain | Destination::Elsewhere => Ok(Key::Callers),
        }
    }
}

/// The facts of the provider `name`.
fn facts_of(name: &str) -> &'static ProviderFacts {
    BUILT_IN.iter().find(|facts| facts.name == name).unwrap_or(&built_in::NAMED_BY_THE_OPERATOR)
}

/// Where the provider `name` serves calls of the model endpoints.
pub(crate) fn served_at(name: &str) -> Served {
    facts_of(name).served
}

/// The name of a provider in the semantic conventions of OpenTelemetry; `None` for those that they do not know.
pub(crate) fn trace_name(name: &str) -> Option<&'static str> {
    facts_of(name).trace_name
}

#[cfg(test)]
mod tests;
