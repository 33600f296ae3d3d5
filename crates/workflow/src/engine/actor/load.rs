//! Reads the states that a group commit needs and the cache does not have. It reads in chunks,
//! because the bytes of one read must be bounded.

use std::sync::Arc;

use super::batch::{StateSource, WorkflowBatch};
use super::cache::cached_workflow::CachedWorkflow;
use crate::codec::{StoreError, Stored};
use crate::graph::{Graph, GraphInterner};
use crate::machine::Workflow;
use crate::model::WorkflowId;
use crate::store::Store;

/// Most states that are read without reading their sizes before.
const MAX_UNMEASURED: usize = 8;
/// Bytes at which a chunk is full: a read of this size is far from any timeout.
const CHUNK_BYTES: u64 = 4 << 20;

/// Divides batches into chunks. The bytes that must be read for one chunk are bounded.
pub(super) async fn split_into_chunks(
    store: &Store,
    batches: Vec<WorkflowBatch>,
) -> Vec<Vec<WorkflowBatch>> {
    let missing: Vec<WorkflowId> = batches
        .iter()
        .filter(|batch| batch.needs_state())
        .map(|batch| batch.id)
        .collect();
    if missing.len() <= MAX_UNMEASURED {
        return vec![batches];
    }
    // If the sizes cannot be read, the states cannot either, and callers get that error.
    let mut sizes = store.sizes(&missing).await.unwrap_or_default().into_iter();
    let mut chunks = vec![Vec::new()];
    let mut bytes = 0;
    for batch in batches {
        if batch.needs_state() {
            if bytes >= CHUNK_BYTES {
                chunks.push(Vec::new());
                bytes = 0;
            }
            bytes += sizes.next().unwrap_or(0);
        }
        chunks.last_mut().expect("there is always one").push(batch);
    }
    chunks
}

/// Updates states that may be outdated, and reads states that are not in memory.
pub(super) async fn load_missing(
    store: &Store,
    interner: &GraphInterner,
    batches: &mut [WorkflowBatch],
) -> Result<(), StoreError> {
    for batch in &mut *batches {
        if batch.source == StateSource::MustReload {
            load_changes(store, batch).await?;
        }
    }
    let missing: Vec<usize> = (0..batches.len())
        .filter(|&at| batches[at].needs_state())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let ids: Vec<_> = missing.iter().map(|&at| batches[at].id).collect();
    for (at, stored) in missing.into_iter().zip(load_each(store, &ids).await?) {
        let batch = &mut batches[at];
        batch.source = StateSource::Store;
        let graph = batch.graph.take();
        match stored.and_then(|stored| {
            stored
                .map(|stored| decode(batch.id, graph, &stored, interner))
                .transpose()
        }) {
            Ok(cached) => batch.cached = cached,
            Err(error) => batch.load_error = Some(error.into()),
        }
    }
    Ok(())
}

/// Reads what has changed in a state that is in memory. Drops the state if the store does not know
/// its changes.
async fn load_changes(store: &Store, batch: &mut WorkflowBatch) -> Result<(), StoreError> {
    let (Some(since), Some(cached)) = (batch.stale_since.take(), &batch.cached) else {
        return Ok(());
    };
    let is_current = match store
        .newer_state(batch.id, cached.workflow.jobs.len(), since)
        .await
    {
        Ok(newer) => newer.is_some_and(|newer| batch.rebase(&newer).is_ok()),
        Err(StoreError::Corrupt { .. }) => false,
        Err(error) => return Err(error),
    };
    if !is_current {
        batch.drop_state();
    }
    Ok(())
}

fn decode(
    id: WorkflowId,
    graph: Option<Arc<Graph>>,
    stored: &Stored,
    interner: &GraphInterner,
) -> Result<Box<CachedWorkflow>, StoreError> {
    let workflow = match graph {
        Some(graph) => Workflow::read_state(id, graph, &stored.state),
        None => {
            let graph = Arc::new(interner.share(Workflow::read_graph(id, stored)?));
            Workflow::read_state(id, graph, &stored.state)
        }
    };
    Ok(CachedWorkflow::new(workflow?))
}

/// Result of reading one workflow, if the store has it.
type LoadResult = Result<Option<Stored>, StoreError>;

/// Reads workflows. A corrupt workflow fails alone: the read is halved until that workflow is
/// found.
///
/// # Errors
/// The store cannot be read.
async fn load_each(store: &Store, ids: &[WorkflowId]) -> Result<Vec<LoadResult>, StoreError> {
    let mut loaded = Vec::with_capacity(ids.len());
    let mut parts = vec![ids];
    while let Some(part) = parts.pop() {
        match store.load(part).await {
            Ok(stored) => loaded.extend(stored.into_iter().map(Ok)),
            Err(error @ StoreError::Corrupt { .. }) if part.len() == 1 => loaded.push(Err(error)),
            Err(StoreError::Corrupt { .. }) => {
                let (first, rest) = part.split_at(part.len() / 2);
                parts.extend([rest, first]);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(loaded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Change, CreationRecord, Put, Write};
    use crate::engine::actor::reply_set::ReplySet;
    use crate::engine::actor::request::{Envelope, Request};
    use crate::model::{Partition, Timestamp};
    use crate::store::SimulatedStore;

    /// Returns batches of one request each about these workflows.
    fn batches(ids: &[WorkflowId]) -> Vec<WorkflowBatch> {
        let batch = |&workflow: &WorkflowId| {
            let answer = ReplySet::new(1).sender(0);
            let mut batch = WorkflowBatch::new(workflow, None);
            batch.envelopes.push(Envelope {
                workflow,
                request: Request::DeleteExpired,
                now: Timestamp::default(),
                reply: answer,
            });
            batch
        };
        ids.iter().map(batch).collect()
    }

    #[tokio::test]
    async fn what_is_read_at_once_is_bounded_in_bytes() {
        const LARGE: usize = 1 << 20;
        let store = Store::Simulated(SimulatedStore::new(1));
        let mut ids = Vec::new();
        for (number, size) in (0..200).zip([10, LARGE].into_iter().cycle()) {
            let id = WorkflowId::new(Timestamp::default(), Partition(0), number);
            let birth = CreationRecord {
                graph: vec![0; size],
                ..CreationRecord::default()
            };
            let put = Put {
                meta: vec![1],
                creation: Some(birth),
                ..Put::default()
            };
            let change = Change {
                workflow: id,
                expected: None,
                small: false,
                write: Write::Put(Box::new(put)),
            };
            store.apply(Partition(0), &[change]).await.unwrap();
            ids.push(id);
        }
        let chunks = split_into_chunks(&store, batches(&ids)).await;
        let found: Vec<WorkflowId> = chunks.iter().flatten().map(|batch| batch.id).collect();
        assert_eq!(found, ids);
        for chunk in chunks {
            let ids: Vec<WorkflowId> = chunk.iter().map(|batch| batch.id).collect();
            let bytes: u64 = store.sizes(&ids).await.unwrap().iter().sum();
            assert!(bytes <= CHUNK_BYTES + LARGE as u64, "{bytes}");
        }
        assert_eq!(
            super::split_into_chunks(&store, batches(&ids[..MAX_UNMEASURED]))
                .await
                .len(),
            1
        );
    }
}
