//! The record of a graph.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::graph::{Graph, GraphJob, GraphJobs, JobLimits, OnFailure};
use crate::model::{JobIndex, Json, Label, Retention};

#[derive(Serialize)]
struct WrittenGraph<'a> {
    label: &'a Label,
    globals: Option<&'a Json>,
    on_failure: OnFailure,
    retention: Option<Retention>,
    idempotency_key: Option<&'a str>,
    params: &'a [Option<Json>],
    /// Limit keys, each with the indexes of its jobs.
    limits: Vec<(&'a str, Vec<JobIndex>)>,
    jobs: &'a [GraphJob],
}

/// The decoded form of [`WrittenGraph`], with the same fields.
#[derive(Deserialize)]
struct ReadGraph {
    label: Label,
    globals: Option<Json>,
    on_failure: OnFailure,
    retention: Option<Retention>,
    idempotency_key: Option<String>,
    params: Vec<Option<Json>>,
    limits: Vec<(String, Vec<JobIndex>)>,
    jobs: Vec<GraphJob>,
}

impl Serialize for Graph {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let limited = self.job_limits.as_ref();
        let written = WrittenGraph {
            label: &self.label,
            globals: self.globals.as_ref(),
            on_failure: self.on_failure,
            retention: self.retention,
            idempotency_key: self.idempotency_key.as_deref(),
            params: &self.params,
            limits: limited.map_or_else(Vec::new, |limited| limited.jobs_by_key()),
            jobs: &self.jobs,
        };
        written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Graph {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = ReadGraph::deserialize(deserializer)?;
        let limited = if read.limits.is_empty() {
            None
        } else {
            let limited = JobLimits::from_keys(&read.limits, read.jobs.len());
            Some(limited.ok_or_else(|| D::Error::custom("limits of jobs cannot be read"))?)
        };
        Ok(Self {
            label: read.label,
            globals: read.globals,
            on_failure: read.on_failure,
            retention: read.retention,
            idempotency_key: read.idempotency_key,
            params: read.params.into(),
            job_limits: limited,
            jobs: GraphJobs::new(read.jobs).into(),
        })
    }
}
