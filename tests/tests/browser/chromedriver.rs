//! The processes behind the browser tests: `chromedriver`, and the Chromium without a window that it starts.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fantoccini::{Client, ClientBuilder};
use farthing_tests::wait::within;
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};

/// Runs the driver until stdin closes, which means that the test process has ended. Then ends the browser, which
/// outlives its driver otherwise, and the driver, each by its id. Both write into the folder alone; a part of the browser
/// that is still ending may write there once more, so the folder is removed until it stays away.
const KEEPER: &str = r#"
HOME="$FOLDER" TMPDIR="$FOLDER" "$@" </dev/null >"$FOLDER/driver.log" 2>&1 &
driver=$!
trap '' TERM INT
read -r word
[ ! -s "$FOLDER/browser.pid" ] || kill -KILL "$(cat "$FOLDER/browser.pid")" 2>/dev/null
kill -TERM "$driver" 2>/dev/null
wait "$driver"
tries=0
while [ -e "$FOLDER" ] && [ "$tries" -lt 25 ]; do
    rm -rf "$FOLDER"
    tries=$((tries + 1))
    sleep 0.2
done
"#;

/// The names that Chromium is installed under.
const BROWSERS: [&str; 3] = ["chromium", "google-chrome", "chrome"];

/// The driver's log line once it listens, up to the port.
const LISTENS: &str = "started successfully on port ";

/// How long the driver may take to listen, on a machine that builds at the same time.
const START_TIMEOUT: Duration = Duration::from_mins(2);

/// Chromium refuses to run as root with its sandbox, and a container has not the namespaces that the sandbox needs. The
/// tests show our own pages alone. Background requests are off, so that only what a test asks for goes out.
const ARGUMENTS: [&str; 8] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--lang=en",
];

/// A `WebDriver` session with a browser. Both processes end with this test process.
#[derive(Debug)]
pub(crate) struct Browser {
    pub(crate) client: Client,
    _keeper: Child,
}

impl Browser {
    pub(crate) async fn start() -> Self {
        let program = BROWSERS.into_iter().find_map(on_path);
        let (Some(program), Some(_)) = (program, on_path("chromedriver")) else {
            panic!(
                "Chromium or its chromedriver is missing: `sh deploy/install.sh conformance` installs them or says how"
            );
        };
        let folder = std::env::temp_dir().join(format!("farthing-browser-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
        let keeper = Command::new("sh")
            .args(["-c", KEEPER, "keeper", "chromedriver", "--port=0"])
            .env("FOLDER", &folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh can be run");
        let log = folder.join("driver.log");
        let port: u16 = within(START_TIMEOUT, "the driver listens", async || {
            let log = std::fs::read_to_string(&log).ok()?;
            let (_, port) = log.split_once(LISTENS)?;
            port.lines().next()?.trim_end_matches('.').parse().ok()
        })
        .await;
        let Value::Object(capabilities) = json!({
            "browserName": "chrome",
            "goog:chromeOptions": {"binary": program, "args": ARGUMENTS},
            "goog:loggingPrefs": {"browser": "ALL"},
        }) else {
            unreachable!("an object was written")
        };
        let client = ClientBuilder::new(HttpConnector::new())
            .capabilities(capabilities)
            .connect(&format!("http://127.0.0.1:{port}"))
            .await
            .expect("the driver starts a browser");
        let pid = &client.capabilities().expect("the session was made here")["goog:processID"];
        std::fs::write(folder.join("browser.pid"), pid.to_string()).unwrap();
        Self { client, _keeper: keeper }
    }
}

/// The program of this name, as a shell would find it.
fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|found| found.exists())
}
