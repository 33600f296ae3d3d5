//! What becomes of changes.

use bytes::Bytes;
use tidegate_workflow::change::{
    Applied, Change, Delete, Moved, Put, ResultField, RowChange, Stamp, StoredState, Times, Trail,
    Write,
};
use tidegate_workflow::rows::{Row, Section};
use tidegate_workflow::{
    Clockwork, JobIndex, Partition, RowSet, Status, Store, WorkflowId, due_row,
};

use super::{
    BINARY, all_rows, apply, assert_empty, birth, conflict, create, delete, done, due, id,
    index_row, meta, micros, ready_row, sorted, state, update,
};

/// A state, a job, a result, and a row of each kind.
fn everything(id: WorkflowId) -> Put {
    Put {
        birth: Some(birth(Some("key"))),
        jobs: vec![(JobIndex(1), BINARY.to_vec())],
        results: vec![(ResultField::Output(JobIndex(1)), BINARY.to_vec())],
        ready: added(vec![ready_row("default", 1, id, 1)]),
        index: added(vec![
            index_row(Section::All, id),
            index_row(Section::Status(Status::Running), id),
        ]),
        timer: Moved::To(micros(70)),
        expiry: Moved::To(micros(80)),
        ..Put::default()
    }
}

fn added(add: Vec<Row>) -> RowChange {
    RowChange {
        remove: Vec::new(),
        add,
    }
}

async fn results(store: &Store, id: WorkflowId, fields: &[ResultField]) -> Vec<Option<Bytes>> {
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
    done(
        &store,
        create(
            id,
            Put {
                jobs,
                ..Put::default()
            },
        ),
    )
    .await;
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
fn version(number: u64, jobs: usize) -> Option<Trail> {
    let stamp = |version| Stamp {
        version,
        writer: version as u32 * 77,
    };
    Some(Trail {
        since: (number > 1).then(|| stamp(number - 1)),
        stamp: stamp(number),
        jobs,
    })
}

/// An answer, with the state that was too large to be told.
async fn read_elsewhere(store: &Store, id: WorkflowId, answer: Applied) -> Applied {
    match answer {
        Applied::Elsewhere => Applied::Conflict(state(store, id).await),
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
    for (at, (jobs, writes)) in [(5, 3), (5, 70), (300, 1), (300, 20), (300, 70), (3_000, 5)]
        .into_iter()
        .enumerate()
    {
        let id = id(1 + at as u64, 2);
        let job = |job: u32, text: String| (JobIndex(job), meta(&text));
        let first: Vec<_> = (0..jobs).map(|at| job(at, "new".to_owned())).collect();
        let put = Put {
            jobs: first.clone(),
            trail: version(1, jobs as usize),
            ..Put::default()
        };
        done(&store, create(id, put)).await;
        let (mut from, mut known) = ("first".to_owned(), first.clone());
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
            done(&store, update(id, &from, &to, put)).await;
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
        let answer = apply(&store, &[update(id, "first", "late", late)])
            .await
            .remove(0);
        let answer = read_elsewhere(&store, id, answer).await;
        assert!(
            caught_up(first.clone(), answer) == expected,
            "{jobs} jobs, {writes} writes"
        );
        // Another state with the same version is not the one that the trail begins at.
        let other = Trail {
            since: Some(Stamp {
                version: 1,
                writer: 1,
            }),
            ..version(2, jobs as usize).unwrap()
        };
        let put = Put {
            trail: Some(other),
            ..Put::default()
        };
        let answer = read_elsewhere(
            &store,
            id,
            apply(&store, &[update(id, "lost", "late", put)])
                .await
                .remove(0),
        )
        .await;
        assert!(
            matches!(answer, Applied::Conflict(Some(state)) if sorted(state.clone()) == expected)
        );
    }
}

pub(crate) async fn a_refused_change_writes_nothing(store: Store) {
    let id = id(1, 1);
    assert_eq!(
        apply(&store, &[update(id, "first", "x", everything(id))]).await,
        [Applied::Conflict(None)]
    );
    assert_empty(&store, &[id]).await;
    assert_eq!(store.keyed(Partition(1), "key").await, Ok(None));
    let owner = super::id(2, 1);
    done(
        &store,
        create(
            owner,
            Put {
                birth: Some(birth(Some("key"))),
                ..Put::default()
            },
        ),
    )
    .await;
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
    done(
        &store,
        create(
            id,
            Put {
                jobs: vec![job(7, "a"), job(2, "b")],
                ..Put::default()
            },
        ),
    )
    .await;
    done(
        &store,
        update(
            id,
            "first",
            "second",
            Put {
                jobs: vec![job(2, "c"), job(65_535, "d")],
                ..Put::default()
            },
        ),
    )
    .await;
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
                birth: Some(birth(Some(key))),
                ..Put::default()
            },
        )
    };
    let (first, second, elsewhere) = (id(1, 0), id(2, 0), id(3, 1));
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
        store.keyed(Partition(0), "schlüssel").await,
        Ok(Some(first))
    );
    assert_eq!(
        store.keyed(Partition(1), "schlüssel").await,
        Ok(Some(elsewhere))
    );
    assert_eq!(store.keyed(Partition(0), "another").await, Ok(None));
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
    assert_eq!(store.keyed(Partition(0), "schlüssel").await, Ok(None));
    done(&store, with_key(second, "schlüssel")).await;
    assert_eq!(
        store.keyed(Partition(0), "schlüssel").await,
        Ok(Some(second))
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
    assert_eq!(store.keyed(Partition(2), "key").await, Ok(None));
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

pub(crate) async fn rows_are_added_and_removed(store: Store) {
    let id = id(1, 1);
    let rows = |job| {
        (
            ready_row("default", job, id, job as u32),
            [b"cx".as_slice(), &[job as u8; 16]].concat(),
        )
    };
    let ((ready_1, index_1), (ready_2, index_2), (ready_3, index_3)) = (rows(1), rows(2), rows(3));
    let ready = added(vec![ready_1.clone(), ready_2.clone()]);
    let index = added(vec![index_2.clone(), index_1.clone()]);
    done(
        &store,
        create(
            id,
            Put {
                ready,
                index,
                ..Put::default()
            },
        ),
    )
    .await;
    let change = |add: &Row, remove: &Row| RowChange {
        add: vec![add.clone()],
        remove: vec![remove.clone()],
    };
    let (ready, index) = (change(&ready_3, &ready_1), change(&index_3, &index_1));
    done(
        &store,
        update(
            id,
            "first",
            "second",
            Put {
                ready,
                index,
                ..Put::default()
            },
        ),
    )
    .await;
    assert_eq!(
        all_rows(&store, RowSet::Ready).await,
        [ready_2.clone(), ready_3.clone()]
    );
    assert_eq!(
        all_rows(&store, RowSet::Index).await,
        [index_2.clone(), index_3.clone()]
    );
    // Removing what is gone and adding what is there changes nothing.
    let (ready, index) = (change(&ready_3, &ready_1), change(&index_3, &index_1));
    done(
        &store,
        update(
            id,
            "second",
            "third",
            Put {
                ready,
                index,
                ..Put::default()
            },
        ),
    )
    .await;
    assert_eq!(all_rows(&store, RowSet::Ready).await, [ready_2, ready_3]);
    assert_eq!(all_rows(&store, RowSet::Index).await, [index_2, index_3]);
}

pub(crate) async fn timers_and_expiries_move(store: Store) {
    // How a change says where they are before it: not at all, rightly, and wrongly.
    timers_and_expiries_move_from(&store, id(1, 3), |_| None).await;
    timers_and_expiries_move_from(&store, id(2, 3), Some).await;
    let elsewhere = |was: Times| Times {
        timer: was.timer.map(|_| micros(7)),
        expiry: was.expiry.map(|_| micros(8)),
    };
    timers_and_expiries_move_from(&store, id(3, 3), |was| Some(elsewhere(was))).await;
}

async fn timers_and_expiries_move_from(
    store: &Store,
    id: WorkflowId,
    says: impl Fn(Times) -> Option<Times>,
) {
    done(store, create(id, Put::default())).await;
    // What to do with the timer and the expiry, and where they are then.
    let table = [
        (Moved::Unchanged, Moved::Unchanged, None, None),
        (Moved::To(micros(50)), Moved::Unchanged, Some(50), None),
        (Moved::Unchanged, Moved::To(micros(60)), Some(50), Some(60)),
        (Moved::To(micros(40)), Moved::Unchanged, Some(40), Some(60)),
        (
            Moved::To(micros(45)),
            Moved::To(micros(60)),
            Some(45),
            Some(60),
        ),
        (
            Moved::Away,
            Moved::To(micros(u64::from(u32::MAX) << 20)),
            None,
            Some(u64::from(u32::MAX) << 20),
        ),
        (Moved::Away, Moved::Away, None, None),
    ];
    let mut times = Times::default();
    for (at, (timer, expiry, timer_at, expiry_at)) in table.into_iter().enumerate() {
        let from = if at == 0 {
            "first".to_owned()
        } else {
            at.to_string()
        };
        let put = Put {
            timer,
            expiry,
            was: says(times),
            ..Put::default()
        };
        done(store, update(id, &from, &(at + 1).to_string(), put)).await;
        times = Times {
            timer: timer_at.map(micros),
            expiry: expiry_at.map(micros),
        };
        for (which, expected) in [
            (Clockwork::Timers, times.timer),
            (Clockwork::Expiries, times.expiry),
        ] {
            let expected: Vec<_> = expected.map(|at| (id, at)).into_iter().collect();
            assert_eq!(
                due(store, which, 1 << 53).await,
                expected,
                "{which:?} after step {at}"
            );
            let rows: Vec<_> = expected.iter().map(|&(id, at)| due_row(at, id)).collect();
            assert_eq!(
                all_rows(store, RowSet::Due(which)).await,
                rows,
                "{which:?} after step {at}"
            );
        }
    }
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

pub(crate) async fn each_change_of_many_stands_alone(store: Store) {
    let ids: Vec<_> = (1..=4).map(|at| id(at, 1)).collect();
    let keyed = || Put {
        birth: Some(birth(Some("key"))),
        ..Put::default()
    };
    let applied = apply(
        &store,
        &[
            create(ids[0], keyed()),
            update(ids[1], "first", "second", everything(ids[1])),
            create(ids[2], Put::default()),
            create(ids[3], keyed()),
            create(ids[0], Put::default()),
        ],
    )
    .await;
    let expected = [
        Applied::Done,
        Applied::Conflict(None),
        Applied::Done,
        Applied::KeyTaken(ids[0]),
        conflict(meta("first")),
    ];
    assert_eq!(applied, expected);
    let there: Vec<_> = store
        .load(&ids)
        .await
        .unwrap()
        .iter()
        .map(Option::is_some)
        .collect();
    assert_eq!(there, [true, false, true, false]);
    assert_eq!(all_rows(&store, RowSet::Ready).await, Vec::<Row>::new());
}

pub(crate) async fn a_change_may_build_on_the_one_before(store: Store) {
    let id = id(1, 1);
    let job = |text| Put {
        jobs: vec![(JobIndex(0), meta(text))],
        ..Put::default()
    };
    let chain = [
        create(id, job("a")),
        update(id, "first", "second", job("b")),
        delete(id, "second", Delete::default()),
        create(id, Put::default()),
        update(id, "first", "third", job("c")),
    ];
    assert_eq!(apply(&store, &chain).await, vec![Applied::Done; 5]);
    let jobs = vec![(JobIndex(0), meta("c"))];
    assert_eq!(
        state(&store, id).await,
        Some(StoredState {
            meta: meta("third"),
            jobs,
            ..StoredState::default()
        })
    );
}

/// The state of a small workflow is one value, and a writer knows how it begins.
pub(crate) async fn small_and_other_workflows_change_together(store: Store) {
    let small = |millis: u64| WorkflowId::of_size(micros(millis * 1_000), Partition(1), true);
    let (a, b, large) = (small(1), small(2), id(3, 1));
    let whole = |text: &str, rest: &str| [meta(text), meta(rest)].concat();
    let put = |id, from: Option<&str>, value: Vec<u8>| {
        let change = from.map_or_else(
            || create(id, everything(id)),
            |from| update(id, from, "", Put::default()),
        );
        let Write::Put(put) = change.write else {
            unreachable!()
        };
        let write = Write::Put(Box::new(Put {
            meta: value,
            jobs: Vec::new(),
            ..*put
        }));
        Change {
            small: true,
            write,
            ..change
        }
    };
    let created = [
        put(a, None, whole("first", "a")),
        create(large, Put::default()),
        put(b, None, whole("first", "b")),
    ];
    assert_eq!(
        apply(&store, &created).await,
        [Applied::Done, Applied::Done, Applied::KeyTaken(a)]
    );
    assert_eq!(state(&store, b).await, None);
    assert_eq!(due(&store, Clockwork::Timers, 100).await, [(a, micros(70))]);
    let (first, second) = (whole("first", "a"), whole("second", "changed"));
    let told = |value: &Vec<u8>| {
        Applied::Conflict(Some(StoredState {
            meta: value.clone(),
            ..StoredState::default()
        }))
    };
    let changes = [
        update(large, "first", "second", Put::default()),
        put(a, Some("other"), second.clone()),
        put(b, Some("first"), second.clone()),
    ];
    assert_eq!(
        apply(&store, &changes).await,
        [Applied::Done, told(&first), Applied::Conflict(None)]
    );
    let changes = [
        put(a, Some("first"), second.clone()),
        put(a, None, second.clone()),
    ];
    assert_eq!(
        apply(&store, &changes).await,
        [Applied::Done, told(&second)]
    );
    assert_eq!(
        state(&store, a).await,
        Some(StoredState {
            meta: second,
            ..StoredState::default()
        })
    );
    let away = Delete {
        ready: vec![ready_row("default", 1, a, 1)],
        index: vec![
            index_row(Section::All, a),
            index_row(Section::Status(Status::Running), a),
        ],
        idempotency_key: Some("key".to_owned()),
    };
    let away = |from| Change {
        small: true,
        ..delete(a, from, away.clone())
    };
    assert!(matches!(
        apply(&store, &[away("first")]).await[..],
        [Applied::Conflict(Some(_))]
    ));
    done(&store, away("second")).await;
    assert_empty(&store, &[a]).await;
}

pub(crate) async fn no_change_is_no_work(store: Store) {
    assert_eq!(store.apply(Partition(0), &[]).await, Ok(Vec::new()));
}

pub(crate) async fn ten_thousand_jobs_fit_in_one_change(store: Store) {
    const JOBS: u32 = 10_000;
    let id = id(1, 2);
    let jobs: Vec<_> = (0..JOBS)
        .map(|job| (JobIndex(job), meta(&job.to_string())))
        .collect();
    let ready: Vec<_> = (0..JOBS)
        .map(|job| ready_row("default", 5, id, job))
        .collect();
    let results: Vec<_> = jobs
        .iter()
        .map(|(job, state)| (ResultField::Output(*job), state.clone()))
        .collect();
    let put = Put {
        jobs: jobs.clone(),
        results,
        ready: added(ready.clone()),
        ..Put::default()
    };
    done(&store, create(id, put)).await;
    assert_eq!(
        state(&store, id).await,
        Some(StoredState {
            meta: meta("first"),
            jobs: jobs.clone(),
            ..StoredState::default()
        })
    );
    assert_eq!(all_rows(&store, RowSet::Ready).await, ready);
    let fields: Vec<_> = jobs
        .iter()
        .map(|(job, _)| ResultField::Output(*job))
        .collect();
    let stored = self::results(&store, id, &fields).await;
    assert!(
        stored
            .iter()
            .zip(&jobs)
            .all(|(stored, (_, state))| stored.as_deref() == Some(state))
    );
    let conflict = apply(&store, &[create(id, Put::default())]).await.remove(0);
    let conflict = read_elsewhere(&store, id, conflict).await;
    let Applied::Conflict(Some(found)) = conflict else {
        panic!("no conflict")
    };
    assert_eq!(sorted(found).jobs, jobs);
    done(
        &store,
        delete(
            id,
            "first",
            Delete {
                ready,
                ..Delete::default()
            },
        ),
    )
    .await;
    assert_empty(&store, &[id]).await;
}

pub(crate) async fn many_changes_fit_in_one_call(store: Store) {
    let ids: Vec<_> = (1..=2_000).map(|at| id(at, 3)).collect();
    let index = |id| added(vec![index_row(Section::All, id)]);
    let changes: Vec<_> = ids
        .iter()
        .map(|&id| {
            create(
                id,
                Put {
                    index: index(id),
                    ..Put::default()
                },
            )
        })
        .collect();
    assert!(
        apply(&store, &changes)
            .await
            .iter()
            .all(|applied| *applied == Applied::Done)
    );
    assert!(store.load(&ids).await.unwrap().iter().all(Option::is_some));
    let rows: Vec<_> = ids.iter().map(|&id| index_row(Section::All, id)).collect();
    assert_eq!(all_rows(&store, RowSet::Index).await, rows);
}

pub(crate) async fn of_concurrent_changes_exactly_one_wins(store: Store) {
    let id = id(1, 0);
    done(&store, create(id, Put::default())).await;
    let rivals = (0..32).map(|rival: u64| {
        let store = store.clone();
        tokio::spawn(async move {
            let put = Put {
                ready: added(vec![ready_row("default", rival, id, 0)]),
                ..Put::default()
            };
            apply(&store, &[update(id, "first", &rival.to_string(), put)])
                .await
                .remove(0)
        })
    });
    let mut winners = Vec::new();
    for (rival, task) in rivals.collect::<Vec<_>>().into_iter().enumerate() {
        if task.await.unwrap() == Applied::Done {
            winners.push(rival);
        }
    }
    let [winner] = winners[..] else {
        panic!("winners: {winners:?}")
    };
    assert_eq!(
        state(&store, id).await.unwrap().meta,
        meta(&winner.to_string())
    );
    assert_eq!(
        all_rows(&store, RowSet::Ready).await,
        [ready_row("default", winner as u64, id, 0)]
    );
}

pub(crate) async fn concurrent_changes_of_different_workflows_all_apply(store: Store) {
    let tasks = (0..200).map(|at| {
        let store = store.clone();
        tokio::spawn(async move {
            let id = id(at + 1, (at % 4) as u16);
            let index = |id| added(vec![index_row(Section::All, id)]);
            done(
                &store,
                create(
                    id,
                    Put {
                        index: index(id),
                        ..Put::default()
                    },
                ),
            )
            .await;
            // What was acknowledged is read by everybody from then on.
            assert_eq!(
                state(&store, id).await.map(|state| state.meta),
                Some(meta("first"))
            );
            done(&store, update(id, "first", "second", Put::default())).await;
            assert_eq!(
                state(&store, id).await.map(|state| state.meta),
                Some(meta("second"))
            );
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    assert_eq!(all_rows(&store, RowSet::Index).await.len(), 200);
}
