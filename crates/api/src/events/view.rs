//! What the readers of one workflow share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tidegate_workflow::{Engine, EngineError, JobState, Snapshot, WorkflowId};
use tokio::sync::OnceCell;

/// What a reader knows: not the workflow itself, since thousands may look at one of thousands of jobs.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) version: u64,
    /// What each job is doing, as its place among the words.
    pub(super) places: Vec<u8>,
}

/// A workflow at one version.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) snapshot: Snapshot,
    pub(super) told: Arc<Told>,
}

/// What all readers of one workflow share: each version is read once, however many want it.
#[derive(Debug, Default)]
pub(super) struct View {
    latest: Mutex<(u64, Arc<OnceCell<Arc<Look>>>)>,
}

impl View {
    /// The workflow at this version or a later one.
    pub(super) async fn look(&self, engine: &Engine, id: WorkflowId, version: u64) -> Result<Arc<Look>, EngineError> {
        let cell = {
            let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
            if latest.0 < version {
                *latest = (version, Arc::default());
            }
            Arc::clone(&latest.1)
        };
        let read = async || {
            let snapshot = engine.show(id).await?;
            let told = Told { version: snapshot.meta().version, places: places(&snapshot) };
            Ok(Arc::new(Look { snapshot, told: Arc::new(told) }))
        };
        cell.get_or_try_init(read).await.cloned()
    }
}

/// The workflows that somebody reads events of.
#[derive(Debug, Default)]
pub(crate) struct Views(Mutex<HashMap<WorkflowId, Weak<View>>>);

impl Views {
    pub(super) fn of(&self, id: WorkflowId) -> Arc<View> {
        let mut views = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if views.len() == views.capacity() {
            views.retain(|_, view| view.strong_count() > 0);
        }
        if let Some(view) = views.get(&id).and_then(Weak::upgrade) {
            return view;
        }
        let view = Arc::<View>::default();
        views.insert(id, Arc::downgrade(&view));
        view
    }
}

fn places(snapshot: &Snapshot) -> Vec<u8> {
    let place = |state: JobState| JobState::WORDS.iter().position(|word| *word == state.word()).unwrap_or_default();
    snapshot.jobs().iter().map(|job| place(job.state) as u8).collect()
}

#[cfg(test)]
mod tests {
    use tidegate_workflow::{
        Begin, Definition, EngineOptions, Graph, JobDefinition, MemoryStore, NewWorkflow, Store, Timestamp,
    };

    use super::*;

    #[tokio::test]
    async fn readers_of_one_workflow_share_what_is_read() {
        let store = Store::Memory(MemoryStore::new(1));
        let engine = Engine::start(store, EngineOptions::default()).await.unwrap();
        let definition =
            Definition { name: "w".to_owned(), jobs: vec![JobDefinition::new("a", "a")], ..Definition::default() };
        let mut ids = Vec::new();
        for _ in 0..1_000 {
            let graph = Graph::build(definition.clone()).unwrap();
            let new = NewWorkflow { graph, begin: Begin::Now, created_at: None };
            ids.push(engine.create(vec![new], Timestamp::from_micros(1)).await.remove(0).unwrap().workflow);
        }
        let views = Views::default();
        let (one, other) = (views.of(ids[0]), views.of(ids[0]));
        let version = engine.glance(ids[0]).await.unwrap().version;
        let first = one.look(&engine, ids[0], version).await.unwrap();
        assert!(Arc::ptr_eq(&first, &other.look(&engine, ids[0], version).await.unwrap()));
        assert!(!Arc::ptr_eq(&first, &other.look(&engine, ids[0], version + 1).await.unwrap()), "it is read again");
        ids.iter().skip(1).for_each(|id| drop(views.of(*id)));
        assert!(views.0.lock().unwrap().len() < 100, "those that nobody reads are forgotten");
        assert!(Arc::ptr_eq(&one, &views.of(ids[0])));
    }
}
