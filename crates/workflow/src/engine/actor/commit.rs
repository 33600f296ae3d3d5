//! A group commit applies requests of many callers to states. It writes what changed with one call
//! of the store, and deletes workflows with another one before.

pub(crate) mod ended_attempt;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use self::ended_attempt::notify_ended;
use super::apply::Applier;
use super::assign::Assignment;
use super::batch::{StateSource, WorkflowBatch};
use super::cache::StateCache;
use super::load::load_missing;
use super::partial_writes::PartialWrites;
use super::request::Request;
use crate::codec::{Applied, Change, StoreError, Write};
use crate::engine::context::attempt_counts::AttemptResult;
use crate::engine::context::watchers::VersionChange;
use crate::engine::{Context, StoreOperation};
use crate::machine::Outcome;
use crate::model::{JobIndex, Partition};
use crate::store::Store;

/// A group commit of one partition.
pub(super) struct GroupCommit<'a> {
    pub(super) applier: Applier<'a>,
    pub(super) partition: Partition,
    pub(super) state_cache: &'a StateCache,
    pub(super) partial_writes: &'a PartialWrites,
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
    batches: Vec<WorkflowBatch>,
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

impl ChangedBatches {
    fn with_capacity(number: usize) -> Self {
        Self {
            batches: Vec::with_capacity(number),
            changes: Vec::with_capacity(number),
        }
    }

    fn push(&mut self, batch: WorkflowBatch, change: Change) {
        self.batches.push(batch);
        self.changes.push(change);
    }
}

impl GroupCommit<'_> {
    fn context(&self) -> &Context {
        self.applier.context
    }

    /// Applies requests and writes changes. Returns the batches that must be applied again.
    pub(super) async fn commit(&self, mut batches: Vec<WorkflowBatch>) -> Vec<WorkflowBatch> {
        if let Err(error) =
            load_missing(self.applier.store, &self.state_cache.interner, &mut batches).await
        {
            self.context().store_health.record(
                self.partition,
                StoreOperation::Read,
                Err::<(), _>(&error),
            );
            self.fail_all(batches, &error);
            return Vec::new();
        }
        let Prepared {
            mut retry,
            deletes,
            updates: changes,
            no_ops,
        } = self.prepare(batches);
        retry.extend(self.finish_no_ops(no_ops).await);
        // Deletes free memory, so they are written first and alone: a full store refuses the rest.
        for (operation, changes) in [
            (StoreOperation::Removal, deletes),
            (StoreOperation::Write, changes),
        ] {
            retry.extend(self.write(operation, changes).await);
        }
        retry
    }

    /// Writes changes. Returns the batches that must be applied again.
    async fn write(
        &self,
        operation: StoreOperation,
        ChangedBatches { batches, changes }: ChangedBatches,
    ) -> Vec<WorkflowBatch> {
        if batches.is_empty() {
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
            self.context()
                .store_health
                .record(self.partition, operation, outcome);
        }
        match applied {
            Ok(outcome) => self.resolve(batches, &changes, outcome),
            Err(error) => {
                self.fail_all(batches, &error);
                Vec::new()
            }
        }
    }

    /// Handles the results of changes. Returns the batches that must be applied again.
    fn resolve(
        &self,
        batches: Vec<WorkflowBatch>,
        changes: &[Change],
        outcome: StoreOutcome,
    ) -> Vec<WorkflowBatch> {
        let mut retry = Vec::new();
        for ((mut batch, change), applied) in batches.into_iter().zip(changes).zip(outcome.applied)
        {
            match &outcome.refused {
                Some(error) if applied != Applied::Done => self.fail(batch, error),
                refused => {
                    // A refused write does not repair the rows that a partial write left over.
                    batch.orphan_rows = batch.orphan_rows.filter(|_| refused.is_none());
                    batch.unanswered = outcome.unanswered.clone().map(Box::new);
                    retry.extend(self.on_applied(batch, change, applied));
                }
            }
        }
        retry
    }

    fn prepare(&self, mut batches: Vec<WorkflowBatch>) -> Prepared {
        // Of workflows that are created in one commit, the most urgent gets the first waiting
        // worker.
        if batches.len() > 1 && self.context().queues.has_waiting_claims() {
            batches.sort_by_cached_key(WorkflowBatch::urgency);
        }
        let mut prepared = Prepared {
            retry: Vec::new(),
            deletes: ChangedBatches::default(),
            updates: ChangedBatches::with_capacity(batches.len()),
            no_ops: Vec::new(),
        };
        for mut batch in batches {
            batch.orphan_rows = self.partial_writes.orphan_rows(batch.id).map(Box::new);
            match batch.apply_requests(&self.applier) {
                Some(change) if is_delete(&change) => prepared.deletes.push(batch, change),
                Some(change) => prepared.updates.push(batch, change),
                // The cached state may be outdated. No change, or a refusal, may be wrong for the
                // stored state.
                None if batch.source == StateSource::Cache => {
                    batch.must_reload();
                    prepared.retry.push(batch);
                }
                None => prepared.no_ops.push(batch),
            }
        }
        prepared
    }

    async fn apply(&self, changes: &Arc<[Change]>) -> Result<StoreOutcome, StoreError> {
        let store = self.applier.store;
        match store
            .apply_and_notify(
                self.partition,
                changes,
                Some(&self.context().membership.notifier),
            )
            .await
        {
            Err(error @ StoreError::Unknown { .. }) => match find_written(store, changes).await {
                Ok(applied) if confirm_written(store, self.partition, changes, &applied).await => {
                    Ok(StoreOutcome {
                        applied,
                        refused: None,
                        unanswered: Some(error),
                    })
                }
                _ => Err(error),
            },
            Err(error @ StoreError::PartialWrite { .. }) => {
                changes
                    .iter()
                    .for_each(|change| self.partial_writes.record(change));
                let applied = find_written(store, changes)
                    .await
                    .map_err(|_| error.clone())?;
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
    async fn finish_no_ops(&self, batches: Vec<WorkflowBatch>) -> Vec<WorkflowBatch> {
        let store = self.applier.store;
        let acknowledges = |batch: &WorkflowBatch| {
            store.waits_for_replicas() && batch.answers.iter().any(Result::is_ok)
        };
        let (mut acknowledging, others): (Vec<_>, Vec<_>) =
            batches.into_iter().partition(acknowledges);
        self.finish_all(others);
        if acknowledging.is_empty() {
            return Vec::new();
        }
        let states: Vec<_> = acknowledging
            .iter()
            .map(|batch| (batch.id, batch.stored_meta()))
            .collect();
        match store.confirm(self.partition, &states).await {
            Ok(true) => self.finish_all(acknowledging),
            Ok(false) => {
                acknowledging
                    .iter_mut()
                    .for_each(WorkflowBatch::must_reload);
                return acknowledging;
            }
            Err(error) => self.fail_all(acknowledging, &error),
        }
        Vec::new()
    }

    /// Handles the result of one change. Returns the batch if its requests must be applied again.
    fn on_applied(
        &self,
        batch: WorkflowBatch,
        change: &Change,
        applied: Applied,
    ) -> Option<WorkflowBatch> {
        match applied {
            Applied::Done => self.finish(batch, Some(change)),
            Applied::KeyTaken(taken) => {
                self.state_cache.remove_placeholder(batch.id);
                batch.answer_key_taken(taken);
            }
            Applied::Conflict(state) => return self.retry_on(batch, |batch| batch.rebuild(state)),
            Applied::Behind(newer) => return self.retry_on(batch, |batch| batch.rebase(&newer)),
            Applied::MustReload => {
                return self.retry_on(batch, |batch| {
                    batch.mark_stale(change.base_stamp());
                    Ok(())
                });
            }
        }
        None
    }

    /// Counts a conflict, and returns the batch with the state that `rebuild` sets.
    fn retry_on(
        &self,
        mut batch: WorkflowBatch,
        rebuild: impl FnOnce(&mut WorkflowBatch) -> Result<(), StoreError>,
    ) -> Option<WorkflowBatch> {
        self.context().conflicts.fetch_add(1, Relaxed);
        match rebuild(&mut batch) {
            Ok(()) => Some(batch),
            Err(error) => {
                self.fail(batch, &error);
                None
            }
        }
    }

    /// Counts the reported attempts, and notifies the observer of those that ended.
    fn record_attempts(&self, batch: &WorkflowBatch) {
        let Some(cached) = &batch.cached else { return };
        let workflow = &cached.workflow;
        for (envelope, answer) in batch.envelopes.iter().zip(&batch.answers) {
            let (Ok(answer), request) = (answer, &envelope.request) else {
                continue;
            };
            if let Some(observer) = &self.context().attempt_observer {
                notify_ended(observer, workflow, request, envelope.now, answer);
            }
            if let (Some((job, ended)), Some(duration)) =
                (reported_result(request), answer.duration)
            {
                let handler = &workflow.graph.jobs[job.index()].handler;
                let counts = &self.context().attempt_counts;
                counts.add_attempt(handler, ended, duration);
            }
        }
    }

    /// Releases the permits of leases that ended.
    fn release_permits(&self, batch: &WorkflowBatch) {
        let Some(cached) = &batch.cached else { return };
        let ended = cached.workflow.released_permits();
        if !ended.is_empty() {
            self.applier.releaser.release_permits(ended);
        }
    }

    /// Publishes a change that was written, and updates the state in memory.
    fn on_written(&self, batch: &mut WorkflowBatch, change: &Change) {
        if batch.orphan_rows.is_some() {
            self.partial_writes.repaired(batch.id);
        }
        publish(self.context(), batch, change);
        self.record_attempts(batch);
        self.release_permits(batch);
        let (Some(cached), Write::Put(put)) = (&mut batch.cached, &change.write) else {
            return;
        };
        cached.workflow.on_applied();
        cached.cache_outputs(&put.results);
        for answer in batch.answers.iter_mut().flatten() {
            cached.fill_inputs(&mut answer.leased);
        }
        for assignment in &mut batch.assignments {
            cached.fill_inputs(&mut assignment.leased);
        }
    }

    /// Sends the answers, notifies watchers and queues, and caches the state.
    fn finish(&self, mut batch: WorkflowBatch, change: Option<&Change>) {
        if let Some(change) = change {
            self.on_written(&mut batch, change);
        }
        for Assignment { worker, leased } in batch.assignments {
            let jobs = leased.into_iter().map(|leased| (batch.id, leased));
            worker.deliver(jobs.collect());
        }
        for (envelope, outcome) in batch.envelopes.into_iter().zip(batch.answers) {
            envelope.send_reply(outcome);
        }
        let removed = change.is_some_and(is_delete);
        match batch.cached.filter(|_| !removed) {
            Some(cached) => self.state_cache.insert(batch.id, cached),
            None => self.state_cache.remove_placeholder(batch.id),
        }
    }

    /// Finishes batches that change nothing.
    fn finish_all(&self, batches: Vec<WorkflowBatch>) {
        batches
            .into_iter()
            .for_each(|batch| self.finish(batch, None));
    }

    fn fail_all(&self, batches: Vec<WorkflowBatch>, error: &StoreError) {
        batches
            .into_iter()
            .for_each(|batch| self.fail(batch, error));
    }

    fn fail(&self, batch: WorkflowBatch, error: &StoreError) {
        self.state_cache.remove_placeholder(batch.id);
        batch.fail(error);
    }
}

/// Returns how the attempt ended that a request reports. `None` if the request reports none that
/// counts.
fn reported_result(request: &Request) -> Option<(JobIndex, AttemptResult)> {
    let Request::Report { job, outcome, .. } = request else {
        return None;
    };
    match outcome {
        Outcome::Succeeded { .. } => Some((*job, AttemptResult::Succeeded)),
        Outcome::Failed { .. } => Some((*job, AttemptResult::Failed)),
        _ => None,
    }
}

fn is_delete(change: &Change) -> bool {
    matches!(change.write, Write::Delete(_))
}

/// Notifies queues and watchers of a change.
fn publish(context: &Context, batch: &WorkflowBatch, change: &Change) {
    let published = match &change.write {
        Write::Put(put) => {
            context.queues.apply_rows(&put.ready.remove, &put.ready.add);
            let Some(cached) = &batch.cached else { return };
            let meta = cached.workflow.meta();
            for due in [meta.timer, meta.expires_at].into_iter().flatten() {
                context.schedule_sweep(batch.id.partition(), due);
            }
            VersionChange {
                version: meta.version,
                status: Some(meta.status),
            }
        }
        Write::Delete(delete) => {
            context.queues.apply_rows(&delete.ready, &[]);
            VersionChange {
                version: 0,
                status: None,
            }
        }
    };
    context.watchers.notify(batch.id, published);
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
async fn find_written(store: &Store, changes: &[Change]) -> Result<Vec<Applied>, StoreError> {
    let ids: Vec<_> = changes.iter().map(|change| change.workflow).collect();
    let stored = store.load(&ids).await?;
    let outcomes =
        changes
            .iter()
            .zip(stored)
            .map(|(change, stored)| match (&change.write, stored) {
                (Write::Put(put), Some(stored)) if stored.state.meta == put.meta => Applied::Done,
                (Write::Delete(_), None) => Applied::Done,
                (_, stored) => Applied::Conflict(stored.map(|stored| stored.state)),
            });
    Ok(outcomes.collect())
}
