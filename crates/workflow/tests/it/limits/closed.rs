//! Limits without room, and when they have some again.

use super::*;

/// A claim that had waited for long closed limits for as much less. They opened before their windows turned, and all who waited asked in vain.
#[tokio::test]
async fn a_limit_stays_closed_until_its_window_turns_however_long_the_claim_took() {
    let windows = Windows::new(&[("vendor", 0)]);
    windows.set_left(Duration::from_millis(800));
    let engine = windows.server(&crate::support::simulated().await.0).await;
    put(&engine, units("a", 1)).await;
    put(&engine, units("b", 1)).await;
    windows.set_delay(Duration::from_millis(500));
    assert_eq!(engine.claim(&claim(1), at(1)).await.unwrap().len(), 0);
    assert_eq!(windows.calls(), 2, "first one key, then the other");
    // The first window has turned, which ended 800 ms after the claim began; the other, which ends 500 ms later, has not.
    assert_eq!(
        engine
            .claim(&claim(1), at(2) + Duration::from_millis(100))
            .await
            .unwrap()
            .len(),
        0
    );
    assert!(windows.calls() <= 3, "both were asked");
}

#[tokio::test]
async fn where_there_is_no_room_for_a_job_that_needs_much_there_is_some_for_one_that_needs_little()
{
    let windows = Windows::new(&[("vendor", 5)]);
    let engine = windows.server(&crate::support::simulated().await.0).await;
    put(&engine, units_each("a", 3, 3)).await;
    put(&engine, units_each("a", 9, 1)).await;
    // One more than fits into a window never runs, and keeps nobody else waiting.
    put(&engine, units_each("a", 1, 6)).await;
    let mut all = 0;
    for _ in 0..4 {
        all += claimed(&engine, 20, 1).await.len();
    }
    assert_eq!(windows.taken("vendor/tenant=a"), 5);
    assert!(all >= 3, "{all} jobs had units");
}

#[tokio::test]
async fn jobs_of_one_set_with_another_number_do_not_wait_for_each_other() {
    let windows = Windows::new(&[]);
    let engine = windows.server(&crate::support::simulated().await.0).await;
    put(&engine, running("a", 5, 1)).await;
    put(&engine, running("a", 9, 4)).await;
    let mut all = 0;
    for _ in 0..4 {
        all += claimed(&engine, 20, 1).await.len();
    }
    assert_eq!(all, 4);
}

#[tokio::test]
async fn however_many_keys_come_those_that_wait_have_their_turn() {
    let windows = Windows::new(&[("vendor", 1_000)]);
    let engine = windows.server(&crate::support::simulated().await.0).await;
    put(&engine, units("old", 20)).await;
    let mut old = 0;
    for at in 0..40 {
        put(&engine, units(&format!("new{at}"), 1)).await;
        put(&engine, units(&format!("anew{at}"), 1)).await;
        old += of(&claimed(&engine, 2, 1).await, "old");
    }
    assert!(old >= 2, "{old} of 80 jobs were of the key that waits");
}

#[tokio::test]
async fn all_who_wait_are_woken_when_several_places_are_free() {
    const PLACES: usize = 4;
    let windows = Windows::new(&[]);
    let engine = windows.server(&crate::support::simulated().await.0).await;
    put(&engine, running("a", 2 * PLACES, PLACES as u32)).await;
    let first = claimed(&engine, PLACES, 1).await;
    assert_eq!(
        (first.len(), claimed(&engine, 1, 1).await.len()),
        (PLACES, 0)
    );
    let wait = async |engine: Engine| {
        let queues = ["default".to_owned()];
        loop {
            let arrival = engine.arrival(&queues);
            if !engine.claim(&claim(1), at(2)).await.unwrap().is_empty() {
                return;
            }
            arrival.await;
        }
    };
    let waiting: Vec<_> = (0..PLACES)
        .map(|_| tokio::spawn(wait(engine.clone())))
        .collect();
    tokio::task::yield_now().await;
    let reports = first.iter().map(|job| Report {
        lease: job.lease,
        outcome: crate::support::success("1"),
    });
    let (reported, _) = engine.report(reports.collect(), None, at(2)).await;
    assert!(reported.iter().all(Result::is_ok));
    for waiter in waiting {
        tokio::time::timeout(Duration::from_secs(10), waiter)
            .await
            .expect("it has a job")
            .unwrap();
    }
}
