//! What a store finds.

use tidegate_workflow::change::{Put, ResultField, RowChange, Stored, StoredState, TimerMove};
use tidegate_workflow::rows::{Row, Section, queue_rows};
use tidegate_workflow::{
    EncodedSummary, JobIndex, Order, Partition, Register, RowRange, RowSet, Status, Store,
    TimeIndex, WorkflowId, due_row,
};

use super::{
    PARTITIONS, count_all, create, depth_of_all, done, due_of_each, heads_of, id, index_row, meta,
    micros, ready_of_each, ready_row, update,
};

/// A workflow with rows in two sections.
async fn listed(store: &Store, id: WorkflowId, name: &str, status: Status) {
    let add = vec![
        index_row(Section::All, id),
        index_row(Section::Name(name, status), id),
    ];
    let put = Put {
        index: RowChange {
            add,
            remove: Vec::new(),
        },
        ..Put::default()
    };
    done(store, create(id, put)).await;
}

/// A workflow with a ready row for each (queue, since).
pub(super) async fn waiting(store: &Store, id: WorkflowId, rows: &[(&str, u64)]) -> Vec<Row> {
    let row =
        |(job, &(queue, since)): (usize, &(&str, u64))| ready_row(queue, since, id, job as u32);
    let add: Vec<_> = rows.iter().enumerate().map(row).collect();
    let ready = RowChange {
        add: add.clone(),
        remove: Vec::new(),
    };
    let put = Put {
        ready,
        ..Put::default()
    };
    done(store, create(id, put)).await;
    add
}

async fn page(
    store: &Store,
    partition: u16,
    span: &RowRange,
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
    let there = id(1, 0);
    let missing = id(2, 0);
    done(&store, create(there, Put::default())).await;
    assert_eq!(store.load(&[missing]).await, Ok(vec![None]));
    assert_eq!(heads_of(&store, &[missing]).await, Ok(vec![None]));
    assert_eq!(store.graphs(&[missing]).await, Ok(vec![None]));
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
    let span = RowRange::section(Section::All.prefix());
    assert_eq!(store.load(&[]).await, Ok(Vec::new()));
    assert_eq!(heads_of(&store, &[]).await, Ok(Vec::new()));
    assert_eq!(store.results(&[]).await, Ok(Vec::new()));
    assert_eq!(ready_of_each(&store, &[], 10).await, Ok(Vec::new()));
    assert_eq!(
        ready_of_each(&store, &[queue_rows("default")], 10).await,
        Ok(vec![vec![Vec::new(); 4]])
    );
    assert_eq!(
        due_of_each(&store, TimeIndex::Timers, 1 << 53, 10).await,
        Ok(Vec::new())
    );
    assert_eq!(store.page(&[], Order::NewestFirst, 10).await, Vec::new());
    assert_eq!(page(&store, 0, &span, Order::NewestFirst, 10).await, []);
    assert_eq!(count_all(&store, &[]).await, Ok(Vec::new()));
    assert_eq!(count_all(&store, &[span]).await, Ok(vec![0]));
    assert_eq!(depth_of_all(&store, &[]).await, Ok(Vec::new()));
    assert_eq!(store.workflow_by_key(Partition(0), "key").await, Ok(None));
    assert_eq!(store.register(Register::Queues).await, Ok(Vec::new()));
}

pub(crate) async fn loads_and_heads_keep_the_order_asked_for(store: Store) {
    let first = id(1, 3);
    let second = id(2, 0);
    let missing = id(3, 1);
    let jobs = vec![(JobIndex(1), meta("job"))];
    let put = Put {
        jobs: jobs.clone(),
        ..Put::default()
    };
    done(&store, create(first, put)).await;
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
        Some(EncodedSummary {
            meta: meta(text),
            label: meta("label"),
        })
    };
    assert_eq!(
        heads_of(&store, &asked).await.unwrap(),
        [head("second"), None, head("first"), head("second")]
    );
}

pub(crate) async fn pages_run_in_both_orders(store: Store) {
    let ids: Vec<_> = (1..=5).map(|at| id(at, 1)).collect();
    for &id in &ids {
        listed(&store, id, "daily", Status::Running).await;
    }
    let elsewhere = id(9, 2);
    listed(&store, elsewhere, "daily", Status::Running).await;
    let all = RowRange::section(Section::All.prefix());
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
            let span = RowRange {
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
        let between = RowRange {
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
        let span = RowRange::section(Section::Name(name, status).prefix());
        assert_eq!(
            page(&store, 0, &span, Order::NewestFirst, 10).await,
            [id(at, 0)],
            "{name} {status:?}"
        );
        let tagged = RowRange::section(Section::Tag(name, status).prefix());
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
    let spans = spans.map(|section| RowRange::section(section.prefix()));
    assert_eq!(count_all(&store, &spans).await, Ok(vec![10, 3, 0, 7]));
}

pub(crate) async fn a_check_reads_every_row_in_pieces(store: Store) {
    let mut expected = Vec::new();
    for at in 1..=25 {
        let id = id(at, 1);
        let ready = ready_row("default", at, id, 0);
        let index = index_row(Section::All, id);
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
        let put = Put {
            timer: TimerMove::To(moment),
            expiry: TimerMove::To(moment),
            ..put
        };
        done(&store, create(id, put)).await;
        expected.push([ready, index, due_row(moment, id), due_row(moment, id)]);
    }
    let put = Put {
        timer: TimerMove::To(micros(1)),
        ..Put::default()
    };
    done(&store, create(id(99, 2), put)).await;
    let sets = [
        RowSet::Ready,
        RowSet::Index,
        RowSet::Due(TimeIndex::Timers),
        RowSet::Due(TimeIndex::Expiries),
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
        store
            .set_entry(Register::Queues, name, value)
            .await
            .unwrap();
    }
    store
        .set_entry(Register::Names, "daily", Some(""))
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
        .set_entry(Register::Queues, "b", Some("paused"))
        .await
        .unwrap();
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    store
        .add_entries(
            Register::Queues,
            &["a", "b", "ü", "a"].map(|name| pair(name, "")),
            micros(1),
        )
        .await
        .unwrap();
    store
        .add_entries(Register::Queues, &[], micros(1))
        .await
        .unwrap();
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
            let (next, some) = store.scan_states(partition, from).await.unwrap().unwrap();
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
