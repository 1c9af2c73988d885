//! Drops what an instance of a test has left on servers that somebody else has started: `remove_instance NAME`. The
//! harness runs it when the instance ends, also after the test process has been killed.

use farthing_tests::{run, servers};

fn main() {
    let name = std::env::args().nth(1).expect("usage: remove_instance NAME");
    run(servers::drop_all_of(&name));
}
