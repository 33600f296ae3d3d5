//! The memory store forgets what it must, and gives memory back.

use tidegate_ratelimit::Code::{Ok as Pass, OverLimit};
use tidegate_ratelimit::{Limiter, MemoryStore, Store, Timestamp};

use crate::fixture::{NOW, check_at, descriptor, limiter_with, options, outline, refund, request, with_hits};

const LIMITS: &str = "
domain: test-domain
descriptors:
  - {key: minute, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: hour, rate_limit: {unit: hour, requests_per_unit: 10}}
";

fn store(max_keys: usize) -> (MemoryStore, Limiter) {
    let store = MemoryStore::new(max_keys);
    (store.clone(), limiter_with(Store::Memory(store), LIMITS, options()))
}

fn second(second: u64) -> Timestamp {
    Timestamp(second * 1_000_000)
}

async fn hit(limiter: &Limiter, at: u64, entries: &str) -> u32 {
    let checked = check_at(limiter, at, &request(&[descriptor(entries)])).await;
    outline(&checked.response.expect("an answer"))[0].1
}

#[tokio::test]
async fn windows_that_are_over_are_dropped_as_a_whole() {
    let (store, limiter) = store(1_000_000);
    for value in 0..1_000 {
        hit(&limiter, NOW, &format!("minute={value}")).await;
        hit(&limiter, NOW, &format!("hour={value}")).await;
    }
    for (now, dropped, left) in [(NOW, 0, 2_000), (NOW + 45, 0, 2_000), (NOW + 46, 1_000, 1_000), (NOW + 46, 0, 1_000)]
    {
        assert_eq!((store.purge(second(now)), store.len()), (dropped, left), "at {now}");
    }
    assert_eq!(hit(&limiter, NOW + 46, "hour=7").await, 8, "the hour goes on");
    assert_eq!(store.purge(second(NOW + 100_000)), 1_000);
    assert!(store.is_empty());
    assert_eq!(store.evictions(), 0);
}

#[tokio::test]
async fn a_full_store_forgets_passed_windows_first() {
    let (store, limiter) = store(10);
    for value in 0..5 {
        hit(&limiter, NOW, &format!("minute={value}")).await;
        hit(&limiter, NOW, &format!("hour={value}")).await;
    }
    hit(&limiter, NOW + 60, "minute=new").await;
    assert_eq!((store.len(), store.evictions()), (6, 0));
}

#[tokio::test]
async fn a_full_store_forgets_the_window_that_ends_soonest() {
    let (store, limiter) = store(10);
    for value in 0..5 {
        hit(&limiter, NOW, &format!("minute={value}")).await;
        hit(&limiter, NOW, &format!("hour={value}")).await;
    }
    for value in 5..8 {
        hit(&limiter, NOW, &format!("hour={value}")).await;
    }
    assert_eq!((store.len(), store.evictions()), (10, 3));
    for value in 0..8 {
        assert_eq!(hit(&limiter, NOW, &format!("hour={value}")).await, 8, "hours are all remembered");
    }
    for value in 8..30 {
        hit(&limiter, NOW, &format!("hour={value}")).await;
    }
    assert_eq!((store.len(), store.evictions()), (10, 25), "then hours make room for hours");
}

#[tokio::test]
async fn the_bound_holds_under_a_flood_and_what_is_left_is_right() {
    let (store, limiter) = store(5_000);
    for value in 0..50_000 {
        assert_eq!(hit(&limiter, NOW, &format!("minute={value}")).await, 9);
    }
    assert!(store.len() <= 5_000, "{}", store.len());
    assert_eq!(store.len() as u64 + store.evictions(), 50_000);
    let mut remembered = 0;
    for value in 0..50_000 {
        let look = check_at(&limiter, NOW, &request(&[with_hits(&format!("minute={value}"), 0)])).await;
        match outline(&look.response.unwrap())[0] {
            (Pass, 9) => remembered += 1,
            other => assert_eq!(other, (Pass, 10)),
        }
    }
    assert_eq!(remembered, store.len());
}

#[tokio::test]
async fn long_keys_count_by_their_length() {
    let (store, limiter) = store(1_000);
    let long = "x".repeat(100_000);
    for value in 0..100 {
        hit(&limiter, NOW, &format!("minute={long}{value}")).await;
    }
    assert_eq!(store.len(), 2, "1,000 keys of 256 bytes are room for two of 100,000");
    let huge = "y".repeat(1_000_000);
    assert_eq!(hit(&limiter, NOW, &format!("minute={huge}")).await, 9);
    assert_eq!(hit(&limiter, NOW, &format!("minute={huge}")).await, 8, "a single key always fits");
}

#[tokio::test]
async fn looks_and_refunds_leave_nothing_behind() {
    let (store, limiter) = store(1_000);
    let asked = request(&[with_hits("minute=x", 0), refund("minute=y", 3)]);
    check_at(&limiter, NOW, &asked).await.response.unwrap();
    assert!(store.is_empty());
}

#[tokio::test]
async fn a_store_for_no_keys_still_counts_one() {
    let (store, limiter) = store(0);
    let eleven = request(&[with_hits("minute=x", 11)]);
    assert_eq!(outline(&check_at(&limiter, NOW, &eleven).await.response.unwrap()), [(OverLimit, 0)]);
    assert_eq!(hit(&limiter, NOW, "minute=x").await, 0);
    assert_eq!(store.len(), 1);
}
