//! Decides which of the servers' views of a cluster is accepted. Pure: views in, one view or the
//! reason for none out.

use std::collections::HashSet;

use super::{Topology, View};
use crate::config::Address;

/// The properties of the current snapshot that views are compared with.
#[derive(Debug, Clone, Default)]
pub(crate) struct SnapshotSummary {
    /// The nodes in use.
    pub(crate) nodes: Vec<Address>,
    /// Number of nodes that own slots.
    pub(crate) owners: usize,
    /// Number of slots that have an owner.
    pub(crate) covered: usize,
    /// Epoch of the cluster in the view that the snapshot began with. `None` if that view had no
    /// epoch.
    pub(crate) cluster_epoch: Option<u64>,
}

impl SnapshotSummary {
    pub(crate) fn from_topology(topology: &Topology) -> Self {
        Self {
            nodes: topology
                .nodes
                .iter()
                .map(|node| node.address.clone())
                .collect(),
            owners: topology.owner_count(),
            covered: topology.covered(),
            cluster_epoch: topology.cluster_epoch,
        }
    }
}

/// The views that servers gave, and the rule that selects the accepted view.
///
/// The rule:
///
/// 1. Each server has one vote. A server that names no owner has none: it belongs to no cluster, or
///    not yet.
/// 2. A view is a *regression* if it has fewer slots with an owner, fewer owners, or a lower epoch
///    than the snapshot in use. It counts only if more than half of its owners vote for it, and
///    more than half of all votes are for it. So servers that were cut off, reset or left behind
///    remove nothing, however many of them agree. A cluster that works is accepted even if no
///    server of the known one is left.
/// 3. Of the views that count, the one with the most votes is accepted; among equals the one with
///    the most slots, then the one with the highest epoch. A view that is no regression needs no
///    second vote, because redirects correct it.
#[derive(Debug)]
pub(crate) struct Agreement {
    current: SnapshotSummary,
    views: Vec<VotedView>,
    votes: usize,
    /// Servers that answered and named no owner.
    ownerless: usize,
}

/// A view that at least one server gave.
#[derive(Debug)]
struct VotedView {
    view: View,
    owners: HashSet<Address>,
    votes: usize,
    /// Number of votes from owners in this view.
    owner_votes: usize,
}

/// The conclusion from the answers so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Conclusion {
    /// This view is accepted.
    Accepted {
        view: View,
        owners: HashSet<Address>,
        votes: usize,
        is_regression: bool,
    },
    /// The view with the most votes is a regression without the required majority. `owners` are its
    /// owners.
    Unconfirmed { owners: HashSet<Address> },
    /// All servers that answered name no owner.
    Ownerless,
    /// No server answered.
    NoAnswer,
}

impl Agreement {
    pub(crate) fn new(current: SnapshotSummary) -> Self {
        Self {
            current,
            views: Vec::new(),
            votes: 0,
            ownerless: 0,
        }
    }

    /// Number of servers that answered.
    pub(crate) fn answers(&self) -> usize {
        self.votes + self.ownerless
    }

    /// Adds the view of a server that has not answered before.
    pub(crate) fn add(&mut self, from: &Address, view: View) {
        if view.covered() == 0 {
            self.ownerless += 1;
            return;
        }
        self.votes += 1;
        let same = self
            .views
            .iter()
            .position(|held| held.view.ranges == view.ranges);
        let at = same.unwrap_or_else(|| {
            let owners = view.ranges.iter().map(|(_, owner)| owner.clone()).collect();
            self.views.push(VotedView {
                view: view.clone(),
                owners,
                votes: 0,
                owner_votes: 0,
            });
            self.views.len() - 1
        });
        let held = &mut self.views[at];
        held.votes += 1;
        held.owner_votes += usize::from(held.owners.contains(from));
        // A new epoch reaches the servers one after the other, so the highest one counts.
        held.view.cluster_epoch = held.view.cluster_epoch.max(view.cluster_epoch);
    }

    pub(crate) fn conclusion(&self) -> Conclusion {
        let rank = |held: &&VotedView| (held.votes, held.view.covered(), held.view.cluster_epoch);
        if let Some(held) = self
            .views
            .iter()
            .filter(|held| self.is_eligible(held))
            .max_by_key(rank)
        {
            let view = held.view.clone();
            let owners = held.owners.clone();
            return Conclusion::Accepted {
                view,
                owners,
                votes: held.votes,
                is_regression: self.is_regression(held),
            };
        }
        match self.views.iter().max_by_key(rank) {
            Some(held) => Conclusion::Unconfirmed {
                owners: held.owners.clone(),
            },
            None if self.ownerless > 0 => Conclusion::Ownerless,
            None => Conclusion::NoAnswer,
        }
    }

    fn is_eligible(&self, held: &VotedView) -> bool {
        let has_own_majority = 2 * held.owner_votes > held.owners.len();
        !self.is_regression(held) || has_own_majority && 2 * held.votes > self.votes
    }

    fn is_regression(&self, held: &VotedView) -> bool {
        let is_older = held.view.cluster_epoch.is_some()
            && held.view.cluster_epoch < self.current.cluster_epoch;
        held.view.covered() < self.current.covered
            || held.owners.len() < self.current.owners
            || is_older
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A view: for each letter a node of this name with a share of the slots. A dot leaves its
    /// share without an owner.
    fn view(shares: &str, cluster_epoch: u64) -> View {
        let width = 16_384 / shares.len() as u16;
        let ranges = shares.chars().enumerate().filter(|(_, name)| *name != '.');
        let range = |(at, name)| {
            let first = at as u16 * width;
            (first..=first + width - 1, node(name))
        };
        View {
            ranges: ranges.map(range).collect(),
            cluster_epoch: Some(cluster_epoch),
        }
    }

    fn node(name: char) -> Address {
        format!("{name}:1").parse().unwrap()
    }

    fn known(shares: &str, cluster_epoch: u64) -> SnapshotSummary {
        let view = view(shares, cluster_epoch);
        let owners: HashSet<Address> = view.ranges.iter().map(|(_, owner)| owner.clone()).collect();
        let covered = view.covered();
        let cluster_epoch = view.cluster_epoch;
        SnapshotSummary {
            nodes: owners.iter().cloned().collect(),
            owners: owners.len(),
            covered,
            cluster_epoch,
        }
    }

    /// Lets each server give a view with an epoch, and compares the shares of the view that is
    /// believed.
    fn check(
        why: &str,
        snapshot: SnapshotSummary,
        answers: &[(char, &str, u64)],
        expected: Result<&str, Conclusion>,
    ) {
        let mut agreement = Agreement::new(snapshot);
        for (from, shares, cluster_epoch) in answers {
            agreement.add(&node(*from), view(shares, *cluster_epoch));
        }
        let conclusion = match agreement.conclusion() {
            Conclusion::Accepted { view, .. } => Ok(view.ranges),
            Conclusion::Unconfirmed { .. } => Err(Conclusion::Unconfirmed {
                owners: HashSet::new(),
            }),
            other => Err(other),
        };
        assert_eq!(
            conclusion,
            expected.map(|shares| view(shares, 0).ranges),
            "{why}"
        );
    }

    fn unconfirmed() -> Result<&'static str, Conclusion> {
        Err(Conclusion::Unconfirmed {
            owners: HashSet::new(),
        })
    }

    #[test]
    fn what_takes_nothing_away_is_believed_by_its_votes() {
        check(
            "one server is enough",
            known("abc", 3),
            &[('b', "abc", 3)],
            Ok("abc"),
        );
        check(
            "a failover",
            known("abc", 3),
            &[('b', "Abc", 4), ('c', "Abc", 4)],
            Ok("Abc"),
        );
        check(
            "a failover of which not all have heard",
            known("abc", 3),
            &[('b', "Abc", 4), ('c', "abc", 3)],
            Ok("Abc"),
        );
        let late = [('c', "abc", 3), ('d', "abc", 3), ('b', "Abc", 4)];
        check(
            "a failover of which one has heard waits for the next time",
            known("abc", 3),
            &late,
            Ok("abc"),
        );
        check(
            "a new owner",
            known("abc", 3),
            &[('a', "abcd", 4)],
            Ok("abcd"),
        );
        let moved = [('s', "xyz", 9), ('x', "xyz", 9)];
        check(
            "all nodes moved, and as many came",
            known("abc", 3),
            &moved,
            Ok("xyz"),
        );
    }

    #[test]
    fn servers_that_were_cut_off_or_left_behind_take_nothing_away() {
        let minority = [('a', "abc", 3), ('b', "Abc", 4), ('c', "Abc", 4)];
        check(
            "a minority that was cut off is outvoted",
            known("Abc", 4),
            &minority,
            Ok("Abc"),
        );
        check(
            "and is not believed alone",
            known("Abc", 4),
            &minority[..1],
            unconfirmed(),
        );
        check(
            "a replica that hears nothing",
            known("Abc", 4),
            &[('r', "abc", 3), ('c', "Abc", 4)],
            Ok("Abc"),
        );
        let stale = [('r', "ab", 2), ('s', "ab", 2)];
        check(
            "two that agree on less are not the owners of it",
            known("abc", 3),
            &stale,
            unconfirmed(),
        );
        check(
            "against one that knows all",
            known("abc", 3),
            &[stale[0], stale[1], ('c', "abc", 3)],
            Ok("abc"),
        );
        let half = [
            ('a', "ab", 2),
            ('b', "ab", 2),
            ('c', "abcd", 3),
            ('d', "abcd", 3),
        ];
        check(
            "owners that were left behind are not most of all",
            known("abcd", 3),
            &half,
            Ok("abcd"),
        );
        let slots = [('a', "ab.", 2), ('r', "ab.", 2)];
        check(
            "two that agree take no slots away",
            known("abc", 3),
            &slots,
            unconfirmed(),
        );
        check(
            "one that was reset and made alone",
            known("abc", 3),
            &[('c', "..c", 0), ('a', "abc", 3)],
            Ok("abc"),
        );
    }

    #[test]
    fn a_cluster_that_works_may_take_away() {
        let smaller = [('s', "xy.", 7), ('x', "xy.", 7), ('y', "xy.", 7)];
        check(
            "all moved, and slots were lost",
            known("abc", 3),
            &smaller,
            Ok("xy."),
        );
        check(
            "a seed alone cannot say so",
            known("abc", 3),
            &smaller[..1],
            unconfirmed(),
        );
        check(
            "nor can half of its owners",
            known("abc", 3),
            &smaller[..2],
            unconfirmed(),
        );
        check(
            "all moved to a new cluster with few epochs",
            known("abc", 30),
            &[('x', "xyz", 3), ('y', "xyz", 3)],
            Ok("xyz"),
        );
        check(
            "an owner gave its slots away",
            known("abc", 3),
            &[('a', "ab", 5), ('b', "ab", 5), ('c', "ab", 5)],
            Ok("ab"),
        );
        check(
            "a cluster of one gave slots away",
            known("aa", 3),
            &[('a', "a.", 3)],
            Ok("a."),
        );
        check(
            "all slots went to one node",
            known("abc", 3),
            &[('a', "a", 5)],
            Ok("a"),
        );
    }

    #[test]
    fn at_the_start_anything_is_better_than_nothing() {
        check("no answer", known(".", 0), &[], Err(Conclusion::NoAnswer));
        check(
            "no owner",
            known("abc", 3),
            &[('a', ".", 0), ('b', ".", 0)],
            Err(Conclusion::Ownerless),
        );
        check(
            "a server without an owner has no vote",
            known("abc", 3),
            &[('a', ".", 0), ('b', ".", 0), ('c', "abc", 3)],
            Ok("abc"),
        );
        let forming = [('a', "a..", 1), ('b', "ab.", 2), ('c', "..c", 3)];
        check(
            "nodes that have not met: the one that knows most",
            known(".", 0),
            &forming,
            Ok("ab."),
        );
        let formed = [('a', "abc", 3), ('b', "ab.", 2)];
        check(
            "a cluster that has just formed",
            known("ab.", 2),
            &formed,
            Ok("abc"),
        );
    }

    #[test]
    fn a_missing_epoch_is_not_compared() {
        let mut agreement = Agreement::new(known("abc", 3));
        agreement.add(
            &node('a'),
            View {
                cluster_epoch: None,
                ..view("Abc", 0)
            },
        );
        assert!(matches!(
            agreement.conclusion(),
            Conclusion::Accepted {
                is_regression: false,
                votes: 1,
                ..
            }
        ));
    }
}
