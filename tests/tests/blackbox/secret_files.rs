//! Secrets in files and variables: no command line of a running process, which every user of a machine can read, shows one.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use farthing_tests::instance::{Instance, program};
use farthing_tests::nats_server::{NatsServer, credentials, nkey};
use farthing_tests::run;
use farthing_tests::scratch::operate;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::side_projector::SideProjector;
use farthing_tests::tls::{Authority, Validity};

/// Flags of files without a secret.
const NO_SECRETS: [&str; 3] = ["--nats-ca-file", "--nats-cert-file", "--ready-file"];

/// The command line of a running process, its arguments one a line.
fn command_line(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap();
    String::from_utf8(line).unwrap().replace('\0', "\n")
}

/// The flags of a role that name a file with a secret, by its help.
fn flags_of_secrets(role: &str) -> BTreeSet<String> {
    let help = Command::new(program()).args([role, "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let words = help.split_whitespace().filter(|word| word.starts_with("--") && word.ends_with("-file"));
    words.filter(|flag| !NO_SECRETS.contains(flag)).map(str::to_owned).collect()
}

/// The secrets of a test: what is looked for, whichever flag gave it.
struct Secrets(Vec<String>);

impl Secrets {
    /// Asserts that together these processes of `role` got a secret by each flag of theirs, and that no command line shows
    /// one.
    fn are_not_shown(&self, role: &str, pids: [u32; 2]) {
        let mut lacking = flags_of_secrets(role);
        assert!(lacking.len() >= 4, "{role}: {lacking:?}");
        for line in pids.map(command_line) {
            lacking.retain(|flag| !line.lines().any(|argument| argument.split('=').next() == Some(flag)));
            for secret in &self.0 {
                assert!(!line.contains(secret), "{role}: {line}");
            }
        }
        assert!(lacking.is_empty(), "no process of {role} was given {lacking:?}");
    }
}

/// The lines of a secret, without those that say what it is.
fn lines(secret: &str) -> impl Iterator<Item = String> {
    secret.lines().filter(|line| line.len() >= 8 && !line.starts_with("----")).map(str::to_owned)
}

/// The path of a file as an argument.
fn argument(path: PathBuf) -> String {
    path.into_os_string().into_string().unwrap()
}

#[test]
fn no_command_line_of_a_running_process_shows_a_secret() {
    run(async {
        let instance = Instance::shared().await;
        let url = instance.create_database("secret_files").await;
        operate(&url, &["migrate", "--mode", "test"]).await;
        let password = url.split('@').next().unwrap().rsplit(':').next().unwrap();
        let authority = Authority::new();
        let ca = argument(authority.write_to(&instance.file("secret-files-ca.pem")));
        let issued =
            |name: &str| authority.issue(&instance.file(name), "farthing", &["localhost"], Validity::Now);
        let (server, client) = (issued("secret-files-server"), issued("secret-files-client"));
        let audit_key = argument(instance.file("secret-files-audit.pem"));
        let made =
            Command::new("openssl").args(["genpkey", "-algorithm", "ed25519", "-out", &audit_key]).status();
        assert!(made.unwrap().success());
        let (server_key, provider_key, header) = ("5a".repeat(32), "sk-in-a-file", "Bearer%20in-a-file");
        let (accounts, credentials) = credentials();
        let (public, seed) = nkey();
        let mut secrets =
            vec![password.to_owned(), server_key.clone(), provider_key.to_owned(), header.to_owned()];
        let read = |file: &str| fs::read_to_string(file).unwrap();
        for secret in [&credentials, &seed, &read(&audit_key), &read(&client.key)] {
            let before = secrets.len();
            secrets.extend(lines(secret));
            assert!(secrets.len() > before, "a secret has no line");
        }
        let secrets = Secrets(secrets);

        let database = ["--database-url-file".to_owned(), instance.secret_file(&url)];
        let with_credentials = NatsServer::start(instance, &accounts).await;
        let demands = format!(
            "tls {{ cert_file: \"{}\", key_file: \"{}\", ca_file: \"{ca}\", verify: true }}\n\
             authorization {{ users: [{{ nkey: {public} }}] }}",
            server.certificate, server.key
        );
        let with_nkey = NatsServer::start(instance, &demands).await;
        let url_of_nats = format!("nats://127.0.0.1:{}", with_credentials.port);
        let servers = [
            vec![
                format!("--nats-url-file={}", instance.secret_file(&url_of_nats)),
                format!("--nats-credentials-file={}", instance.secret_file(&credentials)),
            ],
            vec![
                format!("--nats-url=tls://localhost:{}", with_nkey.port),
                format!("--nats-nkey-file={}", instance.secret_file(&seed)),
                format!("--nats-ca-file={ca}"),
                format!("--nats-cert-file={}", client.certificate),
                format!("--nats-key-file={}", client.key),
            ],
        ]
        .map(|nats| [database.to_vec(), nats].concat());
        let [first, second] =
            servers.each_ref().map(|flags| flags.iter().map(String::as_str).collect::<Vec<_>>());
        let of_gateway = [
            format!("--server-key-file={}", instance.secret_file(&server_key)),
            format!("--audit-key-file={audit_key}"),
            instance.provider_key("openai", provider_key),
            "--otlp-endpoint=http://127.0.0.1:1".to_owned(),
            format!("--otlp-headers-file={}", instance.secret_file(&format!("authorization={header}"))),
        ];
        let of_gateway = of_gateway.each_ref().map(String::as_str);
        let gateways = [
            SideGateway::with(instance, &first, &of_gateway).await,
            SideGateway::with(instance, &second, &of_gateway).await,
        ];
        secrets.are_not_shown("gateway", gateways.each_ref().map(SideGateway::pid));
        let projectors =
            [SideProjector::with(instance, &first).await, SideProjector::with(instance, &second).await];
        secrets.are_not_shown("projector", projectors.each_ref().map(SideProjector::pid));
    });
}

#[test]
fn a_gateway_takes_its_server_key_from_a_file_before_the_variable_with_the_key_itself() {
    run(async {
        let instance = Instance::shared().await;
        let key = "SELECT server_key FROM ledger.instance";
        let own: String = instance.log().await.sql.query_one(key, &[]).await.unwrap().get(0);
        let another = "ab".repeat(32);
        let (own, another) = (own.as_str(), another.as_str());
        let (of_own, of_another) = (instance.secret_file(own), instance.secret_file(another));
        let flag = |file: &str| format!("--server-key-file={file}");
        let url = format!("--database-url={}", instance.ready().database_url);
        let refused = async |flags: &[String], variables: &[(&str, &str)]| {
            let mut gateway = tokio::process::Command::new(program());
            gateway.args(["gateway", "--listen=127.0.0.1:0", "--no-webhooks", &url]).args(flags);
            gateway.envs(variables.iter().copied()).stdin(Stdio::null()).kill_on_drop(true);
            let ended = gateway.output().await.unwrap();
            let said = String::from_utf8_lossy(&ended.stderr).into_owned();
            assert_eq!(ended.status.code(), Some(1), "{flags:?}: {said}");
            for secret in [own, another] {
                assert!(!said.contains(secret), "{said}");
            }
            said
        };
        let of_another_instance = "the server key is not the one of this instance";
        let [of_variable, of_other_variable, of_wrong_variable, of_empty_variable] =
            [own, another, "abab", ""].map(|key| [("FARTHING_SERVER_KEY", key)]);

        let said = refused(&[], &of_other_variable).await;
        assert!(said.contains(of_another_instance), "the variable counts: {said}");
        SideGateway::with_variables(instance, &[], &of_variable).await;

        let said = refused(&[flag(&of_another)], &of_variable).await;
        assert!(said.contains(of_another_instance), "the file comes first: {said}");
        SideGateway::with_variables(instance, &[&flag(&of_own)], &of_other_variable).await;
        let by_variable = [("FARTHING_SERVER_KEY_FILE", of_another.as_str()), ("FARTHING_SERVER_KEY", own)];
        let said = refused(&[], &by_variable).await;
        assert!(said.contains(of_another_instance), "so does a file that a variable names: {said}");

        // Nothing takes the place of a key that cannot be read.
        for (flags, variables, name) in [
            (vec![], of_wrong_variable, "FARTHING_SERVER_KEY: a server key must be 64 hexadecimal digits"),
            (vec![flag("/nowhere/at/all")], of_variable, "--server-key-file"),
            (
                vec![flag(&instance.secret_file("abab"))],
                of_variable,
                "--server-key-file: a server key must be",
            ),
        ] {
            let said = refused(&flags, &variables).await;
            assert!(said.contains(name) && !said.contains("abab"), "{said}");
        }
        // An empty variable is none.
        SideGateway::with_variables(instance, &[], &of_empty_variable).await;
    });
}

#[test]
fn no_command_line_of_a_process_of_the_launcher_shows_a_password() {
    run(async {
        let instance = Instance::shared().await;
        let ready = instance.ready();
        let passwords = [&ready.database_url, &ready.nats_url].map(|url| {
            let login = url.split_once("://").unwrap().1.split_once('@');
            login.and_then(|(login, _)| login.split_once(':')).map(|(_, password)| password.to_owned())
        });
        assert!(passwords[0].is_some(), "{}", ready.database_url);
        let servers = ready.pids.postgres.into_iter().chain(ready.pids.nats);
        let processes = ready.pids.gateways.iter().chain(&ready.pids.projectors).copied();
        let all: Vec<u32> =
            processes.chain(servers).chain(instance.pid()).chain([ready.pids.provider]).collect();
        for pid in all {
            let line = command_line(pid);
            assert!(!line.is_empty(), "{pid}");
            for password in passwords.iter().flatten() {
                assert!(!line.contains(password), "{line}");
            }
        }
    });
}
