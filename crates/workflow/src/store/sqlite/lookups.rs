//! Reads of the store, each on one of the reading threads.

use std::sync::Arc;

use bytes::Bytes;
use rusqlite::Connection;

use super::write::WriteRequest;
use super::{SqliteStore, read};
use crate::codec::{ResultField, Row, StoreError, Stored, StoredState};
use crate::model::{JobIndex, Partition, Timestamp, WorkflowId};
use crate::store::query::lane_scan::{LaneRows, LaneScan, scan_lanes};
use crate::store::{EncodedSummary, Order, RowRange, RowSet, TimeIndex, split_result};

impl SqliteStore {
    /// Reads items one after the other, at one moment.
    pub(super) async fn lookup_each<I: Clone + Send + 'static, T: Send + 'static>(
        &self,
        items: &[I],
        read: impl Fn(&Connection, &I) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<Vec<T>, StoreError> {
        let items = items.to_vec();
        self.lookup(move |connection| items.iter().map(|item| read(connection, item)).collect())
            .await
    }

    pub(crate) async fn load(&self, ids: &[WorkflowId]) -> Result<Vec<Option<Stored>>, StoreError> {
        self.lookup_each(ids, read::load).await
    }

    pub(crate) async fn excerpts(
        &self,
        wanted: &[(WorkflowId, Vec<JobIndex>)],
    ) -> Vec<Result<Option<StoredState>, StoreError>> {
        split_result(wanted.len(), self.lookup_each(wanted, read::excerpt).await)
    }

    pub(crate) async fn graphs(
        &self,
        ids: &[WorkflowId],
    ) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        self.lookup_each(ids, |connection, &id| read::graph(connection, id))
            .await
    }

    pub(crate) async fn sizes(&self, ids: &[WorkflowId]) -> Result<Vec<u64>, StoreError> {
        self.lookup_each(ids, read::size).await
    }

    pub(crate) async fn summaries(
        &self,
        ids: &[WorkflowId],
    ) -> Vec<Result<Option<EncodedSummary>, StoreError>> {
        split_result(ids.len(), self.lookup_each(ids, read::summary).await)
    }

    pub(crate) async fn results(
        &self,
        wanted: &[(WorkflowId, Vec<ResultField>)],
    ) -> Result<Vec<Vec<Option<Bytes>>>, StoreError> {
        self.lookup_each(wanted, read::results).await
    }

    pub(crate) async fn ready(
        &self,
        prefixes: &[Row],
        limit: usize,
        partitions: &[Partition],
    ) -> Vec<Result<Vec<Vec<Row>>, StoreError>> {
        let prefixes = prefixes.to_vec();
        let found = self.lookup_each(partitions, move |connection, at| {
            let rows = |prefix: &Row| read::ready(connection, *at, prefix, limit);
            prefixes.iter().map(rows).collect()
        });
        split_result(partitions.len(), found.await)
    }

    pub(crate) async fn lanes(
        &self,
        wanted: &[(Partition, Vec<LaneScan>)],
        rows_per_lane: usize,
        max_lanes: usize,
    ) -> Result<Vec<Vec<LaneRows>>, StoreError> {
        self.lookup_each(wanted, move |connection, (at, scans)| {
            let read =
                |from: &Row, to: &Row, limit| read::ready_from(connection, *at, from, to, limit);
            let scan = |scan| scan_lanes(scan, rows_per_lane, max_lanes, read);
            scans.iter().map(scan).collect()
        })
        .await
    }

    pub(crate) async fn due(
        &self,
        which: TimeIndex,
        until: Timestamp,
        limit: usize,
        partitions: &[Partition],
    ) -> Vec<Result<Vec<(WorkflowId, Timestamp)>, StoreError>> {
        let presence = Arc::clone(&self.threads.presence);
        let found = self.lookup_each(partitions, move |connection, &partition| {
            // The sweep reads regularly, so it finds that the file is gone before anything is
            // written.
            presence.check()?;
            read::due(connection, partition, which, until, limit)
        });
        split_result(partitions.len(), found.await)
    }

    pub(crate) async fn page(
        &self,
        ranges: &[(Partition, RowRange)],
        order: Order,
        limit: usize,
    ) -> Vec<Result<Vec<WorkflowId>, StoreError>> {
        let found = self.lookup_each(ranges, move |connection, (partition, range)| {
            read::page(connection, *partition, range, order, limit)
        });
        split_result(ranges.len(), found.await)
    }

    pub(crate) async fn count(
        &self,
        ranges: &[RowRange],
        partitions: &[Partition],
    ) -> Vec<Result<Vec<u64>, StoreError>> {
        let ranges = ranges.to_vec();
        let owned = partitions.to_vec();
        let found = self.scan(move |connection| {
            let each = |at: &Partition| {
                ranges
                    .iter()
                    .map(|range| read::count(connection, *at, range))
                    .collect()
            };
            owned.iter().map(each).collect()
        });
        split_result(partitions.len(), found.await)
    }

    pub(crate) async fn ready_depth(
        &self,
        prefixes: &[Row],
        partitions: &[Partition],
    ) -> Vec<Result<Vec<(u64, Option<Row>)>, StoreError>> {
        let depths = self.depths(prefixes.to_vec(), partitions.to_vec());
        split_result(partitions.len(), depths.await)
    }

    async fn depths(
        &self,
        prefixes: Vec<Row>,
        partitions: Vec<Partition>,
    ) -> Result<Vec<Vec<(u64, Option<Row>)>>, StoreError> {
        if !self.threads.depths.are_known() {
            self.write((), WriteRequest::Count).await?;
        }
        let depths = Arc::clone(&self.threads.depths);
        self.scan(move |connection| {
            // A commit with an unknown outcome may have discarded the numbers; then the rows are
            // counted in the file.
            let known = depths.counts_for(&prefixes, &partitions);
            let depth = |place: usize, at: Partition, queue: usize| {
                let prefix = &prefixes[queue];
                let number = match &known {
                    Some(known) => known[place][queue],
                    None => read::ready_count(connection, at, prefix)?,
                };
                let first = match number {
                    0 => None,
                    _ => read::ready(connection, at, prefix, 1)?.pop(),
                };
                Ok((number, first))
            };
            let each = |(place, &at): (usize, &Partition)| {
                let queues = 0..prefixes.len();
                queues.map(|queue| depth(place, at, queue)).collect()
            };
            partitions.iter().enumerate().map(each).collect()
        })
        .await
    }

    pub(crate) async fn workflow_by_key(
        &self,
        partition: Partition,
        key: &str,
    ) -> Result<Option<WorkflowId>, StoreError> {
        let key = key.to_owned();
        self.lookup(move |connection| read::workflow_by_key(connection, partition, &key))
            .await
    }

    pub(crate) async fn rows(
        &self,
        partition: Partition,
        set: RowSet,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Row>, StoreError> {
        let after = after.map(<[u8]>::to_vec);
        self.scan(move |connection| read::rows(connection, partition, set, after.as_deref(), limit))
            .await
    }

    pub(crate) async fn scan_states(
        &self,
        partition: Partition,
    ) -> Result<Vec<WorkflowId>, StoreError> {
        self.scan(move |connection| read::states(connection, partition))
            .await
    }
}
