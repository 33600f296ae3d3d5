//! Sends commands again that did not run: to the node of a redirect, or after a delay.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::{sleep_until, timeout_at};

use crate::batch::Batch;
use crate::batch::unfinished::Asking;
use crate::client::attempt::{Attempt, Backend, Sender};
use crate::client::retry::{Retry, UnfinishedUnit};
use crate::client::retry_queue::{Progress, RetryPermit};
use crate::node::Node;
use crate::outcome::Outcome;

/// Bounds of the random delay before commands are sent again that the server refused to run. The
/// bound doubles with each attempt.
const RETRY_MIN: Duration = Duration::from_millis(5);
const RETRY_MAX: Duration = Duration::from_millis(500);

/// Sends units again that did not run in the `first` attempt, until they ran, no retry can help, or
/// the deadline is near.
pub(crate) async fn resend(
    sender: &Sender,
    first: &Attempt,
    outcomes: &mut [Outcome],
    deadline: Instant,
) {
    let batch = &first.call.batch;
    let mut epoch = first.epoch;
    let mut unfinished = unfinished_units(first, outcomes);
    let mut bound = RETRY_MIN;
    let mut place = None;
    loop {
        let retries: Vec<Retry> = unfinished
            .iter_mut()
            .map(|unit| unit.retry(&sender.backend, outcomes, epoch))
            .collect();
        retries
            .iter()
            .for_each(|retry| sender.tally.redirected(retry));
        let redirected = retries
            .iter()
            .any(|retry| matches!(retry, Retry::Redirect(..)));
        if !redirected {
            if waiting(&unfinished, &retries).next().is_none() {
                return;
            }
            place = place.or_else(|| enter(sender, batch, &unfinished, &retries, outcomes));
            if place.is_none() {
                return waiting(&unfinished, &retries).for_each(|unit| unit.refuse(outcomes));
            }
            let lacks_owner = unfinished.iter().any(|unit| unit.lacks_owner(outcomes));
            let owner_lacking_since = lacks_owner.then_some(epoch);
            let waited = wait(&sender.backend, bound, owner_lacking_since, deadline).await;
            if waited.is_err() {
                return;
            }
            if let Some(newer) = in_vain(&sender.backend, batch, &unfinished, outcomes) {
                epoch = newer;
                continue;
            }
            bound = (bound * 2).min(RETRY_MAX);
        }
        // Redirected units are sent at once. The others must not delay them and are sent in the
        // next round.
        let round = Round::new(batch, &unfinished, retries, redirected);
        sender
            .tally
            .sent_again(round.sent.iter().map(|sent| sent.places.len()).sum());
        let (attempt, results) = sender.attempt(round.batch, &round.targets, deadline).await;
        epoch = attempt.epoch;
        for (unit, sent) in round.sent.iter().enumerate() {
            let unfinished = &mut unfinished[sent.unfinished];
            sent.record(unfinished, &results, outcomes);
            unfinished.take_note(batch, outcomes, attempt.node_of(unit as u32));
        }
        unfinished.retain(|unfinished| !unfinished.commands.is_empty());
    }
}

/// Returns the units that wait to be sent again to the same node.
fn waiting<'u>(
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
fn enter<'a>(
    sender: &'a Sender,
    batch: &Batch,
    unfinished: &[UnfinishedUnit],
    retries: &[Retry],
    outcomes: &[Outcome],
) -> Option<RetryPermit<'a>> {
    let has_begun =
        |unit: &UnfinishedUnit| batch.may_have_begun(unit.unit, &unit.commands, outcomes);
    let progress = if unfinished.iter().any(has_begun) {
        Progress::Begun
    } else {
        Progress::None
    };
    let node = waiting(unfinished, retries)
        .find_map(|unit| unit.asked.as_ref())
        .map_or_else(Arc::default, |node| Arc::clone(&node.name));
    sender.waiting.enter(node, batch.load(), progress)
}

/// Returns the epoch of the current snapshot if no unit has a usable node in it. `None` if one has.
fn in_vain(
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
            asked: attempt.node_of(unit).cloned(),
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
    bound: Duration,
    owner_lacking_since: Option<u64>,
    deadline: Instant,
) -> Result<(), OutOfTime> {
    let until = Instant::now() + bound.mul_f64(fastrand::f64());
    match (backend, owner_lacking_since) {
        (Backend::Cluster(cluster), Some(epoch)) => {
            // A random minimum keeps calls that arrived at the same time from retrying at the same
            // time.
            let until = until
                .max(Instant::now() + RETRY_MAX.mul_f64(0.5 + 0.5 * fastrand::f64()))
                .min(deadline);
            let _ = timeout_at(until.into(), cluster.renewed(epoch)).await;
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
struct Round {
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
    places: Vec<usize>,
}

impl Round {
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
            let (target, asking) = match retry {
                Retry::Redirect(node, asking) => (Some(node), asking),
                Retry::Wait if !redirected => (None, Asking::No),
                Retry::Wait | Retry::GiveUp => continue,
            };
            let places = round.batch.append(batch, unit.unit, &unit.commands, asking);
            round.targets.push(target);
            round.sent.push(SentUnit {
                unfinished: at,
                places,
            });
        }
        round
    }
}

impl SentUnit {
    /// Copies the outcomes of the round to the outcomes of the whole batch.
    fn record(&self, unfinished: &UnfinishedUnit, results: &[Outcome], outcomes: &mut [Outcome]) {
        for (&command, &place) in unfinished.commands.iter().zip(&self.places) {
            outcomes[command] = results[place].clone();
        }
    }
}
