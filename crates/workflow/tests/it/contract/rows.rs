//! What becomes of rows and times.

use tidegate_workflow::change::{Put, RowChange, RowTimes, TimerMove};
use tidegate_workflow::rows::Row;
use tidegate_workflow::{RowSet, Store, TimeIndex, WorkflowId, due_row};

use super::{all_rows, create, done, due, id, micros, ready_row, update};

pub(crate) fn added(add: Vec<Row>) -> RowChange {
    RowChange {
        remove: Vec::new(),
        add,
    }
}

pub(crate) async fn rows_are_added_and_removed(store: Store) {
    let id = id(1, 1);
    let rows = |job| {
        (
            ready_row("default", job, id, job as u32),
            [b"cx".as_slice(), &[job as u8; 16]].concat(),
        )
    };
    let (ready_1, index_1) = rows(1);
    let (ready_2, index_2) = rows(2);
    let (ready_3, index_3) = rows(3);
    let ready = added(vec![ready_1.clone(), ready_2.clone()]);
    let index = added(vec![index_2.clone(), index_1.clone()]);
    let put = Put {
        ready,
        index,
        ..Put::default()
    };
    done(&store, create(id, put)).await;
    let change = |add: &Row, remove: &Row| RowChange {
        add: vec![add.clone()],
        remove: vec![remove.clone()],
    };
    let ready = change(&ready_3, &ready_1);
    let index = change(&index_3, &index_1);
    let put = Put {
        ready,
        index,
        ..Put::default()
    };
    done(&store, update(id, "first", "second", put)).await;
    assert_eq!(
        all_rows(&store, RowSet::Ready).await,
        [ready_2.clone(), ready_3.clone()]
    );
    assert_eq!(
        all_rows(&store, RowSet::Index).await,
        [index_2.clone(), index_3.clone()]
    );
    // Removing what is gone and adding what is there changes nothing.
    let ready = change(&ready_3, &ready_1);
    let index = change(&index_3, &index_1);
    let put = Put {
        ready,
        index,
        ..Put::default()
    };
    done(&store, update(id, "second", "third", put)).await;
    assert_eq!(all_rows(&store, RowSet::Ready).await, [ready_2, ready_3]);
    assert_eq!(all_rows(&store, RowSet::Index).await, [index_2, index_3]);
}

pub(crate) async fn timers_and_expiries_move(store: Store) {
    // How a change says where they are before it: not at all, rightly, and wrongly.
    timers_and_expiries_move_from(&store, id(1, 3), |_| None).await;
    timers_and_expiries_move_from(&store, id(2, 3), Some).await;
    let elsewhere = |was: RowTimes| RowTimes {
        timer: was.timer.map(|_| micros(7)),
        expiry: was.expiry.map(|_| micros(8)),
    };
    timers_and_expiries_move_from(&store, id(3, 3), |was| Some(elsewhere(was))).await;
}

async fn timers_and_expiries_move_from(
    store: &Store,
    id: WorkflowId,
    says: impl Fn(RowTimes) -> Option<RowTimes>,
) {
    done(store, create(id, Put::default())).await;
    let to = |at| TimerMove::To(micros(at));
    let late = u64::from(u32::MAX) << 20;
    // What to do with the timer and the expiry, and where they are then.
    let table = [
        (TimerMove::Unchanged, TimerMove::Unchanged, None, None),
        (to(50), TimerMove::Unchanged, Some(50), None),
        (TimerMove::Unchanged, to(60), Some(50), Some(60)),
        (to(40), TimerMove::Unchanged, Some(40), Some(60)),
        (to(45), to(60), Some(45), Some(60)),
        (TimerMove::Remove, to(late), None, Some(late)),
        (TimerMove::Remove, TimerMove::Remove, None, None),
    ];
    let mut times = RowTimes::default();
    for (at, (timer, expiry, timer_at, expiry_at)) in table.into_iter().enumerate() {
        let from = if at == 0 {
            "first".to_owned()
        } else {
            at.to_string()
        };
        let put = Put {
            timer,
            expiry,
            stored_times: says(times),
            ..Put::default()
        };
        done(store, update(id, &from, &(at + 1).to_string(), put)).await;
        times = RowTimes {
            timer: timer_at.map(micros),
            expiry: expiry_at.map(micros),
        };
        for (which, expected) in [
            (TimeIndex::Timers, times.timer),
            (TimeIndex::Expiries, times.expiry),
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
