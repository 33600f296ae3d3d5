//! One attempt to send a batch: groups go to their nodes, and outcomes return in the order of the
//! batch.

use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;

use super::{GroupParts, RetryQueue, Route, whole_groups};
use crate::batch::{Batch, Load};
use crate::call::{Call, CallGroup, DeadlinePassed, Unanswered, WriteStatus};
use crate::cluster::Cluster;
use crate::config::Parallelism;
use crate::link::{ClientContext, Counters};
use crate::node::Node;
use crate::outcome::{NotSent, Outcome, Unknown};

/// The servers of a client.
#[derive(Debug)]
pub(crate) enum Backend {
    Single(Arc<Node>),
    /// Several servers, or a single primary that may move.
    Cluster(Arc<Cluster>),
}

/// State that all attempts of a client share: the servers, the counts, and the queue of retries.
#[derive(Debug)]
pub(crate) struct BatchSender {
    pub(crate) backend: Backend,
    pub(crate) context: Arc<ClientContext>,
    /// Counts of the outcomes that the client returned to its callers, and of retries and
    /// redirects. Each core has its own client, so that no two cores write to one counter.
    pub(crate) command_counts: Counters,
    /// Bounds the calls that wait to be sent again.
    pub(crate) retry_queue: RetryQueue,
}

/// An attempt, with the nodes and the topology that it used.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) call: Arc<Call>,
    /// The node of each group.
    nodes: SmallVec<[Arc<Node>; 1]>,
    /// The topology snapshot by which the nodes were chosen.
    pub(crate) epoch: u64,
}

impl BatchSender {
    /// Sends a batch once. `targets` names the node of a unit if its slot does not decide.
    ///
    /// # Cancellation
    /// Dropping the future abandons the call.
    pub(crate) async fn attempt(
        &self,
        batch: Batch,
        targets: &[Option<Arc<Node>>],
        deadline: Instant,
    ) -> (Attempt, Vec<Outcome>) {
        let attempt = self.route(batch, targets, deadline);
        let guard = AbandonOnDrop {
            call: &attempt.call,
            context: &self.context,
        };
        let in_time = attempt.run(self.context.config.parallelism).await;
        std::mem::forget(guard);
        let outcomes = attempt.call.leave(|group, why| {
            let node = Arc::clone(&attempt.nodes[group].name);
            match (why, in_time) {
                (Unanswered::Dropped(written), _) => dropped_outcome(written, node),
                (Unanswered::NotDone(WriteStatus::MaybeWritten), _) => {
                    Outcome::Unknown(Unknown::DeadlineExceeded { node })
                }
                (Unanswered::NotDone(WriteStatus::NotWritten), Err(DeadlinePassed)) => {
                    Outcome::NotSent(NotSent::DeadlineExceeded { node })
                }
                (Unanswered::NotDone(WriteStatus::NotWritten), Ok(())) => {
                    Outcome::NotSent(NotSent::Skipped)
                }
            }
        });
        (attempt, outcomes)
    }

    /// Chooses the node of each unit.
    fn route(&self, batch: Batch, targets: &[Option<Arc<Node>>], deadline: Instant) -> Attempt {
        let target = |unit: u32| targets.get(unit as usize).and_then(Option::as_ref);
        let (Route { groups, nodes }, epoch) = match &self.backend {
            Backend::Single(node) => (Route::split(&batch, |_| Some(node)), 0),
            Backend::Cluster(cluster) => {
                let topology = cluster.topology();
                let route = Route::split(&batch, |unit| {
                    target(unit).or_else(|| match batch.slot_of(unit) {
                        Some(slot) => topology.owner(slot),
                        None => fastrand::choice(&topology.nodes),
                    })
                });
                (route, topology.epoch)
            }
        };
        Attempt {
            call: Call::new(batch, groups, deadline.into()),
            nodes,
            epoch,
        }
    }
}

impl BatchSender {
    /// Sets the reason of outcomes whose slot has no owner: the answers of the servers that were
    /// queried for the owner.
    pub(crate) fn explain(&self, outcomes: &mut [Outcome]) {
        let Backend::Cluster(cluster) = &self.backend else {
            return;
        };
        for outcome in outcomes {
            if let Outcome::NotSent(NotSent::NoOwner { reason, .. }) = outcome {
                *reason = cluster.failure();
            }
        }
    }

    /// Stops the tasks of the client.
    pub(crate) fn stop(&self) {
        match &self.backend {
            Backend::Single(node) => node.close(),
            Backend::Cluster(cluster) => cluster.close(),
        }
        self.context.end();
    }
}

impl Drop for BatchSender {
    /// Stops the tasks when the last clone of the client is dropped.
    fn drop(&mut self) {
        self.stop();
    }
}

impl Attempt {
    /// Returns the node that a unit was sent to. `None` if no node was known.
    pub(crate) fn node_of(&self, unit: u32) -> Option<&Arc<Node>> {
        let group = self
            .call
            .groups
            .iter()
            .position(|group| group.contains(unit))?;
        Some(&self.nodes[group])
    }

    /// Submits the groups and waits until all are done. With serial parallelism it stops after a
    /// group that failed.
    ///
    /// `parallelism` bounds the groups in progress. The parts of a group that was split because of
    /// its size count as one: they are written in sequence, and no part waits for the reply to
    /// another.
    async fn run(&self, parallelism: Parallelism) -> Result<(), DeadlinePassed> {
        let call = &self.call;
        let groups = self.nodes.len();
        let limit = parallelism.groups();
        if groups <= limit {
            self.submit(0..groups);
            return call.wait_until_done(groups).await;
        }
        let mut waiting = whole_groups(&self.nodes).into_iter().peekable();
        let mut in_progress: Vec<GroupParts> = Vec::new();
        while waiting.peek().is_some() {
            let done = call.done_count();
            in_progress.retain(|parts| !call.all_done(parts));
            if parallelism == Parallelism::SERIAL && call.has_permanent_failure() {
                return Ok(());
            }
            for parts in waiting.by_ref().take(limit - in_progress.len()) {
                self.submit(parts.iter().copied());
                in_progress.push(parts);
            }
            if waiting.peek().is_some() {
                call.wait_until_done(done + 1).await?;
            }
        }
        call.wait_until_done(groups).await
    }

    /// Hands groups to their nodes. The groups of one node are submitted in one call, so that the
    /// node accepts all or none.
    fn submit(&self, groups: impl Iterator<Item = usize> + Clone) {
        let call = &self.call;
        for (at, first) in groups.clone().enumerate() {
            let node = &self.nodes[first];
            let goes_to_node = |&group: &usize| Arc::ptr_eq(&self.nodes[group], node);
            if groups
                .clone()
                .take(at)
                .any(|earlier| goes_to_node(&earlier))
            {
                continue;
            }
            let groups_of_node = groups.clone().skip(at).filter(goes_to_node);
            let mut total = Load::default();
            groups_of_node
                .clone()
                .for_each(|group| total.add(call.groups[group].load));
            node.submit(
                groups_of_node.map(|index| CallGroup::new(call, index)),
                total,
            );
        }
    }
}

/// Returns the outcome of a command whose group was dropped.
fn dropped_outcome(written: WriteStatus, node: Arc<str>) -> Outcome {
    let reason = "its task was stopped".into();
    match written {
        WriteStatus::MaybeWritten => Outcome::Unknown(Unknown::ConnectionLost { node, reason }),
        WriteStatus::NotWritten => Outcome::NotSent(NotSent::ConnectionLost { node, reason }),
    }
}

/// Abandons the call if the future is dropped before the call is done.
struct AbandonOnDrop<'a> {
    call: &'a Call,
    context: &'a ClientContext,
}

impl Drop for AbandonOnDrop<'_> {
    fn drop(&mut self) {
        for batch in self.call.abandon() {
            self.context.left_behind.add(batch);
        }
    }
}
