//! Builds this crate anew when a migration is added: they are embedded by a macro that cargo cannot see through.

fn main() {
    println!("cargo::rerun-if-changed=migrations");
}
