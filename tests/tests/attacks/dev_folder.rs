//! The data folder of `farthing dev`: other users of the machine read no call, no key and no feed there.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use farthing_tests::instance::{Instance, nats};
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::run;
use farthing_tests::servers;

/// Files below `folder` that other users can read.
fn readable_by_others(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        // A process may remove its file meanwhile.
        let Ok(about) = std::fs::symlink_metadata(&path) else { continue };
        let mode = about.permissions().mode();
        if about.is_dir() && mode & 0o005 != 0 {
            found.extend(readable_by_others(&path));
        } else if about.is_file() && mode & 0o044 != 0 && about.size() > 0 {
            found.push(path);
        }
    }
    found
}

#[test]
fn other_users_of_the_machine_read_nothing_of_an_instance() {
    run(async {
        let merchant = Merchant::new().await;
        // The mock's journal has a line.
        let provider = merchant.instance.ready().provider_url;
        let call = forward("GET", &format!("{provider}/v1/models"));
        merchant.send(&merchant.secret_key, call).await;
        let data = &merchant.instance.data;
        let journal = std::fs::metadata(data.join("mock-journal.ndjson")).unwrap();
        assert!(journal.len() > 0);
        assert_eq!(journal.permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::metadata(data.join("logs")).unwrap().permissions().mode() & 0o777, 0o700);
        let harmless = |path: &PathBuf| {
            let name = path.strip_prefix(data).unwrap();
            name.starts_with("run") && path.extension().is_some_and(|extension| extension == "pid")
        };
        let found: Vec<_> = readable_by_others(data).into_iter().filter(|path| !harmless(path)).collect();
        assert!(found.is_empty(), "{found:?}");
    });
}

#[test]
fn nats_asks_for_the_login_of_the_instance() {
    if !servers::has_own_nats("is about the login that the launcher sets") {
        return;
    }
    run(async {
        let instance = Instance::shared().await;
        let urls = instance.ready().nats_url;
        let servers: Vec<_> = urls.split(',').collect();
        let (login, address) = servers[0].strip_prefix("nats://").unwrap().split_once('@').unwrap();
        assert!(login.starts_with("farthing:") && login.len() > 40, "{login}");
        for stranger in [format!("nats://{address}"), format!("nats://farthing:{}@{address}", "0".repeat(48))]
        {
            let refused = nats(&stranger).await.expect_err(&stranger);
            assert!(refused.to_string().contains("authorization"), "{refused}");
        }
        nats(&urls).await.unwrap().flush().await.unwrap();
    });
}
