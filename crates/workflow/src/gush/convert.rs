//! Conversion of workflows of Gush.

use std::time::Duration;

use hashbrown::HashMap;
use serde_json::value::RawValue;

use super::{GushJob, GushRecord, seconds};
use crate::engine::NewWorkflow;
use crate::engine::actor::request::StartMode;
use crate::graph::{
    Definition, Graph, GraphError, JobDefinition, MAX_DEPTH, MAX_OUTPUT, MAX_PARAMS,
};
use crate::machine::{Continuation, ImportedState};
use crate::model::{Job, JobIndex, JobState, Json, Timestamp};

/// The reason why a workflow exceeds a bound of size or depth, with its first such jobs. `None` if
/// it does not.
pub(super) fn excess_reason(read: &GushRecord) -> Option<String> {
    const MAX_NAMED_JOBS: usize = 3;
    let globals = json(read.workflow.globals.as_deref());
    let bytes = globals.as_ref().map_or(0, |globals| globals.text().len());
    if globals.as_ref().is_some_and(is_too_deep) {
        return Some(format!(
            "its globals are nested more than {MAX_DEPTH} levels deep"
        ));
    }
    let wrong = |job: &GushJob| Some(format!("job {} {}", job.name(), excess_of_job(job, bytes)?));
    let mut wrong: Vec<String> = read.jobs.iter().filter_map(wrong).collect();
    let more = wrong.len().saturating_sub(MAX_NAMED_JOBS);
    wrong.truncate(MAX_NAMED_JOBS);
    wrong.extend((more > 0).then(|| format!("and {more} more jobs like these")));
    (!wrong.is_empty()).then(|| wrong.join("; "))
}

fn is_too_deep(json: &Json) -> bool {
    json.depth() > MAX_DEPTH
}

/// The bound of size or depth that a job exceeds, given the bytes of the globals of its workflow.
fn excess_of_job(job: &GushJob, globals_bytes: usize) -> Option<String> {
    let params = json(job.params.as_deref());
    let output = json(job.output_payload.as_deref());
    let bytes = |json: &Option<Json>| json.as_ref().map_or(0, |json| json.text().len());
    if bytes(&params) + globals_bytes > MAX_PARAMS {
        return Some(format!(
            "has params and globals of more than {MAX_PARAMS} bytes"
        ));
    }
    if bytes(&output) > MAX_OUTPUT {
        return Some(format!("has an output of more than {MAX_OUTPUT} bytes"));
    }
    let is_deep = params.iter().chain(&output).any(is_too_deep);
    is_deep.then(|| format!("has JSON that is nested more than {MAX_DEPTH} levels deep"))
}

fn json(raw: Option<&RawValue>) -> Option<Json> {
    raw.map(|raw| Json::from_checked(raw.get()))
        .filter(|json| !json.is_null())
}

/// The workflow to create. A job keeps the full name of Gush, and its class is the handler.
pub(super) fn to_new_workflow(
    id: &str,
    read: &GushRecord,
    now: Timestamp,
) -> Result<NewWorkflow, GraphError> {
    let GushRecord { workflow, jobs, .. } = read;
    let parents = parents(jobs);
    let definition = Definition {
        name: workflow.klass.clone(),
        jobs: jobs
            .iter()
            .zip(&parents)
            .map(|(job, parents)| job_definition(job, parents, jobs))
            .collect(),
        globals: json(workflow.globals.as_deref()),
        idempotency_key: Some(format!("gush:{id}")),
        ..Definition::default()
    };
    Ok(NewWorkflow {
        graph: Graph::build(definition)?,
        start: StartMode::As(Box::new(imported_state(read, now))),
        created_at: read.created_at.or(started(jobs)),
    })
}

/// The state of a workflow in Gush.
fn imported_state(read: &GushRecord, now: Timestamp) -> ImportedState {
    let GushRecord { workflow, jobs, .. } = read;
    let states: Vec<Job> = jobs.iter().map(|job| job.imported(now)).collect();
    let outputs = jobs.iter().enumerate().filter_map(|(at, job)| {
        let output = json(job.output_payload.as_deref())?;
        Some((JobIndex(at as u32), output.text().as_bytes().to_vec()))
    });
    let expiry_after = |seconds: i64| now + Duration::from_secs(seconds.unsigned_abs());
    let finished = jobs.iter().filter_map(|job| job.finished_at);
    let expires_at = read.expires_at.map(seconds);
    ImportedState {
        started_at: started(jobs),
        finished_at: finished.reduce(f64::max).map(seconds),
        expires_at: expires_at.or(read.time_to_live.map(expiry_after)),
        continuation: match () {
            // After a failure Gush starts no further jobs until an operator continues the workflow.
            () if states.iter().any(|job| job.state == JobState::Failed) => Continuation::Halted,
            () if workflow.stopped => Continuation::Paused,
            () => Continuation::Continues,
        },
        outputs: outputs.collect(),
        jobs: states,
        errors: Vec::new(),
    }
}

fn started(jobs: &[GushJob]) -> Option<Timestamp> {
    jobs.iter()
        .filter_map(|job| job.started_at.or(job.enqueued_at))
        .reduce(f64::min)
        .map(seconds)
}

/// The number of jobs of a workflow, and the number of those that are ready because they had not
/// ended in Gush.
pub(super) fn job_counts(new: &NewWorkflow) -> (u64, u64) {
    let unfinished = match &new.start {
        StartMode::As(imported) => imported
            .jobs
            .iter()
            .filter(|job| job.state == JobState::Ready)
            .count(),
        _ => 0,
    };
    (new.graph.jobs.len() as u64, unfinished as u64)
}

fn job_definition(job: &GushJob, parents: &[usize], jobs: &[GushJob]) -> JobDefinition {
    let mut defined = JobDefinition::new(job.name(), job.klass.clone());
    defined.params = json(job.params.as_deref());
    defined.after = parents.iter().map(|&parent| jobs[parent].name()).collect();
    defined.wait = Duration::try_from_secs_f64(job.wait.unwrap_or(0.0)).unwrap_or_default();
    if let Some(queue) = &job.queue {
        defined.queue.clone_from(queue);
    }
    defined
}

/// The parents of each job. Gush records an edge at both ends. One end has only the class if the
/// author wrote it so; the other end then has the full name.
fn parents(jobs: &[GushJob]) -> Vec<Vec<usize>> {
    let names: HashMap<String, usize> = jobs
        .iter()
        .enumerate()
        .map(|(at, job)| (job.name(), at))
        .collect();
    let mut parents: Vec<Vec<usize>> = vec![Vec::new(); jobs.len()];
    for (at, job) in jobs.iter().enumerate() {
        let children = job.outgoing.iter().filter_map(|name| names.get(name));
        children.for_each(|&child| parents[child].push(at));
        let named = job.incoming.iter().filter_map(|name| names.get(name));
        parents[at].extend(named);
    }
    add_parents_by_class(jobs, &names, &mut parents);
    parents.iter_mut().for_each(|parents| {
        parents.sort_unstable();
        parents.dedup();
    });
    parents
}

/// Adds edges whose end is a class without a full name: the class stands for its first job, as in
/// Gush.
fn add_parents_by_class(
    jobs: &[GushJob],
    names: &HashMap<String, usize>,
    parents: &mut [Vec<usize>],
) {
    let of_class = |class: &str| jobs.iter().position(|job| job.klass == class);
    let is_class = |name: &&String| !names.contains_key(*name);
    for (at, job) in jobs.iter().enumerate() {
        for class in job.incoming.iter().filter(is_class) {
            let is_known = |&parent: &usize| jobs[parent].klass == *class;
            if !parents[at].iter().any(is_known) {
                parents[at].extend(of_class(class));
            }
        }
        for class in job.outgoing.iter().filter(is_class) {
            let known = (0..jobs.len())
                .any(|child| jobs[child].klass == *class && parents[child].contains(&at));
            if let (false, Some(child)) = (known, of_class(class)) {
                parents[child].push(at);
            }
        }
    }
}
