//! State of the store of workflows, and the calls that wait until it is open.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tidegate_workflow::Engine;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::http::problem::{Code, Problem};

/// Time for which a call waits until the store is open. Opening a large file takes half a second.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// State of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StoreState {
    /// No call has needed the store yet. The first one opens it.
    NotRequested,
    /// The store cannot be opened, for this reason.
    Failed(Arc<str>),
    Open,
}

/// Gate that calls pass once the store is open.
#[derive(Debug)]
pub(crate) struct StoreGate {
    /// Engine of the open store. It is set before the state becomes `Open`.
    engine: OnceLock<Engine>,
    state: watch::Sender<StoreState>,
    requested: Notify,
}

impl Default for StoreGate {
    fn default() -> Self {
        Self {
            engine: OnceLock::new(),
            state: watch::Sender::new(StoreState::NotRequested),
            requested: Notify::new(),
        }
    }
}

impl StoreGate {
    pub(crate) fn open(&self, engine: Engine) {
        // A second call is a mistake of the caller. Requests stay with the first engine.
        let _ = self.engine.set(engine);
        self.set(StoreState::Open);
    }

    pub(crate) fn set(&self, state: StoreState) {
        self.state.send_replace(state);
    }

    pub(crate) fn state(&self) -> StoreState {
        self.state.borrow().clone()
    }

    /// Returns the engine if the store is open.
    pub(crate) fn engine(&self) -> Option<&Engine> {
        self.engine.get()
    }

    /// Returns when a call needs a store that is not open yet.
    pub(crate) async fn requested(&self) {
        self.requested.notified().await;
    }

    /// Waits until the store is open.
    ///
    /// # Errors
    /// The store cannot be opened, is not open in time, or the server drains.
    pub(crate) async fn wait_until_open(&self, drain: &CancellationToken) -> Result<(), Problem> {
        if self.engine.get().is_some() {
            return Ok(());
        }
        let mut state = self.state.subscribe();
        self.requested.notify_one();
        let settled = timeout(
            OPEN_TIMEOUT,
            state.wait_for(|state| *state != StoreState::NotRequested),
        );
        let settled = tokio::select! {
            settled = settled => settled,
            () = drain.cancelled() => return Err(Problem::new(Code::ShuttingDown, "the server is shutting down")),
        };
        match settled {
            Ok(Ok(state)) => refusal(&state),
            _ => Err(Problem::without_store(
                "the store of workflows is still being opened",
            )),
        }
    }
}

fn refusal(state: &StoreState) -> Result<(), Problem> {
    match state {
        StoreState::Failed(reason) => Err(Problem::without_store(&**reason)),
        StoreState::Open | StoreState::NotRequested => Ok(()),
    }
}
