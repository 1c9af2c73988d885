//! Whether tests on a Citus cluster can run on this machine.

use std::io::Write as _;
use std::path::Path;

use crate::servers;

/// Debian's folder of each version of Postgres, where the launcher finds its programs first.
const VERSIONS: &str = "/usr/lib/postgresql";

/// Whether Citus is installed. If it is not, this says that the test is left out, on the standard error of the test
/// process: the output of a test that passes is not shown.
pub fn is_installed() -> bool {
    let why = "needs a cluster";
    if !servers::has_own_postgres(why) || !servers::has_own_nats(why) {
        return false;
    }
    let versions = Path::new(VERSIONS).read_dir().into_iter().flatten().flatten();
    let is_there =
        versions.map(|version| version.path().join("lib/citus.so")).any(|library| library.exists());
    if !is_there {
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        let _ = writeln!(std::io::stderr(), "LEFT OUT: {name}: Citus is not installed");
    }
    is_there
}
