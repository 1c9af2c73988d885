//! The cycles of spend key limits over HTTP, at their exact ends: midnight UTC, Monday midnight, the first of the month
//! (completion.md section 6). The merchant's clock is set to just before each.

use std::net::SocketAddr;

use chrono::{DateTime, Datelike as _, Days, Duration, Months, NaiveTime, Utc};
use farthing_tests::client::{Request, Response};
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::{Endpoint, json as answer_json};
use farthing_tests::run;
use farthing_tests::side_gateway::SideGateway;
use serde_json::{Value, json};

/// Calls that a key admits in a cycle.
const COUNT: usize = 2;

/// Seconds before the end of a cycle to which the clock is set; the calls must be used up by then.
const BEFORE: i64 = 3;

/// How many cycles may end before their calls are used up, on a busy machine.
const ATTEMPTS: usize = 5;

/// The end of the cycle that contains `at`, by the specification.
fn end_of(cycle: &str, at: DateTime<Utc>) -> DateTime<Utc> {
    let day = at.date_naive();
    let next = match cycle {
        "daily" => day + Days::new(1),
        "weekly" => day + Days::new(7 - u64::from(day.weekday().num_days_from_monday())),
        "monthly" => day.with_day(1).unwrap() + Months::new(1),
        other => panic!("{other}"),
    };
    next.and_time(NaiveTime::MIN).and_utc()
}

#[test]
fn cycles_end_with_the_calendar() {
    let at = |text: &str| text.parse::<DateTime<Utc>>().unwrap();
    // A Saturday, a Monday, and the last day of a year.
    for (cycle, now, end) in [
        ("daily", "2026-11-21T23:59:59Z", "2026-11-22T00:00:00Z"),
        ("weekly", "2026-11-21T12:00:00Z", "2026-11-23T00:00:00Z"),
        ("weekly", "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z"),
        ("monthly", "2026-12-31T12:00:00Z", "2027-01-01T00:00:00Z"),
    ] {
        assert_eq!(end_of(cycle, at(now)), at(end), "{cycle} {now}");
    }
}

/// A merchant whose clock is advanced, and how far it is ahead.
struct Ahead {
    merchant: Merchant,
    seconds: i64,
}

impl Ahead {
    async fn new() -> Self {
        Self { merchant: Merchant::funded("10").await, seconds: 0 }
    }

    /// Advances the clock and returns its time.
    async fn advance(&mut self, seconds: i64) -> DateTime<Utc> {
        let answer =
            self.merchant.post("/v1/test_clock", &json!({"advance_seconds": seconds})).await.expect(200);
        self.seconds += seconds;
        answer["now"].as_str().unwrap().parse().unwrap()
    }

    /// The merchant's time, by Postgres's clock.
    async fn now(&self) -> DateTime<Utc> {
        let row = self.merchant.log.sql.query_one("SELECT clock_timestamp()", &[]).await.unwrap();
        row.get::<_, DateTime<Utc>>(0) + Duration::seconds(self.seconds)
    }

    /// Sets the clock to `before` seconds before the end of a cycle, at least a second later than now; returns that end.
    async fn advance_to_the_end_of(&mut self, cycle: &str, before: i64) -> DateTime<Utc> {
        let now = self.advance(1).await;
        let mut end = end_of(cycle, now);
        if (end - now).num_seconds() <= before {
            end = end_of(cycle, end);
        }
        // The clock advances by whole seconds; the fraction brings it nearer to the end.
        self.advance((end - now).num_seconds() - before).await;
        end
    }

    async fn key(&self, settings: Value) -> (String, String) {
        let mut body = json!({"name": "a key"});
        body.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        let made = self.merchant.post("/v1/spend_keys", &body).await.expect(201);
        (made["spend_key_id"].as_str().unwrap().to_owned(), made["key"].as_str().unwrap().to_owned())
    }

    /// A key as shown; asserts that both gateways show the same.
    async fn shown(&self, id: &str) -> Value {
        let request = Request::new("GET", format!("/v1/spend_keys/{id}")).bearer(&self.merchant.secret_key);
        let [first, second] = self.gateways();
        let (first, second) = (request.send(first).await.unwrap(), request.send(second).await.unwrap());
        assert_eq!(first.expect(200), second.expect(200));
        first.json()
    }

    fn gateways(&self) -> [SocketAddr; 2] {
        [self.merchant.instance.gateway(0), self.merchant.instance.gateway(1)]
    }

    /// The admission times of the key's calls, by the log.
    async fn admitted(&self, id: &str) -> Vec<DateTime<Utc>> {
        let events = self.merchant.events().await.into_iter();
        let of_key = events
            .filter(|event| event.kind == "request.opened" && event.body["spend_key"]["spend_key_id"] == id);
        of_key
            .map(|event| event.body["spend_key"]["admitted_at"].as_str().unwrap().parse().unwrap())
            .collect()
    }
}

async fn call(key: &str, endpoint: &Endpoint, to: SocketAddr) -> Response {
    forward("GET", &endpoint.url).bearer(key).send(to).await.unwrap()
}

/// Asserts that a used-up key is refused on both gateways to the last millisecond of the cycle and admitted from its end on,
/// and that the shown counters reset at the same instant.
async fn renews_at_the_end_of(cycle: &'static str) {
    let mut ahead = Ahead::new().await;
    let endpoint =
        ahead.merchant.instance.provider.endpoint(|_| answer_json(200, &json!({"usage": {"tokens": 1}})));
    let limit = json!({"request_limit": {"count": COUNT, "cycle": cycle}});
    for attempt in 1.. {
        let ((id, key), (idle_id, idle)) = (ahead.key(limit.clone()).await, ahead.key(limit.clone()).await);
        let end = ahead.advance_to_the_end_of(cycle, BEFORE).await;
        for gateway in ahead.gateways() {
            call(&key, &endpoint, gateway).await.expect(200);
            call(&idle, &endpoint, gateway).await.expect(200);
        }
        let (used, idled) = (ahead.admitted(&id).await, ahead.admitted(&idle_id).await);
        if used.iter().chain(&idled).any(|at| *at >= end) {
            assert!(attempt < ATTEMPTS, "{cycle}: every cycle ended before its calls were used up");
            continue;
        }
        let mut refused = 0;
        let first = loop {
            let asked = ahead.now().await;
            let answer = call(&key, &endpoint, ahead.gateways()[refused % 2]).await;
            if answer.status == 200 {
                break answer;
            }
            answer.refused(429, "request_limit_exceeded");
            assert!(asked < end, "{cycle}: refused at {asked}, which is not before {end}");
            let seconds: i64 = answer.head.header("retry-after").unwrap().parse().unwrap();
            assert!((1..=BEFORE + 1).contains(&seconds), "{cycle}: {seconds} s to go");
            refused += 1;
        };
        assert!(first.complete);
        if refused < 2 {
            assert!(attempt < ATTEMPTS, "{cycle}: every cycle ended before both gateways had refused a call");
            continue;
        }
        let admitted = ahead.admitted(&id).await;
        assert_eq!(admitted.len(), COUNT + 1);
        assert!(admitted[COUNT] >= end, "{cycle}: admitted at {}, before {end}", admitted[COUNT]);
        // The gateway that was not called shows the new cycle too.
        let shown = ahead.shown(&idle_id).await;
        assert_eq!(
            (&shown["current_requests"], &shown["total_requests"]),
            (&json!(0), &json!(COUNT)),
            "{cycle}"
        );
        assert_eq!(ahead.shown(&id).await["current_requests"], json!(1), "{cycle}");
        // The rest of the new cycle's calls, from the other gateway, and no more.
        call(&key, &endpoint, ahead.gateways()[(refused + 1) % 2]).await.expect(200);
        for gateway in ahead.gateways() {
            let seconds: i64 = {
                let answer = call(&key, &endpoint, gateway).await;
                answer.refused(429, "request_limit_exceeded");
                answer.head.header("retry-after").unwrap().parse().unwrap()
            };
            let left = (end_of(cycle, end) - end).num_seconds();
            assert!(seconds <= left && seconds > BEFORE + 1, "{cycle}: {seconds} s of {left} s to go");
        }
        assert_eq!(ahead.shown(&id).await["total_requests"], json!(2 * COUNT), "{cycle}");
        return;
    }
}

#[test]
fn a_used_up_key_is_refused_to_the_last_millisecond_of_its_cycle_and_admitted_from_its_end_on_both_gateways()
{
    run(async {
        tokio::join!(
            renews_at_the_end_of("daily"),
            renews_at_the_end_of("weekly"),
            renews_at_the_end_of("monthly")
        );
    });
}

#[test]
fn a_total_limit_never_resets() {
    run(async {
        let mut ahead = Ahead::new().await;
        let endpoint = ahead.merchant.instance.provider.endpoint(|_| answer_json(200, &json!({})));
        let (id, key) = ahead.key(json!({"request_limit": {"count": 1, "cycle": "total"}})).await;
        call(&key, &endpoint, ahead.gateways()[0]).await.expect(200);
        for _ in 0..3 {
            for gateway in ahead.gateways() {
                let answer = call(&key, &endpoint, gateway).await;
                answer.refused(429, "request_limit_exceeded");
                assert_eq!(answer.head.header("retry-after"), Some("86400"));
            }
            assert_eq!(ahead.shown(&id).await["current_requests"], json!(1));
            ahead.advance(366 * 86_400).await;
        }
    });
}

#[test]
fn a_spend_limit_resets_with_each_cycle() {
    run(async {
        let mut ahead = Ahead::new().await;
        let (instance, openai) = (ahead.merchant.instance, &ahead.merchant.instance.openai);
        let prices = instance.file("a-cent-a-cycle.json");
        let entry = json!({"provider": "openai", "model": "a-cent", "per_request": "0.01"});
        let catalogue =
            json!({"source": "a test", "licence": "none", "taken": "2026-11-20", "models": [entry]});
        std::fs::write(&prices, catalogue.to_string()).unwrap();
        let flags = [
            format!("--prices={}", prices.display()),
            format!("--provider-host=openai={}", openai.authority()),
            instance.provider_key("openai", "sk-managed"),
            "--allow-address=127.0.0.0/8".to_owned(),
        ];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let gateways =
            [SideGateway::start(instance, &flags).await, SideGateway::start(instance, &flags).await];
        let endpoint = openai
            .endpoint(|_| answer_json(200, &json!({"usage": {"prompt_tokens": 1, "completion_tokens": 1}})));
        for cycle in ["daily", "weekly", "monthly"] {
            // Well within a cycle, so timing does not matter.
            ahead.advance_to_the_end_of(cycle, -60).await;
            let (id, key) = ahead.key(json!({"spend_limit": {"amount": "0.02", "cycle": cycle}})).await;
            let request = forward("POST", &endpoint.url).bearer(&key).json(&json!({"model": "a-cent"}));
            for cycles in 1..=2 {
                for gateway in &gateways {
                    request.send(gateway.address).await.unwrap().expect(200);
                }
                for gateway in &gateways {
                    request.send(gateway.address).await.unwrap().refused(402, "spend_limit_exceeded");
                }
                let shown = ahead.shown(&id).await;
                let total = format!("0.0{}00000000", 2 * cycles);
                assert_eq!(
                    (&shown["current_spend"], &shown["total_spend"]),
                    (&json!("0.0200000000"), &json!(total))
                );
                ahead.advance_to_the_end_of(cycle, -60).await;
                let shown = ahead.shown(&id).await;
                assert_eq!(
                    (&shown["current_spend"], &shown["total_spend"]),
                    (&json!("0.0000000000"), &json!(total)),
                    "{cycle}"
                );
                assert_eq!(
                    shown["current_requests"],
                    json!(2 * cycles),
                    "without a request limit, all of them"
                );
            }
        }
    });
}
