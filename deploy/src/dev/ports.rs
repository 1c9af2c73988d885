//! Free ports, the same ones on every start where they still are free. They lie below the range that systems take
//! for outgoing connections, so that a restarted child finds its port unused.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, TcpListener};

use super::folder::Folder;
use crate::failure::Failure;
use crate::lifetime;

const FIRST: u16 = 10_000;
const COUNT: u16 = 22_000;
const TRIES: usize = 1_000;
const FILE: &str = "ports.json";

/// Ports by the name of what listens there.
pub(super) struct Ports {
    before: BTreeMap<String, u16>,
    taken: BTreeMap<String, u16>,
}

impl Ports {
    /// Those of the last start.
    pub(super) fn remembered(folder: &Folder) -> Self {
        let text = std::fs::read(folder.at(FILE)).unwrap_or_default();
        Self { before: serde_json::from_slice(&text).unwrap_or_default(), taken: BTreeMap::new() }
    }

    /// Keeps them for the next start.
    pub(super) fn remember(&self, folder: &Folder) -> Result<(), Failure> {
        lifetime::write_json(&folder.at(FILE), &self.taken)
    }

    /// A port that is free now.
    pub(super) fn take(&mut self, name: &str, ip: IpAddr) -> Result<u16, Failure> {
        let mut candidate = self.before.get(name).copied().map_or_else(random_port, Ok)?;
        for _ in 0..TRIES {
            let is_ours = self.taken.values().any(|port| *port == candidate);
            if !is_ours && TcpListener::bind(SocketAddr::new(ip, candidate)).is_ok() {
                self.taken.insert(name.to_owned(), candidate);
                return Ok(candidate);
            }
            candidate = random_port()?;
        }
        Err(Failure::new(format!("no free port at {ip}")))
    }
}

fn random_port() -> Result<u16, Failure> {
    let mut bytes = [0; 2];
    getrandom::fill(&mut bytes).map_err(|error| Failure::new(format!("no randomness: {error}")))?;
    Ok(FIRST + u16::from_le_bytes(bytes) % COUNT)
}
