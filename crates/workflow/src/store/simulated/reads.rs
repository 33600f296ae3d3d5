//! Reads of a simulated store.

use std::collections::BTreeSet;
use std::convert::Infallible;

use bytes::Bytes;

use super::SimulatedStore;
use super::tables::{SimulatedTables, SimulatedWorkflow};
use crate::codec::{ResultField, Row, StoreError, Stored, StoredState, due_row, workflow_in_row};
use crate::model::{JobIndex, Partition, Timestamp, WorkflowId};
use crate::store::query::lane_scan::{LaneRows, LaneScan, scan_lanes};
use crate::store::{EncodedSummary, Order, RowRange, RowSet, TimeIndex};

impl SimulatedStore {
    pub(crate) async fn load(&self, ids: &[WorkflowId]) -> Result<Vec<Option<Stored>>, StoreError> {
        let tables = self.read().await?;
        let stored = |entry: &SimulatedWorkflow| Stored {
            graph: entry.birth.graph.clone(),
            state: entry.state(),
        };
        Ok(ids
            .iter()
            .map(|id| tables.workflows.get(id).map(stored))
            .collect())
    }

    pub(crate) async fn excerpts(
        &self,
        wanted: &[(WorkflowId, Vec<JobIndex>)],
    ) -> Vec<Result<Option<StoredState>, StoreError>> {
        let some = |entry: &SimulatedWorkflow, jobs: &[JobIndex]| {
            let found = jobs
                .iter()
                .filter_map(|job| Some((*job, entry.jobs.get(job)?.clone())));
            StoredState {
                meta: entry.meta.clone(),
                jobs: found.collect(),
                ..StoredState::default()
            }
        };
        self.read_each(wanted, |tables, (id, jobs)| {
            tables.workflows.get(id).map(|entry| some(entry, jobs))
        })
        .await
    }

    pub(crate) async fn graphs(
        &self,
        ids: &[WorkflowId],
    ) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let tables = self.read().await?;
        let graph = |id| {
            let entry = tables.workflows.get(id);
            entry.map(|entry| entry.birth.graph.clone())
        };
        Ok(ids.iter().map(graph).collect())
    }

    pub(crate) async fn sizes(&self, ids: &[WorkflowId]) -> Result<Vec<u64>, StoreError> {
        let tables = self.read().await?;
        let size = |id| {
            tables
                .workflows
                .get(id)
                .map_or(0, |entry| entry.birth.graph.len() as u64)
        };
        Ok(ids.iter().map(size).collect())
    }

    pub(crate) async fn summaries(
        &self,
        ids: &[WorkflowId],
    ) -> Vec<Result<Option<EncodedSummary>, StoreError>> {
        let head = |entry: &SimulatedWorkflow| EncodedSummary {
            meta: entry.meta.clone(),
            label: entry.birth.label.clone(),
        };
        self.read_each(ids, |tables, id| tables.workflows.get(id).map(head))
            .await
    }

    pub(crate) async fn results(
        &self,
        wanted: &[(WorkflowId, Vec<ResultField>)],
    ) -> Result<Vec<Vec<Option<Bytes>>>, StoreError> {
        let tables = self.read().await?;
        let of = |(id, fields): &(WorkflowId, Vec<ResultField>)| {
            let entry = tables.workflows.get(id);
            fields
                .iter()
                .map(|field| entry.and_then(|entry| entry.results.get(field).cloned()))
                .collect()
        };
        Ok(wanted.iter().map(of).collect())
    }

    pub(crate) async fn ready(
        &self,
        prefixes: &[Row],
        limit: usize,
        partitions: &[Partition],
    ) -> Vec<Result<Vec<Vec<Row>>, StoreError>> {
        let ready = |tables: &SimulatedTables, &at: &Partition| {
            let rows = |prefix| tables.ready_with(at, prefix).take(limit).cloned().collect();
            prefixes.iter().map(|prefix: &Row| rows(prefix)).collect()
        };
        self.read_each(partitions, ready).await
    }

    pub(crate) async fn lanes(
        &self,
        wanted: &[(Partition, Vec<LaneScan>)],
        rows_per_lane: usize,
        max_lanes: usize,
    ) -> Vec<Result<Vec<LaneRows>, StoreError>> {
        let partitions: Vec<Partition> = wanted.iter().map(|(at, _)| *at).collect();
        let scans = |tables: &SimulatedTables, at: &Partition| {
            let of = wanted
                .iter()
                .filter(|(partition, _)| partition == at)
                .flat_map(|(_, scans)| scans);
            let read = |from: &Row, to: &Row, limit: usize| {
                Ok::<_, Infallible>(
                    tables
                        .ready_from(*at, from, to)
                        .take(limit)
                        .cloned()
                        .collect(),
                )
            };
            let scan_one = |scan| match scan_lanes(scan, rows_per_lane, max_lanes, read) {
                Ok(found) => found,
                Err(never) => match never {},
            };
            of.map(scan_one).collect()
        };
        self.read_each(&partitions, scans).await
    }

    pub(crate) async fn due(
        &self,
        which: TimeIndex,
        until: Timestamp,
        limit: usize,
        partitions: &[Partition],
    ) -> Vec<Result<Vec<(WorkflowId, Timestamp)>, StoreError>> {
        let due = |tables: &SimulatedTables, &partition: &Partition| {
            let due = tables
                .due_of(which, partition)
                .take_while(move |(at, _)| *at <= until);
            due.take(limit).map(|&(at, id)| (id, at)).collect()
        };
        self.read_each(partitions, due).await
    }

    pub(crate) async fn page(
        &self,
        ranges: &[(Partition, RowRange)],
        order: Order,
        limit: usize,
    ) -> Vec<Result<Vec<WorkflowId>, StoreError>> {
        let page = |tables: &SimulatedTables, (partition, range): &(Partition, RowRange)| {
            let rows = tables.index_rows(*partition, range);
            let id = |(_, row): &(Partition, Row)| {
                workflow_in_row(row).expect("an index row ends in an id")
            };
            match order {
                Order::OldestFirst => rows.take(limit).map(id).collect(),
                Order::NewestFirst => rows.rev().take(limit).map(id).collect(),
            }
        };
        self.read_each(ranges, page).await
    }

    pub(crate) async fn count(
        &self,
        ranges: &[RowRange],
        partitions: &[Partition],
    ) -> Vec<Result<Vec<u64>, StoreError>> {
        let count = |tables: &SimulatedTables, &at: &Partition| {
            ranges
                .iter()
                .map(|range| tables.index_rows(at, range).count() as u64)
                .collect()
        };
        self.read_each(partitions, count).await
    }

    pub(crate) async fn ready_depth(
        &self,
        prefixes: &[Row],
        partitions: &[Partition],
    ) -> Vec<Result<Vec<(u64, Option<Row>)>, StoreError>> {
        let depth = |tables: &SimulatedTables, &at: &Partition| {
            let rows = |prefix| tables.ready_with(at, prefix);
            prefixes
                .iter()
                .map(|prefix| (rows(prefix).count() as u64, rows(prefix).next().cloned()))
                .collect()
        };
        self.read_each(partitions, depth).await
    }

    pub(crate) async fn workflow_by_key(
        &self,
        partition: Partition,
        key: &str,
    ) -> Result<Option<WorkflowId>, StoreError> {
        Ok(self
            .read()
            .await?
            .keys
            .get(&(partition, key.to_owned()))
            .copied())
    }

    pub(crate) async fn rows(
        &self,
        partition: Partition,
        set: RowSet,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Row>, StoreError> {
        let tables = self.read().await?;
        let of = |rows: &BTreeSet<(Partition, Row)>| -> Vec<Row> {
            let rows = rows
                .iter()
                .filter(|(at, _)| *at == partition)
                .map(|(_, row)| row);
            rows.filter(|row| after.is_none_or(|after| row.as_slice() > after))
                .take(limit)
                .cloned()
                .collect()
        };
        Ok(match set {
            RowSet::Ready => of(&tables.ready),
            RowSet::Index => of(&tables.index),
            RowSet::Due(which) => {
                let rows = tables
                    .due_of(which, partition)
                    .map(|&(at, id)| due_row(at, id));
                rows.filter(|row| after.is_none_or(|after| row.as_slice() > after))
                    .take(limit)
                    .collect()
            }
        })
    }

    pub(crate) async fn scan_states(
        &self,
        partition: Partition,
    ) -> Result<Vec<WorkflowId>, StoreError> {
        let tables = self.read().await?;
        Ok(tables
            .workflows
            .keys()
            .copied()
            .filter(|id| id.partition() == partition)
            .collect())
    }
}
