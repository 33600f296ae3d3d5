//! Places in limits: who gets one, for how long, and what becomes of them when nobody gives them back.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use tidegate_workflow::{
    JobIndex, LeaseRef, Partition, PermitExtension, PermitGrant, PermitHolders, PermitRequest,
    ServerId, Store, Timestamp, WorkflowId,
};
use tokio::task::JoinSet;

/// Long enough for a test.
const LONG: Duration = Duration::from_secs(3_600);
/// Over at once; its place is held for a second more.
const SHORT: Duration = Duration::from_millis(10);

const SERVER: ServerId = ServerId(1);

/// The clock of the server.
fn now() -> Timestamp {
    static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    Timestamp::from_micros(1_795_000_000_000_000) + BEGIN.elapsed()
}

pub(crate) fn lease(number: u32) -> LeaseRef {
    let workflow = WorkflowId::new(Timestamp::from_micros(1), Partition(0), number.into());
    LeaseRef {
        workflow,
        job: JobIndex(number),
        token: u64::from(number) + 1,
    }
}

fn leases(numbers: impl IntoIterator<Item = u32>) -> Vec<LeaseRef> {
    numbers.into_iter().map(lease).collect()
}

async fn hold(
    store: &Store,
    set: &str,
    most: u32,
    numbers: impl IntoIterator<Item = u32>,
    length: Duration,
) -> PermitGrant {
    let hold = PermitRequest {
        limit: set,
        permits: most,
        leases: &leases(numbers),
    };
    store
        .acquire_permits(&[hold], SERVER, now(), length)
        .await
        .remove(0)
        .unwrap()
}

async fn release(store: &Store, set: &str, numbers: impl IntoIterator<Item = u32>) -> Vec<u32> {
    let places: Vec<_> = numbers
        .into_iter()
        .map(|number| (set, lease(number)))
        .collect();
    store
        .release_permits(&places, SERVER, now())
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect()
}

async fn holders(store: &Store, set: &str) -> HashSet<LeaseRef> {
    let PermitHolders { number, first } = store
        .permit_holders(&[set], now(), 100_000)
        .await
        .remove(0)
        .unwrap();
    assert_eq!(number as usize, first.len());
    assert!(first.is_sorted_by_key(|(_, until)| *until));
    first.into_iter().map(|(lease, _)| lease).collect()
}

/// Asks for the only place of a set until it is free.
async fn await_place(store: &Store, set: &str, number: u32) {
    let begin = Instant::now();
    while hold(store, set, 1, [number], LONG).await.granted == 0 {
        assert!(
            begin.elapsed() < Duration::from_secs(30),
            "no place in {set}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) async fn places_go_to_the_first_up_to_the_most(store: Store) {
    let set = "vendor\u{1}a {b}";
    let two = PermitGrant {
        granted: 2,
        free: 1,
        next_expiry: None,
    };
    assert_eq!(hold(&store, set, 3, 0..2, LONG).await, two);
    let PermitGrant {
        granted,
        free,
        next_expiry: Some(next),
    } = hold(&store, set, 3, 1..6, LONG).await
    else {
        panic!("it is full")
    };
    assert_eq!((granted, free), (2, 0), "one of them had a place");
    assert!(
        next <= LONG + Duration::from_secs(1) && next > LONG / 2,
        "{next:?}"
    );
    assert_eq!(hold(&store, set, 3, [9], LONG).await.granted, 0);
    assert_eq!(
        hold(&store, set, 3, [2, 9, 0], LONG).await.granted,
        1,
        "nobody goes before one who got none"
    );
    assert_eq!(
        hold(&store, set, 2, [2, 1, 0, 9], LONG).await.granted,
        3,
        "who has a place keeps it"
    );
    assert_eq!(
        holders(&store, set).await,
        leases(0..3).into_iter().collect()
    );
    assert_eq!(hold(&store, "other", 1, [9], LONG).await.granted, 1);
    let none = PermitGrant {
        granted: 0,
        free: 0,
        next_expiry: None,
    };
    assert_eq!(hold(&store, "none", 0, [9], LONG).await, none);
    let one = store.permit_holders(&[set, "absent"], now(), 1).await;
    let [Ok(one), Ok(absent)] = &one[..] else {
        panic!("{one:?}")
    };
    assert_eq!(
        (one.number, one.first.len(), absent),
        (3, 1, &PermitHolders::default())
    );
    let number_alone = PermitHolders {
        number: 3,
        first: Vec::new(),
    };
    let read = store.permit_holders(&[set], now(), 0).await;
    assert_eq!(read, [Ok(number_alone)]);
}

pub(crate) async fn released_places_are_free(store: Store) {
    let set = "set";
    assert_eq!(hold(&store, set, 4, 0..9, LONG).await.granted, 4);
    assert_eq!(release(&store, set, [1, 3, 8]).await, [2; 3]);
    assert_eq!(release(&store, set, [1]).await, [2], "again");
    assert_eq!(hold(&store, set, 4, 4..9, LONG).await.granted, 2);
    assert_eq!(
        holders(&store, set).await,
        leases([0, 2, 4, 5]).into_iter().collect()
    );
    let places = [("set", lease(0)), ("absent", lease(0)), ("set", lease(2))];
    assert_eq!(
        store.release_permits(&places, SERVER, now()).await,
        [Ok(2), Ok(0), Ok(2)]
    );
}

pub(crate) async fn many_sets_in_one_call_stand_alone(store: Store) {
    let names: Vec<String> = (0..40).map(|number| format!("set {number}")).collect();
    let wanted = leases(0..3);
    let holds: Vec<_> = (0..)
        .zip(&names)
        .map(|(number, set)| PermitRequest {
            limit: set,
            permits: number % 5,
            leases: &wanted,
        })
        .collect();
    let held = store.acquire_permits(&holds, SERVER, now(), LONG).await;
    for (hold, held) in holds.iter().zip(held) {
        assert_eq!(held.unwrap().granted, hold.permits.min(3) as usize);
    }
    let places: Vec<_> = names.iter().map(|set| (set.as_str(), lease(0))).collect();
    let extended = store.extend_permits(&places, now(), LONG).await;
    let kept = |number: u32| {
        if number.is_multiple_of(5) {
            PermitExtension::Expired
        } else {
            PermitExtension::Extended
        }
    };
    assert!(
        extended
            .into_iter()
            .eq((0..40).map(|number| Ok(kept(number))))
    );
    for (number, left) in (0..).zip(store.release_permits(&places, SERVER, now()).await) {
        assert_eq!(left, Ok((number % 5).clamp(1, 3) - 1));
    }
    assert!(
        store
            .acquire_permits(&[], SERVER, now(), LONG)
            .await
            .is_empty()
    );
    assert!(store.extend_permits(&[], now(), LONG).await.is_empty());
    assert!(store.release_permits(&[], SERVER, now()).await.is_empty());
    assert!(store.permit_holders(&[], now(), 1).await.is_empty());
}

pub(crate) async fn a_place_is_held_as_long_as_its_lease_and_ends_after_it(store: Store) {
    let length = Duration::from_millis(500);
    let begin = Instant::now();
    for (set, number) in [("over", 0), ("extended", 1), ("shortened", 2)] {
        assert_eq!(hold(&store, set, 1, [number], length).await.granted, 1);
    }
    let PermitGrant {
        granted: 0,
        free: 0,
        next_expiry: Some(next),
    } = hold(&store, "over", 1, [9], length).await
    else {
        panic!("it is full")
    };
    assert!(next <= length + Duration::from_secs(1), "{next:?}");
    let extended = [("extended", lease(1)), ("shortened", lease(2))];
    assert_eq!(
        store.extend_permits(&extended, now(), LONG).await,
        vec![Ok(PermitExtension::Extended); 2]
    );
    assert_eq!(
        store.extend_permits(&extended[1..], now(), SHORT).await,
        [Ok(PermitExtension::Extended)]
    );
    await_place(&store, "over", 9).await;
    assert!(begin.elapsed() >= length);
    for set in ["extended", "shortened"] {
        assert_eq!(hold(&store, set, 1, [9], LONG).await.granted, 0, "{set}");
    }
    let gone = [("over", lease(0)), ("over", lease(9)), ("never", lease(0))];
    let extended = [
        Ok(PermitExtension::Expired),
        Ok(PermitExtension::Extended),
        Ok(PermitExtension::Expired),
    ];
    assert_eq!(store.extend_permits(&gone, now(), LONG).await, extended);
    assert_eq!(
        holders(&store, "over").await,
        leases([9]).into_iter().collect(),
        "never more than there are"
    );
    assert_eq!(release(&store, "over", [9]).await, [0]);
    assert_eq!(
        store.extend_permits(&gone, now(), LONG).await,
        vec![Ok(PermitExtension::Expired); 3]
    );
}

pub(crate) async fn ten_thousand_places_fit_in_one_call(store: Store) {
    let all = leases(0..10_000);
    assert_eq!(
        hold(&store, "set", 9_000, 0..10_000, LONG).await.granted,
        9_000
    );
    let places: Vec<_> = all.iter().map(|lease| ("set", *lease)).collect();
    let extended = store.extend_permits(&places, now(), LONG).await;
    let yes = extended
        .iter()
        .filter(|extended| **extended == Ok(PermitExtension::Extended))
        .count();
    assert_eq!((extended.len(), yes), (10_000, 9_000));
    assert_eq!(holders(&store, "set").await.len(), 9_000);
    assert_eq!(release(&store, "set", 0..8_999).await, vec![1; 8_999]);
}

/// Each of many tasks takes places, prolongs them, gives them back or forgets them, as workers that die do.
pub(crate) async fn there_are_never_more_holders_than_places(store: Store) {
    const MOST: u32 = 5;
    let at_work = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for task in 0..12u32 {
        let store = store.clone();
        let at_work = Arc::clone(&at_work);
        tasks.spawn(async move {
            let mut random = fastrand::Rng::with_seed(task.into());
            for round in 0..80 {
                let first = (task * 100 + round) * 4;
                let dies = random.u32(..60) == 0;
                let length = if dies { SHORT } else { LONG };
                let held = hold(&store, "set", MOST, first..first + random.u32(1..4), length).await;
                let granted = held.granted as u32;
                let before = at_work.fetch_add(held.granted, SeqCst);
                assert!(
                    before + held.granted <= MOST as usize,
                    "{before} and {held:?}"
                );
                tokio::task::yield_now().await;
                at_work.fetch_sub(held.granted, SeqCst);
                if dies {
                    continue;
                }
                if granted > 0 && random.bool() {
                    let extended = store
                        .extend_permits(&[("set", lease(first))], now(), LONG)
                        .await;
                    assert_eq!(extended, [Ok(PermitExtension::Extended)]);
                }
                let left = release(&store, "set", first..first + granted).await;
                assert!(left.iter().all(|left| *left < MOST), "{left:?}");
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    await_place(&store, "set", 9).await;
    assert_eq!(
        hold(&store, "set", MOST, 10..20, LONG).await.granted,
        MOST as usize - 1
    );
}
