//! Gives pages that nothing is on back to the file system, in moments in which nothing is written.

use std::time::Duration;

use rusqlite::Connection;
use tracing::{debug, info};

use crate::store::error::StoreError;
use crate::store::sqlite::worker::{Jobs, Waited};

/// How long nothing has been asked before pages are given back: requests that follow each other do not wait for that.
const IDLE: Duration = Duration::from_millis(20);
/// The pause between two steps, so that readers and other programs have most of the disk.
const PAUSE: Duration = Duration::from_millis(20);
/// Pages of one step: 1 MiB, about 5 ms. A request that comes meanwhile waits that long.
const STEP: u32 = 256;
/// The pages that are kept for what comes next: this many, or one of [`SHARE`] of the file.
const KEPT: i64 = 256;
const SHARE: i64 = 8;

/// What is known of pages that nothing is on.
#[derive(Debug, Default)]
pub(super) struct Space {
    /// Something was written, or the file was opened, since somebody looked.
    unknown: bool,
    /// They are being given back.
    giving: bool,
}

impl Space {
    /// Of a file that was just opened.
    pub(super) fn unknown() -> Self {
        Self {
            unknown: true,
            giving: false,
        }
    }

    pub(super) fn note_written(&mut self) {
        self.unknown = true;
    }

    /// Waits for a job, and gives pages back meanwhile. None: no more comes.
    pub(super) fn next<J>(&mut self, connection: &Connection, jobs: &mut Jobs<J>) -> Option<J> {
        while self.unknown || self.giving {
            match jobs.next_within(if self.unknown { IDLE } else { PAUSE }) {
                Waited::Job(job) => return Some(job),
                Waited::Ended => return None,
                Waited::Nothing => self.step(connection),
            }
        }
        jobs.next()
    }

    fn step(&mut self, connection: &Connection) {
        self.unknown = false;
        // A file that is full or locked gives back later, after the next write.
        self.giving = give_back(connection, self.giving).unwrap_or_else(|error| {
            debug!(%error, "free pages of the file stay in it for now");
            false
        });
    }
}

/// Gives some pages back if there are enough of them. Returns whether there may be more to give.
fn give_back(connection: &Connection, began: bool) -> Result<bool, StoreError> {
    let number = |pragma| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    let free = number("freelist_count")?;
    let all = number("page_count")?;
    // Once begun, it goes on until half as many are left as are enough to begin.
    let kept = KEPT.max(all / SHARE) / if began { 2 } else { 1 };
    if free > kept && gives_back(connection)? {
        // Each page is a row.
        let mut step = connection.prepare_cached(&format!("PRAGMA incremental_vacuum({STEP})"))?;
        let mut pages = step.query([])?;
        while pages.next()?.is_some() {}
        return Ok(true);
    }
    if began {
        // The file becomes shorter when its log is copied into it, unless somebody reads an earlier state.
        connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
        info!(pages = all, "free pages of the file were given back");
    }
    Ok(false)
}

/// Whether pages can be given back one by one. Files of earlier versions cannot do that.
pub(in crate::store::sqlite) fn gives_back(connection: &Connection) -> Result<bool, StoreError> {
    /// `INCREMENTAL`.
    const STEP_BY_STEP: i64 = 2;
    Ok(
        connection.pragma_query_value(None, "auto_vacuum", |row| row.get::<_, i64>(0))?
            == STEP_BY_STEP,
    )
}
