//! Managed provider keys. Pure.

use std::fmt;

use http::{HeaderName, HeaderValue};
use zeroize::{ZeroizeOnDrop, Zeroizing};

use super::aws::{AwsCredentials, InvalidCredentials};
use super::facts_of;

/// The longest provider key, in bytes.
const MAX_KEY: usize = 4096;

/// A managed provider key. Invariant: `Debug` does not reveal it. Its memory is overwritten when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct ProviderKey(Zeroizing<String>);

impl ZeroizeOnDrop for ProviderKey {}

impl ProviderKey {
    /// The key, if `text` consists of 1 to 4096 visible ASCII characters.
    pub fn new(text: &str) -> Option<Self> {
        let is_key =
            !text.is_empty() && text.len() <= MAX_KEY && text.bytes().all(|byte| byte.is_ascii_graphic());
        is_key.then(|| Self(Zeroizing::new(text.to_owned())))
    }

    /// The same for the provider `name`, whose keys may have a form of their own.
    pub fn of_provider(name: &str, text: &str) -> Result<Self, InvalidKey> {
        let key = Self::new(text).ok_or(InvalidKey::NotVisible)?;
        if facts_of(name).is_bedrock() {
            AwsCredentials::within(text)?;
        } else if AwsCredentials::resemble(text) {
            return Err(InvalidKey::OfAws);
        }
        Ok(key)
    }

    /// The key itself, to pass it to another process of the same instance.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The texts that are secret: the key itself, and each part of AWS credentials, of which a call sends some alone.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &str> {
        let are_credentials = matches!(AwsCredentials::within(self.reveal()), Ok(Some(_)));
        let parts = self.reveal().splitn(3, ':').filter(move |_| are_credentials);
        std::iter::once(self.reveal()).chain(parts)
    }

    /// The header `name` with the key behind `prefix`.
    pub(super) fn header(&self, name: HeaderName, prefix: &str) -> (HeaderName, HeaderValue) {
        let mut value =
            HeaderValue::try_from(format!("{prefix}{}", self.reveal())).expect("a key is visible ASCII");
        value.set_sensitive(true);
        (name, value)
    }
}

/// Why a text is no provider key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    /// It is empty, too long, or has other characters.
    #[error("must be one line of visible ASCII characters")]
    NotVisible,
    /// It is no key of Amazon Bedrock.
    #[error(transparent)]
    OfBedrock(#[from] InvalidCredentials),
    /// It is AWS credentials, and the provider is another one. It would get the secret access key.
    #[error("must not be AWS credentials or an access key id: they are for the provider bedrock alone")]
    OfAws,
}

impl fmt::Debug for ProviderKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProviderKey(****)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_provider_key_is_overwritten_when_it_is_dropped() {
        // All that it holds is of a type that overwrites itself. A field of another type does not compile here.
        fn overwrites_itself<T: ZeroizeOnDrop>(_: &T) {}
        let key = ProviderKey::new("sk-1").unwrap();
        overwrites_itself(&key);
        let ProviderKey(held) = &key;
        overwrites_itself(held);
    }
}
