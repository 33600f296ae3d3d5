//! Reads rows of sets: of queues, of lists and of timers.

use hashbrown::HashMap;
use tidegate_pipeline::{Arg, Batch, Outcome};

use super::reply::{self, answer, is_forbidden};
use crate::codec::{Row, StoreError, due_row, lane_prefix, read_due_row};
use crate::model::{Partition, Timestamp, WorkflowId};
use crate::store::redis::keys::Set;
use crate::store::redis::{RedisStore, key_arg};
use crate::store::{Order, RowRange, RowSet, TimeIndex};

/// Queues up to which each is counted separately, without a first read that tests whether there are
/// few rows.
const MAX_SEPARATE_QUEUES: usize = 8;

/// Number of ready rows that begin with a prefix, and the first of them.
type Depth = (u64, Option<Row>);

/// The bounds of a range of rows, in the syntax of Redis.
struct RowBounds {
    from: Vec<u8>,
    to: Vec<u8>,
}

impl RowBounds {
    /// The rows that begin with `prefix`.
    fn with_prefix(prefix: &[u8]) -> Self {
        let kept = prefix
            .iter()
            .rposition(|&byte| byte != u8::MAX)
            .map_or(0, |last| last + 1);
        let to = match prefix[..kept].split_last() {
            Some((last, before)) => [b"(", before, &[last + 1]].concat(),
            None => b"+".to_vec(),
        };
        Self {
            from: [b"[", prefix].concat(),
            to,
        }
    }

    /// The rows after a row, or all rows.
    fn after(row: Option<&[u8]>) -> Self {
        Self {
            from: row.map_or(b"-".to_vec(), |row| [b"(", row].concat()),
            to: b"+".to_vec(),
        }
    }

    fn from_range(range: &RowRange) -> Self {
        Self {
            from: [b"[", range.start().as_slice()].concat(),
            to: [b"(", range.end().as_slice()].concat(),
        }
    }

    /// Requests at most `limit` rows of the range.
    fn request_rows(&self, batch: &mut Batch, key: &str, order: Order, limit: usize) {
        let mut args = vec![key_arg(key)];
        let [from, to] = [Arg::Bytes(&self.from), Arg::Bytes(&self.to)];
        match order {
            Order::OldestFirst => args.extend([from, to, Arg::Bytes(b"BYLEX")]),
            Order::NewestFirst => {
                args.extend([to, from, Arg::Bytes(b"BYLEX"), Arg::Bytes(b"REV")]);
            }
        }
        args.extend([
            Arg::Bytes(b"LIMIT"),
            Arg::Integer(0),
            Arg::Integer(limit as i64),
        ]);
        batch.unit().repeatable("ZRANGE", &args);
    }

    /// Requests the number of rows of the range.
    fn request_count(&self, batch: &mut Batch, key: &str) {
        let args = [key_arg(key), Arg::Bytes(&self.from), Arg::Bytes(&self.to)];
        batch.unit().repeatable("ZLEXCOUNT", &args);
    }
}

/// Requests at most `limit` rows of a set ordered by time, from one time to another.
fn request_due(batch: &mut Batch, key: &str, from: Timestamp, to: Arg<'_>, limit: usize) {
    let from = Arg::Integer(from.micros() as i64);
    let limit = [
        Arg::Bytes(b"LIMIT"),
        Arg::Integer(0),
        Arg::Integer(limit as i64),
        Arg::Bytes(b"WITHSCORES"),
    ];
    let args = [key_arg(key), from, to, Arg::Bytes(b"BYSCORE")];
    batch.unit().repeatable("ZRANGE", &[args, limit].concat());
}

impl RedisStore {
    pub(crate) async fn ready(
        &self,
        prefixes: &[Row],
        limit: usize,
        partitions: &[Partition],
    ) -> Vec<Result<Vec<Vec<Row>>, StoreError>> {
        if prefixes.is_empty() {
            return vec![Ok(Vec::new()); partitions.len()];
        }
        let mut batch = Batch::new();
        for &partition in partitions {
            let key = self.keys.set(partition, Set::Ready);
            prefixes.iter().for_each(|prefix| {
                RowBounds::with_prefix(prefix).request_rows(
                    &mut batch,
                    &key,
                    Order::OldestFirst,
                    limit,
                )
            });
        }
        let outcomes = self.send(batch).await;
        let strings = |outcome: &Outcome| reply::strings(answer(outcome)?);
        outcomes
            .chunks(prefixes.len())
            .map(|each| each.iter().map(strings).collect())
            .collect()
    }

    pub(crate) async fn due(
        &self,
        which: TimeIndex,
        until: Timestamp,
        limit: usize,
        partitions: &[Partition],
    ) -> Vec<Result<Vec<(WorkflowId, Timestamp)>, StoreError>> {
        let mut batch = Batch::new();
        let until = Arg::Integer(i64::try_from(until.micros()).unwrap_or(i64::MAX));
        for &partition in partitions {
            let key = self.keys.set(partition, which.into());
            request_due(&mut batch, &key, Timestamp::default(), until, limit);
        }
        self.send(batch)
            .await
            .iter()
            .map(|outcome| reply::moments(answer(outcome)?))
            .collect()
    }

    pub(crate) async fn page(
        &self,
        ranges: &[(Partition, RowRange)],
        order: Order,
        limit: usize,
    ) -> Vec<Result<Vec<WorkflowId>, StoreError>> {
        let mut batch = Batch::new();
        for (partition, range) in ranges {
            let key = self.keys.set(*partition, Set::Index);
            RowBounds::from_range(range).request_rows(&mut batch, &key, order, limit);
        }
        self.send(batch)
            .await
            .iter()
            .map(|outcome| reply::ids(answer(outcome)?))
            .collect()
    }

    pub(crate) async fn count(
        &self,
        ranges: &[RowRange],
        partitions: &[Partition],
    ) -> Vec<Result<Vec<u64>, StoreError>> {
        if ranges.is_empty() {
            return vec![Ok(Vec::new()); partitions.len()];
        }
        let mut batch = Batch::new();
        for &partition in partitions {
            let key = self.keys.set(partition, Set::Index);
            ranges
                .iter()
                .for_each(|range| RowBounds::from_range(range).request_count(&mut batch, &key));
        }
        let outcomes = self.send(batch).await;
        let count = |outcome: &Outcome| reply::count(answer(outcome)?);
        outcomes
            .chunks(ranges.len())
            .map(|each| each.iter().map(count).collect())
            .collect()
    }

    pub(crate) async fn ready_depth(
        &self,
        prefixes: &[Row],
        partitions: &[Partition],
    ) -> Vec<Result<Vec<Depth>, StoreError>> {
        if prefixes.is_empty() {
            return vec![Ok(Vec::new()); partitions.len()];
        }
        let mut found = if prefixes.len() <= MAX_SEPARATE_QUEUES {
            vec![Ok(None); partitions.len()]
        } else {
            self.depths_from_rows(prefixes, partitions).await
        };
        let places: Vec<usize> = (0..partitions.len())
            .filter(|&at| matches!(found[at], Ok(None)))
            .collect();
        let uncounted: Vec<Partition> = places.iter().map(|&at| partitions[at]).collect();
        let depths = self.depths_from_counts(prefixes, &uncounted).await;
        for (at, depths) in places.into_iter().zip(depths) {
            found[at] = depths.map(Some);
        }
        found
            .into_iter()
            .map(|depths| depths.map(Option::unwrap_or_default))
            .collect()
    }

    /// The depths in partitions that have few rows between the first and the last prefix: all these
    /// rows are read. `None` for a partition that has more.
    async fn depths_from_rows(
        &self,
        prefixes: &[Row],
        partitions: &[Partition],
    ) -> Vec<Result<Option<Vec<Depth>>, StoreError>> {
        let places: HashMap<&[u8], usize> = prefixes.iter().map(Vec::as_slice).zip(0..).collect();
        let (Some(first), Some(last)) = (prefixes.iter().min(), prefixes.iter().max()) else {
            return Vec::new();
        };
        let between = RowBounds {
            from: RowBounds::with_prefix(first).from,
            to: RowBounds::with_prefix(last).to,
        };
        let mut batch = Batch::new();
        for &partition in partitions {
            let key = self.keys.set(partition, Set::Ready);
            between.request_rows(&mut batch, &key, Order::OldestFirst, prefixes.len());
        }
        let depths = |outcome: &Outcome| {
            let rows = reply::strings(answer(outcome)?)?;
            if rows.len() >= prefixes.len() {
                return Ok(None);
            }
            Ok(Some(count_rows(rows, &places)))
        };
        self.send(batch).await.iter().map(depths).collect()
    }

    async fn depths_from_counts(
        &self,
        prefixes: &[Row],
        partitions: &[Partition],
    ) -> Vec<Result<Vec<Depth>, StoreError>> {
        let mut batch = Batch::new();
        for &partition in partitions {
            let key = self.keys.set(partition, Set::Ready);
            for rows in prefixes.iter().map(|prefix| RowBounds::with_prefix(prefix)) {
                rows.request_count(&mut batch, &key);
                rows.request_rows(&mut batch, &key, Order::OldestFirst, 1);
            }
        }
        let outcomes = self.send(batch).await;
        let depth = |pair: &[Outcome]| {
            Ok((
                reply::count(answer(&pair[0])?)?,
                reply::strings(answer(&pair[1])?)?.into_iter().next(),
            ))
        };
        outcomes
            .chunks(2 * prefixes.len())
            .map(|each| each.chunks_exact(2).map(depth).collect())
            .collect()
    }

    pub(crate) async fn rows(
        &self,
        partition: Partition,
        set: RowSet,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Row>, StoreError> {
        let set = match set {
            RowSet::Ready => Set::Ready,
            RowSet::Index => Set::Index,
            RowSet::Due(which) => return self.due_rows(partition, which, after, limit).await,
        };
        let mut batch = Batch::new();
        let key = self.keys.set(partition, set);
        RowBounds::after(after).request_rows(&mut batch, &key, Order::OldestFirst, limit);
        reply::strings(answer(&self.send(batch).await[0])?)
    }

    pub(crate) async fn scan_states(
        &self,
        partition: Partition,
        from: u64,
    ) -> Result<Option<(u64, Vec<WorkflowId>)>, StoreError> {
        // COUNT bounds the keys that Redis visits in a call, not those that it returns.
        const SCAN_KEYS: i64 = 1_000;
        let from = from.to_string();
        let pattern = self.keys.state_pattern(partition);
        let scan = [from.as_bytes(), b"MATCH", pattern.as_bytes(), b"COUNT"].map(Arg::Bytes);
        let mut batch = Batch::new();
        // The key only selects the node.
        let key = self.keys.set(partition, Set::Index);
        batch
            .unit()
            .repeatable("EXISTS", &[key_arg(&key)])
            .repeatable("SCAN", &[&scan[..], &[Arg::Integer(SCAN_KEYS)]].concat());
        let outcomes = self.send(batch).await;
        if is_forbidden(&outcomes[1]) {
            Ok(None)
        } else {
            reply::scanned(answer(&outcomes[1])?).map(Some)
        }
    }

    async fn due_rows(
        &self,
        partition: Partition,
        which: TimeIndex,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Row>, StoreError> {
        let key = self.keys.set(partition, which.into());
        let from = after
            .and_then(read_due_row)
            .map_or(Timestamp::default(), |(at, _)| at);
        let mut page_rows = limit;
        loop {
            let mut batch = Batch::new();
            request_due(&mut batch, &key, from, Arg::Bytes(b"+inf"), page_rows);
            let found = reply::moments(answer(&self.send(batch).await[0])?)?;
            let all = found.len() < page_rows;
            let rows = found.into_iter().map(|(id, at)| due_row(at, id));
            let rows: Vec<Row> = rows
                .filter(|row| after.is_none_or(|after| row.as_slice() > after))
                .take(limit)
                .collect();
            // Rows that were read before come again if they have the same time. They may fill the
            // whole page.
            if all || !rows.is_empty() || limit == 0 {
                return Ok(rows);
            }
            page_rows *= 2;
        }
    }
}

/// The depth of each prefix, whose positions are given, among these rows.
fn count_rows(rows: Vec<Row>, places: &HashMap<&[u8], usize>) -> Vec<Depth> {
    let mut depths: Vec<Depth> = vec![(0, None); places.len()];
    for row in rows {
        let zero = row.iter().position(|&byte| byte == 0);
        let queue = zero.map_or(&row[..], |zero| &row[..=zero]);
        let prefixes = [queue, lane_prefix(&row)].into_iter();
        for &place in prefixes.filter_map(|prefix| places.get(prefix)) {
            let (number, first) = &mut depths[place];
            *number += 1;
            first.get_or_insert_with(|| row.clone());
        }
    }
    depths
}
