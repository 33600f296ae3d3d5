//! Counts of running jobs by queue. A workflow with a running job has a timer, so only workflows
//! with timers are read, a bounded number in each call.

use hashbrown::HashMap;

use super::listed;
use crate::codec::due::read_due_row;
use crate::codec::rows::Row;
use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::graph::Graph;
use crate::id::{Partition, WorkflowId};
use crate::state::{Job, JobState};
use crate::store::query::{RowSet, TimeIndex};
use crate::workflow::Workflow;

/// Maximum workflows with a timer that one call reads.
const WORKFLOWS: usize = 1_000;
/// Bytes of large workflows after which a call ends.
const BYTES: u64 = 8 << 20;
/// Estimated bytes of a job of a large workflow, and of the workflow without its jobs. The second
/// bounds a call to 128 large workflows.
const JOB: u64 = 64;
const ALONE: u64 = 64 << 10;

/// The start of the next call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunningCursor {
    partition: u16,
    after: Option<Row>,
}

/// Running jobs of some of the workflows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunningJobs {
    /// The counts by queue.
    pub queues: HashMap<String, u64>,
    /// The start of the next call. `None` if there are no more workflows.
    pub next: Option<RunningCursor>,
}

impl RunningJobs {
    fn add(&mut self, queue: &str, number: u64) {
        *self.queues.entry_ref(queue).or_default() += number;
    }

    fn add_jobs(&mut self, graph: &Graph, jobs: &[Job]) {
        for (about, job) in graph.jobs.iter().zip(jobs) {
            if let JobState::Running { .. } = job.state {
                self.add(&about.queue, 1);
            }
        }
    }
}

impl Engine {
    /// Running jobs by queue, of at most 1,000 workflows from `from` on; the default is the start.
    /// Results of several calls are not of one moment. Partitions that do not answer are left out.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn running_jobs(&self, from: RunningCursor) -> Result<RunningJobs, EngineError> {
        let mut found = RunningJobs::default();
        let mut left = WORKFLOWS;
        let mut bytes = BYTES;
        let RunningCursor {
            mut partition,
            mut after,
        } = from;
        let (readable, _) = self.readable();
        while partition < self.store().partitions() {
            if left == 0 || bytes == 0 {
                found.next = Some(RunningCursor { partition, after });
                return Ok(found);
            }
            let rows = if readable.contains(&Partition(partition)) {
                self.timers(Partition(partition), after.as_deref(), left)
                    .await?
            } else {
                Vec::new()
            };
            let (looked_at, cost) = self.add_running(&rows, bytes, &mut found).await?;
            after = looked_at.checked_sub(1).map(|last| rows[last].clone());
            if looked_at == rows.len() && rows.len() < left {
                partition += 1;
                after = None;
            }
            left -= looked_at;
            bytes = bytes.saturating_sub(cost);
        }
        Ok(found)
    }

    async fn timers(
        &self,
        partition: Partition,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Row>, EngineError> {
        Ok(self
            .store()
            .rows(partition, RowSet::Due(TimeIndex::Timers), after, limit)
            .await?)
    }

    /// Adds the running jobs of the workflows of these rows, until `bytes` bytes were read. Returns
    /// the number of processed rows, and the bytes.
    async fn add_running(
        &self,
        rows: &[Row],
        bytes: u64,
        found: &mut RunningJobs,
    ) -> Result<(usize, u64), EngineError> {
        let id = |row: &Row| {
            read_due_row(row)
                .expect("a store has rows of a time and an id")
                .1
        };
        let ids: Vec<WorkflowId> = rows.iter().map(id).collect();
        let mut small = Vec::new();
        let mut looked_at = 0;
        let mut cost = 0;
        for (&id, head) in ids.iter().zip(self.store().heads(&ids).await) {
            if cost >= bytes {
                break;
            }
            looked_at += 1;
            // The workflow may have been removed, or its record is unreadable.
            let Ok(Some(Ok(listed))) = head.map(|head| head.map(|head| listed(id, &head))) else {
                continue;
            };
            let running = listed.meta.counts.of("running");
            let graph = self.core.states.graph(id);
            if running == 0 {
            } else if let Some(queue) = graph.as_ref().and_then(|graph| only_queue(graph)) {
                found.add(queue, running.into());
            } else if id.is_small() {
                small.push(id);
            } else {
                cost += self.add_running_of(id, found).await?;
            }
        }
        for (&id, stored) in small.iter().zip(self.store().load(&small).await?) {
            if let Some(Ok(workflow)) = stored.map(|stored| Workflow::read(id, &stored)) {
                found.add_jobs(&workflow.graph, &workflow.jobs);
            }
        }
        Ok((looked_at, cost))
    }

    /// Adds the running jobs of a large workflow. Returns the approximate bytes that were read.
    async fn add_running_of(
        &self,
        id: WorkflowId,
        found: &mut RunningJobs,
    ) -> Result<u64, EngineError> {
        match self.show(id).await {
            Ok(snapshot) => {
                found.add_jobs(snapshot.graph(), snapshot.jobs());
                Ok(ALONE + JOB * snapshot.jobs().len() as u64)
            }
            Err(EngineError::NoWorkflow { .. }) => Ok(ALONE),
            Err(error) => Err(error),
        }
    }
}

/// The queue of all jobs of a graph, if they have the same.
fn only_queue(graph: &Graph) -> Option<&str> {
    let mut queues = graph.jobs.iter().map(|job| job.queue.as_str());
    let first = queues.next()?;
    queues.all(|queue| queue == first).then_some(first)
}
