//! TLS to Postgres and NATS, logins at NATS, and secrets in files, against servers that demand them. They have an instance
//! of their own, since the settings of its server change.

use std::process::{Output, Stdio};

use async_nats::{ConnectOptions, jetstream};
use farthing_log::connect::{Role, connect, redacted};
use farthing_log::nats::{Login, NatsConfig};
use farthing_tests::client::Request;
use farthing_tests::feed;
use farthing_tests::instance::{Instance, program};
use farthing_tests::merchant::{encoded, forward, token};
use farthing_tests::nats_server::{NatsServer, credentials, nkey};
use farthing_tests::postgres_tls::PostgresTls;
use farthing_tests::provider::json as answer_json;
use farthing_tests::run;
use farthing_tests::scratch::operate;
use farthing_tests::servers;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::side_projector::SideProjector;
use farthing_tests::tls::{Authority, CertificateFiles, Validity};
use farthing_tests::wait::{eventually, eventually_ok};
use futures_util::StreamExt as _;
use serde_json::json;
use tokio::sync::{Mutex, MutexGuard, OnceCell};

const LOCAL: &str = "--allow-address=127.0.0.0/8";

/// Whether the session is encrypted.
const IS_ENCRYPTED: &str = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";

/// An instance whose Postgres takes TLS, with a certificate for `localhost`. One test at a time has it.
pub(crate) struct Scene {
    pub(crate) instance: Instance,
    pub(crate) postgres: PostgresTls,
    pub(crate) authority: Authority,
    pub(crate) server: CertificateFiles,
    pub(crate) client: CertificateFiles,
    /// The PEM file of the authority.
    pub(crate) ca: String,
    /// That of another authority, which has issued nothing.
    pub(crate) strange_ca: String,
}

impl Scene {
    pub(crate) async fn turn() -> MutexGuard<'static, Self> {
        static SCENE: OnceCell<Mutex<Scene>> = OnceCell::const_new();
        SCENE.get_or_init(async || Mutex::new(Self::start().await)).await.lock().await
    }

    async fn start() -> Self {
        let instance = Instance::start(1).await;
        let (authority, stranger) = (Authority::new(), Authority::new());
        let path = |file: std::path::PathBuf| file.into_os_string().into_string().unwrap();
        let ca = path(authority.write_to(&instance.file("ca.pem")));
        let strange_ca = path(stranger.write_to(&instance.file("strange-ca.pem")));
        let issue =
            |name: &str, hosts: &[&str]| authority.issue(&instance.file(name), name, hosts, Validity::Now);
        // The name of the client is that of the login.
        let (server, client) = (issue("server", &["localhost"]), issue("farthing", &[]));
        let without = instance.ready().database_url;
        let refused = encrypted(&format!("{without}?sslmode=require")).await.unwrap_err();
        assert!(refused.contains("server does not support TLS"), "{refused}");
        assert_eq!(encrypted(&format!("{without}?sslmode=prefer")).await, Ok(false));
        let postgres = PostgresTls::switch_on(&instance, &server, &ca).await;
        Self { instance, postgres, authority, server, client, ca, strange_ca }
    }

    /// The URL of a database at `host`.
    pub(crate) fn url(&self, database: &str, host: &str, parameters: &str) -> String {
        let url = self.instance.ready().database_url;
        let (server, _) = url.rsplit_once('/').unwrap();
        format!("{}/{database}?{parameters}", server.replace("127.0.0.1", host))
    }

    /// Creates a database that takes encrypted connections alone, under this rule.
    pub(crate) async fn create(&self, database: &str, rule: &str) {
        self.postgres.create(database).await;
        let rules =
            format!("hostssl {database} all all scram-sha-256 {rule}\nhostnossl {database} all all reject");
        self.postgres.demand(&rules).await;
    }

    /// Parameters of a URL that check all and show the client's certificate.
    fn full(&self) -> String {
        let CertificateFiles { certificate, key } = &self.client;
        format!(
            "sslmode=verify-full&sslrootcert={}&sslcert={}&sslkey={}",
            encoded(&self.ca),
            encoded(certificate),
            encoded(key)
        )
    }

    /// A configuration of NATS that demands TLS and a client's certificate.
    pub(crate) fn nats_tls(&self, server: &CertificateFiles) -> String {
        let CertificateFiles { certificate, key } = server;
        format!(
            "tls {{ cert_file: \"{certificate}\", key_file: \"{key}\", ca_file: \"{}\", verify: true }}",
            self.ca
        )
    }

    /// The flags that name the files of TLS to NATS.
    fn nats_flags(&self) -> [String; 3] {
        [
            format!("--nats-ca-file={}", self.ca),
            format!("--nats-cert-file={}", self.client.certificate),
            format!("--nats-key-file={}", self.client.key),
        ]
    }

    fn nats_options(&self, options: ConnectOptions) -> ConnectOptions {
        let CertificateFiles { certificate, key } = &self.client;
        options
            .add_root_certificates(self.ca.clone().into())
            .add_client_certificate(certificate.into(), key.into())
            .require_tls(true)
    }
}

/// Flags and variables of a command.
type Way<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)]);

/// Connects, and says whether the session is encrypted; or why it is refused.
async fn encrypted(url: &str) -> Result<bool, String> {
    let client = connect(url, Role::Owner).await.map_err(|error| redacted(&error))?;
    Ok(client.query_one(IS_ENCRYPTED, &[]).await.unwrap().get(0))
}

/// Asserts that a connection is refused for this reason.
async fn refused(url: &str, reason: &str) {
    let error = encrypted(url).await.expect_err(url);
    assert!(error.to_ascii_lowercase().contains(reason), "{url}: {error}");
}

/// The end of a command.
async fn output(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = tokio::process::Command::new(program());
    command.args(arguments).envs(variables.iter().copied()).stdin(Stdio::null()).kill_on_drop(true);
    command.output().await.unwrap()
}

/// The error of a command that must fail with this exit code.
pub(crate) async fn fails(arguments: &[&str], variables: &[(&str, &str)], code: i32) -> String {
    let output = output(arguments, variables).await;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
    error
}

#[test]
fn each_sslmode_checks_what_libpq_documents() {
    if !servers::has_own_postgres("changes the settings of Postgres") {
        return;
    }
    run(async {
        let scene = Scene::turn().await;
        scene.create("tls_modes", "").await;
        let (ca, strange) = (encoded(&scene.ca), encoded(&scene.strange_ca));
        let url = |host: &str, parameters: &str| scene.url("tls_modes", host, parameters);
        refused(&url("localhost", "sslmode=disable"), "no encryption").await;
        for (host, parameters) in [
            ("127.0.0.1", String::new()),
            ("127.0.0.1", "sslmode=prefer".to_owned()),
            ("127.0.0.1", "sslmode=require&channel_binding=require".to_owned()),
            ("127.0.0.1", format!("sslmode=require&sslrootcert={ca}")),
            ("127.0.0.1", format!("sslmode=verify-ca&sslrootcert={ca}")),
            ("localhost", format!("sslmode=verify-full&sslrootcert={ca}&channel_binding=require")),
        ] {
            assert_eq!(encrypted(&url(host, &parameters)).await, Ok(true), "{host} {parameters}");
        }
        let password = scene.instance.ready().database_url;
        let (_, password) = password.split_once("farthing:").unwrap();
        let (password, server) = password.split_once('@').unwrap();
        let port = server.split_once(':').unwrap().1.split_once('/').unwrap().0;
        let pairs = format!(
            "host=localhost port={port} user=farthing password={password} dbname=tls_modes sslmode=verify-full \
             sslrootcert='{}'",
            scene.ca
        );
        assert_eq!(encrypted(&pairs).await, Ok(true));

        for unknown in [
            format!("sslmode=verify-full&sslrootcert={strange}"),
            format!("sslmode=verify-ca&sslrootcert={strange}"),
            // As in libpq, a file of authorities makes `require` check them.
            format!("sslmode=require&sslrootcert={strange}"),
            // The machine's authorities.
            "sslmode=verify-full".to_owned(),
            "sslrootcert=system".to_owned(),
        ] {
            refused(&url("localhost", &unknown), "invalid peer certificate").await;
        }
        let full = format!("sslmode=verify-full&sslrootcert={ca}");
        refused(&url("127.0.0.1", &full), "not valid for name").await;
    });
}

#[test]
fn a_server_with_another_name_or_an_expired_certificate_is_refused() {
    if !servers::has_own_postgres("changes the settings of Postgres") {
        return;
    }
    run(async {
        let scene = Scene::turn().await;
        scene.create("tls_certificates", "").await;
        let ca = encoded(&scene.ca);
        let url =
            |mode: &str| scene.url("tls_certificates", "localhost", &format!("{mode}&sslrootcert={ca}"));
        let file = |name: &str| scene.instance.file(name);
        let other = scene.authority.issue(&file("other"), "other", &["db.example"], Validity::Now);
        scene.postgres.show(&other).await;
        refused(&url("sslmode=verify-full"), "not valid for name").await;
        assert_eq!(encrypted(&url("sslmode=verify-ca")).await, Ok(true));

        let expired = scene.authority.issue(&file("expired"), "expired", &["localhost"], Validity::Expired);
        scene.postgres.show(&expired).await;
        for mode in ["sslmode=verify-full", "sslmode=verify-ca", "sslmode=require"] {
            refused(&url(mode), "expired").await;
        }
        let unchecked = scene.url("tls_certificates", "localhost", "sslmode=require");
        assert_eq!(encrypted(&unchecked).await, Ok(true));
        let verify = fails(&["log", "verify", "--database-url", &url("sslmode=verify-full")], &[], 2).await;
        assert!(verify.contains("certificate expired"), "{verify}");

        scene.postgres.show(&scene.server).await;
        assert_eq!(encrypted(&url("sslmode=verify-full")).await, Ok(true));
    });
}

#[test]
fn a_database_that_demands_a_clients_certificate_gets_it() {
    if !servers::has_own_postgres("changes the settings of Postgres") {
        return;
    }
    run(async {
        let scene = Scene::turn().await;
        scene.create("tls_clients", "clientcert=verify-full").await;
        let stranger =
            scene.authority.issue(&scene.instance.file("stranger"), "stranger", &[], Validity::Now);
        let certified = |files: &CertificateFiles| {
            let (certificate, key) = (encoded(&files.certificate), encoded(&files.key));
            format!("sslmode=require&sslcert={certificate}&sslkey={key}")
        };
        let url = |parameters: &str| scene.url("tls_clients", "localhost", parameters);
        refused(&url("sslmode=require"), "valid client certificate").await;
        encrypted(&url(&certified(&stranger))).await.expect_err("another's certificate");
        assert_eq!(encrypted(&url(&certified(&scene.client))).await, Ok(true));
        let swapped =
            CertificateFiles { key: stranger.key.clone(), certificate: scene.client.certificate.clone() };
        let refused = fails(&["log", "verify", "--database-url", &url(&certified(&swapped))], &[], 2).await;
        assert!(refused.contains("sslcert and sslkey"), "{refused}");
    });
}

#[test]
fn a_call_is_forwarded_charged_shown_and_published_over_tls_alone() {
    if !servers::has_own_postgres("changes the settings of Postgres") {
        return;
    }
    run(async {
        let scene = Scene::turn().await;
        let instance = &scene.instance;
        scene.create("tls_call", "clientcert=verify-full").await;
        let url = scene.url("tls_call", "localhost", &format!("{}&channel_binding=require", scene.full()));
        operate(&url, &["migrate", "--mode", "test", "--partitions", "1"]).await;
        let merchant = operate(&url, &["merchant", "create"]).await;
        let secret_key = merchant["secret_key"].as_str().unwrap();
        let id = merchant["merchant_id"].as_str().unwrap();
        operate(&url, &["wallet", "credit", "--merchant", id, "--amount", "5", "--reason", "r"]).await;

        let users = "authorization { users: [{ user: farthing, password: \"pass\" }] }";
        let nats = NatsServer::start(instance, &format!("{}\n{users}", scene.nats_tls(&scene.server))).await;
        let login = ConnectOptions::with_user_and_password("farthing".to_owned(), "pass".to_owned());
        let outside =
            scene.nats_options(login).connect(format!("tls://localhost:{}", nats.port)).await.unwrap();
        let mut wake_ups = outside.subscribe("farthing.head.*").await.unwrap();
        outside.flush().await.unwrap();

        let nats_url = format!("tls://farthing:pass@localhost:{}", nats.port);
        let flags = scene.nats_flags();
        let flags = flags.each_ref().map(String::as_str);
        let servers = [&["--database-url", &url, "--nats-url", &nats_url][..], &flags].concat();
        let gateway = SideGateway::with(instance, &servers, &[LOCAL]).await;
        let _projector = SideProjector::with(instance, &servers).await;

        let post = async |path: &str, body: &serde_json::Value| {
            let request = Request::new("POST", path).json(body).bearer(secret_key);
            request.send(gateway.address).await.unwrap().expect(201)
        };
        let meter = json!({"name": "m", "rate_type": "fixed", "tier_type": "requests", "service_charge_payer": "merchant",
                "tiers": [{"start": 0, "rate": "1"}]});
        let meter = post("/v1/meters", &meter).await;
        let customer = post("/v1/customers", &json!({})).await;
        let connection = customer["customer_id"].as_str().unwrap();
        operate(&url, &["wallet", "credit", "--connection", connection, "--amount", "5", "--reason", "r"])
            .await;
        let bearer = token(&json!({"secret_key": secret_key, "customer_id": connection,
            "meter_slug": meter["meter_slug"]}));
        let endpoint = instance.provider.endpoint(|_| answer_json(200, &json!({})));
        let called = forward("GET", &endpoint.url).bearer(&bearer).send(gateway.address).await.unwrap();
        assert_eq!(called.status, 200, "{}", called.text());
        let show = Request::new("GET", format!("/v1/requests/{}", called.request_id())).bearer(secret_key);
        let shown = show.send(gateway.address).await.unwrap().expect(200);
        assert_eq!(
            (&shown["status"], &shown["total_wallet_cost"]),
            (&json!("completed"), &json!("1.0000000000"))
        );

        let next = tokio::time::timeout(farthing_tests::wait::DEADLINE, wake_ups.next()).await;
        assert!(next.is_ok_and(|message| message.is_some()), "there is a wake-up notification");
        let streams = jetstream::new(outside);
        eventually("the events are published", async || {
            let stream = streams.get_stream(feed::name(instance, 0)).await.ok()?;
            feed::end(&stream).await.filter(|position| *position >= 5)
        })
        .await;
    });
}

#[test]
fn a_nats_server_that_cannot_be_trusted_is_refused() {
    if !servers::has_own_postgres("changes the settings of Postgres") {
        return;
    }
    run(async {
        let scene = Scene::turn().await;
        let file = |name: &str| scene.instance.file(name);
        let other = scene.authority.issue(&file("nats-other"), "other", &["nats.example"], Validity::Now);
        let expired =
            scene.authority.issue(&file("nats-expired"), "expired", &["localhost"], Validity::Expired);
        let certificate = (scene.client.certificate.clone().into(), scene.client.key.clone().into());
        let trusting = |port: u16| NatsConfig {
            authorities: Some(scene.ca.clone().into()),
            certificate: Some(certificate.clone()),
            ..NatsConfig::at(format!("tls://localhost:{port}"))
        };
        let refused = async |config: NatsConfig, reason: &str| {
            let error = config.connect(|options| options).await.expect_err(reason).to_string();
            assert!(error.to_ascii_lowercase().contains(reason), "{reason}: {error}");
        };
        let server =
            async |shown: &CertificateFiles| NatsServer::start(&scene.instance, &scene.nats_tls(shown)).await;
        let good = server(&scene.server).await;
        trusting(good.port).connect(|options| options).await.unwrap();
        let by_number = NatsConfig { urls: format!("tls://127.0.0.1:{}", good.port), ..trusting(0) };
        refused(by_number, "not valid for name").await;
        refused(
            NatsConfig { authorities: Some(scene.strange_ca.clone().into()), ..trusting(good.port) },
            "invalid peer certificate",
        )
        .await;
        refused(NatsConfig { authorities: None, ..trusting(good.port) }, "invalid peer certificate").await;
        let without = NatsConfig { certificate: None, ..trusting(good.port) };
        without.connect(|options| options).await.expect_err("no certificate of the client");
        // Naming authorities demands TLS, whatever the scheme says.
        let scheme = NatsConfig { urls: format!("nats://localhost:{}", good.port), ..trusting(0) };
        scheme.connect(|options| options).await.unwrap();
        refused(trusting(server(&other).await.port), "not valid for name").await;
        refused(trusting(server(&expired).await.port), "expired").await;
    });
}

#[test]
fn a_gateway_and_a_projector_publish_with_an_nkey_and_with_credentials() {
    if !servers::has_own_postgres("changes the settings of Postgres") {
        return;
    }
    run(async {
        let scene = Scene::turn().await;
        let instance = &scene.instance;
        scene.postgres.create("tls_logins").await;
        let url = scene.url("tls_logins", "127.0.0.1", "");
        operate(&url, &["migrate", "--mode", "test", "--partitions", "1"]).await;
        let (public, seed) = nkey();
        let (accounts, credentials) = credentials();
        let nkeys = format!("authorization {{ users: [{{ nkey: {public} }}] }}");
        let (seed, credentials) = (instance.secret_file(&seed), instance.secret_file(&credentials));
        for (flag, file, configuration, login) in [
            ("--nats-nkey-file", &seed, &nkeys, Login::Nkey(seed.clone().into())),
            (
                "--nats-credentials-file",
                &credentials,
                &accounts,
                Login::Credentials(credentials.clone().into()),
            ),
        ] {
            let nats = NatsServer::start(instance, configuration).await;
            let nats_url = format!("nats://127.0.0.1:{}", nats.port);
            let anyone = NatsConfig::at(nats_url.as_str());
            anyone.connect(|options| options).await.expect_err("a login is needed");
            let client = NatsConfig { login, ..anyone }.connect(|options| options).await.unwrap();
            let mut wake_ups = client.subscribe(feed::wake_up(instance, 0)).await.unwrap();
            client.flush().await.unwrap();
            let servers = ["--database-url", &url, "--nats-url", &nats_url, flag, file];
            // Without a projector: the gateway alone sends wake-up notifications.
            let gateway = SideGateway::with(instance, &servers, &[]).await;
            operate(&url, &["merchant", "create"]).await;
            let next = tokio::time::timeout(farthing_tests::wait::DEADLINE, wake_ups.next()).await;
            assert!(next.is_ok_and(|message| message.is_some()), "{flag}: {}", gateway.logged());

            let projector = SideProjector::with(instance, &servers).await;
            let streams = jetstream::new(client);
            eventually_ok("the events are published", async || {
                let end = async || feed::end(&streams.get_stream(feed::name(instance, 0)).await.ok()?).await;
                end().await.ok_or_else(|| format!("{flag}: {}\n{}", projector.logged(), nats.logged()))
            })
            .await;
        }
    });
}

#[test]
fn secrets_come_from_files_and_variables() {
    if !servers::has_own_postgres("changes the settings of Postgres") {
        return;
    }
    run(async {
        let scene = Scene::turn().await;
        let instance = &scene.instance;
        scene.create("tls_files", "clientcert=verify-full").await;
        let url = scene.url("tls_files", "localhost", &scene.full());
        operate(&url, &["migrate", "--mode", "test"]).await;
        operate(&url, &["merchant", "create"]).await;
        let (login, rest) = url.split_once('@').unwrap();
        let (user, password) = login.rsplit_once(':').unwrap();
        let bare = format!("{user}@{rest}");
        let passwords = instance.secret_file(&format!("# ours\nlocalhost:*:tls_files:farthing:{password}"));
        let whole = instance.secret_file(&url);
        let list = ["merchant", "list", "--json"];
        let refused = fails(&[&list[..], &["--database-url", &bare]].concat(), &[], 1).await;
        assert!(refused.contains("password missing"), "{refused}");
        let by_parameter = format!("{bare}&passfile={}", encoded(&passwords));
        let ways: [Way<'_>; 5] = [
            (&["--database-url-file", &whole], &[]),
            (&[], &[("FARTHING_DATABASE_URL_FILE", &whole)]),
            (&["--database-url", &bare], &[("PGPASSWORD", password)]),
            (&["--database-url", &bare], &[("PGPASSFILE", &passwords)]),
            (&["--database-url", &by_parameter], &[]),
        ];
        for (flags, variables) in ways {
            let listed = output(&[&list[..], flags].concat(), variables).await;
            assert!(listed.status.success(), "{flags:?}: {}", String::from_utf8_lossy(&listed.stderr));
        }

        // A command line is visible to every user of the machine.
        let key = "ab".repeat(32);
        for flag in [format!("--server-key={key}"), format!("--provider-key=openai={key}")] {
            let refused = fails(&["gateway", "--database-url", &bare, &flag], &[], 2).await;
            assert!(refused.contains("-file") && !refused.contains("abab"), "{refused}");
        }
        // The password of NATS is one that no server knows: a gateway serves without the feed.
        let nats =
            instance.secret_file(&instance.ready().nats_url.replace("nats://", "nats://user:nats-password@"));
        let gateway = SideGateway::with(
            instance,
            &["--database-url-file", &whole, "--nats-url-file", &nats],
            &[&instance.provider_key("openai", "sk-in-a-file"), LOCAL],
        )
        .await;
        let mut ps = tokio::process::Command::new("ps");
        let shown = ps.args(["-ww", "-o", "args=", "-p", &gateway.pid().to_string()]).output().await.unwrap();
        let shown = String::from_utf8_lossy(&shown.stdout);
        assert!(shown.contains("--database-url-file") && !shown.contains(password), "{shown}");
        assert!(!shown.contains("sk-in-a-file") && !shown.contains("nats-password"), "{shown}");
        let both =
            ["--database-url-file", &whole, "--nats-url-file", &nats, "--nats-url", "nats://127.0.0.1:1"];
        let refused = fails(&[&["gateway"], &both[..]].concat(), &[], 2).await;
        assert!(refused.contains("--nats-url-file") && !refused.contains("nats-password"), "{refused}");
    });
}

#[test]
fn wrong_settings_end_a_process_at_its_start_by_name() {
    if !servers::has_own_postgres("changes the settings of Postgres") {
        return;
    }
    run(async {
        let scene = Scene::turn().await;
        let url = scene.instance.ready().database_url;
        let missing = "/nowhere/at/all.pem";
        let database = |parameters: &str| vec![format!("--database-url={url}?{parameters}")];
        let nats = |flag: &str, file: &str| {
            vec![
                format!("--database-url={url}"),
                "--nats-url=nats://127.0.0.1:1".to_owned(),
                format!("{flag}={file}"),
            ]
        };
        let certificate = &scene.client.certificate;
        for (flags, said) in [
            (database("sslmode=full"), "sslmode must be"),
            (database("sslmode=verify-ca"), "sslmode=verify-ca needs sslrootcert"),
            (database(&format!("sslrootcert={missing}")), "sslrootcert: /nowhere/at/all.pem"),
            (database(&format!("sslcert={missing}")), "sslcert needs sslkey"),
            (database(&format!("sslcert={missing}&sslkey={missing}")), "sslcert: /nowhere/at/all.pem"),
            (
                database(&format!("sslcert={}&sslkey={missing}", encoded(certificate))),
                "sslkey: /nowhere/at/all.pem",
            ),
            (database(&format!("sslcert={0}&sslkey={0}", encoded(certificate))), "sslkey: "),
            (nats("--nats-ca-file", missing), "nats-ca-file: /nowhere/at/all.pem"),
            (nats("--nats-nkey-file", missing), "nats-nkey-file: /nowhere/at/all.pem"),
            (nats("--nats-nkey-file", certificate), "nats-nkey-file: "),
            (nats("--nats-credentials-file", certificate), "nats-credentials-file: "),
        ] {
            let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
            for role in [&["projector"][..], &["gateway", "--listen=127.0.0.1:0"]] {
                let error = fails(&[role, &flags].concat(), &[], 1).await;
                assert!(error.contains(said), "{flags:?}: {error}");
            }
        }
        let alone = ["projector", "--database-url", &url, "--nats-ca-file", &scene.ca];
        assert!(fails(&alone, &[], 1).await.contains("need --nats-url"));
        let half = ["projector", "--database-url", &url, "--nats-cert-file", certificate];
        assert!(fails(&half, &[], 2).await.contains("--nats-key-file"));
    });
}
