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
    hosts: Vec<NamedHost>,
    regions: NamedRegions,
    keys: BTreeMap<String, ProviderKey>,
    catalogue: Catalogue,
}

/// A host that the operator configured, and what follows from it for every call there.
#[derive(Debug)]
struct NamedHost {
    given: ProviderHost,
    /// The host, normalised for comparison.
    plain: String,
    /// The facts of the provider of this name.
    facts: &'static ProviderFacts,
    /// Whether a managed key may be sent there over plain HTTP.
    permits_plain_http: bool,
}

impl From<ProviderHost> for NamedHost {
    fn from(given: ProviderHost) -> Self {
        Self {
            plain: target::plain_host(&given.host),
            facts: facts_of(&given.name),
            permits_plain_http: plain_http::permits(&given.host),
            given,
        }
    }
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
        let regions = NamedRegions::of(&hosts);
        Self { hosts: hosts.into_iter().map(NamedHost::from).collect(), regions, keys, catalogue }
    }

    /// The price catalogue.
    pub(crate) fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// The provider at `target`: the same for each URL with its scheme, host and port. Hosts that the operator configured
    /// come first.
    pub(crate) fn at(&self, target: &Uri) -> Recognised<'_> {
        let (host, port) = target::destination(target);
        let public = BUILT_IN.iter().find_map(|facts| Some((facts, facts.owner_of(&host)?)));
        let is_protected = target.scheme_str() == Some("https") && port == 443;
        let needs_naming = |owner| match owner {
            HostOwner::Provider => false,
            HostOwner::ProviderInRegion | HostOwner::Customer => true,
        };
        let named = |known: &&NamedHost| known.given.port == port && known.plain == host;
        if let Some(known) = self.hosts.iter().find(named) {
            let name = &known.given.name;
            let (facts, destination) = match public {
                // Such a host of the provider has the rules of a public interface.
                Some((facts, owner)) if needs_naming(owner) && facts.name == name => {
                    (facts, if is_protected { Destination::Public } else { Destination::Unprotected })
                }
                Some(_) | None => {
                    let is_private = target.scheme_str() == Some("https") || known.permits_plain_http;
                    let destination = if is_private { Destination::Named } else { Destination::NamedInPlain };
                    (known.facts, destination)
                }
            };
            return Recognised { name, facts, destination };
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
        if let Some(known) = self.hosts.iter().find(|known| known.given.name == name) {
            let ProviderHost { host, port, .. } = &known.given;
            let scheme = if *port == HTTPS_PORT || !known.permits_plain_http { "https" } else { "http" };
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
