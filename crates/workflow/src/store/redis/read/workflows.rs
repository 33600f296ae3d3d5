//! Reads workflows: their states, excerpts of these, graphs and results.

use std::collections::BTreeMap;

use bytes::Bytes;
use tidegate_pipeline::{Arg, Batch, Outcome, Reply};

use super::reply::{self, answer, stored};
use super::state_of;
use crate::codec::{ResultField, StoreError, Stored, StoredState, compact_state};
use crate::model::{JobIndex, Partition, WorkflowId};
use crate::store::EncodedSummary;
use crate::store::redis::apply::chunked::read::query;
use crate::store::redis::keys::{self, LABEL, META, WorkflowKey};
use crate::store::redis::{RedisStore, key_arg, text_arg};

/// Small workflows of a partition from which on one MGET reads them, because it costs less than a
/// command for each.
const MIN_BATCH: usize = 4;
/// The largest number of workflows in one MGET: 4 MiB, and some milliseconds of Redis.
const MAX_BATCH: usize = 256;

/// Decodes small workflows that were read with one MGET: their states, then their graphs.
fn decode_batch(outcome: &Outcome) -> Vec<Option<Stored>> {
    let Ok(values) = answer(outcome).and_then(reply::array) else {
        return Vec::new();
    };
    let (states, graphs) = values.split_at(values.len() / 2);
    let stored = |(state, graph): (&&Reply, &&Reply)| {
        let state = reply::small(state).ok()??;
        let graph = reply::bytes(graph).ok()??;
        Some(Stored {
            graph: graph.to_vec(),
            state,
        })
    };
    states.iter().zip(graphs).map(stored).collect()
}

impl RedisStore {
    pub(crate) async fn load(&self, ids: &[WorkflowId]) -> Result<Vec<Option<Stored>>, StoreError> {
        // If another server has created the store anew with other partitions, both use different
        // keys.
        self.ensure_compatible()?;
        let mut all = self.load_batches(ids).await;
        let missing: Vec<usize> = (0..ids.len()).filter(|&at| all[at].is_none()).collect();
        if !missing.is_empty() {
            let others: Vec<WorkflowId> = missing.iter().map(|&at| ids[at]).collect();
            for (at, found) in missing.into_iter().zip(self.load_each(&others).await) {
                all[at] = found?;
            }
        }
        Ok(all)
    }

    /// Reads small workflows of one partition with one MGET if there are several. Those that are
    /// not found are read again one by one, which shows the reason.
    async fn load_batches(&self, ids: &[WorkflowId]) -> Vec<Option<Stored>> {
        let mut all: Vec<Option<Stored>> = ids.iter().map(|_| None).collect();
        let groups = small_by_partition(ids);
        let groups = groups.values().flat_map(|places| places.chunks(MAX_BATCH));
        let groups: Vec<&[usize]> = groups.filter(|places| places.len() >= MIN_BATCH).collect();
        if groups.is_empty() {
            return all;
        }
        let mut batch = Batch::new();
        for places in &groups {
            let keys = |part| {
                places
                    .iter()
                    .map(move |&at| self.keys.workflow_key(ids[at], part))
            };
            let keys: Vec<String> = keys(WorkflowKey::Small)
                .chain(keys(WorkflowKey::Graph))
                .collect();
            let keys: Vec<Arg<'_>> = keys.iter().map(|key| key_arg(key)).collect();
            batch.unit().repeatable("MGET", &keys);
        }
        for (places, outcome) in groups.iter().zip(&self.send(batch).await) {
            places
                .iter()
                .zip(decode_batch(outcome))
                .for_each(|(&at, found)| all[at] = found);
        }
        all
    }

    async fn load_each(&self, ids: &[WorkflowId]) -> Vec<Result<Option<Stored>, StoreError>> {
        let mut batch = Batch::new();
        let states: Vec<String> = ids
            .iter()
            .map(|&id| self.keys.workflow_key(id, state_of(id)))
            .collect();
        for (&id, state) in ids.iter().zip(&states) {
            // A graph exists whenever the state does. So the state is read first: a state without a
            // graph means that the workflow was deleted in between.
            let graph = self.keys.workflow_key(id, WorkflowKey::Graph);
            let unit = if id.is_small() {
                batch.unit().repeatable("GET", &[key_arg(state)])
            } else {
                query(batch.unit(), state)
            };
            unit.repeatable("GET", &[key_arg(&graph)]);
        }
        let outcomes = self.send(batch).await;
        let mut rest = &outcomes[..];
        let mut all = Vec::with_capacity(ids.len());
        for (id, key) in ids.iter().zip(&states) {
            let (these, others) = rest.split_at(if id.is_small() { 2 } else { 3 });
            all.push(self.workflow_from_replies(*id, key, these).await);
            rest = others;
        }
        all
    }

    /// A workflow, from the replies for its state at `key` and its graph.
    async fn workflow_from_replies(
        &self,
        id: WorkflowId,
        key: &str,
        replies: &[Outcome],
    ) -> Result<Option<Stored>, StoreError> {
        let (graph, state) = replies.split_last().expect("its graph is asked for");
        let graph = reply::bytes(stored(graph, key)?)?;
        let state = if id.is_small() {
            reply::small(stored(&state[0], key)?)?
        } else {
            self.state_from_replies(key, state).await?
        };
        Ok(state.zip(graph).map(|(state, graph)| Stored {
            graph: graph.to_vec(),
            state,
        }))
    }

    /// Reads metas and the records of some jobs, with one round trip to each node.
    pub(crate) async fn excerpts(
        &self,
        wanted: &[(WorkflowId, Vec<JobIndex>)],
    ) -> Vec<Result<Option<StoredState>, StoreError>> {
        let mut batch = Batch::new();
        let keys: Vec<String> = wanted
            .iter()
            .map(|&(id, _)| self.keys.workflow_key(id, state_of(id)))
            .collect();
        for ((id, jobs), key) in wanted.iter().zip(&keys) {
            let key = key_arg(key);
            if id.is_small() {
                batch.unit().repeatable("GET", &[key]);
            } else {
                let mut args = vec![key, Arg::Bytes(META)];
                args.extend(jobs.iter().map(|job| Arg::Integer(job.0.into())));
                batch.unit().repeatable("HMGET", &args);
            }
        }
        let outcomes = self.send(batch).await;
        let excerpt = |at: usize| {
            let (id, jobs) = &wanted[at];
            let found = stored(&outcomes[at], &keys[at])?;
            if id.is_small() {
                reply::small(found)
            } else {
                reply::excerpt(found, jobs)
            }
        };
        (0..wanted.len()).map(excerpt).collect()
    }

    pub(crate) async fn graphs(
        &self,
        ids: &[WorkflowId],
    ) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let mut batch = Batch::new();
        let graph_key = |&id: &WorkflowId| self.keys.workflow_key(id, WorkflowKey::Graph);
        let keys: Vec<String> = ids.iter().map(graph_key).collect();
        for key in &keys {
            batch.unit().repeatable("GET", &[key_arg(key)]);
        }
        let outcomes = self.send(batch).await;
        let graph = |(key, outcome): (&String, &Outcome)| {
            Ok(reply::bytes(stored(outcome, key)?)?.map(|graph| graph.to_vec()))
        };
        keys.iter().zip(&outcomes).map(graph).collect()
    }

    /// The sizes of graphs. A small workflow counts with the largest possible size, which needs no
    /// read.
    pub(crate) async fn sizes(&self, ids: &[WorkflowId]) -> Result<Vec<u64>, StoreError> {
        let mut batch = Batch::new();
        for &id in ids.iter().filter(|id| !id.is_small()) {
            let key = self.keys.workflow_key(id, WorkflowKey::Graph);
            batch.unit().repeatable("STRLEN", &[key_arg(&key)]);
        }
        let outcomes = self.send(batch).await;
        let mut replies = outcomes.iter();
        let size = |id: &WorkflowId| {
            if id.is_small() {
                return Ok(compact_state::MAX_GRAPH_BYTES as u64);
            }
            let outcome = replies.next().expect("all others were asked for");
            reply::count(stored(outcome, "a graph")?)
        };
        ids.iter().map(size).collect()
    }

    pub(crate) async fn summaries(
        &self,
        ids: &[WorkflowId],
    ) -> Vec<Result<Option<EncodedSummary>, StoreError>> {
        let mut batch = Batch::new();
        for &id in ids {
            let key = self.keys.workflow_key(id, state_of(id));
            let key = key_arg(&key);
            if id.is_small() {
                batch.unit().repeatable("GET", &[key]);
            } else {
                let mut args = vec![key, Arg::Bytes(META)];
                args.extend(LABEL.map(Arg::Bytes));
                batch.unit().repeatable("HMGET", &args);
            }
        }
        let outcomes = self.send(batch).await;
        let head = |(id, outcome): (&WorkflowId, &Outcome)| {
            if id.is_small() {
                reply::small_summary(answer(outcome)?)
            } else {
                reply::summary(answer(outcome)?)
            }
        };
        ids.iter().zip(&outcomes).map(head).collect()
    }

    pub(crate) async fn results(
        &self,
        wanted: &[(WorkflowId, Vec<ResultField>)],
    ) -> Result<Vec<Vec<Option<Bytes>>>, StoreError> {
        let mut batch = Batch::new();
        for (id, fields) in wanted.iter().filter(|(_, fields)| !fields.is_empty()) {
            let key = self.keys.workflow_key(*id, WorkflowKey::Results);
            let fields: Vec<String> = fields
                .iter()
                .map(|&field| keys::result_field(field))
                .collect();
            let mut args = vec![key_arg(&key)];
            args.extend(fields.iter().map(|field| text_arg(field)));
            batch.unit().repeatable("HMGET", &args);
        }
        let outcomes = self.send(batch).await;
        let mut outcomes = outcomes.iter();
        let values = |(_, fields): &(WorkflowId, Vec<ResultField>)| {
            // Redis refuses HMGET without fields.
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

    pub(crate) async fn workflow_by_key(
        &self,
        partition: Partition,
        key: &str,
    ) -> Result<Option<WorkflowId>, StoreError> {
        let key = self.keys.idempotency(partition, key);
        let found = self.command("GET", &[key_arg(&key)]).await;
        reply::bytes(answer(&found)?)?
            .map(|id| reply::id(id))
            .transpose()
    }
}

/// The positions of the small workflows of each partition.
fn small_by_partition(ids: &[WorkflowId]) -> BTreeMap<Partition, Vec<usize>> {
    let mut groups: BTreeMap<Partition, Vec<usize>> = BTreeMap::new();
    let small = (0..ids.len()).filter(|&at| ids[at].is_small());
    small.for_each(|at| groups.entry(ids[at].partition()).or_default().push(at));
    groups
}
