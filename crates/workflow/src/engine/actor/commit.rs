//! A group commit applies requests of many callers to states. It writes what changed with one call
//! of the store, and deletes workflows with another one before.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::apply::Player;
use super::assign::Assignment;
use super::batch::{StateSource, WorkflowBatch};
use super::cache::StateCache;
use super::ended::tell;
use super::load::load_missing;
use super::partial_writes::PartialWrites;
use super::request::Request;
use crate::codec::change::{Applied, Change, Put, Write};
use crate::engine::context::Context;
use crate::engine::context::attempt_counts::Ended;
use crate::engine::context::watchers::VersionChange;
use crate::engine::store_health::StoreOperation;
use crate::id::{JobIndex, Partition};
use crate::store::Store;
use crate::store::error::StoreError;
use crate::transition::outcome::Outcome;

/// A group commit of one partition.
pub(super) struct Round<'a> {
    pub(super) player: Player<'a>,
    pub(super) partition: Partition,
    pub(super) states: &'a StateCache,
    pub(super) torn: &'a PartialWrites,
}

/// Result of writing changes.
struct StoreOutcome {
    applied: Vec<Applied>,
    /// Error that refused the changes that are not done, for good.
    refused: Option<StoreError>,
    /// Error that the store returned instead of an answer, although the stored states show what was
    /// written.
    unanswered: Option<StoreError>,
}

/// Batches that change something, and the change of each.
#[derive(Default)]
struct ChangedBatches {
    groups: Vec<WorkflowBatch>,
    changes: Vec<Change>,
}

/// Batches whose requests were applied.
struct Prepared {
    /// Batches whose requests must be applied again.
    retry: Vec<WorkflowBatch>,
    /// Batches that delete their workflows.
    deletes: ChangedBatches,
    /// Batches that change something else.
    updates: ChangedBatches,
    /// Batches that change nothing in the store.
    no_ops: Vec<WorkflowBatch>,
}

impl Round<'_> {
    fn context(&self) -> &Context {
        self.player.context
    }

    /// Applies requests and writes changes. Returns the batches that must be applied again.
    pub(super) async fn commit(&self, mut groups: Vec<WorkflowBatch>) -> Vec<WorkflowBatch> {
        if let Err(error) = load_missing(self.player.store, &self.states.shapes, &mut groups).await
        {
            self.context().troubles.note(
                self.partition,
                StoreOperation::Read,
                Err::<(), _>(&error),
            );
            groups
                .into_iter()
                .for_each(|group| self.fail(group, &error));
            return Vec::new();
        }
        let Prepared {
            retry: mut again,
            deletes: freeing,
            updates: changed,
            no_ops: unchanged,
        } = self.play(groups);
        again.extend(self.finish_unchanged(unchanged).await);
        // Deletes free memory, so they are written first and alone: a full store refuses the rest.
        for (asked, changed) in [
            (StoreOperation::Removal, freeing),
            (StoreOperation::Write, changed),
        ] {
            again.extend(self.write(asked, changed).await);
        }
        again
    }

    /// Writes changes. Returns the batches that must be applied again.
    async fn write(
        &self,
        asked: StoreOperation,
        ChangedBatches {
            groups: changed,
            changes,
        }: ChangedBatches,
    ) -> Vec<WorkflowBatch> {
        if changed.is_empty() {
            return Vec::new();
        }
        let changes: Arc<[Change]> = changes.into();
        let applied = self.apply(&changes).await;
        let outcome = match &applied {
            Ok(StoreOutcome {
                applied,
                refused: None,
                ..
            }) => Ok(applied),
            Ok(StoreOutcome {
                refused: Some(error),
                ..
            })
            | Err(error) => Err(error),
        };
        // A conflict with another version says nothing about the health of the store.
        if outcome.map_or(true, |applied| applied.contains(&Applied::Done)) {
            self.context().troubles.note(self.partition, asked, outcome);
        }
        let mut again = Vec::new();
        match applied {
            Ok(StoreOutcome {
                applied,
                refused,
                unanswered,
            }) => {
                for ((mut group, change), applied) in
                    changed.into_iter().zip(&*changes).zip(applied)
                {
                    match &refused {
                        Some(error) if applied != Applied::Done => self.fail(group, error),
                        _ => {
                            // A refused write does not repair the rows that a partial write left
                            // over.
                            group.strays = group.strays.filter(|_| refused.is_none());
                            group.refused = unanswered.clone().map(Box::new);
                            again.extend(self.on_applied(group, change, applied));
                        }
                    }
                }
            }
            Err(error) => changed
                .into_iter()
                .for_each(|group| self.fail(group, &error)),
        }
        again
    }

    fn play(&self, mut groups: Vec<WorkflowBatch>) -> Prepared {
        // Of workflows that are created in one commit, the most urgent gets the first waiting
        // worker.
        if groups.len() > 1 && self.context().queues.has_waiting_claims() {
            groups.sort_by_cached_key(WorkflowBatch::urgency);
        }
        let changed = ChangedBatches {
            groups: Vec::with_capacity(groups.len()),
            changes: Vec::with_capacity(groups.len()),
        };
        let mut played = Prepared {
            retry: Vec::new(),
            deletes: ChangedBatches::default(),
            updates: changed,
            no_ops: Vec::new(),
        };
        for mut group in groups {
            group.strays = self.torn.orphan_rows(group.id).map(Box::new);
            match group.play(&self.player) {
                Some(change) => {
                    let changed = if is_delete(&change) {
                        &mut played.deletes
                    } else {
                        &mut played.updates
                    };
                    changed.groups.push(group);
                    changed.changes.push(change);
                }
                // The cached state may be outdated. No change, or a refusal, may be wrong for the
                // stored state.
                None if group.basis == StateSource::Cache => {
                    group.must_reload();
                    played.retry.push(group);
                }
                None => played.no_ops.push(group),
            }
        }
        played
    }

    async fn apply(&self, changes: &Arc<[Change]>) -> Result<StoreOutcome, StoreError> {
        let store = self.player.store;
        match store
            .apply_as(
                self.partition,
                changes,
                Some(&self.context().home.announcer),
            )
            .await
        {
            Err(error @ StoreError::Unknown { .. }) => match recover(store, changes).await {
                Ok(applied) if confirm_written(store, self.partition, changes, &applied).await => {
                    Ok(StoreOutcome {
                        applied,
                        refused: None,
                        unanswered: Some(error),
                    })
                }
                _ => Err(error),
            },
            Err(error @ StoreError::Torn { .. }) => {
                changes.iter().for_each(|change| self.torn.note(change));
                let applied = recover(store, changes).await.map_err(|_| error.clone())?;
                if !confirm_written(store, self.partition, changes, &applied).await {
                    return Err(error);
                }
                Ok(StoreOutcome {
                    applied,
                    refused: Some(error),
                    unanswered: None,
                })
            }
            applied => Ok(StoreOutcome {
                applied: applied?,
                refused: None,
                unanswered: None,
            }),
        }
    }

    /// Answers requests that found their work done already. A write that is not acknowledged yet
    /// may have done that work, so it is confirmed first. Returns the batches that must be applied
    /// again.
    async fn finish_unchanged(&self, groups: Vec<WorkflowBatch>) -> Vec<WorkflowBatch> {
        let store = self.player.store;
        let acknowledges = |group: &WorkflowBatch| {
            store.waits_for_replicas() && group.answers.iter().any(Result::is_ok)
        };
        let (acknowledging, others): (Vec<WorkflowBatch>, Vec<WorkflowBatch>) =
            groups.into_iter().partition(acknowledges);
        others
            .into_iter()
            .for_each(|group| self.finish(group, None));
        if acknowledging.is_empty() {
            return Vec::new();
        }
        let states: Vec<_> = acknowledging
            .iter()
            .map(|group| (group.id, group.stored_meta()))
            .collect();
        match store.confirm(self.partition, &states).await {
            Ok(true) => acknowledging
                .into_iter()
                .for_each(|group| self.finish(group, None)),
            Ok(false) => {
                let forgotten = acknowledging.into_iter().map(|mut group| {
                    group.must_reload();
                    group
                });
                return forgotten.collect();
            }
            Err(error) => acknowledging
                .into_iter()
                .for_each(|group| self.fail(group, &error)),
        }
        Vec::new()
    }

    /// Handles the result of one change. Returns the batch if its requests must be applied again.
    fn on_applied(
        &self,
        group: WorkflowBatch,
        change: &Change,
        applied: Applied,
    ) -> Option<WorkflowBatch> {
        match applied {
            Applied::Done => self.finish(group, Some(change)),
            Applied::KeyTaken(taken) => {
                self.states.give_up(group.id);
                group.key_taken(taken);
            }
            Applied::Conflict(state) => return self.retry_on(group, |group| group.rebuild(state)),
            Applied::Behind(later) => return self.retry_on(group, |group| group.catch_up(&later)),
            Applied::Elsewhere => {
                return self.retry_on(group, |group| {
                    group.outdated(change.since());
                    Ok(())
                });
            }
        }
        None
    }

    /// Counts a conflict, and returns the batch with the state that `rebuild` sets.
    fn retry_on(
        &self,
        mut group: WorkflowBatch,
        rebuild: impl FnOnce(&mut WorkflowBatch) -> Result<(), StoreError>,
    ) -> Option<WorkflowBatch> {
        self.context().conflicts.fetch_add(1, Relaxed);
        match rebuild(&mut group) {
            Ok(()) => Some(group),
            Err(error) => {
                self.fail(group, &error);
                None
            }
        }
    }

    /// Counts the reported attempts, and notifies the observer of those that ended.
    fn count(&self, group: &WorkflowBatch) {
        let Some(entry) = &group.entry else { return };
        if let Some(attempts) = &self.context().attempts {
            for (posted, answer) in group.posted.iter().zip(&group.answers) {
                if let Ok(answer) = answer {
                    let request = &posted.request;
                    let at = posted.now;
                    tell(attempts, &entry.workflow, request, at, answer);
                }
            }
        }
        for (posted, answer) in group.posted.iter().zip(&group.answers) {
            if let (Some((job, ended)), Some(took)) = (
                ended(&posted.request),
                answer.as_ref().ok().and_then(|answer| answer.took),
            ) {
                self.context().tally.add_attempt(
                    &entry.workflow.graph.jobs[job.index()].handler,
                    ended,
                    took,
                );
            }
        }
    }

    /// Releases the permits of leases that ended.
    fn free(&self, group: &WorkflowBatch) {
        let ended = group
            .entry
            .as_ref()
            .map_or_else(Vec::new, |entry| entry.workflow.freed());
        if !ended.is_empty() {
            self.player.give_back.release_permits(ended);
        }
    }

    /// Sends the answers, notifies watchers and queues, and caches the state.
    fn finish(&self, mut group: WorkflowBatch, change: Option<&Change>) {
        if let Some(change) = change {
            if group.strays.is_some() {
                self.torn.repaired(group.id);
            }
            publish(self.context(), &group, change);
            self.count(&group);
            self.free(&group);
            if let (Some(entry), Write::Put(put)) = (&mut group.entry, &change.write) {
                entry.workflow.settle_written();
                entry.keep_outputs(&put.results);
                group
                    .answers
                    .iter_mut()
                    .flatten()
                    .for_each(|answer| entry.fill_inputs(&mut answer.leased));
                group
                    .handed
                    .iter_mut()
                    .for_each(|handed| entry.fill_inputs(&mut handed.leased));
            }
        }
        for Assignment { chosen, leased } in group.handed {
            chosen.deliver(
                leased
                    .into_iter()
                    .map(|leased| (group.id, leased))
                    .collect(),
            );
        }
        for (posted, outcome) in group.posted.into_iter().zip(group.answers) {
            posted.answer(outcome);
        }
        let removed = change.is_some_and(is_delete);
        match group.entry.filter(|_| !removed) {
            Some(entry) => self.states.keep(group.id, entry),
            None => self.states.give_up(group.id),
        }
    }

    fn fail(&self, group: WorkflowBatch, error: &StoreError) {
        self.states.give_up(group.id);
        group.fail(error);
    }
}

/// Returns how the attempt ended that a request reports. `None` if the request reports none that
/// counts.
fn ended(request: &Request) -> Option<(JobIndex, Ended)> {
    match request {
        Request::Report {
            job,
            outcome: Outcome::Succeeded { .. },
            ..
        } => Some((*job, Ended::Succeeded)),
        Request::Report {
            job,
            outcome: Outcome::Failed { .. },
            ..
        } => Some((*job, Ended::Failed)),
        _ => None,
    }
}

fn is_delete(change: &Change) -> bool {
    matches!(change.write, Write::Delete(_))
}

/// Notifies queues and watchers of a change.
fn publish(context: &Context, group: &WorkflowBatch, change: &Change) {
    match &change.write {
        Write::Put(put) => publish_put(context, group, put),
        Write::Delete(delete) => {
            context.queues.change(&delete.ready, &[]);
            context.watchers.tell(
                group.id,
                VersionChange {
                    version: 0,
                    status: None,
                },
            );
        }
    }
}

fn publish_put(context: &Context, group: &WorkflowBatch, put: &Put) {
    context.queues.change(&put.ready.remove, &put.ready.add);
    let Some(entry) = &group.entry else { return };
    let meta = entry.workflow.meta();
    context.watchers.tell(
        group.id,
        VersionChange {
            version: meta.version,
            status: Some(meta.status),
        },
    );
    for due in [meta.timer, meta.expires_at].into_iter().flatten() {
        context.expect_by(group.id.partition(), due);
    }
}

/// Whether the written changes are as safe as if the answer had not been lost. False if nothing was
/// written and the store waits for replicas: another attempt would only wait for them again.
async fn confirm_written(
    store: &Store,
    partition: Partition,
    changes: &[Change],
    applied: &[Applied],
) -> bool {
    if store.waits_for_replicas() && !applied.contains(&Applied::Done) {
        return false;
    }
    let written = changes
        .iter()
        .zip(applied)
        .filter(|(_, applied)| **applied == Applied::Done);
    let states: Vec<_> = written
        .map(|(change, _)| match &change.write {
            Write::Put(put) => (change.workflow, Some(put.meta.clone())),
            Write::Delete(_) => (change.workflow, None),
        })
        .collect();
    store.confirm(partition, &states).await == Ok(true)
}

/// Finds out which changes were written although the answer was lost: the stored state names its
/// writer.
async fn recover(store: &Store, changes: &[Change]) -> Result<Vec<Applied>, StoreError> {
    let ids: Vec<_> = changes.iter().map(|change| change.workflow).collect();
    let stored = store.load(&ids).await?;
    let became = changes
        .iter()
        .zip(stored)
        .map(|(change, stored)| match (&change.write, stored) {
            (Write::Put(put), Some(stored)) if stored.state.meta == put.meta => Applied::Done,
            (Write::Delete(_), None) => Applied::Done,
            (_, stored) => Applied::Conflict(stored.map(|stored| stored.state)),
        });
    Ok(became.collect())
}
