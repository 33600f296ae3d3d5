//! Reads. Each is one batch, so it costs one round trip for each node.

use std::collections::BTreeMap;

use bytes::Bytes;
use hashbrown::HashMap;
use tidegate_pipeline::{Arg, Batch, Outcome, Reply};

use super::RedisStore;
use super::keys::{self, LABEL, META, Part, Set};
use super::pieces::read::ask;
use super::reply::{self, answer, is_forbidden, stored};
use crate::id::{Partition, WorkflowId};
use crate::record::change::{ResultField, Stored};
use crate::record::due::{due_row, read_due_row};
use crate::record::rows::{Row, lane_of};
use crate::record::small;
use crate::store::error::StoreError;
use crate::store::query::{Clockwork, Head, Order, RowSet, Span};
use crate::time::Timestamp;

/// Of so many queues each is asked for at once, whatever there is.
const FEW: usize = 8;

/// So many small workflows of a partition are read with one command, which costs less than one for each.
const MANY: usize = 4;
/// The most of one command: 4 MiB, and some milliseconds of Redis.
const TOGETHER: usize = 256;

/// How many ready rows begin with a prefix, and the first of them.
type Depth = (u64, Option<Row>);

/// The beginning and the end of a range of rows, in the syntax of Redis.
struct Between {
    from: Vec<u8>,
    to: Vec<u8>,
}

impl Between {
    /// Rows that begin with `prefix`.
    fn with(prefix: &[u8]) -> Self {
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
    fn behind(row: Option<&[u8]>) -> Self {
        Self {
            from: row.map_or(b"-".to_vec(), |row| [b"(", row].concat()),
            to: b"+".to_vec(),
        }
    }

    fn of(span: &Span) -> Self {
        Self {
            from: [b"[", span.start().as_slice()].concat(),
            to: [b"(", span.end().as_slice()].concat(),
        }
    }

    /// Asks for at most `limit` of them.
    fn rows(&self, batch: &mut Batch, key: &str, order: Order, limit: usize) {
        let (key, from, to) = (
            Arg::Key(key.as_bytes()),
            Arg::Bytes(&self.from),
            Arg::Bytes(&self.to),
        );
        let (by, most) = (
            [Arg::Bytes(b"LIMIT"), Arg::Integer(0)],
            Arg::Integer(limit as i64),
        );
        let (lex, reverse) = (Arg::Bytes(b"BYLEX"), Arg::Bytes(b"REV"));
        match order {
            Order::OldestFirst => batch
                .unit()
                .repeatable("ZRANGE", &[key, from, to, lex, by[0], by[1], most]),
            Order::NewestFirst => batch
                .unit()
                .repeatable("ZRANGE", &[key, to, from, lex, reverse, by[0], by[1], most]),
        };
    }

    /// Asks for their number.
    fn count(&self, batch: &mut Batch, key: &str) {
        let args = [
            Arg::Key(key.as_bytes()),
            Arg::Bytes(&self.from),
            Arg::Bytes(&self.to),
        ];
        batch.unit().repeatable("ZLEXCOUNT", &args);
    }
}

/// Asks for at most `limit` rows of a set ordered by time, from one moment to another.
fn moments(batch: &mut Batch, key: &str, (from, to): (Timestamp, Arg<'_>), limit: usize) {
    let from = Arg::Integer(from.micros() as i64);
    let limit = [
        Arg::Bytes(b"LIMIT"),
        Arg::Integer(0),
        Arg::Integer(limit as i64),
        Arg::Bytes(b"WITHSCORES"),
    ];
    let args = [Arg::Key(key.as_bytes()), from, to, Arg::Bytes(b"BYSCORE")];
    batch.unit().repeatable("ZRANGE", &[args, limit].concat());
}

/// Small workflows that were asked for with one command: their states, then their graphs.
fn found_together(outcome: &Outcome) -> Vec<Option<Stored>> {
    let Ok(values) = answer(outcome).and_then(reply::array) else {
        return Vec::new();
    };
    let (states, graphs) = values.split_at(values.len() / 2);
    let stored = |(state, graph): (&&Reply, &&Reply)| {
        let (state, graph) = (reply::small(state).ok()??, reply::bytes(graph).ok()??);
        Some(Stored {
            graph: graph.to_vec(),
            state,
        })
    };
    states.iter().zip(graphs).map(stored).collect()
}

/// What has the state of a workflow, by its id.
pub(super) fn state_of(id: WorkflowId) -> Part {
    if id.is_small() {
        Part::Small
    } else {
        Part::State
    }
}

impl RedisStore {
    /// Those of `ids` that look like ids of small workflows and were not found: ids from before the third format may look so by chance.
    pub(super) fn by_chance<T>(
        ids: &[WorkflowId],
        found: &[Result<Option<T>, StoreError>],
    ) -> Vec<usize> {
        let missing = |at: &usize| matches!(found[*at], Ok(None)) && ids[*at].is_small();
        (0..ids.len()).filter(missing).collect()
    }

    pub(crate) async fn load(&self, ids: &[WorkflowId]) -> Result<Vec<Option<Stored>>, StoreError> {
        // What was written to a store that was replaced is not found by its other servers.
        self.must_fit()?;
        let together = self.load_together(ids).await;
        let missing = |(_, found): &(&WorkflowId, &Option<Stored>)| found.is_none();
        let others: Vec<WorkflowId> = ids
            .iter()
            .zip(&together)
            .filter(missing)
            .map(|(&id, _)| id)
            .collect();
        let mut others = if others.is_empty() {
            Vec::new()
        } else {
            self.load_each(&others).await
        }
        .into_iter();
        let each = together.into_iter().map(|found| match found {
            None => others.next().expect("each of the others was asked for"),
            found => Ok(found),
        });
        each.collect()
    }

    /// The small ones of many of a partition, with one command. Those that are not found are asked for by themselves, which tells why.
    async fn load_together(&self, ids: &[WorkflowId]) -> Vec<Option<Stored>> {
        let mut all: Vec<Option<Stored>> = ids.iter().map(|_| None).collect();
        let mut groups: BTreeMap<Partition, Vec<usize>> = BTreeMap::new();
        let small = (0..ids.len()).filter(|&at| ids[at].is_small());
        small.for_each(|at| groups.entry(ids[at].partition()).or_default().push(at));
        let groups = groups.values().flat_map(|places| places.chunks(TOGETHER));
        let groups: Vec<&[usize]> = groups.filter(|places| places.len() >= MANY).collect();
        if groups.is_empty() {
            return all;
        }
        let mut batch = Batch::new();
        for places in &groups {
            let keys = |part| places.iter().map(move |&at| self.keys.part(ids[at], part));
            let keys: Vec<String> = keys(Part::Small).chain(keys(Part::Graph)).collect();
            let keys: Vec<Arg<'_>> = keys.iter().map(|key| Arg::Key(key.as_bytes())).collect();
            batch.unit().repeatable("MGET", &keys);
        }
        for (places, outcome) in groups.iter().zip(&self.send(batch).await) {
            places
                .iter()
                .zip(found_together(outcome))
                .for_each(|(&at, found)| all[at] = found);
        }
        all
    }

    async fn load_each(&self, ids: &[WorkflowId]) -> Vec<Result<Option<Stored>, StoreError>> {
        let asked: Vec<_> = ids.iter().map(|&id| (id, state_of(id))).collect();
        let mut found = self.load_as(&asked).await;
        let again = Self::by_chance(ids, &found);
        if !again.is_empty() {
            let asked: Vec<_> = again.iter().map(|&at| (ids[at], Part::State)).collect();
            again
                .into_iter()
                .zip(self.load_as(&asked).await)
                .for_each(|(at, loaded)| found[at] = loaded);
        }
        found
    }

    async fn load_as(
        &self,
        asked: &[(WorkflowId, Part)],
    ) -> Vec<Result<Option<Stored>, StoreError>> {
        let mut batch = Batch::new();
        let states: Vec<(String, Part)> = asked
            .iter()
            .map(|&(id, part)| (self.keys.part(id, part), part))
            .collect();
        for (&(id, _), (state, part)) in asked.iter().zip(&states) {
            // A graph is there whenever the state is. So the state is asked for first: if only that was found, the workflow was
            // deleted in between.
            let graph = self.keys.part(id, Part::Graph);
            let unit = match part {
                Part::Small => batch
                    .unit()
                    .repeatable("GET", &[Arg::Key(state.as_bytes())]),
                _ => ask(batch.unit(), state),
            };
            unit.repeatable("GET", &[Arg::Key(graph.as_bytes())]);
        }
        let outcomes = self.send(batch).await;
        let (mut rest, mut all) = (&outcomes[..], Vec::with_capacity(asked.len()));
        for state in &states {
            let (these, others) = rest.split_at(if state.1 == Part::Small { 2 } else { 3 });
            all.push(self.loaded(state, these).await);
            rest = others;
        }
        all
    }

    /// A workflow, from what was asked of its state and its graph.
    async fn loaded(
        &self,
        (key, part): &(String, Part),
        replies: &[Outcome],
    ) -> Result<Option<Stored>, StoreError> {
        let (graph, state) = replies.split_last().expect("its graph is asked for");
        let graph = reply::bytes(stored(graph, key)?)?;
        let state = match part {
            Part::Small => reply::small(stored(&state[0], key)?)?,
            _ => self.state(key, state).await?,
        };
        Ok(state.zip(graph).map(|(state, graph)| Stored {
            graph: graph.to_vec(),
            state,
        }))
    }

    pub(crate) async fn graph(&self, id: WorkflowId) -> Result<Option<Vec<u8>>, StoreError> {
        let key = self.keys.part(id, Part::Graph);
        let mut batch = Batch::new();
        batch.unit().repeatable("GET", &[Arg::Key(key.as_bytes())]);
        let outcomes = self.send(batch).await;
        Ok(reply::bytes(stored(&outcomes[0], &key)?)?.map(|graph| graph.to_vec()))
    }

    /// Of small workflows the most that it can be, which nobody is asked for.
    pub(crate) async fn sizes(&self, ids: &[WorkflowId]) -> Result<Vec<u64>, StoreError> {
        let mut batch = Batch::new();
        for &id in ids.iter().filter(|id| !id.is_small()) {
            batch.unit().repeatable(
                "STRLEN",
                &[Arg::Key(self.keys.part(id, Part::Graph).as_bytes())],
            );
        }
        let outcomes = if batch.is_empty() {
            Vec::new()
        } else {
            self.send(batch).await
        };
        let mut asked = outcomes
            .iter()
            .map(|outcome| reply::count(stored(outcome, "a graph")?));
        let size = |id: &WorkflowId| match id.is_small() {
            true => Ok(small::GRAPH as u64),
            false => asked.next().expect("all others were asked for"),
        };
        ids.iter().map(size).collect()
    }

    pub(crate) async fn heads(&self, ids: &[WorkflowId]) -> Vec<Result<Option<Head>, StoreError>> {
        let asked: Vec<_> = ids.iter().map(|&id| (id, state_of(id))).collect();
        let mut found = self.heads_as(&asked).await;
        let again = Self::by_chance(ids, &found);
        if !again.is_empty() {
            let asked: Vec<_> = again.iter().map(|&at| (ids[at], Part::State)).collect();
            again
                .into_iter()
                .zip(self.heads_as(&asked).await)
                .for_each(|(at, head)| found[at] = head);
        }
        found
    }

    async fn heads_as(
        &self,
        asked: &[(WorkflowId, Part)],
    ) -> Vec<Result<Option<Head>, StoreError>> {
        let mut batch = Batch::new();
        for &(id, part) in asked {
            let key = self.keys.part(id, part);
            let key = Arg::Key(key.as_bytes());
            if part == Part::Small {
                batch.unit().repeatable("GET", &[key]);
            } else {
                let fields = [META].into_iter().chain(LABEL).map(Arg::Bytes);
                let args: Vec<Arg<'_>> = [key].into_iter().chain(fields).collect();
                batch.unit().repeatable("HMGET", &args);
            }
        }
        let head = |((_, part), outcome): (&(WorkflowId, Part), &Outcome)| match part {
            Part::Small => reply::small_head(answer(outcome)?),
            _ => reply::head(answer(outcome)?),
        };
        asked
            .iter()
            .zip(&self.send(batch).await)
            .map(head)
            .collect()
    }

    pub(crate) async fn results(
        &self,
        wanted: &[(WorkflowId, Vec<ResultField>)],
    ) -> Result<Vec<Vec<Option<Bytes>>>, StoreError> {
        let mut batch = Batch::new();
        for (id, fields) in wanted.iter().filter(|(_, fields)| !fields.is_empty()) {
            let key = self.keys.part(*id, Part::Results);
            let fields: Vec<String> = fields
                .iter()
                .map(|&field| keys::result_field(field))
                .collect();
            let fields = fields.iter().map(|field| Arg::Bytes(field.as_bytes()));
            let args: Vec<Arg<'_>> = [Arg::Key(key.as_bytes())]
                .into_iter()
                .chain(fields)
                .collect();
            batch.unit().repeatable("HMGET", &args);
        }
        let outcomes = self.send(batch).await;
        let mut outcomes = outcomes.iter();
        let values = |(_, fields): &(WorkflowId, Vec<ResultField>)| {
            // Redis refuses a command without fields.
            if fields.is_empty() {
                return Ok(Vec::new());
            }
            let outcome = outcomes.next().expect("every other one was asked for");
            let values = reply::array(answer(outcome)?)?;
            values
                .into_iter()
                .map(|value| Ok(reply::bytes(value)?.cloned()))
                .collect()
        };
        wanted.iter().map(values).collect()
    }

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
                Between::with(prefix).rows(&mut batch, &key, Order::OldestFirst, limit)
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
        which: Clockwork,
        until: Timestamp,
        limit: usize,
        partitions: &[Partition],
    ) -> Vec<Result<Vec<(WorkflowId, Timestamp)>, StoreError>> {
        let mut batch = Batch::new();
        let until = Arg::Integer(i64::try_from(until.micros()).unwrap_or(i64::MAX));
        for &partition in partitions {
            moments(
                &mut batch,
                &self.keys.set(partition, which.into()),
                (Timestamp::default(), until),
                limit,
            );
        }
        self.send(batch)
            .await
            .iter()
            .map(|outcome| reply::moments(answer(outcome)?))
            .collect()
    }

    pub(crate) async fn page(
        &self,
        spans: &[(Partition, Span)],
        order: Order,
        limit: usize,
    ) -> Vec<Result<Vec<WorkflowId>, StoreError>> {
        let mut batch = Batch::new();
        for (partition, span) in spans {
            Between::of(span).rows(
                &mut batch,
                &self.keys.set(*partition, Set::Index),
                order,
                limit,
            );
        }
        self.send(batch)
            .await
            .iter()
            .map(|outcome| reply::ids(answer(outcome)?))
            .collect()
    }

    pub(crate) async fn count(
        &self,
        spans: &[Span],
        partitions: &[Partition],
    ) -> Vec<Result<Vec<u64>, StoreError>> {
        if spans.is_empty() {
            return vec![Ok(Vec::new()); partitions.len()];
        }
        let mut batch = Batch::new();
        for &partition in partitions {
            let key = self.keys.set(partition, Set::Index);
            spans
                .iter()
                .for_each(|span| Between::of(span).count(&mut batch, &key));
        }
        let outcomes = self.send(batch).await;
        let count = |outcome: &Outcome| reply::count(answer(outcome)?);
        outcomes
            .chunks(spans.len())
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
        let mut found = match prefixes.len() {
            0..=FEW => vec![Ok(None); partitions.len()],
            _ => self.few_ready(prefixes, partitions).await,
        };
        let (places, asked): (Vec<usize>, Vec<Partition>) = partitions
            .iter()
            .copied()
            .enumerate()
            .filter(|(at, _)| matches!(found[*at], Ok(None)))
            .unzip();
        for (at, depths) in places
            .into_iter()
            .zip(self.many_ready(prefixes, &asked).await)
        {
            found[at] = depths.map(Some);
        }
        found
            .into_iter()
            .map(|depths| depths.map(Option::unwrap_or_default))
            .collect()
    }

    /// The depths in partitions that have few rows between the first of the prefixes and the last: these are read. None: there are many.
    async fn few_ready(
        &self,
        prefixes: &[Row],
        partitions: &[Partition],
    ) -> Vec<Result<Option<Vec<Depth>>, StoreError>> {
        let places: HashMap<&[u8], usize> = prefixes.iter().map(Vec::as_slice).zip(0..).collect();
        let (Some(first), Some(last)) = (prefixes.iter().min(), prefixes.iter().max()) else {
            return Vec::new();
        };
        let between = Between {
            from: Between::with(first).from,
            to: Between::with(last).to,
        };
        let mut batch = Batch::new();
        for &partition in partitions {
            between.rows(
                &mut batch,
                &self.keys.set(partition, Set::Ready),
                Order::OldestFirst,
                prefixes.len(),
            );
        }
        let depths = |outcome: &Outcome| {
            let rows = reply::strings(answer(outcome)?)?;
            if rows.len() >= prefixes.len() {
                return Ok(None);
            }
            let mut depths: Vec<Depth> = vec![(0, None); prefixes.len()];
            for row in rows {
                let queue = row
                    .iter()
                    .position(|&byte| byte == 0)
                    .map_or(&row[..], |zero| &row[..=zero]);
                for &place in [queue, lane_of(&row)]
                    .into_iter()
                    .filter_map(|prefix| places.get(prefix))
                {
                    let (number, first) = &mut depths[place];
                    *number += 1;
                    first.get_or_insert_with(|| row.clone());
                }
            }
            Ok(Some(depths))
        };
        self.send(batch).await.iter().map(depths).collect()
    }

    async fn many_ready(
        &self,
        prefixes: &[Row],
        partitions: &[Partition],
    ) -> Vec<Result<Vec<Depth>, StoreError>> {
        let mut batch = Batch::new();
        for &partition in partitions {
            let key = self.keys.set(partition, Set::Ready);
            for rows in prefixes.iter().map(|prefix| Between::with(prefix)) {
                rows.count(&mut batch, &key);
                rows.rows(&mut batch, &key, Order::OldestFirst, 1);
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

    pub(crate) async fn keyed(
        &self,
        partition: Partition,
        key: &str,
    ) -> Result<Option<WorkflowId>, StoreError> {
        let key = self.keys.idempotency(partition, key);
        let mut batch = Batch::new();
        batch.unit().repeatable("GET", &[Arg::Key(key.as_bytes())]);
        let outcomes = self.send(batch).await;
        reply::bytes(answer(&outcomes[0])?)?
            .map(|id| reply::id(id))
            .transpose()
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
        Between::behind(after).rows(
            &mut batch,
            &self.keys.set(partition, set),
            Order::OldestFirst,
            limit,
        );
        reply::strings(answer(&self.send(batch).await[0])?)
    }

    pub(crate) async fn states(
        &self,
        partition: Partition,
        from: u64,
    ) -> Result<Option<(u64, Vec<WorkflowId>)>, StoreError> {
        // A bound of what Redis does at once, not of what it finds.
        const PIECE: i64 = 1_000;
        let (from, pattern) = (from.to_string(), self.keys.states(partition));
        let scan = [from.as_bytes(), b"MATCH", pattern.as_bytes(), b"COUNT"].map(Arg::Bytes);
        let mut batch = Batch::new();
        // The key only selects the node.
        let key = self.keys.set(partition, Set::Index);
        batch
            .unit()
            .repeatable("EXISTS", &[Arg::Key(key.as_bytes())])
            .repeatable("SCAN", &[&scan[..], &[Arg::Integer(PIECE)]].concat());
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
        which: Clockwork,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Row>, StoreError> {
        let key = self.keys.set(partition, which.into());
        let from = after
            .and_then(read_due_row)
            .map_or(Timestamp::default(), |(at, _)| at);
        let mut asked = limit;
        loop {
            let mut batch = Batch::new();
            moments(&mut batch, &key, (from, Arg::Bytes(b"+inf")), asked);
            let found = reply::moments(answer(&self.send(batch).await[0])?)?;
            let all = found.len() < asked;
            let rows = found.into_iter().map(|(id, at)| due_row(at, id));
            let rows: Vec<Row> = rows
                .filter(|row| after.is_none_or(|after| row.as_slice() > after))
                .take(limit)
                .collect();
            // Rows with the same time that were read before come again. There may be so many that no others fit.
            if all || !rows.is_empty() || limit == 0 {
                return Ok(rows);
            }
            asked *= 2;
        }
    }

    /// The clock of the node that has partition 0.
    pub(crate) async fn time(&self) -> Result<Timestamp, StoreError> {
        let key = self.keys.set(Partition(0), Set::Timers);
        let mut batch = Batch::new();
        // The key only selects the node.
        batch
            .unit()
            .repeatable("EXISTS", &[Arg::Key(key.as_bytes())])
            .repeatable("TIME", &[]);
        reply::time(answer(&self.send(batch).await[1])?)
    }
}
