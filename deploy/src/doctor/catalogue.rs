//! The names of all checks, in the order of the report. They never change, so that a monitor can look for one.

use super::finding::{Finding, Verdict};

/// Every check. docs/operations/doctor.md has a row for each; a test compares them.
const CHECKS: [&str; 40] = [
    "postgres.reached",
    "postgres.version",
    "postgres.primary",
    "postgres.encoding",
    "postgres.durability",
    "postgres.transactions",
    "postgres.timeouts",
    "postgres.autovacuum",
    "postgres.compression",
    "postgres.connections",
    "postgres.tls",
    "postgres.certificate",
    "postgres.size",
    "postgres.disk",
    "rights.login",
    "rights.roles",
    "rights.processes",
    "database.migrations",
    "database.append_only",
    "database.shape",
    "database.read_models",
    "database.server_key",
    "clock.machine",
    "clock.gateways",
    "processes.gateways",
    "processes.leaders",
    "processes.projector",
    "lag.read_models",
    "lag.webhook_outbox",
    "lag.deliveries",
    "nats.reached",
    "nats.tls",
    "nats.certificate",
    "nats.version",
    "nats.max_payload",
    "nats.jetstream",
    "nats.limits",
    "feed.streams",
    "feed.replicas",
    "lag.relay",
];

/// What the checks of NATS need, in this order.
const NEEDED_AT_NATS: [&str; 3] = ["nats.reached", "nats.jetstream", "feed.streams"];

/// The findings of all checks in their order. One without a finding could not be carried out, because another one failed
/// or was skipped.
pub(super) fn complete(mut found: Vec<Finding>) -> Vec<Finding> {
    let mut all = Vec::with_capacity(CHECKS.len());
    for check in CHECKS {
        let at = found.iter().position(|finding| finding.check == check);
        let finding = at.map(|at| found.remove(at));
        all.push(
            finding.unwrap_or_else(|| Finding::skipped(check, format!("see {}", needed_for(check, &all)))),
        );
    }
    assert!(found.is_empty(), "checks that have no place in the catalogue: {found:?}");
    all
}

/// The check that keeps another one from being carried out, of those that were.
fn needed_for(check: &str, all: &[Finding]) -> &'static str {
    let at_nats = check == "lag.relay" || check.starts_with("nats.") || check.starts_with("feed.");
    if !at_nats {
        return "postgres.reached";
    }
    let hindered = |name: &&&str| {
        all.iter().any(|finding| {
            finding.check == **name && matches!(finding.verdict, Verdict::Failed | Verdict::Skipped)
        })
    };
    NEEDED_AT_NATS.iter().find(hindered).copied().unwrap_or("nats.reached")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_without_a_finding_names_the_one_that_it_needs() {
        let found = vec![
            Finding::failed("nats.jetstream", "off", "switch it on"),
            Finding::ok("nats.reached", "yes"),
            Finding::failed("postgres.reached", "no", "start it"),
        ];
        let all = complete(found);
        assert_eq!(all.iter().map(|finding| finding.check).collect::<Vec<_>>(), CHECKS);
        let of = |check: &str| all.iter().find(|finding| finding.check == check).unwrap();
        assert_eq!(of("nats.reached").verdict, Verdict::Ok);
        assert_eq!(of("lag.read_models").found, "see postgres.reached");
        assert_eq!(of("feed.replicas").found, "see nats.jetstream");
        assert_eq!(of("lag.relay").verdict, Verdict::Skipped);
    }
}
