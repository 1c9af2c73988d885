//! The heartbeats of the other gateways, and which of them are dead.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// The heartbeat of a gateway with open requests but without a lease. It never changes.
pub(super) const NO_LEASE: i64 = 0;

/// The heartbeats of the other gateways.
#[derive(Debug)]
pub(super) struct Heartbeats {
    /// A gateway is dead when its heartbeat has not changed for this long.
    pub(super) after: Duration,
    /// The last heartbeat of each gateway and the time when it was first seen.
    seen: HashMap<String, (i64, Instant)>,
    read_at: Option<Instant>,
}

impl Heartbeats {
    pub(super) fn new(after: Duration) -> Self {
        Self { after, seen: HashMap::new(), read_at: None }
    }

    /// Takes the current heartbeats of all other gateways and returns the gateways that are dead. If none were read for
    /// half of the time, as after a pause of the whole machine, others may have had no chance to send one: the measurement
    /// restarts.
    pub(super) fn dead(&mut self, current: &HashMap<String, i64>) -> Vec<String> {
        let now = Instant::now();
        if self.read_at.replace(now).is_some_and(|read_at| now.duration_since(read_at) > self.after / 2) {
            self.restart();
        }
        self.seen.retain(|gateway, _| current.contains_key(gateway));
        let mut dead = Vec::new();
        for (gateway, &heartbeat) in current {
            let (last, since) = self.seen.entry(gateway.clone()).or_insert((heartbeat, now));
            if *last != heartbeat {
                (*last, *since) = (heartbeat, now);
            } else if now.duration_since(*since) >= self.after {
                dead.push(gateway.clone());
            }
        }
        dead
    }

    /// Removes a gateway whose requests and lease are ended.
    pub(super) fn forget(&mut self, gateway: &str) {
        self.seen.remove(gateway);
    }

    /// Restarts the measurement, because heartbeats could not be read.
    pub(super) fn restart(&mut self) {
        self.seen.clear();
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::lease::ROUNDS_PER_TIMEOUT;

    const AFTER: Duration = Duration::from_secs(30);

    fn current(heartbeats: &[(&str, i64)]) -> HashMap<String, i64> {
        heartbeats.iter().map(|(gateway, heartbeat)| ((*gateway).to_owned(), *heartbeat)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_gateway_is_dead_once_its_heartbeat_has_not_changed_for_the_sweep_time() {
        let mut heartbeats = Heartbeats::new(AFTER);
        for round in 0..ROUNDS_PER_TIMEOUT {
            assert!(heartbeats.dead(&current(&[("live", round.into()), ("stopped", 7)])).is_empty());
            advance(AFTER / ROUNDS_PER_TIMEOUT).await;
        }
        let live = i64::from(ROUNDS_PER_TIMEOUT);
        assert_eq!(heartbeats.dead(&current(&[("live", live), ("stopped", 7)])), ["stopped"]);
    }

    /// Reads the same heartbeats for the sweep time, as often as a sweeper does. Nobody is dead before its end.
    async fn unchanged(heartbeats: &mut Heartbeats, current: &HashMap<String, i64>) -> Vec<String> {
        for _ in 0..ROUNDS_PER_TIMEOUT {
            assert!(heartbeats.dead(current).is_empty());
            advance(AFTER / ROUNDS_PER_TIMEOUT).await;
        }
        heartbeats.dead(current)
    }

    #[tokio::test(start_paused = true)]
    async fn a_sweeper_that_stood_still_takes_nobody_for_dead() {
        let mut heartbeats = Heartbeats::new(AFTER);
        let current = current(&[("a", 1)]);
        heartbeats.dead(&current);
        advance(AFTER * 2).await;
        assert_eq!(unchanged(&mut heartbeats, &current).await, ["a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_sweep_time_starts_again_when_a_heartbeat_changes() {
        let mut heartbeats = Heartbeats::new(AFTER);
        assert!(heartbeats.dead(&current(&[("slow", 1)])).is_empty());
        advance(AFTER / 2).await;
        assert!(heartbeats.dead(&current(&[("slow", 1)])).is_empty());
        advance(AFTER / 2).await;
        assert!(heartbeats.dead(&current(&[("slow", 2)])).is_empty(), "it changed just in time");
        advance(AFTER / 2).await;
        assert!(heartbeats.dead(&current(&[("slow", 2)])).is_empty());
        advance(Duration::from_millis(14_999)).await;
        assert!(heartbeats.dead(&current(&[("slow", 2)])).is_empty());
        advance(Duration::from_millis(1)).await;
        assert_eq!(heartbeats.dead(&current(&[("slow", 2)])), ["slow"]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_of_the_database_restarts_the_measurement() {
        let mut heartbeats = Heartbeats::new(AFTER);
        let current = current(&[("a", 1)]);
        heartbeats.dead(&current);
        advance(AFTER / 2).await;
        heartbeats.restart();
        assert_eq!(unchanged(&mut heartbeats, &current).await, ["a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dead_gateway_is_reported_until_it_is_forgotten() {
        let mut heartbeats = Heartbeats::new(AFTER);
        let orphaned = current(&[("without a lease", NO_LEASE)]);
        assert_eq!(unchanged(&mut heartbeats, &orphaned).await, ["without a lease"]);
        assert_eq!(heartbeats.dead(&orphaned), ["without a lease"], "its requests were not ended");
        heartbeats.forget("without a lease");
        assert!(heartbeats.dead(&orphaned).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_gateway_that_comes_back_is_watched_from_the_start() {
        let mut heartbeats = Heartbeats::new(AFTER);
        heartbeats.dead(&current(&[("a", 1)]));
        heartbeats.dead(&current(&[]));
        advance(AFTER).await;
        assert!(heartbeats.dead(&current(&[("a", 1)])).is_empty());
    }
}
