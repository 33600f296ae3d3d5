//! Runs work that keeps a core busy on blocking threads, so that no claim waits for it.

use std::future::pending;
use std::panic::resume_unwind;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, spawn_blocking};

use crate::engine::Engine;

/// Most work that runs at the same time: the other cores are for requests.
const MAX_CONCURRENT: usize = 2;

/// Permits for blocking work, and for large workflows in memory.
#[derive(Debug, Clone)]
pub(in crate::engine) struct BlockingPermits {
    work: Arc<Semaphore>,
    large: Arc<Semaphore>,
}

/// The permit for a large workflow that a caller reads, until all clones are dropped.
#[derive(Debug, Clone)]
pub(crate) struct LargeReadPermit {
    _permit: Arc<OwnedSemaphorePermit>,
}

impl Default for BlockingPermits {
    fn default() -> Self {
        let permits = || Arc::new(Semaphore::new(MAX_CONCURRENT));
        Self {
            work: permits(),
            large: permits(),
        }
    }
}

impl Engine {
    /// Waits for a permit for a large workflow. Blocking work never waits for such a permit, so its
    /// holder may wait for blocking work.
    pub(in crate::engine) async fn large_read_permit(&self) -> LargeReadPermit {
        let permit = Arc::clone(&self.core.blocking_permits.large)
            .acquire_owned()
            .await
            .expect("nobody closes it");
        LargeReadPermit {
            _permit: Arc::new(permit),
        }
    }

    /// Runs long work on a blocking thread, such as reading or writing a text of more than 128 KiB.
    /// Two run at a time; others wait.
    ///
    /// # Panics
    /// The work panics.
    ///
    /// # Cancellation
    /// When the future is dropped, work that has begun goes on, and keeps its permit until its end.
    pub async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let permit = Arc::clone(&self.core.blocking_permits.work)
            .acquire_owned()
            .await
            .expect("nobody closes it");
        let done = spawn_blocking(move || {
            let _permit = permit;
            work()
        });
        match done.await.map_err(JoinError::try_into_panic) {
            Ok(done) => done,
            Err(Ok(panic)) => resume_unwind(panic),
            // The runtime ends, and the caller ends with it.
            Err(Err(_)) => pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::mpsc;
    use std::task::Poll;

    use super::*;
    use crate::engine::actor::request::StartMode;
    use crate::engine::{EngineOptions, NewWorkflow};
    use crate::graph::{Definition, Graph, JobDefinition};
    use crate::model::Timestamp;
    use crate::store::{SimulatedStore, Store};

    /// A hundred views of one large workflow read it a hundred times before the first view was
    /// made.
    #[tokio::test]
    async fn a_large_workflow_is_not_read_before_there_is_room_for_it() {
        let store = SimulatedStore::new(1);
        let engine = Engine::start(Store::Simulated(store.clone()), EngineOptions::default())
            .await
            .unwrap();
        let jobs = (0..2_000)
            .map(|at| JobDefinition::new(format!("{at:0100}"), "a"))
            .collect();
        let graph = Graph::build(Definition {
            name: "w".to_owned(),
            jobs,
            ..Definition::default()
        })
        .unwrap();
        let new = NewWorkflow {
            graph,
            start: StartMode::Now,
            created_at: None,
        };
        let id = engine
            .create(vec![new], Timestamp::from_micros(1))
            .await
            .remove(0)
            .unwrap()
            .workflow;
        let kept = engine.show(id).await.unwrap().released();
        let views = [
            engine.show(id).await.unwrap(),
            engine.show(id).await.unwrap(),
        ];
        let before = store.calls();
        let mut others: Vec<_> = (0..100).map(|_| Box::pin(engine.show(id))).collect();
        let mut turns = 100;
        poll_fn(|context| {
            assert!(
                others
                    .iter_mut()
                    .all(|show| show.as_mut().poll(context).is_pending())
            );
            context.waker().wake_by_ref();
            turns -= 1;
            if turns > 0 {
                Poll::Pending
            } else {
                Poll::Ready(())
            }
        })
        .await;
        assert_eq!(store.calls() - before, 100, "only their sizes");
        drop(views);
        for show in others {
            assert_eq!(show.await.unwrap().jobs().len(), 2_000);
        }
        drop(kept);
    }

    #[tokio::test]
    async fn blocking_work_is_bounded_and_delays_no_thread() {
        let engine = Engine::start(
            Store::Simulated(SimulatedStore::new(1)),
            EngineOptions::default(),
        )
        .await
        .unwrap();
        let ends = mpsc::channel::<()>();
        let begun = mpsc::channel();
        let end = std::sync::Mutex::new(ends.1);
        let end = Arc::new(end);
        for _ in 0..MAX_CONCURRENT {
            let engine = engine.clone();
            let end = Arc::clone(&end);
            let begun = begun.0.clone();
            tokio::spawn(async move {
                let work = move || {
                    begun.send(()).unwrap();
                    let _closed = end.lock().unwrap().recv();
                };
                engine.run_blocking(work).await;
            });
        }
        let mut third = std::pin::pin!(engine.run_blocking(|| 3));
        while begun.1.try_recv().is_err() {
            // This thread is free while the work runs on others.
            tokio::task::yield_now().await;
        }
        drop(ends.0);
        assert_eq!(third.as_mut().await, 3);
    }
}
