//! The list price of a call, or why it has none: what a managed key is not used for.

use std::fmt;

use farthing_core::model_price::{ListPrice, ModelPrice};
use farthing_core::usage::Split;
use http::{Method, Uri};

use super::catalogue::Listed;
use super::provider_host::NamedRegions;
use super::recognised::{Destination, is_among};
use super::{BilledBy, Key, OTHER, Operation, Providers, Recognised, UsageLimit, endpoints, operation_of};
use crate::forward::has_known_form;

impl Providers {
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
    if is_among(facts.unsold_models, model) {
        return Err(Unpriced::Units);
    }
    if is_among(facts.searching_models, model) && price.per_request.is_none() {
        return Err(Unpriced::Searches);
    }
    if is_among(facts.sound_models, model) && price.per_second.is_none() {
        return Err(Unpriced::Sound);
    }
    Ok(())
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
    /// The model is billed by units that are not metered.
    Units,
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
            Self::Units => {
                "the provider bills this model by units that are not metered, so the operator's key is not used for it; send \
                 your own as provider_key"
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
