//! Counts of running jobs by queue. A workflow with a running job has a timer, so only workflows
//! with timers are read, a bounded number in each call.

use hashbrown::HashMap;

use super::decode_listed;
use crate::codec::{Row, read_due_row};
use crate::engine::Engine;
use crate::engine::context::error::EngineError;
use crate::graph::Graph;
use crate::machine::Workflow;
use crate::model::workflow_state::Job;
use crate::model::{JobState, Partition, WorkflowId};
use crate::store::{RowSet, TimeIndex};

/// Maximum workflows with a timer that one call reads.
const MAX_WORKFLOWS: usize = 1_000;
/// Bytes of large workflows after which a call ends.
const MAX_BYTES: u64 = 8 << 20;
/// Estimated bytes of a job of a large workflow, and of the workflow without its jobs. The second
/// bounds a call to 128 large workflows.
const JOB_BYTES: u64 = 64;
const WORKFLOW_BYTES: u64 = 64 << 10;

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
        for (definition, job) in graph.jobs.iter().zip(jobs) {
            if let JobState::Running { .. } = job.state {
                self.add(&definition.queue, 1);
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
        let mut remaining = MAX_WORKFLOWS;
        let mut bytes = MAX_BYTES;
        let RunningCursor {
            mut partition,
            mut after,
        } = from;
        let (readable, _) = self.readable_partitions();
        while partition < self.store().partitions() {
            if remaining == 0 || bytes == 0 {
                found.next = Some(RunningCursor { partition, after });
                return Ok(found);
            }
            let rows = if readable.contains(&Partition(partition)) {
                self.timers(Partition(partition), after.as_deref(), remaining)
                    .await?
            } else {
                Vec::new()
            };
            let (processed, cost) = self.add_running(&rows, bytes, &mut found).await?;
            after = processed.checked_sub(1).map(|last| rows[last].clone());
            if processed == rows.len() && rows.len() < remaining {
                partition += 1;
                after = None;
            }
            remaining -= processed;
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
        let ids: Vec<WorkflowId> = rows.iter().map(|row| due_workflow(row)).collect();
        let mut small = Vec::new();
        let mut processed = 0;
        let mut cost = 0;
        for (&id, head) in ids.iter().zip(self.store().summaries(&ids).await) {
            if cost >= bytes {
                break;
            }
            processed += 1;
            // The workflow may have been removed, or its record is unreadable.
            let Ok(Some(Ok(listed))) = head.map(|head| head.map(|head| decode_listed(id, &head)))
            else {
                continue;
            };
            let running = listed.meta.counts.count_by_word("running");
            let graph = self.core.state_cache.graph(id);
            if running == 0 {
            } else if let Some(queue) = graph.as_ref().and_then(|graph| only_queue(graph)) {
                found.add(queue, running.into());
            } else if id.is_small() {
                small.push(id);
            } else {
                cost += self.add_large_workflow(id, found).await?;
            }
        }
        self.add_small_workflows(&small, found).await?;
        Ok((processed, cost))
    }

    /// Adds the running jobs of small workflows.
    async fn add_small_workflows(
        &self,
        ids: &[WorkflowId],
        found: &mut RunningJobs,
    ) -> Result<(), EngineError> {
        for (&id, stored) in ids.iter().zip(self.store().load(ids).await?) {
            if let Some(Ok(workflow)) = stored.map(|stored| Workflow::read(id, &stored)) {
                found.add_jobs(&workflow.graph, &workflow.jobs);
            }
        }
        Ok(())
    }

    /// Adds the running jobs of a large workflow. Returns the approximate bytes that were read.
    async fn add_large_workflow(
        &self,
        id: WorkflowId,
        found: &mut RunningJobs,
    ) -> Result<u64, EngineError> {
        match self.show(id).await {
            Ok(snapshot) => {
                found.add_jobs(snapshot.graph(), snapshot.jobs());
                Ok(WORKFLOW_BYTES + JOB_BYTES * snapshot.jobs().len() as u64)
            }
            Err(EngineError::NoWorkflow { .. }) => Ok(WORKFLOW_BYTES),
            Err(error) => Err(error),
        }
    }
}

/// The workflow of a row of a timer.
fn due_workflow(row: &[u8]) -> WorkflowId {
    let (_, id) = read_due_row(row).expect("a store has rows of a time and an id");
    id
}

/// The queue of all jobs of a graph, if they have the same.
fn only_queue(graph: &Graph) -> Option<&str> {
    let mut queues = graph.jobs.iter().map(|job| job.queue.as_str());
    let first = queues.next()?;
    queues.all(|queue| queue == first).then_some(first)
}
