//! The caller's door: plans a batch, sends it, and sends again what did not run.

use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::{SmallVec, smallvec};
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::batch::Batch;
use crate::call::{Call, Group, Load, Plan};
use crate::config::{Config, ConfigError};
use crate::node::{Node, Tasks};
use crate::outcome::{NotSent, Outcome};
use crate::stats::Stats;

/// A larger batch is cut here, at unit boundaries, so that other callers get between and the server's replies stay small.
const CHUNK: Load = Load { commands: 512, bytes: 256 * 1024 };

/// First wait before sending again what the server refused to run; doubles up to the maximum, with full jitter.
const RETRY_MIN: Duration = Duration::from_millis(10);
const RETRY_MAX: Duration = Duration::from_millis(500);

/// A handle on one Redis. Clones share its connections; the last one dropped closes them.
#[derive(Debug, Clone)]
pub struct Client {
    node: Arc<Node>,
    owner: Arc<Owner>,
}

/// Stops the tasks when the last handle goes.
#[derive(Debug)]
struct Owner {
    node: Arc<Node>,
    tasks: Tasks,
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
        config.validate()?;
        let tasks = Tasks { runtime: Handle::current(), tracker: TaskTracker::new(), stop: CancellationToken::new() };
        let node = Node::new(config, tasks.clone());
        Ok(Self { node: Arc::clone(&node), owner: Arc::new(Owner { node, tasks }) })
    }

    /// Sends the commands of `batch` and returns one outcome per command, in their order, at `deadline` at the latest.
    ///
    /// What was not sent, or what the server refused to run for now, is sent again while the deadline allows. What may
    /// have run is not.
    ///
    /// # Cancellation
    /// When the future is dropped, commands not yet written are never written; written ones may run.
    pub async fn send(&self, batch: Batch, deadline: Instant) -> Vec<Outcome> {
        if let Some(command) = batch.refused {
            return vec![Outcome::NotSent(NotSent::Refused { command }); batch.len()];
        }
        if batch.is_empty() {
            return Vec::new();
        }
        let call = self.start(batch);
        let mut outcomes = finish(&call, deadline).await;
        if outcomes.iter().any(Outcome::may_be_sent_again) {
            self.send_again(&call.batch, &mut outcomes, deadline).await;
        }
        outcomes
    }

    /// What the connections did so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.node.counters.snapshot(self.node.waiting())
    }

    /// Closes the connections and waits for their tasks. Calls in progress end, with what is known of their commands.
    pub async fn close(&self) {
        self.owner.stop();
        self.owner.tasks.tracker.wait().await;
    }

    fn start(&self, batch: Batch) -> Arc<Call> {
        let plans = plan(&batch, &self.node);
        let call = Call::new(batch, plans);
        let mut total = Load::default();
        call.plans.iter().for_each(|plan| total.add(plan.load));
        let groups = (0..call.plans.len()).map(|index| Group { call: Arc::clone(&call), index });
        self.node.submit(groups, total);
        call
    }

    /// Sends the units again that did not run, with growing waits, until they did or the deadline is near.
    async fn send_again(&self, batch: &Batch, outcomes: &mut [Outcome], deadline: Instant) {
        let mut bound = RETRY_MIN;
        loop {
            let units = batch.units_where(|commands| outcomes[commands].iter().all(Outcome::may_be_sent_again));
            let wait = bound.mul_f64(fastrand::f64());
            if units.is_empty() || Instant::now() + wait >= deadline {
                return;
            }
            sleep(wait).await;
            let call = self.start(batch.subset(&units));
            let mut again = finish(&call, deadline).await.into_iter();
            for unit in units {
                for outcome in &mut outcomes[batch.commands_of(unit..unit + 1)] {
                    *outcome = again.next().expect("a call has one outcome per command");
                }
            }
            bound = (bound * 2).min(RETRY_MAX);
        }
    }
}

impl Owner {
    fn stop(&self) {
        self.node.close();
        self.tasks.tracker.close();
        self.tasks.stop.cancel();
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Cuts a batch into groups. One server owns every key, so one group is enough for all but large batches.
fn plan(batch: &Batch, node: &Arc<Node>) -> SmallVec<[Plan; 1]> {
    let mut plans = SmallVec::new();
    let mut first = 0;
    let mut load = Load::default();
    for unit in 0..batch.units.len() as u32 {
        let commands = batch.commands_of(unit..unit + 1);
        let more = Load { commands: commands.len(), bytes: batch.bytes_of(commands).len() };
        if load.commands > 0
            && (load.commands + more.commands > CHUNK.commands || load.bytes + more.bytes > CHUNK.bytes)
        {
            plans.push(Plan { node: Arc::clone(node), units: smallvec![first..unit], load });
            first = unit;
            load = Load::default();
        }
        load.add(more);
    }
    plans.push(Plan { node: Arc::clone(node), units: smallvec![first..batch.units.len() as u32], load });
    plans
}

/// Waits for a call until the deadline and collects its outcomes.
///
/// # Cancellation
/// Dropping the future abandons the call.
async fn finish(call: &Call, deadline: Instant) -> Vec<Outcome> {
    let waiting = Waiting(call);
    // On time or too late: leaving tells what is known of each command.
    let _ = timeout_at(deadline.into(), call.done()).await;
    std::mem::forget(waiting);
    call.leave()
}

/// Abandons the call when the caller goes before it is done.
struct Waiting<'a>(&'a Call);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}
