//! Creation of workflows.

pub(crate) mod name_cache;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Engine;
use super::actor::answer::Answer;
use super::actor::request::{Request, StartMode};
use super::error::EngineError;
use super::queues::PartitionScope;
use crate::codec::compact_state::is_small;
use crate::codec::record::decode;
use crate::graph::Graph;
use crate::id::{Partition, WorkflowId};
use crate::state::{Meta, Status};
use crate::store::error::StoreError;
use crate::time::Timestamp;

/// Maximum attempts of a creation whose idempotency key belongs to a workflow that is removed at
/// that moment.
const TRIES: usize = 4;
/// Workflows of one call that share a partition. A few, because a page of the newest workflows
/// reads only a few rows of each partition.
const WORKFLOWS_PER_PARTITION: usize = 8;
/// Ready jobs of a queue at this server from which on new workflows go to all partitions. Other
/// servers then find jobs in their own partitions.
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
    pub begin: StartMode,
    /// The time of creation in another system. `None` for the current time.
    pub created_at: Option<Timestamp>,
}

/// A creation that may take more than one attempt.
#[derive(Debug, Clone)]
struct CreationAttempt {
    graph: Arc<Graph>,
    begin: StartMode,
    created_at: Timestamp,
}

impl CreationAttempt {
    fn request(&self) -> Request {
        let graph = Arc::clone(&self.graph);
        let begin = self.begin.clone();
        let created_at = self.created_at;
        Request::Create {
            graph,
            begin,
            created_at,
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
        let began = Instant::now();
        if let Err(error) = self.register(new.iter().map(|new| &new.graph), now).await {
            return new.iter().map(|_| Err(error.clone().into())).collect();
        }
        let mut begun = Vec::with_capacity(new.len());
        for NewWorkflow {
            graph,
            begin,
            created_at,
        } in new
        {
            let graph = Arc::new(self.core.states.shapes.share(graph));
            begun.push(CreationAttempt {
                graph,
                begin,
                created_at: created_at.unwrap_or(now),
            });
        }
        let mut created = self.create_all(&begun, now).await;
        // Nothing was written, so workflows that no key binds to a partition may go to another one.
        let homeless: Vec<usize> = (0..begun.len())
            .filter(|&at| self.may_move(&begun[at], &created[at]))
            .collect();
        if !homeless.is_empty() {
            let again: Vec<CreationAttempt> =
                homeless.iter().map(|&at| begun[at].clone()).collect();
            for (at, answer) in homeless.into_iter().zip(self.create_all(&again, now).await) {
                created[at] = answer;
            }
        }
        // This process was suspended, so the names may have been removed. If this call fails, a
        // sweep enters them.
        if began.elapsed() > STALL_TIMEOUT {
            let _later = self
                .register(
                    begun.iter().map(|begun| &*begun.graph),
                    now + began.elapsed(),
                )
                .await;
        }
        created
    }

    async fn create_all(
        &self,
        all: &[CreationAttempt],
        now: Timestamp,
    ) -> Vec<Result<Created, EngineError>> {
        let mut ids = Vec::with_capacity(all.len());
        let mut requests = Vec::with_capacity(all.len());
        let mut neighbours = (None, 0);
        let place = self.place_of(all);
        for begun in all {
            let small = is_small(&begun.graph);
            let partition = match begun.graph.idempotency_key.as_deref() {
                Some(key) => self.partition_of(key),
                None if small => self.partition_with(&mut neighbours, place),
                None => self.any_partition(place),
            };
            let id = WorkflowId::of_size(begun.created_at, partition, small);
            ids.push(id);
            requests.push((id, begun.request()));
        }
        let mut created = Vec::with_capacity(all.len());
        for ((id, begun), answer) in ids
            .into_iter()
            .zip(all)
            .zip(self.request_all(requests, now).await)
        {
            created.push(match answer {
                Ok(answer) => self.created(id, begun, answer, now).await,
                Err(error) => Err(error),
            });
        }
        created
    }

    /// Whether a part of the store that the creation does not depend on refused it.
    fn may_move(&self, begun: &CreationAttempt, created: &Result<Created, EngineError>) -> bool {
        let refused = matches!(
            created,
            Err(EngineError::Store(StoreError::Unavailable { .. }))
        );
        refused && begun.graph.idempotency_key.is_none() && !self.writable().is_empty()
    }

    /// Whether some partitions fail and others work.
    pub(in crate::engine) fn works_in_part(&self) -> bool {
        !self.core.context.troubles.is_none() && !self.writable().is_empty()
    }

    /// The partitions without a known failure.
    fn writable(&self) -> Vec<Partition> {
        let troubles = self.core.context.troubles.all();
        self.store()
            .all_partitions()
            .filter(|partition| !troubles.contains_key(partition))
            .collect()
    }

    /// The result of a creation. An existing workflow with the same key must be equal.
    async fn created(
        &self,
        id: WorkflowId,
        begun: &CreationAttempt,
        mut answer: Answer,
        now: Timestamp,
    ) -> Result<Created, EngineError> {
        let mut tries = 0;
        while let Some(existing) = answer.existing {
            if let Some(created) = self.same(existing, begun).await? {
                return Ok(created);
            }
            tries += 1;
            if tries == TRIES {
                return Err(EngineError::Contended { workflow: existing });
            }
            // The workflow was removed just now, so the key is free.
            answer = self.request(id, begun.request(), now).await?;
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
    async fn same(
        &self,
        existing: WorkflowId,
        begun: &CreationAttempt,
    ) -> Result<Option<Created>, EngineError> {
        let graph = &*begun.graph;
        let stored = self.store().load(&[existing]).await?.pop().flatten();
        let Some(stored) = stored else {
            return Ok(None);
        };
        let known: Graph = decode(&stored.graph, || {
            format!("the graph of workflow {existing}")
        })?;
        let meta: Meta = decode(&stored.state.meta, || {
            format!("the state of workflow {existing}")
        })?;
        // The start mode of the creation is not stored: a workflow that was started later may have
        // been created either way.
        let same_start = match begun.begin {
            StartMode::Now => meta.status != Status::Pending,
            StartMode::Later => meta.started_at != Some(meta.created_at),
            StartMode::As(_) => true,
        };
        if same_start && known.means_the_same(graph) {
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
        self.store().keyed(self.partition_of(key), key).await
    }

    /// The partitions for new workflows without a key: the assigned ones, unless the local workers
    /// have a backlog.
    fn place_of(&self, all: &[CreationAttempt]) -> PartitionScope {
        let waits = |begun: &CreationAttempt| {
            begun
                .graph
                .jobs
                .first()
                .map_or(0, |job| self.queues().known(&job.queue))
        };
        match self.queues().are_shared() {
            true if all.len() > WORKFLOWS_PER_PARTITION
                || all.iter().any(|begun| waits(begun) > LOCAL_BACKLOG) =>
            {
                PartitionScope::All
            }
            _ => PartitionScope::Local,
        }
    }

    /// A random partition in `scope`, if possible one without a known failure.
    fn any_partition(&self, place: PartitionScope) -> Partition {
        let context = &self.core.context;
        let any = Partition(fastrand::u16(..self.store().partitions()));
        if context.troubles.is_none() {
            return match place {
                PartitionScope::Local => {
                    fastrand::choice(context.home.mine.each().collect::<Vec<_>>()).unwrap_or(any)
                }
                PartitionScope::All => any,
            };
        }
        let writable = self.writable();
        let fits = |at: &Partition| place == PartitionScope::All || context.home.mine.contains(*at);
        let fitting: Vec<Partition> = writable.iter().copied().filter(fits).collect();
        fastrand::choice(fitting)
            .or_else(|| fastrand::choice(writable))
            .unwrap_or(any)
    }

    /// The partition of the previous workflow of the call, until it has [`WORKFLOWS_PER_PARTITION`]
    /// of them. Workflows of one partition share a write.
    fn partition_with(
        &self,
        (partition, number): &mut (Option<Partition>, usize),
        place: PartitionScope,
    ) -> Partition {
        *number += 1;
        if *number % WORKFLOWS_PER_PARTITION == 1 {
            *partition = None;
        }
        *partition.get_or_insert_with(|| self.any_partition(place))
    }

    /// The partition of all creations with a key.
    fn partition_of(&self, key: &str) -> Partition {
        Partition::of_text(key, self.store().partitions())
    }
}
