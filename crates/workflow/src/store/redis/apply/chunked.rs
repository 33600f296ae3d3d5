//! Writes large changes in chunks, so that no call blocks Redis for long. The jobs of a large
//! change are staged under their own key, which no reader knows. The call that compares versions
//! renames that key to the key of the state.
//!
//! Ready rows follow in chunks. Until all are written, the state has a mark and the workflow has a
//! timer. If the server dies, the server that serves the timer writes the rows.

pub(crate) mod read;
pub(crate) mod trail;
#[cfg(test)]
mod with_redis;

use std::time::{Duration, Instant};

use tidegate_pipeline::{Arg, Batch, Outcome};

use super::ScriptCall;
use crate::codec::{Applied, Change, Put, RowChange, RowTiming, StoreError, Write};
use crate::model::{Partition, WorkflowId};
use crate::store::Notifier;
use crate::store::redis::keys::{self, Set, WorkflowKey};
use crate::store::redis::read::reply::{answer, count, reason};
use crate::store::redis::{
    RedisStore, WriteOutcome, applied, apply, key_arg, text_arg, with_advice,
};

/// Jobs or rows of a change above which it is written in chunks. At 4 us for a job and a row, other
/// calls wait for at most 16 ms.
pub(crate) const MAX_INLINE: usize = 4_096;
/// Arguments of a chunk: some 2 ms of Redis.
const CHUNK_ARGUMENTS: usize = 2_048;
/// Chunks of one batch. They queue at one server, whose queue is bounded.
const BATCH_CHUNKS: usize = 16;
/// Time after which a staged state expires if its server died. A write takes far less.
const STAGED_TTL: Duration = Duration::from_secs(600);
/// The script that adds to a staged state. Redis caches its compiled form, and its text is short
/// compared to a chunk.
const STAGE_SCRIPT: &str = include_str!("chunked/stage.lua");

pub(crate) fn is_large(change: &Change) -> bool {
    match &change.write {
        Write::Put(put) => {
            put.rewrite_label.is_some()
                || put.row_timing == RowTiming::AfterState
                || put.ready.remove.len() > MAX_INLINE
        }
        Write::Delete(_) => false,
    }
}

impl RedisStore {
    /// Writes changes one after the other, because some of them are large.
    pub(crate) async fn write_chunked(
        &self,
        partition: Partition,
        changes: &[Change],
        notifier: Option<&Notifier>,
    ) -> Result<WriteOutcome, StoreError> {
        let mut all = WriteOutcome {
            applied: Vec::with_capacity(changes.len()),
            may_have_lost_data: false,
        };
        for change in changes {
            let written = match &change.write {
                Write::Put(put) if is_large(change) => {
                    self.write_large(change, put, notifier).await
                }
                _ => {
                    self.write(partition, std::slice::from_ref(change), notifier)
                        .await
                }
            };
            // Earlier changes of the list are written already.
            let to_unknown = |error| match error {
                StoreError::Unavailable { reason } if !all.applied.is_empty() => {
                    StoreError::unknown(reason)
                }
                error => error,
            };
            let written = written.map_err(to_unknown)?;
            all.applied.extend(written.applied);
            all.may_have_lost_data |= written.may_have_lost_data;
        }
        Ok(all)
    }

    async fn write_large(
        &self,
        change: &Change,
        put: &Put,
        notifier: Option<&Notifier>,
    ) -> Result<WriteOutcome, StoreError> {
        self.stage(change.workflow, put).await?;
        let follows =
            put.row_timing == RowTiming::AfterState || put.ready.remove.len() > MAX_INLINE;
        // Rows that are added later are guarded by a mark of the state, which exists only if all of
        // them follow.
        let add = if put.row_timing == RowTiming::AfterState {
            Vec::new()
        } else {
            put.ready.add.clone()
        };
        let first = RowChange {
            add,
            remove: Vec::new(),
        };
        let ready = if follows { &first } else { &put.ready };
        match self.write_unstaged(change, put, ready, notifier).await {
            // It is unknown whether the state was written and its rows must follow. After a partial
            // write, all rows are written again.
            Err(StoreError::Unknown { reason }) if follows => {
                Err(StoreError::PartialWrite { reason })
            }
            Ok(written) if written.applied != [Applied::Done] => {
                self.unstage(change.workflow, put).await;
                Ok(written)
            }
            Ok(written) if follows => {
                self.write_following_rows(change, put, notifier).await?;
                Ok(written)
            }
            written => written,
        }
    }

    /// Writes everything of a change except what was staged, with `ready` in place of its ready
    /// rows.
    async fn write_unstaged(
        &self,
        change: &Change,
        put: &Put,
        ready: &RowChange,
        notifier: Option<&Notifier>,
    ) -> Result<WriteOutcome, StoreError> {
        let short = Put {
            meta: put.meta.clone(),
            creation: put.creation.clone(),
            // If none are staged, there are few jobs: only the rows are many.
            jobs: if put.rewrite_label.is_some() {
                Vec::new()
            } else {
                put.jobs.clone()
            },
            results: put.results.clone(),
            dropped_results: put.dropped_results.clone(),
            ready: ready.clone(),
            index: put.index.clone(),
            timer: put.timer,
            expiry: put.expiry,
            stored_times: put.stored_times,
            trail: put.trail,
            rewrite_label: put.rewrite_label.clone(),
            row_timing: put.row_timing,
            completed_row_writers: put.completed_row_writers.clone(),
        };
        let short = Change {
            workflow: change.workflow,
            expected: change.expected.clone(),
            small: change.small,
            write: Write::Put(Box::new(short)),
        };
        let partition = change.workflow.partition();
        self.write(partition, std::slice::from_ref(&short), notifier)
            .await
    }

    /// Stages all fields of a state that is written as a whole, under a key that only this write
    /// uses.
    async fn stage(&self, id: WorkflowId, put: &Put) -> Result<(), StoreError> {
        let (Some(label), Some(trail)) = (&put.rewrite_label, put.trail) else {
            return Ok(());
        };
        let key = self.keys.staged(id, trail.stamp.writer);
        let key = key_arg(&key);
        let fields = apply::state_fields(put);
        let mut args: Vec<Arg<'_>> = keys::label_fields(label)
            .flat_map(|(name, value)| [Arg::Bytes(name), Arg::Bytes(value)])
            .collect();
        args.extend(fields.iter().map(apply::ScriptArg::arg));
        // The first chunk is sent alone: later chunks add only to an existing key.
        let (first, others) = args.split_at(CHUNK_ARGUMENTS.min(args.len()));
        let parts = std::iter::once(first).chain(others.chunks(CHUNK_ARGUMENTS * BATCH_CHUNKS));
        for (at, part) in parts.enumerate() {
            let mut batch = Batch::new();
            for chunk in part.chunks(CHUNK_ARGUMENTS) {
                let head = [
                    text_arg(STAGE_SCRIPT),
                    Arg::Integer(1),
                    key,
                    Arg::Integer(STAGED_TTL.as_millis() as i64),
                ];
                let head = head.into_iter().chain([Arg::Integer((at == 0).into())]);
                batch.unit().repeatable(
                    "EVAL",
                    &head.chain(chunk.iter().copied()).collect::<Vec<_>>(),
                );
            }
            self.send(batch).await.iter().try_for_each(check_staged)?;
        }
        Ok(())
    }

    /// Removes a staged state that is not used. If that fails, it expires.
    async fn unstage(&self, id: WorkflowId, put: &Put) {
        if let (Some(_), Some(trail)) = (&put.rewrite_label, put.trail) {
            let key = self.keys.staged(id, trail.stamp.writer);
            let _expires = self.command("UNLINK", &[key_arg(&key)]).await;
        }
    }

    /// Writes the rows that follow a state, and then removes the mark of the state.
    async fn write_following_rows(
        &self,
        change: &Change,
        put: &Put,
        notifier: Option<&Notifier>,
    ) -> Result<(), StoreError> {
        let state = self.keys.workflow_key(change.workflow, WorkflowKey::State);
        let trail = put
            .trail
            .filter(|_| put.row_timing == RowTiming::AfterState);
        let mark = trail.map(|trail| keys::missing_rows_field(trail.stamp.writer));
        if !self
            .write_rows(change, put, mark.as_deref(), notifier)
            .await?
        {
            // This server was stopped for so long that another one has written the rows.
            return Ok(());
        }
        if let Some(mark) = &mark {
            let args = [key_arg(&state), text_arg(mark)];
            // If the mark remains, the existing rows are written again.
            let _reply = self.command("HDEL", &args).await;
        }
        Ok(())
    }

    /// Adds ready rows while the state has `mark`, and removes others. Returns whether the state
    /// had the mark to the end.
    async fn write_rows(
        &self,
        change: &Change,
        put: &Put,
        mark: Option<&str>,
        notifier: Option<&Notifier>,
    ) -> Result<bool, StoreError> {
        let partition = change.workflow.partition();
        let state = &self.keys.workflow_key(change.workflow, WorkflowKey::State);
        let scratch = &self.keys.scratch(partition)[0];
        let mut calls = Vec::new();
        if let Some(mark) = mark {
            let chunks = put.ready.add.chunks(CHUNK_ARGUMENTS / 2);
            calls.extend(
                chunks.map(|rows| ScriptCall::for_rows(state, mark, Set::Ready, rows, &[])),
            );
        }
        let chunks = put.ready.remove.chunks(CHUNK_ARGUMENTS);
        calls.extend(chunks.map(|rows| ScriptCall::for_rows(scratch, "", Set::Ready, &[], rows)));
        if let (Some(notifier), Some(last)) = (notifier, calls.last_mut()) {
            // Other servers are notified with the last rows, when all are there.
            let changes = std::slice::from_ref(change);
            let calls = std::slice::from_mut(last);
            self.announce(partition, changes, notifier, calls);
        }
        let sets = Set::ALL.map(|set| self.keys.set(partition, set));
        for batch in calls.chunks(BATCH_CHUNKS) {
            let run = self.run(batch, &sets, Instant::now() + self.timeout).await;
            if let Some(failed) = run.outcomes.iter().find(|outcome| outcome.reply().is_err()) {
                return Err(StoreError::PartialWrite {
                    reason: reason(failed),
                });
            }
            run.replicated?;
            let applied = applied(batch, &run.outcomes)?;
            if applied.iter().any(|applied| *applied != Applied::Done) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Whether a chunk was staged.
fn check_staged(outcome: &Outcome) -> Result<(), StoreError> {
    let there =
        answer(outcome).map_err(|_| StoreError::unavailable(with_advice(reason(outcome))))?;
    match count(there)? {
        0 => Err(StoreError::unavailable(
            "a state that is written in pieces took too long",
        )),
        _ => Ok(()),
    }
}
