//! The harness of the tests that use Farthing from outside: an instance of the program, an HTTP/1.1 client and a provider
//! with full control over every byte, and books that fold the log independently.
//!
//! The harness does not use the ledger's decisions or folds, so that checks share no code with the program.

#![expect(clippy::unwrap_used, reason = "a harness panics where a test would")]

pub mod books;
pub mod client;
pub mod cluster;
pub mod document;
pub mod feed;
pub mod instance;
pub mod leader;
pub mod log;
pub mod merchant;
pub mod provider;
pub mod proxy;
pub mod recurring;
pub mod saved;
pub mod scratch;
pub mod side_projector;
pub mod statements;
pub mod tenant;
pub mod tls;
pub mod wait;
pub mod wire;

use std::sync::OnceLock;

use tokio::runtime::Runtime;

/// The only runtime of a test process: instances and providers outlive the test that starts them.
pub fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime can be made")
    })
}

/// Runs a test's future to completion.
pub fn run<F: Future>(test: F) -> F::Output {
    runtime().block_on(test)
}
