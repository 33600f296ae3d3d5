//! The rows of a workflow in its partition: pure functions of its state. A write adds and removes
//! the difference between the rows before and after, so rows always agree with the state.

use std::borrow::Cow;

use crate::graph::Graph;
use crate::model::workflow_state::Job;
use crate::model::{JobIndex, JobState, Label, Status, Timestamp, WorkflowId};

/// Separates a handler from a limit key in a row. No name contains it.
const LIMIT_KEY_SEPARATOR: char = '\u{1}';

/// A row of a sorted set. Rows are sorted by their bytes.
pub type Row = Vec<u8>;

/// A job that waits for a worker.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadyJob {
    /// The queue. Workers name the queues that they serve.
    pub queue: String,
    /// The handler that a worker runs.
    pub handler: String,
    /// The key of the job's limits; empty without limits.
    pub limit_key: String,
    /// Jobs with a higher priority are claimed first.
    pub priority: u8,
    /// The time at which the job became ready. Older jobs are claimed first.
    pub since: Timestamp,
    /// Its workflow.
    pub workflow: WorkflowId,
    /// The position of the job in its workflow.
    pub job: JobIndex,
}

impl ReadyJob {
    /// The row of the job: queue, zero byte, handler, zero byte, priority from high to low, time,
    /// workflow, job. With limits, a byte of one and the limit key follow the handler.
    #[must_use]
    pub fn row(&self) -> Row {
        let row = ReadyRow {
            queue: &self.queue,
            handler: &self.handler,
            limit_key: &self.limit_key,
            key: ReadyKey::new(self.priority, self.since, self.workflow, self.job),
        };
        row.bytes()
    }

    /// The job that made `row`.
    #[must_use]
    pub fn read(row: &[u8]) -> Option<Self> {
        let row = ReadyRow::read(row)?;
        Some(Self {
            queue: row.queue.to_owned(),
            handler: row.handler.to_owned(),
            limit_key: row.limit_key.to_owned(),
            priority: row.key.priority(),
            since: row.key.since(),
            workflow: row.key.workflow(),
            job: row.key.job(),
        })
    }
}

/// The decoded parts of a ready row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadyRow<'a> {
    pub(crate) queue: &'a str,
    pub(crate) handler: &'a str,
    /// Empty without limits.
    pub(crate) limit_key: &'a str,
    pub(crate) key: ReadyKey,
}

/// Priority, time, workflow and position of a ready job: the end of its row. Keys sort in claim
/// order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ReadyKey([u8; Self::BYTES]);

impl<'a> ReadyRow<'a> {
    pub(crate) fn read(row: &'a [u8]) -> Option<Self> {
        let (queue, tail) = split_at_zero(row)?;
        let (lane, key_bytes) = split_at_zero(tail)?;
        let (handler, limit_key) = lane.split_once(LIMIT_KEY_SEPARATOR).unwrap_or((lane, ""));
        Some(Self {
            queue,
            handler,
            limit_key,
            key: ReadyKey(key_bytes.try_into().ok()?),
        })
    }

    fn bytes(&self) -> Row {
        let names = self.queue.len() + self.handler.len() + self.limit_key.len();
        let mut row = Vec::with_capacity(names + 3 + ReadyKey::BYTES);
        row.extend_from_slice(self.queue.as_bytes());
        row.push(0);
        push_lane(&mut row, self.handler, self.limit_key);
        row.extend_from_slice(&self.key.0);
        row
    }
}

/// The text before the first zero byte, and the bytes after that zero byte.
fn split_at_zero(row: &[u8]) -> Option<(&str, &[u8])> {
    let end = row.iter().position(|&byte| byte == 0)?;
    Some((std::str::from_utf8(&row[..end]).ok()?, &row[end + 1..]))
}

impl ReadyKey {
    const BYTES: usize = 1 + 8 + 16 + 4;

    fn new(priority: u8, since: Timestamp, workflow: WorkflowId, job: JobIndex) -> Self {
        let mut bytes = [u8::MAX - priority; Self::BYTES];
        bytes[1..9].copy_from_slice(&since.micros().to_be_bytes());
        bytes[9..25].copy_from_slice(workflow.bytes());
        bytes[25..].copy_from_slice(&job.0.to_be_bytes());
        Self(bytes)
    }

    fn chunk<const N: usize>(self, from: usize) -> [u8; N] {
        std::array::from_fn(|at| self.0[from + at])
    }

    pub(crate) fn priority(self) -> u8 {
        u8::MAX - self.0[0]
    }

    pub(crate) fn since(self) -> Timestamp {
        Timestamp::from_micros(u64::from_be_bytes(self.chunk(1)))
    }

    pub(crate) fn workflow(self) -> WorkflowId {
        WorkflowId::from_bytes(self.chunk(9))
    }

    pub(crate) fn job(self) -> JobIndex {
        JobIndex(u32::from_be_bytes(self.chunk(25)))
    }
}

/// The prefix of all ready rows of a queue. No name contains a zero byte, so no prefix of one queue
/// is a prefix of another.
#[must_use]
pub fn queue_rows(queue: &str) -> Row {
    let mut row = queue.as_bytes().to_vec();
    row.push(0);
    row
}

/// The prefix of a row that all rows of its lane share.
pub(crate) fn lane_prefix(row: &[u8]) -> &[u8] {
    let mut zeros = row
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == 0)
        .map(|(at, _)| at);
    zeros.nth(1).map_or(row, |second| &row[..=second])
}

/// Whether a lane, given by the prefix of its rows, holds jobs with limits.
pub(crate) fn is_limited(lane: &[u8]) -> bool {
    lane.contains(&(LIMIT_KEY_SEPARATOR as u8))
}

/// A row that sorts after all rows of a lane and before those of all later lanes. `lane` is the
/// prefix of its rows.
pub(crate) fn lane_end(lane: &[u8]) -> Row {
    let mut end = lane.to_vec();
    end.pop();
    end.push(LIMIT_KEY_SEPARATOR as u8);
    end
}

/// A row that sorts after all rows of a lane's queue.
pub(crate) fn queue_end(lane: &[u8]) -> Row {
    let queue = lane
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(lane.len());
    [&lane[..queue], &[1]].concat()
}

/// A part of the index whose rows end in workflow ids, ascending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section<'a> {
    /// All workflows.
    All,
    /// Workflows of a status.
    Status(Status),
    /// Workflows of a name and status.
    Name(&'a str, Status),
    /// Workflows with a tag and a status.
    Tag(&'a str, Status),
}

impl Section<'_> {
    /// The prefix of the section's rows.
    #[must_use]
    pub fn prefix(self) -> Row {
        let (kind, name, status) = match self {
            Self::All => (b'c', None, None),
            Self::Status(status) => (b's', None, Some(status)),
            Self::Name(name, status) => (b'n', Some(name), Some(status)),
            Self::Tag(tag, status) => (b't', Some(tag), Some(status)),
        };
        // The capacity includes the workflow id that callers append.
        let mut row = Vec::with_capacity(3 + name.map_or(0, str::len) + size_of::<WorkflowId>());
        row.push(kind);
        if let Some(name) = name {
            row.extend_from_slice(name.as_bytes());
            row.push(0);
        }
        row.extend(status.map(|status| status as u8));
        row
    }

    fn row(self, id: WorkflowId) -> Row {
        let mut row = self.prefix();
        row.extend_from_slice(id.bytes());
        row
    }
}

/// The workflow of an index row.
#[must_use]
pub fn workflow_in_row(row: &[u8]) -> Option<WorkflowId> {
    row.last_chunk().map(|&bytes| WorkflowId::from_bytes(bytes))
}

/// The index rows of a workflow that depend on its status.
pub(crate) fn status_rows(id: WorkflowId, label: &Label, status: Status) -> Vec<Row> {
    let tags = label.tags.iter().map(|tag| Section::Tag(tag, status));
    let sections = [Section::Status(status), Section::Name(&label.name, status)]
        .into_iter()
        .chain(tags);
    sections.map(|section| section.row(id)).collect()
}

/// The index row of a workflow that does not depend on its status.
pub(crate) fn permanent_row(id: WorkflowId) -> Row {
    Section::All.row(id)
}

/// The ready row of a job. `None` if the job is not ready.
pub(crate) fn ready_row(
    workflow: WorkflowId,
    index: JobIndex,
    job: &Job,
    graph: &Graph,
    status: Status,
) -> Option<Row> {
    let since = job
        .ready_at
        .filter(|_| status == Status::Running && job.state == JobState::Ready)?;
    let definition = &graph.jobs[index.index()];
    let limits = graph.limits(index);
    let limit_key = limits.map_or(Cow::Borrowed(""), |limits| {
        limits.key_for_workflow(workflow)
    });
    let row = ReadyRow {
        queue: &definition.queue,
        handler: &definition.handler,
        limit_key: &limit_key,
        key: ReadyKey::new(definition.priority, since, workflow, index),
    };
    Some(row.bytes())
}

/// The prefix of the ready rows of a queue, handler and limit key, which is empty without limits.
#[must_use]
pub fn lane_rows(queue: &str, handler: &str, limit_key: &str) -> Row {
    let mut row = queue_rows(queue);
    push_lane(&mut row, handler, limit_key);
    row
}

fn push_lane(row: &mut Row, handler: &str, limit_key: &str) {
    row.extend_from_slice(handler.as_bytes());
    if !limit_key.is_empty() {
        row.push(LIMIT_KEY_SEPARATOR as u8);
        row.extend_from_slice(limit_key.as_bytes());
    }
    row.push(0);
}

/// The ready rows of a workflow.
pub(crate) fn ready_rows(id: WorkflowId, graph: &Graph, jobs: &[Job], status: Status) -> Vec<Row> {
    let indexed_jobs = (0..).map(JobIndex).zip(jobs);
    indexed_jobs
        .filter_map(|(index, job)| ready_row(id, index, job, graph, status))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Partition;

    fn entry(queue: &str, priority: u8, since: u64) -> ReadyJob {
        ReadyJob {
            queue: queue.to_owned(),
            handler: "do it".to_owned(),
            limit_key: String::new(),
            priority,
            since: Timestamp::from_micros(since),
            workflow: WorkflowId::new(Timestamp::from_micros(1), Partition(3), since.into()),
            job: JobIndex(9),
        }
    }

    #[test]
    fn ready_rows_sort_by_priority_then_age_and_are_read_back() {
        let sorted = [
            entry("a", 9, 7),
            entry("a", 9, 300),
            entry("a", 0, 1),
            entry("aé", 255, 1),
        ];
        assert!(sorted.iter().map(ReadyJob::row).is_sorted());
        for entry in sorted {
            let row = entry.row();
            assert!(row.starts_with(&queue_rows(&entry.queue)));
            assert_eq!(ReadyJob::read(&row), Some(entry));
        }
        assert_eq!(ReadyJob::read(b"short"), None);
        assert_eq!(ReadyJob::read(b"queue\0key\0short"), None);
    }

    #[test]
    fn rows_of_a_lane_begin_alike() {
        let limited = ReadyJob {
            limit_key: r#"[["d",1,"k","v"]]"#.to_owned(),
            job: JobIndex(70_000),
            ..entry("a", 0, 1)
        };
        let row = limited.row();
        assert_eq!(ReadyJob::read(&row), Some(limited.clone()));
        assert!(row.starts_with(&lane_rows("a", "do it", &limited.limit_key)));
        assert!(!row.starts_with(&lane_rows("a", "do it", "")));
        assert!(!row.starts_with(&lane_rows("a", "do", "")));
        let free = entry("a", 0, 1).row();
        assert!(free.starts_with(&lane_rows("a", "do it", "")));
    }
}
