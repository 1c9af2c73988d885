//! How gateways share the partitions evenly. Each gateway follows the same rule on the same rows, so no one coordinates
//! them. A gateway that cannot lead a partition avoids it for a while: another one leads it, and the first gets another
//! partition instead.

use std::collections::BTreeSet;

use farthing_core::partition::Partition;

/// A gateway that shares the partitions.
#[derive(Debug, Clone)]
pub(crate) struct Sharer {
    pub(crate) name: String,
    /// The partitions that it cannot lead at the moment.
    pub(crate) avoids: BTreeSet<Partition>,
    /// The shape of its states.
    pub(crate) shape: i16,
}

/// What a gateway knows when it plans.
#[derive(Debug)]
pub(super) struct View<'a> {
    /// Its own name.
    pub(super) own: &'a str,
    /// The gateways that share the partitions, in the order of their names. A gateway that stops, or an operator's
    /// command, is not among them.
    pub(super) gateways: &'a [Sharer],
    /// The partitions that none of these gateways can lead, because a newer release has, which is this program's.
    pub(super) beyond: &'a BTreeSet<Partition>,
    /// The gateway that leads each partition, by its number.
    pub(super) leaders: &'a [Option<&'a str>],
    /// The partitions that this gateway leads and does not hand over.
    pub(super) held: &'a BTreeSet<Partition>,
    /// The only partition that a process claims which does not share them; `None` for a gateway that stops.
    pub(super) alone: Option<Partition>,
}

/// What a gateway does next.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// The partitions to claim.
    pub(super) claim: Vec<Partition>,
    /// The partitions to hand over.
    pub(super) hand_over: Vec<Partition>,
    /// Whether this gateway still leads fewer partitions than its share.
    pub(super) is_short: bool,
}

/// The plan of a gateway.
pub(super) fn plan(view: &View<'_>) -> Plan {
    match view.gateways.iter().position(|gateway| gateway.name == view.own) {
        Some(own) => Shares::of(view).plan(own),
        None => plan_outside(view),
    }
}

/// The plan of a process that does not share the partitions: it leads what nobody else can, and nothing otherwise.
fn plan_outside(view: &View<'_>) -> Plan {
    let has_others = |partition: &Partition| !view.gateways.is_empty() && !view.beyond.contains(partition);
    let hand_over = view.held.iter().copied().filter(has_others).collect();
    let all = (0..).map(Partition::new).zip(view.leaders).filter(|(partition, _)| !has_others(partition));
    let needed = all.filter(|(partition, _)| view.alone.is_none_or(|alone| alone == *partition));
    let missing = needed.filter(|(partition, _)| !view.held.contains(partition));
    let (free, led): (Vec<_>, Vec<_>) = missing.partition(|(_, leader)| leader.is_none());
    let claim: Vec<_> = free.into_iter().map(|(partition, _)| partition).collect();
    let waits = view.gateways.is_empty() && !led.is_empty();
    Plan { is_short: !claim.is_empty() || waits, claim, hand_over }
}

/// The share of each gateway.
struct Shares<'a> {
    view: &'a View<'a>,
    /// The number of partitions that each gateway should lead.
    due: Vec<usize>,
    /// The number that it leads.
    leads: Vec<usize>,
}

impl<'a> Shares<'a> {
    /// As many for each gateway as for every other, and one more for the first ones when they do not divide evenly; for one
    /// that avoids many, those that are left.
    fn of(view: &'a View<'a>) -> Self {
        let count = view.gateways.len();
        let leads = |gateway: &Sharer| {
            view.leaders.iter().filter(|leader| **leader == Some(gateway.name.as_str())).count()
        };
        let leads = view.gateways.iter().map(leads).collect();
        let mut of = Self { view, due: vec![0; count], leads };
        let most: Vec<usize> =
            (0..count).map(|gateway| of.partitions().filter(|p| of.can_lead(gateway, *p)).count()).collect();
        let (mut left, mut turn) = (view.leaders.len(), 0);
        // Every partition can be led by some gateway, so that each pass over the gateways gives some away.
        while left > 0 {
            if of.due[turn] < most[turn] {
                of.due[turn] += 1;
                left -= 1;
            }
            turn = (turn + 1) % count;
        }
        of
    }

    fn partitions(&self) -> impl Iterator<Item = Partition> + use<> {
        let count = i16::try_from(self.view.leaders.len()).unwrap_or(i16::MAX);
        (0..count).map(Partition::new)
    }

    /// Whether a gateway can lead `partition`. One that all gateways avoid is tried by all: it may be their only one.
    fn can_lead(&self, gateway: usize, partition: Partition) -> bool {
        let avoids = |gateway: &Sharer| gateway.avoids.contains(&partition);
        !avoids(&self.view.gateways[gateway]) || self.view.gateways.iter().all(avoids)
    }

    /// Whether another gateway than `own` leads fewer partitions than its share, and can lead this one.
    fn is_wanted_by_another(&self, own: usize, partition: Partition) -> bool {
        let is_short = |gateway: usize| self.leads[gateway] < self.due[gateway];
        (0..self.due.len())
            .any(|gateway| gateway != own && is_short(gateway) && self.can_lead(gateway, partition))
    }

    fn plan(&self, own: usize) -> Plan {
        let (view, share) = (self.view, self.due[own]);
        let (kept, mut hand_over): (Vec<Partition>, Vec<Partition>) =
            view.held.iter().copied().partition(|held| self.can_lead(own, *held));
        let surplus = kept.iter().rev().filter(|held| self.is_wanted_by_another(own, **held));
        hand_over.extend(surplus.take(kept.len().saturating_sub(share)));
        let is_free = |partition: &Partition| view.leaders[partition.index()].is_none();
        let free = self.partitions().filter(|free| is_free(free) && self.can_lead(own, *free));
        let missing = share.saturating_sub(kept.len());
        // Beyond the share: what no other gateway claims, because those that could have their shares already.
        let claim = free.enumerate().filter(|(before, free)| {
            *before < missing || (missing == 0 && !self.is_wanted_by_another(own, *free))
        });
        let claim = claim.map(|(_, partition)| partition).collect();
        Plan { claim, hand_over, is_short: kept.len() < share }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Gateways by their names, with what each avoids.
    type Gateways<'a> = [(&'a str, &'a [i16])];

    fn numbers(partitions: &[Partition]) -> Vec<i16> {
        partitions.iter().map(|partition| partition.number()).collect()
    }

    fn set(numbers: &[i16]) -> BTreeSet<Partition> {
        numbers.iter().copied().map(Partition::new).collect()
    }

    fn sharers(gateways: &Gateways<'_>) -> Vec<Sharer> {
        let sharer = |(name, avoids): &(&str, &[i16])| Sharer {
            name: (*name).to_owned(),
            avoids: set(avoids),
            shape: 1,
        };
        gateways.iter().map(sharer).collect()
    }

    /// What `own` claims and hands over, under these leaders.
    fn plan_of(own: &str, gateways: &Gateways<'_>, leaders: &[Option<&str>]) -> (Vec<i16>, Vec<i16>) {
        let held: BTreeSet<_> = (0..)
            .zip(leaders)
            .filter(|(_, leader)| **leader == Some(own))
            .map(|(n, _)| Partition::new(n))
            .collect();
        let gateways = sharers(gateways);
        let beyond = BTreeSet::new();
        let plan =
            plan(&View { own, gateways: &gateways, beyond: &beyond, leaders, held: &held, alone: None });
        (numbers(&plan.claim), numbers(&plan.hand_over))
    }

    /// Leaders as letters; a dot is a free partition.
    fn led(letters: &str) -> Vec<Option<&str>> {
        let letter = |at| Some(&letters[at..=at]).filter(|letter| *letter != ".");
        (0..letters.len()).map(letter).collect()
    }

    /// Lets all gateways act in turn, one claim or hand-over at a time as the leases have it, until nothing changes. Returns
    /// the partitions that each leads.
    fn settled(gateways: &Gateways<'_>, start: &str) -> BTreeMap<String, Vec<i16>> {
        let mut leaders = led(start);
        for _ in 0..100 {
            let before = leaders.clone();
            for (own, _) in gateways {
                let (claim, hand_over) = plan_of(own, gateways, &leaders);
                for partition in hand_over {
                    leaders[Partition::new(partition).index()] = None;
                }
                for partition in claim {
                    leaders[Partition::new(partition).index()] = Some(own);
                }
            }
            if leaders == before {
                let mut by_gateway: BTreeMap<String, Vec<i16>> = BTreeMap::new();
                for (number, leader) in (0..).zip(leaders) {
                    by_gateway.entry(leader.unwrap_or(".").to_owned()).or_default().push(number);
                }
                return by_gateway;
            }
        }
        panic!("the gateways never settle: {leaders:?}");
    }

    #[test]
    fn a_gateway_alone_claims_all_that_is_free() {
        assert_eq!(plan_of("a", &[("a", &[])], &led("....")), (vec![0, 1, 2, 3], vec![]));
        assert_eq!(plan_of("a", &[("a", &[])], &led("a.xx")), (vec![1], vec![]));
    }

    #[test]
    fn one_that_joins_gets_its_share_from_the_others() {
        let both: &Gateways<'_> = &[("a", &[]), ("b", &[])];
        assert_eq!(plan_of("a", both, &led("aaaaa")), (vec![], vec![4, 3]));
        assert_eq!(plan_of("b", both, &led("aaa..")), (vec![3, 4], vec![]));
        assert_eq!(plan_of("a", both, &led("aaa..")), (vec![], vec![]));
    }

    #[test]
    fn any_number_of_gateways_share_any_number_of_partitions_evenly() {
        let names = ["a", "b", "c", "d", "e"];
        for partitions in 1..20 {
            for count in 1..=names.len() {
                let gateways: Vec<(&str, &[i16])> =
                    names[..count].iter().map(|name| (*name, [].as_slice())).collect();
                let settled = settled(&gateways, &"a".repeat(partitions));
                let even =
                    |led: &Vec<i16>| (partitions / count..=partitions.div_ceil(count)).contains(&led.len());
                assert!(settled.values().all(even) && !settled.contains_key("."), "{settled:?}");
            }
        }
    }

    #[test]
    fn a_partition_that_its_leader_cannot_lead_is_exchanged_for_another() {
        let settled = settled(&[("a", &[0]), ("b", &[])], "aaaabbbb");
        assert_eq!(settled["a"], [1, 2, 3, 7]);
        assert_eq!(settled["b"], [0, 4, 5, 6]);
    }

    #[test]
    fn the_others_share_what_a_gateway_cannot_lead() {
        let all: &[i16] = &[0, 1, 2, 3, 4, 5, 6, 7];
        let settled_of_three = settled(&[("a", all), ("b", &[]), ("c", &[])], "aaabbbcc");
        assert_eq!((settled_of_three["b"].len(), settled_of_three["c"].len()), (4, 4));
        // Both avoid partition 1, so that both may lead it.
        let most: &[i16] = &[0, 1, 2, 3, 4, 5];
        let settled = settled(&[("a", most), ("b", &[1])], "aaaabbbb");
        assert_eq!((&settled["a"], settled["b"].len()), (&vec![1, 6, 7], 5));
    }

    #[test]
    fn a_partition_that_only_one_gateway_can_lead_is_led_beyond_its_share() {
        // Each of the others could lead what is left, but not this.
        let avoided: &[i16] = &[0, 1, 2, 3];
        let settled = settled(&[("a", avoided), ("b", avoided), ("c", &[])], "aaabbbcc");
        assert_eq!(settled["c"], [0, 1, 2, 3], "{settled:?}");
        assert!(!settled.contains_key("."), "{settled:?}");
    }

    #[test]
    fn what_all_gateways_avoid_is_tried_all_the_same() {
        assert_eq!(plan_of("a", &[("a", &[0, 1])], &led("a.")), (vec![1], vec![]));
        let settled = settled(&[("a", &[0]), ("b", &[0])], "..");
        assert_eq!((&settled["a"], &settled["b"]), (&vec![0], &vec![1]));
    }

    #[test]
    fn one_that_stops_or_is_an_operator_leads_nothing_while_there_is_another() {
        let other: &Gateways<'_> = &[("b", &[])];
        assert_eq!(plan_of("a", other, &led("aab.")), (vec![], vec![0, 1]));
        let nobody = |alone: Option<i16>, leaders: &str, held: &[i16]| {
            let leaders = led(leaders);
            let alone = alone.map(Partition::new);
            let (held, beyond) = (set(held), BTreeSet::new());
            plan(&View { own: "a", gateways: &[], beyond: &beyond, leaders: &leaders, held: &held, alone })
        };
        assert_eq!(numbers(&nobody(Some(2), "....", &[]).claim), [2], "only what it needs");
        assert_eq!(nobody(Some(2), "..x.", &[]), Plan { is_short: true, ..Plan::default() }, "it waits");
        assert_eq!(nobody(Some(2), "..a.", &[2]), Plan::default());
        assert_eq!(
            numbers(&nobody(None, "xa..", &[1]).claim),
            [2, 3],
            "the last gateway goes on until it ends"
        );
    }

    #[test]
    fn one_of_a_newer_release_keeps_what_its_release_alone_can_lead_and_hands_over_the_rest() {
        // The old gateway "b" is back; the states of partition 5 are not built.
        let others = sharers(&[("b", &[])]);
        let plan_of = |leaders: &str, held: &[i16], beyond: &[i16], alone: Option<i16>| {
            let (leaders, held, beyond) = (led(leaders), set(held), set(beyond));
            let alone = alone.map(Partition::new);
            let view =
                View { own: "a", gateways: &others, beyond: &beyond, leaders: &leaders, held: &held, alone };
            let plan = plan(&view);
            (numbers(&plan.claim), numbers(&plan.hand_over), plan.is_short)
        };
        // It has led 0 to 2, and begins to lead 3 and 4, whose heads have the old shape.
        assert_eq!(plan_of("aaaaab", &[0, 1, 2, 3, 4], &[0, 1, 2], None), (vec![], vec![3, 4], false));
        // What another gateway of its release led before it died.
        assert_eq!(plan_of(".aabbb", &[1, 2], &[0, 1, 2], None), (vec![0], vec![], true));
        assert_eq!(plan_of("xaabbb", &[1, 2], &[0, 1, 2], None), (vec![], vec![], false));
        // An operator's command of the new release.
        assert_eq!(plan_of("..bbbb", &[], &[0, 1], Some(1)), (vec![1], vec![], true));
        assert_eq!(plan_of("..b.bb", &[], &[0, 1], Some(3)), (vec![], vec![], false));
    }
}
