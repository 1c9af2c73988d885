//! How many connections to Postgres a gateway opens, and what for. Without settings it follows the server: ten gateways and
//! two projectors fit into one with Postgres's default settings.

use farthing_core::secret::Mode;

use super::Error;

/// Connections of the built-in test processor. They are separate because it stands in for an external service, whose
/// delays must not block reads.
pub const PAYING: usize = 4;

/// The connections that wait for nothing else: one each for leases, heartbeats, the sweeper and appends.
const FIXED: usize = 4;

/// The fewest connections for reads: two for reads of merchants' rows, and one for what is short.
const FEWEST_READS: usize = 3;

/// The most connections for deliveries, unless a setting says otherwise.
const MOST_DELIVERIES: usize = 4;

/// Without a setting a gateway takes a twelfth of what the server allows, within these bounds: for ten gateways, two
/// projectors and the partitions.
const SHARE: usize = 12;
const FEWEST: usize = FIXED + FEWEST_READS + 1;
const MOST: usize = 16;

/// The most reads of one merchant's rows at once, unless a setting says otherwise.
const READS_PER_MERCHANT: usize = 2;

/// What the settings say about a gateway's connections to Postgres.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionSettings {
    /// All of them, apart from those of the partitions that it leads and of the test processor.
    pub all: Option<usize>,
    /// For reads, at least 3.
    pub reads: Option<usize>,
    /// For deliveries of webhooks.
    pub deliveries: Option<usize>,
    /// How many reads of one merchant's rows run at once.
    pub reads_per_merchant: ReadsPerMerchant,
}

/// How many reads of one merchant's rows run at once; further ones wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadsPerMerchant {
    /// As fits the connections for reads.
    Fitting,
    /// At most so many.
    Most(usize),
    /// No limit but that of all merchants.
    Unlimited,
}

/// The connections of a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Connections {
    /// For reads.
    pub(super) reads: usize,
    /// For deliveries of webhooks; none if it delivers none.
    pub(super) deliveries: usize,
    /// Of the test processor.
    pub(super) paying: usize,
    /// The most reads of one merchant's rows at once.
    pub(super) reads_per_merchant: Option<usize>,
}

impl Connections {
    /// The connections of a gateway on a server that allows so many.
    pub(super) fn chosen(
        settings: ConnectionSettings,
        allowed: usize,
        mode: Mode,
        delivers: bool,
    ) -> Result<Self, Error> {
        let all = settings.all.unwrap_or_else(|| share(allowed));
        let left = all.saturating_sub(FIXED);
        let deliveries = match (delivers, settings.deliveries) {
            (false, _) => 0,
            (true, Some(given)) => given,
            (true, None) => {
                let others = settings.reads.map_or(left / 3, |reads| left.saturating_sub(reads));
                others.clamp(1, MOST_DELIVERIES)
            }
        };
        let reads = settings.reads.unwrap_or_else(|| left.saturating_sub(deliveries).max(FEWEST_READS));
        let needed = FIXED + reads + deliveries;
        if let Some(all) = settings.all.filter(|all| needed > *all) {
            return Err(Error::TooFewConnections { all, needed });
        }
        let paying = match mode {
            Mode::Test => PAYING,
            Mode::Live => 0,
        };
        let reads_per_merchant = match settings.reads_per_merchant {
            // Nobody has all of them.
            ReadsPerMerchant::Fitting => Some((turns(reads) / 2).clamp(1, READS_PER_MERCHANT)),
            ReadsPerMerchant::Most(most) => Some(most),
            ReadsPerMerchant::Unlimited => None,
        };
        Ok(Self { reads, deliveries, paying, reads_per_merchant })
    }

    /// All of them, without those of partitions.
    pub(super) const fn all(&self) -> usize {
        FIXED + self.reads + self.deliveries + self.paying
    }
}

/// The connections that a gateway takes without a setting on a server that allows so many, apart from those of partitions
/// and of the test processor.
pub fn share(allowed: usize) -> usize {
    (allowed / SHARE).clamp(FEWEST, MOST)
}

/// How many of the connections for reads are for reads of merchants' rows. The others are left to what is short.
pub(crate) const fn turns(reads: usize) -> usize {
    let short = if reads < 5 { 1 } else { 2 };
    match reads.saturating_sub(short) {
        0 => 1,
        turns => turns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: ConnectionSettings = ConnectionSettings {
        all: None,
        reads: None,
        deliveries: None,
        reads_per_merchant: ReadsPerMerchant::Fitting,
    };

    fn live(settings: ConnectionSettings, allowed: usize) -> Connections {
        Connections::chosen(settings, allowed, Mode::Live, true).unwrap()
    }

    #[test]
    fn a_gateway_takes_what_fits_the_server() {
        for (allowed, reads, deliveries, per_merchant) in
            [(20, 3, 1, 1), (97, 3, 1, 1), (130, 4, 2, 1), (160, 6, 3, 2), (197, 8, 4, 2), (997, 8, 4, 2)]
        {
            let chosen = live(NOTHING, allowed);
            assert_eq!((chosen.reads, chosen.deliveries), (reads, deliveries), "{allowed}");
            assert_eq!(chosen.reads_per_merchant, Some(per_merchant), "{allowed}");
        }
    }

    #[test]
    fn ten_gateways_and_two_projectors_fit_into_a_default_server() {
        let (partitions, projector, standby) = (8, 7, 1);
        assert!(10 * live(NOTHING, 97).all() + partitions + projector + standby <= 97);
    }

    #[test]
    fn a_total_is_divided_and_never_exceeded() {
        for all in FEWEST..100 {
            let chosen = live(ConnectionSettings { all: Some(all), ..NOTHING }, 97);
            assert_eq!(chosen.all(), all);
            assert!(chosen.deliveries <= MOST_DELIVERIES && chosen.reads >= FEWEST_READS, "{chosen:?}");
            let settings = ConnectionSettings { all: Some(all), deliveries: Some(1), ..NOTHING };
            assert_eq!(live(settings, 97).all(), all);
        }
        let quiet =
            Connections::chosen(ConnectionSettings { all: Some(8), ..NOTHING }, 97, Mode::Test, false);
        assert_eq!((quiet.as_ref().unwrap().reads, quiet.unwrap().all()), (4, 8 + PAYING));
    }

    #[test]
    fn what_is_given_is_used_or_refused() {
        let given = live(ConnectionSettings { reads: Some(20), deliveries: Some(9), ..NOTHING }, 97);
        assert_eq!((given.reads, given.deliveries, given.all()), (20, 9, 33));
        let too_many = ConnectionSettings { all: Some(8), reads: Some(4), ..NOTHING };
        let refused = Connections::chosen(too_many, 97, Mode::Live, true);
        assert!(matches!(refused, Err(Error::TooFewConnections { all: 8, needed: 9 })));
        for (setting, per_merchant) in
            [(ReadsPerMerchant::Most(19), Some(19)), (ReadsPerMerchant::Unlimited, None)]
        {
            let settings = ConnectionSettings { reads_per_merchant: setting, ..NOTHING };
            assert_eq!(live(settings, 97).reads_per_merchant, per_merchant);
        }
    }

    #[test]
    fn some_connections_for_reads_are_left_to_what_is_short() {
        assert_eq!([1, 3, 4, 5, 8].map(turns), [1, 2, 3, 3, 6]);
    }
}
