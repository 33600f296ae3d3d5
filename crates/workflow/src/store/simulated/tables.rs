//! The tables of the simulated store, and how a change is applied to them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::ops::Bound;

use bytes::Bytes;

use super::faults::Faults;
use super::permits::SimulatedPermits;
use super::registers::RegisterEntries;
use super::servers::Servers;
use crate::codec::{
    Applied, Change, CreationRecord, Delete, NewerState, Put, ResultField, Row, RowChange, Stamp,
    StoredState, TimerMove, Write,
};
use crate::model::{JobIndex, Partition, Timestamp, WorkflowId};
use crate::store::{RowRange, TimeIndex};

/// Number of recorded writes of a workflow: few, so that tests also meet writes that are not
/// recorded.
const RECORDED_WRITES: usize = 4;

#[derive(Default)]
pub(super) struct SimulatedTables {
    pub(super) workflows: BTreeMap<WorkflowId, SimulatedWorkflow>,
    pub(super) keys: BTreeMap<(Partition, String), WorkflowId>,
    pub(super) ready: BTreeSet<(Partition, Row)>,
    pub(super) index: BTreeSet<(Partition, Row)>,
    pub(super) timers: BTreeSet<(Timestamp, WorkflowId)>,
    pub(super) expiries: BTreeSet<(Timestamp, WorkflowId)>,
    pub(super) queues: RegisterEntries,
    pub(super) names: RegisterEntries,
    pub(super) policies: BTreeMap<String, String>,
    pub(super) permits: SimulatedPermits,
    pub(super) servers: Servers,
    pub(super) faults: Option<Faults>,
    /// Calls so far.
    pub(super) calls: u64,
    /// Number of times at which the store lost everything, or its registers.
    pub(super) losses: u64,
}

/// A workflow in the simulated store.
#[derive(Debug, Default)]
pub(super) struct SimulatedWorkflow {
    pub(super) meta: Vec<u8>,
    pub(super) birth: CreationRecord,
    pub(super) jobs: BTreeMap<JobIndex, Vec<u8>>,
    pub(super) results: BTreeMap<ResultField, Bytes>,
    timer: Option<Timestamp>,
    expiry: Option<Timestamp>,
    /// The latest writes and the jobs that they changed, latest first.
    trail: VecDeque<(Stamp, Vec<JobIndex>)>,
}

impl fmt::Debug for SimulatedTables {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Tables")
            .field("workflows", &self.workflows.len())
            .finish_non_exhaustive()
    }
}

impl SimulatedWorkflow {
    pub(super) fn state(&self) -> StoredState {
        let jobs = self
            .jobs
            .iter()
            .map(|(&job, state)| (job, state.clone()))
            .collect();
        StoredState {
            meta: self.meta.clone(),
            jobs,
            ..StoredState::default()
        }
    }

    /// Records which jobs a write changes.
    fn record_write(&mut self, put: &Put) {
        self.trail.truncate(RECORDED_WRITES - 1);
        match &put.trail {
            Some(trail) => self
                .trail
                .push_front((trail.stamp, put.jobs.iter().map(|(job, _)| *job).collect())),
            None => self.trail.clear(),
        }
    }

    /// The changes since the state that a change expects, if they are recorded.
    fn newer_state(&self, change: &Change) -> Option<NewerState> {
        let Write::Put(put) = &change.write else {
            return None;
        };
        let since = put.trail?.base?;
        let since = self.trail.iter().position(|(stamp, _)| *stamp == since)?;
        let changed: BTreeSet<JobIndex> = self
            .trail
            .iter()
            .take(since)
            .flat_map(|(_, jobs)| jobs)
            .copied()
            .collect();
        let jobs = changed
            .into_iter()
            .map(|job| (job, self.jobs[&job].clone()))
            .collect();
        Some(NewerState {
            stamp: self.trail[0].0,
            state: StoredState {
                meta: self.meta.clone(),
                jobs,
                ..StoredState::default()
            },
        })
    }
}

impl SimulatedTables {
    pub(super) fn due_of(
        &self,
        which: TimeIndex,
        partition: Partition,
    ) -> impl Iterator<Item = &(Timestamp, WorkflowId)> {
        let set = match which {
            TimeIndex::Timers => &self.timers,
            TimeIndex::Expiries => &self.expiries,
        };
        set.iter()
            .filter(move |(_, id)| id.partition() == partition)
    }

    pub(super) fn ready_with<'a>(
        &'a self,
        partition: Partition,
        prefix: &'a [u8],
    ) -> impl Iterator<Item = &'a Row> {
        let from = self
            .ready
            .range((partition, prefix.to_vec())..)
            .map(move |(at, row)| (at, row));
        from.take_while(move |&(&at, row)| at == partition && row.starts_with(prefix))
            .map(|(_, row)| row)
    }

    /// Ready rows of a range; `to` is exclusive.
    pub(super) fn ready_from(
        &self,
        partition: Partition,
        from: &Row,
        to: &Row,
    ) -> impl Iterator<Item = &Row> {
        self.ready
            .range((partition, from.clone())..(partition, to.clone()))
            .map(|(_, row)| row)
    }

    pub(super) fn index_rows(
        &self,
        partition: Partition,
        range: &RowRange,
    ) -> impl DoubleEndedIterator<Item = &(Partition, Row)> {
        let from = (partition, range.start());
        let to = (partition, range.end());
        // A tree panics on a range that ends before it starts. Here such a range is empty.
        let to = to.max(from.clone());
        self.index
            .range((Bound::Included(from), Bound::Excluded(to)))
    }

    pub(super) fn apply(&mut self, partition: Partition, change: &Change) -> Applied {
        let id = change.workflow;
        if !change.expects(self.workflows.get(&id).map(|entry| entry.meta.as_slice())) {
            let entry = self.workflows.get(&id);
            return match entry
                .filter(|_| !change.small)
                .and_then(|entry| entry.newer_state(change))
            {
                Some(later) => Applied::Behind(later),
                None => Applied::Conflict(entry.map(SimulatedWorkflow::state)),
            };
        }
        match &change.write {
            Write::Put(put) => return self.put(partition, id, put),
            Write::Delete(delete) => self.delete(partition, id, delete),
        }
        Applied::Done
    }

    fn put(&mut self, partition: Partition, id: WorkflowId, put: &Put) -> Applied {
        if let Some(key) = put
            .creation
            .as_ref()
            .and_then(|birth| birth.idempotency_key.clone())
            && let Some(&taken) = self.keys.get(&(partition, key.clone()))
        {
            return Applied::KeyTaken(taken);
        }
        let entry = self.workflows.entry(id).or_default();
        entry.meta.clone_from(&put.meta);
        if let Some(birth) = &put.creation {
            entry.birth = birth.clone();
            let key = birth.idempotency_key.clone();
            self.keys.extend(key.map(|key| ((partition, key), id)));
        }
        entry.record_write(put);
        entry.jobs.extend(put.jobs.iter().cloned());
        entry.results.extend(
            put.results
                .iter()
                .map(|(field, value)| (*field, Bytes::from(value.clone()))),
        );
        entry
            .results
            .retain(|field, _| !put.dropped_results.contains(field));
        move_row(&mut self.timers, &mut entry.timer, put.timer, id);
        move_row(&mut self.expiries, &mut entry.expiry, put.expiry, id);
        change_rows(&mut self.ready, partition, &put.ready);
        change_rows(&mut self.index, partition, &put.index);
        Applied::Done
    }

    fn delete(&mut self, partition: Partition, id: WorkflowId, delete: &Delete) {
        if let Some(mut entry) = self.workflows.remove(&id) {
            move_row(&mut self.timers, &mut entry.timer, TimerMove::Remove, id);
            move_row(&mut self.expiries, &mut entry.expiry, TimerMove::Remove, id);
        } else {
            // The rows left by a missing workflow do not show when it was due.
            self.timers.retain(|(_, due)| *due != id);
            self.expiries.retain(|(_, due)| *due != id);
        }
        let removal = |rows: &[Row]| RowChange {
            remove: rows.to_vec(),
            add: Vec::new(),
        };
        change_rows(&mut self.ready, partition, &removal(&delete.ready));
        change_rows(&mut self.index, partition, &removal(&delete.index));
        if let Some(key) = &delete.idempotency_key {
            let key = (partition, key.clone());
            if self.keys.get(&key) == Some(&id) {
                self.keys.remove(&key);
            }
        }
    }
}

fn move_row(
    set: &mut BTreeSet<(Timestamp, WorkflowId)>,
    at: &mut Option<Timestamp>,
    to: TimerMove,
    id: WorkflowId,
) {
    let to = match to {
        TimerMove::Unchanged => return,
        TimerMove::To(moment) => Some(moment),
        TimerMove::Remove => None,
    };
    if let Some(old) = std::mem::replace(at, to) {
        set.remove(&(old, id));
    }
    set.extend(to.map(|moment| (moment, id)));
}

fn change_rows(set: &mut BTreeSet<(Partition, Row)>, partition: Partition, change: &RowChange) {
    for row in &change.remove {
        set.remove(&(partition, row.clone()));
    }
    set.extend(change.add.iter().map(|row| (partition, row.clone())));
}
