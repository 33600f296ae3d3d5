//! What is found in queues and in sets ordered by time.

use tidegate_workflow::change::{Delete, Put, RowChange, TimerMove};
use tidegate_workflow::rows::{ReadyJob, Row, queue_rows};
use tidegate_workflow::{Partition, RowSet, Store, TimeIndex};

use super::reads::waiting;
use super::rows::added;
use super::{
    all_rows, apply, create, delete, depth_of_all, done, due_of_each, id, micros, ready_of_each,
    ready_row, update,
};

pub(crate) async fn ready_rows_come_lowest_first_by_prefix_and_partition(store: Store) {
    let mixed = waiting(
        &store,
        id(1, 0),
        &[("a", 9), ("a", 3), ("ab", 1), ("b", 2), ("a", 500)],
    )
    .await;
    let other = waiting(&store, id(2, 2), &[("a", 4)]).await;
    let rows = |at: &[usize]| at.iter().map(|&at| mixed[at].clone()).collect::<Vec<_>>();
    let by_partition =
        |first: &[usize], third: &[Vec<u8>]| vec![rows(first), vec![], third.to_vec(), vec![]];
    // Prefixes, limit; the rows of each prefix by partition.
    let table = [
        (
            vec![queue_rows("a")],
            10,
            vec![by_partition(&[1, 0, 4], &other)],
        ),
        (
            vec![queue_rows("a"), queue_rows("ab")],
            2,
            vec![by_partition(&[1, 0], &other), by_partition(&[2], &[])],
        ),
        (
            vec![queue_rows("b"), queue_rows("c")],
            1,
            vec![by_partition(&[3], &[]), by_partition(&[], &[])],
        ),
        (
            vec![Vec::new()],
            10,
            vec![by_partition(&[1, 0, 4, 2, 3], &other)],
        ),
        (vec![mixed[0].clone()], 10, vec![by_partition(&[0], &[])]),
        (vec![queue_rows("a")], 0, vec![by_partition(&[], &[])]),
    ];
    for (prefixes, limit, expected) in table {
        assert_eq!(
            ready_of_each(&store, &prefixes, limit).await,
            Ok(expected),
            "{prefixes:?} {limit}"
        );
    }
}

/// A file keeps the numbers in memory, so they must not differ from the rows after whatever change.
pub(crate) async fn ready_depth_follows_every_change(store: Store) {
    let queues = ["a", "ab", "b"];
    let prefixes: Vec<Row> = queues.iter().map(|queue| queue_rows(queue)).collect();
    let check = async |when: &str| {
        let rows = all_rows(&store, RowSet::Ready).await;
        let number =
            |prefix: &Row| rows.iter().filter(|row| row.starts_with(prefix)).count() as u64;
        let depth = depth_of_all(&store, &prefixes).await.unwrap();
        let told: Vec<u64> = depth.iter().map(|(number, _)| *number).collect();
        assert_eq!(
            told,
            prefixes.iter().map(number).collect::<Vec<_>>(),
            "{when}"
        );
    };
    let row = |queue: &str, id, job| ready_row(queue, 1, id, job);
    let first = id(1, 0);
    let second = id(2, 0);
    let with_rows = |add: Vec<Row>| Put {
        ready: added(add),
        ..Put::default()
    };
    let of_first = vec![row("a", first, 1), row("ab", first, 2)];
    done(&store, create(first, with_rows(of_first.clone()))).await;
    check("before anybody asked").await;
    let of_second = vec![row("a", second, 1), row("b", second, 2)];
    done(&store, create(second, with_rows(of_second))).await;
    check("added").await;
    let ready = RowChange {
        add: vec![row("a", second, 1), row("a", second, 3)],
        remove: vec![row("b", second, 9)],
    };
    let put = Put {
        ready,
        ..Put::default()
    };
    done(&store, update(second, "first", "second", put)).await;
    check("what is there is added, and what is not there removed").await;
    let removal = |id, ready| {
        let rows = Delete {
            ready,
            ..Delete::default()
        };
        delete(id, "first", rows)
    };
    done(&store, removal(first, of_first)).await;
    check("removed with its workflow").await;
    let refused = apply(&store, &[removal(second, vec![row("a", second, 1)])]).await;
    assert_eq!(refused.len(), 1);
    check("refused").await;
}

pub(crate) async fn ready_depth_counts_lanes_with_limits(store: Store) {
    let lane = |key: usize| format!("a\0h\u{1}[[{key},\"all\"]]\0").into_bytes();
    let row = |key, id, job| {
        let entry = ReadyJob::read(&ready_row("a", 1, id, job)).unwrap();
        let entry = ReadyJob {
            handler: "h".to_owned(),
            limit_key: format!("[[{key},\"all\"]]"),
            ..entry
        };
        let row: Row = entry.row();
        assert!(row.starts_with(&lane(key)));
        row
    };
    // Few keys, and more than are asked for one by one.
    for keys in [3, 20] {
        let id = id(keys as u64, 1);
        let rows: Vec<Row> = (0..keys)
            .flat_map(|key| (0..=key as u32 % 3).map(move |job| (key, job)))
            .map(|(key, job)| row(key, id, job))
            .collect();
        let ready = RowChange {
            add: rows.clone(),
            remove: Vec::new(),
        };
        let put = Put {
            ready,
            ..Put::default()
        };
        done(&store, create(id, put)).await;
        let prefixes: Vec<Row> = (0..keys).map(lane).chain([queue_rows("a")]).collect();
        let depth = depth_of_all(&store, &prefixes).await.unwrap();
        let all = all_rows(&store, RowSet::Ready).await;
        for (prefix, (number, _)) in prefixes.iter().zip(depth) {
            assert_eq!(
                number,
                all.iter().filter(|row| row.starts_with(prefix)).count() as u64,
                "{prefix:?}"
            );
        }
    }
}

pub(crate) async fn ready_depth_counts_over_all_partitions(store: Store) {
    let first = waiting(&store, id(1, 0), &[("a", 9), ("a", 3), ("b", 1)]).await;
    let second = waiting(&store, id(2, 3), &[("a", 4), ("ab", 1)]).await;
    let depth = depth_of_all(
        &store,
        &[queue_rows("a"), queue_rows("c"), queue_rows("ab")],
    )
    .await
    .unwrap();
    let firsts = vec![first[1].clone(), second[0].clone()];
    assert_eq!(
        depth,
        [(3, firsts), (0, vec![]), (1, vec![second[1].clone()])]
    );
}

pub(crate) async fn due_workflows_come_earliest_first_up_to_the_limit_of_each_partition(
    store: Store,
) {
    for (at, timer) in [(1, 500), (2, 300), (3, 400), (4, 300)] {
        let put = Put {
            timer: TimerMove::To(micros(timer)),
            ..Put::default()
        };
        done(&store, create(id(at, 1), put)).await;
    }
    let put = Put {
        timer: TimerMove::To(micros(100)),
        ..Put::default()
    };
    done(&store, create(id(5, 2), put)).await;
    let put = Put {
        expiry: TimerMove::To(micros(100)),
        ..Put::default()
    };
    done(&store, create(id(6, 2), put)).await;
    let timers =
        [(2, 300), (4, 300), (3, 400), (1, 500)].map(|(at, timer)| (id(at, 1), micros(timer)));
    for (until, limit, in_first, in_second) in [
        (99, 10, 0, 0),
        (100, 10, 0, 1),
        (300, 10, 2, 1),
        (1_000, 3, 3, 1),
        (1_000, 1, 1, 1),
        (1_000, 10, 4, 1),
    ] {
        let found = due_of_each(&store, TimeIndex::Timers, until, limit)
            .await
            .unwrap();
        let of = |partition| {
            found
                .iter()
                .copied()
                .filter(move |(id, _)| id.partition() == Partition(partition))
        };
        assert_eq!(
            of(1).collect::<Vec<_>>(),
            timers[..in_first],
            "{until} {limit}"
        );
        assert_eq!(
            of(2).collect::<Vec<_>>(),
            vec![(id(5, 2), micros(100)); in_second],
            "{until} {limit}"
        );
        assert_eq!(found.len(), in_first + in_second);
    }
    let expiries = due_of_each(&store, TimeIndex::Expiries, 1_000, 10).await;
    assert_eq!(expiries, Ok(vec![(id(6, 2), micros(100))]));
}
