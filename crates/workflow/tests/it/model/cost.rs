//! What a step costs, whatever fails: calls of the store, and lines of log.

use std::cell::Cell;

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::ground::Ground;

thread_local! {
    static LINES: Cell<u64> = const { Cell::new(0) };
}

/// Calls of the store for one thing that somebody does; most of them are looks and wake-ups of one that waits.
const CALLS: u64 = 400;
/// Lines of log for one thing that somebody does.
const MOST_LINES: u64 = 10;

/// What had been spent when a step began.
pub(crate) struct Cost {
    calls: u64,
    lines: u64,
}

impl Cost {
    pub(crate) fn begin(ground: &Ground) -> Self {
        Self {
            calls: ground.calls(),
            lines: LINES.get(),
        }
    }

    pub(crate) fn check(self, ground: &Ground, steps: usize) {
        let calls = ground.calls() - self.calls;
        let lines = LINES.get() - self.lines;
        assert!(calls <= CALLS * steps as u64, "{calls} calls of the store");
        assert!(lines <= MOST_LINES * steps as u64, "{lines} lines of log");
    }
}

/// Counts the lines of warnings and errors of this thread.
pub(crate) struct Lines;

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        LINES.set(LINES.get() + 1);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
