//! Makes a part of the server panic, for tests of the supervision. Release builds do not contain
//! it.

use std::future::Future;
use std::sync::Arc;

#[cfg(debug_assertions)]
pub(crate) use debug::{check, pull, with};

/// Runs `work` without a failpoint, in release builds.
#[cfg(not(debug_assertions))]
pub(crate) fn with<T>(_part: Arc<str>, work: impl Future<Output = T>) -> impl Future<Output = T> {
    work
}

/// Does nothing, in release builds.
#[cfg(not(debug_assertions))]
pub(crate) fn check(_part: &str) {}

#[cfg(debug_assertions)]
mod debug {
    use std::future::pending;
    use std::sync::LazyLock;

    use tokio::sync::watch;

    use super::{Arc, Future};

    /// The part of this process that panics at its next check.
    static TARGET: LazyLock<watch::Sender<Option<String>>> =
        LazyLock::new(|| watch::Sender::new(None));

    /// Makes `part` panic.
    pub(crate) fn pull(part: String) {
        TARGET.send_replace(Some(part));
    }

    /// Panics once if the failpoint of this part is triggered.
    pub(crate) fn check(part: &str) {
        let hit = TARGET
            .send_if_modified(|target| target.as_deref() == Some(part) && target.take().is_some());
        assert!(!hit, "the failpoint of the part '{part}' is triggered");
    }

    /// Runs `work` until the failpoint of this part is triggered.
    pub(crate) async fn with<T>(part: Arc<str>, work: impl Future<Output = T>) -> T {
        let mut target = TARGET.subscribe();
        let pulled = async {
            loop {
                check(&part);
                if target.changed().await.is_err() {
                    return pending().await;
                }
            }
        };
        tokio::select! {
            biased;
            done = work => done,
            never = pulled => never,
        }
    }
}
