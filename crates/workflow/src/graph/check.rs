//! Checks of a definition: numbers of jobs and tags, names, and the existence of named jobs.

use std::time::Duration;

use hashbrown::HashMap;

use super::{
    Definition, GraphError, JobDefinition, MAX_JOBS, MAX_NAME, MAX_RETRIES, MAX_TAGS, suggestion,
};
use crate::model::{JobIndex, Json};

/// Checks that a definition keeps all bounds and that its names are valid.
pub(super) fn check_bounds(definition: &Definition) -> Result<(), GraphError> {
    let count = definition.jobs.len();
    if count == 0 {
        return Err(GraphError::NoJobs);
    }
    if count > MAX_JOBS {
        return Err(GraphError::TooManyJobs { count });
    }
    check_name(&definition.name, || "name".to_owned())?;
    if definition.tags.len() > MAX_TAGS {
        return Err(GraphError::TooManyTags {
            count: definition.tags.len(),
        });
    }
    for (at, tag) in definition.tags.iter().enumerate() {
        check_name(tag, || format!("tags[{at}]"))?;
    }
    if let Some(key) = &definition.idempotency_key {
        check_name(key, || "idempotency_key".to_owned())?;
    }
    check_object(definition.globals.as_ref(), || "globals".to_owned())?;
    check_jobs(&definition.jobs)
}

fn check_jobs(jobs: &[JobDefinition]) -> Result<(), GraphError> {
    for (at, job) in jobs.iter().enumerate() {
        let path = |field: &str| format!("jobs[{at}].{field}");
        check_name(&job.name, || path("name"))?;
        check_name(&job.handler, || path("handler"))?;
        check_name(&job.queue, || path("queue"))?;
        check_object(job.params.as_ref(), || path("params"))?;
        if job.timeout == Some(Duration::ZERO) {
            return Err(GraphError::NoTime {
                path: path("timeout"),
            });
        }
        for (field, given) in [("retries", job.retry.limit), ("max_lost", job.max_lost)] {
            if given > MAX_RETRIES {
                let path = path(field);
                return Err(GraphError::TooManyRetries { path, given });
            }
        }
        let backoff = job.retry.backoff;
        let most = job.retry.backoff_max;
        if backoff > most {
            let path = path("backoff");
            return Err(GraphError::Backoff {
                path,
                backoff,
                most,
            });
        }
    }
    Ok(())
}

fn check_object(json: Option<&Json>, path: impl FnOnce() -> String) -> Result<(), GraphError> {
    match json {
        Some(json) if !json.is_object() => Err(GraphError::NotAnObject { path: path() }),
        _ => Ok(()),
    }
}

pub(super) fn check_name(name: &str, path: impl FnOnce() -> String) -> Result<(), GraphError> {
    let found = match name {
        "" => "empty".to_owned(),
        // HTTP clients remove such segments from a path, even if they are encoded, so the name
        // could not be requested.
        "." | ".." => format!("'{name}'"),
        _ if name.len() > MAX_NAME => format!("{} bytes long", name.len()),
        _ if name.chars().any(char::is_control) => format!("{name:?}"),
        _ => return Ok(()),
    };
    Err(GraphError::InvalidName {
        path: path(),
        found,
    })
}

/// The parents of each job, from both `after` and `before`.
pub(super) fn parents(jobs: &[JobDefinition]) -> Result<Vec<Vec<JobIndex>>, GraphError> {
    let by_name = jobs_by_name(jobs)?;
    let mut parents = vec![Vec::new(); jobs.len()];
    for (at, job) in jobs.iter().enumerate() {
        for (index, name) in job.after.iter().enumerate() {
            parents[at].push(find(jobs, &by_name, name, || {
                format!("jobs[{at}].after[{index}]")
            })?);
        }
        for (index, name) in job.before.iter().enumerate() {
            let child = find(jobs, &by_name, name, || {
                format!("jobs[{at}].before[{index}]")
            })?;
            parents[child.index()].push(JobIndex(at as u32));
        }
    }
    Ok(parents)
}

type JobsByName<'a> = HashMap<&'a str, JobIndex>;

fn jobs_by_name(jobs: &[JobDefinition]) -> Result<JobsByName<'_>, GraphError> {
    let mut by_name = JobsByName::with_capacity(jobs.len());
    for (second, job) in jobs.iter().enumerate() {
        if let Some(first) = by_name.insert(&job.name, JobIndex(second as u32)) {
            return Err(GraphError::DuplicateName {
                name: job.name.clone(),
                first: first.index(),
                second,
            });
        }
    }
    Ok(by_name)
}

fn find(
    jobs: &[JobDefinition],
    by_name: &JobsByName<'_>,
    name: &str,
    path: impl FnOnce() -> String,
) -> Result<JobIndex, GraphError> {
    by_name.get(name).copied().ok_or_else(|| {
        let known = jobs.iter().map(|job| &*job.name);
        let similar = suggestion::most_similar(name, known).map(str::to_owned);
        GraphError::UnknownJob {
            path: path(),
            name: printable(name),
            similar,
        }
    })
}

/// An unchecked name for a message: shortened, and without control characters.
pub(super) fn printable(name: &str) -> String {
    let visible = |character: char| {
        if character.is_control() {
            char::REPLACEMENT_CHARACTER
        } else {
            character
        }
    };
    name.chars().take(MAX_NAME).map(visible).collect()
}
