//! `tidegate store check`: compares every row of the store with the states of the workflows.
//!
//! Servers may run meanwhile. A mismatch is therefore only suspected at first, and its workflow is
//! checked again alone: a finding is reported only if the workflow did not change meanwhile.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};

use tidegate_workflow::change::Delete;
use tidegate_workflow::rows::{Row, Section, workflow_of};
use tidegate_workflow::{
    EngineError, Partition, RowSet, Snapshot, Store, StoreError, TimeIndex, WorkflowId,
};
use tokio::task::JoinSet;

use super::findings::{Findings, Resolution};
use super::rows::{before, described, explained, owner};
use super::store::OpenStore;
use tidegate_cli::{Exit, Failure};
use tidegate_cli::{Screen, counted, printable};

/// Number of rows in one read.
const ROWS: usize = 1_000;
/// Number of workflows in one read.
const WORKFLOWS: usize = 64;
/// Attempts to read a workflow that changes all the time.
const LOOKS: usize = 5;

const SETS: [RowSet; 4] = [
    RowSet::Index,
    RowSet::Ready,
    RowSet::Due(TimeIndex::Timers),
    RowSet::Due(TimeIndex::Expiries),
];

/// Handling of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnFinding {
    Tell,
    Repair,
}

struct Audit<'a> {
    here: &'a OpenStore,
    then: OnFinding,
    hasher: RandomState,
    workflows: u64,
    rows: u64,
    /// Workflows of the current partition that have a row in the index of all workflows.
    listed: HashSet<WorkflowId>,
    findings: Findings,
}

/// Mismatches of one workflow, compared while it did not change.
#[derive(Debug, Default)]
struct Inconsistency {
    found: Vec<String>,
    /// Rows without a reason in the state of the workflow.
    strays: Delete,
    /// Whether the idempotency key of the workflow does not lead to it.
    key: bool,
}

/// Workflows of a partition to check again, with rows that no state explains.
type Suspects = BTreeMap<WorkflowId, Vec<(RowSet, Row)>>;

/// Hashes of rows that states call for and that were not read yet. A partition of a million
/// workflows takes some 200 MB.
type Wanted = HashMap<u64, WorkflowId>;

pub(crate) async fn check(
    here: &OpenStore,
    then: OnFinding,
    screen: &Screen,
) -> Result<Exit, Failure> {
    if here.engine.store().is_migrating() {
        let text = format!(
            "{} is being migrated: run `tidegate store migrate` to its end first",
            here.shown
        );
        return Err(Failure::new(Exit::Refused, text));
    }
    let hasher = RandomState::new();
    let findings = Findings::default();
    let mut audit = Audit {
        here,
        then,
        hasher,
        workflows: 0,
        rows: 0,
        listed: HashSet::new(),
        findings,
    };
    if let Store::Sqlite(store) = here.engine.store() {
        match store.check().await {
            Err(StoreError::Corrupt { what, reason }) => {
                audit.find(None, format!("{what}: {reason}"))
            }
            checked => checked.map_err(|error| here.refused(&error))?,
        }
    }
    for number in 0..here.engine.store().partitions() {
        if audit.goes_on() {
            audit.partition(Partition(number)).await?;
        }
    }
    let Audit {
        workflows,
        rows,
        findings,
        ..
    } = audit;
    let seen = format!(
        "{} and {} in {}",
        counted(workflows, "workflow"),
        counted(rows, "row"),
        printable(&here.shown)
    );
    let json = findings.json(workflows, rows).to_string();
    screen.object(&json, &findings.names(), || {
        Ok(findings.table(screen, &seen))
    })?;
    Ok(findings.exit())
}

impl Audit<'_> {
    fn find(&mut self, workflow: impl Into<Option<WorkflowId>>, what: impl Into<String>) {
        self.findings
            .add(workflow.into(), what.into(), Resolution::Left);
    }

    /// Whether to read on. Without repair, a full list of findings is enough.
    fn goes_on(&self) -> bool {
        self.then == OnFinding::Repair || !self.findings.are_many()
    }

    async fn partition(&mut self, partition: Partition) -> Result<(), Failure> {
        let mut suspects = Suspects::new();
        let mut wanted = self.wanted(partition, &mut suspects).await?;
        for set in SETS {
            let mut after: Option<Row> = None;
            loop {
                let rows = self.rows(partition, set, after.as_deref(), ROWS).await?;
                self.rows += rows.len() as u64;
                for row in &rows {
                    if wanted.remove(&self.hash(set, row)).is_some() {
                        continue;
                    }
                    match owner(set, row) {
                        Some(id) if id.partition() == partition => {
                            suspects.entry(id).or_default().push((set, row.clone()));
                        }
                        Some(id) => self.find(
                            id,
                            format!("left over: {}, in another partition", described(set, row)),
                        ),
                        None => self.find(
                            None,
                            format!("a row that means nothing: {}", described(set, row)),
                        ),
                    }
                }
                if rows.len() < ROWS {
                    break;
                }
                after = rows.into_iter().next_back();
            }
        }
        // Expected rows that were not read are missing.
        for id in wanted.into_values().chain(self.unlisted(partition).await?) {
            suspects.entry(id).or_default();
        }
        for (id, strays) in suspects {
            if self.goes_on() {
                self.look_again(partition, id, &strays).await?;
            }
        }
        Ok(())
    }

    /// Reads all workflows of a partition by the index of all workflows, and returns the rows that
    /// they call for.
    async fn wanted(
        &mut self,
        partition: Partition,
        suspects: &mut Suspects,
    ) -> Result<Wanted, Failure> {
        let mut wanted = Wanted::new();
        let all = Section::All.prefix();
        let mut after: Option<Row> = None;
        loop {
            let mut rows = self
                .rows(partition, RowSet::Index, after.as_deref(), ROWS)
                .await?;
            rows.retain(|row| row.starts_with(&all));
            let ids: Vec<WorkflowId> = rows.iter().filter_map(|row| workflow_of(row)).collect();
            for ids in ids.chunks(WORKFLOWS) {
                for (id, shown) in self.shown(ids).await {
                    match shown {
                        Ok(snapshot) => {
                            self.workflows += 1;
                            self.listed.insert(id);
                            self.whole(&snapshot);
                            let rows = explained(&snapshot);
                            wanted.extend(rows.iter().map(|(set, row)| (self.hash(*set, row), id)));
                            if !self.has_key(&snapshot).await? {
                                suspects.entry(id).or_default();
                            }
                        }
                        // The index row of a removed workflow has no state, and becomes a suspect.
                        Err(EngineError::NoWorkflow { .. }) => {}
                        Err(EngineError::Store(error @ StoreError::Corrupt { .. })) => {
                            self.workflows += 1;
                            self.listed.insert(id);
                            self.find(id, error.to_string());
                        }
                        Err(error) => return Err(self.here.failed(&error)),
                    }
                }
            }
            match rows.pop() {
                Some(last) => after = Some(last),
                None => return Ok(wanted),
            }
        }
    }

    /// The workflows of a partition to which no index row leads.
    async fn unlisted(&mut self, partition: Partition) -> Result<Vec<WorkflowId>, Failure> {
        let mut unlisted = Vec::new();
        let mut from = 0;
        let listed = std::mem::take(&mut self.listed);
        loop {
            let read = self.here.engine.store().states(partition, from).await;
            let Some((next, ids)) = read.map_err(|error| self.here.refused(&error))? else {
                self.findings.states_are_unread();
                return Ok(unlisted);
            };
            unlisted.extend(ids.into_iter().filter(|id| !listed.contains(id)));
            if next == 0 {
                return Ok(unlisted);
            }
            from = next;
        }
    }

    async fn shown(&self, ids: &[WorkflowId]) -> Vec<(WorkflowId, Result<Snapshot, EngineError>)> {
        let mut reads = JoinSet::new();
        for &id in ids {
            let engine = self.here.engine.clone();
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
    ) -> Result<Vec<Row>, Failure> {
        let read = self
            .here
            .engine
            .store()
            .rows(partition, set, after, limit)
            .await;
        read.map_err(|error| self.here.refused(&error))
    }

    fn hash(&self, set: RowSet, row: &[u8]) -> u64 {
        let set = SETS.iter().position(|known| *known == set);
        self.hasher.hash_one((set, row))
    }

    /// Compares the job counts of a workflow with the states of its jobs.
    fn whole(&mut self, snapshot: &Snapshot) {
        for (word, number) in snapshot.meta().counts.each() {
            let found = snapshot
                .states()
                .iter()
                .filter(|state| state.word() == word)
                .count();
            if found != number as usize {
                self.find(
                    snapshot.id(),
                    format!("it counts {number} {word} jobs and has {found}"),
                );
            }
        }
    }

    /// Whether the idempotency key of the workflow, if it has one, leads to it.
    async fn has_key(&self, snapshot: &Snapshot) -> Result<bool, Failure> {
        let Some(key) = &snapshot.graph().idempotency_key else {
            return Ok(true);
        };
        let found = self
            .here
            .engine
            .store()
            .keyed(snapshot.id().partition(), key)
            .await;
        Ok(found.map_err(|error| self.here.refused(&error))? == Some(snapshot.id()))
    }

    /// Checks one workflow again until it does not change meanwhile. Reports the findings, and
    /// repairs them on request.
    async fn look_again(
        &mut self,
        partition: Partition,
        id: WorkflowId,
        strays: &[(RowSet, Row)],
    ) -> Result<(), Failure> {
        let Some(wrong) = self.wrong(partition, id, strays).await? else {
            return Ok(());
        };
        if wrong.found.is_empty() || self.then == OnFinding::Tell {
            wrong.found.into_iter().for_each(|what| self.find(id, what));
            return Ok(());
        }
        let failed = self.repair(id, wrong.strays, wrong.key).await;
        let left = self
            .wrong(partition, id, strays)
            .await?
            .unwrap_or_default()
            .found;
        for what in wrong.found {
            let fate = if left.contains(&what) {
                Resolution::Left
            } else {
                Resolution::Repaired
            };
            self.findings.add(Some(id), what, fate);
        }
        match failed {
            // A corrupt workflow cannot be repaired, and stays as it is.
            Ok(()) | Err(EngineError::Store(StoreError::Corrupt { .. })) => Ok(()),
            Err(EngineError::Store(error)) => Err(self.here.refused(&error)),
            Err(_) => Ok(()),
        }
    }

    async fn repair(&self, id: WorkflowId, strays: Delete, key: bool) -> Result<(), EngineError> {
        let OpenStore { engine, clock, .. } = self.here;
        engine.repair(id, strays, clock.now()).await?;
        if key {
            engine.repair_key(id, clock.now()).await
        } else {
            Ok(())
        }
    }

    /// Mismatches of one workflow. None if it changes all the time, or cannot be read.
    async fn wrong(
        &self,
        partition: Partition,
        id: WorkflowId,
        strays: &[(RowSet, Row)],
    ) -> Result<Option<Inconsistency>, Failure> {
        for _ in 0..LOOKS {
            let Some(before) = self.look(id).await? else {
                return Ok(None);
            };
            let wrong = self.wrong_at(partition, before.as_ref(), strays).await?;
            let version = |snapshot: &Option<Snapshot>| {
                snapshot.as_ref().map(|snapshot| snapshot.meta().version)
            };
            if self
                .look(id)
                .await?
                .is_some_and(|after| version(&after) == version(&before))
            {
                return Ok(Some(wrong));
            }
        }
        Ok(None)
    }

    /// Compares the rows of a workflow with one of its states.
    async fn wrong_at(
        &self,
        partition: Partition,
        state: Option<&Snapshot>,
        strays: &[(RowSet, Row)],
    ) -> Result<Inconsistency, Failure> {
        let explained = state.map(explained).unwrap_or_default();
        let mut wrong = Inconsistency::default();
        let may_come = |set| set == RowSet::Ready && state.is_some_and(Snapshot::rows_follow);
        for (set, row) in explained.iter().filter(|(set, _)| !may_come(*set)) {
            if !self.is_there(partition, *set, row).await? {
                wrong
                    .found
                    .push(format!("missing: {}", described(*set, row)));
            }
        }
        for (set, row) in strays.iter().filter(|stray| !explained.contains(stray)) {
            if self.is_there(partition, *set, row).await? {
                let why = if state.is_none() {
                    " of a workflow that is not there"
                } else {
                    ""
                };
                wrong
                    .found
                    .push(format!("left over: {}{why}", described(*set, row)));
                match set {
                    RowSet::Ready => wrong.strays.ready.push(row.clone()),
                    RowSet::Index => wrong.strays.index.push(row.clone()),
                    // A workflow has at most one timer and one expiry, which the repair rewrites.
                    RowSet::Due(_) => {}
                }
            }
        }
        if let Some(snapshot) = state
            && !self.has_key(snapshot).await?
        {
            wrong
                .found
                .push("its idempotency key does not lead to it".to_owned());
            wrong.key = true;
        }
        Ok(wrong)
    }

    /// Reads a workflow: the inner `None` if it does not exist, the outer one if it is corrupt,
    /// which was reported.
    async fn look(&self, id: WorkflowId) -> Result<Option<Option<Snapshot>>, Failure> {
        match self.here.engine.show(id).await {
            Ok(snapshot) => Ok(Some(Some(snapshot))),
            Err(EngineError::NoWorkflow { .. }) => Ok(Some(None)),
            Err(EngineError::Store(StoreError::Corrupt { .. })) => Ok(None),
            Err(error) => Err(self.here.failed(&error)),
        }
    }

    async fn is_there(
        &self,
        partition: Partition,
        set: RowSet,
        row: &[u8],
    ) -> Result<bool, Failure> {
        let found = self.rows(partition, set, Some(&before(row)), 1).await?;
        Ok(found.first().is_some_and(|found| found == row))
    }
}
