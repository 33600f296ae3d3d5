//! The state of a small workflow as one value: its meta, its label, and all of its jobs. One value costs a store less than several, as
//! long as it is short. The value begins with the meta, so whoever wants no more reads it as a meta.

use super::codec::{EarlierJob, encode, extended, unreadable};
use super::format::Format;
use crate::graph::json::Json;
use crate::graph::{Graph, GraphJob};
use crate::id::JobIndex;
use crate::state::{Job, Label, Meta};
use crate::store::error::StoreError;

/// The most jobs of a small workflow. Each adds some 50 bytes to every write.
const JOBS: usize = 8;
/// The most bytes of a label of a small workflow.
const LABEL: usize = 256;
/// About the most bytes of a graph of a small workflow: many of them are read at once, without a look at their sizes.
pub(crate) const GRAPH: usize = 16 << 10;

/// Whether the state of a workflow with this graph is one value. For the store, the id of the workflow says the same.
pub(crate) fn is_small(graph: &Graph) -> bool {
    let Label { name, tags } = &graph.label;
    let label = name.len() + tags.iter().map(String::len).sum::<usize>();
    graph.jobs.len() <= JOBS && label <= LABEL && label + texts(graph) <= GRAPH
}

/// The bytes of names, params and limits of a graph with few jobs.
fn texts(graph: &Graph) -> usize {
    let json = |json: Option<&Json>| json.map_or(0, |json| json.text().len());
    let job = |(at, job): (usize, &GraphJob)| {
        let limits = graph
            .limits(JobIndex(at as u32))
            .map_or(0, |limits| limits.key().len());
        job.name.len()
            + job.handler.len()
            + job.queue.len()
            + json(graph.params(JobIndex(at as u32)))
            + limits
    };
    graph.idempotency_key.as_ref().map_or(0, String::len)
        + json(graph.globals.as_ref())
        + graph.jobs.iter().enumerate().map(job).sum::<usize>()
}

/// The value, and how many of its bytes are the meta.
pub(crate) fn join(meta: &Meta, label: &Label, jobs: &[Job], format: Format) -> (Vec<u8>, usize) {
    // Earlier formats have no such value. A workflow of which the store has one may be written by a process that has not noticed a migration.
    let format = format.max(Format::Third);
    let meta = encode(meta, format);
    let length = meta.len();
    let value = match format {
        Format::Fourth => extended(meta, &(label, jobs)),
        _ => extended(
            meta,
            &(label, jobs.iter().map(EarlierJob::from).collect::<Vec<_>>()),
        ),
    };
    (value, length)
}

/// Reads a value: the meta, how many of its bytes are the meta, and all jobs. No jobs: they are not in the value, because the workflow is
/// not a small one.
pub(crate) fn split(
    value: &[u8],
    what: impl Fn() -> String,
) -> Result<(Meta, usize, Option<Vec<Job>>), StoreError> {
    let (format, record) = Format::of_record(value).map_err(|error| unreadable(error, &what))?;
    let (meta, rest): (Meta, _) =
        postcard::take_from_bytes(record).map_err(|error| unreadable(error, &what))?;
    let length = value.len() - rest.len();
    if format < Format::Third || rest.is_empty() {
        return Ok((meta, length, None));
    }
    let jobs = match format {
        Format::Third => postcard::from_bytes(rest)
            .map(|(_, jobs): (Label, Vec<EarlierJob>)| jobs.into_iter().map(Job::from).collect()),
        _ => postcard::from_bytes(rest).map(|(_, jobs): (Label, Vec<Job>)| jobs),
    };
    Ok((
        meta,
        length,
        Some(jobs.map_err(|error| unreadable(error, &what))?),
    ))
}

/// The label in a value, encoded; none: the value has none.
pub(crate) fn label(value: &[u8]) -> Option<Vec<u8>> {
    let (format, record) = Format::of_record(value).ok()?;
    let (_, rest) = postcard::take_from_bytes::<Meta>(record).ok()?;
    let (label, _) = postcard::take_from_bytes::<Label>(rest).ok()?;
    Some(encode(&label, format))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::definition::{Definition, JobDefinition};
    use crate::record::codec::decode;
    use crate::state::{Counts, JobState, Status};
    use crate::time::Timestamp;

    #[test]
    fn few_jobs_with_large_params_are_not_small() {
        let is_small = |params: usize| {
            let mut job = JobDefinition::new("a", "h");
            job.params =
                Some(Json::parse(format!(r#"{{"text":"{}"}}"#, "x".repeat(params))).unwrap());
            let jobs = vec![
                job.clone(),
                JobDefinition {
                    name: "b".to_owned(),
                    ..job
                },
            ];
            super::is_small(
                &Graph::build(Definition {
                    name: "w".to_owned(),
                    jobs,
                    ..Definition::default()
                })
                .unwrap(),
            )
        };
        assert_eq!(
            [100, GRAPH / 2 - 100, GRAPH / 2].map(is_small),
            [true, true, false]
        );
    }

    #[test]
    fn a_value_is_read_as_a_meta_and_as_a_whole() {
        let meta = Meta {
            version: 300,
            writer: 7,
            status: Status::Running,
            created_at: Timestamp::from_micros(9),
            started_at: None,
            finished_at: None,
            retention: None,
            expires_at: None,
            timer: None,
            counts: Counts::default(),
        };
        let label = Label {
            name: "é".to_owned(),
            tags: vec!["a".to_owned()],
        };
        let jobs = [
            Job::default(),
            Job {
                state: JobState::Ready,
                fence: 7,
                ..Job::default()
            },
        ];
        for format in [Format::Third, Format::Fourth] {
            let (value, length) = join(&meta, &label, &jobs, format);
            let what = || "a value".to_owned();
            assert_eq!(decode::<Meta>(&value, what).unwrap(), meta);
            assert_eq!(
                split(&value, what).unwrap(),
                (meta.clone(), length, Some(jobs.to_vec()))
            );
            assert_eq!(
                split(&value[..length], what).unwrap(),
                (meta.clone(), length, None)
            );
            assert_eq!(label_of(&value), label);
            assert!(split(&value[..value.len() - 1], what).is_err());
        }
    }

    fn label_of(value: &[u8]) -> Label {
        decode(&super::label(value).unwrap(), String::new).unwrap()
    }
}
