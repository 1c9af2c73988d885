//! Managed provider keys: the instance's own keys at AI providers. Invariant: a key never appears in an error or on a
//! command line, and is passed to another process only in its environment.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use farthing_api::{BUILT_IN, ProviderHost, ProviderKey};

use crate::secret_file;

/// The prefix of variables such as `FARTHING_PROVIDER_KEY_OPENAI`.
const VARIABLE: &str = "FARTHING_PROVIDER_KEY_";

/// The end of variables such as `FARTHING_PROVIDER_KEY_OPENAI_FILE`, in lower case.
const FILE: &str = "_file";

/// Flags that name managed keys. A flag overrides `FARTHING_PROVIDER_KEY_<NAME>`, which overrides
/// `FARTHING_PROVIDER_KEY_<NAME>_FILE`.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct ProviderKeys {
    /// File whose first line is the key for calls to the provider NAME that bring no key of their own. The variable
    /// `FARTHING_PROVIDER_KEY_<NAME>` holds the key itself, and `FARTHING_PROVIDER_KEY_<NAME>_FILE` names a file.
    #[arg(long = "provider-key-file", value_name = "NAME=FILE")]
    provider_key_files: Vec<String>,
}

impl ProviderKeys {
    /// The keys by provider, from the flags and the environment. Each is one of a built-in provider, or of one with `hosts`.
    pub(super) fn read(&self, hosts: &[ProviderHost]) -> Result<BTreeMap<String, ProviderKey>> {
        let keys = self.read_all()?;
        keys.keys().try_for_each(|name| known(name, hosts))?;
        Ok(keys)
    }

    fn read_all(&self) -> Result<BTreeMap<String, ProviderKey>> {
        self.read_with(std::env::vars_os().filter_map(|(name, text)| {
            let name = name.into_string().ok()?.strip_prefix(VARIABLE)?.to_ascii_lowercase();
            Some((name, text.into_string().unwrap_or_default()))
        }))
    }

    fn read_with(
        &self,
        variables: impl Iterator<Item = (String, String)>,
    ) -> Result<BTreeMap<String, ProviderKey>> {
        let (mut keys, mut by_variable) = (BTreeMap::new(), BTreeMap::new());
        for (name, text) in variables {
            if let Some(name) = name.strip_suffix(FILE) {
                let setting = format!("{VARIABLE}{}_FILE", name.to_ascii_uppercase());
                keys.insert(name.to_owned(), from_file(&setting, name, text.trim())?);
            } else {
                let key = checked(&name, text.trim())?;
                by_variable.insert(name, key);
            }
        }
        let mut by_flag = BTreeMap::new();
        for given in &self.provider_key_files {
            let (name, file) = given.split_once('=').context("--provider-key-file must be NAME=FILE")?;
            let before = by_flag.insert(name.to_owned(), from_file("--provider-key-file", name, file)?);
            ensure!(before.is_none(), "the provider key of {name} is given twice");
        }
        keys.extend(by_variable);
        keys.extend(by_flag);
        Ok(keys)
    }

    /// The environment variables that give another process the same keys.
    #[cfg(feature = "dev")]
    pub(super) fn variables(&self) -> Result<Vec<(String, String)>> {
        let variable = |(name, key): (String, ProviderKey)| {
            (format!("{VARIABLE}{}", name.to_ascii_uppercase()), key.reveal().to_owned())
        };
        Ok(self.read_all()?.into_iter().map(variable).collect())
    }
}

/// The key in `file`, which `setting` gives for the provider `name`.
fn from_file(setting: &str, name: &str, file: &str) -> Result<ProviderKey> {
    checked(name, &secret_file::first_line(setting, Path::new(file))?)
}

/// An error if there is no provider of that name.
fn known(name: &str, hosts: &[ProviderHost]) -> Result<()> {
    let is_built_in = BUILT_IN.iter().any(|facts| facts.name == name);
    ensure!(
        is_built_in || hosts.iter().any(|host| host.name == name),
        "a provider key is given for {name}, which is neither a built-in provider nor one of a --provider-host"
    );
    Ok(())
}

fn checked(name: &str, text: &str) -> Result<ProviderKey> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
    if name.is_empty() || name == "other" || !name.bytes().all(plain) {
        bail!("a provider key must name a provider, such as openai");
    }
    ProviderKey::of_provider(name, text).with_context(|| format!("the provider key of {name} is invalid"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with this text, in a folder of the test's own.
    fn file(folder: &str, number: usize, content: &str) -> String {
        let folder =
            std::env::temp_dir().join(format!("farthing-provider-keys-{folder}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join(number.to_string());
        std::fs::write(&file, content).unwrap();
        file.to_str().unwrap().to_owned()
    }

    fn read(given: &[&str], variables: &[(&str, &str)]) -> Result<Vec<(String, String)>, String> {
        let provider_key_files = given.iter().map(ToString::to_string).collect();
        let variables = variables.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        let read = ProviderKeys { provider_key_files }.read_with(variables);
        let read = read.map_err(|error| format!("{error:#}"))?;
        Ok(read.into_iter().map(|(name, key)| (name, key.reveal().to_owned())).collect())
    }

    #[test]
    fn a_flag_overrides_a_variable_and_a_variable_its_file() {
        let (first, second) = (file("order", 1, "sk=1\n"), file("order", 2, "  sk-2\nsecond line\n"));
        let flag = format!("openai={first}");
        let variables = [
            ("openai", "sk-3"),
            ("xai", "x\n"),
            ("xai_file", second.as_str()),
            ("groq_file", second.as_str()),
        ];
        let keys = read(&[&flag], &variables).unwrap();
        let expected = [("groq", "sk-2"), ("openai", "sk=1"), ("xai", "x")];
        assert_eq!(keys, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
    }

    #[test]
    fn a_key_is_for_a_provider_that_the_gateway_knows() {
        let host = ProviderHost::new("own".to_owned(), "api.own.example".to_owned(), 443).unwrap();
        let hosts = [host];
        assert!(known("openai", &[]).is_ok() && known("own", &hosts).is_ok());
        assert!(known("own", &[]).is_err());
        let error = known("openaii", &hosts).unwrap_err().to_string();
        assert!(error.contains("openaii"), "{error}");
        let key = file("known", 1, "sk-1\n");
        let keys = ProviderKeys { provider_key_files: vec![format!("openaii={key}")] };
        assert!(keys.read(&[]).is_err());
    }

    #[test]
    fn an_error_never_shows_the_key() {
        let spaced = file("errors", 1, "sk secret\n");
        let good = file("errors", 2, "sk-secret\n");
        for given in
            ["sk-secret".to_owned(), format!("a={spaced}"), format!("Open AI={good}"), format!("={good}")]
        {
            let error = read(&[&given], &[]).unwrap_err();
            assert!(!error.contains("secret"), "{error}");
        }
        for variable in [
            ("a", "sk secret"),
            ("other", "sk-secret"),
            ("a_file", spaced.as_str()),
            ("bedrock", "AKIAIOSFODNN7EXAMPLE:secret"),
            ("openai", "AKIAIOSFODNN7EXAMPLE:secretJalrXUtnFEMI/K7MDENG"),
        ] {
            let error = read(&[], &[variable]).unwrap_err();
            assert!(!error.contains("secret"), "{error}");
        }
        for (given, variables) in [(Some("a=sk-secret"), &[][..]), (None, &[("a_file", "sk-secret")][..])] {
            let given: Vec<&str> = given.into_iter().collect();
            let error = read(&given, variables).unwrap_err();
            assert!(!error.contains("sk-"), "{error}");
            let names_it = error.starts_with("--provider-key-file: ")
                || error.starts_with("FARTHING_PROVIDER_KEY_A_FILE: ");
            assert!(names_it, "{error}");
        }
        let error = read(&[], &[("a_file", "/nowhere/at/all")]).unwrap_err();
        assert!(error.contains("/nowhere/at/all"), "{error}");
        let twice = format!("a={good}");
        assert_eq!(read(&[&twice, &twice], &[]).unwrap_err(), "the provider key of a is given twice");
    }
}
