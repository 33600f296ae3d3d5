//! Many changes in one call, and at the same time.

use tidegate_workflow::change::{Applied, Change, Delete, Put, ResultField, StoredState, Write};
use tidegate_workflow::rows::{Row, Section};
use tidegate_workflow::{JobIndex, Partition, RowSet, Status, Store, TimeIndex, WorkflowId};

use super::rows::added;
use super::writes::{everything, read_elsewhere, results};
use super::{
    all_rows, apply, assert_empty, birth, conflict, create, delete, done, due, id, index_row, meta,
    micros, ready_row, sorted, state, update,
};

pub(crate) async fn each_change_of_many_stands_alone(store: Store) {
    let ids: Vec<_> = (1..=4).map(|at| id(at, 1)).collect();
    let keyed = || Put {
        creation: Some(birth(Some("key"))),
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

/// A change of a small workflow to a value: its creation, or from what its meta begins with.
fn put(id: WorkflowId, from: Option<&str>, value: Vec<u8>) -> Change {
    let change = match from {
        None => create(id, everything(id)),
        Some(from) => update(id, from, "", Put::default()),
    };
    let Write::Put(put) = change.write else {
        unreachable!()
    };
    let put = Put {
        meta: value,
        jobs: Vec::new(),
        ..*put
    };
    Change {
        small: true,
        write: Write::Put(Box::new(put)),
        ..change
    }
}

/// The state of a small workflow is one value, and a writer knows how it begins.
pub(crate) async fn small_and_other_workflows_change_together(store: Store) {
    let small = |millis: u64| WorkflowId::with_size(micros(millis * 1_000), Partition(1), true);
    let a = small(1);
    let b = small(2);
    let large = id(3, 1);
    let whole = |text: &str, rest: &str| [meta(text), meta(rest)].concat();
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
    assert_eq!(due(&store, TimeIndex::Timers, 100).await, [(a, micros(70))]);
    let first = whole("first", "a");
    let second = whole("second", "changed");
    let of_value = |value: &Vec<u8>| StoredState {
        meta: value.clone(),
        ..StoredState::default()
    };
    let told = |value| Applied::Conflict(Some(of_value(value)));
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
    assert_eq!(state(&store, a).await, Some(of_value(&second)));
    deleted_from(&store, a, "first", "second").await;
}

/// A small workflow is deleted by a writer that knows how its state begins, and by no other.
async fn deleted_from(store: &Store, workflow: WorkflowId, other: &str, known: &str) {
    let rows = Delete {
        ready: vec![ready_row("default", 1, workflow, 1)],
        index: vec![
            index_row(Section::All, workflow),
            index_row(Section::Status(Status::Running), workflow),
        ],
        idempotency_key: Some("key".to_owned()),
    };
    let delete_from = |from| Change {
        small: true,
        ..delete(workflow, from, rows.clone())
    };
    assert!(matches!(
        apply(store, &[delete_from(other)]).await[..],
        [Applied::Conflict(Some(_))]
    ));
    done(store, delete_from(known)).await;
    assert_empty(store, &[workflow]).await;
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
            let put = Put {
                index: index(id),
                ..Put::default()
            };
            done(&store, create(id, put)).await;
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
