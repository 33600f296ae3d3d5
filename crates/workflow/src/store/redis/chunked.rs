//! Large changes in pieces, so that no call keeps Redis from others for long. The jobs of a large change are staged under a key of their own,
//! which nobody reads; the call that compares versions puts that key in the place of the state. Ready rows follow in pieces. Until they are
//! there the state says so, and the workflow has a timer: if the server dies, whoever sees to the timer writes the rows.

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

/// Changes of more jobs or rows than this are cut: at 4 us for a job and a row, others wait for 16 ms at most.
pub(crate) const LARGE: usize = 4_096;
/// Arguments of a piece: some 2 ms of Redis.
const PIECE: usize = 2_048;
/// Pieces that are sent together: they wait for one server, and what may wait there is bounded.
const TOGETHER: usize = 16;
/// How long a state stays staged whose server died. A write takes far less.
const STAGED: Duration = Duration::from_secs(600);
/// Adds to a staged state. Redis does not compile a text again that it knows, and beside a piece it is short.
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
    /// Writes changes of which some are large, one after the other.
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
            // Those before this one were written.
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
        // Rows that are added later are guarded by a mark of the state, which there is only when all of them follow.
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
            // Whether rows must follow is not known, so all are written again if it was done.
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

    /// Writes all of a change but what was staged, and of the ready rows these.
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
            // Where none are staged there are few: only rows are many.
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

    /// Puts all fields of a state that is written as a whole under the key that only this write names.
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
        // The first one alone: the others add only to what is there.
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

    /// Removes a state that is not to take its place. If that fails, it expires.
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

    /// Writes the rows of a state that is written, and then that they are there.
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
            // This server was away for so long that another one has seen to the rows.
            return Ok(());
        }
        if let Some(mark) = &mark {
            let mut batch = Batch::new();
            batch.unit().repeatable(
                "HDEL",
                &[Arg::Key(state.as_bytes()), Arg::Bytes(mark.as_bytes())],
            );
            // If the mark stays, rows that are there are written again.
            let _told = self.send(batch).await;
        }
        Ok(())
    }

    /// Adds ready rows as long as the state has `mark`, and removes others. Returns whether it had the mark to the end.
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
            // When all rows are there, others may come for them.
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

/// What became of a piece.
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
