//! The keys of this instance at providers. Invariant: a key is never part of an error, and reaches another process
//! only by its environment.

use std::collections::BTreeMap;

use farthing_api::ProviderKey;

use crate::failure::{Failure, IntoFailure as _};

/// `FARTHING_PROVIDER_KEY_OPENAI` and the like.
const VARIABLE: &str = "FARTHING_PROVIDER_KEY_";

/// Flags that name keys. Without them, `FARTHING_PROVIDER_KEY_<NAME>` does.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ProviderKeys {
    /// Call the provider with this key where the caller brings none. Everyone on this machine can see a command line:
    /// `FARTHING_PROVIDER_KEY_<NAME>` or a file is better.
    #[arg(long = "provider-key", value_name = "NAME=KEY")]
    provider_keys: Vec<NamedText>,
    /// The same, from the first line of a file.
    #[arg(long = "provider-key-file", value_name = "NAME=FILE")]
    provider_key_files: Vec<NamedText>,
}

/// `NAME=TEXT`, not shown.
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
    fn parts(&self, flag: &str) -> Result<(String, &str), Failure> {
        let (name, text) =
            self.0.split_once('=').ok_or_else(|| Failure::new(format!("{flag} must be NAME=…")))?;
        Ok((name.to_owned(), text))
    }
}

impl ProviderKeys {
    /// The keys by provider: those of flags go before those of variables.
    pub(crate) fn read(&self) -> Result<BTreeMap<String, ProviderKey>, Failure> {
        self.read_with(std::env::vars_os().filter_map(|(name, text)| {
            let name = name.into_string().ok()?.strip_prefix(VARIABLE)?.to_ascii_lowercase();
            Some((name, text.into_string().unwrap_or_default()))
        }))
    }

    fn read_with(
        &self,
        variables: impl Iterator<Item = (String, String)>,
    ) -> Result<BTreeMap<String, ProviderKey>, Failure> {
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
            let text = std::fs::read_to_string(path).or_fail(format_args!("cannot read {path}"))?;
            let key = checked(&name, text.lines().next().unwrap_or_default().trim())?;
            once(by_flag.insert(name.clone(), key).as_ref(), &name)?;
        }
        keys.extend(by_flag);
        Ok(keys)
    }

    /// The variables that give another process the same keys.
    pub(crate) fn variables(&self) -> Result<Vec<(String, String)>, Failure> {
        let variable = |(name, key): (String, ProviderKey)| {
            (format!("{VARIABLE}{}", name.to_ascii_uppercase()), key.reveal().to_owned())
        };
        Ok(self.read()?.into_iter().map(variable).collect())
    }
}

fn checked(name: &str, text: &str) -> Result<ProviderKey, Failure> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
    if name.is_empty() || name == "other" || !name.bytes().all(plain) {
        return Err(Failure::new("a provider key must name a provider, such as openai"));
    }
    ProviderKey::new(text).ok_or_else(|| {
        Failure::new(format!("the provider key of {name} must be one line of visible ASCII characters"))
    })
}

fn once(before: Option<&ProviderKey>, name: &str) -> Result<(), Failure> {
    match before {
        None => Ok(()),
        Some(_) => Err(Failure::new(format!("the provider key of {name} is given twice"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(given: &[&str], variables: &[(&str, &str)]) -> Result<Vec<(String, String)>, String> {
        let provider_keys = given.iter().map(|text| NamedText::from(*text)).collect();
        let keys = ProviderKeys { provider_keys, provider_key_files: Vec::new() };
        let variables = variables.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        let read = keys.read_with(variables).map_err(|failure| failure.to_string())?;
        Ok(read.into_iter().map(|(name, key)| (name, key.reveal().to_owned())).collect())
    }

    #[test]
    fn a_flag_goes_before_a_variable() {
        let keys = read(&["openai=sk=1"], &[("openai", "sk-2"), ("xai", "x\n")]).unwrap();
        assert_eq!(keys, [("openai", "sk=1"), ("xai", "x")].map(|(a, b)| (a.to_owned(), b.to_owned())));
    }

    #[test]
    fn an_error_never_shows_the_key() {
        for given in ["sk-secret", "openai=sk secret", "Open AI=sk-secret", "other=sk-secret", "=sk-secret"] {
            let told = read(&[given], &[]).unwrap_err();
            assert!(!told.contains("secret"), "{told}");
        }
        let told = read(&["a=sk-secret", "a=sk-secret"], &[]).unwrap_err();
        assert_eq!(told, "the provider key of a is given twice");
        let keys = ProviderKeys { provider_keys: vec!["a=sk-secret".into()], provider_key_files: Vec::new() };
        assert!(!format!("{keys:?}").contains("secret"));
    }
}
