//! Databases that earlier releases have saved (`tests/saved`): this release upgrades each of them, finds what was in it,
//! and goes on with it.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use farthing_tests::client::Request;
use farthing_tests::instance::{Instance, program};
use farthing_tests::log::Log;
use farthing_tests::merchant::forward;
use farthing_tests::provider::json;
use farthing_tests::run;
use farthing_tests::saved::Facts;
use farthing_tests::servers::has_lz4;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::side_projector::SideProjector;
use farthing_tests::wait::eventually;
use rust_decimal::Decimal;
use serde_json::{Value, json};

/// Every saved database, by the folder of its release.
fn saved() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("saved");
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut folders: Vec<_> = entries.filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

/// Restores the dump into a new database of the instance's server, and returns its URL.
async fn restored(instance: &Instance, folder: &Path, name: &str) -> String {
    let url = instance.create_database(name).await;
    let name = instance.name_of(name);
    let sql = Log::open(&url).await.sql;
    // A right on the database itself is not in its dump.
    sql.batch_execute(&format!("GRANT CREATE ON DATABASE {name} TO farthing_projector")).await.unwrap();
    let file = std::fs::File::open(folder.join("database.sql.gz")).unwrap();
    let mut dump = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut dump).unwrap();
    // The owner may have another name here.
    let dump = dump.replace(" OWNER TO farthing;", " OWNER TO CURRENT_USER;");
    let lz4 = has_lz4(&Log::open(&url).await).await;
    // Lines for psql alone, and, on a server that was built without lz4, the choice of that compression.
    let is_for_others =
        |line: &str| line.starts_with('\\') || (!lz4 && line.ends_with(" SET COMPRESSION lz4;"));
    let statements: Vec<_> = dump.lines().filter(|line| !is_for_others(line)).collect();
    sql.batch_execute(&statements.join("\n")).await.unwrap();
    url
}

async fn operate(url: &str, arguments: &[&str]) -> Value {
    let mut command = tokio::process::Command::new(program());
    command.args(arguments).args(["--json", "--database-url", url]).stdin(Stdio::null());
    let output = command.output().await.unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

async fn is_whole(url: &str) {
    let report = operate(url, &["log", "verify"]).await;
    assert_eq!(report["ok"], true, "{report}");
    let sql = Log::open(url).await.sql;
    for model in sql.query("SELECT DISTINCT name FROM ledger.read_models", &[]).await.unwrap() {
        let report = operate(url, &["projections", "verify", model.get(0)]).await;
        assert_eq!(report["differences"], 0, "{report}");
    }
}

async fn upgrades(folder: &Path) {
    let instance = Instance::shared().await;
    let version = folder.file_name().unwrap().to_string_lossy().replace(['.', '-'], "_");
    let url = restored(instance, folder, &format!("saved_{version}")).await;
    let facts: Facts =
        serde_json::from_str(&std::fs::read_to_string(folder.join("facts.json")).unwrap()).unwrap();
    operate(&url, &["migrate", "--mode", "test"]).await;
    let projector = SideProjector::on(instance, &url).await;
    let flags = ["--allow-address", "127.0.0.0/8", "--sweep-after-seconds", "15"];
    let gateway = SideGateway::start_on(instance, &url, "nats://127.0.0.1:1", &flags).await;
    let log = Log::open(&url).await;
    assert!(log.head().await >= facts.events);
    let get = async |path: String| {
        Request::new("GET", path).bearer(&facts.secret_key).send(gateway.address).await.unwrap().expect(200)
    };
    let endpoint = instance.provider.endpoint(|_| json(200, &json!({"usage": {"tokens": 7}})));
    for customer in &facts.customers {
        let path = format!("/v1/connections/{}", customer.id);
        let shown = get(path.clone()).await;
        assert_eq!(shown["reference_id"], customer.reference_id.as_str());
        let balance = |shown: &Value| -> Decimal {
            shown["wallet"]["balance"].as_str().unwrap_or_else(|| panic!("{shown}")).parse().unwrap()
        };
        let before = balance(&shown);
        assert_eq!(before, customer.balance.parse::<Decimal>().unwrap(), "{shown}");
        let call = forward("GET", &endpoint.url).bearer(&customer.credential);
        let answer = call.send(gateway.address).await.unwrap();
        answer.expect(200);
        eventually("the call is shown", async || {
            let shown = get(format!("/v1/requests/{}", answer.request_id())).await;
            (shown["status"] == "completed").then_some(())
        })
        .await;
        assert!(balance(&get(path).await) < before);
    }
    log.stored().await;
    is_whole(&url).await;
    operate(&url, &["prune"]).await;
    is_whole(&url).await;
    drop((gateway, projector));
}

#[test]
fn the_saved_database_of_every_release_is_upgraded() {
    run(async {
        let saved = saved();
        assert!(!saved.is_empty(), "run tests/saved/make");
        for folder in saved {
            upgrades(&folder).await;
        }
    });
}
