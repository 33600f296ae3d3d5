//! Writes large changes in chunks, so that no call blocks Redis for long. The jobs of a large
//! change are staged under their own key, which no reader knows. The call that compares versions
//! renames that key to the key of the state.
//!
//! Ready rows follow in chunks. Until all are written, the state has a mark and the workflow has a
//! timer. If the server dies, the server that serves the timer writes the rows.

pub(super) mod read;
pub(super) mod trail;
#[cfg(test)]
mod with_redis;

use std::time::{Duration, Instant};

use tidegate_pipeline::{Arg, Batch, Outcome};

use super::call::{self, ScriptCall};
use super::keys::{self, Part, Set};
use super::reply::{answer, count, reason};
use super::{Ran, RedisStore, Written, applied, with_advice};
use crate::codec::change::{Applied, Change, Put, RowChange, Rows, Write};
use crate::id::{Partition, WorkflowId};
use crate::store::change_notice::Notifier;
use crate::store::error::StoreError;

/// Jobs or rows of a change above which it is written in chunks. At 4 us for a job and a row, other
/// calls wait for at most 16 ms.
pub(crate) const LARGE: usize = 4_096;
/// Arguments of a chunk: some 2 ms of Redis.
const PIECE: usize = 2_048;
/// Chunks of one batch. They queue at one server, whose queue is bounded.
const TOGETHER: usize = 16;
/// Time after which a staged state expires if its server died. A write takes far less.
const STAGED: Duration = Duration::from_secs(600);
/// The script that adds to a staged state. Redis caches its compiled form, and its text is short
/// compared to a chunk.
const STAGE: &str = include_str!("chunked/stage.lua");

pub(super) fn is_large(change: &Change) -> bool {
    match &change.write {
        Write::Put(put) => {
            put.whole.is_some() || put.rows == Rows::Follow || put.ready.remove.len() > LARGE
        }
        Write::Delete(_) => false,
    }
}

impl RedisStore {
    /// Writes changes one after the other, because some of them are large.
    pub(super) async fn write_in_pieces(
        &self,
        partition: Partition,
        changes: &[Change],
        announcer: Option<&Notifier>,
    ) -> Result<Written, StoreError> {
        let mut all = Written {
            applied: Vec::with_capacity(changes.len()),
            suspicious: false,
        };
        for change in changes {
            let written = match &change.write {
                Write::Put(put) if is_large(change) => {
                    self.write_large(change, put, announcer).await
                }
                _ => {
                    self.write(partition, std::slice::from_ref(change), announcer)
                        .await
                }
            };
            // Earlier changes of the list are written already.
            let doubt = |error| match error {
                StoreError::Unavailable { reason } if !all.applied.is_empty() => {
                    StoreError::Unknown { reason }
                }
                error => error,
            };
            let written = written.map_err(doubt)?;
            all.applied.extend(written.applied);
            all.suspicious |= written.suspicious;
        }
        Ok(all)
    }

    async fn write_large(
        &self,
        change: &Change,
        put: &Put,
        announcer: Option<&Notifier>,
    ) -> Result<Written, StoreError> {
        self.stage(change.workflow, put).await?;
        let follows = put.rows == Rows::Follow || put.ready.remove.len() > LARGE;
        // Rows that are added later are guarded by a mark of the state, which exists only if all of
        // them follow.
        let add = if put.rows == Rows::Follow {
            Vec::new()
        } else {
            put.ready.add.clone()
        };
        let first = RowChange {
            add,
            remove: Vec::new(),
        };
        let ready = if follows { &first } else { &put.ready };
        match self.take_place(change, put, ready, announcer).await {
            // It is unknown whether the state was written and its rows must follow. After a partial
            // write, all rows are written again.
            Err(StoreError::Unknown { reason }) if follows => Err(StoreError::Torn { reason }),
            Ok(written) if written.applied != [Applied::Done] => {
                self.unstage(change.workflow, put).await;
                Ok(written)
            }
            Ok(written) if follows => {
                self.follow(change, put, announcer).await?;
                Ok(written)
            }
            written => written,
        }
    }

    /// Writes everything of a change except what was staged, with `ready` in place of its ready
    /// rows.
    async fn take_place(
        &self,
        change: &Change,
        put: &Put,
        ready: &RowChange,
        announcer: Option<&Notifier>,
    ) -> Result<Written, StoreError> {
        let short = Put {
            meta: put.meta.clone(),
            birth: put.birth.clone(),
            // If none are staged, there are few jobs: only the rows are many.
            jobs: if put.whole.is_some() {
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
            was: put.was,
            trail: put.trail,
            whole: put.whole.clone(),
            rows: put.rows,
            settled: put.settled.clone(),
        };
        let short = Change {
            workflow: change.workflow,
            expected: change.expected.clone(),
            small: change.small,
            write: Write::Put(Box::new(short)),
        };
        let partition = change.workflow.partition();
        self.write(partition, std::slice::from_ref(&short), announcer)
            .await
    }

    /// Stages all fields of a state that is written as a whole, under a key that only this write
    /// uses.
    async fn stage(&self, id: WorkflowId, put: &Put) -> Result<(), StoreError> {
        let (Some(label), Some(trail)) = (&put.whole, put.trail) else {
            return Ok(());
        };
        let key = self.keys.staged(id, trail.stamp.writer);
        let key = Arg::Key(key.as_bytes());
        let fields = call::state_fields(put);
        let mut args: Vec<Arg<'_>> = keys::label_fields(label)
            .flat_map(|(name, value)| [Arg::Bytes(name), Arg::Bytes(value)])
            .collect();
        args.extend(fields.iter().map(call::ScriptArg::arg));
        // The first chunk is sent alone: later chunks add only to an existing key.
        let (first, others) = args.split_at(PIECE.min(args.len()));
        let parts = std::iter::once(first).chain(others.chunks(PIECE * TOGETHER));
        for (at, part) in parts.enumerate() {
            let mut batch = Batch::new();
            for piece in part.chunks(PIECE) {
                let head = [
                    Arg::Bytes(STAGE.as_bytes()),
                    Arg::Integer(1),
                    key,
                    Arg::Integer(STAGED.as_millis() as i64),
                ];
                let head = head.into_iter().chain([Arg::Integer((at == 0).into())]);
                batch.unit().repeatable(
                    "EVAL",
                    &head.chain(piece.iter().copied()).collect::<Vec<_>>(),
                );
            }
            self.send(batch).await.iter().try_for_each(staged)?;
        }
        Ok(())
    }

    /// Removes a staged state that is not used. If that fails, it expires.
    async fn unstage(&self, id: WorkflowId, put: &Put) {
        if let (Some(_), Some(trail)) = (&put.whole, put.trail) {
            let key = self.keys.staged(id, trail.stamp.writer);
            let mut batch = Batch::new();
            batch
                .unit()
                .repeatable("UNLINK", &[Arg::Key(key.as_bytes())]);
            let _expires = self.send(batch).await;
        }
    }

    /// Writes the rows that follow a state, and then removes the mark of the state.
    async fn follow(
        &self,
        change: &Change,
        put: &Put,
        announcer: Option<&Notifier>,
    ) -> Result<(), StoreError> {
        let state = self.keys.part(change.workflow, Part::State);
        let trail = put.trail.filter(|_| put.rows == Rows::Follow);
        let mark = trail.map(|trail| keys::owing_field(trail.stamp.writer));
        if !self
            .write_rows(change, put, mark.as_deref(), announcer)
            .await?
        {
            // This server was stopped for so long that another one has written the rows.
            return Ok(());
        }
        if let Some(mark) = &mark {
            let mut batch = Batch::new();
            batch.unit().repeatable(
                "HDEL",
                &[Arg::Key(state.as_bytes()), Arg::Bytes(mark.as_bytes())],
            );
            // If the mark remains, the existing rows are written again.
            let _told = self.send(batch).await;
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
        announcer: Option<&Notifier>,
    ) -> Result<bool, StoreError> {
        let partition = change.workflow.partition();
        let state = &self.keys.part(change.workflow, Part::State);
        let scratch = &self.keys.scratch(partition)[0];
        let mut calls = Vec::new();
        if let Some(mark) = mark {
            let pieces = put.ready.add.chunks(PIECE / 2);
            calls
                .extend(pieces.map(|rows| ScriptCall::of_rows(state, mark, Set::Ready, rows, &[])));
        }
        let pieces = put.ready.remove.chunks(PIECE);
        calls.extend(pieces.map(|rows| ScriptCall::of_rows(scratch, "", Set::Ready, &[], rows)));
        if let (Some(announcer), Some(last)) = (announcer, calls.last_mut()) {
            // Other servers are notified with the last rows, when all are there.
            let changes = std::slice::from_ref(change);
            let calls = std::slice::from_mut(last);
            self.announce(partition, changes, announcer, calls);
        }
        let sets = Set::ALL.map(|set| self.keys.set(partition, set));
        for some in calls.chunks(TOGETHER) {
            let Ran {
                outcomes, enough, ..
            } = self.run(some, &sets, Instant::now() + self.timeout).await;
            if let Some(failed) = outcomes.iter().find(|outcome| outcome.reply().is_err()) {
                return Err(StoreError::Torn {
                    reason: reason(failed),
                });
            }
            enough?;
            let applied = applied(some, &outcomes)?;
            if applied.iter().any(|applied| *applied != Applied::Done) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Whether a chunk was staged.
fn staged(outcome: &Outcome) -> Result<(), StoreError> {
    let there = answer(outcome).map_err(|_| StoreError::Unavailable {
        reason: with_advice(reason(outcome)),
    })?;
    match count(there)? {
        0 => Err(StoreError::Unavailable {
            reason: "a state that is written in pieces took too long".to_owned(),
        }),
        _ => Ok(()),
    }
}
