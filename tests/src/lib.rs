//! The harness of the tests that use Farthing from outside: an instance of the program, an HTTP/1.1 client and a provider
//! with full control over every byte, and books that fold the log independently.
//!
//! The harness does not use the ledger's decisions or folds, so that checks share no code with the program.

#![expect(clippy::unwrap_used, reason = "a harness panics where a test would")]

mod answers;
pub mod books;
pub mod bucket;
pub mod checkout_page;
pub mod client;
pub mod cluster;
pub mod codings;
pub mod collector;
pub mod dns;
pub mod document;
pub mod faketime;
pub mod feed;
pub mod instance;
pub mod leader;
pub mod link;
pub mod log;
#[cfg(test)]
mod log_events;
pub mod made_log;
pub mod managed;
pub mod merchant;
pub mod nats_server;
pub mod pgbouncer;
mod post_mortem;
pub mod postgres_server;
pub mod postgres_tls;
pub mod process;
pub mod prometheus;
pub mod provider;
pub mod proxy;
pub mod ready;
pub mod recurring;
pub mod saved;
pub mod scrape;
pub mod scratch;
pub mod server_process;
pub mod servers;
pub mod shop;
pub mod side_gateway;
pub mod side_projector;
pub mod small_disk;
pub mod statements;
pub mod tenant;
pub mod tls;
pub mod wait;
pub mod wire;

use std::io::Write as _;
use std::sync::OnceLock;

use tokio::runtime::Runtime;

use self::instance::EndOfTest;
use self::post_mortem::PostMortem;

/// The only runtime of a test process: shared instances and providers outlive the test that starts them.
pub fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime can be made")
    })
}

/// Runs a test's future to completion, then ends the instances that are the test's alone. If it panics, what its instances
/// logged is printed before.
pub fn run<F: Future>(test: F) -> F::Output {
    let _end = EndOfTest;
    let _post_mortem = PostMortem;
    runtime().block_on(test)
}

/// Says that a test is left out, and why. `./test` repeats these lines at its end. Not a macro for printing: it is to be
/// seen although the test succeeds.
pub fn left_out(why: &str) {
    let _ = writeln!(std::io::stderr(), "Left out: {why}");
}

/// Says that this test, which has a thread of its own, is left out on given servers. Its name joins the file that
/// `FARTHING_TEST_LEFT_OUT` names, so that `./test` can run it on servers of its own.
pub(crate) fn left_out_on_given_servers(why: &str) {
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    left_out(&format!("{test}: it {why}"));
    if let Some(path) = std::env::var_os("FARTHING_TEST_LEFT_OUT") {
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
        // One write, because tests run at once.
        file.and_then(|mut file| file.write_all(format!("{test}\n").as_bytes()))
            .expect("the list can be written");
    }
}
