//! The price catalogue: the one built into the program (`deploy/prices`), overridden by the operator's files.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use farthing_api::catalogue::Catalogue;

const BUILT_IN: &str = include_str!("../../prices/catalogue.json");

/// Flags that name price files.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Prices {
    /// Read list prices of providers from this file. Its entries override the built-in ones.
    #[arg(long = "prices", env = "FARTHING_PRICES", value_delimiter = ',', value_name = "FILE")]
    pub(super) price_files: Vec<PathBuf>,
}

impl Prices {
    /// The whole catalogue. Later files override earlier ones.
    pub(super) fn catalogue(&self) -> Result<Catalogue> {
        let mut catalogue = Catalogue::read(BUILT_IN).context("the built-in price catalogue is invalid")?;
        for path in &self.price_files {
            let shown = path.display();
            let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
            let file = Catalogue::read(&text);
            catalogue.extend(file.with_context(|| format!("{shown} is not a price catalogue"))?);
        }
        Ok(catalogue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_catalogue_is_valid() {
        assert!(Prices { price_files: Vec::new() }.catalogue().is_ok());
    }

    #[test]
    fn an_invalid_file_is_named_in_the_error() {
        let price_files = vec![PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))];
        let error = Prices { price_files }.catalogue().unwrap_err().to_string();
        assert!(error.contains("Cargo.toml is not a price catalogue"), "{error}");
    }
}
