//! What must not wait for the work of callers has threads of its own.

use std::collections::BTreeSet;
use std::fs;

use farthing_tests::merchant::Merchant;
use farthing_tests::run;
use farthing_tests::side_gateway::SideGateway;

#[test]
fn leases_and_heartbeats_have_threads_of_their_own() {
    run(async {
        let merchant = Merchant::new().await;
        let gateway = SideGateway::start(merchant.instance, &[]).await;
        let threads = fs::read_dir(format!("/proc/{}/task", gateway.pid())).unwrap();
        // A thread may end meanwhile.
        let names = threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("comm")).ok());
        let names: BTreeSet<_> = names.map(|name| name.trim_end().to_owned()).collect();
        for name in ["leases", "heartbeats"] {
            assert!(names.contains(name), "{names:?}");
        }
    });
}
