//! `tidegate store check`: every row of the store is what the states of the workflows say it should be.
//!
//! Servers may be at work meanwhile. So what does not match is only suspected at first, and looked at again for itself: only what is
//! wrong while its workflow stands still is reported.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher as _, RandomState};

use serde_json::json;
use tidegate_workflow::rows::{Row, Section, workflow_of};
use tidegate_workflow::{Clockwork, EngineError, Partition, RowSet, Snapshot, Store, StoreError, WorkflowId};
use tokio::task::JoinSet;

use super::rows::{before, described, explained, owner};
use super::store::Here;
use tidegate_cli::{Cell, Table};
use tidegate_cli::{Exit, Failure};
use tidegate_cli::{Screen, printable};

/// Rows that are read at once.
const ROWS: usize = 1_000;
/// Workflows that are read at once.
const WORKFLOWS: usize = 64;
/// More findings than anybody reads: the check ends.
const MOST: usize = 1_000;
/// Looks at a workflow that others change all the time.
const LOOKS: usize = 5;

const SETS: [RowSet; 4] =
    [RowSet::Index, RowSet::Ready, RowSet::Due(Clockwork::Timers), RowSet::Due(Clockwork::Expiries)];

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    workflow: Option<WorkflowId>,
    what: String,
}

struct Audit<'a> {
    here: &'a Here,
    hasher: RandomState,
    workflows: u64,
    rows: u64,
    findings: Vec<Finding>,
}

/// What one pass over a partition leaves to be looked at again: workflows, and rows that they do not explain.
type Suspects = BTreeMap<WorkflowId, Vec<(RowSet, Row)>>;

/// Rows that workflows call for and that no pass has seen yet, by hash: a partition of a million workflows takes some 200 MB.
type Wanted = HashMap<u64, WorkflowId>;

pub(crate) async fn check(here: &Here, screen: &Screen) -> Result<Exit, Failure> {
    let mut audit = Audit { here, hasher: RandomState::new(), workflows: 0, rows: 0, findings: Vec::new() };
    if let Store::Sqlite(store) = here.engine.store() {
        match store.check().await {
            Err(StoreError::Corrupt { what, reason }) => audit.find(None, format!("{what}: {reason}")),
            checked => checked.map_err(|error| here.refused(&error))?,
        }
    }
    for number in 0..here.engine.store().partitions() {
        if audit.findings.len() < MOST {
            audit.partition(Partition(number)).await?;
        }
    }
    audit.findings.truncate(MOST);
    screen.object(&audit.json(), &audit.names(), || Ok(audit.table(screen)))?;
    Ok(if audit.findings.is_empty() { Exit::Done } else { Exit::Failed })
}

impl Audit<'_> {
    fn find(&mut self, workflow: impl Into<Option<WorkflowId>>, what: impl Into<String>) {
        self.findings.push(Finding { workflow: workflow.into(), what: what.into() });
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
                        Some(id) => suspects.entry(id).or_default().push((set, row.clone())),
                        None => self.find(None, format!("a row that means nothing: {}", described(set, row))),
                    }
                }
                if rows.len() < ROWS {
                    break;
                }
                after = rows.into_iter().next_back();
            }
        }
        // What was not seen is missing.
        for id in wanted.into_values() {
            suspects.entry(id).or_default();
        }
        for (id, strays) in suspects {
            if self.findings.len() < MOST {
                self.look_again(partition, id, &strays).await?;
            }
        }
        Ok(())
    }

    /// Reads all workflows of a partition, by the row that each has as long as it is there.
    async fn wanted(&mut self, partition: Partition, suspects: &mut Suspects) -> Result<Wanted, Failure> {
        let mut wanted = Wanted::new();
        let all = Section::All.prefix();
        let mut after: Option<Row> = None;
        loop {
            let mut rows = self.rows(partition, RowSet::Index, after.as_deref(), ROWS).await?;
            rows.retain(|row| row.starts_with(&all));
            let ids: Vec<WorkflowId> = rows.iter().filter_map(|row| workflow_of(row)).collect();
            for ids in ids.chunks(WORKFLOWS) {
                for (id, shown) in self.shown(ids).await {
                    match shown {
                        Ok(snapshot) => {
                            self.workflows += 1;
                            self.whole(&snapshot);
                            let rows = explained(&snapshot);
                            wanted.extend(rows.iter().map(|(set, row)| (self.hash(*set, row), id)));
                            if !self.has_key(&snapshot).await? {
                                suspects.entry(id).or_default();
                            }
                        }
                        // Its row explains nothing, and becomes a suspect.
                        Err(EngineError::NoWorkflow { .. }) => {}
                        Err(EngineError::Store(error @ StoreError::Corrupt { .. })) => {
                            self.workflows += 1;
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

    async fn shown(&self, ids: &[WorkflowId]) -> Vec<(WorkflowId, Result<Snapshot, EngineError>)> {
        let mut reads = JoinSet::new();
        for &id in ids {
            let engine = self.here.engine.clone();
            reads.spawn(async move { (id, engine.show(id).await) });
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
        let read = self.here.engine.store().rows(partition, set, after, limit).await;
        read.map_err(|error| self.here.refused(&error))
    }

    fn hash(&self, set: RowSet, row: &[u8]) -> u64 {
        let set = SETS.iter().position(|known| *known == set);
        self.hasher.hash_one((set, row))
    }

    /// What is wrong within a workflow.
    fn whole(&mut self, snapshot: &Snapshot) {
        for (word, number) in snapshot.meta().counts.each() {
            let found = snapshot.states().iter().filter(|state| state.word() == word).count();
            if found != number as usize {
                self.find(snapshot.id(), format!("it counts {number} {word} jobs and has {found}"));
            }
        }
    }

    /// Whether its idempotency key, if it has one, leads to it.
    async fn has_key(&self, snapshot: &Snapshot) -> Result<bool, Failure> {
        let Some(key) = &snapshot.graph().idempotency_key else { return Ok(true) };
        let found = self.here.engine.store().keyed(snapshot.id().partition(), key).await;
        Ok(found.map_err(|error| self.here.refused(&error))? == Some(snapshot.id()))
    }

    /// Looks at one workflow until it stands still meanwhile, and reports what is wrong then.
    async fn look_again(
        &mut self,
        partition: Partition,
        id: WorkflowId,
        strays: &[(RowSet, Row)],
    ) -> Result<(), Failure> {
        for _ in 0..LOOKS {
            let Some(before) = self.look(id).await? else { return Ok(()) };
            let explained = before.as_ref().map(explained).unwrap_or_default();
            let mut wrong = Vec::new();
            for (set, row) in &explained {
                if !self.is_there(partition, *set, row).await? {
                    wrong.push(format!("missing: {}", described(*set, row)));
                }
            }
            for (set, row) in strays.iter().filter(|stray| !explained.contains(stray)) {
                if self.is_there(partition, *set, row).await? {
                    let why = if before.is_none() { " of a workflow that is not there" } else { "" };
                    wrong.push(format!("left over: {}{why}", described(*set, row)));
                }
            }
            if let Some(snapshot) = &before
                && !self.has_key(snapshot).await?
            {
                wrong.push("its idempotency key does not lead to it".to_owned());
            }
            let version = |snapshot: &Option<Snapshot>| snapshot.as_ref().map(|snapshot| snapshot.meta().version);
            if self.look(id).await?.is_some_and(|after| version(&after) == version(&before)) {
                wrong.into_iter().for_each(|what| self.find(id, what));
                return Ok(());
            }
        }
        Ok(())
    }

    /// The workflow, if there is one; nothing when it cannot be read, which was reported.
    async fn look(&self, id: WorkflowId) -> Result<Option<Option<Snapshot>>, Failure> {
        match self.here.engine.show(id).await {
            Ok(snapshot) => Ok(Some(Some(snapshot))),
            Err(EngineError::NoWorkflow { .. }) => Ok(Some(None)),
            Err(EngineError::Store(StoreError::Corrupt { .. })) => Ok(None),
            Err(error) => Err(self.here.failed(&error)),
        }
    }

    async fn is_there(&self, partition: Partition, set: RowSet, row: &[u8]) -> Result<bool, Failure> {
        let found = self.rows(partition, set, Some(&before(row)), 1).await?;
        Ok(found.first().is_some_and(|found| found == row))
    }

    fn json(&self) -> String {
        let findings = self
            .findings
            .iter()
            .map(|Finding { workflow, what }| json!({ "workflow": workflow.map(|id| id.to_string()), "what": what }));
        let findings: Vec<_> = findings.collect();
        json!({ "workflows": self.workflows, "rows": self.rows, "findings": findings }).to_string()
    }

    /// The workflows that something is wrong with.
    fn names(&self) -> String {
        let ids: BTreeSet<_> = self.findings.iter().filter_map(|finding| finding.workflow).collect();
        ids.into_iter().map(|id| id.to_string()).collect::<Vec<_>>().join("\n")
    }

    fn table(&self, screen: &Screen) -> String {
        let Self { workflows, rows, findings, .. } = self;
        let seen = format!("{workflows} workflows and {rows} rows in {}", printable(&self.here.shown));
        if findings.is_empty() {
            return format!("ok: {seen}\n");
        }
        let mut table = Table::new(&["WORKFLOW", "WHAT IS WRONG"]);
        for Finding { workflow, what } in findings {
            let workflow = workflow.map(|id| id.to_string()).unwrap_or_else(|| "-".to_owned());
            table.row(vec![workflow.into(), Cell::from(what)]);
        }
        let more = if findings.len() == MOST { " at least: the check ended early" } else { "" };
        format!("{}\n{} findings{more}, {seen}\n", table.text(screen), findings.len())
    }
}
