//! Load on the engine itself, without a server around it.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tidegate_pipeline::{Batch, Client, CommandError, Config, Stats};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::sleep;

use crate::figures::{Answer, Tally};
use crate::load::Pace;

/// Longer than anything that is measured; a call that takes as long counts as failed.
const DEADLINE: Duration = Duration::from_secs(10);

/// Callers that each have one call under way at most. A call is one batch, or several that are sent one after the other.
#[derive(Clone)]
pub(crate) struct Load {
    pub(crate) config: Config,
    pub(crate) callers: usize,
    /// Calls a second over all callers; `None` sends as soon as a caller is free.
    pub(crate) rate: Option<f64>,
    pub(crate) warmup: Duration,
    pub(crate) duration: Duration,
}

/// What a run showed. Everything describes the time after the warm-up.
pub(crate) struct Measured {
    pub(crate) tally: Tally,
    pub(crate) elapsed: Duration,
    pub(crate) commands: u64,
    pub(crate) writes: u64,
    /// Calls of an open loop that were due at the end and had found no free caller.
    pub(crate) behind: u64,
}

impl Load {
    /// Sends calls as `make` builds them, on the current thread. Calls in progress at the end are not counted.
    pub(crate) async fn run(
        self,
        make: impl FnMut() -> Vec<Batch> + 'static,
    ) -> anyhow::Result<Measured> {
        let client = Client::new(self.config.clone())?;
        let measured = LocalSet::new()
            .run_until(measure(&client, self, make))
            .await;
        client.close().await;
        measured
    }
}

async fn measure(
    client: &Client,
    load: Load,
    mut make: impl FnMut() -> Vec<Batch> + 'static,
) -> anyhow::Result<Measured> {
    // A cluster's topology is learnt before the schedule begins.
    call(client, make()).await;
    let pace = match load.rate {
        Some(rate) => Pace::open(rate, Instant::now()),
        None => Pace::closed(None),
    };
    let (pace, make) = (Rc::new(pace), Rc::new(RefCell::new(make)));
    let tally = Rc::new(RefCell::new(Tally::new()));
    let mut tasks = JoinSet::new();
    for _ in 0..load.callers {
        tasks.spawn_local(caller(
            client.clone(),
            pace.clone(),
            make.clone(),
            tally.clone(),
        ));
    }
    let keeper = pace.clone();
    let mut schedule = JoinSet::new();
    schedule.spawn_local(async move { keeper.keep().await });

    sleep(load.warmup).await;
    let before = client.stats();
    *tally.borrow_mut() = Tally::new();
    let start = Instant::now();
    sleep(load.duration).await;
    let (elapsed, after) = (start.elapsed(), client.stats());
    let taken = tally.borrow().clone();
    tasks.shutdown().await;
    if let Some(Ok(kept)) = schedule.try_join_next() {
        kept?;
    }
    schedule.shutdown().await;
    Ok(Measured::between(
        taken,
        elapsed,
        before,
        after,
        pace.behind(),
    ))
}

/// Sends one call after the other, each when it is due.
async fn caller(
    client: Client,
    pace: Rc<Pace>,
    make: Rc<RefCell<impl FnMut() -> Vec<Batch>>>,
    tally: Rc<RefCell<Tally>>,
) {
    while let Some(due) = pace.next().await {
        let batches = (make.borrow_mut())();
        let answer = call(&client, batches).await;
        tally.borrow_mut().add(answer, due.elapsed());
        // A refusal returns at once: a caller that went on would keep the thread from whatever is to end it.
        if answer != Answer::Ok {
            return;
        }
    }
}

/// Sends each batch when the one before it has all of its replies. Ends at the first failure.
pub(crate) async fn call(client: &Client, batches: Vec<Batch>) -> Answer {
    for batch in batches {
        let outcomes = client.send(batch, Instant::now() + DEADLINE).await;
        if let Some(error) = outcomes.iter().find_map(|outcome| outcome.reply().err()) {
            return Answer::Failed(word(&error));
        }
    }
    Answer::Ok
}

fn word(error: &CommandError) -> &'static str {
    match error {
        CommandError::NotSent(_) => "not sent",
        CommandError::Rejected(_) => "rejected",
        CommandError::Unknown(_) => "fate unknown",
        _ => "server error",
    }
}

impl Measured {
    fn between(tally: Tally, elapsed: Duration, before: Stats, after: Stats, behind: u64) -> Self {
        let (commands, writes) = (after.replies - before.replies, after.writes - before.writes);
        Self {
            tally,
            elapsed,
            commands,
            writes,
            behind,
        }
    }

    pub(crate) fn commands_per_write(&self) -> f64 {
        self.commands as f64 / self.writes.max(1) as f64
    }
}
