//! URLs that lead to addresses of the inside: every kind of address that is not public, every other spelling of one, and
//! every way in which a caller names a URL.

use farthing_tests::client::Request;
use farthing_tests::dns::{Answer, NameServer};
use farthing_tests::merchant::{Merchant, encoded, forward};
use farthing_tests::provider::{Endpoint, json as answer_json};
use farthing_tests::run;
use farthing_tests::side_gateway::SideGateway;
use serde_json::json;

/// An address of every kind that is not public, and none that counts as one of 127.0.0.0/8.
pub(super) const NOT_PUBLIC: &[&str] = &[
    "0.0.0.0",
    "0.1.2.3",
    "10.255.255.255",
    "100.64.0.1",
    "100.100.100.200",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.255.255",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    // Mapped, compatible, NAT64 (of the well-known and of the local prefix), 6to4 and Teredo.
    "::ffff:10.0.0.1",
    "::ffff:a9fe:a9fe",
    "::10.0.0.1",
    "64:ff9b::169.254.169.254",
    "64:ff9b::7f00:1",
    "64:ff9b:1::a9fe:a9fe",
    "2002:a9fe:a9fe::",
    "2002:7f00:1::1",
    "2001:0:a00:1::1",
    "100::1",
    "2001:db8::1",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fec0::1",
    "ff02::1",
];

/// Hosts that are the loopback, in plain form.
const LOOPBACK: [&str; 9] = [
    "127.0.0.1",
    "127.255.255.254",
    "localhost",
    "LOCALHOST",
    "[0:0:0:0:0:0:0:1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[0000:0000:0000:0000:0000:FFFF:7F00:0001]",
    "[::127.0.0.1]",
];

/// Hosts that some reader takes for the loopback and that are no host in plain form.
pub(super) const NOT_PLAIN: &[&str] = &[
    // One number, octal, hexadecimal, and fewer or more parts than four.
    "2130706433",
    "2130706433.",
    "017700000001",
    "0x7f000001",
    "0X7F000001",
    "4294967296",
    "6425673729",
    "0177.0.0.1",
    "0177.0.0.01",
    "0x7f.0.0.1",
    "0x7f.0x0.0x0.0x1",
    "127.0.0.0x1",
    "127.0.0.01",
    "0127.0.0.1",
    "0x7f.1",
    "0x7f.1.",
    "127.1",
    "127.1.",
    "127.0.1",
    "127.0.0.1.1",
    "127..1",
    ".127.0.0.1",
    "127.0.0.256",
    "127.0.0.257",
    "0",
    "0x0",
    "0x",
    "00.00.00.00",
    // Zones, and brackets that are not those of an IPv6 address.
    "[fe80::1%25eth0]",
    "[fe80::1%eth0]",
    "[fe80::1%251]",
    "[::1%25lo]",
    "[::1%lo]",
    "[::ffff:127.0.0.1%25lo]",
    "[127.0.0.1]",
    "[localhost]",
    "[2130706433]",
    "[::1",
    "::1]",
    "::1",
    "::ffff:127.0.0.1",
    "[[::1]]",
    "[::1].",
    "[::1]127.0.0.1",
    "127.0.0.1[::1]",
    // Percent-encoded, once and more often.
    "%31%32%37.0.0.1",
    "%31%32%37%2e%30%2e%30%2e%31",
    "127%2E0%2E0%2E1",
    "127.0.0.%31",
    "%6c%6f%63%61lhost",
    "%5b::1%5d",
    "%2531%2532%2537.0.0.1",
    "%252531%252532%252537.0.0.1",
    "%EF%BC%91%EF%BC%92%EF%BC%97.0.0.1",
    "127.0.0.1%00",
    "127.0.0.1%00.good.example",
    "127.0.0.1%09",
    "127.0.0.1%0d%0a",
    "127.0.0.1%20",
    "127.0.0.1%2f",
    "127.0.0.1%23.good.example",
    "127.0.0.1%3f.good.example",
    "127.0.0.1%5c.good.example",
    "good.example%40127.0.0.1",
    // User information, and other characters that part a host.
    "user@127.0.0.1",
    "user:password@127.0.0.1",
    "@127.0.0.1",
    ":@127.0.0.1",
    "good.example@127.0.0.1",
    "good.example:80@127.0.0.1",
    "127.0.0.1@good.example",
    "127.0.0.1:80@good.example",
    "a@good.example@127.0.0.1",
    "good.example\\@127.0.0.1",
    "127.0.0.1\\@good.example",
    "127.0.0.1\\.good.example",
    "127.0.0.1;good.example",
    "127.0.0.1,good.example",
    "good.example;127.0.0.1",
    "good.example&127.0.0.1",
    "(127.0.0.1)",
    "*",
    // Control characters and spaces.
    "127.0.0.1\t",
    "127.\t0.0.1",
    "127.0.0.1\r\n",
    "127.0.\n0.1",
    "127.0.0.1\u{0}",
    "127.0.0.1\u{0}.good.example",
    " 127.0.0.1",
    "127.0.0.1 ",
    "127.0.0.1 good.example",
    "127.0.0.1\u{7f}",
    // What the mapping of international names makes digits, dots and letters of.
    "\u{ff11}\u{ff12}\u{ff17}.0.0.1",
    "\u{2460}\u{2461}\u{2466}.0.0.1",
    "\u{b9}\u{b2}\u{2077}.0.0.1",
    "\u{1d7cf}\u{1d7d0}\u{1d7d5}.0.0.1",
    "\u{661}\u{662}\u{667}.0.0.1",
    "127\u{3002}0\u{3002}0\u{3002}1",
    "127\u{ff0e}0\u{ff0e}0\u{ff0e}1",
    "127\u{ff61}0\u{ff61}0\u{ff61}1",
    "127.0.0.1\u{ad}",
    "127.0.0.1\u{200b}",
    "\u{24db}ocalhost",
    "\u{ff4c}ocalhost",
    "loca\u{ad}lhost",
    "local\u{210b}ost",
    "\u{ff3b}::1\u{ff3d}",
];

/// What stands behind a host and is no port.
const NO_PORTS: [&str; 11] =
    [":", ":0", ":00", ":080", ":65536", ":99999", ":-1", ":+80", ":0x50", ":80:80", ":\u{ff18}\u{ff10}"];

/// What is no `http` or `https` URL with a host, around `authority`.
pub(super) fn no_urls(authority: &str) -> Vec<String> {
    let schemes = [
        "ftp",
        "sftp",
        "tftp",
        "gopher",
        "dict",
        "ldap",
        "ldaps",
        "smb",
        "ws",
        "wss",
        "imap",
        "telnet",
        "rtsp",
        "jar:http",
        "view-source:http",
        "blob:http",
        "feed:http",
        "http+unix",
        "h2c",
        "httpx",
        "http ",
        "ht\ttp",
        "http\u{0}",
        " http",
        "\u{feff}http",
        "http:http",
    ];
    let mut urls = Vec::from(schemes.map(|scheme| format!("{scheme}://{authority}/")));
    urls.extend([
        "file:///etc/passwd".to_owned(),
        format!("file://{authority}/etc/passwd"),
        "netdoc:///etc/passwd".to_owned(),
        "php://filter/resource=/etc/passwd".to_owned(),
        "unix:/tmp/socket".to_owned(),
        "data:text/plain,x".to_owned(),
        "javascript:alert(1)".to_owned(),
        "about:blank".to_owned(),
        authority.to_owned(),
        format!("//{authority}/"),
        format!("///{authority}/"),
        format!("\\\\{authority}\\x"),
        format!("http:{authority}/"),
        format!("http:/{authority}/"),
        format!("http:///{authority}/"),
        format!("http:////{authority}/"),
        format!("http:\\\\{authority}/"),
        format!("http:/\\{authority}/"),
        format!("http://http://{authority}/"),
        "/v1/models".to_owned(),
    ]);
    urls.extend(NO_PORTS.map(|port| format!("http://127.0.0.1{port}/")));
    urls
}

/// An address as the host of a URL.
pub(super) fn in_url(address: &str) -> String {
    if address.contains(':') { format!("[{address}]") } else { address.to_owned() }
}

/// An endpoint of the inside whose path any of the ways may call, and the port of its server.
fn inside(merchant: &Merchant) -> (Endpoint, String) {
    let provider = &merchant.instance.provider;
    let endpoint = provider.endpoint_ending("/v1/chat/completions", |_| answer_json(200, &json!({})));
    let port = provider.authority().rsplit_once(':').unwrap().1.to_owned();
    (endpoint, port)
}

/// A call to `url` in each of the ways to name it: as `u`, encoded, at the rewrite endpoint, and raw in the path and as `u`,
/// where a request line can hold it.
fn ways(url: &str) -> Vec<Request> {
    let rewritten = format!("/v1/rewrite/openai/{}", encoded(url));
    let mut calls = vec![forward("POST", url), Request::new("POST", rewritten)];
    if url.bytes().all(|byte| byte.is_ascii_graphic()) {
        calls.push(Request::new("POST", format!("/v1/forward/{url}")));
        if !url.contains('&') {
            calls.push(Request::new("POST", format!("/v1/forward?u={url}")));
        }
    }
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 10});
    calls.into_iter().map(|call| call.json(&body)).collect()
}

/// A caller names an address of every kind that is not public, as `u`, in the path and at the rewrite endpoint: each is
/// refused as forbidden, and a server that listens there gets no call.
#[test]
fn no_way_to_name_a_url_leads_to_an_address_that_is_not_public() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let gateway = SideGateway::start(merchant.instance, &[]).await;
        let (endpoint, port) = inside(&merchant);
        let hosts = LOOPBACK.iter().map(|host| (*host).to_owned());
        for host in hosts.chain(NOT_PUBLIC.iter().map(|address| in_url(address))) {
            for call in ways(&format!("http://{host}:{port}{}", endpoint.path)) {
                let target = call.target.clone();
                let response = call.bearer(&merchant.secret_key).send(gateway.address).await.unwrap();
                assert_eq!(response.status, 400, "{target}: {}", response.text());
                response.refused(400, "forward_url_forbidden");
            }
        }
        assert!(endpoint.calls().is_empty(), "a call reached the inside");
        merchant.nothing_is_held().await;
        assert!(merchant.events().await.iter().all(|event| event.kind != "request.metered"));
    });
}

/// A caller writes the loopback, which this gateway may call, in a form that readers of URLs understand differently: each is
/// refused before anything is opened, so the guard of addresses is not the only one that refuses them.
#[test]
fn a_host_that_is_not_in_plain_form_is_refused_though_its_address_may_be_called() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let (endpoint, port) = inside(&merchant);
        let events = merchant.events().await.len();
        for host in NOT_PLAIN {
            for call in ways(&format!("http://{host}:{port}{}", endpoint.path)) {
                let target = call.target.clone();
                let response = merchant.send(&merchant.secret_key, call).await;
                assert_eq!(response.status, 400, "{target}: {}", response.text());
                response.refused(400, "forward_url_invalid");
            }
        }
        for url in no_urls(&format!("127.0.0.1:{port}")) {
            let response = merchant.call(&merchant.secret_key, &url).await;
            assert_eq!(response.status, 400, "{url:?}: {}", response.text());
            response.refused(400, "forward_url_invalid");
        }
        assert!(endpoint.calls().is_empty());
        assert_eq!(merchant.events().await.len(), events, "nothing was opened");
        // The plain form is called, so the refusals are those of the spelling.
        merchant.call(&merchant.secret_key, &endpoint.url).await.expect(200);
        assert_eq!(endpoint.calls().len(), 1);
    });
}

/// A caller encodes the URL of an address that may be called twice and three times: it is decoded once and then no URL.
#[test]
fn a_url_is_decoded_once_however_often_it_was_encoded() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let (endpoint, _) = inside(&merchant);
        let once = encoded(&endpoint.url);
        let (twice, three_times) = (encoded(&once), encoded(&encoded(&once)));
        for target in [
            format!("/v1/forward?u={twice}"),
            format!("/v1/forward?u={three_times}"),
            format!("/v1/forward?u=http%253A//{}", endpoint.url.trim_start_matches("http://")),
            format!("/v1/forward/{once}"),
            format!("/v1/forward/{twice}"),
            format!("/v1/rewrite/openai/{twice}"),
            format!("/v1/rewrite/openai/{three_times}"),
        ] {
            let request = Request::new("POST", target.clone()).json(&json!({"model": "m", "messages": []}));
            let response = merchant.send(&merchant.secret_key, request).await;
            assert_eq!(response.status, 400, "{target}: {}", response.text());
            response.refused(400, "forward_url_invalid");
        }
        assert!(endpoint.calls().is_empty());
        let request = Request::new("POST", format!("/v1/forward?u={once}")).json(&json!({}));
        merchant.send(&merchant.secret_key, request).await.expect(200);
    });
}

/// A caller gives two URLs, in every spelling of `u` and beside a URL in the path: neither is called.
#[test]
fn a_second_url_is_refused_in_every_spelling_of_its_name() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let (endpoint, _) = inside(&merchant);
        let url = &endpoint.url;
        let events = merchant.events().await.len();
        for target in [
            format!("?u={url}&u={url}"),
            format!("?u={url}&%75={url}"),
            format!("?%75={url}&u={url}"),
            format!("?%75={url}&%75={url}"),
            format!("?u=&u={url}"),
            format!("?u&u={url}"),
            format!("?%75&u={url}"),
            format!("?u={url}&a=b&u={url}"),
            format!("?u={url}&u={}", encoded("https://good.example/")),
            format!("?u={}&u={url}", encoded("https://good.example/")),
            format!("?u={url}&u=x"),
            format!("/{url}?u="),
            format!("/{url}?u"),
            format!("/{url}?%75={url}"),
            format!("/{url}?a=b&%75=x"),
        ] {
            let request = Request::new("POST", format!("/v1/forward{target}")).json(&json!({}));
            let response = merchant.send(&merchant.secret_key, request).await;
            assert_eq!(response.status, 400, "{target}: {}", response.text());
            response.refused(400, "forward_url_invalid");
        }
        for target in [format!("?u={url}&u="), format!("?u={url}&%75")] {
            let request = Request::new("POST", format!("/v1/forward{target}")).json(&json!({}));
            merchant.send(&merchant.secret_key, request).await.refused(400, "forward_url_missing");
        }
        assert!(endpoint.calls().is_empty());
        assert_eq!(merchant.events().await.len(), events, "nothing was opened");
    });
}

/// A caller writes an address behind the end of the host, or a dot behind an address: the host before is looked up, or
/// nothing is, and the address is not called.
#[test]
fn an_address_behind_the_host_and_one_with_a_dot_at_its_end_are_not_called() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let names = NameServer::start(|_| Answer::NoSuchName).await;
        let flags = ["--allow-address=127.0.0.0/8", &names.flag()];
        let gateway = SideGateway::start(merchant.instance, &flags).await;
        let (endpoint, port) = inside(&merchant);
        let (path, own) = (&endpoint.path, format!("127.0.0.1:{port}"));
        for url in [
            format!("http://good0.test#@{own}{path}"),
            format!("http://good1.test/@{own}{path}"),
            format!("http://good2.test?@{own}{path}"),
            format!("http://good3.test/../{own}{path}"),
            format!("http://good4.test//{own}{path}"),
            format!("http://127.0.0.1.:{port}{path}"),
        ] {
            let call = forward("POST", &url).json(&json!({})).bearer(&merchant.secret_key);
            let response = call.send(gateway.address).await.unwrap();
            assert_eq!(response.status, 502, "{url}: {}", response.text());
            response.refused(502, "provider_unreachable");
        }
        assert!(endpoint.calls().is_empty());
        assert_eq!(names.names_asked("good"), 5, "each of the hosts is looked up");
        assert_eq!(names.names_asked("127"), 0, "an address is no name");
        merchant.nothing_is_held().await;
    });
}

/// A caller uses the gateway as a proxy, with a whole URL in the request line or `CONNECT`: it connects to nothing.
#[test]
fn a_gateway_is_no_proxy() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let (endpoint, port) = inside(&merchant);
        for request in [
            Request::new("GET", endpoint.url.clone()),
            Request::new("POST", endpoint.url.clone()).json(&json!({})),
            Request::new("CONNECT", format!("127.0.0.1:{port}")),
        ] {
            let method = request.method.clone();
            let response = merchant.send(&merchant.secret_key, request).await;
            assert!((400..500).contains(&response.status), "{method}: {}", response.status);
        }
        assert!(endpoint.calls().is_empty());
        assert!(merchant.of_kind("request.opened").await.is_empty());
    });
}
