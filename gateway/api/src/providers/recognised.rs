//! The provider that a call's destination belongs to, and what its facts say of the call.

use farthing_formats::ChatLimitMember;
use http::{HeaderName, HeaderValue, Uri};

use super::facts::QueryRule;
use super::{
    AwsCredentials, BilledBy, InvalidKey, KeySlot, OTHER, ProviderFacts, ProviderKey, StreamUsage, bedrock,
    endpoints, limit_members,
};
use crate::forward::{LimitMember, Shape};
use crate::target;

/// The kind of a call's destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Destination {
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
    pub(super) facts: &'static ProviderFacts,
    pub(super) destination: Destination,
}

impl Recognised<'_> {
    /// Whether it is a known provider, not [`OTHER`].
    pub(crate) fn is_known(&self) -> bool {
        self.name != OTHER
    }

    /// How a response from `target` reports usage.
    pub(crate) fn shape(self, target: &Uri) -> Shape {
        self.facts.shape(target.path())
    }

    /// Where the provider takes the key of a call to `target`; `None` if that is not known.
    pub(crate) fn key_slot(self, target: &Uri) -> Option<KeySlot> {
        self.facts.is_built_in.then(|| self.facts.key_slot(target.path()))
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
        if !self.is_bedrock() {
            return None;
        }
        let (host, _) = target::destination(target);
        bedrock::region_of(&host).map(str::to_owned)
    }

    /// The unit by which a call to `target` is billed.
    pub(crate) fn billed_by(self, target: &Uri) -> BilledBy {
        if self.facts.is_built_in { endpoints::billed_by(target) } else { BilledBy::Report }
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

/// Whether the name of `model` has one of these parts.
pub(super) fn is_among(parts: &[&str], model: &str) -> bool {
    parts.iter().any(|part| model.contains(part))
}
