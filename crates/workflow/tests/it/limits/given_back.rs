//! What was taken for jobs and is given back, because they were not begun.

use super::*;

on_every_store! {
    jobs_that_were_not_begun_give_back_what_was_taken_for_them
}

mod shared {
    use super::*;

    on_every_shared_store! {
        what_is_taken_in_vain_is_given_back
        a_job_that_ended_at_another_server_gives_nothing_back
    }
}

async fn what_is_taken_in_vain_is_given_back(store: Store) {
    let windows = Windows::new(&[("vendor", 10)]);
    let engine = windows.server(&store).await;
    let other = windows.server(&store).await;
    put(&engine, units("a", 4)).await;
    // The other one knows these jobs, too, and this one takes them first.
    assert_eq!(claimed(&other, 1, 1).await.len(), 1);
    assert_eq!(claimed(&engine, 100, 1).await.len(), 3);
    assert_eq!(claimed(&other, 100, 1).await.len(), 0);
    // Who claims and leaves before the answer gives all back.
    put(&engine, units("a", 2)).await;
    let leases = engine
        .lease_except(&claim(100), &[], ClaimMode::Immediate, at(2))
        .await
        .unwrap();
    assert_eq!(windows.taken("vendor/tenant=a"), 6);
    drop(leases);
    until(|| windows.taken("vendor/tenant=a") == 4).await;
    engine.close().await;
}

/// Workers take short jobs ahead. Those that they gave back unrun stayed spent: 400 units for 213 calls.
async fn jobs_that_were_not_begun_give_back_what_was_taken_for_them(store: Store) {
    let windows = Windows::new(&[("vendor", 10)]);
    let engine = windows.server(&store).await;
    let taken = || windows.taken("vendor/tenant=a");
    let id = put(&engine, units("a", 4)).await;
    let ahead = claimed(&engine, 4, 1).await;
    let order: Vec<_> = ahead.iter().map(|job| job.lease.job).collect();
    assert_eq!(taken(), 4);
    let later = crate::support::new(units("a", 1), StartMode::Now);
    engine.create(vec![later], at(2)).await.remove(0).unwrap();
    let not_begun =
        async |job: &Claimed, seconds| report(&engine, job.lease, Outcome::NotBegun, seconds).await;
    for job in &ahead[..3] {
        assert!(!not_begun(job, 3).await.unwrap().already);
    }
    until(|| taken() == 1).await;
    // The same report again gives nothing back, nor does a job that was begun.
    assert!(not_begun(&ahead[0], 3).await.unwrap().already);
    let pause = Duration::ZERO;
    report(&engine, ahead[3].lease, Outcome::Returned { pause }, 3)
        .await
        .unwrap();
    // They have their places again, before what came later and the one that was given back, and no attempt was counted.
    let again = claimed(&engine, 3, 4).await;
    assert_eq!(
        again
            .iter()
            .map(|job| (job.lease.job, job.attempt))
            .collect::<Vec<_>>(),
        [(order[0], 1), (order[1], 1), (order[2], 1)]
    );
    assert_eq!(taken(), 4);
    // A job that was cancelled before it was begun gives back, too. One that has ended does not.
    succeed(&engine, again[0].lease, 5).await.unwrap();
    engine.act(id, Action::Cancel, at(5)).await.unwrap();
    assert!(not_begun(&again[0], 6).await.is_err());
    assert!(not_begun(&again[1], 6).await.is_err());
    until(|| taken() == 3).await;
    // The window in which they were taken is over.
    windows.turn();
    assert!(not_begun(&again[2], 7).await.is_err());
    engine.close().await;
    assert_eq!(taken(), 0);
}

/// A job that had succeeded gave back what was taken for it, when its end was reported to one server and then to another that it was not begun.
async fn a_job_that_ended_at_another_server_gives_nothing_back(store: Store) {
    let windows = Windows::new(&[("vendor", 10)]);
    let one = windows.server(&store).await;
    let other = windows.server(&store).await;
    put(&one, units("a", 1)).await;
    let lease = claimed(&one, 1, 1).await[0].lease;
    succeed(&other, lease, 2).await.unwrap();
    assert!(report(&one, lease, Outcome::NotBegun, 3).await.is_err());
    one.close().await;
    other.close().await;
    assert_eq!(windows.taken("vendor/tenant=a"), 1);
}
