//! The doctor's session at Postgres. Invariant: it is read-only, and every statement has an end.

use std::cell::Cell;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use farthing_log::connect::{self, PostgresTls, redacted};
use tokio_postgres::config::Host;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config};

use super::finding::Finding;

/// How an operator sees the session in `pg_stat_activity`.
const NAME: &str = "farthing_doctor";

/// A statement ends before the check that waits for it.
const MARGIN: Duration = Duration::from_millis(500);

/// What every check needs to know of the connection.
pub(super) struct Session {
    pub(super) client: Client,
    /// The TLS of the connection.
    pub(super) tls: PostgresTls,
    /// Whether the connection stays on this machine.
    pub(super) is_local: bool,
    /// How long a check may take.
    limit: Duration,
    /// Whether the server has stopped to answer.
    is_lost: Cell<bool>,
}

impl Session {
    /// Connects with the rights of the login. The error is for people.
    pub(super) async fn open(database_url: &str, limit: Duration) -> Result<Self, String> {
        let opened = async {
            let (mut config, tls) = connect::settings_of(database_url)?;
            config.application_name(NAME).connect_timeout(limit);
            let (client, connection) = config.connect(tls.clone()).await?;
            // It ends when the client is dropped.
            tokio::spawn(connection);
            let milliseconds = limit.saturating_sub(MARGIN).as_millis().max(1);
            let settings = format!(
                "SET search_path = pg_catalog, pg_temp; SET default_transaction_read_only = on; \
                 SET statement_timeout = {milliseconds}; \
                 SET lock_timeout = {milliseconds}"
            );
            client.batch_execute(&settings).await?;
            let is_local = is_local(&config);
            Ok::<_, tokio_postgres::Error>(Self { client, tls, is_local, limit, is_lost: Cell::new(false) })
        };
        match tokio::time::timeout(limit, opened).await {
            Ok(opened) => opened.map_err(|error| redacted(&error)),
            Err(_) => Err(format!("no answer within {} s", limit.as_secs())),
        }
    }

    /// Carries out a check. What keeps it from its facts becomes its finding.
    pub(super) async fn check(
        &self,
        name: &'static str,
        read: impl Future<Output = Result<Finding>>,
    ) -> Finding {
        if self.is_lost.get() {
            return unanswered(name, self.limit);
        }
        match tokio::time::timeout(self.limit, read).await {
            Ok(Ok(finding)) => finding,
            Ok(Err(error)) => hindered(name, &error),
            Err(_) => {
                // Later statements would wait behind this one.
                self.is_lost.set(true);
                unanswered(name, self.limit)
            }
        }
    }

    /// Reads what several checks need, if the login may.
    pub(super) async fn facts<T>(&self, read: impl Future<Output = Result<T>>) -> Result<T> {
        let read = tokio::time::timeout(self.limit, read).await;
        read.context("Postgres did not answer in time")?
    }
}

/// Whether a connection stays on this machine, by the addresses, or else the hosts, that the URL names.
fn is_local(config: &Config) -> bool {
    let (hosts, addresses) = (config.get_hosts(), config.get_hostaddrs());
    if !addresses.is_empty() {
        // The host beside an address is the name in the server's certificate, and is not looked up.
        return addresses.iter().all(IpAddr::is_loopback);
    }
    let is_here = |host: &Host| match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => is_loopback(name),
    };
    !hosts.is_empty() && hosts.iter().all(is_here)
}

/// Whether a host is this machine, by its name or address alone.
pub(super) fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || address.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

fn unanswered(name: &'static str, limit: Duration) -> Finding {
    let found = format!("Postgres did not answer within {} s", limit.as_secs());
    Finding::failed(name, found, "look at the load, the locks and the disk of the server")
}

/// The finding of a check that could not read its facts.
fn hindered(name: &'static str, error: &anyhow::Error) -> Finding {
    let reported = error.chain().find_map(|cause| cause.downcast_ref::<tokio_postgres::Error>());
    let Some(reported) = reported else {
        return Finding::failed(name, error.to_string(), "see the message");
    };
    let text = redacted(reported);
    match reported.code() {
        Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
            Finding::skipped(name, format!("this login may not read what the check needs: {text}"))
        }
        Some(&SqlState::UNDEFINED_TABLE | &SqlState::UNDEFINED_COLUMN | &SqlState::INVALID_SCHEMA_NAME) => {
            Finding::failed(name, text, "run `farthing migrate` of this version")
        }
        Some(&SqlState::QUERY_CANCELED | &SqlState::LOCK_NOT_AVAILABLE) => {
            Finding::failed(name, text, "look at the load, the locks and the disk of the server")
        }
        Some(_) | None => Finding::failed(name, text, "see the message, and the log of Postgres"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loopback_host_is_known_by_its_name_or_address() {
        for host in ["localhost", "127.0.0.1", "127.8.0.1", "::1", "[::1]"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["db", "10.0.0.5", "localhost.example", "2001:db8::1"] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn a_connection_goes_to_its_address_whatever_its_host_is_called() {
        for (url, stays) in [
            ("host=localhost", true),
            ("host=/run/postgresql", true),
            ("postgres://u@[::1]/d", true),
            ("host=db hostaddr=127.0.0.1", true),
            ("hostaddr=::1", true),
            ("host=localhost,127.0.0.1", true),
            ("host=db", false),
            ("host=localhost hostaddr=10.0.0.5", false),
            ("hostaddr=10.0.0.5", false),
            ("host=localhost,db", false),
            ("host=localhost,localhost hostaddr=127.0.0.1,10.0.0.5", false),
            ("user=u", false),
        ] {
            assert_eq!(is_local(&url.parse().unwrap()), stays, "{url}");
        }
    }
}
