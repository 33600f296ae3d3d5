//! The rows of a workflow in its partition: pure functions of its state. A write adds and removes the difference between the rows
//! before and after, so rows always agree with the state.

use super::format::Format;
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
    /// The key of the limits that the job waits for; empty without limits, and always in the first format.
    pub limit_key: String,
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
    /// Queue, zero, key of the limits, zero, priority from high to low, time, workflow, job. The first format has no key.
    #[must_use]
    pub fn row(&self, format: Format) -> Row {
        ready_row((&self.queue, &self.limit_key, self.priority), self.since, (self.workflow, self.job), format)
    }

    /// The entry that made `row`, in whatever format.
    #[must_use]
    pub fn read(row: &[u8]) -> Option<Self> {
        let ReadyRow { queue, limit_key, place } = ReadyRow::read(row)?;
        Some(Self {
            queue: queue.to_owned(),
            limit_key: limit_key.to_owned(),
            priority: place.priority(),
            since: place.since(),
            workflow: place.workflow(),
            job: place.job(),
        })
    }
}

/// A ready row, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadyRow<'a> {
    pub(crate) queue: &'a str,
    pub(crate) limit_key: &'a str,
    pub(crate) place: ReadyPlace,
}

/// Priority, time, workflow and position of a ready job, the same for rows of all formats. It sorts as jobs are to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ReadyPlace([u8; Self::BYTES]);

impl<'a> ReadyRow<'a> {
    /// What follows the queue and its zero in the first format.
    const FIRST: usize = ReadyPlace::BYTES - 2;

    pub(crate) fn read(row: &'a [u8]) -> Option<Self> {
        let (queue, tail) = until_zero(row)?;
        if tail.len() == Self::FIRST {
            let (most, job) = tail.split_last_chunk::<2>()?;
            let place = [most, &[0, 0], job].concat();
            return Some(Self { queue, limit_key: "", place: ReadyPlace(place.try_into().ok()?) });
        }
        let (limit_key, place) = until_zero(tail)?;
        Some(Self { queue, limit_key, place: ReadyPlace(place.try_into().ok()?) })
    }
}

/// The text before the first zero, and what comes after that zero.
fn until_zero(row: &[u8]) -> Option<(&str, &[u8])> {
    let end = row.iter().position(|&byte| byte == 0)?;
    Some((std::str::from_utf8(&row[..end]).ok()?, &row[end + 1..]))
}

impl ReadyPlace {
    const BYTES: usize = 1 + 8 + 16 + 4;

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
        let (kind, name, status) = match self {
            Self::All => (b'c', None, None),
            Self::Status(status) => (b's', None, Some(status)),
            Self::Name(name, status) => (b'n', Some(name), Some(status)),
            Self::Tag(tag, status) => (b't', Some(tag), Some(status)),
        };
        // With room for what follows it in a row.
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

/// The ready row of a job. None: the job is not ready.
pub(crate) fn ready_row_of(
    (id, index): (WorkflowId, JobIndex),
    job: &Job,
    about: &GraphJob,
    (status, format): (Status, Format),
) -> Option<Row> {
    let since = job.ready_at.filter(|_| status == Status::Running && job.state == JobState::Ready)?;
    Some(ready_row((&about.queue, "", about.priority), since, (id, index), format))
}

fn ready_row(
    (queue, limit_key, priority): (&str, &str, u8),
    since: Timestamp,
    (workflow, job): (WorkflowId, JobIndex),
    format: Format,
) -> Row {
    let mut row = Vec::with_capacity(queue.len() + 1 + limit_key.len() + 1 + ReadyPlace::BYTES);
    row.extend_from_slice(queue.as_bytes());
    row.push(0);
    if format > Format::First {
        row.extend_from_slice(limit_key.as_bytes());
        row.push(0);
    }
    row.push(u8::MAX - priority);
    row.extend_from_slice(&since.micros().to_be_bytes());
    row.extend_from_slice(workflow.bytes());
    match format {
        Format::First => row.extend_from_slice(&(job.0 as u16).to_be_bytes()),
        Format::Second | Format::Third => row.extend_from_slice(&job.0.to_be_bytes()),
    }
    row
}

/// The ready rows of a workflow.
pub(crate) fn ready_rows(id: WorkflowId, graph: &Graph, jobs: &[Job], status: Status, format: Format) -> Vec<Row> {
    let entries = jobs.iter().zip(graph.jobs.iter()).enumerate();
    let row = |(at, (job, about))| ready_row_of((id, JobIndex(at as u32)), job, about, (status, format));
    entries.filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Partition;

    #[test]
    fn ready_rows_sort_by_priority_then_age_and_are_read_back() {
        let entry = |queue: &str, priority, since| ReadyEntry {
            queue: queue.to_owned(),
            limit_key: String::new(),
            priority,
            since: Timestamp::from_micros(since),
            workflow: WorkflowId::new(Timestamp::from_micros(1), Partition(3), since.into()),
            job: JobIndex(9),
        };
        let sorted = [entry("a", 9, 7), entry("a", 9, 300), entry("a", 0, 1), entry("aé", 255, 1)];
        for format in [Format::First, Format::Second, Format::Third] {
            assert!(sorted.iter().map(|entry| entry.row(format)).is_sorted());
            for entry in &sorted {
                let row = entry.row(format);
                assert!(row.starts_with(&queue_rows(&entry.queue)));
                assert_eq!(ReadyEntry::read(&row).as_ref(), Some(entry));
            }
        }
        let limited = ReadyEntry { limit_key: "vendor".to_owned(), job: JobIndex(70_000), ..entry("a", 0, 1) };
        assert_eq!(ReadyEntry::read(&limited.row(Format::Second)), Some(limited));
        assert_eq!(ReadyEntry::read(b"short"), None);
        assert_eq!(ReadyEntry::read(b"queue\0key\0short"), None);
    }
}
