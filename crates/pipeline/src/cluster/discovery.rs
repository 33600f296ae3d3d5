//! Discovers the owners of slots: from the nodes of a cluster, or from sentinels.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tracing::warn;

use crate::batch::Batch;
use crate::batch::builder::Arg;
use crate::cluster::agreement::{Agreement, Conclusion, SnapshotSummary};
use crate::cluster::query::{Failures, LogThrottle, query_server, warn_of_silence};
use crate::cluster::sentinels::Sentinels;
use crate::cluster::view::{View, current_epoch};
use crate::config::address::Address;
use crate::link::context::ClientContext;
use crate::outcome::Outcome;

/// Number of servers that are queried at first: three nodes and a seed. If one hangs, the others
/// are a majority.
const WAVE: usize = 4;

/// Interval after which further servers are queried if no view can be accepted. A view that is no
/// regression waits no longer for servers that have not answered.
const WAVE_INTERVAL: Duration = Duration::from_millis(250);

/// Maximum number of concurrent queries. A view that is a regression needs many votes.
const MAX_UNDER_WAY: usize = 32;

/// Maximum time of one discovery. After it, the conclusion from the answers so far is final.
const MAX_DURATION: Duration = Duration::from_secs(2);

const UNCONFIRMED: &str = "nodes of redis take slots or owners away, and most of the owners that they name do not say so: what is known stays";

const UNREADABLE: &str = "its answer cannot be read";

/// Log limit for views that were not accepted, for all clients of the process.
static REFUSED: LogThrottle = LogThrottle::new();

/// The source of the topology.
#[derive(Debug)]
pub(crate) enum Discovery {
    /// The nodes of the cluster, queried with CLUSTER SLOTS. The seeds are kept for ever, and one
    /// of them is always queried.
    Cluster(Vec<Address>),
    /// Sentinels, which know the address of the primary. The primary owns all slots.
    Sentinel(Arc<Sentinels>),
}

impl Discovery {
    /// Returns the interval of refreshes that no event requests.
    pub(crate) fn interval(&self) -> Duration {
        match self {
            Self::Cluster(_) => Duration::from_secs(30),
            // A primary that is cut off causes no error that would request a refresh.
            Self::Sentinel(_) => Duration::from_secs(5),
        }
    }

    /// Discovers which node owns which slot, within two seconds for a cluster.
    ///
    /// # Errors
    /// No server knows the owners, or the answers are an unconfirmed regression. The text has the
    /// answers.
    pub(crate) async fn view(
        &self,
        known: SnapshotSummary,
        context: &Arc<ClientContext>,
    ) -> Result<View, String> {
        match self {
            Self::Cluster(seeds) => Inquiry::new(known, seeds, context).view().await,
            Self::Sentinel(sentinels) => sentinels.view(context).await,
        }
    }
}

/// Returns the servers to query: a seed, the nodes in use, and the other seeds, each group in
/// random order.
fn sources(in_use: &[Address], seeds: &[Address]) -> VecDeque<Address> {
    let mut seeds = seeds.to_vec();
    let mut nodes = in_use.to_vec();
    fastrand::shuffle(&mut seeds);
    fastrand::shuffle(&mut nodes);
    let first = seeds.pop();
    first.into_iter().chain(nodes).chain(seeds).collect()
}

/// One discovery in a cluster: the concurrent queries and their answers.
struct Inquiry {
    context: Arc<ClientContext>,
    agreement: Agreement,
    not_asked: VecDeque<Address>,
    asked: HashSet<Address>,
    under_way: JoinSet<(Address, Result<View, String>)>,
    failures: Failures,
}

impl Inquiry {
    fn new(known: SnapshotSummary, seeds: &[Address], context: &Arc<ClientContext>) -> Self {
        Self {
            context: Arc::clone(context),
            not_asked: sources(&known.nodes, seeds),
            agreement: Agreement::new(known),
            asked: HashSet::new(),
            under_way: JoinSet::new(),
            failures: Failures::default(),
        }
    }

    async fn view(mut self) -> Result<View, String> {
        let started = Instant::now();
        let deadline = started + MAX_DURATION;
        let mut late = started + WAVE_INTERVAL;
        self.ask_more(WAVE);
        loop {
            let mut is_late = false;
            tokio::select! {
                Some(answered) = self.under_way.join_next() => {
                    match answered {
                        Ok((address, Ok(view))) => self.agreement.add(&address, view),
                        Ok((address, Err(reason))) => self.failures.add(&address, &reason),
                        // A task that panicked has no answer.
                        Err(_) => {}
                    }
                }
                () = sleep_until(late) => {
                    is_late = true;
                    late += WAVE_INTERVAL;
                }
            }
            let conclusion = self.agreement.conclusion();
            if Instant::now() < deadline && !self.ask_more_unless_final(&conclusion, is_late) {
                continue;
            }
            return match conclusion {
                Conclusion::Believed { view, .. } => Ok(view),
                Conclusion::Unconfirmed { owners } => {
                    if let Some(times) = REFUSED.count("", Instant::now().into_std()) {
                        let owners = owners.len();
                        let answers = self.agreement.answers();
                        warn!(times, owners, answers, "{UNCONFIRMED}");
                    }
                    Err(UNCONFIRMED.to_owned())
                }
                Conclusion::Ownerless => Err("the servers that answered name no owner".to_owned()),
                Conclusion::NoAnswer => Err(self.failures.to_string()),
            };
        }
    }

    /// Queries more servers if further answers may change the conclusion. Returns whether it is
    /// final.
    fn ask_more_unless_final(&mut self, conclusion: &Conclusion, is_late: bool) -> bool {
        match conclusion {
            Conclusion::Believed {
                votes,
                is_regression: false,
                ..
            } => {
                let is_certain = 2 * votes > self.agreement.answers() + self.under_way.len();
                return is_certain || is_late || self.under_way.is_empty();
            }
            // The owners in the view can confirm it, and all known servers may object.
            Conclusion::Believed {
                is_regression: true,
                owners,
                ..
            }
            | Conclusion::Unconfirmed { owners } => {
                self.ask_first(owners.iter().cloned().collect());
            }
            Conclusion::Ownerless | Conclusion::NoAnswer => {
                if is_late || self.under_way.is_empty() {
                    self.ask_more(WAVE);
                }
            }
        }
        self.under_way.is_empty()
    }

    /// Queries all servers that were not queried yet, these first, within the bound on concurrent
    /// queries.
    fn ask_first(&mut self, mut servers: Vec<Address>) {
        self.not_asked.retain(|server| !servers.contains(server));
        servers.extend(self.not_asked.drain(..));
        self.not_asked = servers.into();
        self.ask_more(MAX_UNDER_WAY);
    }

    fn ask_more(&mut self, count: usize) {
        let room = MAX_UNDER_WAY
            .saturating_sub(self.under_way.len())
            .min(count);
        let mut begun = 0;
        while begun < room {
            let Some(address) = self.not_asked.pop_front() else {
                return;
            };
            if self.asked.insert(address.clone()) {
                self.under_way
                    .spawn(ask_for_owners(address, Arc::clone(&self.context)));
                begun += 1;
            }
        }
    }
}

/// Queries one server for the owners of slots. The error is the reason for no answer.
async fn ask_for_owners(
    address: Address,
    context: Arc<ClientContext>,
) -> (Address, Result<View, String>) {
    let mut question = Batch::new();
    question
        .unit()
        .command("CLUSTER", &[Arg::Bytes(b"SLOTS")])
        .command("CLUSTER", &[Arg::Bytes(b"INFO")]);
    let answer = query_server(&address, &context, &question).await;
    let told = |reason: String| {
        warn_of_silence(&address, &reason);
        reason
    };
    let view = match answer.as_deref() {
        Ok([Outcome::Reply(slots), info]) => match View::read(slots, &address) {
            Some(View { ranges, .. }) => {
                let reachable = |(slots, owner)| Some((slots, context.config.reachable(owner)?));
                // The epoch is unknown if the user may not run CLUSTER INFO or the server does not
                // support it.
                let cluster_epoch = info.reply().ok().and_then(current_epoch);
                Ok(View {
                    ranges: ranges.into_iter().filter_map(reachable).collect(),
                    cluster_epoch,
                })
            }
            None => Err(UNREADABLE.to_owned()),
        },
        Ok([Outcome::ServerError(error), ..]) => Err(told(error.to_string())),
        Ok([Outcome::Rejected(rejected), ..]) => Err(rejected.to_string()),
        Ok(_) => Err(UNREADABLE.to_owned()),
        Err(error) => Err(told(error.clone())),
    };
    (address, view)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_always_among_the_first_that_are_asked() {
        let address = |port: usize| Address::Tcp {
            host: "node".to_owned(),
            port: port as u16,
        };
        let (nodes, seeds): (Vec<_>, Vec<_>) = (
            (1..100).map(address).collect(),
            (200..203).map(address).collect(),
        );
        for _ in 0..100 {
            let order = sources(&nodes, &seeds);
            assert!(
                seeds.contains(&order[0]) && nodes.contains(&order[1]),
                "{order:?}"
            );
            assert_eq!(order.len(), nodes.len() + seeds.len());
        }
    }
}
