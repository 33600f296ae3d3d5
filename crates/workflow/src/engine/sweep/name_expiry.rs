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

use crate::codec::{Row, Section, StoreError};
use crate::engine::Engine;
use crate::engine::create::name_cache::REGISTERED_TTL;
use crate::model::{Partition, Timestamp, WorkflowId};
use crate::queue::Paused;
use crate::store::{Order, Register, RegisteredName, RowRange, RowSet};

/// Minimum age of the latest entry of a name that is removed. By then no server relies on the name,
/// and suspended creations have resumed.
const UNUSED_TTL: Duration = Duration::from_secs(3 * 3_600);
/// Minimum age of the latest entry of a queue's name that is removed although older workflows
/// exist.
const UNUSED_QUEUE_TTL: Duration = Duration::from_secs(30 * 86_400);
/// Names of a page.
const PAGE_NAMES: usize = 256;
/// Rows of one read that searches for used names.
const PAGE_ROWS: usize = 256;
/// Maximum unknown queue names that one call looks up in the register.
const MAX_UNKNOWN_QUEUES: usize = 4_096;
/// Interval between pages, and the delay after a page with removals, because more unused names may
/// follow.
const PAGE_INTERVAL: Duration = Duration::from_secs(300);
const BUSY_PAGE_INTERVAL: Duration = Duration::from_secs(1);

/// The progress of the search for unused names.
#[derive(Debug, Default)]
pub(crate) struct NameExpiry(Mutex<ScanProgress>);

#[derive(Debug, Clone, Default)]
struct ScanProgress {
    /// The time of the next page. `None` before the first call.
    next: Option<Timestamp>,
    /// For each register, the last name that was checked, and the last name that was restored from
    /// rows. `None` to begin with the first.
    checked: [Option<String>; 2],
    restored: [Option<String>; 2],
}

/// The rows that contain the names of a register: a set, and the bytes before the name.
fn register_rows(register: Register) -> (RowSet, &'static [u8]) {
    match register {
        Register::Queues => (RowSet::Ready, b""),
        Register::Names => (RowSet::Index, b"n"),
    }
}

/// The prefix of the rows of a name.
fn name_rows(before: &[u8], name: &str) -> Row {
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
            progress.next = Some(now + PAGE_INTERVAL);
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
        let known = self.core.name_cache.count(now);
        let (registers, paused) =
            tokio::try_join!(self.store().verify(), self.store().paused_queues())?;
        if let Some(registers) = registers {
            self.restore_names(known, registers, now).await?;
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
        self.refresh_policies(registers).await
    }

    /// Those of these queues that may have jobs: a creation enters the names of its queues first.
    /// All if the register cannot be read. If very many are unknown here, a random selection of
    /// them is looked up.
    pub(super) async fn registered_queues(&self, queues: Vec<String>) -> Vec<String> {
        let (mut registered, mut unknown): (Vec<_>, Vec<_>) = queues
            .into_iter()
            .partition(|name| self.core.name_cache.has_queue(name));
        if unknown.len() > MAX_UNKNOWN_QUEUES {
            fastrand::shuffle(&mut unknown);
            unknown.truncate(MAX_UNKNOWN_QUEUES);
        }
        match self.store().registered(Register::Queues, &unknown).await {
            Ok(found) => registered.extend(
                unknown
                    .into_iter()
                    .zip(found)
                    .filter_map(|(name, found)| found.map(|_| name)),
            ),
            Err(_) => registered.extend(unknown),
        }
        registered
    }

    /// Checks a page of names of each register, if it is time and this server is responsible.
    /// Failures are tried again later.
    pub(super) async fn expire_names(&self, now: Timestamp) {
        let is_assigned = self
            .core
            .context
            .membership
            .local_partitions
            .contains(Partition(0));
        if !is_assigned || !self.core.context.store_health.is_healthy() {
            return;
        }
        let Some(mut progress) = self.core.name_expiry.begin(now) else {
            return;
        };
        progress.next = Some(now + PAGE_INTERVAL);
        for register in [Register::Queues, Register::Names] {
            match self.expire_page(register, &mut progress, now).await {
                Ok(0) => {}
                Ok(_) => progress.next = Some(now + BUSY_PAGE_INTERVAL),
                Err(error) => debug!(%error, "unused names cannot be looked for"),
            }
        }
        progress
            .next
            .into_iter()
            .for_each(|next| self.core.context.schedule_sweep(Partition(0), next));
        self.core.name_expiry.end(progress);
    }

    /// Checks a page and returns the number of removed names.
    async fn expire_page(
        &self,
        register: Register,
        progress: &mut ScanProgress,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let checked = &mut progress.checked[register as usize];
        let restored = &mut progress.restored[register as usize];
        let names = self.names_of_rows(register, restored).await?;
        self.restore_missing(register, names, now).await?;
        let entered = self.next_entries(register, checked).await?;
        // An entry time of zero means that the time is unknown.
        let has_time = |(_, at): &RegisteredName| at.is_some_and(|at| at > Timestamp::default());
        let (timed, untimed): (Vec<RegisteredName>, Vec<RegisteredName>) =
            entered.into_iter().partition(has_time);
        self.enter_names(
            register,
            untimed.into_iter().map(|(name, _)| (name, String::new())),
            now,
        )
        .await?;
        self.remove_unused_names(register, timed, now).await
    }

    /// Reads the page of a register after `checked`, which advances, without paused queues.
    async fn next_entries(
        &self,
        register: Register,
        checked: &mut Option<String>,
    ) -> Result<Vec<RegisteredName>, StoreError> {
        let page = self
            .store()
            .register_page(register, checked.as_deref(), PAGE_NAMES)
            .await?;
        *checked = page
            .last()
            .filter(|_| page.len() == PAGE_NAMES)
            .map(|(name, _)| name.clone());
        let open = page
            .into_iter()
            .filter(|(_, value)| Paused::read(value) == Paused::No);
        self.store()
            .registered_at(register, open.map(|(name, _)| name).collect())
            .await
    }

    /// Removes the unused names among these. Returns their number.
    async fn remove_unused_names(
        &self,
        register: Register,
        names: Vec<RegisteredName>,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let unused = self.unused_names(register, names, now).await?;
        let removed = self.store().remove_unused(register, &unused).await?;
        if removed > 0 {
            let names: Vec<String> = unused.into_iter().map(|(name, _)| name).collect();
            self.core.name_cache.forget(register, &names);
            info!(
                removed,
                ?register,
                "names that are no longer used were removed"
            );
        }
        Ok(removed)
    }

    /// The unused names among these, in order.
    async fn unused_names(
        &self,
        register: Register,
        mut names: Vec<RegisteredName>,
        now: Timestamp,
    ) -> Result<Vec<RegisteredName>, StoreError> {
        names.retain(|(_, at)| at.is_some_and(|at| now.since(at) > UNUSED_TTL));
        if names.is_empty() {
            return Ok(names);
        }
        if register == Register::Queues {
            let oldest = self.oldest_workflow().await?;
            let is_before = |at: Timestamp| {
                oldest
                    .is_none_or(|oldest| at + REGISTERED_TTL + REGISTERED_TTL < oldest.created_at())
            };
            names.retain(|(_, at)| {
                at.is_some_and(|at| is_before(at) || now.since(at) > UNUSED_QUEUE_TTL)
            });
        }
        let used = self.used_names(register, &names).await?;
        names.retain(|(name, _)| !used.contains(name));
        Ok(names)
    }

    /// The oldest existing workflow.
    async fn oldest_workflow(&self) -> Result<Option<WorkflowId>, StoreError> {
        let all = RowRange::section(Section::All.prefix());
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
    async fn used_names(
        &self,
        register: Register,
        names: &[RegisteredName],
    ) -> Result<HashSet<String>, StoreError> {
        let (set, before) = register_rows(register);
        let mut used = HashSet::new();
        for partition in self.store().all_partitions() {
            let mut at = 0;
            // A read continues after each name whose rows exceed one read.
            while let Some((name, _)) = names.get(at) {
                let rows = self
                    .store()
                    .rows(partition, set, Some(&name_rows(before, name)), PAGE_ROWS)
                    .await?;
                used.extend(
                    rows.iter()
                        .filter_map(|row| name_in(before, row))
                        .map(str::to_owned),
                );
                let Some(last) = rows.last().filter(|_| rows.len() == PAGE_ROWS) else {
                    break;
                };
                at += names[at..]
                    .partition_point(|(name, _)| name_rows(before, name) <= *last)
                    .max(1);
            }
        }
        Ok(used)
    }

    /// Some names of rows, after `restored`, which advances.
    async fn names_of_rows(
        &self,
        register: Register,
        restored: &mut Option<String>,
    ) -> Result<BTreeSet<String>, StoreError> {
        let (set, before) = register_rows(register);
        // This key sorts after all rows of the last name, because names contain no such byte.
        let after = restored.as_ref().map_or(before.to_vec(), |name| {
            [before, name.as_bytes(), &[1]].concat()
        });
        let mut names = BTreeSet::new();
        let mut end = None::<String>;
        for partition in self.store().all_partitions() {
            let rows = self
                .store()
                .rows(partition, set, Some(&after), PAGE_ROWS)
                .await?;
            names.extend(
                rows.iter()
                    .filter_map(|row| name_in(before, row))
                    .map(str::to_owned),
            );
            // Names after the end of a read may be missing from this partition.
            let last = rows
                .last()
                .filter(|_| rows.len() == PAGE_ROWS)
                .and_then(|row| name_in(before, row));
            if let Some(last) = last {
                end = Some(end.map_or(last.to_owned(), |end| end.min(last.to_owned())));
            }
        }
        *restored = end;
        Ok(names)
    }

    /// Enters the names that are missing in the register.
    async fn restore_missing(
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
        self.enter_names(
            register,
            missing.map(|(name, _)| (name, String::new())),
            now,
        )
        .await
    }
}
