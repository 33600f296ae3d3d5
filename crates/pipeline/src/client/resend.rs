//! Sends commands again that did not run: to the node of a redirect, or after a delay.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::{sleep_until, timeout_at};

use super::{Attempt, Backend, BatchSender, Retry, RetryPermit, RetryPriority, UnfinishedUnit};
use crate::batch::{Batch, SlotState};
use crate::node::Node;
use crate::outcome::Outcome;

/// Bounds of the random delay before commands are sent again that the server refused to run. The
/// bound doubles with each attempt.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(5);
const MAX_RETRY_DELAY: Duration = Duration::from_millis(500);

/// Sends units again that did not run in the `first` attempt, until they ran, no retry can help, or
/// the deadline is near.
pub(crate) async fn resend(
    sender: &BatchSender,
    first: &Attempt,
    outcomes: &mut [Outcome],
    deadline: Instant,
) {
    let batch = &first.call.batch;
    let mut epoch = first.epoch;
    let mut unfinished = unfinished_units(first, outcomes);
    let mut max_delay = MIN_RETRY_DELAY;
    let mut permit = None;
    loop {
        let retries: Vec<Retry> = unfinished
            .iter_mut()
            .map(|unit| unit.retry(&sender.backend, outcomes, epoch))
            .collect();
        retries
            .iter()
            .for_each(|retry| sender.command_counts.record_redirect(retry));
        let redirected = retries
            .iter()
            .any(|retry| matches!(retry, Retry::Redirect(..)));
        if !redirected {
            if waiting_units(&unfinished, &retries).next().is_none() {
                return;
            }
            permit =
                permit.or_else(|| acquire_permit(sender, batch, &unfinished, &retries, outcomes));
            if permit.is_none() {
                return waiting_units(&unfinished, &retries).for_each(|unit| unit.refuse(outcomes));
            }
            let lacks_owner = unfinished.iter().any(|unit| unit.lacks_owner(outcomes));
            let owner_lacking_since = lacks_owner.then_some(epoch);
            let waited = wait(&sender.backend, max_delay, owner_lacking_since, deadline).await;
            if waited.is_err() {
                return;
            }
            if let Some(newer) = epoch_without_owners(&sender.backend, batch, &unfinished, outcomes)
            {
                epoch = newer;
                continue;
            }
            max_delay = (max_delay * 2).min(MAX_RETRY_DELAY);
        }
        // Redirected units are sent at once. The others must not delay them and are sent in the
        // next round.
        let round = RetryRound::new(batch, &unfinished, retries, redirected);
        sender
            .command_counts
            .record_retries(round.sent.iter().map(|sent| sent.positions.len()).sum());
        let (attempt, results) = sender.attempt(round.batch, &round.targets, deadline).await;
        epoch = attempt.epoch;
        for (unit, sent) in round.sent.iter().enumerate() {
            let unfinished = &mut unfinished[sent.unfinished];
            sent.record(unfinished, &results, outcomes);
            unfinished.on_attempt(batch, outcomes, attempt.node_of(unit as u32));
        }
        unfinished.retain(|unfinished| !unfinished.commands.is_empty());
    }
}

/// Returns the units that wait to be sent again to the same node.
fn waiting_units<'u>(
    unfinished: &'u [UnfinishedUnit],
    retries: &'u [Retry],
) -> impl Iterator<Item = &'u UnfinishedUnit> {
    unfinished
        .iter()
        .zip(retries)
        .filter(|(_, retry)| matches!(retry, Retry::Wait))
        .map(|(unit, _)| unit)
}

/// Acquires a permit to wait for a retry, among the calls that wait for the same node. `None` if
/// the queue is full.
fn acquire_permit<'a>(
    sender: &'a BatchSender,
    batch: &Batch,
    unfinished: &[UnfinishedUnit],
    retries: &[Retry],
    outcomes: &[Outcome],
) -> Option<RetryPermit<'a>> {
    let has_begun =
        |unit: &UnfinishedUnit| batch.may_have_begun(unit.unit, &unit.commands, outcomes);
    let priority = if unfinished.iter().any(has_begun) {
        RetryPriority::PartlyRun
    } else {
        RetryPriority::Normal
    };
    let node = waiting_units(unfinished, retries)
        .find_map(|unit| unit.last_node.as_ref())
        .map_or_else(Arc::default, |node| node.name.clone());
    sender.retry_queue.acquire(node, batch.load(), priority)
}

/// Returns the epoch of the current snapshot if no unit has a usable node in it. `None` if one has.
fn epoch_without_owners(
    backend: &Backend,
    batch: &Batch,
    unfinished: &[UnfinishedUnit],
    outcomes: &[Outcome],
) -> Option<u64> {
    let Backend::Cluster(cluster) = backend else {
        return None;
    };
    let topology = cluster.topology();
    let lacks_owner = |unit: &UnfinishedUnit| unit.still_lacks_owner(&topology, batch, outcomes);
    unfinished.iter().all(lacks_owner).then_some(topology.epoch)
}

fn unfinished_units(attempt: &Attempt, outcomes: &[Outcome]) -> Vec<UnfinishedUnit> {
    let batch = &attempt.call.batch;
    (0..batch.units.len() as u32)
        .map(|unit| UnfinishedUnit {
            unit,
            commands: batch.unfinished(unit, outcomes),
            last_node: attempt.node_of(unit).cloned(),
            redirects: 0,
            begun: batch.has_begun(unit, outcomes),
            read_only_since: None,
        })
        .filter(|unfinished| !unfinished.commands.is_empty())
        .collect()
}

/// The deadline leaves no time for another attempt.
struct OutOfTime;

/// Waits for a random time of at most `max_delay`. If the snapshot of `owner_lacking_since` knows
/// no owner, waits longer for a newer snapshot.
async fn wait(
    backend: &Backend,
    max_delay: Duration,
    owner_lacking_since: Option<u64>,
    deadline: Instant,
) -> Result<(), OutOfTime> {
    let until = Instant::now() + max_delay.mul_f64(fastrand::f64());
    match (backend, owner_lacking_since) {
        (Backend::Cluster(cluster), Some(epoch)) => {
            // A random minimum keeps calls that arrived at the same time from retrying at the same
            // time.
            let until = until
                .max(Instant::now() + MAX_RETRY_DELAY.mul_f64(0.5 + 0.5 * fastrand::f64()))
                .min(deadline);
            let _ = timeout_at(until.into(), cluster.wait_for_newer(epoch)).await;
        }
        _ if until < deadline => sleep_until(until.into()).await,
        _ => return Err(OutOfTime),
    }
    if Instant::now() < deadline {
        Ok(())
    } else {
        Err(OutOfTime)
    }
}

/// One attempt at some of the unfinished units.
struct RetryRound {
    batch: Batch,
    /// The node that a redirect named for each unit of `batch`.
    targets: Vec<Option<Arc<Node>>>,
    /// The origin of each unit of `batch`.
    sent: Vec<SentUnit>,
}

/// A unit of a retry round.
struct SentUnit {
    /// Index of the unit among the unfinished units.
    unfinished: usize,
    /// Indices of its commands in the batch of the round.
    positions: Vec<usize>,
}

impl RetryRound {
    fn new(
        batch: &Batch,
        unfinished: &[UnfinishedUnit],
        retries: Vec<Retry>,
        redirected: bool,
    ) -> Self {
        let mut round = Self {
            batch: Batch::new(),
            targets: Vec::new(),
            sent: Vec::new(),
        };
        for (at, (unit, retry)) in unfinished.iter().zip(retries).enumerate() {
            let (target, slot_state) = match retry {
                Retry::Redirect(node, slot_state) => (Some(node), slot_state),
                Retry::Wait if !redirected => (None, SlotState::Owned),
                Retry::Wait | Retry::GiveUp => continue,
            };
            let positions = round
                .batch
                .append(batch, unit.unit, &unit.commands, slot_state);
            round.targets.push(target);
            round.sent.push(SentUnit {
                unfinished: at,
                positions,
            });
        }
        round
    }
}

impl SentUnit {
    /// Copies the outcomes of the round to the outcomes of the whole batch.
    fn record(&self, unfinished: &UnfinishedUnit, results: &[Outcome], outcomes: &mut [Outcome]) {
        for (&command, &position) in unfinished.commands.iter().zip(&self.positions) {
            outcomes[command] = results[position].clone();
        }
    }
}
