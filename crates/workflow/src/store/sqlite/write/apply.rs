//! Applies changes of workflows within a transaction.

use rusqlite::{Connection, params};

use super::lazy_statement::LazyStatement;
use super::sets::{RowStatements, TimeRowStatements};
use crate::codec::{
    Applied, Change, CreationRecord, Delete, Put, Row, RowTimes, StoreError, TimerMove, Write,
};
use crate::model::{Partition, WorkflowId};
use crate::store::sqlite::column::{field_number, micros};
use crate::store::sqlite::depths::DepthChanges;
use crate::store::sqlite::read;

/// The prepared statements that apply changes of workflows.
pub(super) struct WorkflowStatements<'c> {
    connection: &'c Connection,
    select: LazyStatement<'c>,
    select_key: LazyStatement<'c>,
    create: LazyStatement<'c>,
    replace: LazyStatement<'c>,
    put_state: LazyStatement<'c>,
    /// One statement for states that are one value, and one for all others.
    put_meta: [LazyStatement<'c>; 2],
    put_meta_and_times: [LazyStatement<'c>; 2],
    put_graph: LazyStatement<'c>,
    put_job: LazyStatement<'c>,
    put_result: LazyStatement<'c>,
    drop_result: LazyStatement<'c>,
    put_key: LazyStatement<'c>,
    drop_key: LazyStatement<'c>,
    drop_all: [LazyStatement<'c>; 4],
    timers: TimeRowStatements<'c>,
    expiries: TimeRowStatements<'c>,
    ready: RowStatements<'c>,
    index: RowStatements<'c>,
    /// The changes of the numbers of ready rows by the transaction.
    pub(super) added: DepthChanges,
}

/// The times of a stored state, as they are in columns.
#[derive(Clone, Copy, Default)]
struct ColumnTimes {
    timer: Option<i64>,
    expiry: Option<i64>,
}

impl ColumnTimes {
    fn from_times(times: RowTimes) -> Self {
        Self {
            timer: times.timer.map(micros),
            expiry: times.expiry.map(micros),
        }
    }

    /// The times after a write.
    fn after(self, put: &Put) -> Self {
        let moved = |old, to| match to {
            TimerMove::Unchanged => old,
            TimerMove::To(at) => Some(micros(at)),
            TimerMove::Remove => None,
        };
        Self {
            timer: moved(self.timer, put.timer),
            expiry: moved(self.expiry, put.expiry),
        }
    }
}

/// A workflow, and the partition that it is in.
#[derive(Clone, Copy)]
struct WorkflowAddress {
    partition: Partition,
    workflow: WorkflowId,
}

impl WorkflowAddress {
    fn id(&self) -> &[u8] {
        self.workflow.bytes()
    }
}

impl<'c> WorkflowStatements<'c> {
    pub(super) fn new(connection: &'c Connection) -> Self {
        let statement = |sql| LazyStatement::new(connection, sql);
        Self {
            connection,
            select: statement("SELECT meta, timer, expiry FROM workflow WHERE id = ?1"),
            select_key: statement("SELECT id FROM idempotency WHERE partition = ?1 AND key = ?2"),
            create: statement("INSERT OR IGNORE INTO workflow VALUES (?1, ?2, ?3, ?4, ?5)"),
            replace: statement("INSERT OR REPLACE INTO workflow VALUES (?1, ?2, ?3, ?4, ?5)"),
            put_state: statement(
                "UPDATE workflow SET meta = ?2, timer = ?3, expiry = ?4 WHERE id = ?1",
            ),
            put_meta: [
                statement(
                    "UPDATE workflow SET meta = ?2 WHERE id = ?1 AND meta >= ?3 AND meta < ?4",
                ),
                statement("UPDATE workflow SET meta = ?2 WHERE id = ?1 AND meta = ?3"),
            ],
            put_meta_and_times: [
                statement(
                    "UPDATE workflow SET meta = ?2, timer = ?5, expiry = ?6 WHERE id = ?1 AND meta >= ?3 AND meta < ?4",
                ),
                statement(
                    "UPDATE workflow SET meta = ?2, timer = ?4, expiry = ?5 WHERE id = ?1 AND meta = ?3",
                ),
            ],
            put_graph: statement("INSERT OR REPLACE INTO graph VALUES (?1, ?2)"),
            put_job: statement("INSERT OR REPLACE INTO job VALUES (?1, ?2, ?3)"),
            put_result: statement("INSERT OR REPLACE INTO result VALUES (?1, ?2, ?3)"),
            drop_result: statement("DELETE FROM result WHERE id = ?1 AND field = ?2"),
            put_key: statement("INSERT INTO idempotency VALUES (?1, ?2, ?3)"),
            drop_key: statement(
                "DELETE FROM idempotency WHERE partition = ?1 AND key = ?2 AND id = ?3",
            ),
            drop_all: [
                statement("DELETE FROM workflow WHERE id = ?1"),
                statement("DELETE FROM graph WHERE id = ?1"),
                statement("DELETE FROM job WHERE id = ?1"),
                statement("DELETE FROM result WHERE id = ?1"),
            ],
            timers: TimeRowStatements::new(connection, "timer"),
            expiries: TimeRowStatements::new(connection, "expiry"),
            ready: RowStatements::new(connection, "ready_row"),
            index: RowStatements::new(connection, "index_row"),
            added: DepthChanges::default(),
        }
    }

    pub(super) fn apply(
        &mut self,
        partition: Partition,
        change: &Change,
    ) -> Result<Applied, StoreError> {
        let workflow = change.workflow;
        let at = WorkflowAddress {
            partition,
            workflow,
        };
        if let Write::Put(put) = &change.write {
            match (&change.expected, &put.creation, put.stored_times) {
                (None, Some(new), _) if new.idempotency_key.is_none() => {
                    return self.create(at, put, new);
                }
                (Some(_), None, Some(was)) => return self.update(at, change, was, put),
                _ => {}
            }
        }
        let times = match self.find_stored(change)? {
            Some((true, times)) => Some(times),
            Some((false, _)) => return self.conflict(workflow),
            None if change.expected.is_some() => return Ok(Applied::Conflict(None)),
            None => None,
        };
        match &change.write {
            Write::Put(put) => self.put(at, times.unwrap_or_default(), put),
            Write::Delete(delete) => self.delete(at, times, delete),
        }
    }

    /// Whether the stored state is the expected one, and its times. `None` if there is no state.
    fn find_stored(&mut self, change: &Change) -> Result<Option<(bool, ColumnTimes)>, StoreError> {
        self.select
            .find([change.workflow.bytes().as_slice()], |row| {
                let times = ColumnTimes {
                    timer: row.get(1)?,
                    expiry: row.get(2)?,
                };
                Ok((change.expects(Some(row.get_ref(0)?.as_blob()?)), times))
            })
    }

    fn conflict(&self, id: WorkflowId) -> Result<Applied, StoreError> {
        Ok(Applied::Conflict(read::state(self.connection, id)?))
    }

    /// Writes a workflow that must not exist, without a read before.
    fn create(
        &mut self,
        at: WorkflowAddress,
        put: &Put,
        birth: &CreationRecord,
    ) -> Result<Applied, StoreError> {
        let moments = ColumnTimes::default().after(put);
        let row = params![
            at.id(),
            put.meta,
            birth.label,
            moments.timer,
            moments.expiry
        ];
        if self.create.run(row)? == 0 {
            return self.conflict(at.workflow);
        }
        self.put_graph.run(params![at.id(), birth.graph])?;
        self.put_rest(at, ColumnTimes::default(), moments, put)
    }

    /// Writes a state in place of the expected one, whose times are known, without a read before.
    fn update(
        &mut self,
        at: WorkflowAddress,
        change: &Change,
        was: RowTimes,
        put: &Put,
    ) -> Result<Applied, StoreError> {
        let was = ColumnTimes::from_times(was);
        let now = was.after(put);
        match self.replace_expected(at.id(), change, put, now)? {
            0 => self.conflict(at.workflow),
            _ => self.put_rest(at, was, now, put),
        }
    }

    /// Writes the meta and the times if the state is the expected one. Returns the number of
    /// changed rows.
    fn replace_expected(
        &mut self,
        id: &[u8],
        change: &Change,
        put: &Put,
        now: ColumnTimes,
    ) -> Result<usize, StoreError> {
        let expected = change.expected.as_deref().unwrap_or_default();
        let keeps_times = put.timer == TimerMove::Unchanged && put.expiry == TimerMove::Unchanged;
        let Self {
            put_meta: [by_prefix, by_value],
            put_meta_and_times: [by_prefix_timed, by_value_timed],
            ..
        } = self;
        match (change.small, keeps_times) {
            (true, true) => by_prefix.run(params![id, put.meta, expected, read::end_of(expected)]),
            (true, false) => {
                let end = read::end_of(expected);
                by_prefix_timed.run(params![id, put.meta, expected, end, now.timer, now.expiry])
            }
            (false, true) => by_value.run(params![id, put.meta, expected]),
            (false, false) => {
                by_value_timed.run(params![id, put.meta, expected, now.timer, now.expiry])
            }
        }
    }

    /// Writes a change whose expected state was verified by a read.
    fn put(
        &mut self,
        at: WorkflowAddress,
        was: ColumnTimes,
        put: &Put,
    ) -> Result<Applied, StoreError> {
        let birth = put.creation.as_ref();
        if let Some(key) = birth.and_then(|birth| birth.idempotency_key.as_deref())
            && let Some(owner) = self.claim_key(at, key)?
        {
            return Ok(Applied::KeyTaken(owner));
        }
        let id = at.id();
        let now = was.after(put);
        match &put.creation {
            Some(CreationRecord { graph, label, .. }) => {
                self.replace
                    .run(params![id, put.meta, label, now.timer, now.expiry])?;
                self.put_graph.run(params![id, graph])?;
            }
            None => {
                _ = self
                    .put_state
                    .run(params![id, put.meta, now.timer, now.expiry])?
            }
        }
        self.put_rest(at, was, now, put)
    }

    /// Claims an idempotency key, or returns the workflow that has it.
    fn claim_key(
        &mut self,
        at: WorkflowAddress,
        key: &str,
    ) -> Result<Option<WorkflowId>, StoreError> {
        let partition = at.partition.0;
        let owner = self.select_key.find(params![partition, key], |row| {
            row.get(0).map(WorkflowId::from_bytes)
        })?;
        if owner.is_none() {
            self.put_key.run(params![partition, key, at.id()])?;
        }
        Ok(owner)
    }

    /// Writes what is in other tables than the meta.
    fn put_rest(
        &mut self,
        at: WorkflowAddress,
        was: ColumnTimes,
        now: ColumnTimes,
        put: &Put,
    ) -> Result<Applied, StoreError> {
        let WorkflowAddress {
            partition,
            workflow,
        } = at;
        if put.timer != TimerMove::Unchanged {
            self.timers
                .move_row(partition, workflow, was.timer, now.timer)?;
        }
        if put.expiry != TimerMove::Unchanged {
            self.expiries
                .move_row(partition, workflow, was.expiry, now.expiry)?;
        }
        self.put_jobs_and_results(at.id(), put)?;
        let mut count = |row: &Row, rows| self.added.add_rows(partition, row, rows);
        self.ready.change(partition, &put.ready, Some(&mut count))?;
        self.index.change(partition, &put.index, None)?;
        Ok(Applied::Done)
    }

    fn put_jobs_and_results(&mut self, id: &[u8], put: &Put) -> Result<(), StoreError> {
        for (job, state) in &put.jobs {
            self.put_job.run(params![id, job.0, state])?;
        }
        for (field, value) in &put.results {
            self.put_result
                .run(params![id, field_number(*field), value])?;
        }
        for &field in &put.dropped_results {
            self.drop_result.run(params![id, field_number(field)])?;
        }
        Ok(())
    }

    fn delete(
        &mut self,
        at: WorkflowAddress,
        moments: Option<ColumnTimes>,
        delete: &Delete,
    ) -> Result<Applied, StoreError> {
        let partition = at.partition;
        for (set, old) in [
            (&mut self.timers, moments.map(|moments| moments.timer)),
            (&mut self.expiries, moments.map(|moments| moments.expiry)),
        ] {
            match old {
                Some(None) => {}
                Some(old) => set.move_row(partition, at.workflow, old, None)?,
                // The rows left by a missing workflow do not show when it was due.
                None => set.remove_all(partition, at.workflow)?,
            }
        }
        for table in &mut self.drop_all {
            table.run([at.id()])?;
        }
        let added = &mut self.added;
        self.ready.remove(
            partition,
            &delete.ready,
            Some(&mut |row, rows| added.add_rows(partition, row, rows)),
        )?;
        self.index.remove(partition, &delete.index, None)?;
        if let Some(key) = &delete.idempotency_key {
            self.drop_key.run(params![partition.0, key, at.id()])?;
        }
        Ok(Applied::Done)
    }
}
