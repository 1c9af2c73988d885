//! A Prometheus server of a test's own, which scrapes processes of an instance and evaluates rules.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::client::Request;
use crate::instance::Instance;
use crate::merchant::encoded;
use crate::server_process::{End, ServerProcess, User, free_port};

/// A running Prometheus, on the loopback.
pub struct Prometheus {
    _process: ServerProcess,
    address: SocketAddr,
}

/// Whether Prometheus and its tool are installed.
pub fn is_installed() -> bool {
    ["prometheus", "promtool"].into_iter().all(|program| {
        let asked =
            Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        asked.is_ok_and(|ended| ended.success())
    })
}

/// Runs `promtool` on this input; panics with its output if it finds an error.
pub fn promtool(arguments: &[&str], input: &str) {
    let mut tool = Command::new("promtool")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool can be run");
    tool.stdin.take().expect("it reads").write_all(input.as_bytes()).expect("it reads all");
    let output = tool.wait_with_output().expect("a child can be waited for");
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    assert!(output.status.success(), "promtool {arguments:?}: {}{}", said[0], said[1]);
}

impl Prometheus {
    /// Starts one that scrapes `targets` twice a second and evaluates the rules of a file every second.
    pub async fn start(instance: &Instance, targets: &[SocketAddr], rules: &Path) -> Self {
        let folder = instance.file("prometheus");
        std::fs::create_dir(&folder).expect("a folder can be made");
        // JSON is YAML.
        let targets: Vec<String> = targets.iter().map(ToString::to_string).collect();
        let config = json!({
            "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "1s"},
            "rule_files": [rules],
            "scrape_configs": [{"job_name": "farthing", "static_configs": [{"targets": targets}]}],
        });
        std::fs::write(folder.join("prometheus.yml"), config.to_string()).expect("a file can be written");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let arguments = [
            format!("--config.file={}", folder.join("prometheus.yml").display()),
            format!("--storage.tsdb.path={}", folder.join("data").display()),
            format!("--web.listen-address={address}"),
        ];
        let program = Path::new("prometheus");
        let process = ServerProcess::start(&folder, User::OfTheTest, End::Terminate, program, arguments);
        process
            .ready("Prometheus is ready", async || {
                let ready = Request::new("GET", "/-/ready").send(address).await.ok()?;
                (ready.status == 200).then_some(())
            })
            .await;
        Self { _process: process, address }
    }

    /// The data of an answer of its API; panics if it is an error.
    pub async fn ask(&self, path: &str) -> Value {
        let response = Request::new("GET", path).send(self.address).await;
        let answer = response.unwrap_or_else(|error| panic!("{path}: {error}")).json();
        assert_eq!(answer["status"], "success", "{path}: {answer}");
        answer["data"].clone()
    }

    /// The series that an expression selects now.
    pub async fn query(&self, expression: &str) -> Vec<Value> {
        let data = self.ask(&format!("/api/v1/query?query={}", encoded(expression))).await;
        data["result"].as_array().expect("a vector").clone()
    }

    /// The series that an expression gives from `start` to `end`, in seconds since 1970, every second.
    pub async fn range(&self, expression: &str, (start, end): (f64, f64)) -> Vec<Value> {
        let query = encoded(expression);
        let path = format!("/api/v1/query_range?query={query}&start={start}&end={end}&step=1");
        self.ask(&path).await["result"].as_array().expect("a matrix").clone()
    }
}
