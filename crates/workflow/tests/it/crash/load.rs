//! A server and its workers, and what they were told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidegate_workflow::{
    Claim, Claimed, Definition, Engine, EngineError, Failure, LeaseRef, Outcome, Report, Retry,
    RetryWish, StartMode, Store, Timestamp, WorkflowId,
};
use tokio::task::JoinSet;
use tokio::time::interval;

use crate::support::{claim, definition, new, server, success};

const WORKERS: usize = 4;
const CREATORS: usize = 2;
/// Short, so that what a dead worker had comes back within the test.
const LEASE: Duration = Duration::from_millis(400);
/// Workflows of one creator that are not over at the same time, so that it does not run away from the workers.
const AHEAD: usize = 60;

/// A clock for everybody who uses a store, whichever process it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    started: Instant,
    from: Timestamp,
}

/// What somebody was told is so, and must be so whatever dies.
#[derive(Debug, Clone, Default)]
pub(crate) struct Told {
    /// Workflows that were created, by their keys.
    pub(crate) created: BTreeMap<String, WorkflowId>,
    /// Jobs whose success was taken, by workflow and place.
    pub(crate) succeeded: BTreeSet<(WorkflowId, u16)>,
    pub(crate) lines: usize,
}

/// Hears what somebody was told.
pub(crate) type Say = Arc<dyn Fn(String) + Send + Sync>;

impl Clock {
    pub(crate) fn starting(from: Timestamp) -> Self {
        Self {
            started: Instant::now(),
            from,
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.from + self.started.elapsed()
    }
}

impl Told {
    /// Takes note of a line that [`serve`] said; of any other, not.
    pub(crate) fn hear(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["created", key, id, "."] => {
                _ = self.created.insert(key.to_owned(), id.parse().unwrap())
            }
            ["succeeded", id, job, "."] => {
                _ = self
                    .succeeded
                    .insert((id.parse().unwrap(), job.parse().unwrap()))
            }
            _ => return,
        }
        self.lines += 1;
    }

    /// Hears in this process.
    pub(crate) fn listener() -> (Arc<Mutex<Self>>, Say) {
        let told = Arc::new(Mutex::new(Self::default()));
        let heard = Arc::clone(&told);
        (
            told,
            Arc::new(move |line| heard.lock().unwrap().hear(&line)),
        )
    }
}

/// Two diamonds in a row, of which one job is delayed, and all are tried again.
pub(crate) fn workflow(key: String) -> Definition {
    let mut definition = definition("a b<a c<a d<b,c e<d f<d g<e,f");
    for job in &mut definition.jobs {
        job.retry = Retry {
            limit: 20,
            backoff: Duration::from_millis(5),
            backoff_max: Duration::from_millis(20),
        };
    }
    definition.jobs[2].wait = Duration::from_millis(10);
    definition.idempotency_key = Some(key);
    definition
}

/// Starts a server that creates and runs workflows until its tasks are dropped.
pub(crate) async fn serve(store: &Store, clock: Clock, say: &Say) -> (Engine, JoinSet<()>) {
    let engine = loop {
        if let Ok(engine) =
            Engine::start(store.clone(), tidegate_workflow::EngineOptions::default()).await
        {
            break engine;
        }
    };
    let mut tasks = JoinSet::new();
    let run = fastrand::u64(..);
    for creator in 0..CREATORS {
        tasks.spawn(create(
            engine.clone(),
            clock,
            Arc::clone(say),
            format!("{run}-{creator}"),
        ));
    }
    for _ in 0..WORKERS {
        tasks.spawn(work(engine.clone(), clock, Arc::clone(say)));
    }
    tasks.spawn(sweep(engine.clone(), clock));
    (engine, tasks)
}

async fn create(engine: Engine, clock: Clock, say: Say, name: String) {
    let mut ticks = interval(Duration::from_millis(2));
    let mut open: Vec<WorkflowId> = Vec::new();
    for number in 0.. {
        let key = format!("{name}-{number}");
        // The same again until it is known to be there.
        let created = loop {
            ticks.tick().await;
            match engine
                .create(
                    vec![new(workflow(key.clone()), StartMode::Now)],
                    clock.now(),
                )
                .await
                .remove(0)
            {
                Ok(created) => break created.workflow,
                Err(error) => assert_is_outage(&error),
            }
        };
        say(format!("created {key} {created} ."));
        open.push(created);
        while open.len() >= AHEAD {
            ticks.tick().await;
            let mut still = Vec::new();
            for id in open {
                let over = engine
                    .show(id)
                    .await
                    .is_ok_and(|snapshot| snapshot.meta().status.is_over());
                still.extend((!over).then_some(id));
            }
            open = still;
        }
    }
}

fn assert_is_outage(error: &EngineError) {
    let outage = matches!(
        error,
        EngineError::Store(_) | EngineError::Closed | EngineError::Contended { .. }
    );
    assert!(outage, "{error:?}");
}

async fn work(engine: Engine, clock: Clock, say: Say) {
    let claim = Claim {
        lease: LEASE,
        ..claim(3)
    };
    let mut ticks = interval(Duration::from_millis(5));
    let mut jobs: Vec<Claimed> = Vec::new();
    loop {
        if jobs.is_empty() {
            ticks.tick().await;
            jobs = engine.claim(&claim, clock.now()).await.unwrap_or_default();
            continue;
        }
        // Some workers die with their jobs.
        jobs.retain(|_| fastrand::u8(..) > 2);
        let reports: Vec<Report> = jobs
            .iter()
            .map(|job| Report {
                lease: job.lease,
                outcome: outcome(),
            })
            .collect();
        let (reported, more) = engine
            .report(reports.clone(), Some(&claim), clock.now())
            .await;
        for (report, reported) in reports.into_iter().zip(reported) {
            let well = matches!(report.outcome, Outcome::Succeeded { .. });
            let taken = match reported {
                Err(EngineError::Store(_) | EngineError::Closed) => {
                    again(&engine, clock, &report).await
                }
                Ok(_) => true,
                Err(_) => false,
            };
            let LeaseRef { workflow, job, .. } = report.lease;
            if well && taken {
                say(format!("succeeded {workflow} {job} ."));
            }
        }
        jobs = more.unwrap_or_default();
    }
}

/// Says the same again, as a worker does that was not answered.
async fn again(engine: &Engine, clock: Clock, report: &Report) -> bool {
    let mut ticks = interval(Duration::from_millis(20));
    for _ in 0..100 {
        ticks.tick().await;
        let (mut reported, _) = engine.report(vec![report.clone()], None, clock.now()).await;
        match reported.remove(0) {
            Err(EngineError::Store(_) | EngineError::Closed) => {}
            Ok(_) => return true,
            Err(_) => return false,
        }
    }
    false
}

fn outcome() -> Outcome {
    match fastrand::u8(..20) {
        0 => Outcome::Failed {
            failure: Failure::default(),
            retry: RetryWish::ByPolicy,
        },
        1 => Outcome::Returned {
            pause: Duration::from_millis(3),
        },
        _ => success("{\"value\":1}"),
    }
}

async fn sweep(engine: Engine, clock: Clock) {
    let mut ticks = interval(Duration::from_millis(20));
    loop {
        ticks.tick().await;
        // The store may be away: then the next time.
        let _later = engine.sweep(clock.now()).await;
        let _later = engine.poll_store().await;
    }
}

/// Runs all that is left with workers that never fail. Returns the moment at which it was done.
pub(crate) async fn finish(store: &Store, from: Timestamp) -> (Engine, Timestamp) {
    let engine = server(store).await;
    let mut now = from;
    for _ in 0..200 {
        now = now + Duration::from_secs(1);
        while engine.sweep(now).await.unwrap() {}
        engine.poll_store().await.unwrap();
        let claimed = engine.claim(&claim(10_000), now).await.unwrap();
        let reports = claimed.iter().map(|job| Report {
            lease: job.lease,
            outcome: success("1"),
        });
        let (reported, _) = engine.report(reports.collect(), None, now).await;
        assert!(reported.iter().all(Result::is_ok), "{reported:?}");
    }
    (engine, now)
}
