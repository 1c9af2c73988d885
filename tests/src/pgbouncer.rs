//! `PgBouncer` before the Postgres server of an instance.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::net::TcpStream;

use crate::instance::Instance;
use crate::left_out;
use crate::server_process::{End, ServerProcess, User, free_port};

/// A running pooler, on the loopback.
pub struct PgBouncer {
    process: Option<ServerProcess>,
    folder: PathBuf,
    port: u16,
    database_url: String,
}

impl PgBouncer {
    /// Starts one before the server of `database_url`, with these further settings. `None` if it is not installed: then
    /// this says that the test is left out.
    pub async fn start(instance: &Instance, database_url: &str, settings: &str) -> Option<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let Some(program) = program() else {
            let test = std::thread::current().name().unwrap_or_default().to_owned();
            left_out(&format!("{test}: PgBouncer is not installed"));
            return None;
        };
        let folder = instance.file(&format!("pgbouncer-{}", MADE.fetch_add(1, Ordering::SeqCst)));
        std::fs::create_dir(&folder).expect("a folder can be made");
        let (login, server) = parts(database_url);
        let (host, port_of_server) = server.rsplit_once(':').expect("the server has a port");
        let (user, password) = login.split_once(':').expect("the login has a password");
        let port = free_port();
        let shown = folder.display();
        let configuration = format!(
            "[databases]\n* = host={host} port={port_of_server}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = scram-sha-256\nauth_file = {shown}/users\n\
             max_client_conn = 300\ndefault_pool_size = 60\n{settings}\n"
        );
        std::fs::write(folder.join("pgbouncer.ini"), configuration).expect("a file can be written");
        let users = format!("\"{user}\" \"{password}\"\n");
        std::fs::write(folder.join("users"), users).expect("a file can be written");
        let through = database_url.replace(server, &format!("127.0.0.1:{port}"));
        let mut pooler = Self { process: None, folder, port, database_url: through };
        pooler.run(&program).await;
        Some(pooler)
    }

    /// The URL of the database through the pooler.
    pub fn database_url(&self) -> &str {
        &self.database_url
    }

    /// Kills it. Its sessions at Postgres end.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Starts it again, at the same port.
    pub async fn restart(&mut self) {
        self.kill();
        self.run(&program().expect("it was installed")).await;
    }

    async fn run(&mut self, program: &Path) {
        let arguments = [self.folder.join("pgbouncer.ini")];
        // It is killed, as a power cut does.
        let process = ServerProcess::start(&self.folder, User::NotRoot, End::Kill, program, arguments);
        let address = ("127.0.0.1", self.port);
        process.ready("PgBouncer listens", async || TcpStream::connect(address).await.ok()).await;
        self.process = Some(process);
    }
}

/// The login and the server of a database URL.
fn parts(database_url: &str) -> (&str, &str) {
    let (_, rest) = database_url.split_once("://").expect("a URL has a scheme");
    let (login, rest) = rest.split_once('@').expect("the URL of a test's database has a login");
    (login, rest.split_once('/').expect("and names a database").0)
}

fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/bin".into()]);
    folders.map(|folder| folder.join("pgbouncer")).find(|program| program.is_file())
}
