//! A tab of the shared browser, driven over `WebDriver`.
//!
//! All tests of this binary share one browser. One test at a time uses it, in its own tab.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fantoccini::actions::{
    ActionSequence, InputSource as _, KeyAction, KeyActions, MOUSE_BUTTON_LEFT, MouseActions, PointerAction,
};
use fantoccini::elements::Element;
use fantoccini::wd::{Locator, WebDriverCompatibleCommand, WindowHandle};
use farthing_tests::wait::eventually;
use http::Method;
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard, OnceCell};
use url::Url;

use crate::chromedriver::Browser;

/// The emulated device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Device {
    /// 390 CSS pixels wide, with touch.
    Phone,
    /// 1280 CSS pixels wide, with a mouse.
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

/// A `WebDriver` command without a method in the library, at a path below the session.
#[derive(Debug)]
struct Extension {
    path: String,
    /// The body of a POST; the command is a GET if there is none.
    body: Option<Value>,
}

impl WebDriverCompatibleCommand for Extension {
    fn endpoint(&self, driver: &Url, session: Option<&str>) -> Result<Url, url::ParseError> {
        driver.join(&format!("session/{}/{}", session.unwrap_or_default(), self.path))
    }

    fn method_and_body(&self, _: &Url) -> (Method, Option<String>) {
        match &self.body {
            Some(body) => (Method::POST, Some(body.to_string())),
            None => (Method::GET, None),
        }
    }
}

/// A tab of the browser. No other test uses the browser while this exists.
pub(crate) struct Window {
    browser: MutexGuard<'static, Browser>,
}

impl Window {
    /// Opens a tab and closes all others.
    pub(crate) async fn open(device: Device) -> Self {
        static SHARED: OnceCell<Mutex<Browser>> = OnceCell::const_new();
        let shared = SHARED.get_or_init(async || Mutex::new(Browser::start().await)).await;
        let window = Self { browser: shared.lock().await };
        let old = window.tabs().await;
        let new = window.browser.client.new_window(true).await.unwrap().handle;
        for tab in old {
            window.switch(&tab).await;
            window.browser.client.close_window().await.unwrap();
        }
        window.switch(&new).await;
        window.log().await;
        window.set_device(device).await;
        // A headless tab counts as a background tab, which has no focus, unless focus is emulated.
        window.devtools("Emulation.setFocusEmulationEnabled", json!({"enabled": true})).await;
        window
    }

    async fn extension(&self, path: String, body: Option<Value>) -> Value {
        let name = path.clone();
        let answer = self.browser.client.issue_cmd(Extension { path, body }).await;
        answer.unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Runs a `DevTools` command for this tab.
    pub(crate) async fn devtools(&self, command: &str, parameters: Value) -> Value {
        let body = json!({"cmd": command, "params": parameters});
        self.extension("goog/cdp/execute".to_owned(), Some(body)).await
    }

    /// All open tabs.
    pub(crate) async fn tabs(&self) -> Vec<WindowHandle> {
        self.browser.client.windows().await.unwrap()
    }

    /// Directs the following commands to this tab.
    pub(crate) async fn switch(&self, tab: &WindowHandle) {
        self.browser.client.switch_to_window(tab.clone()).await.unwrap();
    }

    /// Emulates this device from now on.
    pub(crate) async fn set_device(&self, device: Device) {
        let (width, height, is_phone) = match device {
            Device::Phone => (390, 844, true),
            Device::Desk => (1280, 900, false),
        };
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone});
        self.devtools("Emulation.setDeviceMetricsOverride", metrics).await;
        self.devtools("Emulation.setTouchEmulationEnabled", json!({"enabled": is_phone})).await;
    }

    /// Loads `url`.
    pub(crate) async fn visit(&self, url: &str) {
        self.browser.client.goto(url).await.unwrap_or_else(|error| panic!("{url}: {error}"));
    }

    /// Runs `script` and returns its value.
    pub(crate) async fn run(&self, script: &str) -> Value {
        let value = self.browser.client.execute(script, Vec::new()).await;
        value.unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    /// Waits for an element that matches the CSS selector.
    pub(crate) async fn find(&self, selector: &str) -> Element {
        // Any error is retried: during a navigation there are others than "no such element".
        eventually(selector, async || self.browser.client.find(Locator::Css(selector)).await.ok()).await
    }

    /// All elements that match the CSS selector now.
    pub(crate) async fn all(&self, selector: &str) -> Vec<Element> {
        self.browser.client.find_all(Locator::Css(selector)).await.unwrap()
    }

    /// The role and the name of an element for assistive technology.
    pub(crate) async fn accessible(&self, element: &Element) -> (String, String) {
        let id = element.element_id();
        let role = self.extension(format!("element/{id}/computedrole"), None).await;
        let name = self.extension(format!("element/{id}/computedlabel"), None).await;
        (role.as_str().unwrap().to_owned(), name.as_str().unwrap().to_owned())
    }

    /// The visible text of an element.
    pub(crate) async fn text(&self, selector: &str) -> String {
        self.find(selector).await.text().await.unwrap()
    }

    /// Directs the following commands to the page in the only frame.
    pub(crate) async fn enter_frame(&self) {
        self.find("iframe").await.enter_frame().await.unwrap();
    }

    /// Directs the following commands to the page that contains the frame.
    pub(crate) async fn leave_frame(&self) {
        self.browser.client.enter_parent_frame().await.unwrap();
    }

    /// Replaces the text of a field.
    pub(crate) async fn fill(&self, selector: &str, text: &str) {
        let field = self.find(selector).await;
        field.clear().await.unwrap();
        field.send_keys(text).await.unwrap();
    }

    /// Clicks an element.
    pub(crate) async fn click(&self, selector: &str) {
        let element = self.find(selector).await;
        element.click().await.unwrap_or_else(|error| panic!("{selector}: {error}"));
    }

    /// Double-clicks an element.
    pub(crate) async fn click_twice(&self, selector: &str) {
        self.run(&format!("document.querySelector('{selector}').scrollIntoView({{block: 'center'}})")).await;
        let element = self.find(selector).await;
        let there = PointerAction::MoveToElement { element, duration: None, x: 0.0, y: 0.0 };
        let (down, up) = (
            PointerAction::Down { button: MOUSE_BUTTON_LEFT },
            PointerAction::Up { button: MOUSE_BUTTON_LEFT },
        );
        let steps = [there, down.clone(), up.clone(), down, up];
        let mouse = steps.into_iter().fold(MouseActions::new("mouse".to_owned()), MouseActions::then);
        self.perform(mouse).await;
    }

    /// Presses keys in the focused element.
    pub(crate) async fn press(&self, keys: &str) {
        let strokes = keys.chars().flat_map(|value| [KeyAction::Down { value }, KeyAction::Up { value }]);
        let keys = strokes.fold(KeyActions::new("keys".to_owned()), KeyActions::then);
        self.perform(keys).await;
    }

    async fn perform(&self, actions: impl Into<ActionSequence>) {
        self.browser.client.perform_actions(actions.into()).await.unwrap();
    }

    /// The id of the element with the focus, or the type of a button without an id.
    pub(crate) async fn focus(&self) -> String {
        let focus = self.run("return document.activeElement.id || document.activeElement.type || ''").await;
        focus.as_str().unwrap_or_default().to_owned()
    }

    /// The browser's log since the last call: errors, warnings, violations of a policy.
    pub(crate) async fn log(&self) -> Vec<String> {
        let entries = self.extension("se/log".to_owned(), Some(json!({"type": "browser"}))).await;
        let entries = entries.as_array().unwrap().iter();
        entries.map(|entry| entry["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Writes a screenshot of the whole page to `target/screenshots`.
    pub(crate) async fn picture(&self, name: &str) {
        let png = self.devtools("Page.captureScreenshot", json!({"captureBeyondViewport": true})).await;
        let png = STANDARD.decode(png["data"].as_str().unwrap()).unwrap();
        let folder = screenshots();
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(format!("{name}.png")), png).unwrap();
    }
}

fn screenshots() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target"));
    target.join("screenshots")
}
