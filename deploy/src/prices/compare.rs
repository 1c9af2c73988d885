//! `farthing prices compare`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::Result;
use serde::Serialize;
use serde_json::{Map, Value};

use super::entry::{Name, entries, plain};
use crate::exit_code::Soundness;
use crate::output::{self, OutputFormat};
use crate::price_files;

/// Flags of `prices compare`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// A price file.
    first: PathBuf,
    /// The price file to compare it with.
    second: PathBuf,
    #[command(flatten)]
    format: OutputFormat,
}

/// What two files say of the models in them. The days on which prices were taken are not compared.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Comparison {
    /// The number of models that both list with the same prices and limits.
    same: usize,
    different: Vec<Difference>,
    only_in_first: Vec<Name>,
    only_in_second: Vec<Name>,
}

/// A model that two files list differently: the fields that differ, as each has them.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Difference {
    #[serde(flatten)]
    name: Name,
    first: Map<String, Value>,
    second: Map<String, Value>,
}

/// Runs the subcommand. Nothing is known of files that cannot be read.
pub(super) fn run(args: &Args) -> Result<Soundness> {
    let (first, second) = (price_files::read_prices(&args.first)?, price_files::read_prices(&args.second)?);
    let (first, mut second) = (entries(&first), entries(&second));
    let mut comparison =
        Comparison { same: 0, different: Vec::new(), only_in_first: Vec::new(), only_in_second: Vec::new() };
    for (name, entry) in first {
        match second.remove(&name) {
            None => comparison.only_in_first.push(name),
            Some(other) => match differing(&entry.fields(), &other.fields()) {
                None => comparison.same += 1,
                Some((first, second)) => comparison.different.push(Difference { name, first, second }),
            },
        }
    }
    comparison.only_in_second.extend(second.into_keys());
    let is_same = comparison.different.is_empty()
        && comparison.only_in_first.is_empty()
        && comparison.only_in_second.is_empty();
    print(&comparison, args.format)?;
    Ok(Soundness::Sound.and(is_same))
}

/// The fields of both that differ.
fn differing(
    first: &Map<String, Value>,
    second: &Map<String, Value>,
) -> Option<(Map<String, Value>, Map<String, Value>)> {
    let names: BTreeSet<&String> = first.keys().chain(second.keys()).collect();
    let (mut of_first, mut of_second) = (Map::new(), Map::new());
    for name in names.into_iter().filter(|name| first.get(*name) != second.get(*name)) {
        of_first.extend(first.get(name).map(|value| (name.clone(), value.clone())));
        of_second.extend(second.get(name).map(|value| (name.clone(), value.clone())));
    }
    (!of_first.is_empty() || !of_second.is_empty()).then_some((of_first, of_second))
}

fn print(comparison: &Comparison, format: OutputFormat) -> Result<()> {
    if format.is_json() {
        return format.print(comparison);
    }
    let Comparison { same, different, only_in_first, only_in_second } = comparison;
    for Difference { name, first, second } in different {
        output::print_line(format!("different: {name}"))?;
        let fields: BTreeSet<&String> = first.keys().chain(second.keys()).collect();
        for field in fields {
            let shown = |fields: &Map<String, Value>| fields.get(field).map_or_else(|| "-".to_owned(), plain);
            output::print_line(format!("  {field}: {} | {}", shown(first), shown(second)))?;
        }
    }
    for (which, names) in [("first", only_in_first), ("second", only_in_second)] {
        for name in names {
            output::print_line(format!("only in the {which}: {name}"))?;
        }
    }
    output::print_line(format!(
        "{same} the same, {} different, {} only in the first, {} only in the second",
        different.len(),
        only_in_first.len(),
        only_in_second.len(),
    ))
}
