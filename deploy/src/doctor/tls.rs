//! TLS of the connections to Postgres and NATS: whether they are encrypted, whether the server is verified, and whether a
//! certificate is close to its end.

use std::fmt;
use std::path::Path;

use anyhow::Result;
use chrono::{DateTime, TimeDelta, Utc};
use farthing_log::connect::{Authorities, Check};
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

/// Whose a certificate is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    Server,
    Client,
    /// That of a trusted authority. Our TLS library does not look at its time, and most others do.
    Authority,
}

impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Server => "the server's certificate",
            Self::Client => "the client's certificate",
            Self::Authority => "the last of the trusted authorities",
        })
    }
}

/// A certificate's time; `None` if it is malformed, or its file cannot be read.
pub(super) type Shown = (Whose, Option<Validity>);

/// Checks the connection to Postgres.
pub(super) async fn check(session: &Session) -> Vec<Finding> {
    let link = session.check(POSTGRES.encryption, encryption(session)).await;
    let mut certificates = Vec::new();
    if let Some(shown) = session.tls.shown() {
        certificates.push((Whose::Server, farthing_tls::validity(&shown)));
    }
    if let Some(file) = session.tls.client_certificate() {
        certificates.push((Whose::Client, of_file(file)));
    }
    if let Check::Authority(Authorities::File(file)) | Check::AuthorityAndName(Authorities::File(file)) =
        session.tls.check()
    {
        certificates.push((Whose::Authority, of_authorities(file)));
    }
    vec![link, judge_certificates(POSTGRES, &certificates, Utc::now())]
}

/// The validity of the first certificate in a PEM file.
pub(super) fn of_file(file: &Path) -> Option<Validity> {
    farthing_tls::validity(farthing_tls::certificates(file).ok()?.first()?)
}

/// The validity of the authority in a PEM file that ends last: a file may hold the one before it as well.
pub(super) fn of_authorities(file: &Path) -> Option<Validity> {
    let authorities = farthing_tls::certificates(file).ok()?;
    authorities.iter().filter_map(|one| farthing_tls::validity(one)).max_by_key(|validity| validity.until)
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

/// Judges certificates at a time.
pub(super) fn judge_certificates(names: Names, certificates: &[Shown], now: DateTime<Utc>) -> Finding {
    let check = names.certificate;
    let (mut found, mut unread) = (Vec::new(), false);
    let (mut close, mut over, mut old_authority) = (false, false, false);
    for (whose, validity) in certificates {
        let time = |second: u64| DateTime::from_timestamp(i64::try_from(second).ok()?, 0);
        let times = validity.and_then(|validity| Some((time(validity.from)?, time(validity.until)?)));
        let Some((from, until)) = times else {
            found.push(format!("the time of {whose} cannot be read"));
            unread = true;
            continue;
        };
        found.push(format!("{whose} ends at {}", until.format("%Y-%m-%d %H:%M UTC")));
        let is_close = until - now < ((until - from) / LAST_PART).min(LAST_DAYS);
        if *whose == Whose::Authority {
            old_authority |= is_close;
        } else {
            over |= until <= now;
            close |= is_close;
        }
    }
    let found = found.join(", ");
    if certificates.is_empty() {
        Finding::skipped(check, "the connection has no certificate")
    } else if over {
        Finding::failed(check, found, "renew it; no process needs a restart")
    } else if close {
        Finding::warning(check, found, "renew it before its end; no process needs a restart")
    } else if old_authority {
        let advice =
            "add the next authority to the file: Farthing goes on with an ended one, other programs do not";
        Finding::warning(check, found, advice)
    } else if unread {
        Finding::skipped(check, found)
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
            judge_certificates(POSTGRES, &[(Whose::Server, Some(validity))], now).verdict
        };
        assert_eq!(verdict(300, 15 * day), Verdict::Ok, "a year's, with 15 days left");
        assert_eq!(verdict(300, 13 * day), Verdict::Warning);
        assert_eq!(verdict(1, day), Verdict::Ok, "a program renews it");
        assert_eq!(verdict(1, day / 4), Verdict::Warning, "a fifth of its time is left");
        assert_eq!(verdict(1, 0), Verdict::Failed);
        assert_eq!(judge_certificates(POSTGRES, &[], now).verdict, Verdict::Skipped);
    }

    #[test]
    fn each_certificate_is_judged_and_the_worst_counts() {
        let day = 86_400_u64;
        let now = DateTime::from_timestamp(i64::try_from(10_000 * day).unwrap(), 0).unwrap();
        let until = |day_of_end: u64| Some(Validity { from: 0, until: day_of_end * day });
        let (well, close, over) = (until(20_000), until(10_001), until(9_999));
        let (server, client, authority) = (Whose::Server, Whose::Client, Whose::Authority);
        for (certificates, verdict) in [
            ([(server, well), (client, well), (authority, well)], Verdict::Ok),
            ([(server, well), (client, over), (authority, well)], Verdict::Failed),
            ([(server, well), (client, close), (authority, over)], Verdict::Warning),
            // The connection lasts beyond the end of an authority.
            ([(server, well), (client, well), (authority, over)], Verdict::Warning),
            ([(server, well), (client, well), (authority, close)], Verdict::Warning),
            // One that cannot be read hides no other.
            ([(server, None), (client, over), (authority, well)], Verdict::Failed),
            ([(server, None), (client, close), (authority, well)], Verdict::Warning),
            ([(server, None), (client, well), (authority, well)], Verdict::Skipped),
            ([(server, well), (client, None), (authority, well)], Verdict::Skipped),
        ] {
            let finding = judge_certificates(POSTGRES, &certificates, now);
            assert_eq!(finding.verdict, verdict, "{certificates:?}");
            for (whose, _) in certificates {
                assert!(finding.found.contains(&whose.to_string()), "{}", finding.found);
            }
        }
    }
}
