//! Rebuilds the crate when a migration is added: cargo does not see which files the embedding macro reads.

fn main() {
    println!("cargo::rerun-if-changed=migrations");
}
