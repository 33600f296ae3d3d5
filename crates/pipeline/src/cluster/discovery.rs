//! Discovers the owners of slots: from the nodes of a cluster, or from sentinels.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tracing::warn;

use super::{
    Agreement, Conclusion, LogThrottle, QueryFailures, Sentinels, SnapshotSummary, View,
    current_epoch, query_server, warn_no_owners,
};
use crate::batch::{Arg, Batch};
use crate::config::Address;
use crate::link::ClientContext;
use crate::outcome::Outcome;

/// Number of servers that are queried at first: three nodes and a seed. If one hangs, the others
/// are a majority.
const WAVE_SERVERS: usize = 4;

/// Interval after which further servers are queried if no view can be accepted. A view that is no
/// regression waits no longer for servers that have not answered.
const WAVE_INTERVAL: Duration = Duration::from_millis(250);

/// Maximum number of concurrent queries. A view that is a regression needs many votes.
const MAX_CONCURRENT_QUERIES: usize = 32;

/// Maximum time of one discovery. After it, the conclusion from the answers so far is final.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(2);

const UNCONFIRMED_MESSAGE: &str = "nodes of redis take slots or owners away, and most of the owners that they name do not say so: what is known stays";

const UNREADABLE_MESSAGE: &str = "its answer cannot be read";

/// Log limit for views that were not accepted, for all clients of the process.
static UNCONFIRMED_LOG: LogThrottle = LogThrottle::new();

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
        current: SnapshotSummary,
        context: &Arc<ClientContext>,
    ) -> Result<View, String> {
        match self {
            Self::Cluster(seeds) => DiscoveryRound::new(current, seeds, context).view().await,
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
struct DiscoveryRound {
    context: Arc<ClientContext>,
    agreement: Agreement,
    remaining: VecDeque<Address>,
    queried: HashSet<Address>,
    in_flight: JoinSet<(Address, Result<View, String>)>,
    failures: QueryFailures,
}

impl DiscoveryRound {
    fn new(current: SnapshotSummary, seeds: &[Address], context: &Arc<ClientContext>) -> Self {
        Self {
            context: context.clone(),
            remaining: sources(&current.nodes, seeds),
            agreement: Agreement::new(current),
            queried: HashSet::new(),
            in_flight: JoinSet::new(),
            failures: QueryFailures::default(),
        }
    }

    async fn view(mut self) -> Result<View, String> {
        let started = Instant::now();
        let deadline = started + DISCOVERY_TIMEOUT;
        let mut next_wave = started + WAVE_INTERVAL;
        self.query_more(WAVE_SERVERS);
        loop {
            let mut is_late = false;
            tokio::select! {
                Some(answered) = self.in_flight.join_next() => {
                    match answered {
                        Ok((address, Ok(view))) => self.agreement.add(&address, view),
                        Ok((address, Err(reason))) => self.failures.add(&address, &reason),
                        // A task that panicked has no answer.
                        Err(_) => {}
                    }
                }
                () = sleep_until(next_wave) => {
                    is_late = true;
                    next_wave += WAVE_INTERVAL;
                }
            }
            let conclusion = self.agreement.conclusion();
            if Instant::now() < deadline && !self.query_more_unless_final(&conclusion, is_late) {
                continue;
            }
            return match conclusion {
                Conclusion::Accepted { view, .. } => Ok(view),
                Conclusion::Unconfirmed { owners } => {
                    if let Some(times) = UNCONFIRMED_LOG.count("", Instant::now().into_std()) {
                        let owners = owners.len();
                        let answers = self.agreement.answers();
                        warn!(times, owners, answers, "{UNCONFIRMED_MESSAGE}");
                    }
                    Err(UNCONFIRMED_MESSAGE.to_owned())
                }
                Conclusion::Ownerless => Err("the servers that answered name no owner".to_owned()),
                Conclusion::NoAnswer => Err(self.failures.to_string()),
            };
        }
    }

    /// Queries more servers if further answers may change the conclusion. Returns whether it is
    /// final.
    fn query_more_unless_final(&mut self, conclusion: &Conclusion, is_late: bool) -> bool {
        match conclusion {
            Conclusion::Accepted {
                votes,
                is_regression: false,
                ..
            } => {
                let is_certain = 2 * votes > self.agreement.answers() + self.in_flight.len();
                return is_certain || is_late || self.in_flight.is_empty();
            }
            // The owners in the view can confirm it, and all known servers may object.
            Conclusion::Accepted {
                is_regression: true,
                owners,
                ..
            }
            | Conclusion::Unconfirmed { owners } => {
                self.query_first(owners.iter().cloned().collect());
            }
            Conclusion::Ownerless | Conclusion::NoAnswer => {
                if is_late || self.in_flight.is_empty() {
                    self.query_more(WAVE_SERVERS);
                }
            }
        }
        self.in_flight.is_empty()
    }

    /// Queries all servers that were not queried yet, these first, within the bound on concurrent
    /// queries.
    fn query_first(&mut self, mut servers: Vec<Address>) {
        self.remaining.retain(|server| !servers.contains(server));
        servers.extend(self.remaining.drain(..));
        self.remaining = servers.into();
        self.query_more(MAX_CONCURRENT_QUERIES);
    }

    fn query_more(&mut self, count: usize) {
        let room = MAX_CONCURRENT_QUERIES
            .saturating_sub(self.in_flight.len())
            .min(count);
        let mut started = 0;
        while started < room {
            let Some(address) = self.remaining.pop_front() else {
                return;
            };
            if self.queried.insert(address.clone()) {
                self.in_flight
                    .spawn(query_owners(address, self.context.clone()));
                started += 1;
            }
        }
    }
}

/// Queries one server for the owners of slots. The error is the reason for no answer.
async fn query_owners(
    address: Address,
    context: Arc<ClientContext>,
) -> (Address, Result<View, String>) {
    let mut commands = Batch::new();
    commands
        .unit()
        .command("CLUSTER", &[Arg::Bytes(b"SLOTS")])
        .command("CLUSTER", &[Arg::Bytes(b"INFO")]);
    let answer = query_server(&address, &context, &commands).await;
    let log_failure = |reason: String| {
        warn_no_owners(&address, &reason);
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
            None => Err(UNREADABLE_MESSAGE.to_owned()),
        },
        Ok([Outcome::ServerError(error), ..]) => Err(log_failure(error.to_string())),
        Ok([Outcome::Rejected(rejected), ..]) => Err(rejected.to_string()),
        Ok(_) => Err(UNREADABLE_MESSAGE.to_owned()),
        Err(error) => Err(log_failure(error.clone())),
    };
    (address, view)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_always_among_the_first_servers() {
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
