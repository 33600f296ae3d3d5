//! How the owners of slots are found: from the nodes of a cluster, or from sentinels.

use std::sync::Arc;
use std::time::Duration;

use crate::batch::Batch;
use crate::batch::builder::Arg;
use crate::cluster::ask::ask_server;
use crate::cluster::sentinels::Sentinels;
use crate::cluster::topology::Topology;
use crate::cluster::view::View;
use crate::config::address::Address;
use crate::link::context::ClientContext;

/// After so many answers, a view is used even when no second node confirms it.
const OPINIONS: usize = 3;

/// What the current snapshot says.
#[derive(Debug)]
pub(crate) struct Known {
    /// The nodes in use.
    nodes: Vec<Address>,
    /// How many slots have an owner.
    covered: usize,
}

impl Known {
    pub(crate) fn of(topology: &Topology) -> Self {
        Self { nodes: topology.nodes.iter().map(|node| node.address.clone()).collect(), covered: topology.covered() }
    }
}

/// The source of the topology.
#[derive(Debug)]
pub(crate) enum Discovery {
    /// The nodes themselves, with CLUSTER SLOTS. The seeds are remembered for ever, as a last resort.
    Cluster(Vec<Address>),
    /// Sentinels, with the address of the primary, which owns everything.
    Sentinel(Arc<Sentinels>),
}

impl Discovery {
    /// How often to look when nothing calls for it.
    pub(crate) fn interval(&self) -> Duration {
        match self {
            Self::Cluster(_) => Duration::from_secs(30),
            // A primary that is cut off causes no error that could be noticed.
            Self::Sentinel(_) => Duration::from_secs(5),
        }
    }

    /// Finds out which node owns which slot. None when no server can tell, or when one alone knows less than is known.
    pub(crate) async fn view(&self, known: Known, context: &ClientContext) -> Option<View> {
        match self {
            Self::Cluster(seeds) => cluster_view(sources(known.nodes, seeds), known.covered, context).await,
            Self::Sentinel(sentinels) => sentinels.view(context).await,
        }
    }
}

/// The servers to ask: the nodes in use in random order, then the seeds.
fn sources(in_use: Vec<Address>, seeds: &[Address]) -> Vec<Address> {
    let mut sources = in_use;
    fastrand::shuffle(&mut sources);
    let new: Vec<Address> = seeds.iter().filter(|seed| !sources.contains(seed)).cloned().collect();
    sources.extend(new);
    sources
}

async fn cluster_view(sources: Vec<Address>, known: usize, context: &ClientContext) -> Option<View> {
    let mut question = Batch::new();
    question.unit().command("CLUSTER", &[Arg::Bytes(b"SLOTS")]);
    // Of a cluster of one, nobody else can confirm what it says.
    let known = if sources.len() == 1 { 0 } else { known };
    let mut views: Vec<View> = Vec::new();
    for address in sources {
        let Some(reply) = ask_server(&address, context, &question).await else { continue };
        let Some(View { ranges }) = View::read(&reply, &address) else { continue };
        let reachable = |(slots, owner)| Some((slots, context.config.reachable(owner)?));
        let view = View { ranges: ranges.into_iter().filter_map(reachable).collect() };
        if views.contains(&view) {
            return Some(view);
        }
        views.push(view);
        if views.len() == OPINIONS {
            break;
        }
    }
    best(views, known)
}

/// The view to use when no two agree: the one with owners for most slots is most likely the latest.
///
/// None when even that one has owners for fewer slots than are known. A node that was reset, or was cut off, knows less than
/// the others; only what a second node confirms may take slots from their owners.
fn best(views: Vec<View>, known: usize) -> Option<View> {
    views.into_iter().max_by_key(View::covered).filter(|view| view.covered() >= known.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Offers views that cover so many slots each, no two alike, and compares how many the chosen one covers.
    fn check(covered: &[u16], known: usize, expected: Option<usize>) {
        let owner: Address = "127.0.0.1:1".parse().unwrap();
        let views = covered.iter().map(|&slots| View { ranges: vec![(0..=slots - 1, owner.clone())] });
        assert_eq!(best(views.collect(), known).map(|view| view.covered()), expected, "{covered:?}, {known} known");
    }

    #[test]
    fn views_that_nobody_confirms_do_not_shrink_what_is_known() {
        check(&[5, 9, 7], 0, Some(9));
        check(&[5, 9, 7], 9, Some(9));
        check(&[5, 9, 7], 10, None);
        check(&[1], 0, Some(1));
        check(&[1], 16_384, None);
        check(&[], 0, None);
    }
}
