//! How gateways share the partitions evenly. Each gateway follows the same rule on the same rows, so no one coordinates
//! them.

use std::collections::BTreeSet;

use farthing_core::partition::Partition;

/// What a gateway knows when it plans.
#[derive(Debug)]
pub(super) struct View<'a> {
    /// Its own name.
    pub(super) own: &'a str,
    /// The gateways that share the partitions, in the order of their names. A gateway that stops, or an operator's
    /// command, is not among them.
    pub(super) gateways: &'a [String],
    /// Whether each partition has a leader, by its number.
    pub(super) is_led: &'a [bool],
    /// The partitions that this gateway leads and does not hand over.
    pub(super) held: &'a BTreeSet<Partition>,
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
    let (share, held) = (share(view), view.held.len());
    let hand_over = view.held.iter().rev().take(held.saturating_sub(share)).copied().collect();
    let free =
        (0_i16..).zip(view.is_led).filter(|(_, is_led)| !**is_led).map(|(number, _)| Partition::new(number));
    let claim = free.take(share.saturating_sub(held)).collect();
    Plan { claim, hand_over, is_short: held < share }
}

/// The number of partitions that this gateway leads: as many as every other, and one more for the first ones when they do
/// not divide evenly. One that does not share leads all of them if there is nobody else, and none otherwise.
fn share(view: &View<'_>) -> usize {
    let (partitions, gateways) = (view.is_led.len(), view.gateways.len());
    match view.gateways.iter().position(|gateway| gateway == view.own) {
        Some(rank) => partitions / gateways + usize::from(rank < partitions % gateways),
        None if gateways == 0 => partitions,
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(partitions: &[Partition]) -> Vec<i16> {
        partitions.iter().map(|partition| partition.number()).collect()
    }

    fn plan_of(own: &str, gateways: &[&str], is_led: &[bool], held: &[i16]) -> (Vec<i16>, Vec<i16>) {
        let gateways: Vec<String> = gateways.iter().map(ToString::to_string).collect();
        let held = held.iter().map(|number| Partition::new(*number)).collect();
        let plan = plan(&View { own, gateways: &gateways, is_led, held: &held });
        (numbers(&plan.claim), numbers(&plan.hand_over))
    }

    #[test]
    fn a_gateway_alone_claims_all_that_is_free() {
        assert_eq!(plan_of("a", &["a"], &[false; 4], &[]), (vec![0, 1, 2, 3], vec![]));
        assert_eq!(plan_of("a", &["a"], &[true, false, true, true], &[0]), (vec![1], vec![]));
    }

    #[test]
    fn one_that_joins_gets_its_share_from_the_others() {
        assert_eq!(plan_of("a", &["a", "b"], &[true; 5], &[0, 1, 2, 3, 4]), (vec![], vec![4, 3]));
        let is_led = [true, true, true, false, false];
        assert_eq!(plan_of("b", &["a", "b"], &is_led, &[]), (vec![3, 4], vec![]));
        assert_eq!(plan_of("a", &["a", "b"], &is_led, &[0, 1, 2]), (vec![], vec![]));
    }

    #[test]
    fn shares_add_up_for_any_number_of_gateways() {
        for partitions in 1..20 {
            for count in 1..6 {
                let gateways: Vec<String> = (0..count).map(|number| format!("g{number}")).collect();
                let is_led = vec![false; partitions];
                let of = |own: &String| {
                    share(&View { own, gateways: &gateways, is_led: &is_led, held: &BTreeSet::new() })
                };
                assert_eq!(gateways.iter().map(of).sum::<usize>(), partitions);
            }
        }
    }

    #[test]
    fn one_that_does_not_share_leads_only_while_there_is_nobody_else() {
        assert_eq!(plan_of("operator", &[], &[false, false], &[]), (vec![0, 1], vec![]));
        assert_eq!(plan_of("operator", &["a"], &[true, true], &[0, 1]), (vec![], vec![1, 0]));
        assert_eq!(plan_of("operator", &["a"], &[false, true], &[]), (vec![], vec![]));
    }
}
