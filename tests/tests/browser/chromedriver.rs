//! The processes of the browser tests: `chromedriver` and the headless Chromium that it starts.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fantoccini::{Client, ClientBuilder};
use farthing_tests::wait::within;
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};

/// A shell script that runs the driver until stdin closes, which happens when the test process ends. Then it kills the
/// browser, which would outlive its driver, and the driver, each by its process id, and removes their folder. A browser
/// process that is still exiting can create the folder again, so the removal is repeated.
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

/// The program names of Chromium.
const BROWSERS: [&str; 3] = ["chromium", "google-chrome", "chrome"];

/// The text before the port in the driver's log line that reports that it listens.
const LISTENS: &str = "started successfully on port ";

/// The limit on the start of the driver; generous, because other builds may run on the machine.
const START_TIMEOUT: Duration = Duration::from_mins(2);

/// Chromium's arguments. Its sandbox does not work as root or in most containers; it is not needed, because the tests
/// load only our own pages. Background requests are disabled.
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

/// A `WebDriver` session with a browser. Driver and browser end with this test process.
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

/// The path of a program, searched in `PATH`.
fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|found| found.exists())
}
