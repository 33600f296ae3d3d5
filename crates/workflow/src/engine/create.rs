//! Creation of workflows.

pub(crate) mod name_cache;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Engine;
use super::actor::answer::Answer;
use super::actor::request::{Request, StartMode};
use super::context::error::EngineError;
use crate::codec::{StoreError, decode, is_small};
use crate::graph::Graph;
use crate::model::{Meta, Partition, Status, Timestamp, WorkflowId};
use crate::queue::PartitionScope;

/// Maximum attempts of a creation whose idempotency key belongs to a workflow that is removed at
/// that moment.
const MAX_ATTEMPTS: usize = 4;
/// Workflows of one call that share a partition. A few, because a page of the newest workflows
/// reads only a few rows of each partition.
const WORKFLOWS_PER_PARTITION: usize = 8;
/// Ready jobs of a queue at this server from which on new workflows go to all partitions. Other
/// servers then find jobs in their own partitions. Without it, they work off such a queue with 18 %
/// more commands.
const LOCAL_BACKLOG: usize = 256;

/// Duration of a creation above which this process is assumed to have been suspended, so that the
/// registered names may have expired.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// A graph from which to create a workflow.
#[derive(Debug, Clone, PartialEq)]
pub struct NewWorkflow {
    /// The jobs to run.
    pub graph: Graph,
    /// Whether the workflow starts with its creation.
    pub start: StartMode,
    /// The time of creation in another system. `None` for the current time.
    pub created_at: Option<Timestamp>,
}

/// A creation that may take more than one attempt.
#[derive(Debug, Clone)]
struct CreationAttempt {
    graph: Arc<Graph>,
    start: StartMode,
    created_at: Timestamp,
}

impl CreationAttempt {
    fn request(&self) -> Request {
        Request::Create {
            graph: Arc::clone(&self.graph),
            start_mode: self.start.clone(),
            created_at: self.created_at,
        }
    }
}

/// A workflow that was created now or existed before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Created {
    /// Its id.
    pub workflow: WorkflowId,
    /// Its status.
    pub status: Status,
    /// Whether a workflow with the same idempotency key existed before.
    pub existing: bool,
}

impl Engine {
    /// Creates workflows independently of each other. The results are in the order of `new`.
    ///
    /// # Cancellation
    /// When the future is dropped, any of them may have been created.
    pub async fn create(
        &self,
        new: Vec<NewWorkflow>,
        now: Timestamp,
    ) -> Vec<Result<Created, EngineError>> {
        let started = Instant::now();
        if let Err(error) = self.register(new.iter().map(|new| &new.graph), now).await {
            return new.iter().map(|_| Err(error.clone().into())).collect();
        }
        let mut attempts = Vec::with_capacity(new.len());
        for new in new {
            attempts.push(CreationAttempt {
                graph: Arc::new(self.core.state_cache.interner.share(new.graph)),
                start: new.start,
                created_at: new.created_at.unwrap_or(now),
            });
        }
        let mut created = self.create_all(&attempts, now).await;
        self.retry_refused(&attempts, &mut created, now).await;
        // This process was suspended, so the names may have been removed. If this call fails, a
        // sweep enters them.
        if started.elapsed() > STALL_TIMEOUT {
            let _later = self
                .register(
                    attempts.iter().map(|attempt| &*attempt.graph),
                    now + started.elapsed(),
                )
                .await;
        }
        created
    }

    /// Creates workflows again that a failing partition refused, unless a key binds them to it:
    /// nothing was written, so they may go to another partition.
    async fn retry_refused(
        &self,
        attempts: &[CreationAttempt],
        created: &mut [Result<Created, EngineError>],
        now: Timestamp,
    ) {
        let movable: Vec<usize> = (0..attempts.len())
            .filter(|&at| self.can_change_partition(&attempts[at], &created[at]))
            .collect();
        if movable.is_empty() {
            return;
        }
        let retried: Vec<_> = movable.iter().map(|&at| attempts[at].clone()).collect();
        for (at, answer) in movable
            .into_iter()
            .zip(self.create_all(&retried, now).await)
        {
            created[at] = answer;
        }
    }

    async fn create_all(
        &self,
        all: &[CreationAttempt],
        now: Timestamp,
    ) -> Vec<Result<Created, EngineError>> {
        let mut ids = Vec::with_capacity(all.len());
        let mut requests = Vec::with_capacity(all.len());
        let mut shared = (None, 0);
        let scope = self.partition_scope(all);
        for attempt in all {
            let small = is_small(&attempt.graph);
            let partition = match attempt.graph.idempotency_key.as_deref() {
                Some(key) => self.partition_for_key(key),
                None if small => self.shared_partition(&mut shared, scope),
                None => self.random_partition(scope),
            };
            let id = WorkflowId::with_size(attempt.created_at, partition, small);
            ids.push(id);
            requests.push((id, attempt.request()));
        }
        let mut created = Vec::with_capacity(all.len());
        for ((id, attempt), answer) in ids
            .into_iter()
            .zip(all)
            .zip(self.request_all(requests, now).await)
        {
            created.push(match answer {
                Ok(answer) => self.resolve_existing(id, attempt, answer, now).await,
                Err(error) => Err(error),
            });
        }
        created
    }

    /// Whether a part of the store that the creation does not depend on refused it.
    fn can_change_partition(
        &self,
        attempt: &CreationAttempt,
        created: &Result<Created, EngineError>,
    ) -> bool {
        let refused = matches!(
            created,
            Err(EngineError::Store(StoreError::Unavailable { .. }))
        );
        refused && attempt.graph.idempotency_key.is_none() && !self.working_partitions().is_empty()
    }

    /// Whether some partitions fail and others work.
    pub(in crate::engine) fn is_partially_available(&self) -> bool {
        !self.core.context.store_health.is_healthy() && !self.working_partitions().is_empty()
    }

    /// The partitions without a known failure.
    fn working_partitions(&self) -> Vec<Partition> {
        let troubles = self.core.context.store_health.failures();
        self.store()
            .all_partitions()
            .filter(|partition| !troubles.contains_key(partition))
            .collect()
    }

    /// The result of a creation. An existing workflow with the same key must be equal.
    async fn resolve_existing(
        &self,
        id: WorkflowId,
        attempt: &CreationAttempt,
        mut answer: Answer,
        now: Timestamp,
    ) -> Result<Created, EngineError> {
        let mut attempts = 0;
        while let Some(existing) = answer.existing {
            if let Some(created) = self.find_equal(existing, attempt).await? {
                return Ok(created);
            }
            attempts += 1;
            if attempts == MAX_ATTEMPTS {
                return Err(EngineError::Contended { workflow: existing });
            }
            // The workflow was removed just now, so the key is free.
            answer = self.request(id, attempt.request(), now).await?;
        }
        let status = answer.status.expect("a creation answers with the status");
        Ok(Created {
            workflow: id,
            status,
            existing: false,
        })
    }

    /// The workflow that has an idempotency key, if it has the same graph and, as far as is known,
    /// the same start. `None` if it is gone.
    async fn find_equal(
        &self,
        existing: WorkflowId,
        attempt: &CreationAttempt,
    ) -> Result<Option<Created>, EngineError> {
        let graph = &*attempt.graph;
        let stored = self.store().load(&[existing]).await?.pop().flatten();
        let Some(stored) = stored else {
            return Ok(None);
        };
        let stored_graph: Graph = decode(&stored.graph, || {
            format!("the graph of workflow {existing}")
        })?;
        let meta: Meta = decode(&stored.state.meta, || {
            format!("the state of workflow {existing}")
        })?;
        // The start mode of the creation is not stored: a workflow that was started later may have
        // been created either way.
        let same_start = match attempt.start {
            StartMode::Now => meta.status != Status::Pending,
            StartMode::Later => meta.started_at != Some(meta.created_at),
            StartMode::As(_) => true,
        };
        if same_start && stored_graph.has_same_definition(graph) {
            return Ok(Some(Created {
                workflow: existing,
                status: meta.status,
                existing: true,
            }));
        }
        let key = graph.idempotency_key.clone().unwrap_or_default();
        Err(EngineError::KeyMismatch {
            key,
            workflow: existing,
        })
    }

    /// The workflow that was created with an idempotency key.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn find_by_key(&self, key: &str) -> Result<Option<WorkflowId>, StoreError> {
        self.store()
            .workflow_by_key(self.partition_for_key(key), key)
            .await
    }

    /// The partitions for new workflows without a key: the assigned ones, unless the local workers
    /// have a backlog.
    fn partition_scope(&self, all: &[CreationAttempt]) -> PartitionScope {
        let backlog = |attempt: &CreationAttempt| {
            attempt
                .graph
                .jobs
                .first()
                .map_or(0, |job| self.queues().known_job_count(&job.queue))
        };
        let is_much = || {
            all.len() > WORKFLOWS_PER_PARTITION
                || all.iter().any(|attempt| backlog(attempt) > LOCAL_BACKLOG)
        };
        if self.queues().has_remote_partitions() && is_much() {
            PartitionScope::All
        } else {
            PartitionScope::Local
        }
    }

    /// A random partition in `scope`, if possible one without a known failure.
    fn random_partition(&self, scope: PartitionScope) -> Partition {
        let context = &self.core.context;
        let any = Partition(fastrand::u16(..self.store().partitions()));
        if context.store_health.is_healthy() {
            return match scope {
                PartitionScope::Local => fastrand::choice(
                    context
                        .membership
                        .local_partitions
                        .iter()
                        .collect::<Vec<_>>(),
                )
                .unwrap_or(any),
                PartitionScope::All => any,
            };
        }
        let writable = self.working_partitions();
        let fits = |at: &Partition| {
            scope == PartitionScope::All || context.membership.local_partitions.contains(*at)
        };
        let fitting: Vec<Partition> = writable.iter().copied().filter(fits).collect();
        fastrand::choice(fitting)
            .or_else(|| fastrand::choice(writable))
            .unwrap_or(any)
    }

    /// The partition of the previous workflow of the call, until it has [`WORKFLOWS_PER_PARTITION`]
    /// of them. Workflows of one partition share a write.
    fn shared_partition(
        &self,
        (partition, number): &mut (Option<Partition>, usize),
        scope: PartitionScope,
    ) -> Partition {
        *number += 1;
        if *number % WORKFLOWS_PER_PARTITION == 1 {
            *partition = None;
        }
        *partition.get_or_insert_with(|| self.random_partition(scope))
    }

    /// The partition of all creations with a key.
    fn partition_for_key(&self, key: &str) -> Partition {
        Partition::for_name(key, self.store().partitions())
    }
}
