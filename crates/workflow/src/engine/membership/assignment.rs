//! Assigns the partitions of a store to its servers.

use crate::model::Partition;
use crate::store::ServerId;

/// Returns the server of each partition. No server gets more than its share, rounded up. All
/// servers that know the same members agree. When a server joins or leaves, few partitions of the
/// others move. Empty without servers.
pub(crate) fn assign_partitions(partitions: u16, servers: &[ServerId]) -> Vec<ServerId> {
    let max_partitions = usize::from(partitions).div_ceil(servers.len().max(1));
    let claim = |partition: u16| {
        move |&server: &ServerId| (weight(Partition(partition), server), partition, server)
    };
    let mut claims: Vec<_> = (0..partitions)
        .flat_map(|partition| servers.iter().map(claim(partition)))
        .collect();
    // The claim with the highest weight is granted first.
    claims.sort_unstable_by(|left, right| right.cmp(left));
    let mut assigned = vec![None::<ServerId>; partitions.into()];
    for (_, partition, server) in claims {
        let server = Some(server);
        let at = usize::from(partition);
        if assigned[at].is_some() {
            continue;
        }
        let own = assigned.iter().filter(|&&owner| owner == server).count();
        if own < max_partitions {
            assigned[at] = server;
        }
    }
    assigned.into_iter().flatten().collect()
}

/// Returns the weight of a server's claim to a partition: a number as good as random. All servers
/// must compute the same one.
fn weight(Partition(partition): Partition, ServerId(server): ServerId) -> u64 {
    let mut mixed = server
        ^ u64::from(partition)
            .wrapping_add(1)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // The finalizer of splitmix64.
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(number: u64) -> Vec<ServerId> {
        let mut rng = fastrand::Rng::with_seed(number);
        (0..number).map(|_| ServerId(rng.u64(..))).collect()
    }

    #[test]
    fn every_partition_is_assigned_and_no_server_has_more_than_its_share() {
        for partitions in [1, 4, 16, 64, 256] {
            for number in 1..20 {
                let servers = servers(number);
                let assigned = assign_partitions(partitions, &servers);
                assert_eq!(assigned.len(), usize::from(partitions));
                let max_partitions = usize::from(partitions).div_ceil(servers.len());
                for server in servers {
                    assert!(
                        assigned.iter().filter(|home| **home == server).count() <= max_partitions
                    );
                }
            }
        }
        assert_eq!(assign_partitions(16, &[]), []);
    }

    #[test]
    fn the_order_in_which_servers_are_known_does_not_matter() {
        let mut servers = servers(7);
        let assigned = assign_partitions(64, &servers);
        servers.reverse();
        assert_eq!(assign_partitions(64, &servers), assigned);
    }

    /// Returns the number of partitions that move when the last of `number` servers leaves. As many
    /// move when it joins.
    fn moves(partitions: u16, number: u64) -> usize {
        let servers = servers(number);
        let all = assign_partitions(partitions, &servers);
        let rest = assign_partitions(partitions, &servers[..servers.len() - 1]);
        all.iter()
            .zip(&rest)
            .filter(|(with, without)| with != without)
            .count()
    }

    #[test]
    fn few_partitions_move_when_a_server_comes_or_leaves() {
        for number in 2..12 {
            let share = 256_usize.div_ceil(number);
            let moved = moves(256, number as u64);
            assert!(
                moved <= 2 * share,
                "{moved} moved with {number} servers, each of which has {share}"
            );
        }
    }
}
