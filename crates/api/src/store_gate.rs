//! Whether the store of workflows is open, and who waits for it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tidegate_workflow::Engine;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::http::problem::{Code, Problem};

/// How long a call waits until the store has been opened. A large file is looked through for half a second.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is known about the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StoreState {
    /// There is none yet: the first call makes it.
    NotRequested,
    /// It cannot be opened, for this reason.
    Failed(Arc<str>),
    Open,
}

/// The way from no store to an open one.
#[derive(Debug)]
pub(crate) struct StoreGate {
    /// Set before the standing says so.
    engine: OnceLock<Engine>,
    standing: watch::Sender<StoreState>,
    wanted: Notify,
}

impl Default for StoreGate {
    fn default() -> Self {
        Self {
            engine: OnceLock::new(),
            standing: watch::Sender::new(StoreState::NotRequested),
            wanted: Notify::new(),
        }
    }
}

impl StoreGate {
    pub(crate) fn open(&self, engine: Engine) {
        // A second one would be a mistake of the caller; calls stay with the first.
        let _ = self.engine.set(engine);
        self.set(StoreState::Open);
    }

    pub(crate) fn set(&self, standing: StoreState) {
        self.standing.send_replace(standing);
    }

    pub(crate) fn standing(&self) -> StoreState {
        self.standing.borrow().clone()
    }

    /// The engine of a store that is open.
    pub(crate) fn engine(&self) -> Option<&Engine> {
        self.engine.get()
    }

    /// Returns when a call wants a store that there is not yet.
    pub(crate) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Waits until the store is open.
    ///
    /// # Errors
    /// It cannot be opened, or the server drains.
    pub(crate) async fn opened(&self, drain: &CancellationToken) -> Result<(), Problem> {
        if self.engine.get().is_some() {
            return Ok(());
        }
        let mut standing = self.standing.subscribe();
        self.wanted.notify_one();
        let settled = timeout(
            PATIENCE,
            standing.wait_for(|standing| *standing != StoreState::NotRequested),
        );
        let settled = tokio::select! {
            settled = settled => settled,
            () = drain.cancelled() => return Err(Problem::new(Code::ShuttingDown, "the server is shutting down")),
        };
        match settled {
            Ok(Ok(standing)) => refusal(&standing),
            _ => Err(Problem::without_store(
                "the store of workflows is still being opened",
            )),
        }
    }
}

fn refusal(standing: &StoreState) -> Result<(), Problem> {
    match standing {
        StoreState::Failed(reason) => Err(Problem::without_store(&**reason)),
        StoreState::Open | StoreState::NotRequested => Ok(()),
    }
}
