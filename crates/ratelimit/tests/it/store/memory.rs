//! The memory store forgets what it must, and gives memory back.

use tidegate_ratelimit::Code::{Ok as Pass, OverLimit};
use tidegate_ratelimit::{Limiter, MemoryBounds, MemoryStore, Store, Timestamp};

use crate::fixture::{
    NOW, check_at, descriptor, limiter_with, options, outline, refund, request, with_hits,
};

const LIMITS: &str = "
domain: test-domain
descriptors:
  - {key: minute, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: hour, rate_limit: {unit: hour, requests_per_unit: 10}}
";

fn store(keys: usize) -> (MemoryStore, Limiter) {
    bounded(MemoryBounds {
        keys,
        ..MemoryBounds::default()
    })
}

fn bounded(bounds: MemoryBounds) -> (MemoryStore, Limiter) {
    let store = MemoryStore::new(bounds);
    (
        store.clone(),
        limiter_with(Store::Memory(store), LIMITS, options()),
    )
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
    for (now, dropped, left) in [
        (NOW, 0, 2_000),
        (NOW + 45, 0, 2_000),
        (NOW + 46, 1_000, 1_000),
        (NOW + 46, 0, 1_000),
    ] {
        assert_eq!(
            (store.purge(second(now)), store.len()),
            (dropped, left),
            "at {now}"
        );
    }
    assert_eq!(
        hit(&limiter, NOW + 46, "hour=7").await,
        8,
        "the hour goes on"
    );
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
async fn a_full_store_forgets_of_the_fullest_window() {
    for (fullest, other) in [("minute", "hour"), ("hour", "minute")] {
        let (store, limiter) = store(10);
        for value in 0..8 {
            hit(&limiter, NOW, &format!("{fullest}={value}")).await;
        }
        for value in 0..4 {
            hit(&limiter, NOW, &format!("{other}={value}")).await;
        }
        assert_eq!((store.len(), store.evictions()), (10, 2));
        for value in 0..4 {
            assert_eq!(
                hit(&limiter, NOW, &format!("{other}={value}")).await,
                8,
                "{other} is remembered"
            );
        }
        for value in 8..30 {
            hit(&limiter, NOW, &format!("{fullest}={value}")).await;
        }
        assert_eq!(
            (store.len(), store.evictions()),
            (10, 24),
            "then {fullest} makes room for {fullest}"
        );
    }
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
        let look = check_at(
            &limiter,
            NOW,
            &request(&[with_hits(&format!("minute={value}"), 0)]),
        )
        .await;
        match outline(&look.response.unwrap())[0] {
            (Pass, 9) => remembered += 1,
            other => assert_eq!(other, (Pass, 10)),
        }
    }
    assert_eq!(remembered, store.len());
}

#[tokio::test]
async fn the_bound_in_bytes_holds_and_is_used() {
    const BYTES: usize = 3 << 20;
    for value_length in [1, 30, 200, 1_000] {
        let (store, limiter) = bounded(MemoryBounds {
            keys: usize::MAX,
            bytes: BYTES,
        });
        let mut most = 0;
        for value in 0..60_000 {
            let unit = ["minute", "hour"][value / 7 % 2];
            assert_eq!(
                hit(&limiter, NOW, &format!("{unit}={value:0value_length$}")).await,
                9
            );
            if value % 64 == 0 {
                most = most.max(store.bytes());
            }
        }
        assert!(most <= BYTES, "{most} bytes with values of {value_length}");
        assert!(
            most >= BYTES / 2 && store.evictions() > 0,
            "only {most} bytes with values of {value_length}"
        );
        store.purge(second(NOW + 3_600));
        assert_eq!(store.bytes(), 0);
    }
}

#[tokio::test]
async fn long_keys_are_told_apart_and_take_little_room() {
    let (store, limiter) = store(1_000);
    let long = "x".repeat(100_000);
    for expected in [9, 8] {
        for value in 0..100 {
            assert_eq!(
                hit(&limiter, NOW, &format!("minute={long}{value}")).await,
                expected
            );
        }
    }
    assert_eq!((store.len(), store.evictions()), (100, 0));
    assert!(store.bytes() < 100 * 100, "{} bytes", store.bytes());
    let mixed = request(&[
        with_hits(&format!("minute={long}7"), 0),
        refund(&format!("minute={long}7"), 1),
    ]);
    let looked = check_at(&limiter, NOW, &mixed).await.response.unwrap();
    assert_eq!(outline(&looked), [(Pass, 8), (Pass, 9)]);
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
    assert_eq!(
        outline(&check_at(&limiter, NOW, &eleven).await.response.unwrap()),
        [(OverLimit, 0)]
    );
    assert_eq!(hit(&limiter, NOW, "minute=x").await, 0);
    assert_eq!(store.len(), 1);
}

#[tokio::test]
async fn a_refund_makes_no_counter() {
    let (store, limiter) = store(10);
    check_at(&limiter, NOW, &request(&[refund("hour=x", 3)]))
        .await
        .response
        .expect("an answer");
    assert!(store.is_empty());
}
