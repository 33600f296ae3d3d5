//! How the owners of slots are found: from the nodes of a cluster, or from sentinels.

use std::sync::Arc;
use std::time::Duration;

use crate::batch::Batch;
use crate::batch::builder::Arg;
use crate::cluster::ask::ask_server;
use crate::cluster::sentinels::Sentinels;
use crate::cluster::view::View;
use crate::config::address::Address;
use crate::link::context::ClientContext;

/// After so many answers, a view is used even when no second node confirms it.
const OPINIONS: usize = 3;

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

    /// Finds out which node owns which slot. None when no server can tell.
    pub(crate) async fn view(&self, in_use: Vec<Address>, context: &ClientContext) -> Option<View> {
        match self {
            Self::Cluster(seeds) => cluster_view(sources(in_use, seeds), context).await,
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

async fn cluster_view(sources: Vec<Address>, context: &ClientContext) -> Option<View> {
    let mut question = Batch::new();
    question.unit().command("CLUSTER", &[Arg::Bytes(b"SLOTS")]);
    let mut views: Vec<View> = Vec::new();
    for address in sources {
        let Some(reply) = ask_server(&address, context, &question).await else { continue };
        let Some(mut view) = View::read(&reply, &address) else { continue };
        view.ranges.iter_mut().for_each(|(_, owner)| *owner = context.config.reachable(owner.clone()));
        if views.contains(&view) {
            return Some(view);
        }
        views.push(view);
        if views.len() == OPINIONS {
            break;
        }
    }
    // When no two agree, the view with owners for most slots is most likely the latest.
    views.into_iter().max_by_key(View::covered).filter(|view| view.covered() > 0)
}
