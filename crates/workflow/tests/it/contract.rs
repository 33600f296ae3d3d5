//! What a store does, whichever it is: [`contract!`] makes a test of every behaviour for one store.

pub(crate) mod holders;
pub(crate) mod many;
pub(crate) mod notes;
pub(crate) mod reads;
pub(crate) mod ready;
pub(crate) mod rows;
pub(crate) mod writes;

use tidegate_workflow::change::{Applied, Change, CreationRecord, Delete, Put, StoredState, Write};
use tidegate_workflow::rows::{ReadyJob, Row, Section, queue_rows};
use tidegate_workflow::{
    EncodedSummary, JobIndex, Partition, RowRange, RowSet, SimulatedStore, SqliteOptions,
    SqliteStore, Status, Store, StoreError, TimeIndex, Timestamp, WorkflowId,
};

/// Stores under test are made with this number of partitions.
pub(crate) const PARTITIONS: u16 = 4;

/// `contract!(name, open)`: `open` is an async function that gives an empty store of [`PARTITIONS`] partitions, and whatever must
/// live as long as it.
macro_rules! contract {
    ($store:ident, $open:path) => {
        mod $store {
            contract! { @ $open, writes:
                a_workflow_is_created_once
                a_change_applies_only_to_the_state_it_expects
                a_conflict_tells_what_has_changed_since_the_expected_state
                a_refused_change_writes_nothing
                jobs_are_put_and_kept
                a_key_belongs_to_one_workflow_of_a_partition
                a_delete_removes_all_that_belongs_to_a_workflow
                a_delete_leaves_the_key_of_another_workflow
                results_are_put_replaced_and_dropped
            }
            contract! { @ $open, rows:
                rows_are_added_and_removed
                timers_and_expiries_move
            }
            contract! { @ $open, many:
                each_change_of_many_stands_alone
                a_change_may_build_on_the_one_before
                small_and_other_workflows_change_together
                no_change_is_no_work
                ten_thousand_jobs_fit_in_one_change
                many_changes_fit_in_one_call
                of_concurrent_changes_exactly_one_wins
                concurrent_changes_of_different_workflows_all_apply
            }
            contract! { @ $open, holders:
                places_go_to_the_first_up_to_the_most
                released_places_are_free
                many_sets_in_one_call_stand_alone
                a_place_is_held_as_long_as_its_lease_and_ends_after_it
                ten_thousand_places_fit_in_one_call
                there_are_never_more_holders_than_places
            }
            contract! { @ $open, notes:
                notes_are_kept_in_their_order
                of_a_log_the_newest_lines_are_kept
                many_short_lines_cost_few_pieces
                notes_change_no_state_and_go_with_the_workflow
                a_log_that_cannot_be_read_begins_anew
            }
            contract! { @ $open, reads:
                what_is_not_there_is_none
                an_empty_store_answers_everything
                states_are_found_without_rows
                loads_and_heads_keep_the_order_asked_for
                pages_run_in_both_orders
                spans_begin_inclusive_and_end_exclusive
                sections_do_not_run_into_each_other
                counts_are_over_all_partitions
                a_check_reads_every_row_in_pieces
                registers_hold_the_latest_value_by_name
                new_names_leave_what_others_wrote
                sizes_are_those_of_graphs
            }
            contract! { @ $open, ready:
                ready_rows_come_lowest_first_by_prefix_and_partition
                ready_depth_counts_lanes_with_limits
                ready_depth_counts_over_all_partitions
                ready_depth_follows_every_change
                due_workflows_come_earliest_first_up_to_the_limit_of_each_partition
            }
        }
    };
    (@ $open:path, $module:ident: $($behaviour:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $behaviour() {
                let (store, _guard) = $open().await;
                crate::contract::$module::$behaviour(store).await;
            }
        )*
    };
}

async fn simulated() -> (Store, ()) {
    (Store::Simulated(SimulatedStore::new(PARTITIONS)), ())
}

async fn sqlite_in_memory() -> (Store, ()) {
    let options = SqliteOptions::new(PARTITIONS).unwrap();
    let store = SqliteStore::in_memory(&options).unwrap();
    (Store::Sqlite(store), ())
}

contract!(simulated, super::simulated);
contract!(sqlite_memory, super::sqlite_in_memory);

/// Bytes that a text protocol or a string type would spoil.
const BINARY: &[u8] = b"\0\r\n$-1\r\n\xff\xfe'\"";

/// The workflow made at `millis` in a partition.
pub(crate) fn id(millis: u64, partition: u16) -> WorkflowId {
    WorkflowId::new(
        micros(millis * 1_000),
        Partition(partition),
        u128::from(millis) << 7,
    )
}

pub(crate) fn micros(micros: u64) -> Timestamp {
    Timestamp::from_micros(micros)
}

fn meta(text: &str) -> Vec<u8> {
    [text.as_bytes(), BINARY].concat()
}

pub(crate) fn birth(key: Option<&str>) -> CreationRecord {
    CreationRecord {
        graph: meta("graph"),
        label: meta("label"),
        idempotency_key: key.map(str::to_owned),
    }
}

/// Creates a workflow with the state `first`, and whatever else `put` says.
pub(crate) fn create(id: WorkflowId, put: Put) -> Change {
    let put = Put {
        meta: meta("first"),
        creation: Some(put.creation.clone().unwrap_or_else(|| birth(None))),
        ..put
    };
    Change {
        workflow: id,
        expected: None,
        small: false,
        write: Write::Put(Box::new(put)),
    }
}

/// Takes a workflow from one state to another, and does whatever else `put` says.
pub(crate) fn update(id: WorkflowId, from: &str, to: &str, put: Put) -> Change {
    let put = Put {
        meta: meta(to),
        ..put
    };
    Change {
        workflow: id,
        expected: Some(meta(from)),
        small: false,
        write: Write::Put(Box::new(put)),
    }
}

pub(crate) fn delete(id: WorkflowId, from: &str, delete: Delete) -> Change {
    Change {
        workflow: id,
        expected: Some(meta(from)),
        small: false,
        write: Write::Delete(Box::new(delete)),
    }
}

pub(crate) fn ready_row(queue: &str, since: u64, workflow: WorkflowId, job: u32) -> Row {
    let job = JobIndex(job);
    let handler = "h".to_owned();
    let limit_key = String::new();
    let queue = queue.to_owned();
    ReadyJob {
        queue,
        handler,
        limit_key,
        priority: 0,
        since: micros(since),
        workflow,
        job,
    }
    .row()
}

pub(crate) fn index_row(section: Section<'_>, id: WorkflowId) -> Row {
    [section.prefix(), id.bytes().to_vec()].concat()
}

/// Applies changes of one partition.
async fn apply(store: &Store, changes: &[Change]) -> Vec<Applied> {
    let partition = changes[0].workflow.partition();
    store.apply(partition, changes).await.unwrap()
}

/// Applies one change, which must work.
pub(crate) async fn done(store: &Store, change: Change) {
    assert_eq!(apply(store, &[change]).await, [Applied::Done]);
}

/// The stored state, jobs in order.
pub(crate) async fn state(store: &Store, id: WorkflowId) -> Option<StoredState> {
    let stored = store.load(&[id]).await.unwrap().remove(0)?;
    assert_eq!(stored.graph, meta("graph"));
    Some(sorted(stored.state))
}

fn sorted(mut state: StoredState) -> StoredState {
    state.jobs.sort();
    state
}

/// What a conflict answers for a workflow in state `meta` whose jobs nothing has happened to.
fn conflict(meta: Vec<u8>) -> Applied {
    Applied::Conflict(Some(StoredState {
        meta,
        jobs: Vec::new(),
        ..StoredState::default()
    }))
}

/// Every row of a set, in all partitions.
async fn all_rows(store: &Store, set: RowSet) -> Vec<Row> {
    let mut rows = Vec::new();
    for partition in 0..PARTITIONS {
        rows.extend(
            store
                .rows(Partition(partition), set, None, 100_000)
                .await
                .unwrap(),
        );
    }
    rows
}

/// What is due in all partitions, at most `limit` of each.
pub(crate) async fn due_of_each(
    store: &Store,
    which: TimeIndex,
    until: u64,
    limit: usize,
) -> Result<Vec<(WorkflowId, Timestamp)>, StoreError> {
    let partitions = partitions();
    let due = store.due(which, micros(until), limit, &partitions).await;
    assert_eq!(due.len(), partitions.len());
    due.into_iter()
        .collect::<Result<Vec<_>, _>>()
        .map(|due| due.concat())
}

fn partitions() -> Vec<Partition> {
    (0..PARTITIONS).map(Partition).collect()
}

/// The ready rows of each prefix, by partition.
pub(crate) async fn ready_of_each(
    store: &Store,
    prefixes: &[Row],
    limit: usize,
) -> Result<Vec<Vec<Vec<Row>>>, StoreError> {
    let read = store
        .ready(prefixes, limit, &partitions())
        .await
        .into_iter();
    let read = read.collect::<Result<Vec<_>, _>>()?;
    Ok((0..prefixes.len())
        .map(|at| read.iter().map(|each| each[at].clone()).collect())
        .collect())
}

/// The number of rows of each span in all partitions together.
pub(crate) async fn count_all(store: &Store, spans: &[RowRange]) -> Result<Vec<u64>, StoreError> {
    let counts = store
        .count(spans, &partitions())
        .await
        .into_iter()
        .collect::<Result<Vec<_>, _>>()?;
    Ok((0..spans.len())
        .map(|at| counts.iter().map(|each| each[at]).sum())
        .collect())
}

/// The number of ready rows of each prefix in all partitions together, and the first row of each partition.
pub(crate) async fn depth_of_all(
    store: &Store,
    prefixes: &[Row],
) -> Result<Vec<(u64, Vec<Row>)>, StoreError> {
    let depths = store
        .ready_depth(prefixes, &partitions())
        .await
        .into_iter()
        .collect::<Result<Vec<_>, _>>()?;
    let sum = |at: usize| depths.iter().map(|each| each[at].0).sum();
    let firsts = |at: usize| {
        depths
            .iter()
            .filter_map(|each| each[at].1.clone())
            .collect()
    };
    Ok((0..prefixes.len())
        .map(|at| (sum(at), firsts(at)))
        .collect())
}

/// What lists show of each workflow.
pub(crate) async fn heads_of(
    store: &Store,
    ids: &[WorkflowId],
) -> Result<Vec<Option<EncodedSummary>>, StoreError> {
    store.summaries(ids).await.into_iter().collect()
}

async fn due(store: &Store, which: TimeIndex, until: u64) -> Vec<(WorkflowId, Timestamp)> {
    let mut due = due_of_each(store, which, until, 100).await.unwrap();
    due.sort();
    due
}

/// Asserts that nothing is left of workflows, nor any row of anybody.
async fn assert_empty(store: &Store, ids: &[WorkflowId]) {
    assert_eq!(store.load(ids).await.unwrap(), vec![None; ids.len()]);
    assert_eq!(heads_of(store, ids).await.unwrap(), vec![None; ids.len()]);
    for set in [
        RowSet::Ready,
        RowSet::Index,
        RowSet::Due(TimeIndex::Timers),
        RowSet::Due(TimeIndex::Expiries),
    ] {
        assert_eq!(all_rows(store, set).await, Vec::<Row>::new(), "{set:?}");
    }
    let spans = [Section::All, Section::Status(Status::Running)]
        .map(|section| RowRange::section(section.prefix()));
    assert_eq!(count_all(store, &spans).await, Ok(vec![0, 0]));
    assert_eq!(
        depth_of_all(store, &[queue_rows("default")]).await.unwrap(),
        [(0, Vec::new())]
    );
}
