//! What becomes of changes.

use bytes::Bytes;
use tidegate_workflow::change::{
    Applied, Delete, Put, ResultField, Stamp, StoredState, TimerMove, TrailEntry,
};
use tidegate_workflow::rows::Section;
use tidegate_workflow::{JobIndex, Partition, Status, Store, WorkflowId};

use super::rows::added;
use super::{
    BINARY, apply, assert_empty, birth, conflict, create, delete, done, id, index_row, meta,
    micros, ready_row, sorted, state, update,
};

/// A state, a job, a result, and a row of each kind.
pub(super) fn everything(id: WorkflowId) -> Put {
    Put {
        creation: Some(birth(Some("key"))),
        jobs: vec![(JobIndex(1), BINARY.to_vec())],
        results: vec![(ResultField::Output(JobIndex(1)), BINARY.to_vec())],
        ready: added(vec![ready_row("default", 1, id, 1)]),
        index: added(vec![
            index_row(Section::All, id),
            index_row(Section::Status(Status::Running), id),
        ]),
        timer: TimerMove::To(micros(70)),
        expiry: TimerMove::To(micros(80)),
        ..Put::default()
    }
}

pub(super) async fn results(
    store: &Store,
    id: WorkflowId,
    fields: &[ResultField],
) -> Vec<Option<Bytes>> {
    store
        .results(&[(id, fields.to_vec())])
        .await
        .unwrap()
        .remove(0)
}

pub(crate) async fn a_workflow_is_created_once(store: Store) {
    let id = id(1, 2);
    done(&store, create(id, Put::default())).await;
    assert_eq!(
        apply(&store, &[create(id, Put::default())]).await,
        [conflict(meta("first"))]
    );
    assert_eq!(
        state(&store, id).await,
        Some(StoredState {
            meta: meta("first"),
            jobs: Vec::new(),
            ..StoredState::default()
        })
    );
}

pub(crate) async fn a_change_applies_only_to_the_state_it_expects(store: Store) {
    let id = id(1, 0);
    let jobs = vec![(JobIndex(0), meta("a")), (JobIndex(300), meta("b"))];
    let current = StoredState {
        meta: meta("first"),
        jobs: jobs.clone(),
        ..StoredState::default()
    };
    assert_eq!(
        apply(&store, &[update(id, "first", "x", Put::default())]).await,
        [Applied::Conflict(None)]
    );
    assert_eq!(
        apply(&store, &[delete(id, "first", Delete::default())]).await,
        [Applied::Conflict(None)]
    );
    let put = Put {
        jobs,
        ..Put::default()
    };
    done(&store, create(id, put)).await;
    for wrong in [
        update(id, "other", "x", Put::default()),
        delete(id, "other", Delete::default()),
    ] {
        let Applied::Conflict(Some(found)) = apply(&store, &[wrong]).await.remove(0) else {
            panic!("no conflict")
        };
        assert_eq!(sorted(found), current);
    }
    done(&store, update(id, "first", "second", Put::default())).await;
    assert_eq!(
        state(&store, id).await,
        Some(StoredState {
            meta: meta("second"),
            ..current
        })
    );
}

/// The version with this number of a workflow with so many jobs, and the state that it is noted to follow.
fn version(number: u64, jobs: usize) -> Option<TrailEntry> {
    let stamp = |version| Stamp {
        version,
        writer: version as u32 * 77,
    };
    Some(TrailEntry {
        base: (number > 1).then(|| stamp(number - 1)),
        stamp: stamp(number),
        job_count: jobs,
    })
}

/// An answer, with the state that was too large to be told.
pub(super) async fn read_elsewhere(store: &Store, id: WorkflowId, answer: Applied) -> Applied {
    match answer {
        Applied::MustReload => Applied::Conflict(state(store, id).await),
        answer => answer,
    }
}

/// What a server has that knew `known` and hears of a conflict.
fn caught_up(mut known: Vec<(JobIndex, Vec<u8>)>, answer: Applied) -> StoredState {
    match answer {
        Applied::Conflict(Some(state)) => sorted(state),
        Applied::Behind(later) => {
            known.retain(|(job, _)| later.state.jobs.iter().all(|(changed, _)| changed != job));
            known.extend(later.state.jobs);
            sorted(StoredState {
                jobs: known,
                ..later.state
            })
        }
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn a_conflict_tells_what_has_changed_since_the_expected_state(store: Store) {
    // Workflows with few jobs and with many, and as many writes as are noted, and more.
    let cases = [(5, 3), (5, 70), (300, 1), (300, 20), (300, 70), (3_000, 5)];
    for (at, (jobs, writes)) in (1..).zip(cases) {
        check_conflict(&store, id(at, 2), jobs, writes).await;
    }
}

async fn check_conflict(store: &Store, id: WorkflowId, jobs: u32, writes: u64) {
    let job = |job: u32, text: String| (JobIndex(job), meta(&text));
    let first: Vec<_> = (0..jobs).map(|at| job(at, "new".to_owned())).collect();
    let put = Put {
        jobs: first.clone(),
        trail: version(1, jobs as usize),
        ..Put::default()
    };
    done(store, create(id, put)).await;
    let mut from = "first".to_owned();
    let mut known = first.clone();
    for number in 2..2 + writes {
        let to = number.to_string();
        let changed = vec![job(number as u32 % jobs, to.clone()), job(0, to.clone())];
        known[changed[0].0.index()] = changed[0].clone();
        known[0] = changed[1].clone();
        let put = Put {
            jobs: changed,
            trail: version(number, jobs as usize),
            ..Put::default()
        };
        done(store, update(id, &from, &to, put)).await;
        from = to;
    }
    let expected = StoredState {
        meta: meta(&from),
        jobs: known,
        ..StoredState::default()
    };
    let late = Put {
        jobs: vec![job(1, "late".to_owned())],
        trail: version(2, jobs as usize),
        ..Put::default()
    };
    let answers = apply(store, &[update(id, "first", "late", late)]).await;
    let answer = read_elsewhere(store, id, answers[0].clone()).await;
    assert!(
        caught_up(first.clone(), answer) == expected,
        "{jobs} jobs, {writes} writes"
    );
    // Another state with the same version is not the one that the trail begins at.
    let other = TrailEntry {
        base: Some(Stamp {
            version: 1,
            writer: 1,
        }),
        ..version(2, jobs as usize).unwrap()
    };
    let put = Put {
        trail: Some(other),
        ..Put::default()
    };
    let answers = apply(store, &[update(id, "lost", "late", put)]).await;
    let answer = read_elsewhere(store, id, answers[0].clone()).await;
    assert!(matches!(answer, Applied::Conflict(Some(state)) if sorted(state.clone()) == expected));
}

pub(crate) async fn a_refused_change_writes_nothing(store: Store) {
    let id = id(1, 1);
    assert_eq!(
        apply(&store, &[update(id, "first", "x", everything(id))]).await,
        [Applied::Conflict(None)]
    );
    assert_empty(&store, &[id]).await;
    assert_eq!(store.workflow_by_key(Partition(1), "key").await, Ok(None));
    let owner = super::id(2, 1);
    let put = Put {
        creation: Some(birth(Some("key"))),
        ..Put::default()
    };
    done(&store, create(owner, put)).await;
    assert_eq!(
        apply(&store, &[create(id, everything(id))]).await,
        [Applied::KeyTaken(owner)]
    );
    done(
        &store,
        delete(
            owner,
            "first",
            Delete {
                idempotency_key: Some("key".to_owned()),
                ..Delete::default()
            },
        ),
    )
    .await;
    assert_empty(&store, &[id, owner]).await;
    assert_eq!(
        results(&store, id, &[ResultField::Output(JobIndex(1))]).await,
        [None]
    );
}

pub(crate) async fn jobs_are_put_and_kept(store: Store) {
    let id = id(1, 3);
    let job = |index, text: &str| (JobIndex(index), meta(text));
    let put = Put {
        jobs: vec![job(7, "a"), job(2, "b")],
        ..Put::default()
    };
    done(&store, create(id, put)).await;
    let put = Put {
        jobs: vec![job(2, "c"), job(65_535, "d")],
        ..Put::default()
    };
    done(&store, update(id, "first", "second", put)).await;
    let jobs = vec![job(2, "c"), job(7, "a"), job(65_535, "d")];
    assert_eq!(
        state(&store, id).await,
        Some(StoredState {
            meta: meta("second"),
            jobs,
            ..StoredState::default()
        })
    );
}

pub(crate) async fn a_key_belongs_to_one_workflow_of_a_partition(store: Store) {
    let with_key = |id, key| {
        create(
            id,
            Put {
                creation: Some(birth(Some(key))),
                ..Put::default()
            },
        )
    };
    let first = id(1, 0);
    let second = id(2, 0);
    let elsewhere = id(3, 1);
    done(&store, with_key(first, "schlüssel")).await;
    assert_eq!(
        apply(&store, &[with_key(second, "schlüssel")]).await,
        [Applied::KeyTaken(first)]
    );
    // The same creation once more is a conflict and not a key that somebody else has.
    assert_eq!(
        apply(&store, &[with_key(first, "schlüssel")]).await,
        [conflict(meta("first"))]
    );
    done(&store, with_key(elsewhere, "schlüssel")).await;
    assert_eq!(
        store.workflow_by_key(Partition(0), "schlüssel").await,
        Ok(Some(first))
    );
    assert_eq!(
        store.workflow_by_key(Partition(1), "schlüssel").await,
        Ok(Some(elsewhere))
    );
    assert_eq!(
        store.workflow_by_key(Partition(0), "another").await,
        Ok(None)
    );
    let key = Some("schlüssel".to_owned());
    done(
        &store,
        delete(
            first,
            "first",
            Delete {
                idempotency_key: key,
                ..Delete::default()
            },
        ),
    )
    .await;
    assert_eq!(
        store.workflow_by_key(Partition(0), "schlüssel").await,
        Ok(None)
    );
    done(&store, with_key(second, "schlüssel")).await;
    assert_eq!(
        store.workflow_by_key(Partition(0), "schlüssel").await,
        Ok(Some(second))
    );
}

/// A workflow whose claim of a key was refused took the key away from the other one.
pub(crate) async fn a_delete_leaves_the_key_of_another_workflow(store: Store) {
    let (owner, other) = (id(1, 0), id(2, 0));
    let with_key = Put {
        creation: Some(birth(Some("key"))),
        ..Put::default()
    };
    done(&store, create(owner, with_key)).await;
    done(&store, create(other, Put::default())).await;
    let removal = Delete {
        idempotency_key: Some("key".to_owned()),
        ..Delete::default()
    };
    done(&store, delete(other, "first", removal)).await;
    assert_eq!(
        store.workflow_by_key(Partition(0), "key").await,
        Ok(Some(owner))
    );
}

pub(crate) async fn a_delete_removes_all_that_belongs_to_a_workflow(store: Store) {
    let id = id(1, 2);
    done(&store, create(id, everything(id))).await;
    let error = ResultField::Error(JobIndex(4), 9);
    let errors = Put {
        results: vec![(error, meta("e"))],
        ..Put::default()
    };
    done(&store, update(id, "first", "second", errors)).await;
    let Put { ready, index, .. } = everything(id);
    let all = Delete {
        ready: ready.add,
        index: index.add,
        idempotency_key: Some("key".to_owned()),
    };
    done(&store, delete(id, "second", all)).await;
    assert_empty(&store, &[id]).await;
    assert_eq!(store.workflow_by_key(Partition(2), "key").await, Ok(None));
    assert_eq!(
        results(&store, id, &[ResultField::Output(JobIndex(1)), error]).await,
        [None, None]
    );
    // A later namesake does not inherit anything.
    done(&store, create(id, Put::default())).await;
    assert_eq!(
        state(&store, id).await,
        Some(StoredState {
            meta: meta("first"),
            jobs: Vec::new(),
            ..StoredState::default()
        })
    );
    assert_eq!(
        results(&store, id, &[ResultField::Output(JobIndex(1)), error]).await,
        [None, None]
    );
}

pub(crate) async fn results_are_put_replaced_and_dropped(store: Store) {
    let id = id(1, 0);
    let output = ResultField::Output;
    let fields = [
        output(JobIndex(0)),
        output(JobIndex(1)),
        ResultField::Error(JobIndex(0), 0),
        ResultField::Error(JobIndex(0), 9),
        output(JobIndex(65_535)),
    ];
    let large = vec![7; 300_000];
    let put = |values: &[(usize, &[u8])], dropped: &[usize]| Put {
        results: values
            .iter()
            .map(|&(at, value)| (fields[at], value.to_vec()))
            .collect(),
        dropped_results: dropped.iter().map(|&at| fields[at]).collect(),
        ..Put::default()
    };
    done(
        &store,
        create(
            id,
            put(&[(0, b"a"), (1, BINARY), (2, b""), (4, &large)], &[]),
        ),
    )
    .await;
    let some = |value: &[u8]| Some(Bytes::copy_from_slice(value));
    let expected = [some(b"a"), some(BINARY), some(b""), None, some(&large)];
    assert_eq!(results(&store, id, &fields).await, expected);
    done(
        &store,
        update(id, "first", "second", put(&[(0, b"b"), (3, b"d")], &[1, 4])),
    )
    .await;
    assert_eq!(
        results(&store, id, &fields).await,
        [some(b"b"), None, some(b""), some(b"d"), None]
    );
    let several = [
        (id, vec![fields[3]]),
        (super::id(9, 0), fields.to_vec()),
        (id, vec![]),
    ];
    let expected = [vec![some(b"d")], vec![None; 5], vec![]];
    assert_eq!(store.results(&several).await.unwrap(), expected);
}
