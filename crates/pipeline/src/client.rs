//! The caller's door: plans a batch, sends it, and sends again what did not run.

mod resend;
pub(crate) mod route;

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use crate::batch::Batch;
use crate::call::{Call, Group, Load, Overdue};
use crate::client::resend::resend;
use crate::client::route::split;
use crate::cluster::Cluster;
use crate::cluster::discovery::{Discovery, Sentinels};
use crate::config::{Config, ConfigError, Parallelism, Servers};
use crate::link::shared::Shared;
use crate::node::Node;
use crate::outcome::{NotSent, Outcome};
use crate::stats::Stats;

/// A handle on one Redis, or one Redis Cluster. Clones share its connections; the last one dropped closes them.
#[derive(Debug, Clone)]
pub struct Client {
    owner: Arc<Owner>,
}

/// Stops the tasks when the last handle goes.
#[derive(Debug)]
struct Owner {
    backend: Backend,
    shared: Arc<Shared>,
}

/// What is at the other end.
#[derive(Debug)]
pub(crate) enum Backend {
    Single(Arc<Node>),
    /// Several, or one that may move.
    Cluster(Arc<Cluster>),
}

impl Client {
    /// Starts a client on the current tokio runtime; a connection opens when the first batch needs it.
    ///
    /// # Errors
    /// A bound in `config` that makes no sense.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        let shared = Shared::new(config)?;
        let backend = match shared.config.servers.clone() {
            Servers::Single(address) => Backend::Single(Node::new(address, &shared)),
            Servers::Cluster(seeds) => Backend::Cluster(Cluster::start(Discovery::Cluster(seeds), &shared)),
            Servers::Sentinel { master, sentinels, credentials } => {
                let sentinels = Sentinels::new(master, sentinels, credentials);
                Backend::Cluster(Cluster::start(Discovery::Sentinel(sentinels), &shared))
            }
        };
        Ok(Self { owner: Arc::new(Owner { backend, shared }) })
    }

    /// Sends the commands of `batch` and returns one outcome per command, in their order, at `deadline` at the latest.
    ///
    /// What was not sent, or what the server refused to run for now, is sent again while the deadline allows, to another
    /// node when the server named one. What may have run is not.
    ///
    /// # Order
    /// Commands of one key run in the order of the batch, unless one has to be sent again: then those of the units behind it
    /// have overtaken it by then. In a unit, commands that may run twice ([`UnitBuilder::repeatable`](crate::UnitBuilder))
    /// follow again in their order. So writes whose order matters belong into one unit and are repeatable, or into a
    /// transaction. Increments commute, and need nothing.
    ///
    /// # Cancellation
    /// When the future is dropped, commands not yet written are never written; written ones may run.
    pub async fn send(&self, batch: Batch, deadline: Instant) -> Vec<Outcome> {
        if let Some(reason) = batch.refused.clone() {
            tokio::task::coop::consume_budget().await;
            return vec![Outcome::NotSent(reason); batch.len()];
        }
        if batch.is_empty() {
            return Vec::new();
        }
        let (call, mut outcomes) = self.attempt(batch, &[], deadline).await;
        if !outcomes.iter().all(Outcome::ran) {
            // Boxed, because it is rare and would make the future of every call as large as its own.
            Box::pin(resend(self, &call, &mut outcomes, deadline)).await;
            // A refusal waits for nothing. A caller that tries again at once would keep its thread from everybody else, the
            // task that connects again among them.
            tokio::task::coop::consume_budget().await;
        }
        outcomes
    }

    /// What the connections did so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        match &self.owner.backend {
            Backend::Single(node) => node.stats(),
            Backend::Cluster(cluster) => cluster.stats(),
        }
    }

    /// Closes the connections and waits for their tasks. Calls in progress end, with what is known of their commands.
    pub async fn close(&self) {
        self.owner.stop();
        self.owner.shared.ended().await;
    }

    pub(crate) fn backend(&self) -> &Backend {
        &self.owner.backend
    }

    /// Sends a batch once. `targets` names the node of a unit where its slot does not decide.
    ///
    /// # Cancellation
    /// Dropping the future abandons the call.
    pub(crate) async fn attempt(
        &self,
        batch: Batch,
        targets: &[Option<Arc<Node>>],
        deadline: Instant,
    ) -> (Arc<Call>, Vec<Outcome>) {
        let call = self.plan(batch, targets, deadline);
        let waiting = Waiting(&call);
        let in_time = run(&call, self.owner.shared.config.parallelism).await;
        std::mem::forget(waiting);
        let outcomes = call.leave(|node| match in_time {
            Ok(()) => NotSent::Skipped,
            Err(Overdue) => NotSent::DeadlineExceeded { node: Arc::clone(&node.name) },
        });
        (call, outcomes)
    }

    fn plan(&self, batch: Batch, targets: &[Option<Arc<Node>>], deadline: Instant) -> Arc<Call> {
        let grouping = self.owner.shared.config.grouping;
        let target = |unit: u32| targets.get(unit as usize).and_then(Option::as_ref);
        match &self.owner.backend {
            Backend::Single(node) => {
                let plans = split(&batch, grouping, |_| Some(node));
                Call::new(batch, plans, 0, deadline.into())
            }
            Backend::Cluster(cluster) => {
                let topology = cluster.topology();
                let plans = split(&batch, grouping, |unit| {
                    target(unit).or_else(|| match batch.slot_of(unit) {
                        Some(slot) => topology.owner(slot),
                        None => fastrand::choice(&topology.nodes),
                    })
                });
                Call::new(batch, plans, topology.epoch, deadline.into())
            }
        }
    }
}

/// Submits the groups of a call, at most so many at once, and waits until all are done or a serial one failed.
async fn run(call: &Arc<Call>, parallelism: Parallelism) -> Result<(), Overdue> {
    let (groups, limit) = (call.plans.len(), parallelism.groups());
    if groups <= limit {
        submit(call, 0..groups);
        return call.until(groups).await;
    }
    let mut submitted = 0;
    while submitted < groups {
        let end = groups.min(call.done().saturating_add(limit));
        submit(call, submitted..end);
        submitted = end;
        if submitted < groups {
            call.until(submitted - limit + 1).await?;
            if parallelism == Parallelism::SERIAL && call.failed() {
                return Ok(());
            }
        }
    }
    call.until(groups).await
}

/// Hands groups to their nodes. The groups of one node go in together, so that it takes all or none.
fn submit(call: &Arc<Call>, groups: Range<usize>) {
    for first in groups.clone() {
        let node = &call.plans[first].node;
        let same = |&group: &usize| Arc::ptr_eq(&call.plans[group].node, node);
        if (groups.start..first).any(|earlier| same(&earlier)) {
            continue;
        }
        let together = (first..groups.end).filter(same);
        let mut total = Load::default();
        together.clone().for_each(|group| total.add(call.plans[group].load));
        node.submit(together.map(|index| Group { call: Arc::clone(call), index }), total);
    }
}

impl Owner {
    fn stop(&self) {
        match &self.backend {
            Backend::Single(node) => node.close(),
            Backend::Cluster(cluster) => cluster.close(),
        }
        self.shared.end();
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Abandons the call when the caller goes before it is done.
struct Waiting<'a>(&'a Call);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}
