//! Returns free pages to the file system while no request is waiting.

use std::time::Duration;

use rusqlite::Connection;
use tracing::{debug, info};

use crate::codec::StoreError;
use crate::store::sqlite::worker::{RequestQueue, WaitResult};

/// Time without a request before free pages are returned: requests that follow each other do not
/// wait for that.
const IDLE_TIME: Duration = Duration::from_millis(20);
/// Delay between two steps, so that readers and other programs have most of the disk.
const STEP_DELAY: Duration = Duration::from_millis(20);
/// Pages of one step: 1 MiB, about 5 ms. A request that arrives during a step waits for its end.
const STEP_PAGES: u32 = 256;
/// Free pages that stay in the file for later writes: this number, or one in [`FREE_SHARE`] of the
/// file if that is more.
const MIN_FREE_PAGES: i64 = 256;
const FREE_SHARE: i64 = 8;

/// The state of returning free pages.
#[derive(Debug, Default)]
pub(super) struct FreePages {
    /// The file was opened or written after the free pages were last counted.
    needs_count: bool,
    /// Free pages are being returned.
    returning: bool,
}

impl FreePages {
    /// The state after the file was opened.
    pub(super) fn new() -> Self {
        Self {
            needs_count: true,
            returning: false,
        }
    }

    pub(super) fn on_written(&mut self) {
        self.needs_count = true;
    }

    /// Waits for a request, and returns free pages meanwhile. `None` if the queue is closed.
    pub(super) fn next<J>(
        &mut self,
        connection: &Connection,
        requests: &mut RequestQueue<J>,
    ) -> Option<J> {
        while self.needs_count || self.returning {
            match requests.next_within(if self.needs_count {
                IDLE_TIME
            } else {
                STEP_DELAY
            }) {
                WaitResult::Request(request) => return Some(request),
                WaitResult::Ended => return None,
                WaitResult::TimedOut => self.step(connection),
            }
        }
        requests.next()
    }

    fn step(&mut self, connection: &Connection) {
        self.needs_count = false;
        // If the file is full or locked, its pages are returned later, after the next write.
        self.returning = return_pages(connection, self.returning).unwrap_or_else(|error| {
            debug!(%error, "free pages of the file stay in it for now");
            false
        });
    }
}

/// Returns some free pages if there are enough of them. The result is whether there may be more.
fn return_pages(connection: &Connection, has_begun: bool) -> Result<bool, StoreError> {
    let number = |pragma| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    let free = number("freelist_count")?;
    let all = number("page_count")?;
    // Once begun, it continues until half of the pages remain that are enough to begin.
    let kept_pages = MIN_FREE_PAGES.max(all / FREE_SHARE) / if has_begun { 2 } else { 1 };
    if free > kept_pages && can_shrink(connection)? {
        // Each page is a row.
        let mut step =
            connection.prepare_cached(&format!("PRAGMA incremental_vacuum({STEP_PAGES})"))?;
        let mut pages = step.query([])?;
        while pages.next()?.is_some() {}
        return Ok(true);
    }
    if has_begun {
        // The file becomes shorter when its log is copied into it, unless a reader uses an earlier
        // state.
        connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
        info!(pages = all, "free pages of the file were returned");
    }
    Ok(false)
}

/// Whether free pages can be returned one by one. Files of earlier versions cannot.
pub(in crate::store::sqlite) fn can_shrink(connection: &Connection) -> Result<bool, StoreError> {
    /// The value of `INCREMENTAL`.
    const STEP_BY_STEP: i64 = 2;
    Ok(
        connection.pragma_query_value(None, "auto_vacuum", |row| row.get::<_, i64>(0))?
            == STEP_BY_STEP,
    )
}
