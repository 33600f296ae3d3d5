//! The state of a small workflow as one value: its meta, its label, and all of its jobs. A short
//! value costs a store less than several values. The value begins with the meta, so it can be
//! decoded as a meta alone.

use super::{
    CodecError, Format, Record, StoreError, append, downgraded, encode, unreadable, upgraded,
};
use crate::graph::Graph;
use crate::model::workflow_state::Job;
use crate::model::{JobIndex, Json, Label, Meta};

/// Maximum number of jobs of a small workflow. Each adds about 50 bytes to every write.
const MAX_JOBS: usize = 8;
/// Maximum bytes of a small workflow's label: the label is part of every write.
const MAX_LABEL_BYTES: usize = 256;
/// Maximum bytes of a small workflow's graph, estimated by [`text_bytes`]. Small graphs are read in
/// batches without a check of their sizes.
pub(crate) const MAX_GRAPH_BYTES: usize = 16 << 10;

/// Whether the state of a workflow with this graph is one value. The workflow id holds this fact
/// for the store.
pub(crate) fn is_small(graph: &Graph) -> bool {
    let Label { name, tags } = &graph.label;
    let label = name.len() + tags.iter().map(String::len).sum::<usize>();
    graph.jobs.len() <= MAX_JOBS
        && label <= MAX_LABEL_BYTES
        && label + text_bytes(graph) <= MAX_GRAPH_BYTES
}

/// Bytes of names, params and limits of a graph with few jobs.
fn text_bytes(graph: &Graph) -> usize {
    let json_bytes =
        |json_bytes: Option<&Json>| json_bytes.map_or(0, |json_bytes| json_bytes.text().len());
    let mut bytes = graph.idempotency_key.as_ref().map_or(0, String::len);
    bytes += json_bytes(graph.globals.as_ref());
    for (index, job) in (0..).map(JobIndex).zip(graph.jobs.iter()) {
        let limits = graph.limits(index).map_or(0, |limits| limits.key().len());
        bytes += job.name.len() + job.handler.len() + job.queue.len();
        bytes += json_bytes(graph.params(index)) + limits;
    }
    bytes
}

/// Returns the encoded value and the length of its meta in bytes.
pub(crate) fn encode_compact(
    meta: &Meta,
    label: &Label,
    jobs: &[Job],
    format: Format,
) -> (Vec<u8>, usize) {
    let bytes = encode(meta, Format::LATEST);
    let length = bytes.len();
    let value = downgraded(Meta::KIND, append(bytes, &(label, jobs)), format);
    (value, meta_bytes(meta, format, length))
}

/// Bytes of a meta in a format. `latest` is its length in the latest format.
fn meta_bytes(meta: &Meta, format: Format, latest: usize) -> usize {
    if format == Format::LATEST {
        latest
    } else {
        encode(meta, format).len()
    }
}

/// A decoded value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DecodedValue {
    pub(crate) meta: Meta,
    /// Bytes of the value that belong to the meta.
    pub(crate) meta_bytes: usize,
    /// `None` if the workflow is not small: the value then holds no jobs.
    pub(crate) jobs: Option<Vec<Job>>,
}

/// Decodes a value. `what` describes the value in the error.
pub(crate) fn decode_compact(
    value: &[u8],
    what: impl FnOnce() -> String,
) -> Result<DecodedValue, StoreError> {
    try_decode(value).map_err(|error| unreadable(error, what))
}

fn try_decode(value: &[u8]) -> Result<DecodedValue, CodecError> {
    let (format, record) = upgraded(Meta::KIND, value)?;
    let (meta, rest): (Meta, _) = postcard::take_from_bytes(&record)?;
    let latest = Format::LATEST.mark().len() + record.len() - rest.len();
    let length = meta_bytes(&meta, format, latest);
    let jobs = if rest.is_empty() {
        None
    } else {
        let (_, jobs): (Label, Vec<Job>) = postcard::from_bytes(rest)?;
        Some(jobs)
    };
    Ok(DecodedValue {
        meta,
        meta_bytes: length,
        jobs,
    })
}

/// The encoded label in a value. `None` if the value holds no label.
pub(crate) fn encoded_label(value: &[u8]) -> Option<Vec<u8>> {
    let (format, record) = upgraded(Meta::KIND, value).ok()?;
    let (_, rest) = postcard::take_from_bytes::<Meta>(&record).ok()?;
    let (label, _) = postcard::take_from_bytes::<Label>(rest).ok()?;
    Some(encode(&label, format))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{UPGRADES, decode};
    use crate::graph::{Definition, JobDefinition};
    use crate::model::{Counts, JobState, Status, Timestamp};

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
            [100, MAX_GRAPH_BYTES / 2 - 100, MAX_GRAPH_BYTES / 2].map(is_small),
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
        let formats = UPGRADES.iter().map(|upgrade| upgrade.from);
        for format in formats.chain([Format::LATEST]) {
            let (value, length) = encode_compact(&meta, &label, &jobs, format);
            let what = || "a value".to_owned();
            let read = |jobs: Option<&[Job]>| {
                Ok(DecodedValue {
                    meta: meta.clone(),
                    meta_bytes: length,
                    jobs: jobs.map(<[Job]>::to_vec),
                })
            };
            assert_eq!(Format::split_mark(&value).unwrap().0, format);
            assert_eq!(decode::<Meta>(&value, what).unwrap(), meta);
            assert_eq!(decode_compact(&value, what), read(Some(&jobs)));
            assert_eq!(decode_compact(&value[..length], what), read(None));
            assert_eq!(label_of(&value), label);
            assert!(decode_compact(&value[..value.len() - 1], what).is_err());
        }
    }

    fn label_of(value: &[u8]) -> Label {
        decode(&super::encoded_label(value).unwrap(), String::new).unwrap()
    }
}
