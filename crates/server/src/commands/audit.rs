//! `tidegate store check`: compares every row of the store with the states of the workflows.
//!
//! Servers may run meanwhile. A mismatch is therefore only suspected at first, and its workflow is
//! checked again alone: a finding is reported only if the workflow did not change meanwhile.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};

use tidegate_workflow::change::Delete;
use tidegate_workflow::rows::{Row, Section, workflow_in_row};
use tidegate_workflow::{
    EngineError, Partition, RowSet, Snapshot, Store, StoreError, TimeIndex, WorkflowId,
};
use tokio::task::JoinSet;

use super::findings::{Findings, Resolution};
use super::inconsistency::Inconsistency;
use super::open_store::OpenStore;
use super::rows::{expected_rows, owner, preceding_row, row_text};
use tidegate_cli::{CommandResult, Exit, Failure, Screen, counted, printable};

/// Number of rows in one read.
const ROWS_PER_READ: usize = 1_000;
/// Number of workflows in one read.
const WORKFLOWS_PER_READ: usize = 64;
/// Attempts to read a workflow that changes all the time.
const MAX_STABLE_READS: usize = 5;

const ROW_SETS: [RowSet; 4] = [
    RowSet::Index,
    RowSet::Ready,
    RowSet::Due(TimeIndex::Timers),
    RowSet::Due(TimeIndex::Expiries),
];

/// Handling of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnFinding {
    Report,
    Repair,
}

struct Audit<'a> {
    open_store: &'a OpenStore,
    on_finding: OnFinding,
    hasher: RandomState,
    workflows: u64,
    rows: u64,
    /// Workflows of the current partition that have a row in the index of all workflows.
    listed: HashSet<WorkflowId>,
    findings: Findings,
}

/// Workflows of a partition to check again, with rows that no state explains.
type Suspects = BTreeMap<WorkflowId, Vec<(RowSet, Row)>>;

/// Hashes of rows that states call for and that were not read yet. A partition of a million
/// workflows takes some 200 MB.
type ExpectedRows = HashMap<u64, WorkflowId>;

pub(crate) async fn check(
    open_store: &OpenStore,
    on_finding: OnFinding,
    screen: &Screen,
) -> CommandResult {
    if open_store.engine.store().is_migrating() {
        let text = format!(
            "{} is being migrated: run `tidegate store migrate` to its end first",
            open_store.location
        );
        return Err(Failure::new(Exit::Refused, text));
    }
    let mut audit = Audit {
        open_store,
        on_finding,
        hasher: RandomState::new(),
        workflows: 0,
        rows: 0,
        listed: HashSet::new(),
        findings: Findings::default(),
    };
    audit.check_file().await?;
    for number in 0..open_store.engine.store().partitions() {
        if audit.wants_more() {
            audit.partition(Partition(number)).await?;
        }
    }
    audit.report(screen)
}

impl Audit<'_> {
    /// Prints the findings, and what was read.
    fn report(&self, screen: &Screen) -> CommandResult {
        let Self {
            workflows,
            rows,
            findings,
            ..
        } = self;
        let seen = format!(
            "{} and {} in {}",
            counted(*workflows, "workflow"),
            counted(*rows, "row"),
            printable(&self.open_store.location)
        );
        let json = findings.json(*workflows, *rows).to_string();
        screen.object(&json, &findings.names(), || {
            Ok(findings.table(screen, &seen))
        })?;
        Ok(findings.exit())
    }

    /// Checks the file of a store that is one.
    async fn check_file(&mut self) -> CommandResult<()> {
        let Store::Sqlite(store) = self.open_store.engine.store() else {
            return Ok(());
        };
        match store.check().await {
            Err(StoreError::Corrupt { what, reason }) => {
                self.add_finding(None, format!("{what}: {reason}"));
                Ok(())
            }
            checked => self.open_store.checked(checked),
        }
    }

    fn add_finding(&mut self, workflow: impl Into<Option<WorkflowId>>, what: impl Into<String>) {
        self.findings
            .add(workflow.into(), what.into(), Resolution::Left);
    }

    /// Whether to read on. Without repair, a full list of findings is enough.
    fn wants_more(&self) -> bool {
        self.on_finding == OnFinding::Repair || !self.findings.is_full()
    }

    async fn partition(&mut self, partition: Partition) -> CommandResult<()> {
        let mut suspects = Suspects::new();
        let mut expected = self.read_expected_rows(partition, &mut suspects).await?;
        for set in ROW_SETS {
            let mut after: Option<Row> = None;
            loop {
                let rows = self
                    .rows(partition, set, after.as_deref(), ROWS_PER_READ)
                    .await?;
                self.rows += rows.len() as u64;
                for row in &rows {
                    if expected.remove(&self.hash(set, row)).is_some() {
                        continue;
                    }
                    match owner(set, row) {
                        Some(id) if id.partition() == partition => {
                            suspects.entry(id).or_default().push((set, row.clone()));
                        }
                        owner => self.add_orphan_row(owner, set, row),
                    }
                }
                if rows.len() < ROWS_PER_READ {
                    break;
                }
                after = rows.into_iter().next_back();
            }
        }
        // Expected rows that were not read are missing.
        for id in expected
            .into_values()
            .chain(self.unlisted(partition).await?)
        {
            suspects.entry(id).or_default();
        }
        for (id, orphan_rows) in suspects {
            if self.wants_more() {
                self.recheck(partition, id, &orphan_rows).await?;
            }
        }
        Ok(())
    }

    /// Reports a row that belongs to no workflow of its partition.
    fn add_orphan_row(&mut self, owner: Option<WorkflowId>, set: RowSet, row: &[u8]) {
        let row = row_text(set, row);
        let what = match owner {
            Some(_) => format!("left over: {row}, in another partition"),
            None => format!("a row that means nothing: {row}"),
        };
        self.add_finding(owner, what);
    }

    /// Reads all workflows of a partition by the index of all workflows, and returns the rows that
    /// they call for.
    async fn read_expected_rows(
        &mut self,
        partition: Partition,
        suspects: &mut Suspects,
    ) -> CommandResult<ExpectedRows> {
        let mut expected = ExpectedRows::new();
        let mut after: Option<Row> = None;
        loop {
            let mut rows = self.listed_rows(partition, after.as_deref()).await?;
            let ids: Vec<WorkflowId> = rows.iter().filter_map(|row| workflow_in_row(row)).collect();
            for ids in ids.chunks(WORKFLOWS_PER_READ) {
                for (id, shown) in self.read_snapshots(ids).await {
                    let Some(snapshot) = self.count_listed(id, shown)? else {
                        continue;
                    };
                    self.check_counts(&snapshot);
                    let rows = expected_rows(&snapshot);
                    expected.extend(rows.iter().map(|(set, row)| (self.hash(*set, row), id)));
                    if !self.has_key(&snapshot).await? {
                        suspects.entry(id).or_default();
                    }
                }
            }
            match rows.pop() {
                Some(last) => after = Some(last),
                None => return Ok(expected),
            }
        }
    }

    /// The next rows of the index of all workflows.
    async fn listed_rows(
        &self,
        partition: Partition,
        after: Option<&[u8]>,
    ) -> CommandResult<Vec<Row>> {
        let all = Section::All.prefix();
        let mut rows = self
            .rows(partition, RowSet::Index, after, ROWS_PER_READ)
            .await?;
        rows.retain(|row| row.starts_with(&all));
        Ok(rows)
    }

    /// Counts a workflow in the index of all workflows, and returns its state. None if it was
    /// removed, or if it is corrupt, which is reported.
    fn count_listed(
        &mut self,
        id: WorkflowId,
        shown: Result<Snapshot, EngineError>,
    ) -> CommandResult<Option<Snapshot>> {
        let snapshot = match shown {
            Ok(snapshot) => Some(snapshot),
            // The index row of a removed workflow has no state, and becomes a suspect.
            Err(EngineError::NoWorkflow { .. }) => return Ok(None),
            Err(EngineError::Store(error @ StoreError::Corrupt { .. })) => {
                self.add_finding(id, error.to_string());
                None
            }
            Err(error) => return Err(self.open_store.engine_failure(&error)),
        };
        self.workflows += 1;
        self.listed.insert(id);
        Ok(snapshot)
    }

    /// The workflows of a partition to which no index row leads.
    async fn unlisted(&mut self, partition: Partition) -> CommandResult<Vec<WorkflowId>> {
        let mut unlisted = Vec::new();
        let mut from = 0;
        let listed = std::mem::take(&mut self.listed);
        loop {
            let read = self
                .open_store
                .engine
                .store()
                .scan_states(partition, from)
                .await;
            let Some((next, ids)) = self.open_store.checked(read)? else {
                self.findings.states_unread = true;
                return Ok(unlisted);
            };
            unlisted.extend(ids.into_iter().filter(|id| !listed.contains(id)));
            if next == 0 {
                return Ok(unlisted);
            }
            from = next;
        }
    }

    async fn read_snapshots(
        &self,
        ids: &[WorkflowId],
    ) -> Vec<(WorkflowId, Result<Snapshot, EngineError>)> {
        let mut reads = JoinSet::new();
        for &id in ids {
            let engine = self.open_store.engine.clone();
            reads.spawn(async move { (id, engine.show(id).await.map(Snapshot::released)) });
        }
        reads.join_all().await
    }

    async fn rows(
        &self,
        partition: Partition,
        set: RowSet,
        after: Option<&[u8]>,
        limit: usize,
    ) -> CommandResult<Vec<Row>> {
        let read = self
            .open_store
            .engine
            .store()
            .rows(partition, set, after, limit)
            .await;
        self.open_store.checked(read)
    }

    fn hash(&self, set: RowSet, row: &[u8]) -> u64 {
        let set = ROW_SETS.iter().position(|known| *known == set);
        self.hasher.hash_one((set, row))
    }

    /// Compares the job counts of a workflow with the states of its jobs.
    fn check_counts(&mut self, snapshot: &Snapshot) {
        for (word, number) in snapshot.meta().counts.entries() {
            let found = snapshot
                .states()
                .iter()
                .filter(|state| state.word() == word)
                .count();
            if found != number as usize {
                self.add_finding(
                    snapshot.id(),
                    format!("it counts {number} {word} jobs and has {found}"),
                );
            }
        }
    }

    /// Whether the idempotency key of the workflow, if it has one, leads to it.
    async fn has_key(&self, snapshot: &Snapshot) -> CommandResult<bool> {
        let Some(key) = &snapshot.graph().idempotency_key else {
            return Ok(true);
        };
        let found = self
            .open_store
            .engine
            .store()
            .workflow_by_key(snapshot.id().partition(), key)
            .await;
        Ok(self.open_store.checked(found)? == Some(snapshot.id()))
    }

    /// Checks one workflow again until it does not change meanwhile. Reports the findings, and
    /// repairs them on request.
    async fn recheck(
        &mut self,
        partition: Partition,
        id: WorkflowId,
        orphan_rows: &[(RowSet, Row)],
    ) -> CommandResult<()> {
        let Some(inconsistency) = self.find_inconsistency(partition, id, orphan_rows).await? else {
            return Ok(());
        };
        if inconsistency.messages.is_empty() || self.on_finding == OnFinding::Report {
            for what in inconsistency.messages {
                self.add_finding(id, what);
            }
            return Ok(());
        }
        let failed = self
            .repair(id, inconsistency.orphan_rows, inconsistency.wrong_key)
            .await;
        let left = self
            .find_inconsistency(partition, id, orphan_rows)
            .await?
            .unwrap_or_default()
            .messages;
        for what in inconsistency.messages {
            let resolution = if left.contains(&what) {
                Resolution::Left
            } else {
                Resolution::Repaired
            };
            self.findings.add(Some(id), what, resolution);
        }
        match failed {
            // A corrupt workflow cannot be repaired, and stays as it is.
            Err(EngineError::Store(StoreError::Corrupt { .. })) => Ok(()),
            Err(EngineError::Store(error)) => Err(self.open_store.store_failure(&error)),
            _ => Ok(()),
        }
    }

    async fn repair(
        &self,
        id: WorkflowId,
        orphan_rows: Delete,
        key: bool,
    ) -> Result<(), EngineError> {
        let OpenStore { engine, clock, .. } = self.open_store;
        engine.repair(id, orphan_rows, clock.now()).await?;
        if key {
            engine.repair_key(id, clock.now()).await
        } else {
            Ok(())
        }
    }

    /// Mismatches of one workflow. None if it changes all the time, or cannot be read.
    async fn find_inconsistency(
        &self,
        partition: Partition,
        id: WorkflowId,
        orphan_rows: &[(RowSet, Row)],
    ) -> CommandResult<Option<Inconsistency>> {
        for _ in 0..MAX_STABLE_READS {
            let Some(before) = self.read_workflow(id).await? else {
                return Ok(None);
            };
            let inconsistency = self
                .compare_rows(partition, before.as_ref(), orphan_rows)
                .await?;
            let version = |snapshot: &Option<Snapshot>| {
                snapshot.as_ref().map(|snapshot| snapshot.meta().version)
            };
            if self
                .read_workflow(id)
                .await?
                .is_some_and(|after| version(&after) == version(&before))
            {
                return Ok(Some(inconsistency));
            }
        }
        Ok(None)
    }

    /// Compares the rows of a workflow with one of its states.
    async fn compare_rows(
        &self,
        partition: Partition,
        state: Option<&Snapshot>,
        orphan_rows: &[(RowSet, Row)],
    ) -> CommandResult<Inconsistency> {
        let expected_rows = state.map(expected_rows).unwrap_or_default();
        let mut inconsistency = Inconsistency::default();
        let may_come =
            |set| set == RowSet::Ready && state.is_some_and(Snapshot::may_lack_ready_rows);
        for (set, row) in expected_rows.iter().filter(|(set, _)| !may_come(*set)) {
            if !self.is_there(partition, *set, row).await? {
                inconsistency
                    .messages
                    .push(format!("missing: {}", row_text(*set, row)));
            }
        }
        for (set, row) in orphan_rows
            .iter()
            .filter(|orphan| !expected_rows.contains(orphan))
        {
            if self.is_there(partition, *set, row).await? {
                inconsistency.add_orphan(*set, row, state);
            }
        }
        if let Some(snapshot) = state
            && !self.has_key(snapshot).await?
        {
            inconsistency.add_wrong_key();
        }
        Ok(inconsistency)
    }

    /// Reads a workflow: the inner `None` if it does not exist, the outer one if it is corrupt,
    /// which was reported.
    async fn read_workflow(&self, id: WorkflowId) -> CommandResult<Option<Option<Snapshot>>> {
        match self.open_store.engine.show(id).await {
            Ok(snapshot) => Ok(Some(Some(snapshot))),
            Err(EngineError::NoWorkflow { .. }) => Ok(Some(None)),
            Err(EngineError::Store(StoreError::Corrupt { .. })) => Ok(None),
            Err(error) => Err(self.open_store.engine_failure(&error)),
        }
    }

    async fn is_there(&self, partition: Partition, set: RowSet, row: &[u8]) -> CommandResult<bool> {
        let found = self
            .rows(partition, set, Some(&preceding_row(row)), 1)
            .await?;
        Ok(found.first().is_some_and(|found| found == row))
    }
}
