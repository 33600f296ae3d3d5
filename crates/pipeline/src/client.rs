//! The interface for callers: sends a batch, and sends commands again that did not run.

mod attempt;
mod command_counts;
mod left_behind;
mod resend;
mod retry;
mod retry_queue;
mod route;

pub(crate) use attempt::{Backend, BatchSender};
pub(crate) use route::Route;

use std::sync::Arc;
use std::time::Instant;

use crate::batch::Batch;
use crate::cluster::{Cluster, Discovery, Sentinels};
use crate::config::{Config, ConfigError, Servers};
use crate::link::{ClientContext, Counters, Stats};
use crate::node::Node;
use crate::outcome::Outcome;
use attempt::Attempt;
use left_behind::{resend_or_leave, send_left_behind};
use retry::{Retry, UnfinishedUnit};
use retry_queue::{RetryPermit, RetryPriority, RetryQueue};
use route::{GroupParts, whole_groups};

/// A client of one Redis server or one Redis Cluster. Clones share its connections. The last clone
/// closes them when it is dropped.
#[derive(Debug, Clone)]
pub struct Client {
    sender: Arc<BatchSender>,
}

impl Client {
    /// Starts a client on the current tokio runtime. A connection opens when the first batch needs
    /// it.
    ///
    /// # Errors
    /// A bound in `config` is invalid.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        let context = ClientContext::new(config)?;
        let backend = match context.config.servers.clone() {
            Servers::Single(address) => Backend::Single(Node::new(address, &context)),
            Servers::Cluster(seeds) => {
                Backend::Cluster(Cluster::start(Discovery::Cluster(seeds), &context))
            }
            Servers::Sentinel {
                master,
                sentinels,
                credentials,
            } => {
                let sentinels = Sentinels::new(master, sentinels, credentials);
                Backend::Cluster(Cluster::start(Discovery::Sentinel(sentinels), &context))
            }
        };
        let retry_queue = RetryQueue::new(&context.config);
        let sender = Arc::new(BatchSender {
            backend,
            context,
            command_counts: Counters::default(),
            retry_queue,
        });
        let context = &sender.context;
        context.spawn(
            context.stop.clone(),
            send_left_behind(Arc::downgrade(&sender), context.clone()),
        );
        Ok(Self { sender })
    }

    /// Creates a client of the same servers with separate connections, on the current tokio
    /// runtime.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn for_new_thread(&self) -> Self {
        Self::new(self.sender.context.config.clone())
            .expect("this client was made of the same configuration")
    }

    /// Sends the commands of `batch` and returns one outcome per command, in their order, at
    /// `deadline` at the latest.
    ///
    /// Commands that were not sent, or that the server refused for now, are sent again until the
    /// deadline, to another node if a redirect named one. Commands that may have run are not sent
    /// again, except repeatable commands at the end of a unit: these are sent once more if it is
    /// unknown whether they ran. So the expiry of a counter follows an increment that may have run,
    /// even if the deadline passes or the future is dropped: it is then sent for up to 30 s more.
    ///
    /// # Order
    /// Commands of one key run in the order of the batch, unless one is sent again: then commands
    /// of later units may run before it. In a unit, repeatable commands
    /// ([`UnitBuilder::repeatable`](crate::UnitBuilder)) are sent again after it in their order.
    /// Writes whose order matters belong into one unit and are marked as repeatable, or into a
    /// transaction. Increments give the same sum in any order.
    ///
    /// # Cancellation
    /// Commands that are not yet written when the future is dropped are never written. Written ones
    /// may run.
    pub async fn send(&self, batch: Batch, deadline: Instant) -> Vec<Outcome> {
        if let Some(reason) = batch.refused.clone() {
            tokio::task::coop::consume_budget().await;
            let outcomes = vec![Outcome::NotSent(reason); batch.len()];
            self.sender.command_counts.record_outcomes(&outcomes);
            return outcomes;
        }
        if batch.is_empty() {
            return Vec::new();
        }
        let sender = &*self.sender;
        let (attempt, mut outcomes) = sender.attempt(batch, &[], deadline).await;
        if outcomes.iter().all(Outcome::ran) {
            sender.command_counts.record_all_ran(outcomes.len());
        } else {
            // The future is boxed because it is rare and would enlarge the future of every call.
            outcomes = Box::pin(resend_or_leave(sender, &attempt, outcomes, deadline)).await;
            sender.explain(&mut outcomes);
            sender.command_counts.record_outcomes(&outcomes);
            // A refusal returns without waiting. A caller that retries at once would starve other
            // tasks of its thread, among them the task that reconnects.
            tokio::task::coop::consume_budget().await;
        }
        outcomes
    }

    pub(crate) fn sender(&self) -> &Arc<BatchSender> {
        &self.sender
    }

    /// Returns the counts of what the client and its connections did.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let servers = match &self.sender.backend {
            Backend::Single(node) => node.stats(),
            Backend::Cluster(cluster) => cluster.stats(),
        };
        [
            servers,
            self.sender.command_counts.read(),
            self.sender.retry_queue.stats(),
        ]
        .into_iter()
        .sum()
    }

    /// Closes the connections and waits for their tasks. Calls in progress end with the outcomes
    /// that are known.
    pub async fn close(&self) {
        self.sender.stop();
        self.sender.context.ended().await;
    }
}
