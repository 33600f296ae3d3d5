//! Jobs that run by the rule of their own, when others are retried or cancelled.

use super::*;
use crate::model::Status;

fn of(jobs: &[(&str, &[&str], TriggerRule)]) -> Workflow {
    of_failing(OnFailure::Continue, jobs)
}

fn of_failing(on_failure: OnFailure, jobs: &[(&str, &[&str], TriggerRule)]) -> Workflow {
    let jobs = jobs.iter().map(|(name, after, rule)| JobDefinition {
        after: after.iter().map(|parent| (*parent).to_owned()).collect(),
        rule: *rule,
        ..JobDefinition::new((*name).to_owned(), "handler")
    });
    let definition = Definition {
        name: "w".to_owned(),
        jobs: jobs.collect(),
        on_failure,
        ..Definition::default()
    };
    let id = WorkflowId::new(NOW, Partition(0), 1);
    let mut workflow = Workflow::new(id, Arc::new(Graph::build(definition).unwrap()), NOW);
    happens(&mut workflow, &Event::Start);
    workflow
}

fn happens(workflow: &mut Workflow, event: &Event) {
    assert_eq!(
        transition(workflow, event, RetentionDefaults::default(), NOW),
        Ok(Effect::Done),
        "{event:?}"
    );
}

/// A worker runs a job to its end.
fn runs(workflow: &mut Workflow, name: &str, outcome: Outcome) {
    let job = begins(workflow, name);
    let token = workflow.job(job).token;
    happens(
        workflow,
        &Event::Report {
            job,
            token,
            outcome,
        },
    );
}

fn begins(workflow: &mut Workflow, name: &str) -> JobIndex {
    let job = workflow.graph.find(name).unwrap();
    let token = workflow.job(job).fence + 1;
    happens(
        workflow,
        &Event::Claim {
            job,
            lease: Lease {
                token,
                worker: "worker".into(),
                expires: NOW,
            },
        },
    );
    job
}

fn states(workflow: &Workflow) -> String {
    let words = workflow.jobs.iter().map(|job| job.state.word());
    format!(
        "{}: {}",
        workflow.meta().status.word(),
        words.collect::<Vec<_>>().join(" ")
    )
}

const WELL: Outcome = Outcome::Succeeded { output: None };

fn badly() -> Outcome {
    Outcome::Failed {
        failure: Failure::default(),
        retry: RetryWish::Never,
    }
}

#[test]
fn an_alarm_that_its_rule_skipped_runs_when_the_job_is_restarted_and_fails() {
    let mut workflow = of(&[
        ("a", &[], TriggerRule::AllSuccess),
        ("alarm", &["a"], TriggerRule::AnyFailed),
    ]);
    runs(&mut workflow, "a", WELL);
    assert_eq!(states(&workflow), "succeeded: succeeded skipped");
    let restart = Event::Restart {
        jobs: vec![JobIndex(0)],
        scope: RestartScope::Chosen,
        as_of: None,
    };
    happens(&mut workflow, &restart);
    assert_eq!(states(&workflow), "running: ready waiting");
    runs(&mut workflow, "a", badly());
    assert_eq!(states(&workflow), "running: failed ready");
}

#[test]
fn what_an_operator_skipped_stays_skipped() {
    let mut workflow = of(&[
        ("a", &[], TriggerRule::AllSuccess),
        ("alarm", &["a"], TriggerRule::AnyFailed),
    ]);
    runs(&mut workflow, "a", WELL);
    happens(&mut workflow, &Event::Skip(JobIndex(1)));
    happens(
        &mut workflow,
        &Event::Restart {
            jobs: vec![JobIndex(0)],
            scope: RestartScope::Chosen,
            as_of: None,
        },
    );
    runs(&mut workflow, "a", badly());
    assert_eq!(states(&workflow), "failed: failed skipped");
}

#[test]
fn a_job_that_was_skipped_with_the_job_before_it_runs_when_that_is_marked_as_succeeded() {
    let rule = TriggerRule::AllSuccess;
    let mut workflow = of(&[("a", &[], rule), ("b", &["a"], rule), ("c", &["b"], rule)]);
    happens(&mut workflow, &Event::Skip(JobIndex(0)));
    assert_eq!(states(&workflow), "succeeded: skipped skipped skipped");
    happens(
        &mut workflow,
        &Event::MarkSucceeded {
            job: JobIndex(0),
            output: None,
        },
    );
    assert_eq!(states(&workflow), "running: succeeded ready waiting");
}

#[test]
fn alarms_and_cleanups_and_what_comes_after_them_run_again_after_a_retry() {
    let mut workflow = of(&[
        ("a", &[], TriggerRule::AllSuccess),
        ("alarm", &["a"], TriggerRule::AnyFailed),
        ("cleanup", &["a"], TriggerRule::AllDone),
        ("note", &["cleanup"], TriggerRule::AllSuccess),
    ]);
    runs(&mut workflow, "a", badly());
    ["alarm", "cleanup", "note"]
        .into_iter()
        .for_each(|job| runs(&mut workflow, job, WELL));
    happens(&mut workflow, &Event::RetryFailed { as_of: None });
    assert_eq!(
        states(&workflow),
        "running: ready succeeded waiting waiting"
    );
    runs(&mut workflow, "a", badly());
    assert_eq!(states(&workflow), "running: failed ready ready waiting");
    ["alarm", "cleanup", "note"]
        .into_iter()
        .for_each(|job| runs(&mut workflow, job, WELL));
    happens(&mut workflow, &Event::RetryFailed { as_of: None });
    runs(&mut workflow, "a", WELL);
    ["cleanup", "note"]
        .into_iter()
        .for_each(|job| runs(&mut workflow, job, WELL));
    assert_eq!(
        states(&workflow),
        "succeeded: succeeded succeeded succeeded succeeded"
    );
}

#[test]
fn an_alarm_that_runs_during_the_retry_runs_once_more_only_after_another_failure() {
    let jobs: [(&str, &[&str], TriggerRule); 3] = [
        ("a", &[], TriggerRule::AllSuccess),
        ("alarm", &["a"], TriggerRule::AnyFailed),
        ("cleanup", &["a"], TriggerRule::AllDone),
    ];
    for (second, after) in [
        (badly(), "running: failed ready ready"),
        (WELL, "running: succeeded succeeded ready"),
    ] {
        let mut workflow = of(&jobs);
        runs(&mut workflow, "a", badly());
        let reacting = ["alarm", "cleanup"].map(|job| begins(&mut workflow, job));
        happens(&mut workflow, &Event::RetryFailed { as_of: None });
        runs(&mut workflow, "a", second);
        for job in reacting {
            let token = workflow.job(job).token;
            happens(
                &mut workflow,
                &Event::Report {
                    job,
                    token,
                    outcome: WELL,
                },
            );
        }
        assert_eq!(states(&workflow), after);
    }
}

#[test]
fn alarms_and_cleanups_are_cancelled_with_all_others() {
    let jobs: [(&str, &[&str], TriggerRule); 4] = [
        ("a", &[], TriggerRule::AllSuccess),
        ("alarm", &["a"], TriggerRule::AnyFailed),
        ("cleanup", &["a"], TriggerRule::AllDone),
        ("b", &[], TriggerRule::AllSuccess),
    ];
    let mut failed = of_failing(OnFailure::FailFast, &jobs);
    runs(&mut failed, "a", badly());
    assert_eq!(
        states(&failed),
        "failed: failed cancelled cancelled cancelled"
    );
    let mut before = of(&jobs);
    happens(&mut before, &Event::Cancel);
    assert_eq!(
        states(&before),
        "cancelled: cancelled cancelled cancelled cancelled"
    );
    let mut after = of(&jobs);
    runs(&mut after, "a", badly());
    begins(&mut after, "alarm");
    happens(&mut after, &Event::Cancel);
    assert_eq!(
        states(&after),
        "cancelled: failed cancelled cancelled cancelled"
    );
}

/// Reports the outcome of a job's latest lease.
fn report(workflow: &mut Workflow, job: JobIndex, outcome: Outcome) -> Result<Effect, Refusal> {
    let event = Event::Report {
        job,
        token: workflow.job(job).fence,
        outcome,
    };
    transition(workflow, &event, RetentionDefaults::default(), NOW)
}

fn lost(why: &str, result: Result<Effect, Refusal>) {
    let is_lost = matches!(&result, Err(Refusal::LeaseLost { reason, .. }) if *reason == why);
    assert!(is_lost, "{result:?}");
}

/// The repeated report was refused, as if the lease had been lost.
#[test]
fn a_report_that_is_repeated_when_its_job_runs_again_by_its_rule_gets_the_same_answer() {
    for first in [WELL, badly()] {
        let mut workflow = of(&[
            ("a", &[], TriggerRule::AllSuccess),
            ("cleanup", &["a"], TriggerRule::AllDone),
            ("note", &["cleanup"], TriggerRule::AllDone),
        ]);
        runs(&mut workflow, "a", badly());
        let cleanup = begins(&mut workflow, "cleanup");
        happens(&mut workflow, &Event::RetryFailed { as_of: None });
        runs(&mut workflow, "a", badly());
        let done = report(&mut workflow, cleanup, first.clone());
        assert_eq!(done, Ok(Effect::Done));
        assert_eq!(states(&workflow), "running: failed ready waiting");
        let again = report(&mut workflow, cleanup, first.clone());
        assert_eq!(again, Ok(Effect::Already));
        let other = report(&mut workflow, cleanup, Outcome::NotBegun);
        lost("reported", other);
        // A job that had ended before it was to run again.
        ["cleanup", "note"]
            .into_iter()
            .for_each(|job| runs(&mut workflow, job, first.clone()));
        happens(&mut workflow, &Event::RetryFailed { as_of: None });
        assert_eq!(workflow.job(cleanup).state, JobState::Waiting);
        let again = report(&mut workflow, cleanup, first.clone());
        match first {
            Outcome::Succeeded { .. } => assert_eq!(again, Ok(Effect::Already)),
            // An operator retried this one.
            _ => lost("restarted", again),
        }
        // The next lease is another.
        runs(&mut workflow, "a", WELL);
        let next = begins(&mut workflow, "cleanup");
        assert_eq!(workflow.job(next).ended_by, None);
        assert_eq!(report(&mut workflow, next, WELL), Ok(Effect::Done));
        assert_eq!(workflow.job(next).state, JobState::Succeeded);
    }
}

#[test]
fn a_workflow_that_was_cancelled_before_its_start_has_a_start_after_a_retry() {
    let mut workflow = of(&[("a", &[], TriggerRule::AllSuccess)]);
    let id = workflow.id;
    workflow = Workflow::new(id, Arc::clone(&workflow.graph), NOW);
    happens(&mut workflow, &Event::Cancel);
    happens(&mut workflow, &Event::RetryFailed { as_of: None });
    assert_eq!(
        (workflow.meta().status, workflow.meta().started_at),
        (Status::Running, Some(NOW))
    );
}
