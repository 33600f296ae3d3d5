//! Failed jobs of workflows, for groups of errors and for lists by error. No index has errors, so
//! each failed workflow is read: a bounded number of workflows and bytes in each scan.

use hashbrown::HashMap;

use super::highlights::{JobFailure, MAX_GRAPH_BYTES, MAX_JOBS, decoded_jobs};
use super::partial::MissingPartitions;
use super::query::{Cursor, FailureFilter, Query, compare};
use super::{ListedWorkflow, Page};
use crate::codec::{ResultField, StoreError, decode};
use crate::engine::Engine;
use crate::engine::context::error::EngineError;
use crate::graph::{Graph, LARGE_GRAPH_BYTES};
use crate::model::workflow_state::Job;
use crate::model::{AttemptError, JobIndex, JobState, Timestamp, WorkflowId};

/// Maximum workflows that a scan reads.
const MAX_WORKFLOWS: usize = 1_000;
/// Workflows that are read at a time.
const PAGE_WORKFLOWS: usize = 100;
/// Bytes of job states, graphs and errors after which a scan ends: some tenths of a second.
const MAX_BYTES: u64 = 16 << 20;
/// Estimated bytes of the state of a job.
const JOB_BYTES: u64 = 64;
/// The bytes that a page counts beside its workflows: with a name and a tag, it may be empty and cost reads.
const PAGE_BYTES: u64 = 256 << 10;
/// Maximum failed jobs of a workflow that are read, those that failed first.
const MAX_WORKFLOW_FAILURES: usize = 1_000;
/// Errors that one call of the store reads: at most about 16 MiB.
const ERRORS_PER_READ: usize = 256;
/// Characters of a message that are kept: as many as lists show.
const MAX_MESSAGE: usize = 200;

/// A scan of workflows for failed jobs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FailureScan {
    query: Query,
    bytes: u64,
    is_over: bool,
    /// Number of workflows that were looked at.
    pub workflows: usize,
    /// Those of them that are too large to read here, or that a part of the store did not return.
    unread: Vec<WorkflowId>,
    /// Number of failed jobs that were not read, of workflows with more than 1,000 of them.
    pub unread_jobs: usize,
    /// The start of the next scan. `None` if there are no more workflows.
    pub next: Option<Cursor>,
    /// Partitions that did not answer: their workflows are left out.
    pub missing: MissingPartitions,
}

/// Failed jobs of a part of a scan.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FailurePage {
    /// The workflows with these failed jobs.
    pub page: Page,
    /// The failed jobs that the filter admits, by workflow; those that failed first are first.
    pub failures: HashMap<WorkflowId, Vec<JobFailure>>,
}

/// Workflows of a page that are read together.
#[derive(Debug, Default)]
struct Batch {
    /// Number of workflows of the page up to its end.
    items: usize,
    small: Vec<WorkflowId>,
    /// The other workflows, each with all jobs.
    others: Vec<(WorkflowId, Vec<JobIndex>)>,
    jobs: usize,
    graph_bytes: u64,
    unread: Vec<WorkflowId>,
}

/// A failed job whose error is to be read.
#[derive(Debug)]
struct PendingFailure {
    workflow: WorkflowId,
    error: ResultField,
    failure: JobFailure,
}

impl FailureScan {
    /// A scan in the order of the query, with its filters. Its limit does not count.
    #[must_use]
    pub fn new(query: &Query) -> Self {
        Self {
            query: query.clone(),
            next: query.after,
            ..Self::default()
        }
    }

    /// Number of workflows that are too large to read here, or that a part of the store did not
    /// return.
    #[must_use]
    pub fn unread(&self) -> usize {
        self.unread.len()
    }

    /// Whether it may read no more.
    pub(super) fn is_full(&self) -> bool {
        self.workflows >= MAX_WORKFLOWS || self.bytes >= MAX_BYTES
    }

    fn add_page(&mut self, next: Option<Cursor>) {
        self.bytes += PAGE_BYTES;
        self.is_over = next.is_none() || self.is_full();
        self.next = next;
    }
}

impl Batch {
    /// The first of these workflows that one call may read, at least one.
    fn fill<'l>(
        listed: impl Iterator<Item = &'l ListedWorkflow>,
        sizes: &HashMap<WorkflowId, u64>,
    ) -> Self {
        let mut batch = Self::default();
        for item in listed {
            let jobs = item.meta.counts.total();
            let bytes = sizes.get(&item.workflow).copied().unwrap_or_default();
            if item.meta.counts.count(JobState::Failed) == 0 {
            } else if item.workflow.is_small() {
                batch.small.push(item.workflow);
            } else if jobs > MAX_JOBS || bytes > LARGE_GRAPH_BYTES as u64 {
                batch.unread.push(item.workflow);
            } else if batch.jobs + jobs > MAX_JOBS || batch.graph_bytes + bytes > MAX_GRAPH_BYTES {
                break;
            } else {
                batch.jobs += jobs;
                batch.graph_bytes += bytes;
                let all = (0..jobs as u32).map(JobIndex).collect();
                batch.others.push((item.workflow, all));
            }
            batch.items += 1;
        }
        batch
    }
}

impl Engine {
    /// One page of the workflows with a failed job that the query admits.
    pub(super) async fn list_failed(&self, query: &Query) -> Result<Page, EngineError> {
        let limit = query.limit.max(1);
        let mut scan = FailureScan::new(query);
        let mut page = Page::default();
        while page.items.len() < limit
            && let Some(found) = self.next_failures(&mut scan).await?
        {
            page.items.extend(found.page.items);
            page.small_jobs.extend(found.page.small_jobs);
        }
        page.next = scan.next;
        if page.items.len() > limit {
            page.items.truncate(limit);
            page.next = page.items.last().map(|last| last.workflow);
        }
        let is_in_page = |id| {
            page.next
                .is_none_or(|end| compare(query.order, id, end).is_le())
        };
        page.unread = scan.unread.into_iter().filter(|id| is_in_page(*id)).count();
        page.missing = scan.missing;
        Ok(page)
    }

    /// The next failed jobs of a scan. `None` if it is over.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn next_failures(
        &self,
        scan: &mut FailureScan,
    ) -> Result<Option<FailurePage>, EngineError> {
        if scan.is_over {
            return Ok(None);
        }
        let query = Query {
            limit: PAGE_WORKFLOWS.min(MAX_WORKFLOWS - scan.workflows),
            after: scan.next,
            ..scan.query.clone()
        };
        let mut page = self.list_indexed(&query).await?;
        scan.missing.add(std::mem::take(&mut page.missing));
        let (read, failures) = self.read_failures(&page, scan).await?;
        if read < page.items.len() {
            page.items.truncate(read);
            page.next = page.items.last().map(|last| last.workflow);
        }
        scan.add_page(page.next);
        page.items
            .retain(|item| failures.contains_key(&item.workflow));
        Ok(Some(FailurePage { page, failures }))
    }

    /// Reads the failed jobs of the first workflows of a page, as many as the scan may read. Returns
    /// how many workflows these are, at least one if the scan is not full.
    pub(super) async fn read_failures(
        &self,
        page: &Page,
        scan: &mut FailureScan,
    ) -> Result<(usize, HashMap<WorkflowId, Vec<JobFailure>>), EngineError> {
        let sizes = self.large_sizes(&page.items).await?;
        let mut failures = HashMap::new();
        let mut read = 0;
        while read < page.items.len() && !scan.is_full() {
            let left = MAX_WORKFLOWS - scan.workflows;
            let batch = Batch::fill(page.items[read..].iter().take(left), &sizes);
            read += batch.items;
            scan.workflows += batch.items;
            self.read_batch(batch, page, scan, &mut failures).await?;
        }
        Ok((read, failures))
    }

    /// Bytes of graphs of the workflows that are not small.
    async fn large_sizes(
        &self,
        listed: &[ListedWorkflow],
    ) -> Result<HashMap<WorkflowId, u64>, StoreError> {
        let ids = listed.iter().map(|item| item.workflow);
        let ids: Vec<WorkflowId> = ids.filter(|id| !id.is_small()).collect();
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let sizes = self.store().sizes(&ids).await?;
        Ok(ids.into_iter().zip(sizes).collect())
    }

    /// Adds the failed jobs of a batch that the filter of the scan admits.
    async fn read_batch(
        &self,
        batch: Batch,
        page: &Page,
        scan: &mut FailureScan,
        found: &mut HashMap<WorkflowId, Vec<JobFailure>>,
    ) -> Result<(), EngineError> {
        scan.unread.extend(batch.unread);
        scan.bytes += batch.graph_bytes + JOB_BYTES * batch.jobs as u64;
        let mut states: Vec<(WorkflowId, Vec<(JobIndex, Job)>)> = Vec::new();
        for id in batch.small {
            let jobs = page.small_jobs.get(&id).cloned().unwrap_or_default();
            states.push((id, (0..).map(JobIndex).zip(jobs).collect()));
        }
        let excerpts = self.store().excerpts(&batch.others).await;
        for ((id, _), state) in batch.others.into_iter().zip(excerpts) {
            match state {
                Ok(Some(state)) => states.push((id, decoded_jobs(id, &state))),
                // It was removed meanwhile.
                Ok(None) => {}
                Err(_) => scan.unread.push(id),
            }
        }
        let ids: Vec<WorkflowId> = states.iter().map(|(id, _)| *id).collect();
        let graphs = self.graphs(&ids).await?;
        let mut wanted = Vec::new();
        for (id, jobs) in states {
            match graphs.get(&id) {
                Some(graph) => add_failed_jobs(id, graph, &jobs, scan, &mut wanted),
                None => scan.unread.push(id),
            }
        }
        let filter = scan.query.failure.clone().unwrap_or_default();
        let mut wanted = wanted.into_iter().peekable();
        while wanted.peek().is_some() {
            let part: Vec<PendingFailure> = wanted.by_ref().take(ERRORS_PER_READ).collect();
            for (job, error) in self.with_errors(part, &mut scan.bytes).await? {
                let failure = JobFailure {
                    error,
                    ..job.failure
                };
                if filter.admits(&failure) {
                    found.entry(job.workflow).or_default().push(failure);
                }
            }
        }
        Ok(())
    }

    /// Failed jobs with their errors, without traces. Adds the bytes that were read.
    async fn with_errors(
        &self,
        jobs: Vec<PendingFailure>,
        read: &mut u64,
    ) -> Result<Vec<(PendingFailure, Option<AttemptError>)>, StoreError> {
        let same = |a: &PendingFailure, b: &PendingFailure| a.workflow == b.workflow;
        let wanted: Vec<(WorkflowId, Vec<ResultField>)> = jobs
            .chunk_by(same)
            .map(|jobs| (jobs[0].workflow, jobs.iter().map(|job| job.error).collect()))
            .collect();
        let errors = self.store().results(&wanted).await?.into_iter().flatten();
        let mut error = |job: PendingFailure, bytes: Option<bytes::Bytes>| {
            let id = job.workflow;
            *read += bytes.as_ref().map_or(0, bytes::Bytes::len) as u64;
            let error = bytes
                .and_then(|bytes| decode(&bytes, || format!("an error of workflow {id}")).ok());
            (job, error.map(shortened))
        };
        Ok(jobs
            .into_iter()
            .zip(errors)
            .map(|(job, bytes)| error(job, bytes))
            .collect())
    }
}

/// Adds the failed jobs of a workflow that the filter of the scan may admit.
fn add_failed_jobs(
    workflow: WorkflowId,
    graph: &Graph,
    jobs: &[(JobIndex, Job)],
    scan: &mut FailureScan,
    wanted: &mut Vec<PendingFailure>,
) {
    let handler = scan.query.failure.as_ref();
    let handler = handler.and_then(|filter| filter.handler.as_ref());
    let mut failed: Vec<PendingFailure> = jobs
        .iter()
        .filter(|(_, job)| job.state == JobState::Failed)
        .filter_map(|(index, job)| {
            let definition = graph.jobs.get(index.index())?;
            Some(PendingFailure {
                workflow,
                error: ResultField::latest_error(*index, job),
                failure: JobFailure {
                    job: definition.name.clone(),
                    handler: definition.handler.clone(),
                    finished_at: job.finished_at,
                    error: None,
                },
            })
        })
        .filter(|job| handler.is_none_or(|handler| *handler == job.failure.handler))
        .collect();
    let at = |job: &PendingFailure| -> Option<Timestamp> { job.failure.finished_at };
    failed.sort_by_key(at);
    scan.unread_jobs += failed.len().saturating_sub(MAX_WORKFLOW_FAILURES);
    failed.truncate(MAX_WORKFLOW_FAILURES);
    wanted.extend(failed);
}

/// The error without its trace and the end of a long message.
fn shortened(mut error: AttemptError) -> AttemptError {
    error.message = error.message.chars().take(MAX_MESSAGE).collect();
    error.trace = None;
    error
}

impl FailureFilter {
    fn admits(&self, failure: &JobFailure) -> bool {
        let kind = failure.error.as_ref().map(|error| &error.kind);
        self.kind.as_ref().is_none_or(|wanted| kind == Some(wanted))
            && self
                .handler
                .as_ref()
                .is_none_or(|wanted| *wanted == failure.handler)
    }
}
