//! A graph as a record: the params of a job are in the job. From the fourth format on the limits of all jobs follow, and then, if it is not the same for
//! all, how many lost leases of which job are tried again.

use std::fmt;
use std::time::Duration;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::definition::{DEFAULT_MAX_LOST, OnFailure, Retention, Retry, TriggerRule};
use super::jobs::{GraphJob, Jobs};
use super::json::Json;
use super::limited::Limited;
use super::{Graph, compact};
use crate::id::JobIndex;
use crate::record::codec::{Record, extended};
use crate::record::format::Format;
use crate::state::Label;

impl Record for Graph {
    fn least(&self) -> Format {
        if self.has_limits() || !self.max_lost().is_empty() {
            Format::Fourth
        } else {
            Format::First
        }
    }

    fn write(&self, format: Format, bytes: Vec<u8>) -> Vec<u8> {
        let limits = || {
            self.limited
                .as_ref()
                .map_or_else(Vec::new, |limited| limited.jobs())
        };
        match format {
            Format::First | Format::Second | Format::Third => extended(bytes, self),
            Format::Fourth => {
                let (bytes, max_lost) = (extended(bytes, &(self, limits())), self.max_lost());
                if max_lost.is_empty() {
                    bytes
                } else {
                    extended(bytes, &max_lost)
                }
            }
        }
    }

    fn read(bytes: &[u8], format: Format) -> Result<Self, postcard::Error> {
        let (mut graph, rest): (Self, _) = postcard::take_from_bytes(bytes)?;
        if format >= Format::Fourth {
            let (limits, rest): (Vec<(&str, Vec<JobIndex>)>, _) = postcard::take_from_bytes(rest)?;
            if !limits.is_empty() {
                let limited = Limited::read(&limits, graph.jobs.len());
                graph.limited = Some(limited.ok_or(postcard::Error::SerdeDeCustom)?);
            }
            if !rest.is_empty() {
                graph.jobs =
                    Jobs::new(with_max_lost(&graph.jobs, postcard::from_bytes(rest)?)?).into();
            }
        }
        Ok(graph)
    }
}

/// Jobs of which another number of lost leases than usual is tried again, and that number.
type MaxLost = Vec<(JobIndex, u16)>;

impl Graph {
    fn max_lost(&self) -> MaxLost {
        let each = self
            .jobs
            .iter()
            .enumerate()
            .filter(|(_, job)| job.max_lost != DEFAULT_MAX_LOST);
        each.map(|(at, job)| (JobIndex(at as u32), job.max_lost))
            .collect()
    }
}

fn with_max_lost(jobs: &[GraphJob], max_lost: MaxLost) -> Result<Vec<GraphJob>, postcard::Error> {
    let mut jobs = jobs.to_vec();
    for (index, max_lost) in max_lost {
        jobs.get_mut(index.index())
            .ok_or(postcard::Error::SerdeDeCustom)?
            .max_lost = max_lost;
    }
    Ok(jobs)
}

#[derive(Serialize)]
#[serde(rename = "Graph")]
struct Written<'a> {
    label: &'a Label,
    globals: Option<&'a Json>,
    on_failure: OnFailure,
    retention: Option<Retention>,
    idempotency_key: Option<&'a str>,
    #[serde(serialize_with = "jobs")]
    jobs: &'a Graph,
}

#[derive(Serialize)]
struct WrittenJob<'a> {
    name: &'a str,
    handler: &'a str,
    params: Option<&'a Json>,
    queue: &'a str,
    wait: Duration,
    priority: u8,
    retry: Retry,
    timeout: Option<Duration>,
    rule: TriggerRule,
    parents: &'a [JobIndex],
}

#[derive(Deserialize)]
pub(super) struct Read {
    label: Label,
    globals: Option<Json>,
    on_failure: OnFailure,
    retention: Option<Retention>,
    idempotency_key: Option<String>,
    jobs: ReadJobs,
}

/// Jobs, and the params of each: they are taken apart as they are read, because there may be very many.
#[derive(Default)]
struct ReadJobs(Vec<GraphJob>, Vec<Option<Json>>);

#[derive(Deserialize)]
struct ReadJob {
    name: String,
    handler: String,
    params: Option<Json>,
    queue: String,
    wait: Duration,
    priority: u8,
    retry: Retry,
    timeout: Option<Duration>,
    rule: TriggerRule,
    parents: Vec<JobIndex>,
}

impl<'de> Deserialize<'de> for ReadJobs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Self::default())
    }
}

impl<'de> Visitor<'de> for ReadJobs {
    type Value = Self;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("jobs")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut jobs: A) -> Result<Self, A::Error> {
        while let Some(job) = jobs.next_element()? {
            let ReadJob {
                name,
                handler,
                params,
                queue,
                wait,
                priority,
                retry,
                timeout,
                rule,
                parents,
            } = job;
            let max_lost = DEFAULT_MAX_LOST;
            self.0.push(GraphJob {
                name,
                handler,
                queue,
                wait,
                priority,
                retry,
                max_lost,
                timeout,
                rule,
                parents,
            });
            self.1.push(params);
        }
        Ok(self)
    }
}

/// Without the limits of jobs.
impl Serialize for Graph {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self {
            label,
            globals,
            on_failure,
            retention,
            idempotency_key,
            ..
        } = self;
        let (globals, idempotency_key) = (globals.as_ref(), idempotency_key.as_deref());
        let (on_failure, retention) = (*on_failure, *retention);
        Written {
            label,
            globals,
            on_failure,
            retention,
            idempotency_key,
            jobs: self,
        }
        .serialize(serializer)
    }
}

fn jobs<S: Serializer>(graph: &&Graph, serializer: S) -> Result<S::Ok, S::Error> {
    let each = graph.jobs.iter().enumerate();
    serializer.collect_seq(each.map(|(at, job)| {
        let GraphJob {
            name,
            handler,
            queue,
            wait,
            priority,
            retry,
            timeout,
            rule,
            parents,
            ..
        } = job;
        let params = graph.params(JobIndex(at as u32));
        let (wait, priority, retry, timeout, rule) = (*wait, *priority, *retry, *timeout, *rule);
        WrittenJob {
            name,
            handler,
            params,
            queue,
            wait,
            priority,
            retry,
            timeout,
            rule,
            parents,
        }
    }))
}

impl From<Read> for Graph {
    fn from(read: Read) -> Self {
        let Read {
            label,
            globals,
            on_failure,
            retention,
            idempotency_key,
            jobs: ReadJobs(jobs, params),
        } = read;
        let (jobs, params) = (Jobs::new(jobs).into(), compact(params));
        Self {
            label,
            globals,
            on_failure,
            retention,
            idempotency_key,
            params,
            limited: None,
            jobs,
        }
    }
}
