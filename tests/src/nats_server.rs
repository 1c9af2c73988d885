//! A NATS server of a test's own, with its own configuration: TLS, users, accounts.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nkeys::KeyPair;
use serde_json::{Value, json};

use crate::instance::Instance;
use crate::server_process::{End, ServerProcess, User, free_port};

/// A running server with JetStream, on the loopback.
pub struct NatsServer {
    process: ServerProcess,
    /// Its port.
    pub port: u16,
}

impl NatsServer {
    /// Starts one with further lines of its configuration.
    pub async fn start(instance: &Instance, configuration: &str) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let folder = instance.file(&format!("nats-server-{}", MADE.fetch_add(1, Ordering::SeqCst)));
        std::fs::create_dir(&folder).expect("a folder can be made");
        let (config, shown) = (folder.join("nats.conf"), folder.display());
        let lines = format!(
            "listen: \"127.0.0.1:-1\"\nports_file_dir: \"{shown}\"\njetstream {{ store_dir: \"{shown}/store\" }}\n{configuration}\n"
        );
        std::fs::write(&config, lines).expect("a file can be written");
        let arguments = [Path::new("-c"), &config];
        let program = Path::new("nats-server");
        let process = ServerProcess::start(&folder, User::OfTheTest, End::Terminate, program, arguments);
        let port = process
            .ready("the NATS server listens", async || {
                let files = std::fs::read_dir(&folder).ok()?.flatten().map(|file| file.path());
                let ports =
                    files.into_iter().find(|file| file.extension().is_some_and(|end| end == "ports"))?;
                let ports: Value = serde_json::from_str(&std::fs::read_to_string(ports).ok()?).ok()?;
                ports["nats"][0].as_str()?.rsplit_once(':')?.1.parse().ok()
            })
            .await;
        Self { process, port }
    }

    /// What it has logged.
    pub fn logged(&self) -> String {
        self.process.logged()
    }

    /// Starts a server of each name, as one cluster. It may still have no leader.
    pub async fn start_cluster<const N: usize>(instance: &Instance, names: [&str; N]) -> [Self; N] {
        let ports = names.map(|_| free_port());
        let routes = ports.map(|port| format!("\"nats-route://127.0.0.1:{port}\"")).join(", ");
        let mut servers = Vec::new();
        for (name, port) in names.into_iter().zip(ports) {
            let configuration = format!(
                "server_name: {name}\ncluster {{ name: a-test, listen: \"127.0.0.1:{port}\", routes: [{routes}] }}"
            );
            servers.push(Self::start(instance, &configuration).await);
        }
        servers.try_into().ok().expect("there is a server of each name")
    }
}

/// An nkey of a user: the public key that a configuration names, and its seed.
pub fn nkey() -> (String, String) {
    let user = KeyPair::new_user();
    (user.public_key(), user.seed().expect("a new key has a seed"))
}

/// The configuration of a server whose users have credentials, and the credentials of one.
pub fn credentials() -> (String, String) {
    let (operator, system, account) =
        (KeyPair::new_operator(), KeyPair::new_account(), KeyPair::new_account());
    let user = KeyPair::new_user();
    let limits = json!({"subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true,
        "conn": -1, "leaf": -1, "mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1});
    let of_account = |account: &KeyPair, limits: &Value| {
        let claims = json!({"type": "account", "version": 2, "limits": limits});
        token(account, &operator, &claims)
    };
    let mut of_system = limits.clone();
    for limit in ["mem_storage", "disk_storage", "streams", "consumer"] {
        // A system account has no JetStream.
        of_system.as_object_mut().expect("an object").remove(limit);
    }
    let configuration = format!(
        "operator: \"{}\"\nsystem_account: {}\nresolver: MEMORY\nresolver_preload {{\n{}: \"{}\"\n{}: \"{}\"\n}}",
        token(&operator, &operator, &json!({"type": "operator", "version": 2})),
        system.public_key(),
        system.public_key(),
        of_account(&system, &of_system),
        account.public_key(),
        of_account(&account, &limits),
    );
    let claims = json!({"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1});
    let credentials = format!(
        "-----BEGIN NATS USER JWT-----\n{}\n------END NATS USER JWT------\n\n\
         -----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
        token(&user, &account, &claims),
        user.seed().expect("a new key has a seed"),
    );
    (configuration, credentials)
}

/// A JWT about `subject`, signed by `issuer`.
fn token(subject: &KeyPair, issuer: &KeyPair, claims: &Value) -> String {
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let subject = subject.public_key();
    let body = json!({"jti": subject, "iat": 1_700_000_000, "iss": issuer.public_key(), "name": subject,
        "sub": subject, "nats": claims});
    let signed = format!("{}.{}", encode(&json!({"typ": "JWT", "alg": "ed25519-nkey"})), encode(&body));
    let signature = issuer.sign(signed.as_bytes()).expect("a new key can sign");
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}
