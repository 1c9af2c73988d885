//! `SeaweedFS`, an object store with the interface of S3, as a server of a test's own.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use serde_json::json;

use crate::client::Request;
use crate::server_process::{End, ServerProcess, User, free_port};

/// The id of the key that the server knows.
pub const KEY_ID: &str = "AKIAFARTHINGARCHIVES";

/// Its secret.
pub const SECRET: &str = "the-secret-of-the-archives";

/// A running object store, without buckets: the first write makes one.
pub struct ObjectStore {
    process: ServerProcess,
    /// The address of its interface of S3, without TLS.
    pub address: SocketAddr,
    files: SocketAddr,
}

/// A free port. The server also takes the one that is 10,000 above it.
fn port() -> u16 {
    loop {
        let port = free_port();
        if port < 55_000 {
            return port;
        }
    }
}

impl ObjectStore {
    /// Starts one with its data in `folder`; `None` if it is not installed (`tests/bucket/install`).
    pub async fn start(folder: &Path) -> Option<Self> {
        let test = std::env::current_exe().ok()?;
        let program = test
            .ancestors()
            .map(|folder| folder.join("bucket/venv/bin/weed"))
            .find(|program| program.exists())?;
        std::fs::create_dir_all(folder).expect("a folder can be made");
        let credentials = json!([{"accessKey": KEY_ID, "secretKey": SECRET}]);
        let identities =
            json!({"identities": [{"name": "archives", "credentials": credentials, "actions": ["Admin"]}]});
        let config = folder.join("identities.json");
        std::fs::write(&config, identities.to_string()).expect("a file can be written");
        let [s3, files, master, volume] = [port(), port(), port(), port()];
        let arguments = [
            "server".to_owned(),
            "-ip=127.0.0.1".to_owned(),
            "-ip.bind=127.0.0.1".to_owned(),
            format!("-dir={}", folder.display()),
            format!("-master.port={master}"),
            "-master.volumeSizeLimitMB=64".to_owned(),
            format!("-volume.port={volume}"),
            format!("-filer.port={files}"),
            "-s3".to_owned(),
            format!("-s3.port={s3}"),
            "-s3.port.iceberg=0".to_owned(),
            "-s3.port.lance=0".to_owned(),
            format!("-s3.config={}", config.display()),
        ];
        let process = ServerProcess::start(folder, User::OfTheTest, End::Kill, &program, arguments);
        let address = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let store = Self { process, address: address(s3), files: address(files) };
        store
            .process
            .ready("SeaweedFS is ready", async || {
                let ready = Request::new("GET", "/status").send(store.address).await.ok()?;
                (ready.status == 200).then_some(())
            })
            .await;
        Some(store)
    }

    /// The bytes of an object, by its bucket and name; `None` if there is none.
    pub async fn object(&self, name: &str) -> Option<Vec<u8>> {
        let read = Request::new("GET", format!("/buckets/{name}")).send(self.files).await;
        let read = read.expect("the store answers");
        (read.status == 200).then_some(read.body)
    }

    /// Deletes an object behind the back of the interface of S3.
    pub async fn delete(&self, name: &str) {
        let deleted = Request::new("DELETE", format!("/buckets/{name}")).send(self.files).await;
        let status = deleted.expect("the store answers").status;
        assert!((200..300).contains(&status), "{name}: {status}");
    }
}
