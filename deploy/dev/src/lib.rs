//! Development tools behind the program's `dev` feature: the launcher of `farthing dev` and the mock AI provider.
//! Invariant: no production role depends on this crate, and release builds leave it out.

pub mod launcher;
pub mod mock_provider;
mod private_file;
