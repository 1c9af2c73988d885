//! The price catalogue: the one built into the program (`deploy/prices`), and the operator's files over it.

use std::path::PathBuf;

use farthing_api::catalogue::Catalogue;

use crate::failure::{Failure, IntoFailure as _};

const BUILT_IN: &str = include_str!("../prices/catalogue.json");

/// Flags that name prices.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Prices {
    /// Read providers' list prices from this file too; its entries go before those built in.
    #[arg(long = "prices", env = "FARTHING_PRICES", value_delimiter = ',', value_name = "FILE")]
    pub(crate) price_files: Vec<PathBuf>,
}

impl Prices {
    /// Everything that is listed, later files over earlier ones.
    pub(crate) fn catalogue(&self) -> Result<Catalogue, Failure> {
        let mut catalogue = Catalogue::read(BUILT_IN).or_fail("the prices built in")?;
        for path in &self.price_files {
            let text =
                std::fs::read_to_string(path).or_fail(format_args!("cannot read {}", path.display()))?;
            let file = Catalogue::read(&text);
            catalogue.extend(file.or_fail(format_args!("{} is no price catalogue", path.display()))?);
        }
        Ok(catalogue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_that_is_built_in_can_be_read() {
        assert!(Prices { price_files: Vec::new() }.catalogue().is_ok());
    }

    #[test]
    fn a_file_that_is_no_catalogue_is_told_by_its_name() {
        let price_files = vec![PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))];
        let told = Prices { price_files }.catalogue().unwrap_err().to_string();
        assert!(told.contains("Cargo.toml is no price catalogue"), "{told}");
    }
}
