//! The rows of a workflow in its partition: pure functions of its state. A write adds and removes the difference between the rows
//! before and after, so rows always agree with the state.

use crate::graph::{Graph, GraphJob};
use crate::id::{JobIndex, WorkflowId};
use crate::state::{Job, JobState, Label, Status};
use crate::time::Timestamp;

/// A row of a sorted set. Rows are sorted by their bytes.
pub type Row = Vec<u8>;

/// A job that waits for a worker.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadyEntry {
    /// The queue. Workers name the queues that they serve.
    pub queue: String,
    /// Jobs with a higher priority are taken first.
    pub priority: u8,
    /// Since when it is ready. Older jobs are taken first.
    pub since: Timestamp,
    /// Its workflow.
    pub workflow: WorkflowId,
    /// Its position there.
    pub job: JobIndex,
}

impl ReadyEntry {
    /// The ready entry of a job. None: the job is not ready.
    pub(crate) fn of(id: WorkflowId, index: JobIndex, job: &Job, about: &GraphJob, status: Status) -> Option<Self> {
        let since = job.ready_at.filter(|_| status == Status::Running && job.state == JobState::Ready)?;
        Some(Self { queue: about.queue.clone(), priority: about.priority, since, workflow: id, job: index })
    }

    /// Queue, zero, priority from high to low, time, workflow, job.
    #[must_use]
    pub fn row(&self) -> Row {
        let mut row = queue_rows(&self.queue);
        row.push(u8::MAX - self.priority);
        row.extend_from_slice(&self.since.micros().to_be_bytes());
        row.extend_from_slice(self.workflow.bytes());
        row.extend_from_slice(&self.job.0.to_be_bytes());
        row
    }

    /// The entry that made `row`.
    #[must_use]
    pub fn read(row: &[u8]) -> Option<Self> {
        const TAIL: usize = 1 + 1 + 8 + 16 + 2;
        let (queue, tail) = row.split_at_checked(row.len().checked_sub(TAIL)?)?;
        Some(Self {
            queue: String::from_utf8(queue.to_vec()).ok()?,
            priority: u8::MAX - tail[1],
            since: Timestamp::from_micros(u64::from_be_bytes(tail[2..10].try_into().ok()?)),
            workflow: WorkflowId::from_bytes(tail[10..26].try_into().ok()?),
            job: JobIndex(u16::from_be_bytes(tail[26..].try_into().ok()?)),
        })
    }
}

/// The beginning of all ready rows of a queue. No name contains a zero byte, so the rows of two queues begin differently.
#[must_use]
pub fn queue_rows(queue: &str) -> Row {
    let mut row = queue.as_bytes().to_vec();
    row.push(0);
    row
}

/// A part of the index whose rows end in workflow ids, ascending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section<'a> {
    /// All workflows.
    All,
    /// Those of a status.
    Status(Status),
    /// Those of a name and status.
    Name(&'a str, Status),
    /// Those with a tag, of a status.
    Tag(&'a str, Status),
}

impl Section<'_> {
    /// The beginning of its rows.
    #[must_use]
    pub fn prefix(self) -> Row {
        let named = |kind: u8, name: &str, status: Status| {
            let mut row = vec![kind];
            row.extend_from_slice(name.as_bytes());
            row.extend_from_slice(&[0, status as u8]);
            row
        };
        match self {
            Self::All => vec![b'c'],
            Self::Status(status) => vec![b's', status as u8],
            Self::Name(name, status) => named(b'n', name, status),
            Self::Tag(tag, status) => named(b't', tag, status),
        }
    }

    fn row(self, id: WorkflowId) -> Row {
        let mut row = self.prefix();
        row.extend_from_slice(id.bytes());
        row
    }
}

/// The workflow that an index row is about.
#[must_use]
pub fn workflow_of(row: &[u8]) -> Option<WorkflowId> {
    row.last_chunk().map(|&bytes| WorkflowId::from_bytes(bytes))
}

/// The index rows of a workflow that depend on its status.
pub(crate) fn status_rows(id: WorkflowId, label: &Label, status: Status) -> Vec<Row> {
    let tags = label.tags.iter().map(|tag| Section::Tag(tag, status));
    let sections = [Section::Status(status), Section::Name(&label.name, status)].into_iter().chain(tags);
    sections.map(|section| section.row(id)).collect()
}

/// The index row that a workflow has as long as it exists.
pub(crate) fn lasting_row(id: WorkflowId) -> Row {
    Section::All.row(id)
}

/// The ready rows of a workflow.
pub(crate) fn ready_rows(id: WorkflowId, graph: &Graph, jobs: &[Job], status: Status) -> Vec<Row> {
    let entries = jobs.iter().zip(&graph.jobs).enumerate();
    let entries = entries.filter_map(|(at, (job, about))| ReadyEntry::of(id, JobIndex(at as u16), job, about, status));
    entries.map(|entry| entry.row()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Partition;

    #[test]
    fn ready_rows_sort_by_priority_then_age_and_are_read_back() {
        let entry = |queue: &str, priority, since| ReadyEntry {
            queue: queue.to_owned(),
            priority,
            since: Timestamp::from_micros(since),
            workflow: WorkflowId::new(Timestamp::from_micros(1), Partition(3), since.into()),
            job: JobIndex(9),
        };
        let sorted = [entry("a", 9, 7), entry("a", 9, 300), entry("a", 0, 1), entry("aé", 255, 1)];
        assert!(sorted.iter().map(ReadyEntry::row).is_sorted());
        for entry in sorted {
            assert!(entry.row().starts_with(&queue_rows(&entry.queue)));
            assert_eq!(ReadyEntry::read(&entry.row()), Some(entry));
        }
        assert_eq!(ReadyEntry::read(b"short"), None);
    }
}
