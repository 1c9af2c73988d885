//! The hosts to which the operator gives the name of a provider. Pure.

use std::collections::BTreeSet;

use super::bedrock;
use super::built_in::BUILT_IN;
use super::facts::HostOwner;
use crate::target;

/// A host, configured by the operator, that has the interface of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderHost {
    /// The provider's name, for example `openai`.
    pub name: String,
    /// Its host.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// The host is one of another provider, whose keys and prices have rules of their own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("is a host of {owner}, so it must be named {owner}")]
pub struct InvalidHost {
    /// The name of the provider whose host it is.
    pub owner: &'static str,
}

impl ProviderHost {
    /// The host, unless it is a region or a customer's resource of a built-in provider of another name. Under that name a
    /// managed key would be sent in another form than the provider takes, and the usage would not be read.
    pub fn new(name: String, host: String, port: u16) -> Result<Self, InvalidHost> {
        let plain = target::plain_host(&host);
        let is_its = |owner| matches!(owner, HostOwner::ProviderInRegion | HostOwner::Customer);
        let owner = BUILT_IN.iter().find(|facts| {
            let is_private_endpoint = facts.is_bedrock() && bedrock::region_of(&plain).is_some();
            is_private_endpoint || facts.owner_of(&plain).is_some_and(is_its)
        });
        match owner {
            Some(owner) if owner.name != name => Err(InvalidHost { owner: owner.name }),
            Some(_) | None => Ok(Self { name, host, port }),
        }
    }
}

/// Of how many of Bedrock's regions the operator named hosts. A region's prices may be others than those of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NamedRegions {
    AtMostOne,
    Several,
}

impl NamedRegions {
    /// That of these hosts. A host whose name says no region counts as a region of its own.
    pub(super) fn of(hosts: &[ProviderHost]) -> Self {
        let of_bedrock = hosts
            .iter()
            .filter(|named| BUILT_IN.iter().any(|facts| facts.is_bedrock() && facts.name == named.name));
        let places: BTreeSet<String> = of_bedrock
            .map(|named| {
                let plain = target::plain_host(&named.host);
                let region = bedrock::region_of(&plain).map(str::to_owned);
                region.unwrap_or_else(|| format!("{plain}:{}", named.port))
            })
            .collect();
        if places.len() > 1 { Self::Several } else { Self::AtMostOne }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_counted_by_the_hosts_that_are_named() {
        let eu = "bedrock-runtime.eu-west-1.amazonaws.com";
        for (hosts, regions) in [
            (&[][..], NamedRegions::AtMostOne),
            (&[("bedrock", eu, 443)], NamedRegions::AtMostOne),
            (
                &[
                    ("bedrock", eu, 443),
                    ("bedrock", "bedrock-runtime-fips.eu-west-1.amazonaws.com.", 443),
                    ("bedrock", "vpce-0a1b.bedrock-runtime.eu-west-1.vpce.amazonaws.com", 443),
                    ("openai", "127.0.0.1", 9),
                ],
                NamedRegions::AtMostOne,
            ),
            (
                &[("bedrock", eu, 443), ("bedrock", "bedrock-runtime.us-east-1.amazonaws.com", 443)],
                NamedRegions::Several,
            ),
            (&[("bedrock", eu, 443), ("bedrock", "127.0.0.1", 9)], NamedRegions::Several),
            (&[("bedrock", "127.0.0.1", 10), ("bedrock", "127.0.0.1", 9)], NamedRegions::Several),
        ] {
            let named = |(name, host, port): &(&str, &str, u16)| ProviderHost {
                name: (*name).to_owned(),
                host: (*host).to_owned(),
                port: *port,
            };
            let hosts: Vec<_> = hosts.iter().map(named).collect();
            assert_eq!(NamedRegions::of(&hosts), regions, "{hosts:?}");
        }
    }

    #[test]
    fn a_region_or_a_rented_resource_of_a_provider_has_that_providers_name() {
        for (name, host, owner) in [
            ("openai", "bedrock-runtime.eu-west-1.amazonaws.com", Some("bedrock")),
            ("my-bedrock", "bedrock-runtime.eu-west-1.amazonaws.com", Some("bedrock")),
            ("openai", "Bedrock-Runtime-FIPS.us-east-1.amazonaws.com.", Some("bedrock")),
            ("openai", "vpce-0a1b.bedrock-runtime.eu-west-1.vpce.amazonaws.com", Some("bedrock")),
            ("openai", "bedrock-runtime.cn-north-1.amazonaws.com.cn", Some("bedrock")),
            ("openai", "ours.openai.azure.com", Some("azure")),
            ("bedrock", "ours.services.ai.azure.com", Some("azure")),
            ("azure", "ours.openai.azure.com", None),
            ("bedrock", "bedrock-runtime.eu-west-1.amazonaws.com", None),
            ("bedrock", "vpce-0a1b.bedrock-runtime.eu-west-1.vpce.amazonaws.com", None),
            ("bedrock", "127.0.0.1", None),
            ("openai", "proxy.example.com", None),
            ("my-own", "api.openai.com", None),
        ] {
            let named = ProviderHost::new(name.to_owned(), host.to_owned(), 443);
            assert_eq!(named.as_ref().err().map(|invalid| invalid.owner), owner, "{name}={host}");
        }
    }
}
