//! TLS of the connections to Postgres and NATS: whether they are encrypted, whether the server is verified, and whether a
//! certificate is close to its end.

use std::path::Path;

use anyhow::Result;
use chrono::{DateTime, TimeDelta, Utc};
use farthing_log::connect::Check;
use farthing_tls::Validity;

use super::finding::Finding;
use super::session::Session;

/// A certificate is close to its end in the last quarter of its time, and in its last two weeks at most: a program renews
/// those of a few days.
const LAST_PART: i32 = 4;
const LAST_DAYS: TimeDelta = TimeDelta::days(14);

const IS_ENCRYPTED: &str = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";

/// A connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) is_encrypted: bool,
    pub(super) verified: Verified,
    /// Whether it stays on this machine.
    pub(super) is_local: bool,
}

/// What is known of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verified {
    /// Nothing.
    Nothing,
    /// Its certificate is of a trusted authority.
    Authority,
    /// It is also for the host.
    Name,
}

/// What a connection has to do with whom, for messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Names {
    pub(super) encryption: &'static str,
    pub(super) certificate: &'static str,
    /// How to make it better.
    pub(super) advice: &'static str,
}

const POSTGRES: Names = Names {
    encryption: "postgres.tls",
    certificate: "postgres.certificate",
    advice: "use `sslmode=verify-full` in the database URL, with `sslrootcert` for an authority of your own",
};

/// A certificate, and whose it is.
pub(super) type Shown = (&'static str, Option<Validity>);

/// Checks the connection to Postgres.
pub(super) async fn check(session: &Session) -> Vec<Finding> {
    let link = session.check(POSTGRES.encryption, encryption(session)).await;
    let mut certificates = Vec::new();
    if let Some(shown) = session.tls.shown() {
        certificates.push(("the server's certificate", farthing_tls::validity(&shown)));
    }
    if let Some(file) = session.tls.client_certificate() {
        certificates.push(("the client's certificate", of_file(file)));
    }
    vec![link, judge_certificates(POSTGRES, &certificates, Utc::now())]
}

/// The validity of the first certificate in a PEM file.
pub(super) fn of_file(file: &Path) -> Option<Validity> {
    farthing_tls::validity(farthing_tls::certificates(file).ok()?.first()?)
}

async fn encryption(session: &Session) -> Result<Finding> {
    let row = session.client.query_opt(IS_ENCRYPTED, &[]).await?;
    let is_encrypted = row.is_some_and(|row| row.get(0));
    let verified = match session.tls.check() {
        Check::Nothing => Verified::Nothing,
        Check::Authority(_) => Verified::Authority,
        Check::AuthorityAndName(_) => Verified::Name,
    };
    Ok(judge_link(POSTGRES, Link { is_encrypted, verified, is_local: session.is_local }))
}

pub(super) fn judge_link(names: Names, link: Link) -> Finding {
    let check = names.encryption;
    match link {
        Link { is_encrypted: true, verified: Verified::Name, .. } => {
            Finding::ok(check, "encrypted, and the server is verified by its name")
        }
        Link { is_local: true, is_encrypted, .. } => {
            let found = if is_encrypted { "encrypted" } else { "not encrypted" };
            Finding::ok(check, format!("{found}; the connection stays on this machine"))
        }
        Link { is_encrypted: true, verified: Verified::Authority, .. } => {
            let found = "encrypted; the server's certificate is checked, but not for its name";
            Finding::warning(check, found, names.advice)
        }
        Link { is_encrypted: true, .. } => {
            let found = "encrypted, but the server is not verified: it may be anyone";
            Finding::warning(check, found, names.advice)
        }
        Link { is_encrypted: false, .. } => {
            Finding::warning(check, "not encrypted: who reads the traffic sees all of it", names.advice)
        }
    }
}

/// Judges certificates at a time. A malformed one has no validity.
pub(super) fn judge_certificates(names: Names, certificates: &[Shown], now: DateTime<Utc>) -> Finding {
    let check = names.certificate;
    let (mut ends, mut close, mut over) = (Vec::new(), false, false);
    for (whose, validity) in certificates {
        let time = |second: u64| DateTime::from_timestamp(i64::try_from(second).ok()?, 0);
        let times = validity.and_then(|validity| Some((time(validity.from)?, time(validity.until)?)));
        let Some((from, until)) = times else {
            return Finding::skipped(check, format!("the time of {whose} cannot be read"));
        };
        ends.push(format!("{whose} ends at {}", until.format("%Y-%m-%d %H:%M UTC")));
        over |= until <= now;
        close |= until - now < ((until - from) / LAST_PART).min(LAST_DAYS);
    }
    let found = ends.join(", ");
    if certificates.is_empty() {
        Finding::skipped(check, "the connection has no certificate")
    } else if over {
        Finding::failed(check, found, "renew it; no process needs a restart")
    } else if close {
        Finding::warning(check, found, "renew it before its end; no process needs a restart")
    } else {
        Finding::ok(check, found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict;

    #[test]
    fn a_connection_is_encrypted_and_verified_or_stays_on_the_machine() {
        let verdict = |is_encrypted, verified, is_local| {
            judge_link(POSTGRES, Link { is_encrypted, verified, is_local }).verdict
        };
        assert_eq!(verdict(true, Verified::Name, false), Verdict::Ok);
        assert_eq!(verdict(false, Verified::Nothing, true), Verdict::Ok);
        assert_eq!(verdict(true, Verified::Nothing, true), Verdict::Ok);
        assert_eq!(verdict(true, Verified::Authority, false), Verdict::Warning);
        assert_eq!(verdict(true, Verified::Nothing, false), Verdict::Warning);
        assert_eq!(verdict(false, Verified::Nothing, false), Verdict::Warning);
        assert_eq!(verdict(false, Verified::Name, false), Verdict::Warning, "`prefer` went without TLS");
    }

    #[test]
    fn a_certificate_is_close_to_its_end_in_its_last_quarter_or_two_weeks() {
        let day = 86_400_u64;
        let now = DateTime::from_timestamp(i64::try_from(10_000 * day).unwrap(), 0).unwrap();
        let verdict = |from: u64, until: u64| {
            let validity = Validity { from: (10_000 - from) * day, until: (10_000 * day) + until };
            judge_certificates(POSTGRES, &[("a certificate", Some(validity))], now).verdict
        };
        assert_eq!(verdict(300, 15 * day), Verdict::Ok, "a year's, with 15 days left");
        assert_eq!(verdict(300, 13 * day), Verdict::Warning);
        assert_eq!(verdict(1, day), Verdict::Ok, "a program renews it");
        assert_eq!(verdict(1, day / 4), Verdict::Warning, "a fifth of its time is left");
        assert_eq!(verdict(1, 0), Verdict::Failed);
        let two = [
            ("a", Some(Validity { from: 0, until: 20_000 * day })),
            ("b", Some(Validity { from: 0, until: 1 })),
        ];
        assert_eq!(judge_certificates(POSTGRES, &two, now).verdict, Verdict::Failed, "the worst counts");
        assert_eq!(judge_certificates(POSTGRES, &[], now).verdict, Verdict::Skipped);
        assert_eq!(judge_certificates(POSTGRES, &[("a", None)], now).verdict, Verdict::Skipped);
    }
}
