//! What a store finds.

use tidegate_workflow::change::{Delete, Moved, Put, ResultField, RowChange, Stored, StoredState};
use tidegate_workflow::rows::{ReadyEntry, Row, Section, queue_rows};
use tidegate_workflow::{
    Clockwork, Format, Head, JobIndex, Order, Partition, Register, RowSet, Span, Status, Store,
    WorkflowId, due_row,
};

use super::{
    PARTITIONS, all_rows, apply, count_all, create, delete, depth_of_all, done, due_of_each,
    heads_of, id, index_row, meta, micros, ready_of_each, ready_row, update,
};

/// A workflow with rows in two sections.
async fn listed(store: &Store, id: WorkflowId, name: &str, status: Status) {
    let add = vec![
        index_row(Section::All, id),
        index_row(Section::Name(name, status), id),
    ];
    done(
        store,
        create(
            id,
            Put {
                index: RowChange {
                    add,
                    remove: Vec::new(),
                },
                ..Put::default()
            },
        ),
    )
    .await;
}

/// A workflow with a ready row for each (queue, since).
async fn waiting(store: &Store, id: WorkflowId, rows: &[(&str, u64)]) -> Vec<Row> {
    let row =
        |(job, &(queue, since)): (usize, &(&str, u64))| ready_row(queue, since, id, job as u32);
    let add: Vec<_> = rows.iter().enumerate().map(row).collect();
    let ready = RowChange {
        add: add.clone(),
        remove: Vec::new(),
    };
    done(
        store,
        create(
            id,
            Put {
                ready,
                ..Put::default()
            },
        ),
    )
    .await;
    add
}

async fn page(
    store: &Store,
    partition: u16,
    span: &Span,
    order: Order,
    limit: usize,
) -> Vec<WorkflowId> {
    store
        .page(&[(Partition(partition), span.clone())], order, limit)
        .await
        .remove(0)
        .unwrap()
}

pub(crate) async fn what_is_not_there_is_none(store: Store) {
    let (there, missing) = (id(1, 0), id(2, 0));
    done(&store, create(there, Put::default())).await;
    assert_eq!(store.load(&[missing]).await, Ok(vec![None]));
    assert_eq!(heads_of(&store, &[missing]).await, Ok(vec![None]));
    let output = ResultField::Output(JobIndex(0));
    let wanted = [
        (missing, vec![output, ResultField::Error(JobIndex(0), 3)]),
        (there, vec![output]),
    ];
    assert_eq!(
        store.results(&wanted).await,
        Ok(vec![vec![None, None], vec![None]])
    );
}

pub(crate) async fn an_empty_store_answers_everything(store: Store) {
    assert_eq!(store.partitions(), PARTITIONS);
    let span = Span::of(Section::All.prefix());
    assert_eq!(store.load(&[]).await, Ok(Vec::new()));
    assert_eq!(heads_of(&store, &[]).await, Ok(Vec::new()));
    assert_eq!(store.results(&[]).await, Ok(Vec::new()));
    assert_eq!(ready_of_each(&store, &[], 10).await, Ok(Vec::new()));
    assert_eq!(
        ready_of_each(&store, &[queue_rows("default")], 10).await,
        Ok(vec![vec![Vec::new(); 4]])
    );
    assert_eq!(
        due_of_each(&store, Clockwork::Timers, 1 << 53, 10).await,
        Ok(Vec::new())
    );
    assert_eq!(store.page(&[], Order::NewestFirst, 10).await, Vec::new());
    assert_eq!(page(&store, 0, &span, Order::NewestFirst, 10).await, []);
    assert_eq!(count_all(&store, &[]).await, Ok(Vec::new()));
    assert_eq!(count_all(&store, &[span]).await, Ok(vec![0]));
    assert_eq!(depth_of_all(&store, &[]).await, Ok(Vec::new()));
    assert_eq!(store.keyed(Partition(0), "key").await, Ok(None));
    assert_eq!(store.register(Register::Queues).await, Ok(Vec::new()));
}

pub(crate) async fn loads_and_heads_keep_the_order_asked_for(store: Store) {
    let (first, second, missing) = (id(1, 3), id(2, 0), id(3, 1));
    let jobs = vec![(JobIndex(1), meta("job"))];
    done(
        &store,
        create(
            first,
            Put {
                jobs: jobs.clone(),
                ..Put::default()
            },
        ),
    )
    .await;
    done(&store, create(second, Put::default())).await;
    done(&store, update(second, "first", "second", Put::default())).await;
    let stored = |text, jobs| {
        Some(Stored {
            graph: meta("graph"),
            state: StoredState {
                meta: meta(text),
                jobs,
                ..StoredState::default()
            },
        })
    };
    let asked = [second, missing, first, second];
    let expected = [
        stored("second", vec![]),
        None,
        stored("first", jobs),
        stored("second", vec![]),
    ];
    assert_eq!(store.load(&asked).await.unwrap(), expected);
    let head = |text| {
        Some(Head {
            meta: meta(text),
            label: meta("label"),
        })
    };
    assert_eq!(
        heads_of(&store, &asked).await.unwrap(),
        [head("second"), None, head("first"), head("second")]
    );
}

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
    let (first, second) = (id(1, 0), id(2, 0));
    let added = |add: Vec<Row>| Put {
        ready: RowChange {
            add,
            remove: Vec::new(),
        },
        ..Put::default()
    };
    done(
        &store,
        create(first, added(vec![row("a", first, 1), row("ab", first, 2)])),
    )
    .await;
    check("before anybody asked").await;
    done(
        &store,
        create(
            second,
            added(vec![row("a", second, 1), row("b", second, 2)]),
        ),
    )
    .await;
    check("added").await;
    let ready = RowChange {
        add: vec![row("a", second, 1), row("a", second, 3)],
        remove: vec![row("b", second, 9)],
    };
    done(
        &store,
        update(
            second,
            "first",
            "second",
            Put {
                ready,
                ..Put::default()
            },
        ),
    )
    .await;
    check("what is there is added, and what is not there removed").await;
    let all = |id, rows| {
        delete(
            id,
            "first",
            Delete {
                ready: rows,
                ..Delete::default()
            },
        )
    };
    done(
        &store,
        all(first, vec![row("a", first, 1), row("ab", first, 2)]),
    )
    .await;
    check("removed with its workflow").await;
    assert_eq!(
        apply(&store, &[all(second, vec![row("a", second, 1)])])
            .await
            .len(),
        1
    );
    check("refused").await;
}

pub(crate) async fn ready_depth_counts_lanes_with_limits(store: Store) {
    let lane = |key: usize| format!("a\0h\u{1}[[{key},\"all\"]]\0").into_bytes();
    let row = |key, id, job| {
        let entry = ReadyEntry::read(&ready_row("a", 1, id, job)).unwrap();
        let entry = ReadyEntry {
            handler: "h".to_owned(),
            limit_key: format!("[[{key},\"all\"]]"),
            ..entry
        };
        let row: Row = entry.row(Format::Fourth);
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
        done(
            &store,
            create(
                id,
                Put {
                    ready,
                    ..Put::default()
                },
            ),
        )
        .await;
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
        done(
            &store,
            create(
                id(at, 1),
                Put {
                    timer: Moved::To(micros(timer)),
                    ..Put::default()
                },
            ),
        )
        .await;
    }
    done(
        &store,
        create(
            id(5, 2),
            Put {
                timer: Moved::To(micros(100)),
                ..Put::default()
            },
        ),
    )
    .await;
    done(
        &store,
        create(
            id(6, 2),
            Put {
                expiry: Moved::To(micros(100)),
                ..Put::default()
            },
        ),
    )
    .await;
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
        let found = due_of_each(&store, Clockwork::Timers, until, limit)
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
    let expiries = due_of_each(&store, Clockwork::Expiries, 1_000, 10).await;
    assert_eq!(expiries, Ok(vec![(id(6, 2), micros(100))]));
}

pub(crate) async fn pages_run_in_both_orders(store: Store) {
    let ids: Vec<_> = (1..=5).map(|at| id(at, 1)).collect();
    for &id in &ids {
        listed(&store, id, "daily", Status::Running).await;
    }
    let elsewhere = id(9, 2);
    listed(&store, elsewhere, "daily", Status::Running).await;
    let all = Span::of(Section::All.prefix());
    let newest: Vec<_> = ids.iter().rev().copied().collect();
    assert_eq!(page(&store, 1, &all, Order::NewestFirst, 10).await, newest);
    assert_eq!(page(&store, 1, &all, Order::OldestFirst, 10).await, ids);
    assert_eq!(
        page(&store, 1, &all, Order::NewestFirst, 2).await,
        newest[..2]
    );
    assert_eq!(page(&store, 1, &all, Order::OldestFirst, 2).await, ids[..2]);
    assert_eq!(page(&store, 1, &all, Order::OldestFirst, 0).await, []);
    let spans = [
        (Partition(2), all.clone()),
        (Partition(0), all.clone()),
        (Partition(1), all),
    ];
    let pages = store
        .page(&spans, Order::NewestFirst, 1)
        .await
        .into_iter()
        .collect::<Result<Vec<_>, _>>()
        .unwrap();
    assert_eq!(pages, [vec![elsewhere], vec![], vec![newest[0]]]);
}

pub(crate) async fn spans_begin_inclusive_and_end_exclusive(store: Store) {
    let ids: Vec<_> = (1..=5).map(|at| id(at, 0)).collect();
    for &id in &ids {
        listed(&store, id, "daily", Status::Failed).await;
    }
    for prefix in [
        Section::All.prefix(),
        Section::Name("daily", Status::Failed).prefix(),
    ] {
        for (from, to, expected) in [
            (None, None, 0..5),
            (Some(1), None, 1..5),
            (None, Some(3), 0..3),
            (Some(1), Some(3), 1..3),
            (Some(2), Some(2), 2..2),
            (Some(3), Some(1), 3..3),
        ] {
            let span = Span {
                prefix: prefix.clone(),
                from: from.map(|at: usize| ids[at]),
                to: to.map(|at: usize| ids[at]),
            };
            let expected = &ids[expected];
            assert_eq!(
                page(&store, 0, &span, Order::OldestFirst, 10).await,
                expected,
                "{from:?} {to:?}"
            );
            assert_eq!(
                count_all(&store, &[span]).await,
                Ok(vec![expected.len() as u64]),
                "{from:?} {to:?}"
            );
        }
        let between = Span {
            prefix,
            from: Some(id(2, 3)),
            to: Some(WorkflowId::first_at(micros(4_000))),
        };
        assert_eq!(
            page(&store, 0, &between, Order::NewestFirst, 10).await,
            [ids[2]]
        );
    }
}

pub(crate) async fn sections_do_not_run_into_each_other(store: Store) {
    let named = [
        (1, "a", Status::Running),
        (2, "ab", Status::Running),
        (3, "a", Status::Failed),
        (4, "b", Status::Running),
    ];
    for (at, name, status) in named {
        listed(&store, id(at, 0), name, status).await;
    }
    for (at, name, status) in named {
        let span = Span::of(Section::Name(name, status).prefix());
        assert_eq!(
            page(&store, 0, &span, Order::NewestFirst, 10).await,
            [id(at, 0)],
            "{name} {status:?}"
        );
        let tagged = Span::of(Section::Tag(name, status).prefix());
        assert_eq!(
            count_all(&store, &[span, tagged]).await,
            Ok(vec![1, 0]),
            "{name} {status:?}"
        );
    }
}

pub(crate) async fn counts_are_over_all_partitions(store: Store) {
    for at in 0..10 {
        let status = if at < 3 {
            Status::Failed
        } else {
            Status::Running
        };
        listed(&store, id(at + 1, (at % 4) as u16), "daily", status).await;
    }
    let spans = [
        Section::All,
        Section::Name("daily", Status::Failed),
        Section::Name("daily", Status::Paused),
        Section::Name("daily", Status::Running),
    ];
    let spans = spans.map(|section| Span::of(section.prefix()));
    assert_eq!(count_all(&store, &spans).await, Ok(vec![10, 3, 0, 7]));
}

pub(crate) async fn a_check_reads_every_row_in_pieces(store: Store) {
    let mut expected = Vec::new();
    for at in 1..=25 {
        let id = id(at, 1);
        let (ready, index) = (ready_row("default", at, id, 0), index_row(Section::All, id));
        // Several workflows share a moment, so a piece may end among equals.
        let moment = micros(at / 10);
        let added = |row: &Row| RowChange {
            add: vec![row.clone()],
            remove: Vec::new(),
        };
        let put = Put {
            ready: added(&ready),
            index: added(&index),
            ..Put::default()
        };
        done(
            &store,
            create(
                id,
                Put {
                    timer: Moved::To(moment),
                    expiry: Moved::To(moment),
                    ..put
                },
            ),
        )
        .await;
        expected.push([ready, index, due_row(moment, id), due_row(moment, id)]);
    }
    done(
        &store,
        create(
            id(99, 2),
            Put {
                timer: Moved::To(micros(1)),
                ..Put::default()
            },
        ),
    )
    .await;
    let sets = [
        RowSet::Ready,
        RowSet::Index,
        RowSet::Due(Clockwork::Timers),
        RowSet::Due(Clockwork::Expiries),
    ];
    for (at, set) in sets.into_iter().enumerate() {
        let mut found: Vec<Row> = Vec::new();
        loop {
            let piece = store
                .rows(Partition(1), set, found.last().map(Vec::as_slice), 4)
                .await
                .unwrap();
            if piece.is_empty() {
                break;
            }
            assert!(piece.len() <= 4);
            found.extend(piece);
        }
        let expected: Vec<_> = expected.iter().map(|rows| rows[at].clone()).collect();
        assert_eq!(found, expected, "{set:?}");
    }
}

pub(crate) async fn registers_hold_the_latest_value_by_name(store: Store) {
    let entered = [
        ("b", Some("paused")),
        ("a", Some("")),
        ("ü", Some("x")),
        ("b", Some("")),
        ("ü", None),
        ("none", None),
    ];
    for (name, value) in entered {
        store.enter(Register::Queues, name, value).await.unwrap();
    }
    store
        .enter(Register::Names, "daily", Some(""))
        .await
        .unwrap();
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(
        store.register(Register::Queues).await,
        Ok(vec![pair("a", ""), pair("b", "")])
    );
    assert_eq!(
        store.register(Register::Names).await,
        Ok(vec![pair("daily", "")])
    );
}

/// A server that had read the register before another one paused the queue wrote its own entry over it.
pub(crate) async fn new_names_leave_what_others_wrote(store: Store) {
    store
        .enter(Register::Queues, "b", Some("paused"))
        .await
        .unwrap();
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    store
        .add(
            Register::Queues,
            &["a", "b", "ü", "a"].map(|name| pair(name, "")),
            micros(1),
        )
        .await
        .unwrap();
    store.add(Register::Queues, &[], micros(1)).await.unwrap();
    assert_eq!(
        store.register(Register::Queues).await,
        Ok(vec![pair("a", ""), pair("b", "paused"), pair("ü", "")])
    );
    assert_eq!(store.register(Register::Names).await, Ok(vec![]));
}

pub(crate) async fn sizes_are_those_of_graphs(store: Store) {
    done(&store, create(id(1, 0), Put::default())).await;
    let graph = store.load(&[id(1, 0)]).await.unwrap()[0]
        .as_ref()
        .unwrap()
        .graph
        .len() as u64;
    assert_eq!(store.sizes(&[id(2, 1), id(1, 0)]).await, Ok(vec![0, graph]));
    assert_eq!(store.sizes(&[]).await, Ok(vec![]));
}

pub(crate) async fn states_are_found_without_rows(store: Store) {
    let ids = [id(1, 0), id(2, 0), id(1, 3)];
    for id in ids {
        done(&store, create(id, Put::default())).await;
    }
    let mut found = [Vec::new(), Vec::new()];
    for (partition, found) in [Partition(0), Partition(3)].into_iter().zip(&mut found) {
        let mut from = 0;
        loop {
            let (next, some) = store.states(partition, from).await.unwrap().unwrap();
            found.extend(some);
            if next == 0 {
                break;
            }
            from = next;
        }
        found.sort_unstable();
        found.dedup();
    }
    assert_eq!(found, [vec![ids[0], ids[1]], vec![ids[2]]]);
}
