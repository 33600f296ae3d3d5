//! Sends commands that must be sent although their callers have left.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use tokio::time::sleep;

use super::{Attempt, BatchSender};
use crate::batch::Batch;
use crate::client::resend::resend;
use crate::link::ClientContext;
use crate::outcome::Outcome;

/// Maximum time for which commands are sent again without an answer. Redis has restarted or failed
/// over before that.
const MAX_RETRY_TIME: Duration = Duration::from_secs(30);

/// Maximum time of one attempt to send what callers left behind.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(1);

/// Sends the commands that callers leave behind, until the client has ended.
pub(crate) async fn send_left_behind(sender: Weak<BatchSender>, context: Arc<ClientContext>) {
    loop {
        let mut left = Batch::new();
        context
            .left_behind
            .wait_for_batches()
            .await
            .iter()
            .for_each(|batch| left.append_all(batch));
        let until = Instant::now() + MAX_RETRY_TIME;
        let mut attempts = 0;
        while !left.is_empty() && Instant::now() < until {
            if attempts > 0 {
                sleep(context.config.backoff(attempts)).await;
            }
            attempts += 1;
            let Some(sender) = sender.upgrade() else {
                return;
            };
            left = send_within_timeout(&sender, left).await;
        }
    }
}

/// Sends a batch within [`ATTEMPT_TIMEOUT`]. Returns the units without an answer.
async fn send_within_timeout(sender: &BatchSender, batch: Batch) -> Batch {
    sender.command_counts.record_retries(batch.len());
    let deadline = Instant::now() + ATTEMPT_TIMEOUT;
    let (attempt, mut outcomes) = sender.attempt(batch, &[], deadline).await;
    resend(sender, &attempt, &mut outcomes, deadline).await;
    let batch = &attempt.call.batch;
    let mut left = Batch::new();
    for unit in 0..batch.units.len() as u32 {
        if !outcomes[batch.commands_of(unit..unit + 1)]
            .iter()
            .all(Outcome::is_answered)
        {
            left.append_unit(batch, unit);
        }
    }
    left
}

/// Sends units again that did not run, as [`resend`] does, and leaves behind the commands that must
/// be sent in any case.
///
/// # Cancellation
/// The commands that must be sent in any case are still left behind.
pub(crate) async fn resend_or_leave(
    sender: &BatchSender,
    first: &Attempt,
    outcomes: Vec<Outcome>,
    deadline: Instant,
) -> Vec<Outcome> {
    let batch = &first.call.batch;
    // A command without an outcome is still held by a connection, which leaves it behind itself.
    let units = (0..batch.units.len() as u32)
        .filter(|&unit| !batch.unfinished(unit, &outcomes).is_empty())
        .collect();
    let mut resending = Resending {
        sender,
        batch,
        units,
        outcomes,
    };
    resend(sender, first, &mut resending.outcomes, deadline).await;
    resending.leave();
    std::mem::take(&mut resending.outcomes)
}

/// Units that are sent again. When this is dropped, their commands that must be sent in any case
/// are left behind.
struct Resending<'a> {
    sender: &'a BatchSender,
    batch: &'a Batch,
    units: SmallVec<[u32; 2]>,
    outcomes: Vec<Outcome>,
}

impl Resending<'_> {
    fn leave(&mut self) {
        for unit in std::mem::take(&mut self.units) {
            let outcomes = &self.outcomes[self.batch.commands_of(unit..unit + 1)];
            if let Some(left) = self.batch.left_behind([unit].into_iter(), outcomes) {
                self.sender.context.left_behind.add(left);
            }
        }
    }
}

impl Drop for Resending<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}
