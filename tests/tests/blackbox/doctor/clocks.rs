//! Machines whose clock differs from Postgres's: that of the doctor, and that of a gateway.

use chrono::{DateTime, TimeDelta, Utc};
use farthing_tests::faketime::faketime;
use farthing_tests::instance::Instance;
use farthing_tests::run;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::tenant::Tenant;
use serde_json::json;

use super::{Report, doctor, doctor_under, migrated};

/// The lead of Postgres's clock as the doctor found it, and the error of its measurement, in milliseconds.
fn lead(report: &Report) -> (i64, i64) {
    let (_, found) = report.of("clock.machine");
    let words: Vec<&str> = found.split_whitespace().collect();
    let ["Postgres's", "clock", "is", lead, "ms", direction, .., "to", error, "ms"] = words[..] else {
        panic!("{found}")
    };
    let lead: i64 = lead.parse().unwrap();
    (if direction == "behind" { -lead } else { lead }, error.parse().unwrap())
}

#[test]
fn a_machine_whose_clock_differs_is_a_warning_and_fails_from_a_minute_on() {
    run(async {
        let url = migrated(Instance::shared().await, "doctor_clock").await;
        for (seconds, verdict) in
            [(0, "ok"), (5, "warning"), (-5, "warning"), (90, "failed"), (-90, "failed")]
        {
            let Some(wrapper) = faketime(seconds) else { return };
            let report = doctor_under(&wrapper.each_ref().map(String::as_str), &url, &[]).await;
            report.expect("clock.machine", verdict, "");
            let (found, error) = lead(&report);
            assert!((found + seconds * 1_000).abs() <= error, "{seconds} s: {}", report.json);
        }
    });
}

#[test]
fn a_gateway_whose_clock_is_ahead_says_so_and_the_doctor_finds_it() {
    run(async {
        let instance = Instance::shared().await;
        let Some(wrapper) = faketime(90) else { return };
        let tenant = Tenant::on(instance, "doctor_fast_gateway", "test").await;
        let servers = ["--database-url", tenant.database_url.as_str()];
        let before = tenant.log.sql.query_one("SELECT clock_timestamp()", &[]).await.unwrap();
        let gateway =
            SideGateway::under(instance, &wrapper.each_ref().map(String::as_str), &servers, &[]).await;
        tenant.post(gateway.address, "/v1/customers", &json!({"reference_id": "ada"})).await.expect(201);

        let report = doctor(&tenant.database_url, &[]).await;
        report.expect("clock.gateways", "warning", &gateway.id().await);
        report.expect("clock.machine", "ok", "");
        let logged = gateway.logged();
        assert!(logged.contains("event=\"clock.differs\" ahead_ms=-"), "{logged}");
        // The gateway decides by Postgres's clock; only the time of the record is its own.
        let after = tenant.log.sql.query_one("SELECT clock_timestamp()", &[]).await.unwrap();
        let created = tenant.of_kind("customer.created").await;
        let [customer] = &created[..] else { panic!("{created:?}") };
        let [before, after] = [before, after].map(|row| row.get::<_, DateTime<Utc>>(0));
        let error = TimeDelta::seconds(45);
        assert!(
            before - error <= customer.occurred_at && customer.occurred_at <= after + error,
            "{customer:?}"
        );
        assert!(customer.recorded_at >= before + TimeDelta::seconds(90) - error, "{customer:?}");
    });
}
