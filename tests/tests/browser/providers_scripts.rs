//! A provider's pages and scripts in a browser that also opens the checkout of another merchant: they do not run on the
//! gateway's origin, and could not reach the checkout from there.

use std::net::SocketAddr;

use farthing_tests::client::Request;
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::{Endpoint, whole};
use farthing_tests::run;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::eventually;
use farthing_tests::wire::Wire;
use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt as _, copy};
use tokio::net::{TcpListener, TcpStream};

use crate::merchant_app::Checkout;
use crate::window::{Device, Window};

/// A service worker that answers every navigation with a page of its own, and passes its scope on to all open pages.
const WORKER: &str = "
    oninstall = () => skipWaiting();
    onactivate = (event) => event.waitUntil(clients.claim());
    onfetch = (event) => {
      if (event.request.mode !== 'navigate') return;
      const page = '<!doctype html><title>INJECTED</title><input id=card_number>';
      event.respondWith(new Response(page, {headers: {'Content-Type': 'text/html'}}));
    };";

/// A page that shows an image, and runs a script that shows another one and reports what becomes of `WORKER`.
const PAGE: &str = "<!doctype html><title>A provider</title><img src='SHOWN'><script>
    document.write('<img src=RAN>');
    const report = (text) => fetch('REPORT?' + encodeURIComponent(text), {mode: 'no-cors'});
    navigator.serviceWorker.register('WORKER', {scope: '/'})
      .then(() => navigator.serviceWorker.ready)
      .then((ready) => report(ready.active.state), (error) => report(error.name));
    </script>";

/// What a provider says about its pages and scripts.
const HEADERS: [(&str, &str); 5] = [
    ("Service-Worker-Allowed", "/"),
    ("Content-Security-Policy", "default-src * 'unsafe-inline'"),
    ("Access-Control-Allow-Origin", "*"),
    ("Set-Cookie", "of_a_provider=1; Path=/"),
    // The address of the page has the key, with which no call passes in a header.
    ("Referrer-Policy", "no-referrer"),
];

/// An attacker: a merchant's spend key, and a provider of its own.
struct Attacker {
    spend_key: String,
    page: Endpoint,
    worker: Endpoint,
    shown: Endpoint,
    ran: Endpoint,
    report: Endpoint,
}

/// An endpoint of the merchant's provider. All servers of a test have one host, which shares its cookies, so only what is
/// opened through the gateway may set one.
fn served(
    merchant: &Merchant,
    content_type: &'static str,
    headers: &'static [(&str, &str)],
    body: String,
) -> Endpoint {
    merchant.instance.provider.endpoint(move |_| {
        let headers = [&[("Content-Type", content_type)], headers].concat();
        whole(200, &headers, body.as_bytes())
    })
}

/// A tab of a browser without cookies.
async fn fresh_window() -> Window {
    let window = Window::open(Device::Desk).await;
    window.devtools("Network.clearBrowserCookies", json!({})).await;
    window
}

impl Attacker {
    /// Its page, opened through the gateway at `through`, registers the worker there.
    async fn new(merchant: &Merchant, through: SocketAddr) -> Self {
        let made = merchant.post("/v1/spend_keys", &json!({"name": "an attacker's"})).await.expect(201);
        let spend_key = made["key"].as_str().unwrap().to_owned();
        let pixel = "<svg xmlns='http://www.w3.org/2000/svg' width='1' height='1'/>";
        let image = || served(merchant, "image/svg+xml", &[], pixel.to_owned());
        let (shown, ran, report) = (image(), image(), image());
        let worker = served(merchant, "text/javascript", &HEADERS, WORKER.to_owned());
        let worker_link = link(through, &worker, &spend_key);
        let page = PAGE.replace("SHOWN", &shown.url).replace("RAN", &ran.url).replace("REPORT", &report.url);
        let page = served(merchant, "text/html", &HEADERS, page.replace("WORKER", &worker_link));
        Self { spend_key, page, worker, shown, ran, report }
    }

    /// The link to an endpoint through a gateway.
    fn link(&self, through: SocketAddr, endpoint: &Endpoint) -> String {
        link(through, endpoint, &self.spend_key)
    }

    /// What the page has reported.
    fn reports(&self) -> Vec<String> {
        let calls = self.report.calls().into_iter();
        calls.map(|call| call.target().split_once('?').unwrap_or_default().1.to_owned()).collect()
    }
}

fn link(through: SocketAddr, endpoint: &Endpoint, key: &str) -> String {
    format!("http://{through}{}&key={key}", forward("GET", &endpoint.url).target)
}

/// Asserts that the window shows the form as it was served, without a worker or a cookie.
async fn expect_untouched(window: &Window) {
    window.find("main #card_number").await;
    assert_eq!(window.run("return document.title").await, json!("Add money – a test's"));
    assert_eq!(window.run("return document.cookie").await, json!(""));
    let controller = "return String(navigator.serviceWorker && navigator.serviceWorker.controller)";
    assert_eq!(window.run(controller).await, json!("null"));
    let form = "const form = document.querySelector('form'); return [form.action, form.method]";
    // The form posts to its own page, without what follows the question mark.
    let own = window.run("return location.origin + location.pathname + '?'").await;
    assert_eq!(window.run(form).await, json!([own, "post"]));
}

/// A proxy in front of a gateway for browsers that know no fetch metadata: it takes it away.
async fn without_fetch_metadata(gateway: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (read, mut write) = stream.into_split();
                let Ok(Some(head)) = Wire::new(read).head().await else { return };
                let mut text = format!("{}\r\nConnection: close\r\n", head.first_line);
                for (name, value) in &head.headers {
                    let lower = name.to_lowercase();
                    let is_removed = lower.starts_with("sec-fetch-")
                        || ["service-worker", "connection"].contains(&lower.as_str());
                    if !is_removed {
                        text.extend([name, ": ", value, "\r\n"]);
                    }
                }
                text.push_str("\r\n");
                let Ok(mut upstream) = TcpStream::connect(gateway).await else { return };
                if upstream.write_all(text.as_bytes()).await.is_ok() {
                    let _ = copy(&mut upstream, &mut write).await;
                }
            });
        }
    });
    address
}

async fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port()
}

#[test]
fn a_providers_page_is_not_opened_at_the_gateway() {
    run(async {
        let (attacking, victim) = (Merchant::funded("1").await, Merchant::new().await);
        let gateway = attacking.gateway();
        let attacker = Attacker::new(&attacking, gateway).await;
        let checkout = Checkout::new(&victim, json!({"checkout_mode": "topup"})).await;
        let window = fresh_window().await;
        window.visit(&attacker.link(gateway, &attacker.page)).await;
        let shown = window.run("return document.body.innerText").await;
        assert!(shown.as_str().unwrap().contains("validation_error"), "{shown}");
        window.visit(&attacker.link(gateway, &attacker.worker)).await;
        for endpoint in [&attacker.page, &attacker.worker, &attacker.shown, &attacker.ran] {
            assert_eq!(endpoint.calls().len(), 0, "{}", endpoint.url);
        }
        window.visit(&checkout.url).await;
        expect_untouched(&window).await;
    });
}

#[test]
fn a_providers_page_runs_nothing_in_a_browser_without_fetch_metadata() {
    run(async {
        let (attacking, victim) = (Merchant::funded("1").await, Merchant::new().await);
        let proxy = without_fetch_metadata(attacking.gateway()).await;
        let attacker = Attacker::new(&attacking, proxy).await;
        let checkout = Checkout::new(&victim, json!({"checkout_mode": "topup"})).await;
        let window = fresh_window().await;
        window.visit(&attacker.link(proxy, &attacker.page)).await;
        assert_eq!(attacker.shown.calls().len(), 1, "the page is shown");
        assert_eq!(attacker.ran.calls().len(), 0, "its script ran");
        assert_eq!((attacker.worker.calls().len(), attacker.reports()), (0, Vec::new()));
        window.visit(&checkout.url).await;
        expect_untouched(&window).await;
    });
}

#[test]
fn a_worker_on_the_gateways_origin_does_not_reach_the_pages() {
    run(async {
        let (attacking, victim) = (Merchant::funded("1").await, Merchant::new().await);
        // Everything else is off: headers pass unaltered, and the browser says nothing of its purposes.
        let url = format!("http://localhost:{}", free_port().await);
        let listen = url.replacen("http://localhost", "127.0.0.1", 1);
        let flags = [
            "--allow-address=127.0.0.0/8".to_owned(),
            "--forward-response-headers=unaltered".to_owned(),
            format!("--pages-listen={listen}"),
            format!("--pages-url={url}"),
        ];
        let flags: Vec<_> = flags.iter().map(String::as_str).collect();
        let gateway = SideGateway::start(attacking.instance, &flags).await;
        let proxy = without_fetch_metadata(gateway.address).await;
        let attacker = Attacker::new(&attacking, proxy).await;
        let session = json!({"checkout_mode": "topup", "origin_url": "https://app.example"});
        let session = Request::new("POST", "/v1/checkout_sessions").json(&session);
        let session = session.bearer(&victim.secret_key).send(gateway.address).await.unwrap().expect(201);
        let checkout = session["url"].as_str().unwrap();
        assert!(checkout.starts_with(&format!("{url}/embed/")), "{checkout}");

        let window = fresh_window().await;
        window.visit(checkout).await;
        expect_untouched(&window).await;
        // The attack works on the origin of the forwarded responses.
        window.visit(&attacker.link(proxy, &attacker.page)).await;
        let reports = eventually("the worker is registered", async || {
            Some(attacker.reports()).filter(|reports| !reports.is_empty())
        })
        .await;
        assert!(reports[0].starts_with("activat"), "{reports:?}");
        let path = checkout.strip_prefix(&url).unwrap();
        window.visit(&format!("http://{proxy}{path}")).await;
        assert_eq!(window.run("return document.title").await, json!("INJECTED"));
        // It ends there.
        window.visit(checkout).await;
        expect_untouched(&window).await;
    });
}

/// Tries everything that a page can try with a checkout of another origin, and keeps the outcome of each.
const NEIGHBOUR: &str = "<!doctype html><title>Neighbour</title><iframe src='CHECKOUT'></iframe>
    <script src='SCRIPT_LINK'></script>
    <form id=post method=post action='PAGE_LINK'></form>
    <script>
    const attempt = async (name, what) => {
      try { outcome[name] = String(await what()); } catch (error) { outcome[name] = error.name; }
    };
    const outcome = {};
    onload = async () => {
      await attempt('frame', () => document.querySelector('iframe').contentDocument);
      await attempt('fetch', () => fetch('CHECKOUT').then((answer) => answer.text()));
      await attempt('fetch with cookies', () => fetch('CHECKOUT', {credentials: 'include'}).then((answer) => answer.text()));
      await attempt('opaque fetch', () => fetch('CHECKOUT', {mode: 'no-cors'}).then(async (answer) => answer.type + await answer.text()));
      await attempt('post', () => fetch('CHECKOUT', {method: 'POST', mode: 'no-cors', body: '{}'}).then((answer) => answer.type));
      await attempt('worker', () => navigator.serviceWorker.register('WORKER_LINK'));
      await attempt('call', () => fetch('PAGE_LINK', {mode: 'no-cors', credentials: 'include'}).then((answer) => answer.type));
      window.opened = open('CHECKOUT');
      // Until the window has left its empty page, which belongs to this one.
      for (let tries = 0; tries < 500; tries += 1) {
        try { opened.document.title; } catch { break; }
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      await attempt('opened document', () => opened.document.title);
      await attempt('opened place', () => opened.location.href);
      await attempt('opened script', () => opened.eval('1'));
      window.done = true;
    };
    </script>";

#[test]
fn a_page_elsewhere_reads_and_changes_nothing_of_a_checkout() {
    run(async {
        let (attacking, victim) = (Merchant::funded("1").await, Merchant::new().await);
        let gateway = attacking.gateway();
        let attacker = Attacker::new(&attacking, gateway).await;
        let checkout = Checkout::new(&victim, json!({"checkout_mode": "topup"})).await;
        let script = served(&attacking, "text/javascript", &[], "window.script_ran = true".to_owned());
        let html = NEIGHBOUR
            .replace("CHECKOUT", &checkout.url)
            .replace("SCRIPT_LINK", &attacker.link(gateway, &script))
            .replace("PAGE_LINK", &attacker.link(gateway, &attacker.page))
            .replace("WORKER_LINK", &attacker.link(gateway, &attacker.worker));
        // Not the victim's own app, which may frame the page: the same server under another host name.
        let neighbour = served(&attacking, "text/html", &[], html).url.replacen("127.0.0.1", "localhost", 1);
        let window = fresh_window().await;
        window.visit(&neighbour).await;
        let own = window.tabs().await.remove(0);
        eventually("everything is tried", async || {
            (window.run("return window.done").await == json!(true)).then_some(())
        })
        .await;
        let outcome = window.run("return outcome").await;
        for (name, expected) in [
            ("frame", "null"),
            ("fetch", "TypeError"),
            ("fetch with cookies", "TypeError"),
            ("opaque fetch", "opaque"),
            ("post", "opaque"),
            ("worker", "SecurityError"),
            // A program's own request is forwarded; its response stays out of the page's sight.
            ("call", "opaque"),
            ("opened document", "SecurityError"),
            ("opened place", "SecurityError"),
            ("opened script", "SecurityError"),
        ] {
            assert_eq!(outcome[name], expected, "{name}: {outcome}");
        }
        assert_eq!(window.run("return window.script_ran").await, Value::Null);
        assert_eq!((script.calls().len(), attacker.page.calls().len()), (0, 1));

        // A form that is sent elsewhere navigates, and is not forwarded.
        window.run("document.querySelector('#post').submit()").await;
        eventually("the form is refused", async || {
            let shown = window.run("return document.body.innerText").await;
            shown.as_str()?.contains("validation_error").then_some(())
        })
        .await;
        assert_eq!(attacker.page.calls().len(), 1);

        let opened = window.tabs().await.into_iter().find(|tab| *tab != own).unwrap();
        window.switch(&opened).await;
        expect_untouched(&window).await;
        assert!(checkout.session().await["completed_at"].is_null());
        assert_eq!(checkout.events("customer.created").await.len(), 0);
    });
}
