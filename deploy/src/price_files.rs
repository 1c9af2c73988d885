//! The price catalogue: the one built into the program (`deploy/prices`), overridden by the operator's files.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use farthing_api::catalogue::{self, Catalogue};
use farthing_core::model_price::PriceFile;

const BUILT_IN: &str = include_str!("../prices/catalogue.json");

/// Flags that name price files.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Prices {
    /// Read list prices of providers from this file. Its entries override the built-in ones.
    #[arg(long = "prices", env = "FARTHING_PRICES", value_delimiter = ',', value_name = "FILE")]
    pub(crate) price_files: Vec<PathBuf>,
}

impl Prices {
    /// The whole catalogue. Later files override earlier ones.
    pub(crate) fn catalogue(&self) -> Result<Catalogue> {
        let mut catalogue = Catalogue::read(BUILT_IN).context("the built-in price catalogue is invalid")?;
        for path in &self.price_files {
            catalogue.extend(read(path)?);
        }
        Ok(catalogue)
    }
}

/// What an auditor is told of the file that a price was taken from.
pub(crate) fn name(file: &PriceFile) -> String {
    let PriceFile { taken, sha256 } = file;
    let built_in = if *file == PriceFile::new(*taken, BUILT_IN) { "the built-in one, " } else { "" };
    format!("{built_in}prices of {taken}, SHA-256 {sha256}")
}

/// The catalogue in the file at `path`.
pub(crate) fn read(path: &Path) -> Result<Catalogue> {
    read_with(path, Catalogue::read)
}

/// The same of a file that need not say where its prices are from, for a comparison.
pub(crate) fn read_prices(path: &Path) -> Result<Catalogue> {
    read_with(path, Catalogue::read_prices)
}

fn read_with(path: &Path, reader: fn(&str) -> Result<Catalogue, catalogue::Error>) -> Result<Catalogue> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
    reader(&text).with_context(|| format!("{shown} is not a price catalogue"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_catalogue_is_valid() {
        assert!(Prices { price_files: Vec::new() }.catalogue().is_ok());
    }

    #[test]
    fn the_built_in_catalogue_names_built_in_providers_alone() {
        let catalogue = Prices { price_files: Vec::new() }.catalogue().unwrap();
        let is_known = |name: &str| farthing_api::BUILT_IN.iter().any(|facts| facts.name == name);
        for (provider, model, _) in catalogue.models() {
            assert!(is_known(provider), "{provider} {model}");
        }
    }

    #[test]
    fn an_invalid_file_is_named_in_the_error() {
        let price_files = vec![PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))];
        let error = Prices { price_files }.catalogue().unwrap_err().to_string();
        assert!(error.contains("Cargo.toml is not a price catalogue"), "{error}");
    }
}
