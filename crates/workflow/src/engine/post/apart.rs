//! Work that keeps a processor for long. It is done apart from the engine's threads, so that nobody's claim waits for it.

use std::future::pending;
use std::panic::resume_unwind;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::{JoinError, spawn_blocking};

use crate::engine::Engine;

/// So much at a time: the rest of the machine is for others.
const AT_A_TIME: usize = 2;

/// Places for work apart.
#[derive(Debug, Clone)]
pub(in crate::engine) struct Places(Arc<Semaphore>);

impl Default for Places {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(AT_A_TIME)))
    }
}

impl Engine {
    /// Does work that takes long, such as to read or write a text of more than 128 KiB, apart from its threads. Two at a time; others wait.
    ///
    /// # Panics
    /// The work panics.
    ///
    /// # Cancellation
    /// When the future is dropped, work that has begun goes on, and keeps its place until its end.
    pub async fn apart<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let place = Arc::clone(&self.core.apart.0).acquire_owned().await.expect("nobody closes it");
        let done = spawn_blocking(move || {
            let _place = place;
            work()
        });
        match done.await.map_err(JoinError::try_into_panic) {
            Ok(done) => done,
            Err(Ok(panic)) => resume_unwind(panic),
            // The runtime ends, and whoever waits with it.
            Err(Err(_)) => pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::engine::EngineOptions;
    use crate::store::Store;
    use crate::store::memory::MemoryStore;

    #[tokio::test]
    async fn work_apart_is_bounded_and_holds_nobody_up() {
        let engine = Engine::start(Store::Memory(MemoryStore::new(1)), EngineOptions::default()).await.unwrap();
        let (ends, begun) = (mpsc::channel::<()>(), mpsc::channel());
        let end = std::sync::Mutex::new(ends.1);
        let end = Arc::new(end);
        for _ in 0..AT_A_TIME {
            let (engine, end, begun) = (engine.clone(), Arc::clone(&end), begun.0.clone());
            tokio::spawn(async move {
                let work = move || {
                    begun.send(()).unwrap();
                    let _closed = end.lock().unwrap().recv();
                };
                engine.apart(work).await;
            });
        }
        let mut third = std::pin::pin!(engine.apart(|| 3));
        while begun.1.try_recv().is_err() {
            // This thread is free while others work.
            tokio::task::yield_now().await;
        }
        drop(ends.0);
        assert_eq!(third.as_mut().await, 3);
    }
}
