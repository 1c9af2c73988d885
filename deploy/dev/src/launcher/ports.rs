//! Free ports, the same on every start while they are still free. They lie below the range that systems use for
//! outgoing connections, so that a restarted process finds its port unused.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, TcpListener};

use anyhow::{Result, anyhow, bail};

use super::data_folder::DataFolder;
use crate::private_file;

const FIRST: u16 = 10_000;
const COUNT: u16 = 22_000;
const ATTEMPTS: usize = 1_000;
const FILE: &str = "ports.json";

/// The port of that range which browsers refuse to open (Fetch Standard, "bad port").
const BLOCKED_BY_BROWSERS: u16 = 10_080;

/// Ports, by the name of what listens there.
pub(super) struct Ports {
    previous: BTreeMap<String, u16>,
    taken: BTreeMap<String, u16>,
}

impl Ports {
    /// The ports of the previous start, if there was one.
    pub(super) fn remembered(folder: &DataFolder) -> Self {
        let text = std::fs::read(folder.path(FILE)).unwrap_or_default();
        Self { previous: serde_json::from_slice(&text).unwrap_or_default(), taken: BTreeMap::new() }
    }

    /// Saves the taken ports for the next start.
    pub(super) fn remember(&self, folder: &DataFolder) -> Result<()> {
        private_file::write_json(&folder.path(FILE), &self.taken)
    }

    /// Takes a port that is free now: the one of the previous start, or a random one.
    pub(super) fn take(&mut self, name: &str, ip: IpAddr) -> Result<u16> {
        let mut candidate = self.previous.get(name).copied().map_or_else(random_port, Ok)?;
        for _ in 0..ATTEMPTS {
            let is_unfit =
                candidate == BLOCKED_BY_BROWSERS || self.taken.values().any(|port| *port == candidate);
            if !is_unfit && TcpListener::bind(SocketAddr::new(ip, candidate)).is_ok() {
                self.taken.insert(name.to_owned(), candidate);
                return Ok(candidate);
            }
            candidate = random_port()?;
        }
        bail!("no free port at {ip}")
    }
}

fn random_port() -> Result<u16> {
    let mut bytes = [0; 2];
    getrandom::fill(&mut bytes).map_err(|error| anyhow!("cannot get random bytes: {error}"))?;
    Ok(FIRST + u16::from_le_bytes(bytes) % COUNT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_browsers_refuse_is_not_taken() {
        let previous = BTreeMap::from([("gateway".to_owned(), BLOCKED_BY_BROWSERS)]);
        let mut ports = Ports { previous, taken: BTreeMap::new() };
        assert_ne!(ports.take("gateway", [127, 0, 0, 1].into()).unwrap(), BLOCKED_BY_BROWSERS);
    }
}
