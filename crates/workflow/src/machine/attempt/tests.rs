//! What is judged when leases, timeouts and processes end.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::graph::{Definition, Graph, JobDefinition, Retry};
use crate::machine::transition::transition;
use crate::machine::{Death, Event};
use crate::model::{Partition, RetentionDefaults, WorkflowId};

const JOB: JobIndex = JobIndex(0);
const ALWAYS: Timestamp = Timestamp::from_micros(0);

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_micros(1_000_000_000 + seconds * 1_000_000)
}

fn started(jobs: Vec<JobDefinition>, on_failure: OnFailure) -> Workflow {
    let definition = Definition {
        name: "w".to_owned(),
        jobs,
        on_failure,
        ..Definition::default()
    };
    let id = WorkflowId::new(at(0), Partition(0), 1);
    let mut workflow = Workflow::new(id, Arc::new(Graph::build(definition).unwrap()), at(0));
    apply(&mut workflow, &Event::Start, at(0));
    workflow
}

fn apply(workflow: &mut Workflow, event: &Event, now: Timestamp) -> Effect {
    transition(workflow, event, RetentionDefaults::default(), now).unwrap()
}

fn take(workflow: &mut Workflow, job: JobIndex, (from, until): (u64, u64)) {
    let lease = Lease {
        token: 7,
        worker: "w".into(),
        expires: at(until),
    };
    apply(workflow, &Event::Claim { job, lease }, at(from));
}

fn tick(workflow: &mut Workflow, served_since: Timestamp, now: u64) {
    apply(workflow, &Event::Tick { served_since }, at(now));
}

fn report(workflow: &mut Workflow, outcome: Outcome, now: u64) -> Effect {
    apply(
        workflow,
        &Event::Report {
            job: JOB,
            token: 7,
            outcome,
        },
        at(now),
    )
}

fn one(change: impl FnOnce(&mut JobDefinition)) -> Workflow {
    let mut job = JobDefinition::new("a", "h");
    change(&mut job);
    started(vec![job], OnFailure::Continue)
}

fn crash(alone: bool) -> Outcome {
    Outcome::Crashed(Crash {
        death: Death::Signal(11),
        alone,
    })
}

/// State, attempts that count, leases lost in a row, all losses, crashes in a row.
fn summary(workflow: &Workflow) -> (&'static str, u16, u16, u16, u16) {
    let job = workflow.job(JOB);
    (
        job.state.word(),
        job.attempt,
        job.lost,
        job.lost_total,
        job.crashed,
    )
}

#[test]
fn what_ended_first_is_judged_whenever_it_is_noticed() {
    let check = |lease: u64, timeout: u64, lost: bool| {
        let first = lease.min(timeout);
        for noticed in [
            first,
            first + 1,
            lease.max(timeout),
            lease.max(timeout) + 60,
        ] {
            let mut workflow = one(|job| job.timeout = Some(Duration::from_secs(timeout)));
            take(&mut workflow, JOB, (0, lease));
            tick(&mut workflow, ALWAYS, noticed);
            let expected = if lost {
                ("ready", 0, 1, 1, 0)
            } else {
                ("failed", 1, 0, 0, 0)
            };
            assert_eq!(
                summary(&workflow),
                expected,
                "lease {lease}, timeout {timeout}, noticed after {noticed}"
            );
        }
    };
    check(5, 9, true);
    check(9, 5, false);
    check(5, 5, false);
}

/// The first failure cancels the others, and what failed first does not depend on when that is
/// noticed.
#[test]
fn the_judgement_does_not_depend_on_when_time_is_looked_at() {
    for seed in 0..500 {
        let mut random = fastrand::Rng::with_seed(seed);
        let on_failure = random
            .choice([OnFailure::Continue, OnFailure::FailFast])
            .unwrap();
        let jobs = (0..5).map(|at| JobDefinition {
            timeout: (random.u8(..2) == 0).then(|| Duration::from_secs(random.u64(1..30))),
            max_lost: random.u16(..2),
            retry: Retry {
                limit: random.u16(..2),
                backoff: Duration::from_secs(1_000),
                ..Retry::default()
            },
            ..JobDefinition::new(at.to_string(), "h")
        });
        let mut often = started(jobs.collect(), on_failure);
        for job in 0..5 {
            take(&mut often, JobIndex(job), (0, random.u64(1..30)));
        }
        let mut once = often.clone();
        for second in 1..30 {
            tick(&mut often, ALWAYS, second);
        }
        tick(&mut once, ALWAYS, 30);
        let judged = |workflow: &Workflow| -> Vec<_> {
            let each = workflow
                .jobs
                .iter()
                .map(|job| (job.state.index(), job.attempt, job.lost, job.ended_by));
            each.collect()
        };
        assert_eq!(judged(&often), judged(&once), "seed {seed}");
    }
}

#[test]
fn leases_that_were_lost_in_a_row_fail_the_job_and_a_report_begins_anew() {
    for max_lost in [0, 1, 3] {
        let mut workflow = one(|job| {
            job.max_lost = max_lost;
            job.retry = Retry {
                limit: 9,
                backoff: Duration::ZERO,
                ..Retry::default()
            };
        });
        let mut now = 0;
        let mut lose = |workflow: &mut Workflow| {
            take(workflow, JOB, (now, now + 5));
            now += 5;
            tick(workflow, ALWAYS, now);
            now
        };
        let mut last = 0;
        for number in 1..=max_lost {
            last = lose(&mut workflow);
            assert_eq!(summary(&workflow), ("ready", 0, number, number, 0));
        }
        take(&mut workflow, JOB, (last, last + 5));
        let failed = Outcome::Failed {
            failure: Failure::default(),
            retry: RetryWish::ByPolicy,
        };
        report(&mut workflow, failed, last);
        assert_eq!(summary(&workflow), ("ready", 1, 0, max_lost, 0));
        for _ in 0..=max_lost {
            lose(&mut workflow);
        }
        assert_eq!(
            summary(&workflow),
            ("failed", 1, max_lost + 1, 2 * max_lost + 1, 0)
        );
    }
}

#[test]
fn a_lease_of_a_worker_that_stops_is_given_back() {
    let mut workflow = one(|_| {});
    for deployment in 0..10 {
        let now = deployment * 100;
        take(&mut workflow, JOB, (now, now + 5));
        let stops = Event::Extend {
            job: JOB,
            token: 7,
            expires: at(now + 15),
            intent: Intent::Stop,
        };
        apply(&mut workflow, &stops, at(now + 2));
        // It stays so, whatever else the worker says.
        let extends = Event::Extend {
            job: JOB,
            token: 7,
            expires: at(now + 15),
            intent: Intent::Continue,
        };
        apply(&mut workflow, &extends, at(now + 3));
        tick(&mut workflow, ALWAYS, now + 15);
        assert_eq!(summary(&workflow), ("ready", 0, 0, 0, 0));
        assert_eq!(workflow.job(JOB).ended_by, Some(LeaseEnd::Expired));
    }
    take(&mut workflow, JOB, (2_000, 2_005));
    tick(&mut workflow, ALWAYS, 2_005);
    assert_eq!(
        summary(&workflow),
        ("ready", 0, 1, 1, 0),
        "the next worker did not stop"
    );
}

#[test]
fn a_suspect_that_dies_alone_has_failed_and_its_neighbour_goes_on() {
    let mut poison = one(|_| {});
    let mut beside = one(|_| {});
    for crashes in 1..=2 {
        for workflow in [&mut poison, &mut beside] {
            take(workflow, JOB, (crashes * 10, crashes * 10 + 5));
            assert!(!workflow.job(JOB).is_suspect());
            assert_eq!(
                report(workflow, crash(false), crashes * 10 + 1),
                Effect::Done
            );
            assert_eq!(
                report(workflow, crash(false), crashes * 10 + 1),
                Effect::Already
            );
            assert_eq!(
                summary(workflow),
                ("ready", 0, 0, crashes as u16, crashes as u16)
            );
        }
    }
    for workflow in [&mut poison, &mut beside] {
        take(workflow, JOB, (50, 55));
        assert!(workflow.job(JOB).is_suspect());
    }
    report(&mut poison, crash(true), 51);
    assert_eq!(summary(&poison), ("failed", 0, 0, 3, 3));
    report(&mut beside, Outcome::Succeeded { output: None }, 51);
    assert_eq!(summary(&beside), ("succeeded", 1, 0, 2, 0));
}

#[test]
fn crashes_and_lost_leases_end() {
    // A job that dies alone without being a suspect is tried again.
    let mut workflow = one(|_| {});
    take(&mut workflow, JOB, (0, 5));
    report(&mut workflow, crash(true), 1);
    assert_eq!(summary(&workflow), ("ready", 0, 0, 1, 1));
    // Workers that know nothing of suspects, or die with their containers, in any order.
    for seed in 0..100 {
        let mut random = fastrand::Rng::with_seed(seed);
        let max_lost = random.u16(..5);
        let mut workflow = one(|job| job.max_lost = max_lost);
        let mut attempts = 0;
        while !workflow.job(JOB).state.is_over() {
            take(&mut workflow, JOB, (attempts * 10, attempts * 10 + 5));
            if random.bool() {
                report(&mut workflow, crash(false), attempts * 10);
            } else {
                tick(&mut workflow, ALWAYS, attempts * 10 + 5);
            }
            attempts += 1;
            assert!(attempts < 12, "seed {seed}");
        }
        assert_eq!(workflow.job(JOB).state, JobState::Failed);
    }
}

/// Servers were away from 10 to 70 for workers whose leases are 20 long.
#[test]
fn an_outage_takes_no_job_from_a_worker_that_lives() {
    let since = at(70);
    let running = |timeout: Option<u64>| {
        let mut workflow = one(|job| job.timeout = timeout.map(Duration::from_secs));
        take(&mut workflow, JOB, (5, 25));
        workflow
    };
    let mut alive = running(None);
    tick(&mut alive, since, 71);
    assert_eq!(
        (summary(&alive), alive.meta().timer),
        (("running", 1, 0, 0, 0), Some(at(90)))
    );
    let extends = Event::Extend {
        job: JOB,
        token: 7,
        expires: at(92),
        intent: Intent::Continue,
    };
    apply(&mut alive, &extends, at(72));
    tick(&mut alive, since, 91);
    assert_eq!(summary(&alive).0, "running");
    tick(&mut alive, since, 92);
    assert_eq!(summary(&alive), ("ready", 0, 1, 1, 0));
    let mut dead = running(None);
    tick(&mut dead, since, 89);
    assert_eq!(summary(&dead).0, "running");
    tick(&mut dead, since, 90);
    assert_eq!(summary(&dead), ("ready", 0, 1, 1, 0));
    // Its time was out during the outage, before its lease was over; another one's was out after
    // that.
    for (timeout, expected) in [(15, ("failed", 1, 0, 0, 0)), (30, ("ready", 0, 1, 1, 0))] {
        let mut workflow = running(Some(timeout));
        tick(&mut workflow, since, 89);
        assert_eq!(summary(&workflow).0, "running");
        tick(&mut workflow, since, 90);
        assert_eq!(summary(&workflow), expected);
    }
    // What began after the outage has its time and no more.
    let mut later = one(|job| job.timeout = Some(Duration::from_secs(3)));
    take(&mut later, JOB, (71, 91));
    tick(&mut later, since, 74);
    assert_eq!(summary(&later), ("failed", 1, 0, 0, 0));
}
