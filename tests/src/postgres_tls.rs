//! TLS at the Postgres server of an instance. The instance's own processes use its Unix socket, which has none.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;

use crate::instance::Instance;
use crate::log::Log;
use crate::tls::CertificateFiles;
use crate::wait::eventually;

/// When this session has read the server's settings. It changes once the server itself has read them anew.
const LOADED: &str = "SELECT pg_conf_load_time()::text";

/// The server of an instance, with TLS.
pub struct PostgresTls {
    log: Log,
    data: PathBuf,
    rules: PathBuf,
}

impl PostgresTls {
    /// Switches TLS on, with this certificate of the server. `clients` is the PEM file of the authority of clients.
    pub async fn switch_on(instance: &Instance, certificate: &CertificateFiles, clients: &str) -> Self {
        let log = instance.log().await;
        let shown = async |setting: &str| -> PathBuf {
            let row = log.sql.query_one(&format!("SHOW {setting}"), &[]).await.expect("a setting");
            row.get::<_, String>(0).into()
        };
        let (data, rules) = (shown("data_directory").await, shown("hba_file").await);
        let server = Self { log, data, rules };
        server.set("ssl_ca_file", clients).await;
        server.set("ssl", "on").await;
        server.show(certificate).await;
        server
    }

    /// From now on the server shows this certificate.
    pub async fn show(&self, certificate: &CertificateFiles) {
        // The server reads its key only if that is its own and closed to others.
        let owner = std::fs::metadata(&self.data).expect("the data folder exists");
        let closed = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&certificate.key, closed).expect("a key can be closed");
        std::os::unix::fs::chown(&certificate.key, Some(owner.uid()), Some(owner.gid()))
            .expect("a key can be given away");
        self.set("ssl_cert_file", &certificate.certificate).await;
        self.set("ssl_key_file", &certificate.key).await;
        self.reload().await;
    }

    /// Puts these lines before the rules of who may connect (`pg_hba.conf`).
    pub async fn demand(&self, lines: &str) {
        let rules = std::fs::read_to_string(&self.rules).expect("the rules can be read");
        std::fs::write(&self.rules, format!("{lines}\n{rules}")).expect("the rules can be written");
        self.reload().await;
    }

    /// Creates a database.
    pub async fn create(&self, name: &str) {
        let create = format!("CREATE DATABASE {name}");
        self.log.sql.batch_execute(&create).await.expect("a database can be made");
    }

    async fn set(&self, setting: &str, value: &str) {
        let set = format!("ALTER SYSTEM SET {setting} = '{value}'");
        self.log.sql.batch_execute(&set).await.expect("a setting can be changed");
    }

    async fn reload(&self) {
        let before = self.loaded().await;
        self.log.sql.batch_execute("SELECT pg_reload_conf()").await.expect("the settings can be read anew");
        eventually("the server reads its settings anew", async || {
            (self.loaded().await != before).then_some(())
        })
        .await;
    }

    async fn loaded(&self) -> String {
        self.log.sql.query_one(LOADED, &[]).await.expect("the server answers").get(0)
    }
}
