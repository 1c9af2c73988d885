//! A real browser: Chromium without a window, driven over `WebDriver` by its own `chromedriver`.
//!
//! One process of each for all tests of this binary, ended with it; a test has the browser to itself, in a tab of its own.
//! `WebDriver` is a few calls of JSON, and half of what these tests ask for (computed names, the browser's log, `DevTools`) no
//! client library wraps, while the best known one brings some twenty crates: so the harness's HTTP client speaks it.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use farthing_tests::client::Request;
use farthing_tests::wait::{eventually, within};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

/// Runs the driver until stdin closes (the test process has ended), and then ends the browser, which outlives its driver
/// otherwise, and the driver, each by its id. Whatever either of them leaves is in the folder; parts of the browser that are
/// still ending may write there once more.
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

/// What the browser may be called.
const BROWSERS: [&str; 3] = ["chromium", "google-chrome", "chrome"];

/// What the driver says once it listens, before the port.
const LISTENS: &str = "started successfully on port ";

/// What `WebDriver` calls an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A machine that builds beside it is slow.
const START_TIMEOUT: Duration = Duration::from_mins(2);

/// The tabulator key.
pub(crate) const TAB: &str = "\u{E004}";

/// The enter key.
pub(crate) const ENTER: &str = "\u{E007}";

/// What the page is looked at on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Device {
    /// 390 CSS pixels wide, touched.
    Phone,
    /// 1280 wide, with a mouse.
    Desk,
}

impl Device {
    pub(crate) const BOTH: [Self; 2] = [Self::Phone, Self::Desk];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Phone => "phone",
            Self::Desk => "desk",
        }
    }
}

/// A browser.
struct Browser {
    driver: SocketAddr,
    session: String,
    _keeper: Child,
}

/// A tab of the browser, which nobody else has meanwhile.
pub(crate) struct Window {
    browser: MutexGuard<'static, Browser>,
}

impl Browser {
    async fn shared() -> MutexGuard<'static, Self> {
        static SHARED: OnceCell<Mutex<Browser>> = OnceCell::const_new();
        SHARED.get_or_init(async || Mutex::new(Self::start().await)).await.lock().await
    }

    async fn start() -> Self {
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
        let said = folder.join("driver.log");
        let port: u16 = within(START_TIMEOUT, "the driver listens", async || {
            let said = std::fs::read_to_string(&said).ok()?;
            let (_, port) = said.split_once(LISTENS)?;
            port.lines().next()?.trim_end_matches('.').parse().ok()
        })
        .await;
        let driver = SocketAddr::from(([127, 0, 0, 1], port));
        let mut browser = Self { driver, session: String::new(), _keeper: keeper };
        // Chromium refuses to run as root with its sandbox, and a container gives nobody the namespaces that it needs. What
        // is shown here are our own pages alone. Nothing goes out that no test asks for.
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--no-first-run",
            "--lang=en",
        ];
        let capabilities = json!({
            "browserName": "chrome",
            "goog:chromeOptions": {"binary": program, "args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
        });
        let wanted = json!({"capabilities": {"alwaysMatch": capabilities}});
        let made = browser.ask("POST", "/session", &wanted).await;
        made["sessionId"].as_str().expect("a session has an id").clone_into(&mut browser.session);
        let pid = &made["capabilities"]["goog:processID"];
        std::fs::write(folder.join("browser.pid"), pid.to_string()).unwrap();
        browser
    }

    async fn try_ask(&self, method: &str, path: &str, body: &Value) -> Result<Value, Value> {
        let request = Request::new(method, path);
        let request = if method == "POST" { request.json(body) } else { request };
        let answer = request.send(self.driver).await.expect("the driver answers");
        let value = answer.json()["value"].clone();
        if answer.status == 200 { Ok(value) } else { Err(value) }
    }

    async fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let answer = self.try_ask(method, path, body).await;
        answer.unwrap_or_else(|error| panic!("{method} {path} {body}: {}", error["message"]))
    }
}

impl Window {
    /// A new tab; all others are closed.
    pub(crate) async fn open(device: Device) -> Self {
        let window = Self { browser: Browser::shared().await };
        let old = window.tabs().await;
        let made = window.post("window/new", json!({"type": "tab"})).await;
        for tab in old {
            window.switch(&tab).await;
            window.delete("window").await;
        }
        window.switch(made["handle"].as_str().unwrap()).await;
        window.log().await;
        window.on(device).await;
        // A tab without a screen takes itself for one in the background, and shows no focus.
        window.devtools("Emulation.setFocusEmulationEnabled", json!({"enabled": true})).await;
        window
    }

    fn path(&self, rest: &str) -> String {
        format!("/session/{}/{rest}", self.browser.session)
    }

    async fn post(&self, rest: &str, body: Value) -> Value {
        self.browser.ask("POST", &self.path(rest), &body).await
    }

    async fn get(&self, rest: &str) -> Value {
        self.browser.ask("GET", &self.path(rest), &Value::Null).await
    }

    async fn delete(&self, rest: &str) -> Value {
        self.browser.ask("DELETE", &self.path(rest), &Value::Null).await
    }

    /// A command of the browser's `DevTools`, for this tab.
    pub(crate) async fn devtools(&self, command: &str, parameters: Value) -> Value {
        self.post("goog/cdp/execute", json!({"cmd": command, "params": parameters})).await
    }

    /// The tabs there are.
    pub(crate) async fn tabs(&self) -> Vec<String> {
        let tabs = self.get("window/handles").await;
        tabs.as_array().unwrap().iter().map(|tab| tab.as_str().unwrap().to_owned()).collect()
    }

    /// What follows is about this tab.
    pub(crate) async fn switch(&self, tab: &str) {
        self.post("window", json!({"handle": tab})).await;
    }

    /// The page is seen on this device from now on.
    pub(crate) async fn on(&self, device: Device) {
        let (width, height, is_phone) = match device {
            Device::Phone => (390, 844, true),
            Device::Desk => (1280, 900, false),
        };
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone});
        self.devtools("Emulation.setDeviceMetricsOverride", metrics).await;
        self.devtools("Emulation.setTouchEmulationEnabled", json!({"enabled": is_phone})).await;
    }

    /// Goes to `url`.
    pub(crate) async fn go(&self, url: &str) {
        self.post("url", json!({"url": url})).await;
    }

    /// What `script` returns.
    pub(crate) async fn run(&self, script: &str) -> Value {
        self.post("execute/sync", json!({"script": script, "args": []})).await
    }

    /// Waits for the element of this CSS selector.
    pub(crate) async fn find(&self, selector: &str) -> String {
        let wanted = json!({"using": "css selector", "value": selector});
        let path = self.path("element");
        eventually(selector, async || {
            let found = self.browser.try_ask("POST", &path, &wanted).await.ok()?;
            found[ELEMENT].as_str().map(str::to_owned)
        })
        .await
    }

    /// All elements of this CSS selector, as they are now.
    pub(crate) async fn all(&self, selector: &str) -> Vec<String> {
        let found = self.post("elements", json!({"using": "css selector", "value": selector})).await;
        let found = found.as_array().unwrap().iter();
        found.map(|element| element[ELEMENT].as_str().unwrap().to_owned()).collect()
    }

    /// What the browser tells assistive technology of an element: its role and its name.
    pub(crate) async fn told(&self, element: &str) -> (String, String) {
        let role = self.get(&format!("element/{element}/computedrole")).await;
        let name = self.get(&format!("element/{element}/computedlabel")).await;
        (role.as_str().unwrap().to_owned(), name.as_str().unwrap().to_owned())
    }

    /// Is an element seen?
    pub(crate) async fn is_seen(&self, element: &str) -> bool {
        self.get(&format!("element/{element}/displayed")).await == json!(true)
    }

    /// The text of an element, as it is seen.
    pub(crate) async fn text(&self, selector: &str) -> String {
        let element = self.find(selector).await;
        self.get(&format!("element/{element}/text")).await.as_str().unwrap().to_owned()
    }

    /// What follows is about the page in the only frame.
    pub(crate) async fn enter_frame(&self) {
        let frame = self.find("iframe").await;
        self.post("frame", json!({"id": {ELEMENT: frame}})).await;
    }

    /// Back to the page around the frame.
    pub(crate) async fn leave_frame(&self) {
        self.post("frame", json!({"id": null})).await;
    }

    /// Types into a field, in place of what is in it.
    pub(crate) async fn fill(&self, selector: &str, text: &str) {
        let field = self.find(selector).await;
        self.post(&format!("element/{field}/clear"), json!({})).await;
        self.post(&format!("element/{field}/value"), json!({"text": text})).await;
    }

    /// Clicks.
    pub(crate) async fn click(&self, selector: &str) {
        let element = self.find(selector).await;
        self.post(&format!("element/{element}/click"), json!({})).await;
    }

    /// Clicks twice, as fast as it goes.
    pub(crate) async fn click_twice(&self, selector: &str) {
        self.run(&format!("document.querySelector('{selector}').scrollIntoView({{block: 'center'}})")).await;
        let element = self.find(selector).await;
        let there = json!({"type": "pointerMove", "origin": {ELEMENT: element}, "x": 0, "y": 0});
        let (down, up) =
            (json!({"type": "pointerDown", "button": 0}), json!({"type": "pointerUp", "button": 0}));
        let steps = json!([there, down, up, down, up]);
        let mouse = json!({"type": "pointer", "id": "mouse", "actions": steps});
        self.post("actions", json!({"actions": [mouse]})).await;
    }

    /// Presses keys, wherever the focus is.
    pub(crate) async fn press(&self, keys: &str) {
        let strokes = keys.chars().flat_map(|key| {
            let key = key.to_string();
            [json!({"type": "keyDown", "value": key}), json!({"type": "keyUp", "value": key})]
        });
        let strokes: Vec<_> = strokes.collect();
        self.post("actions", json!({"actions": [{"type": "key", "id": "keys", "actions": strokes}]})).await;
    }

    /// The id of what has the focus, or the type of a button that has none.
    pub(crate) async fn focus(&self) -> String {
        let focus = self.run("return document.activeElement.id || document.activeElement.type || ''").await;
        focus.as_str().unwrap_or_default().to_owned()
    }

    /// What the browser has to say since it was asked last: errors, warnings, violations of a policy.
    pub(crate) async fn log(&self) -> Vec<String> {
        let said = self.post("se/log", json!({"type": "browser"})).await;
        let said = said.as_array().unwrap().iter();
        said.map(|entry| entry["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// The whole page is kept as a picture under `target/screenshots`.
    pub(crate) async fn picture(&self, name: &str) {
        let png = self.devtools("Page.captureScreenshot", json!({"captureBeyondViewport": true})).await;
        let png = STANDARD.decode(png["data"].as_str().unwrap()).unwrap();
        let folder = screenshots();
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(format!("{name}.png")), png).unwrap();
    }
}

/// The program of this name, as the shell would find it.
fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|found| found.exists())
}

fn screenshots() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target"));
    target.join("screenshots")
}
