//! Managed provider keys: the instance's own keys at AI providers. Invariant: a key never appears in an error, and is
//! passed to another process only in its environment.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use farthing_api::ProviderKey;

/// The prefix of variables such as `FARTHING_PROVIDER_KEY_OPENAI`.
const VARIABLE: &str = "FARTHING_PROVIDER_KEY_";

/// Flags that name managed keys. A flag overrides `FARTHING_PROVIDER_KEY_<NAME>`.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct ProviderKeys {
    /// Key for calls to the provider NAME that bring no key of their own. A command line is visible to every user of
    /// this machine: prefer `FARTHING_PROVIDER_KEY_<NAME>` or a file.
    #[arg(long = "provider-key", value_name = "NAME=KEY")]
    provider_keys: Vec<NamedText>,
    /// As --provider-key, read from the first line of a file.
    #[arg(long = "provider-key-file", value_name = "NAME=FILE")]
    provider_key_files: Vec<NamedText>,
}

/// `NAME=TEXT`. The text may be a key, so `Debug` hides it.
#[derive(Clone)]
struct NamedText(String);

impl std::fmt::Debug for NamedText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NamedText(****)")
    }
}

impl From<&str> for NamedText {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl NamedText {
    fn parts(&self, flag: &str) -> Result<(String, &str)> {
        let (name, text) = self.0.split_once('=').with_context(|| format!("{flag} must be NAME=…"))?;
        Ok((name.to_owned(), text))
    }
}

impl ProviderKeys {
    /// The keys by provider, from the flags and the environment.
    pub(super) fn read(&self) -> Result<BTreeMap<String, ProviderKey>> {
        self.read_with(std::env::vars_os().filter_map(|(name, text)| {
            let name = name.into_string().ok()?.strip_prefix(VARIABLE)?.to_ascii_lowercase();
            Some((name, text.into_string().unwrap_or_default()))
        }))
    }

    fn read_with(
        &self,
        variables: impl Iterator<Item = (String, String)>,
    ) -> Result<BTreeMap<String, ProviderKey>> {
        let mut keys = BTreeMap::new();
        for (name, text) in variables {
            let key = checked(&name, text.trim())?;
            keys.insert(name, key);
        }
        let mut by_flag = BTreeMap::new();
        for given in &self.provider_keys {
            let (name, text) = given.parts("--provider-key")?;
            let key = checked(&name, text)?;
            once(by_flag.insert(name.clone(), key).as_ref(), &name)?;
        }
        for file in &self.provider_key_files {
            let (name, path) = file.parts("--provider-key-file")?;
            let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
            let key = checked(&name, text.lines().next().unwrap_or_default().trim())?;
            once(by_flag.insert(name.clone(), key).as_ref(), &name)?;
        }
        keys.extend(by_flag);
        Ok(keys)
    }

    /// The environment variables that give another process the same keys.
    #[cfg(feature = "dev")]
    pub(super) fn variables(&self) -> Result<Vec<(String, String)>> {
        let variable = |(name, key): (String, ProviderKey)| {
            (format!("{VARIABLE}{}", name.to_ascii_uppercase()), key.reveal().to_owned())
        };
        Ok(self.read()?.into_iter().map(variable).collect())
    }
}

fn checked(name: &str, text: &str) -> Result<ProviderKey> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
    if name.is_empty() || name == "other" || !name.bytes().all(plain) {
        bail!("a provider key must name a provider, such as openai");
    }
    ProviderKey::new(text)
        .with_context(|| format!("the provider key of {name} must be one line of visible ASCII characters"))
}

fn once(before: Option<&ProviderKey>, name: &str) -> Result<()> {
    ensure!(before.is_none(), "the provider key of {name} is given twice");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(given: &[&str], variables: &[(&str, &str)]) -> Result<Vec<(String, String)>, String> {
        let provider_keys = given.iter().map(|text| NamedText::from(*text)).collect();
        let keys = ProviderKeys { provider_keys, provider_key_files: Vec::new() };
        let variables = variables.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        let read = keys.read_with(variables).map_err(|error| error.to_string())?;
        Ok(read.into_iter().map(|(name, key)| (name, key.reveal().to_owned())).collect())
    }

    #[test]
    fn a_flag_overrides_a_variable() {
        let keys = read(&["openai=sk=1"], &[("openai", "sk-2"), ("xai", "x\n")]).unwrap();
        assert_eq!(keys, [("openai", "sk=1"), ("xai", "x")].map(|(a, b)| (a.to_owned(), b.to_owned())));
    }

    #[test]
    fn an_error_never_shows_the_key() {
        for given in ["sk-secret", "openai=sk secret", "Open AI=sk-secret", "other=sk-secret", "=sk-secret"] {
            let error = read(&[given], &[]).unwrap_err();
            assert!(!error.contains("secret"), "{error}");
        }
        let error = read(&["a=sk-secret", "a=sk-secret"], &[]).unwrap_err();
        assert_eq!(error, "the provider key of a is given twice");
        let keys = ProviderKeys { provider_keys: vec!["a=sk-secret".into()], provider_key_files: Vec::new() };
        assert!(!format!("{keys:?}").contains("secret"));
    }
}
