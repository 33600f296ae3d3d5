//! The minimum rate of bytes while a read or a write waits for them.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

/// A minimum rate: `min_bytes` must move in each window. Windows begin with a wait, and there are
/// at most `max_windows`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RateRule {
    pub(crate) window: Duration,
    /// In bytes.
    pub(crate) least: usize,
    pub(crate) windows: u32,
}

/// Watches one direction of a connection, or one body. It has no cost until a read or a write has
/// to wait.
#[derive(Debug)]
pub(super) struct RateWatch {
    rule: RateRule,
    wait: Option<Wait>,
}

#[derive(Debug)]
struct Wait {
    end: Pin<Box<Sleep>>,
    moved: usize,
    windows: u32,
}

impl RateWatch {
    pub(super) fn new(rule: RateRule) -> Self {
        Self { rule, wait: None }
    }

    pub(super) fn moved(&mut self, bytes: usize) {
        if let Some(wait) = &mut self.wait {
            wait.moved = wait.moved.saturating_add(bytes);
        }
    }

    /// The wait is over.
    pub(super) fn rest(&mut self) {
        self.wait = None;
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.wait.is_some()
    }

    /// Waits for bytes. Ready if they come too slowly.
    pub(super) fn poll_too_slow(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let rule = self.rule;
        let wait = self.wait.get_or_insert_with(|| Wait {
            end: Box::pin(sleep(rule.window)),
            moved: 0,
            windows: 0,
        });
        loop {
            ready!(wait.end.as_mut().poll(context));
            wait.windows = wait.windows.saturating_add(1);
            if wait.moved < rule.least || wait.windows >= rule.windows {
                return Poll::Ready(());
            }
            wait.moved = 0;
            wait.end.as_mut().reset(Instant::now() + rule.window);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    /// How many windows a peer is waited for that moves so many bytes every five milliseconds.
    async fn windows(rule: RateRule, bytes: usize) -> Option<u32> {
        let mut pace = RateWatch::new(rule);
        let begun = Instant::now();
        for _ in 0..400 {
            tokio::select! {
                biased;
                () = poll_fn(|context| pace.poll_too_slow(context)) => {
                    return Some((begun.elapsed().as_millis() / rule.window.as_millis()) as u32);
                }
                () = sleep(Duration::from_millis(5)) => pace.moved(bytes),
            }
        }
        None
    }

    /// The clock of the test moves only while all wait: a busy machine changes nothing.
    #[tokio::test(start_paused = true)]
    async fn too_slow_is_known_after_a_window_and_too_long_after_the_last() {
        let rule = RateRule {
            window: Duration::from_millis(500),
            least: 1_000,
            windows: u32::MAX,
        };
        assert_eq!(windows(rule, 1).await, Some(1));
        assert_eq!(windows(rule, 1_000).await, None);
        assert_eq!(
            windows(RateRule { windows: 3, ..rule }, 1_000).await,
            Some(3)
        );
    }
}
