//! Providers: recognises the provider of a call by its destination, and chooses its key and list price. Pure.

mod aws;
mod bedrock;
mod built_in;
pub mod catalogue;
mod endpoints;
mod facts;
mod limit_members;
mod plain_http;
mod provider_host;
mod provider_key;
mod usage_limit;

use std::collections::BTreeMap;
use std::fmt;

use farthing_core::event::ProviderKeyType;
use farthing_core::model_price::{ListPrice, ModelPrice};
use farthing_core::usage::Split;
use farthing_formats::ChatLimitMember;
use http::{HeaderName, HeaderValue, Method, Uri};

pub use self::aws::InvalidCredentials;
pub(crate) use self::aws::{AwsCredentials, SignatureError, SigningScope, sign};
pub(crate) use self::bedrock::{Operation, operation_of};
pub use self::built_in::BUILT_IN;
pub(crate) use self::endpoints::{BilledBy, method_model_within};
pub use self::facts::ProviderFacts;
pub(crate) use self::facts::{BesideChat, KeySlot, Served, StreamUsage};
use self::facts::{HostOwner, QueryRule};
use self::provider_host::NamedRegions;
pub use self::provider_host::{InvalidHost, ProviderHost};
pub use self::provider_key::{InvalidKey, ProviderKey};
pub(crate) use self::usage_limit::UsageLimit;
use crate::forward::{LimitMember, Shape, has_known_form};
use crate::providers::catalogue::{Catalogue, Listed};
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

impl Recognised<'_> {
    /// Whether it is a known provider, not [`OTHER`].
    pub(crate) fn is_known(&self) -> bool {
        self.name != OTHER
    }
}

/// The kind of a call's destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Destination {
    /// The provider's own public interface, over https.
    Public,
    /// The host of a public interface, without TLS or at another port. No managed key is sent there.
    Unprotected,
    /// A host to which a managed key goes only if the operator names it, and that the operator did not name: a resource
    /// that a customer of the provider rents, which may be anybody's, or a region, whose prices may be others.
    Unnamed,
    /// A host that the operator configured.
    Named,
    /// A host that the operator configured, over HTTP through networks that others may read. No managed key is sent there.
    NamedInPlain,
    /// Any other host.
    Elsewhere,
}

/// A recognised provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Recognised<'a> {
    /// The provider's name.
    pub(crate) name: &'a str,
    facts: &'static ProviderFacts,
    destination: Destination,
}

impl Recognised<'_> {
    /// How a response from `target` reports usage.
    pub(crate) fn shape(self, target: &Uri) -> Shape {
        self.facts.shape(target.path())
    }

    /// Where the provider takes the key of a call to `target`; `None` if that is not known.
    pub(crate) fn key_slot(self, target: &Uri) -> Option<KeySlot> {
        self.is_built_in().then(|| self.facts.key_slot(target.path()))
    }

    /// Whether its interface is that of Amazon Bedrock.
    pub(crate) fn is_bedrock(self) -> bool {
        self.facts.is_bedrock()
    }

    /// The AWS credentials in a key for this provider, by which calls are signed; `None` if the key is sent as it is.
    /// Fails for credentials at another provider than Bedrock, which would get the secret.
    pub(crate) fn credentials_within(self, key: &str) -> Result<Option<AwsCredentials>, InvalidKey> {
        if self.is_bedrock() {
            return Ok(AwsCredentials::within(key)?);
        }
        // The keys of an unknown provider may have any form, so only what begins as AWS's own does is taken for one.
        let is_of_aws =
            if self.is_known() { AwsCredentials::resemble(key) } else { AwsCredentials::begin_with_id(key) };
        if is_of_aws { Err(InvalidKey::OfAws) } else { Ok(None) }
    }

    /// The AWS region in the host of `target`, if the provider is Bedrock.
    pub(crate) fn region_of(self, target: &Uri) -> Option<String> {
        let (host, _) = target::destination(target);
        bedrock::region_of(&host).filter(|_| self.is_bedrock()).map(str::to_owned)
    }

    /// The unit by which a call to `target` is billed.
    pub(crate) fn billed_by(self, target: &Uri) -> BilledBy {
        if self.is_built_in() { endpoints::billed_by(target) } else { BilledBy::Report }
    }

    /// The model that the URL of a call names. The provider ignores the body's then.
    pub(crate) fn model_within(self, target: &Uri) -> Option<String> {
        endpoints::model_within(self.facts, target)
    }

    /// Whether a stream from `target` reports its usage.
    pub(crate) fn stream_usage(self, target: &Uri) -> StreamUsage {
        if target.path().ends_with("/completions") { self.facts.stream_usage } else { StreamUsage::Always }
    }

    /// The members of a body that limit the output of a call to `target`.
    pub(crate) fn limit_members(self, target: &Uri) -> &'static [LimitMember] {
        limit_members::of(self.facts, target)
    }

    /// The member in which a conversion to Chat Completions writes the output limit.
    pub(crate) fn chat_limit(self) -> ChatLimitMember {
        self.facts.chat_limit.written()
    }

    /// Members of a body that request what the provider bills besides tokens, beside those of every provider.
    pub(crate) fn unpriced_members(self) -> &'static [&'static str] {
        self.facts.unpriced
    }

    /// What of a call of `model` its body does not bound.
    pub(crate) fn unbounded(self, model: Option<&str>) -> Unbounded {
        let Some(model) = model else { return Unbounded::Nothing };
        if is_among(self.facts.agent_models, model) {
            Unbounded::Tokens
        } else if is_among(self.facts.searching_models, model) {
            Unbounded::Input
        } else {
            Unbounded::Nothing
        }
    }

    /// The header that carries a managed key to the provider. AWS credentials are in none.
    pub(crate) fn key_header(self, target: &Uri, key: &ProviderKey) -> (HeaderName, HeaderValue) {
        let (name, prefix) = self.facts.key_slot(target.path()).name_and_prefix();
        key.header(name, prefix)
    }

    /// A query parameter by which a caller could shape the response, so that it lacks its usage.
    pub(crate) fn parameter_of_the_response(self, target: &Uri) -> Option<String> {
        match self.facts.query {
            QueryRule::Any => return None,
            QueryRule::Nothing => return target::parameters(target).next().map(|(name, _)| name),
            QueryRule::ResponseFormat => {}
        }
        let mut format: Option<String> = None;
        let unknown = target::parameters(target).find(|(name, value)| match name.as_str() {
            "alt" => {
                // A client may name the format that its path names already.
                let differs = format.replace(value.clone()).is_some_and(|before| before != *value);
                differs || !matches!(value.as_str(), "json" | "sse")
            }
            "prettyPrint" => false,
            _ => true,
        });
        unknown.map(|(name, _)| name)
    }

    fn is_built_in(self) -> bool {
        BUILT_IN.iter().any(|facts| facts.name == self.facts.name)
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

    /// The list price of `model` at the provider `name`.
    pub(crate) fn listed(&self, name: &str, model: Option<&str>) -> ListPrice {
        if name == OTHER {
            return ListPrice::Nothing;
        }
        let listed = model.and_then(|model| self.catalogue.find(name, model));
        listed.map_or(ListPrice::Unlisted, |listed| ListPrice::Listed(listed.price.clone()))
    }

    /// The most tokens of one input and of one answer of `model` at `target`, as the catalogue has them.
    pub(crate) fn max_tokens(
        &self,
        provider: Recognised<'_>,
        target: &Uri,
        model: Option<&str>,
    ) -> Split<Option<u64>> {
        let listed = model.and_then(|model| self.listed_at(provider, target, model).ok());
        listed.map(|listed| listed.max_tokens).unwrap_or_default()
    }

    /// The usage that a call to `target` for `model` may report, if it asks for at most so many answers.
    pub(crate) fn usage_limit(
        &self,
        provider: Recognised<'_>,
        target: &Uri,
        model: Option<&str>,
        answers: u64,
    ) -> UsageLimit {
        let listed = model.and_then(|model| self.listed_at(provider, target, model).ok());
        listed.map_or_else(UsageLimit::default, |listed| UsageLimit::new(listed.max_tokens, answers))
    }

    /// The entry of the catalogue for `model` at `target`. At Bedrock, that of `{region}/{model}` comes first. One without
    /// a region may be the price of any region, so it counts only if the operator did not name several.
    fn listed_at(&self, provider: Recognised<'_>, target: &Uri, model: &str) -> Result<&Listed, Unpriced> {
        let of_region = provider.region_of(target).map(|region| format!("{region}/{model}"));
        let of_region = of_region.and_then(|name| self.catalogue.find(provider.name, &name));
        let anywhere = || self.catalogue.find(provider.name, model);
        match (of_region, self.regions) {
            (Some(listed), _) => Ok(listed),
            (None, NamedRegions::Several) if provider.is_bedrock() => {
                Err(anywhere().map_or(Unpriced::Model, |_| Unpriced::Region))
            }
            (None, NamedRegions::AtMostOne | NamedRegions::Several) => anywhere().ok_or(Unpriced::Model),
        }
    }

    /// The list price of a call of `method` to `target` for `model`, or why it has none.
    ///
    /// A GET, HEAD or DELETE without a model is free. With a managed key, only the list of models is free, and at
    /// public interfaces only endpoints that answer at once have a price. Everything else that the key gives access to
    /// (files, batches, answers to other callers) is unlisted.
    pub(crate) fn list_price(
        &self,
        provider: Recognised<'_>,
        key: Key<'_>,
        method: &Method,
        target: &Uri,
        model: Option<&str>,
    ) -> Result<ListPrice, Unpriced> {
        if provider.name == OTHER {
            return Ok(ListPrice::Nothing);
        }
        let is_restricted = match key {
            // Nothing is restricted at hosts that the operator configured, apart from those of Bedrock.
            Key::Managed(_) => provider.destination != Destination::Named || provider.is_bedrock(),
            Key::Callers => false,
        };
        let is_unsold = is_restricted
            && !(*method == Method::POST && endpoints::is_answered_at_once(provider.facts, target));
        let Some(model) = model else {
            let asks_nothing = match key {
                Key::Managed(_) => {
                    let is_read = matches!(*method, Method::GET | Method::HEAD);
                    is_read && endpoints::is_model_list(target) && !provider.is_bedrock()
                }
                Key::Callers => matches!(*method, Method::GET | Method::HEAD | Method::DELETE),
            };
            return match (asks_nothing, is_unsold) {
                (true, _) => Ok(ListPrice::Nothing),
                (false, true) => Err(Unpriced::Endpoint),
                (false, false) => Err(Unpriced::NoModel),
            };
        };
        if is_unsold {
            return Err(Unpriced::Endpoint);
        }
        // Bedrock's paths, whose models have colons, have a rule of their own.
        let may_differ = !provider.is_bedrock() && !endpoints::is_plain(target.path());
        if may_differ && matches!(key, Key::Managed(_)) {
            return Err(Unpriced::Path);
        }
        let listed = self.listed_at(provider, target, model)?;
        let is_invoked = provider.is_bedrock() && operation_of(target.path()) == Some(Operation::Invoke);
        if is_invoked && matches!(key, Key::Managed(_)) && !has_known_form(model) {
            return Err(Unpriced::Form);
        }
        match key {
            Key::Managed(_) => check_rates(provider, target, model, &listed.price)?,
            Key::Callers => {}
        }
        Ok(ListPrice::Listed(listed.price.clone()))
    }
}

/// Checks that a price has a rate for each unit that the provider bills a call of `model` to `target` by, apart from tokens.
fn check_rates(
    provider: Recognised<'_>,
    target: &Uri,
    model: &str,
    price: &ModelPrice,
) -> Result<(), Unpriced> {
    match provider.billed_by(target) {
        // Sound reports no tokens, so a price by tokens would bill nothing.
        BilledBy::InputCharacters if price.per_character.is_none() && price.per_request.is_none() => {
            Err(Unpriced::Unit)
        }
        BilledBy::InputCharacters | BilledBy::Report => Ok(()),
    }?;
    let facts = provider.facts;
    if is_among(facts.searching_models, model) && price.per_request.is_none() {
        return Err(Unpriced::Searches);
    }
    if is_among(facts.sound_models, model) && price.per_second.is_none() {
        return Err(Unpriced::Sound);
    }
    Ok(())
}

/// Whether the name of `model` has one of these parts.
fn is_among(parts: &[&str], model: &str) -> bool {
    parts.iter().any(|part| model.contains(part))
}

/// What of a call its body does not bound, because of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unbounded {
    /// It bounds all that it bounds at other models.
    Nothing,
    /// The input: the model searches, and reads what it finds.
    Input,
    /// The input and the output: the model makes calls of its own.
    Tokens,
}

/// Why a call to a built-in provider has no list price.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unpriced {
    /// It names no model that can be read.
    NoModel,
    /// The catalogue lacks the model.
    Model,
    /// The catalogue has the model without a region, and the operator named several.
    Region,
    /// The endpoint does not answer at once with its usage, as far as the gateway knows.
    Endpoint,
    /// The path can be read in several ways, and may name another model than the gateway reads.
    Path,
    /// The form of the model's bodies is not known, nor that its answers report their usage.
    Form,
    /// The endpoint is billed by its characters or per call, and the listed price has neither rate.
    Unit,
    /// The model searches by itself, and the listed price has no rate per call.
    Searches,
    /// The model's sound is billed by its length, and the listed price has no rate per second.
    Sound,
}

impl fmt::Display for Unpriced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoModel => {
                "the call names no model that can be read: a body must be JSON, or a form with sound to be transcribed, of \
                 at most 256 KiB"
            }
            Self::Model => "the operator's price catalogue does not list the model at this provider",
            Self::Region => {
                "the operator's price catalogue does not list the model in this region, as REGION/MODEL, and several \
                 regions are named"
            }
            Self::Endpoint => {
                "this endpoint does not answer at once with its usage, or is not known to, so the operator's key is not used \
                 for it; send your own as provider_key"
            }
            Self::Path => {
                "the path has a `%`, a backslash or a segment of dots, so it may name another model; write it plainly, or \
                 send your own key as provider_key"
            }
            Self::Form => {
                "the model is not known to report its tokens where its own form is invoked, so the operator's key is not \
                 used for that; use converse, or send your own key as provider_key"
            }
            Self::Unit => {
                "the model's listed price has neither per_character nor per_request, and this endpoint reports no other \
                 unit"
            }
            Self::Searches => {
                "the model searches by itself, which the provider bills for each call, and the model's listed price has no \
                 per_request (\"0\" is one)"
            }
            Self::Sound => {
                "the provider bills this model's sound by its length beside its tokens, and the model's listed price has no \
                 per_second (\"0\" is one)"
            }
        })
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
