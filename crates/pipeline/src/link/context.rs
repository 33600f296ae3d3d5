//! State that all parts of one client share: its configuration, and the runtime and lifetime of its
//! tasks.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::call::LeftBehind;
use crate::config::{Config, ConfigError};

/// State that all parts of one client share.
#[derive(Debug)]
pub(crate) struct ClientContext {
    pub(crate) config: Config,
    /// Notified if a node is lost, unreachable, or does not own an expected slot: the topology may
    /// have changed.
    pub(crate) refresh_wanted: Notify,
    /// Commands that must be sent although their callers have left.
    pub(crate) left_behind: LeftBehind,
    pub(crate) stop: CancellationToken,
    runtime: Handle,
    tracker: TaskTracker,
}

impl ClientContext {
    pub(crate) fn new(config: Config) -> Result<Arc<Self>, ConfigError> {
        config.validate()?;
        Ok(Arc::new(Self {
            config,
            refresh_wanted: Notify::new(),
            left_behind: LeftBehind::default(),
            stop: CancellationToken::new(),
            runtime: Handle::current(),
            tracker: TaskTracker::new(),
        }))
    }

    /// Runs a task until it ends or `stop` is cancelled.
    pub(crate) fn spawn<F>(&self, stop: CancellationToken, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let task = async move {
            stop.run_until_cancelled(task).await;
        };
        self.tracker.spawn_on(task, &self.runtime);
    }

    /// Runs a task that ends by itself after `stop` is cancelled.
    pub(crate) fn spawn_unbounded<F>(&self, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tracker.spawn_on(task, &self.runtime);
    }

    pub(crate) fn end(&self) {
        self.tracker.close();
        self.stop.cancel();
    }

    /// Waits for all tasks, after [`ClientContext::end`].
    pub(crate) async fn ended(&self) {
        self.tracker.wait().await;
    }
}
