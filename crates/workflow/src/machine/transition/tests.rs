//! Random events on random graphs, and what follows from actions of operators.

mod rules;

use std::sync::Arc;

use super::*;
use crate::graph::{Definition, Graph, JobDefinition, OnFailure, TriggerRule};
use crate::machine::{Failure, Lease, Outcome, RestartScope, RetryWish};
use crate::model::{JobIndex, Partition, WorkflowId};

const NOW: Timestamp = Timestamp::from_micros(1);
const JOBS: u32 = 9;

fn workflow(random: &mut fastrand::Rng) -> Workflow {
    use TriggerRule::{AllDone, AllSuccess, AnyFailed, AnySuccess, NoneFailed};
    let jobs = (0..JOBS).map(|at| JobDefinition {
        after: (0..at)
            .filter(|_| random.u8(..4) == 0)
            .map(|parent| parent.to_string())
            .collect(),
        rule: random
            .choice([AllSuccess, AllDone, AnySuccess, AnyFailed, NoneFailed])
            .unwrap(),
        ..JobDefinition::new(at.to_string(), "handler")
    });
    let jobs = jobs.collect();
    let on_failure = random
        .choice([OnFailure::Continue, OnFailure::FailFast])
        .unwrap();
    let definition = Definition {
        name: "w".to_owned(),
        jobs,
        on_failure,
        ..Definition::default()
    };
    let id = WorkflowId::new(NOW, Partition(0), 1);
    Workflow::new(id, Arc::new(Graph::build(definition).unwrap()), NOW)
}

/// Mostly one that a worker could send.
fn any_event(random: &mut fastrand::Rng, workflow: &Workflow) -> Event {
    let mut job = JobIndex(random.u32(..JOBS));
    let token = 1;
    let kind = random.u8(..24);
    let is_meant = |job: &JobIndex| match workflow.job(*job).state {
        JobState::Ready => (8..=13).contains(&kind),
        JobState::Running { .. } => (14..).contains(&kind),
        _ => false,
    };
    let meant: Vec<JobIndex> = (0..JOBS).map(JobIndex).filter(is_meant).collect();
    if random.u8(..4) > 0 {
        job = random.choice(meant).unwrap_or(job);
    }
    let failed = Outcome::Failed {
        failure: Failure::default(),
        retry: RetryWish::Never,
    };
    match kind {
        0 => Event::Start,
        1 => Event::Cancel,
        2 => Event::RetryFailed { as_of: None },
        3 => Event::RetryJob { job, as_of: None },
        4 => Event::Restart {
            jobs: vec![job],
            scope: RestartScope::Chosen,
            as_of: None,
        },
        5 => Event::Skip(job),
        6 => Event::MarkSucceeded { job, output: None },
        7 => Event::CancelJob(job),
        8..=13 => Event::Claim {
            job,
            lease: Lease {
                token,
                worker: "worker".into(),
                expires: NOW,
            },
        },
        14..=19 => Event::Report {
            job,
            token,
            outcome: Outcome::Succeeded { output: None },
        },
        20 => Event::Tick { served_since: NOW },
        _ => Event::Report {
            job,
            token,
            outcome: failed,
        },
    }
}

#[test]
fn after_each_event_what_follows_from_the_states_is_known() {
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut workflow = workflow(&mut random);
        for _ in 0..100 {
            let event = any_event(&mut random, &workflow);
            let told = transition(&mut workflow, &event, RetentionDefaults::default(), NOW);
            assert!(workflow.is_counted(), "seed {seed}: {event:?} {told:?}");
        }
    }
}

/// When what happened to a job, by the number of the event.
#[derive(Debug, Clone, Copy, Default)]
struct History {
    began: usize,
    opened: usize,
    failed: usize,
    by_hand: bool,
}

/// What happened to each job, told from its states alone.
fn remember(
    histories: &mut [History],
    before: &Workflow,
    after: &Workflow,
    (step, event): (usize, &Event),
) {
    for (at, history) in histories.iter_mut().enumerate() {
        let old = before.jobs[at].state;
        let new = after.jobs[at].state;
        let runs = |state| matches!(state, JobState::Running { .. });
        if old.is_over() && !new.is_over() {
            *history = History {
                opened: step,
                ..*history
            };
        }
        if !new.is_over() {
            history.by_hand = false;
        }
        if runs(new) && (!runs(old) || before.jobs[at].fence != after.jobs[at].fence) {
            history.began = step;
        }
        if old != new && new == JobState::Failed {
            history.failed = step;
        }
        let named = match event {
            Event::Skip(job) | Event::MarkSucceeded { job, .. } => Some(job.index()),
            _ => None,
        };
        history.by_hand |= named == Some(at);
    }
}

/// Whether a rule passes a job over, said of the jobs before it in another way than the product
/// does.
fn is_passed_over(workflow: &Workflow, job: usize) -> bool {
    let about = &workflow.graph.jobs[job];
    let ends: Vec<JobState> = about
        .parents
        .iter()
        .map(|parent| workflow.jobs[parent.index()].state)
        .collect();
    let all_well = ends
        .iter()
        .all(|end| matches!(end, JobState::Succeeded | JobState::Skipped));
    all_well
        && match about.rule {
            TriggerRule::AllSuccess => ends.contains(&JobState::Skipped),
            TriggerRule::AnySuccess => !ends.contains(&JobState::Succeeded),
            TriggerRule::AnyFailed => !ends.is_empty(),
            TriggerRule::AllDone | TriggerRule::NoneFailed => false,
        }
}

/// A job that reacts to a failure has run, or is to run, after each failure of a job before it that
/// had been opened again.
fn check_reactions(workflow: &Workflow, histories: &[History], seed: u64) {
    let reacts = |rule| matches!(rule, TriggerRule::AnyFailed | TriggerRule::AllDone);
    for (at, job) in workflow
        .jobs
        .iter()
        .enumerate()
        .filter(|(at, _)| reacts(workflow.graph.jobs[*at].rule))
    {
        let ran =
            matches!(job.state, JobState::Succeeded | JobState::Failed) && !histories[at].by_hand;
        for parent in workflow.graph.jobs[at]
            .parents
            .iter()
            .map(|parent| histories[parent.index()])
        {
            let missed = parent.failed > parent.opened && parent.opened > histories[at].began;
            assert!(
                !(ran && missed),
                "seed {seed}: job {at} did not react: {job:?} {histories:?}"
            );
        }
    }
}

#[test]
fn rules_hold_after_each_action_of_an_operator() {
    let mut came_back = 0;
    for seed in 0..400 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut workflow = workflow(&mut random);
        transition(
            &mut workflow,
            &Event::Start,
            RetentionDefaults::default(),
            NOW,
        )
        .unwrap();
        let fails_fast = workflow.graph.on_failure == OnFailure::FailFast;
        let mut histories = [History::default(); JOBS as usize];
        for step in 1..200 {
            let event = any_event(&mut random, &workflow);
            let before = workflow.clone();
            let told = transition(&mut workflow, &event, RetentionDefaults::default(), NOW);
            if told != Ok(Effect::Done) {
                continue;
            }
            remember(&mut histories, &before, &workflow, (step, &event));
            for (at, job) in workflow.jobs.iter().enumerate() {
                let by_rule = job.state == JobState::Skipped && !histories[at].by_hand;
                assert!(
                    !by_rule || is_passed_over(&workflow, at),
                    "seed {seed}: job {at} after {event:?}"
                );
                came_back += u32::from(
                    before.jobs[at].state == JobState::Skipped && job.state == JobState::Ready,
                );
            }
            if !fails_fast {
                check_reactions(&workflow, &histories, seed);
            }
        }
    }
    assert!(came_back > 0, "no skipped job ever came back");
}
