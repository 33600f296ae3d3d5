//! Gush's JSON, and what it means here.

use std::time::Duration;

use hashbrown::HashMap;
use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_pipeline::Reply;

use super::Read;
use crate::engine::{Begin, NewWorkflow};
use crate::graph::definition::{Definition, JobDefinition};
use crate::graph::json::Json;
use crate::graph::{Graph, GraphError};
use crate::id::JobIndex;
use crate::state::{Job, JobState};
use crate::time::Timestamp;
use crate::workflow::{Course, Imported};

/// What Gush stores under `gush.workflows.<id>`, as far as it says more than the jobs do.
#[derive(Debug, Deserialize)]
pub(super) struct GushWorkflow {
    klass: String,
    #[serde(default)]
    globals: Option<Box<RawValue>>,
    #[serde(default)]
    stopped: bool,
}

/// What Gush stores of a job. Moments are in seconds.
#[derive(Debug, Deserialize)]
pub(super) struct GushJob {
    id: String,
    klass: String,
    #[serde(default)]
    queue: Option<String>,
    #[serde(default)]
    incoming: Vec<String>,
    #[serde(default)]
    outgoing: Vec<String>,
    #[serde(default)]
    finished_at: Option<f64>,
    #[serde(default)]
    enqueued_at: Option<f64>,
    #[serde(default)]
    started_at: Option<f64>,
    #[serde(default)]
    failed_at: Option<f64>,
    #[serde(default)]
    params: Option<Box<RawValue>>,
    #[serde(default)]
    output_payload: Option<Box<RawValue>>,
    #[serde(default)]
    wait: Option<f64>,
}

impl GushJob {
    /// What Gush calls it in full.
    fn name(&self) -> String {
        format!("{}|{}", self.klass, self.id)
    }

    /// Gush clears no moment but the failure's when a job starts again, so the order of these questions matters: a job that started
    /// after it finished is running.
    fn state(&self) -> JobState {
        let runs_again = self.started_at > self.finished_at && self.failed_at.is_none();
        match self {
            Self { failed_at: Some(_), .. } => JobState::Failed,
            Self { finished_at: Some(_), .. } if !runs_again => JobState::Succeeded,
            Self { enqueued_at: None, started_at: None, .. } => JobState::Waiting,
            _ => JobState::Ready,
        }
    }

    fn imported(&self, now: Timestamp) -> Job {
        let state = self.state();
        let moment = |at: Option<f64>| at.map(seconds);
        Job {
            state,
            attempt: u16::from(state.is_over()),
            ready_at: moment(self.enqueued_at)
                .or(moment(self.started_at))
                .or((state == JobState::Ready).then_some(now)),
            started_at: moment(self.started_at).filter(|_| state.is_over()),
            finished_at: moment(self.finished_at).filter(|_| state.is_over()),
            ..Job::default()
        }
    }
}

/// A moment that Gush or Redis gives in seconds.
pub(super) fn seconds(at: f64) -> Timestamp {
    Timestamp::from_micros((at.max(0.0) * 1e6).round() as u64)
}

fn json(raw: Option<&RawValue>) -> Option<Json> {
    raw.map(|raw| Json::from_checked(raw.get())).filter(|json| !json.is_null())
}

/// The workflow that is created here. Jobs keep the name that Gush gives them in full, and their class as the handler.
pub(super) fn converted(id: &str, read: &Read, now: Timestamp) -> Result<NewWorkflow, GraphError> {
    let Read { workflow, jobs, .. } = read;
    let parents = parents(jobs);
    let definition = Definition {
        name: workflow.klass.clone(),
        jobs: jobs.iter().zip(&parents).map(|(job, parents)| defined(job, parents, jobs)).collect(),
        globals: json(workflow.globals.as_deref()),
        idempotency_key: Some(format!("gush:{id}")),
        ..Definition::default()
    };
    let states: Vec<Job> = jobs.iter().map(|job| job.imported(now)).collect();
    let outputs = jobs.iter().enumerate().filter_map(|(at, job)| {
        let output = json(job.output_payload.as_deref())?;
        Some((JobIndex(at as u16), output.text().as_bytes().to_vec()))
    });
    let started = jobs.iter().filter_map(|job| job.started_at.or(job.enqueued_at)).reduce(f64::min).map(seconds);
    let finished = jobs.iter().filter_map(|job| job.finished_at).reduce(f64::max).map(seconds);
    let lives = |seconds: i64| now + Duration::from_secs(seconds.unsigned_abs());
    let imported = Imported {
        started_at: started,
        finished_at: finished,
        expires_at: read.expires_at.map(seconds).or(read.time_to_live.map(lives)),
        course: match () {
            // Gush starts nothing more in a workflow of which a job failed, until somebody continues it.
            () if states.iter().any(|job| job.state == JobState::Failed) => Course::Halted,
            () if workflow.stopped => Course::Paused,
            () => Course::GoesOn,
        },
        outputs: outputs.collect(),
        jobs: states,
        errors: Vec::new(),
    };
    let created_at = read.created_at.or(started);
    Ok(NewWorkflow { graph: Graph::build(definition)?, begin: Begin::As(Box::new(imported)), created_at })
}

/// How many jobs a workflow has, and how many of them are ready here because they had not ended there.
pub(super) fn sizes(new: &NewWorkflow) -> (u64, u64) {
    let unfinished = match &new.begin {
        Begin::As(imported) => imported.jobs.iter().filter(|job| job.state == JobState::Ready).count(),
        _ => 0,
    };
    (new.graph.jobs.len() as u64, unfinished as u64)
}

fn defined(job: &GushJob, parents: &[usize], jobs: &[GushJob]) -> JobDefinition {
    let mut defined = JobDefinition::new(job.name(), job.klass.clone());
    defined.params = json(job.params.as_deref());
    defined.after = parents.iter().map(|&parent| jobs[parent].name()).collect();
    defined.wait = Duration::try_from_secs_f64(job.wait.unwrap_or(0.0)).unwrap_or_default();
    if let Some(queue) = &job.queue {
        defined.queue.clone_from(queue);
    }
    defined
}

/// The parents of each job. Gush notes an edge at both ends, one of them by class only when the author wrote it so; the other end
/// then has the full name.
fn parents(jobs: &[GushJob]) -> Vec<Vec<usize>> {
    let names: HashMap<String, usize> = jobs.iter().enumerate().map(|(at, job)| (job.name(), at)).collect();
    let of_class = |class: &str| jobs.iter().position(|job| job.klass == class);
    let mut parents: Vec<Vec<usize>> = vec![Vec::new(); jobs.len()];
    for (at, job) in jobs.iter().enumerate() {
        let children = job.outgoing.iter().filter_map(|name| names.get(name));
        children.for_each(|&child| parents[child].push(at));
        let named = job.incoming.iter().filter_map(|name| names.get(name));
        parents[at].extend(named);
    }
    for (at, job) in jobs.iter().enumerate() {
        // A class that no full name stands for: the first job of it, as Gush itself would find.
        for class in job.incoming.iter().filter(|name| !names.contains_key(*name)) {
            if !parents[at].iter().any(|&parent| jobs[parent].klass == *class) {
                parents[at].extend(of_class(class));
            }
        }
        for class in job.outgoing.iter().filter(|name| !names.contains_key(*name)) {
            let known = (0..jobs.len()).any(|child| jobs[child].klass == *class && parents[child].contains(&at));
            if let (false, Some(child)) = (known, of_class(class)) {
                parents[child].push(at);
            }
        }
    }
    parents.iter_mut().for_each(|parents| {
        parents.sort_unstable();
        parents.dedup();
    });
    parents
}

/// Cursor and keys of a reply to SCAN.
pub(super) fn scan_reply(reply: &Reply) -> (Vec<u8>, Vec<Vec<u8>>) {
    match reply {
        Reply::Array(parts) => match &parts[..] {
            [Ok(Reply::Bulk(cursor)), Ok(keys)] => (cursor.to_vec(), items(keys).map(<[u8]>::to_vec).collect()),
            _ => (b"0".to_vec(), Vec::new()),
        },
        _ => (b"0".to_vec(), Vec::new()),
    }
}

/// The strings of an array.
pub(super) fn items(reply: &Reply) -> impl Iterator<Item = &[u8]> {
    let items = match reply {
        Reply::Array(items) => &items[..],
        _ => &[],
    };
    items.iter().filter_map(|item| match item {
        Ok(Reply::Bulk(bytes)) => Some(&bytes[..]),
        _ => None,
    })
}
