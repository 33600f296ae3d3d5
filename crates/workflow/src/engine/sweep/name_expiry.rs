//! Expiry of names: removes unused names of queues and workflows from the registers, and restores
//! missing ones.
//!
//! The server of the first partition checks a page of names at an interval. It removes a name
//!
//! - of workflows, when no workflow has it;
//! - of a queue, when it is not paused and nothing is ready there. In addition, it was last entered
//!   before the oldest workflow was created, so that no workflow names it. An entry older than
//!   [`UNUSED_QUEUE_TTL`] also suffices, because a job would restore it.
//!
//! A name must also have been entered before [`UNUSED_TTL`], and must not be entered during the
//! check. A creation enters its names first unless this server did so within [`REGISTERED_TTL`],
//! which is much shorter. So a removed name is one that no server relies on. A concurrent creation
//! at any server either enters the name before the removal, which prevents it, or after it. A
//! server that was suspended during a creation enters the names again when it resumes. Names that
//! are lost anyway, for example because such a server dies, are restored here from the rows.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hashbrown::HashSet;
use tracing::{debug, info};

use crate::codec::rows::{Row, Section};
use crate::engine::Engine;
use crate::engine::create::name_cache::REGISTERED_TTL;
use crate::engine::queues::Paused;
use crate::id::{Partition, WorkflowId};
use crate::store::error::StoreError;
use crate::store::query::{Order, Register, RowRange, RowSet};
use crate::store::register::Entered;
use crate::time::Timestamp;

/// Minimum age of the latest entry of a name that is removed. By then no server relies on the name,
/// and suspended creations have resumed.
const UNUSED: Duration = Duration::from_secs(3 * 3_600);
/// Minimum age of the latest entry of a queue's name that is removed although older workflows
/// exist.
const FORGOTTEN: Duration = Duration::from_secs(30 * 86_400);
/// Names of a page.
const PAGE: usize = 256;
/// Rows of one read that searches for used names.
const ROWS: usize = 256;
/// Maximum unknown queue names that one call looks up in the register.
const ASKED: usize = 4_096;
/// Interval between pages, and the delay after a page with removals, because more unused names may
/// follow.
const PAUSE: Duration = Duration::from_secs(300);
const SHORT_PAUSE: Duration = Duration::from_secs(1);

/// The progress of the search for unused names.
#[derive(Debug, Default)]
pub(crate) struct NameExpiry(Mutex<ScanProgress>);

#[derive(Debug, Clone, Default)]
struct ScanProgress {
    /// The time of the next page. `None` before the first call.
    next: Option<Timestamp>,
    /// For each register, the last name that was checked, and the last name that was restored from
    /// rows. `None` to begin with the first.
    looked: [Option<String>; 2],
    led: [Option<String>; 2],
}

/// The rows that contain the names of a register: a set, and the bytes before the name.
fn rows_with(register: Register) -> (RowSet, &'static [u8]) {
    match register {
        Register::Queues => (RowSet::Ready, b""),
        Register::Names => (RowSet::Index, b"n"),
    }
}

/// The prefix of the rows of a name.
fn rows_of(before: &[u8], name: &str) -> Row {
    [before, name.as_bytes(), &[0]].concat()
}

/// The name in a row.
fn name_in<'a>(before: &[u8], row: &'a [u8]) -> Option<&'a str> {
    let name = row.strip_prefix(before)?.split(|&byte| byte == 0).next()?;
    std::str::from_utf8(name).ok()
}

impl NameExpiry {
    /// The position of the next page, if it is time.
    fn begin(&self, now: Timestamp) -> Option<ScanProgress> {
        let mut progress = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = progress.next.is_some_and(|next| next <= now);
        if is_due || progress.next.is_none() {
            progress.next = Some(now + PAUSE);
        }
        is_due.then(|| progress.clone())
    }

    fn end(&self, progress: ScanProgress) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = progress;
    }
}

impl Engine {
    /// Reads the registers, restores names that the store lost, and adopts paused queues and
    /// policies of other servers.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(in crate::engine) async fn read_names(&self) -> Result<(), StoreError> {
        let now = self.queues().now();
        let queues = self.queues();
        let known = self.core.names.count(now);
        let (looked, paused) = tokio::try_join!(self.store().look(), self.store().paused_queues())?;
        if let Some(looked) = looked {
            self.restore_names(known, looked, now).await?;
        }
        for name in &paused {
            queues.set_paused(name, Paused::Yes);
        }
        let mut others = queues.paused();
        others.retain(|name| !paused.contains(name));
        for (name, value) in others
            .iter()
            .zip(self.store().registered(Register::Queues, &others).await?)
        {
            // A name that is missing was lost, so no operator resumed the queue.
            value
                .into_iter()
                .for_each(|value| queues.set_paused(name, Paused::read(&value)));
        }
        self.read_terms(looked).await
    }

    /// Those of these queues that may have jobs: a creation enters the names of its queues first.
    /// All if the register cannot be read. If very many are unknown here, a random selection of
    /// them is looked up.
    pub(super) async fn named(&self, queues: Vec<String>) -> Vec<String> {
        let (mut named, mut unknown): (Vec<_>, Vec<_>) = queues
            .into_iter()
            .partition(|name| self.core.names.has_queue(name));
        if unknown.len() > ASKED {
            fastrand::shuffle(&mut unknown);
            unknown.truncate(ASKED);
        }
        match self.store().registered(Register::Queues, &unknown).await {
            Ok(found) => named.extend(
                unknown
                    .into_iter()
                    .zip(found)
                    .filter_map(|(name, found)| found.map(|_| name)),
            ),
            Err(_) => named.extend(unknown),
        }
        named
    }

    /// Checks a page of names of each register, if it is time and this server is responsible.
    /// Failures are tried again later.
    pub(super) async fn expire_names(&self, now: Timestamp) {
        let is_home = self.core.context.home.mine.contains(Partition(0));
        if !is_home || !self.core.context.troubles.is_none() {
            return;
        }
        let Some(mut progress) = self.core.unused.begin(now) else {
            return;
        };
        progress.next = Some(now + PAUSE);
        for register in [Register::Queues, Register::Names] {
            match self.look_after(register, &mut progress, now).await {
                Ok(0) => {}
                Ok(_) => progress.next = Some(now + SHORT_PAUSE),
                Err(error) => debug!(%error, "unused names cannot be looked for"),
            }
        }
        progress
            .next
            .into_iter()
            .for_each(|next| self.core.context.expect_by(Partition(0), next));
        self.core.unused.end(progress);
    }

    /// Checks a page and returns the number of removed names.
    async fn look_after(
        &self,
        register: Register,
        progress: &mut ScanProgress,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let looked = &mut progress.looked[register as usize];
        let led = &mut progress.led[register as usize];
        let names = self.names_of_rows(register, led).await?;
        self.bring_back(register, names, now).await?;
        let page = self
            .store()
            .register_page(register, looked.as_deref(), PAGE)
            .await?;
        *looked = page
            .last()
            .filter(|_| page.len() == PAGE)
            .map(|(name, _)| name.clone());
        let open = page
            .into_iter()
            .filter(|(_, value)| Paused::read(value) == Paused::No);
        let entered = self
            .store()
            .entered(register, open.map(|(name, _)| name).collect())
            .await?;
        // An entry time of zero means that the time is unknown.
        let is_noted = |(_, at): &Entered| at.is_some_and(|at| at > Timestamp::default());
        let (noted, unnoted): (Vec<Entered>, Vec<Entered>) =
            entered.into_iter().partition(is_noted);
        self.enter(
            register,
            unnoted.into_iter().map(|(name, _)| (name, String::new())),
            now,
        )
        .await?;
        let unused = self.unused(register, noted, now).await?;
        let removed = self.store().forget(register, &unused).await?;
        if removed > 0 {
            let names: Vec<String> = unused.into_iter().map(|(name, _)| name).collect();
            self.core.names.drop(register, &names);
            info!(
                removed,
                ?register,
                "names that are no longer used were removed"
            );
        }
        Ok(removed)
    }

    /// The unused names among these, in order.
    async fn unused(
        &self,
        register: Register,
        mut names: Vec<Entered>,
        now: Timestamp,
    ) -> Result<Vec<Entered>, StoreError> {
        names.retain(|(_, at)| at.is_some_and(|at| now.since(at) > UNUSED));
        if names.is_empty() {
            return Ok(names);
        }
        if register == Register::Queues {
            let oldest = self.oldest().await?;
            let is_before = |at: Timestamp| {
                oldest
                    .is_none_or(|oldest| at + REGISTERED_TTL + REGISTERED_TTL < oldest.created_at())
            };
            names.retain(|(_, at)| at.is_some_and(|at| is_before(at) || now.since(at) > FORGOTTEN));
        }
        let used = self.used(register, &names).await?;
        names.retain(|(name, _)| !used.contains(name));
        Ok(names)
    }

    /// The oldest existing workflow.
    async fn oldest(&self) -> Result<Option<WorkflowId>, StoreError> {
        let all = RowRange::of(Section::All.prefix());
        let each: Vec<_> = self
            .store()
            .all_partitions()
            .map(|partition| (partition, all.clone()))
            .collect();
        let found = self.store().page(&each, Order::OldestFirst, 1).await;
        let found = found.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(found
            .into_iter()
            .flatten()
            .min_by_key(WorkflowId::created_at))
    }

    /// The names among these that some row contains.
    async fn used(
        &self,
        register: Register,
        names: &[Entered],
    ) -> Result<HashSet<String>, StoreError> {
        let (set, before) = rows_with(register);
        let mut used = HashSet::new();
        for partition in self.store().all_partitions() {
            let mut at = 0;
            // A read continues after each name whose rows exceed one read.
            while let Some((name, _)) = names.get(at) {
                let rows = self
                    .store()
                    .rows(partition, set, Some(&rows_of(before, name)), ROWS)
                    .await?;
                used.extend(
                    rows.iter()
                        .filter_map(|row| name_in(before, row))
                        .map(str::to_owned),
                );
                let Some(last) = rows.last().filter(|_| rows.len() == ROWS) else {
                    break;
                };
                at += names[at..]
                    .partition_point(|(name, _)| rows_of(before, name) <= *last)
                    .max(1);
            }
        }
        Ok(used)
    }

    /// Some names of rows, after `restored`, which advances.
    async fn names_of_rows(
        &self,
        register: Register,
        led: &mut Option<String>,
    ) -> Result<BTreeSet<String>, StoreError> {
        let (set, before) = rows_with(register);
        // This key sorts after all rows of the last name, because names contain no such byte.
        let after = led.as_ref().map_or(before.to_vec(), |name| {
            [before, name.as_bytes(), &[1]].concat()
        });
        let mut names = BTreeSet::new();
        let mut end = None::<String>;
        for partition in self.store().all_partitions() {
            let rows = self
                .store()
                .rows(partition, set, Some(&after), ROWS)
                .await?;
            names.extend(
                rows.iter()
                    .filter_map(|row| name_in(before, row))
                    .map(str::to_owned),
            );
            // Names after the end of a read may be missing from this partition.
            let last = rows
                .last()
                .filter(|_| rows.len() == ROWS)
                .and_then(|row| name_in(before, row));
            if let Some(last) = last {
                end = Some(end.map_or(last.to_owned(), |end| end.min(last.to_owned())));
            }
        }
        *led = end;
        Ok(names)
    }

    /// Enters the names that are missing in the register.
    async fn bring_back(
        &self,
        register: Register,
        names: BTreeSet<String>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let names: Vec<String> = names.into_iter().collect();
        let found = self.store().registered(register, &names).await?;
        let missing = names
            .into_iter()
            .zip(found)
            .filter(|(_, found)| found.is_none());
        self.enter(
            register,
            missing.map(|(name, _)| (name, String::new())),
            now,
        )
        .await
    }
}
