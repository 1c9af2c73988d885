//! Traces over OTLP: a span for every stage of a call, within the caller's own trace, without a secret; and a collector
//! that fails, or never answers, disturbs nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::TcpListener;

use farthing_tests::client::{Request, Response};
use farthing_tests::collector::{Collector, Rotel, Span, text};
use farthing_tests::instance::Instance;
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::{Endpoint, Gate, Step, chunk, event_stream, json, last_chunk};
use farthing_tests::scrape::scrape;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::{eventually, eventually_ok};
use farthing_tests::{left_out, run};
use serde_json::{Value, json};

const LOCAL: &str = "--allow-address=127.0.0.0/8";

/// The caller's own span.
const SPAN_ID: &str = "00f067aa0ba902b7";

/// The caller's trace in the test of `merchant`. Each test has its own: gateways of several tests lead partitions of one
/// instance, so a collector also gets the spans of decisions that a gateway of its test made for another test's.
pub(crate) fn trace_id(merchant: &Merchant) -> String {
    let mut hasher = DefaultHasher::new();
    merchant.id.hash(&mut hasher);
    format!("4bf92f3577b34da6{:016x}", hasher.finish())
}

/// The header of a caller who asks for a trace.
pub(crate) fn traceparent(trace_id: &str) -> String {
    format!("00-{trace_id}-{SPAN_ID}-01")
}

pub(crate) const CALLERS_KEY: &str = "sk-a-callers-own-0123456789";

/// The stages of a call that its provider answers, each with the span that it is within.
pub(crate) const STAGES: [(&str, &str); 10] = [
    ("POST /v1/forward", SPAN_ID),
    ("authenticate", "POST /v1/forward"),
    ("receive request", "POST /v1/forward"),
    ("prepare", "POST /v1/forward"),
    ("admit", "POST /v1/forward"),
    ("POST", "POST /v1/forward"),
    ("connect", "POST"),
    ("wait for response", "POST"),
    ("receive response", "POST"),
    ("settle", "POST /v1/forward"),
];

/// A gateway that sends its spans to `url` at once.
pub(crate) async fn traced(url: &str, flags: &[&str]) -> SideGateway {
    let instance = Instance::shared().await;
    let openai = format!("--provider-host=openai={}", instance.openai.authority());
    let endpoint = format!("--otlp-endpoint={url}");
    let mut all = vec![LOCAL, openai.as_str(), endpoint.as_str(), "--log-format=json"];
    all.extend(flags);
    let headers = ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20collector-login");
    SideGateway::with_variables(instance, &all, &[("OTEL_BSP_SCHEDULE_DELAY", "50"), headers]).await
}

/// A call to OpenAI on the caller's own key, within the caller's trace.
fn asking(merchant: &Merchant, url: &str, model: &str) -> Request {
    forward("POST", url)
        .header("x-api-key", &merchant.secret_key)
        .bearer(CALLERS_KEY)
        .header("traceparent", traceparent(&trace_id(merchant)))
        .header("tracestate", "vendor=a-state")
        .header("baggage", "user=a-baggage")
        .json(&json!({"model": model, "messages": [{"role": "user", "content": "a private thought"}]}))
}

pub(crate) async fn send(request: Request, gateway: &SideGateway) -> Response {
    request.send(gateway.address).await.expect("the gateway answers")
}

fn completion(input: u64, output: u64) -> Value {
    json!({
        "model": "gpt-4o-2024-08-06",
        "usage": {"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output},
    })
}

/// An endpoint of OpenAI.
async fn openai() -> Endpoint {
    Instance::shared().await.openai.endpoint_ending("/v1/chat/completions", |_| json(200, &completion(11, 7)))
}

/// Each span with the span that it is within.
pub(crate) fn tree(spans: &[Span]) -> BTreeSet<(&str, &str)> {
    let name_of = |id: &str| spans.iter().find(|span| span.span_id == id).map(|span| span.name.as_str());
    spans.iter().map(|span| (span.name.as_str(), name_of(&span.parent).unwrap_or(&span.parent))).collect()
}

pub(crate) fn named<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let mut found = spans.iter().filter(|span| span.name == name);
    let (Some(span), None) = (found.next(), found.next()) else { panic!("one {name}: {spans:?}") };
    span
}

fn attributes<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[test]
fn the_idempotency_key_of_a_traced_call_that_was_sent_stays_used() {
    run(async {
        let collector = Collector::start().await;
        let gateway = traced(collector.url(), &[]).await;
        let merchant = Merchant::funded("10").await;
        let closing = Instance::shared().await.provider.endpoint(|_| vec![Step::Close]);
        let request = forward("POST", &closing.url)
            .bearer(&merchant.secret_key)
            .header("traceparent", traceparent(&trace_id(&merchant)))
            .header("Idempotency-Key", "one")
            .json(&json!({}));
        let first = send(request.clone(), &gateway).await;
        assert_eq!(first.status, 502, "{}", first.text());
        merchant.failed(&first).await;
        assert!(!collector.trace_of(&first.request_id()).await.is_empty(), "it is traced");
        send(request, &gateway).await.refused(409, "idempotency_completed");
        assert_eq!(closing.calls().len(), 1);
    });
}

#[test]
fn every_stage_of_a_call_has_a_span_within_the_callers_trace_and_none_holds_a_secret() {
    run(async {
        let collector = Collector::start().await;
        let gateway = traced(collector.url(), &[]).await;
        let (merchant, provider) = (Merchant::funded("10").await, openai().await);
        let url = format!("{}?api-version=a-query", provider.url);
        let response = send(asking(&merchant, &url, "gpt-4o"), &gateway).await;
        assert_eq!(response.status, 200, "{}", response.text());
        let request_id = response.request_id();

        let received = provider.only_call();
        for name in ["traceparent", "tracestate", "baggage"] {
            assert!(received.head.all(name).is_empty(), "{name} reached the provider");
        }
        assert_eq!(received.head.header("authorization"), Some(format!("Bearer {CALLERS_KEY}").as_str()));

        let spans = collector.trace_of(&request_id).await;
        assert_eq!(tree(&spans), BTreeSet::from(STAGES), "{spans:?}");
        assert_eq!(spans.len(), STAGES.len());
        let is_fine = |span: &Span| !span.is_error && span.state.is_empty();
        assert!(spans.iter().all(|span| span.trace_id == trace_id(&merchant) && is_fine(span)));
        for span in &spans {
            assert!(span.times.0 <= span.times.1, "{span:?}");
            if let Some(parent) = spans.iter().find(|parent| parent.span_id == span.parent) {
                assert!(
                    parent.times.0 <= span.times.0 && span.times.1 <= parent.times.1,
                    "{span:?} {parent:?}"
                );
            }
        }
        assert_eq!(
            named(&spans, "POST /v1/forward").attributes,
            attributes([
                ("http.request.method", "POST"),
                ("http.route", "/v1/forward"),
                ("url.path", "/v1/forward"),
                ("url.scheme", "http"),
                ("http.response.status_code", "200"),
                ("farthing.request_id", &request_id),
                ("farthing.metered", "true"),
            ])
        );
        let authority = merchant.instance.openai.authority();
        assert_eq!(
            named(&spans, "POST").attributes,
            attributes([
                ("http.request.method", "POST"),
                ("server.address", "127.0.0.1"),
                ("server.port", authority.rsplit(':').next().unwrap()),
                ("http.response.status_code", "200"),
                ("gen_ai.provider.name", "openai"),
                ("gen_ai.request.model", "gpt-4o"),
                ("gen_ai.response.model", "gpt-4o-2024-08-06"),
                ("gen_ai.usage.input_tokens", "11"),
                ("gen_ai.usage.output_tokens", "7"),
                ("farthing.provider_key", "caller"),
                ("farthing.ending", "whole"),
            ])
        );

        // A model that looks like a key is none.
        let key = "sk-proj-0123456789abcdef";
        let second = send(asking(&merchant, &url, key), &gateway).await;
        assert_eq!(second.status, 200);
        collector.trace_of(&second.request_id()).await;
        let messages = collector.messages();
        let resource = messages[0].resource_spans[0].resource.as_ref().unwrap();
        let service = resource.attributes.iter().find(|pair| pair.key == "service.name");
        assert_eq!(service.map(text).as_deref(), Some("farthing-gateway"));
        let (messages, log) = (format!("{messages:?}"), gateway.logged());
        for secret in [
            merchant.secret_key.as_str(),
            CALLERS_KEY,
            key,
            "a private thought",
            "a-query",
            "a-state",
            "a-baggage",
            "collector-login",
            merchant.id.as_str(),
            provider.path.as_str(),
        ] {
            assert!(!messages.contains(secret), "{secret}: {messages}");
        }
        assert!(!log.contains("collector-login"), "{log}");
        let login = collector.requests()[0].head.header("authorization").map(str::to_owned);
        assert_eq!(login.as_deref(), Some("Bearer collector-login"));
    });
}

#[test]
fn a_stream_has_the_same_spans() {
    run(async {
        let collector = Collector::start().await;
        let gateway = traced(collector.url(), &[]).await;
        let (merchant, gate) = (Merchant::funded("10").await, Gate::default());
        let waits = gate.clone();
        let provider = merchant.instance.openai.endpoint_ending("/v1/chat/completions", move |_| {
            let usage = format!("data: {}\n\ndata: [DONE]\n\n", completion(3, 4));
            let delta = "data: {\"choices\":[{\"delta\":{\"content\":\"a private answer\"}}]}\n\n";
            vec![event_stream(), chunk(delta), Step::Wait(waits.clone()), chunk(usage), last_chunk()]
        });
        let call = tokio::spawn({
            let (request, address) = (asking(&merchant, &provider.url, "gpt-4o"), gateway.address);
            async move { request.send(address).await.expect("the gateway answers") }
        });
        // The head has come, and the span of the call is open.
        eventually("the stages before the response are sent", async || {
            collector.spans().iter().any(|span| span.name == "wait for response").then_some(())
        })
        .await;
        assert!(collector.spans().iter().all(|span| span.name != "POST /v1/forward"));
        gate.open();
        let response = call.await.unwrap();
        assert_eq!(response.status, 200, "{}", response.text());
        let spans = collector.trace_of(&response.request_id()).await;
        assert_eq!(tree(&spans), BTreeSet::from(STAGES), "{spans:?}");
        let exchange = named(&spans, "POST");
        assert_eq!(exchange.get("gen_ai.usage.input_tokens"), Some("3"));
        assert_eq!(exchange.get("gen_ai.usage.output_tokens"), Some("4"));
        assert!(!format!("{:?}", collector.messages()).contains("a private answer"));
    });
}

#[test]
fn a_refused_and_a_failed_call_have_the_spans_of_what_was_done() {
    run(async {
        let collector = Collector::start().await;
        let gateway = traced(collector.url(), &[]).await;
        let merchant = Merchant::funded("10").await;
        let provider = merchant.instance.provider.endpoint(|_| json(200, &json!({})));

        // Whoever sends an unknown key asks for a trace in vain. Its spans would be sent before those of the next calls.
        let unknown = traceparent("11111111111111111111111111111111");
        let mut key = merchant.secret_key.clone();
        let last = key.pop();
        key.push(if last == Some('A') { 'B' } else { 'A' });
        let refused = forward("POST", &provider.url).bearer(&key).header("traceparent", unknown);
        send(refused, &gateway).await.refused(401, "secret_key_invalid");

        let poor = merchant.customer("0").await;
        let credential = merchant.billing(&poor, &merchant.call_meter("0.01").await);
        let refused = forward("POST", &provider.url).bearer(&credential);
        let refused = refused.header("traceparent", traceparent(&trace_id(&merchant)));
        let refused = send(refused.json(&json!({})), &gateway).await;
        refused.refused(402, "insufficient_balance");
        let spans = collector.trace_of(&refused.request_id()).await;
        assert_eq!(tree(&spans), STAGES[..5].iter().copied().collect(), "{spans:?}");
        let call = named(&spans, "POST /v1/forward");
        assert_eq!(call.get("http.response.status_code"), Some("402"));
        assert_eq!(call.get("error.type"), Some("insufficient_balance"));
        assert!(!call.is_error, "the caller's error is none of the server's");

        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let other_trace_id = "22222222222222222222222222222222";
        let failing = forward("POST", &format!("http://{closed}/")).bearer(&merchant.secret_key);
        let failing = failing.header("traceparent", traceparent(other_trace_id)).json(&json!({}));
        let failed = send(failing, &gateway).await;
        failed.refused(502, "provider_unreachable");
        let spans = collector.trace_of(&failed.request_id()).await;
        let not_answered = ["wait for response", "receive response"];
        let stages = STAGES.into_iter().filter(|(name, _)| !not_answered.contains(name));
        assert_eq!(tree(&spans), stages.collect(), "{spans:?}");
        let (call, exchange) = (named(&spans, "POST /v1/forward"), named(&spans, "POST"));
        assert_eq!(call.get("error.type"), Some("provider_unreachable"));
        assert_eq!((call.get("farthing.metered"), call.is_error), (Some("false"), true));
        assert_eq!((exchange.get("error.type"), exchange.is_error), (Some("provider_unreachable"), true));

        let log = gateway.logged();
        let mut lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let line = lines.find(|line| line["event"] == "forward.provider_unreachable");
        let line = line.unwrap_or_else(|| panic!("{log}"));
        let ids = (&line["span"]["request_id"], &line["span"]["trace_id"]);
        assert_eq!(ids, (&json!(failed.request_id()), &json!(other_trace_id)));

        let of_calls = collector.spans().into_iter().filter(|span| span.name != "decide");
        let traces: BTreeSet<String> = of_calls.map(|span| span.trace_id).collect();
        assert_eq!(traces, BTreeSet::from([trace_id(&merchant), other_trace_id.to_owned()]));
    });
}

#[test]
fn a_leader_decides_within_the_trace_of_the_gateway_that_asks() {
    run(async {
        let collector = Collector::start().await;
        let leader = traced(collector.url(), &[]).await;
        let gateway = traced(collector.url(), &[]).await;
        let (merchant, provider) =
            (leader.merchant_of_its_own(Instance::shared().await, "10").await, openai().await);
        // Again, if the partition moves meanwhile.
        eventually_ok("a call that the other gateway decides", async || {
            let response = send(asking(&merchant, &provider.url, "gpt-4o"), &gateway).await;
            let call = collector.trace_of(&response.request_id()).await;
            let own = |name: &str| {
                let mut spans = call.iter().filter(|span| span.name == name);
                let id = |span: &Span| span.span_id.clone();
                spans.next_back().map(id).unwrap_or_default()
            };
            let asked = BTreeSet::from([own("admit"), own("settle")]);
            let spans = collector.spans();
            let decided = spans.iter().filter(|span| span.name == "decide" && asked.contains(&span.parent));
            let decided: Vec<_> = decided.collect();
            let partition = merchant.partition().await.to_string();
            let is_about_it = |span: &&Span| span.get("farthing.partition") == Some(partition.as_str());
            if decided.len() == 2 && decided.iter().all(is_about_it) {
                Ok(())
            } else {
                Err(format!("{spans:?}"))
            }
        })
        .await;
    });
}

#[test]
fn callers_who_ask_for_traces_make_no_more_than_the_operator_allows() {
    run(async {
        let collector = Collector::start().await;
        let gateway = traced(collector.url(), &["--traces-per-second=1"]).await;
        let (merchant, provider) = (Merchant::funded("10").await, openai().await);
        let mut calls = 0_u64;
        eventually("a call is over the limit", async || {
            let response = send(asking(&merchant, &provider.url, "gpt-4o"), &gateway).await;
            assert_eq!(response.status, 200);
            calls += 1;
            let metrics = scrape(gateway.operator).await;
            (metrics.count("farthing_traces_over_limit_total", &[]) > 0).then_some(())
        })
        .await;
        eventually_ok("all others are traced", async || {
            let over = scrape(gateway.operator).await.count("farthing_traces_over_limit_total", &[]);
            let spans = collector.spans();
            let traced = spans.iter().filter(|span| span.get("farthing.request_id").is_some()).count();
            if traced as u64 + over == calls { Ok(()) } else { Err(format!("{traced} {over} {calls}")) }
        })
        .await;
        let metrics = scrape(gateway.operator).await;
        assert_eq!(metrics.count("farthing_spans_dropped_total", &[]), 0);
    });
}

#[test]
fn a_collector_that_is_away_or_never_answers_disturbs_nothing() {
    run(async {
        let (merchant, provider) = (Merchant::funded("10").await, openai().await);
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let gate = Gate::default();
        let silent = Collector::behind(gate.clone()).await;
        let mut away = traced(&format!("http://{closed}"), &[]).await;
        let mut waiting = traced(silent.url(), &[]).await;
        let call = async |gateway: &SideGateway| {
            let response = send(asking(&merchant, &provider.url, "gpt-4o"), gateway).await;
            assert_eq!(response.status, 200, "{}", response.text());
            assert!(merchant.metered(&response).await.is_some());
        };
        call(&away).await;
        call(&waiting).await;
        let dropped = [("reason", "collector")];
        eventually("spans are dropped and counted", async || {
            call(&away).await;
            let count = scrape(away.operator).await.count("farthing_spans_dropped_total", &dropped);
            (count > 0 && away.logged().contains("traces.export_failed")).then_some(())
        })
        .await;
        eventually("the collector has a request that it does not answer", async || {
            (!silent.requests().is_empty()).then_some(())
        })
        .await;
        for _ in 0..20 {
            call(&waiting).await;
        }
        assert_eq!(scrape(waiting.operator).await.count("farthing_spans_exported_total", &[]), 0);
        // Neither holds up the end of its process, although the collector has still not answered.
        for gateway in [&mut away, &mut waiting] {
            gateway.terminate();
            assert!(gateway.ended().await.success(), "{}", gateway.logged());
        }
        assert!(waiting.logged().contains("traces.not_flushed"), "{}", waiting.logged());
        gate.open();
    });
}

#[test]
fn what_waits_is_sent_before_the_process_ends() {
    run(async {
        let collector = Collector::start().await;
        let instance = Instance::shared().await;
        let endpoint = format!("--otlp-endpoint={}", collector.url());
        // By itself it would send once in an hour.
        let seldom = [("OTEL_BSP_SCHEDULE_DELAY", "3600000")];
        let mut gateway = SideGateway::with_variables(instance, &[LOCAL, &endpoint], &seldom).await;
        let (merchant, provider) = (Merchant::funded("10").await, openai().await);
        let response = send(asking(&merchant, &provider.url, "gpt-4o"), &gateway).await;
        assert_eq!(response.status, 200);
        assert!(collector.requests().is_empty());
        gateway.terminate();
        assert!(gateway.ended().await.success());
        let spans = collector.trace_of(&response.request_id()).await;
        assert_eq!(tree(&spans), BTreeSet::from(STAGES), "{spans:?}");
    });
}

#[test]
fn a_collector_of_others_takes_and_passes_on_the_spans() {
    run(async {
        let collector = Collector::start().await;
        let instance = Instance::shared().await;
        let Some(rotel) = Rotel::before(&collector, instance.file("rotel")).await else {
            return left_out("traces through Rotel: it is not installed (tests/collector/install)");
        };
        let gateway = traced(&rotel.url, &[]).await;
        let (merchant, provider) = (Merchant::funded("10").await, openai().await);
        let response = send(asking(&merchant, &provider.url, "gpt-4o"), &gateway).await;
        let spans = collector.trace_of(&response.request_id()).await;
        assert_eq!(tree(&spans), BTreeSet::from(STAGES), "{spans:?}");
    });
}
