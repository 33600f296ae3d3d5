//! Load on the engine itself, without a server.

use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::Result;
use tidegate_pipeline::{Arg, Batch, Client, Config};
use tokio::task::{JoinSet, LocalSet};

use crate::figures::{Answer, Calls};
use crate::load::Session;
use crate::scenario::RunOptions;

/// Timeout of a call: longer than any measured time. A call that takes as long counts as failed.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Callers that each have at most one call in progress.
pub(crate) struct EngineLoad {
    pub(crate) config: Config,
    pub(crate) design: Design,
    pub(crate) callers: usize,
    /// Calls a second over all callers; `None` sends as soon as a caller is free.
    pub(crate) rate: Option<f64>,
    pub(crate) warmup: Duration,
    pub(crate) duration: Duration,
}

/// How the keys of a call are sent.
#[derive(Clone, Copy)]
pub(crate) enum Design {
    /// A batch for each key, in sequence.
    SerialByKey,
    /// One batch, which the engine splits into a group for each node, all in parallel.
    ParallelByNode,
}

/// The result of a run. Everything describes the time after the warm-up.
pub(crate) struct EngineCalls {
    pub(crate) calls: Calls,
    pub(crate) commands_per_write: f64,
}

impl EngineLoad {
    /// Creates a closed loop for a turn.
    pub(crate) fn new(
        config: Config,
        design: Design,
        callers: usize,
        options: &RunOptions,
    ) -> Self {
        Self {
            config,
            design,
            callers,
            rate: None,
            warmup: options.warmup(),
            duration: options.turn,
        }
    }

    /// Adds to the counters that `keys` draws for each call, on the current thread. Calls in
    /// progress at the end are not counted.
    pub(crate) async fn run(self, keys: impl Fn() -> Vec<String> + 'static) -> Result<EngineCalls> {
        let client = Client::new(self.config.clone())?;
        let measured = LocalSet::new().run_until(self.measure(&client, keys)).await;
        client.close().await;
        measured
    }

    async fn measure(
        self,
        client: &Client,
        keys: impl Fn() -> Vec<String> + 'static,
    ) -> Result<EngineCalls> {
        // The client learns the topology of a cluster before the schedule begins.
        self.design.call(client, &keys()).await;
        let session = Session::new(self.rate, None);
        let keys = Rc::new(keys);
        let mut tasks = JoinSet::new();
        for _ in 0..self.callers {
            let (client, session) = (client.clone(), session.clone());
            tasks.spawn_local(self.design.call_on_schedule(client, session, keys.clone()));
        }
        let stats = || Ok(client.stats());
        let span = session
            .measure(tasks, self.warmup, self.duration, stats)
            .await?;
        let commands = span.after.replies - span.before.replies;
        let writes = span.after.writes - span.before.writes;
        Ok(EngineCalls {
            calls: span.calls,
            commands_per_write: commands as f64 / writes.max(1) as f64,
        })
    }
}

impl Design {
    /// Calls until the schedule ends or a call fails.
    async fn call_on_schedule(
        self,
        client: Client,
        session: Rc<Session>,
        keys: Rc<impl Fn() -> Vec<String>>,
    ) {
        while let Some(due) = session.schedule.next().await {
            let answer = self.call(&client, &keys()).await;
            session.count(answer, due.elapsed());
            // A refusal returns at once: a caller that continued would starve the task that ends
            // it.
            if answer != Answer::Ok {
                return;
            }
        }
    }

    /// Adds to counters, with their expiry, as a rate limiter counts.
    async fn call(self, client: &Client, keys: &[String]) -> Answer {
        let batch_keys = match self {
            Self::SerialByKey => 1,
            Self::ParallelByNode => keys.len(),
        };
        for keys in keys.chunks(batch_keys) {
            let answer = send(client, counters(keys)).await;
            if answer != Answer::Ok {
                return answer;
            }
        }
        Answer::Ok
    }
}

fn counters(keys: &[String]) -> Batch {
    let mut batch = Batch::with_capacity(keys.len() * 2, keys.len() * 128);
    for key in keys {
        let key = Arg::Key(key.as_bytes());
        batch
            .unit()
            .command("INCRBY", &[key, Arg::Integer(1)])
            .repeatable("EXPIRE", &[key, Arg::Integer(3_600)]);
    }
    batch
}

/// Sends a batch and waits for all of its replies.
pub(super) async fn send(client: &Client, batch: Batch) -> Answer {
    let outcomes = client.send(batch, Instant::now() + CALL_TIMEOUT).await;
    if outcomes.iter().all(|outcome| outcome.reply().is_ok()) {
        Answer::Ok
    } else {
        Answer::Failed("a command failed")
    }
}
