//! Reads the states that a group commit needs and the cache does not have. It reads in chunks,
//! because the bytes of one read must be bounded.

use std::sync::Arc;

use super::batch::{StateSource, WorkflowBatch};
use super::cached_workflow::CachedWorkflow;
use crate::codec::change::Stored;
use crate::graph::Graph;
use crate::graph::interner::GraphInterner;
use crate::id::WorkflowId;
use crate::store::Store;
use crate::store::error::StoreError;
use crate::workflow::Workflow;

/// Most states that are read without reading their sizes before.
const UNMEASURED: usize = 8;
/// Bytes at which a chunk is full: a read of this size is far from any timeout.
const PIECE: u64 = 4 << 20;

/// Divides batches into chunks. The bytes that must be read for one chunk are bounded.
pub(super) async fn pieces(store: &Store, groups: Vec<WorkflowBatch>) -> Vec<Vec<WorkflowBatch>> {
    let missing: Vec<WorkflowId> = groups
        .iter()
        .filter(|group| group.needs_state())
        .map(|group| group.id)
        .collect();
    if missing.len() <= UNMEASURED {
        return vec![groups];
    }
    // If the sizes cannot be read, the states cannot either, and callers get that error.
    let mut sizes = store.sizes(&missing).await.unwrap_or_default().into_iter();
    let mut pieces = vec![Vec::new()];
    let mut bytes = 0;
    for group in groups {
        if group.needs_state() {
            if bytes >= PIECE {
                pieces.push(Vec::new());
                bytes = 0;
            }
            bytes += sizes.next().unwrap_or(0);
        }
        pieces.last_mut().expect("there is always one").push(group);
    }
    pieces
}

/// Updates states that may be outdated, and reads states that are not in memory.
pub(super) async fn load_missing(
    store: &Store,
    shapes: &GraphInterner,
    groups: &mut [WorkflowBatch],
) -> Result<(), StoreError> {
    for group in groups
        .iter_mut()
        .filter(|group| group.basis == StateSource::MustReload)
    {
        catch_up(store, group).await?;
    }
    let missing: Vec<usize> = (0..groups.len())
        .filter(|&at| groups[at].needs_state())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let ids: Vec<WorkflowId> = missing.iter().map(|&at| groups[at].id).collect();
    for (at, stored) in missing.into_iter().zip(load(store, &ids).await?) {
        let group = &mut groups[at];
        group.basis = StateSource::Store;
        let graph = group.graph.take();
        match stored.and_then(|stored| {
            stored
                .map(|stored| read(group.id, graph, &stored, shapes))
                .transpose()
        }) {
            Ok(entry) => group.entry = entry,
            Err(error) => group.broken = Some(error.into()),
        }
    }
    Ok(())
}

/// Reads what has changed in a state that is in memory. Drops the state if the store does not know
/// its changes.
async fn catch_up(store: &Store, group: &mut WorkflowBatch) -> Result<(), StoreError> {
    let (Some(since), Some(entry)) = (group.since.take(), &group.entry) else {
        return Ok(());
    };
    let caught_up = match store
        .later(group.id, entry.workflow.jobs.len(), since)
        .await
    {
        Ok(later) => later.is_some_and(|later| group.catch_up(&later).is_ok()),
        Err(StoreError::Corrupt { .. }) => false,
        Err(error) => return Err(error),
    };
    if !caught_up {
        group.forget();
    }
    Ok(())
}

fn read(
    id: WorkflowId,
    graph: Option<Arc<Graph>>,
    stored: &Stored,
    shapes: &GraphInterner,
) -> Result<Box<CachedWorkflow>, StoreError> {
    let workflow = match graph {
        Some(graph) => Workflow::read_state(id, graph, &stored.state),
        None => {
            let graph = Arc::new(shapes.share(Workflow::read_graph(id, stored)?));
            Workflow::read_state(id, graph, &stored.state)
        }
    };
    Ok(CachedWorkflow::new(workflow?))
}

/// Result of reading one workflow, if the store has it.
type Loaded = Result<Option<Stored>, StoreError>;

/// Reads workflows. A corrupt workflow fails alone: the read is halved until that workflow is
/// found.
///
/// # Errors
/// The store cannot be read.
async fn load(store: &Store, ids: &[WorkflowId]) -> Result<Vec<Loaded>, StoreError> {
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
    use crate::codec::change::{Change, CreationRecord, Put, Write};
    use crate::engine::actor::request::{Envelope, Request};
    use crate::engine::post::reply_set::ReplySet;
    use crate::id::Partition;
    use crate::store::simulated::SimulatedStore;
    use crate::time::Timestamp;

    /// Returns batches of one request each about these workflows.
    fn groups(ids: &[WorkflowId]) -> Vec<WorkflowBatch> {
        let group = |&workflow: &WorkflowId| {
            let answer = ReplySet::new(1).reply(0);
            let mut group = WorkflowBatch::new(workflow, None);
            group.posted.push(Envelope {
                workflow,
                request: Request::Purge,
                now: Timestamp::default(),
                answer,
            });
            group
        };
        ids.iter().map(group).collect()
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
                birth: Some(birth),
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
        let pieces = pieces(&store, groups(&ids)).await;
        let found: Vec<WorkflowId> = pieces.iter().flatten().map(|group| group.id).collect();
        assert_eq!(found, ids);
        for piece in pieces {
            let ids: Vec<WorkflowId> = piece.iter().map(|group| group.id).collect();
            let bytes: u64 = store.sizes(&ids).await.unwrap().iter().sum();
            assert!(bytes <= PIECE + LARGE as u64, "{bytes}");
        }
        assert_eq!(
            super::pieces(&store, groups(&ids[..UNMEASURED]))
                .await
                .len(),
            1
        );
    }
}
