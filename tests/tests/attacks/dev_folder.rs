//! The data folder of `farthing dev`: other users of the machine read no call, no key and no feed there, and change nothing.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use farthing_tests::instance::{Instance, nats};
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::run;
use farthing_tests::servers;

/// The files and folders in a data folder that other users can change, and the files that they can read.
fn open_to_others(data: &Path) -> Vec<PathBuf> {
    let harmless = |path: &PathBuf| {
        let name = path.strip_prefix(data).unwrap();
        name.starts_with("run") && path.extension().is_some_and(|extension| extension == "pid")
    };
    found_open(data).into_iter().filter(|path| !harmless(path)).collect()
}

fn found_open(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        // A process may remove its file meanwhile.
        let Ok(about) = std::fs::symlink_metadata(&path) else { continue };
        let mode = about.permissions().mode();
        if about.is_dir() && mode & 0o055 != 0 {
            found.extend(found_open(&path));
        }
        if (mode & 0o022 != 0 && !about.is_symlink()) || (mode & 0o044 != 0 && about.is_file()) {
            found.push(path);
        }
    }
    found
}

/// Opens all in a folder to everybody, as if it had been made or copied without care; but for Postgres's folders, with which
/// it would not start.
fn open_all(folder: &Path) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let about = std::fs::symlink_metadata(&path).unwrap();
        if about.is_file() {
            std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        } else if about.is_dir() && !path.join("PG_VERSION").exists() {
            open_all(&path);
            std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        }
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
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
        let journal = data.join("mock-journal.ndjson");
        assert!(std::fs::metadata(&journal).unwrap().len() > 0);
        assert_eq!(mode(&journal), 0o600);
        assert_eq!(mode(&data.join("logs")), 0o700);
        let found = open_to_others(data);
        assert!(found.is_empty(), "{found:?}");
    });
}

/// The launcher runs with umask 000: in a new folder, and in one whose files and folders are there already and can be read by
/// everybody.
#[test]
fn other_users_of_the_machine_read_nothing_whatever_the_umask_and_the_modes_of_older_files() {
    run(async {
        let instance = Instance::of_test_without_umask(1).await;
        let data = &instance.data;
        let is_closed = || {
            for name in ["logs/gateway-0.log", "logs/projector-0.log", "mock-journal.ndjson", "demo.json"] {
                assert_eq!(mode(&data.join(name)), 0o600, "{name}");
            }
            assert_eq!(mode(&data.join("logs")), 0o700);
            let found = open_to_others(data);
            assert!(found.is_empty(), "{found:?}");
        };
        is_closed();
        assert!(instance.stop().await.success());
        open_all(data);
        assert_eq!(mode(&data.join("demo.json")), 0o644);
        instance.launch(1).await;
        is_closed();
        Merchant::of(instance).await.get("/v1/requests").await.expect(200);
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
