//! What must hold of a store after every step, whatever happened.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidegate_workflow::change::ResultField;
use tidegate_workflow::rows::{ReadyJob, Row};
use tidegate_workflow::{
    Engine, Job, JobIndex, JobState, Partition, Rerun, RowSet, Snapshot, Status, Store, StoreError,
    TimeIndex, Timestamp, WorkflowId, read_due_row,
};

use super::oracle::{Fate, fate};

/// All workflows as the store has them.
pub(crate) type Snapshots = BTreeMap<WorkflowId, Snapshot>;

pub(crate) async fn rows(store: &Store, set: RowSet) -> Vec<Row> {
    let mut rows = Vec::new();
    for partition in 0..store.partitions() {
        rows.extend(rows_of(store, Partition(partition), set).await);
    }
    rows
}

/// A client waits before it makes a new connection to a Redis that was killed, also when that is back.
async fn rows_of(store: &Store, partition: Partition, set: RowSet) -> Vec<Row> {
    for _ in 0..100 {
        match store.rows(partition, set, None, 100_000).await {
            Err(StoreError::Unavailable { .. }) => {
                tokio::time::sleep(Duration::from_millis(50)).await
            }
            read => return read.unwrap(),
        }
    }
    panic!("the store does not come back");
}

/// Reads all workflows, and looks at each and at the rows of all.
pub(crate) async fn whole_store(engine: &Engine) -> Snapshots {
    what_is_left(engine, &BTreeSet::new()).await
}

/// As [`whole_store`]. The state of those in `lost` is gone, and their rows may be there.
pub(crate) async fn what_is_left(engine: &Engine, lost: &BTreeSet<WorkflowId>) -> Snapshots {
    let store = engine.store();
    let is_left =
        |row: &Row| ReadyJob::read(row).is_none_or(|entry| !lost.contains(&entry.workflow));
    let mut index = rows(store, RowSet::Index).await;
    index.retain(|row| {
        tidegate_workflow::rows::workflow_in_row(row).is_none_or(|id| !lost.contains(&id))
    });
    let mut ready_rows = rows(store, RowSet::Ready).await;
    ready_rows.retain(is_left);
    let ids: BTreeSet<WorkflowId> = index
        .iter()
        .filter_map(|row| tidegate_workflow::rows::workflow_in_row(row))
        .collect();
    let mut snapshots = Snapshots::new();
    for id in ids {
        snapshots.insert(id, engine.show(id).await.unwrap());
    }
    for snapshot in snapshots.values() {
        check_workflow(snapshot);
        check_outputs(store, snapshot).await;
    }
    let sorted = |rows: Vec<Vec<Row>>| {
        let mut rows = rows.concat();
        rows.sort_unstable();
        rows
    };
    let (ready, expected) = snapshots.values().map(Snapshot::rows).unzip();
    assert_eq!(
        sorted(vec![ready_rows.clone()]),
        sorted(ready),
        "ready rows"
    );
    assert_eq!(sorted(vec![index]), sorted(expected), "index rows");
    check_ready(&snapshots, &ready_rows);
    for which in [TimeIndex::Timers, TimeIndex::Expiries] {
        check_due(store, which, &snapshots, lost).await;
    }
    snapshots
}

/// The rows of workflows by time against their states.
async fn check_due(
    store: &Store,
    which: TimeIndex,
    snapshots: &Snapshots,
    lost: &BTreeSet<WorkflowId>,
) {
    let rows = rows(store, RowSet::Due(which)).await;
    let due = rows
        .iter()
        .map(|row| read_due_row(row).unwrap())
        .map(|(at, id)| (id, at));
    let due: Vec<_> = due.filter(|(id, _)| !lost.contains(id)).collect();
    let unique: BTreeMap<WorkflowId, Timestamp> = due.iter().copied().collect();
    assert_eq!(unique.len(), due.len(), "a workflow is in {which:?} twice");
    let moment = |snapshot: &Snapshot| match which {
        TimeIndex::Timers => snapshot.meta().timer,
        TimeIndex::Expiries => snapshot.meta().expires_at,
    };
    let expected: BTreeMap<WorkflowId, Timestamp> = snapshots
        .iter()
        .filter_map(|(id, snapshot)| Some((*id, moment(snapshot)?)))
        .collect();
    assert_eq!(unique, expected, "{which:?}");
}

/// The rows against the states, without the function that made the rows.
fn check_ready(snapshots: &Snapshots, rows: &[Row]) {
    let found: BTreeSet<(WorkflowId, JobIndex)> = rows
        .iter()
        .map(|row| {
            let entry = ReadyJob::read(row).unwrap();
            let about = &snapshots[&entry.workflow].graph().jobs[entry.job.index()];
            assert_eq!(
                (&entry.queue, entry.priority),
                (&about.queue, about.priority)
            );
            (entry.workflow, entry.job)
        })
        .collect();
    let mut ready = BTreeSet::new();
    for (id, snapshot) in snapshots
        .iter()
        .filter(|(_, snapshot)| snapshot.meta().status == Status::Running)
    {
        let jobs =
            (0..snapshot.jobs().len()).filter(|&at| snapshot.jobs()[at].state == JobState::Ready);
        ready.extend(jobs.map(|at| (*id, JobIndex(at as u32))));
    }
    assert_eq!(
        (found.len(), &found),
        (rows.len(), &ready),
        "each ready job has one row, and no other job has any"
    );
}

fn check_workflow(snapshot: &Snapshot) {
    check_meta(snapshot);
    for (at, job) in snapshot.jobs().iter().enumerate() {
        check_job(snapshot, at, job);
        check_fate(snapshot, at, job);
    }
}

/// What the state of a workflow says as a whole against its jobs.
fn check_meta(snapshot: &Snapshot) {
    let meta = snapshot.meta();
    let jobs = snapshot.jobs();
    let number = |word: &str| jobs.iter().filter(|job| job.state.word() == word).count();
    for (word, count) in meta.counts.entries() {
        assert_eq!(count as usize, number(word), "number of jobs {word}");
    }
    let active = jobs.iter().any(|job| job.state.is_active());
    let shown = || format!("{:?} with jobs {:?}", meta.status, snapshot.states());
    if meta.status != Status::Pending {
        assert_eq!(meta.status.is_over(), !active, "{}", shown());
    }
    if meta.status.is_over() {
        let well = number("succeeded") + number("skipped") == jobs.len();
        assert_eq!(well, meta.status == Status::Succeeded, "{}", shown());
    }
    assert_eq!(meta.finished_at.is_some(), meta.status.is_over());
    assert!(
        meta.expires_at.is_none() || meta.status.is_over(),
        "only what is over is removed"
    );
    let first = (0..jobs.len()).filter_map(|at| due(snapshot, at)).min();
    assert!(
        first.is_none_or(|first| meta.timer.is_some_and(|timer| timer <= first)),
        "{:?} {first:?}",
        meta.timer
    );
}

/// What a job has in its state.
fn check_job(snapshot: &Snapshot, at: usize, job: &Job) {
    let is_running = matches!(job.state, JobState::Running { .. });
    assert!(
        !is_running || (job.token != 0 && job.worker.is_some() && job.attempt > 0),
        "{job:?}"
    );
    assert!(
        job.state != JobState::Ready || job.ready_at.is_some(),
        "{job:?}"
    );
    assert_eq!(job.finished_at.is_some(), job.state.is_over(), "{job:?}");
    assert!(
        job.output_bytes == 0 || job.state == JobState::Succeeded,
        "{job:?}"
    );
    let retry = snapshot.graph().jobs[at].retry;
    assert!(job.attempt <= retry.limit + 1, "{job:?} and {retry:?}");
}

/// The state of a job against those of the jobs before it.
fn check_fate(snapshot: &Snapshot, at: usize, job: &Job) {
    let index = JobIndex(at as u32);
    let started = snapshot.meta().status != Status::Pending;
    let check = |found: bool, expected: bool| {
        assert_eq!(found, expected, "job {at}: {:?}", snapshot.states());
    };
    match job.state {
        JobState::Waiting if started => {
            let fate = fate(snapshot, index);
            let stays = matches!(fate, Fate::Waits | Fate::IsDoomed | Fate::IsBlocked);
            assert!(stays, "job {at} {fate:?}: {:?}", snapshot.states());
            check(snapshot.is_blocked(index), fate == Fate::IsBlocked);
            check(snapshot.is_unreachable(index), fate == Fate::IsDoomed);
        }
        JobState::Skipped if started && job.rerun == Rerun::No => {
            check(fate(snapshot, index) == Fate::IsPassedOver, true);
        }
        JobState::Ready | JobState::Scheduled { .. } => {
            check(fate(snapshot, index) == Fate::Runs, true);
        }
        _ => {}
    }
}

/// When something happens to a job by itself.
pub(crate) fn due(snapshot: &Snapshot, at: usize) -> Option<Timestamp> {
    let job = &snapshot.jobs()[at];
    match job.state {
        JobState::Scheduled { due } => Some(due),
        JobState::Running { expires } => {
            let timeout = snapshot.graph().jobs[at]
                .timeout
                .map(|timeout| job.started_at.unwrap() + timeout);
            Some(timeout.map_or(expires, |end| end.min(expires)))
        }
        _ => None,
    }
}

/// What is stored of outputs is what jobs say they returned.
async fn check_outputs(store: &Store, snapshot: &Snapshot) {
    let jobs = snapshot.jobs();
    let fields = (0..jobs.len())
        .map(|at| ResultField::Output(JobIndex(at as u32)))
        .collect();
    let stored = store
        .results(&[(snapshot.id(), fields)])
        .await
        .unwrap()
        .remove(0);
    for (job, output) in jobs.iter().zip(stored) {
        assert_eq!(
            job.output_bytes as usize,
            output.map_or(0, |output| output.len()),
            "{job:?}"
        );
    }
}
