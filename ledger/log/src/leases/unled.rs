//! Partitions that have a lease and no leader: the gateway with the lease has given them up, or avoids them.

use std::collections::BTreeSet;

use farthing_core::partition::Partition;

use super::Route;
use super::store::Rows;

/// The partitions among those with the routes `of` whose gateway cannot lead them. `given_up` are those that this gateway
/// has given up and not led since; what another one avoids, its announcement in `rows` says.
pub(super) fn among(of: &[Route], rows: &Rows, given_up: &BTreeSet<Partition>) -> BTreeSet<Partition> {
    let is_avoided = |partition: Partition| {
        let holder = rows.leases.get(partition.index()).and_then(|lease| lease.gateway.as_deref());
        let avoids = |holder| {
            rows.gateways.iter().any(|gateway| gateway.name == holder && gateway.avoids.contains(&partition))
        };
        holder.is_some_and(avoids)
    };
    let all = (0..).map(Partition::new).zip(of);
    let unled = all.filter(|(partition, route)| match route {
        Route::Here(_) => given_up.contains(partition),
        Route::There(_) => is_avoided(*partition),
        Route::Unknown => false,
    });
    unled.map(|(partition, _)| partition).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Elsewhere;
    use super::super::store::{LeaseRow, Sharer};
    use super::*;

    fn set(numbers: &[i16]) -> BTreeSet<Partition> {
        numbers.iter().copied().map(Partition::new).collect()
    }

    #[test]
    fn a_lease_of_a_gateway_that_cannot_lead_its_partition_is_no_leader() {
        let there = || Route::There(Elsewhere { address: String::new(), term: 1, delivers: true });
        let of = [Route::Here(1), Route::Here(1), there(), there(), Route::Unknown];
        let lease = |gateway: &str| LeaseRow {
            gateway: Some(gateway.to_owned()),
            address: None,
            term: 1,
            delivers: true,
            is_led: true,
        };
        let sharer =
            |name: &str, avoids: &[i16]| Sharer { name: name.to_owned(), avoids: set(avoids), shape: 1 };
        let rows = Rows {
            leases: ["a", "a", "b", "b", "b"].map(lease).to_vec(),
            // What the gateway "c" avoids, and "a" did before it could lead again, is led by another one.
            gateways: vec![sharer("a", &[1, 2]), sharer("b", &[0, 3, 4]), sharer("c", &[2])],
        };
        assert_eq!(among(&of, &rows, &set(&[0, 3])), set(&[0, 3]));
        assert_eq!(among(&of, &rows, &set(&[])), set(&[3]));
    }
}
