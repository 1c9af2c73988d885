//! The running processes: gateways, the leaders of the partitions, and the projectors.

use anyhow::Result;
use farthing_core::state::shape;
use farthing_projector::ReadModel;

use super::finding::Finding;
use super::session::Session;

/// How long the others may take to end the requests of a dead gateway, before something is wrong with them.
const SWEPT_AFTER_SECONDS: i64 = 300;

/// The gateways that announced themselves, and how long ago each of them should have done so again.
const GATEWAYS: &str = "\
SELECT gateway, shape, greatest(extract(epoch FROM clock_timestamp() - expires_at)::bigint, 0) AS overdue_seconds
FROM ledger.gateways ORDER BY gateway";

const LEASES: &str = "\
SELECT partition, gateway, expires_at > clock_timestamp() AS is_led FROM ledger.leases ORDER BY partition";

/// The locks that projectors hold for the read models $1 of the versions $2, for the webhook outbox and for the relay.
const LOCKS: &str = "\
WITH wanted AS (
    SELECT r.name AS work, 'farthing.projection.' || r.schema_name AS lock
    FROM ledger.read_models AS r
    JOIN unnest($1::text[], $2::bigint[]) AS own(name, version) ON own.name = r.name AND own.version = r.version
    UNION ALL VALUES ('webhook_outbox', 'farthing.webhooks'), ('relay', 'farthing.relay')
)
SELECT work, EXISTS (
    SELECT FROM pg_locks AS l
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND (l.classid::bigint << 32) | l.objid::bigint = hashtextextended(wanted.lock, 0)
) AS is_held
FROM wanted ORDER BY work";

/// The lock of the relay.
const RELAY: &str = "relay";

/// A gateway, as it announced itself.
#[derive(Debug, Clone)]
struct Gateway {
    name: String,
    shape: i16,
    /// 0 while it lives.
    overdue_seconds: i64,
}

/// A partition: its number, the last leader, and whether it leads.
type Lease = (i16, Option<String>, bool);

/// Checks the processes. A relay is needed if there is NATS.
pub(super) async fn check(session: &Session, has_nats: bool) -> Vec<Finding> {
    vec![
        session.check("processes.gateways", gateways(session)).await,
        session.check("processes.leaders", leaders(session)).await,
        session.check("processes.projector", projector(session, has_nats)).await,
    ]
}

async fn gateways(session: &Session) -> Result<Finding> {
    let mut gateways = Vec::new();
    for row in session.client.query(GATEWAYS, &[]).await? {
        gateways.push(Gateway {
            name: row.try_get(0)?,
            shape: row.try_get(1)?,
            overdue_seconds: row.try_get(2)?,
        });
    }
    Ok(judge_gateways(&gateways))
}

fn judge_gateways(gateways: &[Gateway]) -> Finding {
    let check = "processes.gateways";
    let alive: Vec<_> = gateways.iter().filter(|gateway| gateway.overdue_seconds == 0).collect();
    let names = |gateways: &[&Gateway]| {
        gateways.iter().map(|gateway| gateway.name.as_str()).collect::<Vec<_>>().join(", ")
    };
    if alive.is_empty() {
        return Finding::failed(
            check,
            "no gateway runs",
            "start one, and look at the log of those that should run",
        );
    }
    let left: Vec<_> =
        gateways.iter().filter(|gateway| gateway.overdue_seconds > SWEPT_AFTER_SECONDS).collect();
    if !left.is_empty() {
        let found = format!("requests of dead gateways were not ended: {}", names(&left));
        return Finding::warning(check, found, "look for `sweeper` in the log of the gateways that run");
    }
    let dead: Vec<_> = gateways.iter().filter(|gateway| gateway.overdue_seconds > 0).collect();
    if !dead.is_empty() {
        let found = format!("{} gateways run, and these have just died: {}", alive.len(), names(&dead));
        return Finding::warning(check, found, "look at their logs; the others end their requests");
    }
    let others: Vec<_> = alive.iter().copied().filter(|gateway| gateway.shape != shape()).collect();
    if !others.is_empty() {
        let found = format!("gateways of another version run: {}", names(&others));
        return Finding::warning(check, found, "end the upgrade: stop those of the older version");
    }
    Finding::ok(check, format!("{} run", alive.len()))
}

async fn leaders(session: &Session) -> Result<Finding> {
    let mut leases = Vec::new();
    for row in session.client.query(LEASES, &[]).await? {
        leases.push((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
    }
    Ok(judge_leases(&leases))
}

fn judge_leases(leases: &[Lease]) -> Finding {
    let check = "processes.leaders";
    let led = leases.iter().filter(|(.., is_led)| *is_led).count();
    if leases.is_empty() {
        return Finding::failed(check, "the log has no partitions", "run `farthing migrate`");
    }
    if led == leases.len() {
        return Finding::ok(check, format!("all {led} partitions have a leader"));
    }
    let without: Vec<String> = leases
        .iter()
        .filter(|(.., is_led)| !is_led)
        .map(|(partition, last, _)| match last {
            Some(gateway) => format!("{partition} (last: {gateway})"),
            None => partition.to_string(),
        })
        .collect();
    let found = format!("partitions without a leader: {}", without.join(", "));
    let advice = "their calls are 503: start a gateway, or look for `leases.` in the log of those that run";
    Finding::failed(check, found, advice)
}

async fn projector(session: &Session, has_nats: bool) -> Result<Finding> {
    let names = ReadModel::ALL.map(ReadModel::name);
    let versions = ReadModel::ALL.map(ReadModel::version);
    let mut locks = Vec::new();
    for row in session.client.query(LOCKS, &[&names.as_slice(), &versions.as_slice()]).await? {
        locks.push((row.try_get(0)?, row.try_get(1)?));
    }
    Ok(judge_projector(&locks, has_nats))
}

/// `locks` say of each part of a projector's work whether a process does it.
fn judge_projector(locks: &[(String, bool)], has_nats: bool) -> Finding {
    let check = "processes.projector";
    let needed: Vec<_> = locks.iter().filter(|(work, _)| has_nats || work != RELAY).collect();
    let undone: Vec<_> =
        needed.iter().filter(|(_, is_held)| !is_held).map(|(work, _)| work.as_str()).collect();
    if undone.is_empty() {
        return Finding::ok(check, "read models, webhook outbox and feed are kept up to date");
    }
    if undone.len() == needed.len() {
        return Finding::failed(
            check,
            "no projector runs",
            "start one: reads become stale and webhooks wait",
        );
    }
    if undone == [RELAY] {
        let found = "no projector publishes the feed";
        return Finding::failed(
            check,
            found,
            "start the projector with --nats-url, or look for `relay.` in its log",
        );
    }
    let found = format!("no projector works on {}", undone.join(", "));
    Finding::failed(check, found, "look for `projection.` and `webhook.` in the log of the projectors")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict;

    fn gateway(name: &str, overdue_seconds: i64) -> Gateway {
        Gateway { name: name.to_owned(), shape: shape(), overdue_seconds }
    }

    #[test]
    fn at_least_one_gateway_lives_and_none_is_left_dead() {
        assert_eq!(judge_gateways(&[]).verdict, Verdict::Failed);
        assert_eq!(judge_gateways(&[gateway("gw_1", 9)]).verdict, Verdict::Failed);
        assert_eq!(judge_gateways(&[gateway("gw_1", 0)]).verdict, Verdict::Ok);
        let died = judge_gateways(&[gateway("gw_1", 0), gateway("gw_2", 9)]);
        assert_eq!(died.verdict, Verdict::Warning);
        assert!(died.found.contains("gw_2"), "{}", died.found);
        let left = judge_gateways(&[gateway("gw_1", 0), gateway("gw_2", SWEPT_AFTER_SECONDS + 1)]);
        assert!(left.found.contains("were not ended: gw_2"), "{}", left.found);
        let newer = Gateway { shape: shape() + 1, ..gateway("gw_3", 0) };
        assert_eq!(judge_gateways(&[gateway("gw_1", 0), newer]).verdict, Verdict::Warning);
    }

    #[test]
    fn each_partition_has_a_leader() {
        let led = (0, Some("gw_1".to_owned()), true);
        assert_eq!(judge_leases(&[]).verdict, Verdict::Failed);
        assert_eq!(judge_leases(std::slice::from_ref(&led)).verdict, Verdict::Ok);
        let found = judge_leases(&[led, (1, Some("gw_2".to_owned()), false), (2, None, false)]);
        assert_eq!(found.verdict, Verdict::Failed);
        assert_eq!(found.found, "partitions without a leader: 1 (last: gw_2), 2");
    }

    #[test]
    fn all_work_of_a_projector_is_done() {
        let locks = |held: &[(&str, bool)]| -> Vec<_> {
            held.iter().map(|(work, is_held)| ((*work).to_owned(), *is_held)).collect()
        };
        let whole = locks(&[("plans", true), ("webhook_outbox", true), (RELAY, true)]);
        assert_eq!(judge_projector(&whole, true).verdict, Verdict::Ok);
        let unfed = locks(&[("plans", true), ("webhook_outbox", true), (RELAY, false)]);
        assert_eq!(judge_projector(&unfed, false).verdict, Verdict::Ok, "there is no NATS");
        assert_eq!(judge_projector(&unfed, true).found, "no projector publishes the feed");
        let none = locks(&[("plans", false), ("webhook_outbox", false), (RELAY, false)]);
        assert_eq!(judge_projector(&none, true).found, "no projector runs");
        assert_eq!(judge_projector(&none, false).found, "no projector runs");
        let half = locks(&[("plans", false), ("webhook_outbox", true), (RELAY, true)]);
        assert_eq!(judge_projector(&half, true).found, "no projector works on plans");
    }
}
