//! What can happen.

use std::time::Duration;

use fastrand::Rng;
use tidegate_workflow::{
    Action, Claim, Definition, Failure, Graph, JobDefinition, Json, LeaseRef, OnFailure, Outcome,
    Paused, RestartScope, Retention, Retry, RetryWish, StartMode, TriggerRule, WorkflowId,
};

pub(crate) const QUEUES: [&str; 2] = ["swift", "slow"];
/// The highest priority of a job.
pub(crate) const MOST_URGENT: u8 = 2;

/// One thing that somebody does.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Create(Box<Graph>, StartMode),
    Claim(Asked),
    /// Looks at the store first, and takes all there is.
    ClaimAll(Asked),
    /// Sleeps until it is woken, as a worker with a long poll.
    Wait(Asked),
    Report(LeaseRef, Outcome, Option<Asked>),
    /// The answer is lost on its way, and the worker reports again.
    ReportTwice(LeaseRef, Outcome, Asked),
    /// Many reports in one call.
    ReportMany(Vec<(LeaseRef, Outcome)>, Option<Asked>),
    /// From now on the lease is so long.
    Extend(LeaseRef, Duration),
    Sweep,
    /// A server says that it lives, and takes its share of the partitions.
    Beat,
    Act(WorkflowId, Action),
    PauseQueue(String, Paused),
    /// The caller goes away after so many turns of the runtime.
    Abandoned(Box<Step>, u8),
}

/// The jobs that a worker asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) queues: Vec<String>,
    pub(crate) limit: usize,
}

impl Step {
    /// What is done, whether or not somebody waits for its answer.
    pub(crate) fn deed(&self) -> &Self {
        if let Self::Abandoned(step, _) = self {
            step.deed()
        } else {
            self
        }
    }

    /// The leases that it ends.
    pub(crate) fn reported(&self) -> Vec<LeaseRef> {
        match self.deed() {
            Self::Report(of, ..) | Self::ReportTwice(of, ..) => vec![*of],
            Self::ReportMany(many, _) => many.iter().map(|(of, _)| *of).collect(),
            _ => Vec::new(),
        }
    }

    /// Whether it ends the lease.
    pub(crate) fn reports(&self, lease: LeaseRef) -> bool {
        self.reported().contains(&lease)
    }

    /// The workflow that an operator does something to.
    pub(crate) fn acts_on(&self) -> Option<WorkflowId> {
        if let Self::Act(id, _) = self.deed() {
            Some(*id)
        } else {
            None
        }
    }

    /// Whether jobs that have ended may be open or end otherwise after it.
    pub(crate) fn takes_back(&self) -> bool {
        use Action::{MarkSucceeded, Restart, RetryFailed, RetryJob, SkipJob};
        matches!(
            self.deed(),
            Self::Act(
                _,
                RetryFailed | RetryJob(_) | Restart { .. } | SkipJob(_) | MarkSucceeded { .. }
            )
        )
    }

    /// Whether jobs may be leased by it.
    pub(crate) fn may_claim(&self) -> bool {
        match self.deed() {
            Self::Claim(_) | Self::ClaimAll(_) | Self::Wait(_) | Self::ReportTwice(..) => true,
            Self::Report(_, _, then) | Self::ReportMany(_, then) => then.is_some(),
            _ => false,
        }
    }
}

impl Asked {
    pub(crate) fn claim(&self) -> Claim {
        let lease = Duration::from_secs(30);
        Claim {
            queues: self.queues.clone(),
            handlers: None,
            worker: "worker".to_owned(),
            limit: self.limit,
            lease,
        }
    }

    /// What some worker asks for: of one queue, of some, or of all and others that nobody has heard of.
    pub(crate) fn some(rng: &mut Rng, queues: &[String]) -> Self {
        let mut queues = queues.to_vec();
        rng.shuffle(&mut queues);
        match rng.u8(..4) {
            0 => queues.truncate(1),
            1 => queues.push("unheard of".to_owned()),
            _ => {}
        }
        Self {
            queues,
            limit: pick(rng, &[1, 1, 2, 3, 8]),
        }
    }
}

fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.usize(..from.len())]
}

/// A graph of up to seven jobs, each after up to three others; or of many, all at once ready.
pub(crate) fn graph(rng: &mut Rng, key: Option<String>, queues: &[String]) -> Graph {
    let is_wide = rng.u8(..8) == 0;
    let size = if is_wide {
        rng.usize(8..=24)
    } else {
        rng.usize(1..=7)
    };
    let seconds = Duration::from_secs;
    let mut jobs: Vec<JobDefinition> = (0..size)
        .map(|at| {
            let after = (0..if at == 0 || is_wide {
                0
            } else {
                rng.usize(..=3)
            })
                .map(|_| format!("j{}", rng.usize(..at)));
            let after = after.collect();
            let backoff = pick(rng, &[Duration::ZERO, seconds(3), seconds(9)]);
            JobDefinition {
                queue: queues[rng.usize(..queues.len())].clone(),
                wait: pick(rng, &[Duration::ZERO, Duration::ZERO, seconds(5)]),
                priority: rng.u8(..=MOST_URGENT),
                retry: Retry {
                    limit: rng.u16(..3),
                    backoff,
                    backoff_max: seconds(10),
                },
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
        on_failure: pick(
            rng,
            &[
                OnFailure::Continue,
                OnFailure::Continue,
                OnFailure::FailFast,
            ],
        ),
        retention: pick(
            rng,
            &[
                None,
                Some(Retention::Forever),
                Some(Retention::For(seconds(100))),
            ],
        ),
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
        0..=5 => Outcome::Succeeded {
            output: output(rng),
        },
        6..=8 => {
            let retry = pick(
                rng,
                &[
                    RetryWish::ByPolicy,
                    RetryWish::ByPolicy,
                    RetryWish::Never,
                    RetryWish::After(pause),
                ],
            );
            Outcome::Failed {
                failure: Failure::default(),
                retry,
            }
        }
        _ if pause.is_zero() && rng.bool() => Outcome::NotBegun,
        _ => Outcome::Returned { pause },
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
    match rng.u8(..15) {
        0 | 1 => Action::Start,
        2 => Action::Cancel,
        3 => Action::Pause,
        4 | 5 => Action::Resume,
        6 | 7 => Action::RetryFailed,
        8 | 9 => {
            let jobs = (0..rng.usize(1..3))
                .map(|_| names[rng.usize(..names.len())].clone())
                .collect();
            let scope = pick(rng, &[RestartScope::Chosen, RestartScope::AndDescendants]);
            Action::Restart { jobs, scope }
        }
        10 => Action::SkipJob(job),
        11 => Action::MarkSucceeded {
            job,
            output: output(rng),
        },
        12 => Action::CancelJob(job),
        13 => Action::RetryJob(job),
        _ => match rng.u8(..3) {
            0 => Action::Keep(pick(
                rng,
                &[Retention::Forever, Retention::For(Duration::from_secs(50))],
            )),
            _ => Action::Delete,
        },
    }
}
