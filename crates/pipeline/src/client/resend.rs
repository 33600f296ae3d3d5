//! Sends again what did not run: to the node a redirect names, or after a wait.

use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use tokio::time::{sleep_until, timeout_at};

use crate::batch::{Asking, Batch};
use crate::call::Call;
use crate::client::{Backend, Client};
use crate::cluster::Cluster;
use crate::cluster::topology::endpoint;
use crate::node::Node;
use crate::outcome::{NotSent, Outcome, Rejection};
use crate::wire::slot::Slot;

/// Redirects that one unit follows without a wait. Two nodes may name each other while the news of a move spreads.
const MAX_REDIRECTS: u32 = 5;

/// First wait before sending again what the server refused to run; doubles up to the maximum, with full jitter.
const RETRY_MIN: Duration = Duration::from_millis(5);
const RETRY_MAX: Duration = Duration::from_millis(500);

/// A node that was down for longer than a failover takes is not replaced any more: its callers are refused at once again,
/// and do not gather. Redis Cluster waits 15 s by default before it replaces a node, and then needs about two.
const FAILOVER_AT_MOST: Duration = Duration::from_secs(30);

/// A unit with commands that did not run.
struct Unfinished {
    unit: u32,
    /// Indices of the commands to send again, in order.
    commands: SmallVec<[usize; 2]>,
    /// Who was asked last.
    asked: Option<Arc<Node>>,
    redirects: u32,
}

impl Unfinished {
    /// Whether what is missing is a node that can be asked.
    fn lacks_owner(&self, outcomes: &[Outcome]) -> bool {
        let reason = &outcomes[self.commands[0]];
        matches!(reason, Outcome::NotSent(NotSent::NoOwner { .. } | NotSent::Unavailable { .. }))
    }
}

/// What to do about an unfinished unit.
enum Step {
    /// Ask this node, now.
    Redirect(Arc<Node>, Asking),
    /// Ask whoever owns the slot by then, after a wait.
    Wait,
    /// Leave the outcome as it is.
    GiveUp,
}

/// Sends the units of `call` again that did not run, until they did, nothing more can be done, or the deadline is near.
pub(crate) async fn resend(client: &Client, call: &Call, outcomes: &mut [Outcome], deadline: Instant) {
    let batch = &call.batch;
    let mut epoch = call.epoch;
    let mut unfinished: Vec<Unfinished> = (0..batch.units.len() as u32)
        .map(|unit| Unfinished {
            unit,
            commands: batch.unfinished(unit, outcomes),
            asked: call.node_of(unit).cloned(),
            redirects: 0,
        })
        .filter(|unfinished| !unfinished.commands.is_empty())
        .collect();
    let mut bound = RETRY_MIN;
    loop {
        let steps: Vec<Step> =
            unfinished.iter_mut().map(|unit| step(client.backend(), unit, outcomes, epoch)).collect();
        let redirected = steps.iter().any(|step| matches!(step, Step::Redirect(..)));
        let waiting = steps.iter().any(|step| matches!(step, Step::Wait));
        if !redirected && !waiting {
            return;
        }
        if !redirected {
            let until = Instant::now() + bound.mul_f64(fastrand::f64());
            match client.backend() {
                Backend::Cluster(cluster) if unfinished.iter().any(|unit| unit.lacks_owner(outcomes)) => {
                    // What a wait alone does not mend, a new snapshot may, and it is worth waiting for to the end.
                    let until = until.max(Instant::now() + RETRY_MAX).min(deadline);
                    let _ = timeout_at(until.into(), cluster.renewed(epoch)).await;
                }
                _ if until < deadline => sleep_until(until.into()).await,
                _ => return,
            }
            if Instant::now() >= deadline {
                return;
            }
            bound = (bound * 2).min(RETRY_MAX);
        }
        // Redirected units go at once; the others must not hold them up and take their turn in the next round.
        let round = Round::new(batch, &unfinished, steps, redirected);
        let (again, results) = client.attempt(round.batch, &round.targets, deadline).await;
        epoch = again.epoch;
        for (unit, (at, places)) in round.sent.iter().enumerate() {
            let unfinished = &mut unfinished[*at];
            for (&command, &place) in unfinished.commands.iter().zip(places) {
                outcomes[command] = results[place].clone();
            }
            unfinished.asked = again.node_of(unit as u32).cloned();
            unfinished.commands = batch.unfinished(unfinished.unit, outcomes);
        }
        unfinished.retain(|unfinished| !unfinished.commands.is_empty());
    }
}

/// One attempt at some of the unfinished units.
struct Round {
    batch: Batch,
    /// For each unit of `batch`, the node a redirect named.
    targets: Vec<Option<Arc<Node>>>,
    /// For each unit of `batch`, which unfinished one it is, and where its commands are now.
    sent: Vec<(usize, Vec<usize>)>,
}

impl Round {
    fn new(batch: &Batch, unfinished: &[Unfinished], steps: Vec<Step>, redirected: bool) -> Self {
        let mut round = Self { batch: Batch::new(), targets: Vec::new(), sent: Vec::new() };
        for (at, (unfinished, step)) in unfinished.iter().zip(steps).enumerate() {
            let (target, asking) = match step {
                Step::Redirect(node, asking) => (Some(node), asking),
                Step::Wait if !redirected => (None, Asking::No),
                Step::Wait | Step::GiveUp => continue,
            };
            let places = round.batch.append(batch, unfinished.unit, &unfinished.commands, asking);
            round.targets.push(target);
            round.sent.push((at, places));
        }
        round
    }
}

fn step(backend: &Backend, unfinished: &mut Unfinished, outcomes: &[Outcome], epoch: u64) -> Step {
    // The first that did not run decides: the commands of a unit share a key.
    let reason = unfinished.commands.iter().map(|&command| &outcomes[command]).find(|outcome| !outcome.ran());
    match (backend, reason) {
        (_, None) => Step::GiveUp,
        // Nobody can take over from one server.
        (Backend::Single(_), Some(Outcome::NotSent(NotSent::Unavailable { .. }))) => Step::GiveUp,
        (Backend::Cluster(_), Some(Outcome::NotSent(NotSent::Unavailable { .. })))
            if unfinished.asked.as_ref().is_some_and(|node| node.down_for() > FAILOVER_AT_MOST) =>
        {
            Step::GiveUp
        }
        (_, Some(Outcome::NotSent(_) | Outcome::Unknown(_))) => {
            if let Backend::Cluster(cluster) = backend {
                cluster.want_refresh();
            }
            Step::Wait
        }
        (Backend::Single(node), Some(Outcome::Rejected(rejected))) => match rejected.kind {
            // One server has nobody to redirect to.
            Rejection::Moved { .. } | Rejection::Ask { .. } => Step::GiveUp,
            Rejection::ReadOnly | Rejection::Unauthenticated => {
                node.renew();
                Step::Wait
            }
            _ => Step::Wait,
        },
        (Backend::Cluster(cluster), Some(Outcome::Rejected(rejected))) => {
            rejected_step(cluster, unfinished, &rejected.kind, epoch)
        }
        (_, Some(_)) => Step::GiveUp,
    }
}

fn rejected_step(cluster: &Arc<Cluster>, unfinished: &mut Unfinished, kind: &Rejection, epoch: u64) -> Step {
    let (Rejection::Moved { slot, endpoint: text } | Rejection::Ask { slot, endpoint: text }) = kind else {
        if matches!(kind, Rejection::ClusterDown | Rejection::ReadOnly) {
            cluster.want_refresh();
        }
        // Behind an address that moves with the primary, only a new connection finds it; and only a new one authenticates.
        if let (Rejection::ReadOnly | Rejection::Unauthenticated, Some(node)) = (kind, &unfinished.asked) {
            node.renew();
        }
        return Step::Wait;
    };
    let Some(asked) = unfinished.asked.clone() else { return Step::GiveUp };
    unfinished.redirects += 1;
    if unfinished.redirects > MAX_REDIRECTS {
        cluster.want_refresh();
        return Step::Wait;
    }
    let (Some(slot), Some(named)) = (Slot::new(*slot), endpoint(text, &asked.address)) else {
        cluster.want_refresh();
        return Step::Wait;
    };
    let node = cluster.node_named(named);
    if matches!(kind, Rejection::Ask { .. }) {
        return Step::Redirect(node, Asking::Yes);
    }
    cluster.moved(slot, &node, epoch);
    // A node that names itself is another server behind the same address: the connection must find it.
    if Arc::ptr_eq(&node, &asked) {
        node.renew();
        return Step::Wait;
    }
    Step::Redirect(node, Asking::No)
}
