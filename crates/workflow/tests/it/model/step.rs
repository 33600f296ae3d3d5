//! What can happen.

use std::time::Duration;

use fastrand::Rng;
use tidegate_workflow::{
    Action, Begin, Claim, Definition, Failure, Graph, JobDefinition, Json, LeaseRef, OnFailure, Outcome, Paused,
    RestartScope, Retention, Retry, RetryWish, TriggerRule, WorkflowId,
};

pub(crate) const QUEUES: [&str; 2] = ["swift", "slow"];

/// One thing that somebody does.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Create(Box<Graph>, Begin),
    Claim(usize),
    /// The caller goes away before the answer.
    AbandonedClaim,
    /// Looks at the store first, and takes all there is.
    ClaimAll,
    Report(LeaseRef, Outcome, Option<usize>),
    Extend(LeaseRef),
    Sweep,
    Act(WorkflowId, Action),
    PauseQueue(&'static str, Paused),
}

pub(crate) fn claim(limit: usize) -> Claim {
    let queues = QUEUES.map(str::to_owned).to_vec();
    Claim { queues, worker: "worker".to_owned(), limit, lease: Duration::from_secs(30) }
}

fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.usize(..from.len())]
}

/// A graph of up to seven jobs, each after up to three others.
pub(crate) fn graph(rng: &mut Rng, key: Option<String>) -> Graph {
    let size = rng.usize(1..=7);
    let seconds = Duration::from_secs;
    let mut jobs: Vec<JobDefinition> = (0..size)
        .map(|at| {
            let after = (0..if at == 0 { 0 } else { rng.usize(..=3) }).map(|_| format!("j{}", rng.usize(..at)));
            let after = after.collect();
            let backoff = pick(rng, &[Duration::ZERO, seconds(3), seconds(9)]);
            JobDefinition {
                queue: pick(rng, &QUEUES).to_owned(),
                wait: pick(rng, &[Duration::ZERO, Duration::ZERO, seconds(5)]),
                priority: rng.u8(..3),
                retry: Retry { limit: rng.u16(..3), backoff, backoff_max: seconds(10) },
                timeout: pick(rng, &[None, None, Some(seconds(20)), Some(seconds(40))]),
                rule: pick(rng, &RULES),
                after,
                ..JobDefinition::new(format!("j{at}"), "handler")
            }
        })
        .collect();
    rng.shuffle(&mut jobs);
    Graph::build(Definition {
        name: pick(rng, &["nightly", "hourly"]).to_owned(),
        jobs,
        tags: (0..rng.u8(..3)).map(|tag| format!("tag{tag}")).collect(),
        on_failure: pick(rng, &[OnFailure::Continue, OnFailure::Continue, OnFailure::FailFast]),
        retention: pick(rng, &[None, Some(Retention::Forever), Some(Retention::For(seconds(100)))]),
        idempotency_key: key,
        ..Definition::default()
    })
    .unwrap()
}

const RULES: [TriggerRule; 6] = [
    TriggerRule::AllSuccess,
    TriggerRule::AllSuccess,
    TriggerRule::AllDone,
    TriggerRule::AnySuccess,
    TriggerRule::AnyFailed,
    TriggerRule::NoneFailed,
];

pub(crate) fn outcome(rng: &mut Rng) -> Outcome {
    let pause = pick(rng, &[Duration::ZERO, Duration::from_secs(4)]);
    match rng.u8(..10) {
        0..=5 => Outcome::Succeeded { output: output(rng) },
        6..=8 => {
            let retry =
                pick(rng, &[RetryWish::ByPolicy, RetryWish::ByPolicy, RetryWish::Never, RetryWish::After(pause)]);
            Outcome::Failed { failure: Failure::default(), retry }
        }
        _ => Outcome::GivenBack { pause },
    }
}

/// Mostly something that no other job returns.
pub(crate) fn output(rng: &mut Rng) -> Option<Json> {
    match rng.u8(..4) {
        0 => None,
        1 => Some(Json::parse("null").unwrap()),
        _ => Some(Json::parse(rng.u64(..).to_string()).unwrap()),
    }
}

/// What an operator may do to a workflow with these jobs.
pub(crate) fn action(rng: &mut Rng, names: &[String]) -> Action {
    let job = names[rng.usize(..names.len())].clone();
    match rng.u8(..14) {
        0 | 1 => Action::Start,
        2 => Action::Cancel,
        3 => Action::Pause,
        4 | 5 => Action::Resume,
        6 | 7 => Action::RetryFailed,
        8 | 9 => {
            let jobs = (0..rng.usize(1..3)).map(|_| names[rng.usize(..names.len())].clone()).collect();
            let scope = pick(rng, &[RestartScope::Chosen, RestartScope::AndDescendants]);
            Action::Restart { jobs, scope }
        }
        10 => Action::SkipJob(job),
        11 => Action::MarkSucceeded { job, output: output(rng) },
        12 => Action::CancelJob(job),
        _ => match rng.u8(..3) {
            0 => Action::Keep(pick(rng, &[Retention::Forever, Retention::For(Duration::from_secs(50))])),
            _ => Action::Delete,
        },
    }
}
