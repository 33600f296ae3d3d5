//! Counters known to be over their limit are not asked for again.

use tidegate_ratelimit::Code::{Ok as Pass, OverLimit};
use tidegate_ratelimit::{Descriptor, Limiter, Options, OverLimitKeys, Override};

use crate::fixture::{
    NOW, check_at, configuration, descriptor, limiter_with, memory, numbers, options, outline,
    refund, request, with_hits,
};
use crate::store::for_every_store;
use crate::units::{Job, take_at};

const LIMITS: &str = "
domain: test-domain
descriptors:
  - {key: ten, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: twenty, rate_limit: {unit: hour, requests_per_unit: 20}}
";

fn cached() -> Options {
    Options {
        local_cache_bytes: 1,
        ..options()
    }
}

/// Asks, and returns code, remaining and tally of the first descriptor.
async fn ask(limiter: &Limiter, second: u64, asked: Descriptor) -> (bool, u32, [u64; 7]) {
    let checked = check_at(limiter, second, &request(&[asked])).await;
    let status = checked.response.expect("an answer").statuses.remove(0);
    (
        status.code == Pass,
        status.remaining,
        numbers(&checked.facts.tallies[0]),
    )
}

#[tokio::test]
async fn a_counter_over_its_limit_is_answered_without_the_store() {
    for_every_store(async |store| {
        let limiter = limiter_with(store.clone(), LIMITS, cached());
        assert_eq!(
            ask(&limiter, NOW, with_hits("ten=x", 10)).await,
            (true, 0, [10, 0, 2, 10, 0, 0, 0])
        );
        assert_eq!(
            ask(&limiter, NOW, with_hits("ten=x", 2)).await,
            (false, 0, [2, 2, 0, 0, 0, 0, 0])
        );
        assert_eq!(
            ask(&limiter, NOW, with_hits("ten=x", 3)).await,
            (false, 0, [3, 3, 0, 0, 3, 0, 0])
        );
        // The window's next turn has another counter.
        assert_eq!(
            ask(&limiter, NOW + 46, with_hits("ten=x", 1)).await,
            (true, 9, [1, 0, 0, 1, 0, 0, 0])
        );

        // The store has not seen the 3 hits.
        let uncached = limiter_with(store, LIMITS, options());
        assert_eq!(ask(&uncached, NOW, refund("ten=x", 3)).await.1, 1);
        let stats = limiter.local_cache_stats().unwrap();
        assert_eq!(
            (
                stats.hit_count,
                stats.miss_count,
                stats.lookup_count,
                stats.entry_count
            ),
            (1, 3, 4, 1)
        );
        assert_eq!(uncached.local_cache_stats(), None);
    })
    .await;
}

#[tokio::test]
async fn the_cache_is_shared_by_the_limiters_of_all_cores() {
    let limiter = limiter_with(memory(), LIMITS, cached());
    ask(&limiter, NOW, with_hits("ten=x", 11)).await;
    let other = limiter.with_store(memory());
    assert_eq!(
        ask(&other, NOW, descriptor("ten=x")).await,
        (false, 0, [1, 1, 0, 0, 1, 0, 0])
    );
}

#[tokio::test]
async fn shadow_mode_passes_what_the_cache_knows() {
    for_every_store(async |store| {
        let limiter = limiter_with(store, LIMITS, cached());
        ask(&limiter, NOW, with_hits("shadow=x", 11)).await;
        assert_eq!(
            ask(&limiter, NOW, with_hits("shadow=x", 3)).await,
            (true, 0, [3, 3, 0, 0, 3, 3, 0])
        );
    })
    .await;
}

#[tokio::test]
async fn a_look_over_the_limit_is_remembered_too() {
    let store = memory();
    ask(
        &limiter_with(store.clone(), LIMITS, options()),
        NOW,
        with_hits("ten=x", 11),
    )
    .await;
    let limiter = limiter_with(store, LIMITS, cached());
    assert_eq!(
        ask(&limiter, NOW, with_hits("ten=x", 0)).await,
        (false, 0, [0; 7])
    );
    assert_eq!(
        ask(&limiter, NOW, descriptor("ten=x")).await,
        (false, 0, [1, 1, 0, 0, 1, 0, 0])
    );
}

#[tokio::test]
async fn a_refund_reaches_the_store_and_clears_the_cache() {
    for_every_store(async |store| {
        let limiter = limiter_with(store, LIMITS, cached());
        ask(&limiter, NOW, with_hits("ten=x", 12)).await;
        assert_eq!(
            ask(&limiter, NOW, refund("ten=x", 5)).await,
            (true, 3, [0, 0, 0, 0, 0, 0, 5])
        );
        assert_eq!(
            ask(&limiter, NOW, descriptor("ten=x")).await,
            (true, 2, [1, 0, 0, 1, 0, 0, 0])
        );
    })
    .await;
}

#[tokio::test]
async fn a_cached_counter_stops_the_others_from_being_charged() {
    for_every_store(async |store| {
        let stop = Options {
            over_limit_keys: OverLimitKeys::StopIncrement,
            ..cached()
        };
        let limiter = limiter_with(store, LIMITS, stop);
        ask(&limiter, NOW, with_hits("ten=x", 11)).await;
        let both = request(&[descriptor("ten=x"), with_hits("twenty=x", 5)]);
        let checked = check_at(&limiter, NOW, &both).await;
        assert_eq!(
            outline(&checked.response.unwrap()),
            [(OverLimit, 0), (Pass, 20)]
        );
        assert_eq!(numbers(&checked.facts.tallies[1]), [5, 0, 0, 5, 0, 0, 0]);
    })
    .await;
}

/// envoyproxy/ratelimit pull request 1230: what was over its limit once was refused until its window ended, here the hour, whatever others
/// gave back.
#[tokio::test]
async fn a_refund_at_another_server_is_noticed_within_ten_seconds() {
    for_every_store(async |store| {
        let [here, there] = [
            limiter_with(store.clone(), LIMITS, cached()),
            limiter_with(store, LIMITS, cached()),
        ];
        assert_eq!(
            ask(&here, NOW, with_hits("twenty=x", 25)).await,
            (false, 0, [25, 5, 4, 0, 0, 0, 0])
        );
        assert_eq!(ask(&there, NOW, refund("twenty=x", 10)).await.1, 5);
        assert_eq!(
            ask(&here, NOW + 9, descriptor("twenty=x")).await,
            (false, 0, [1, 1, 0, 0, 1, 0, 0])
        );
        assert_eq!(
            ask(&here, NOW + 10, descriptor("twenty=x")).await,
            (true, 4, [1, 0, 0, 1, 0, 0, 0])
        );
    })
    .await;
}

#[tokio::test]
async fn a_limit_that_is_raised_is_in_force_at_once() {
    for_every_store(async |store| {
        let limiter = limiter_with(store, LIMITS, cached());
        ask(&limiter, NOW, with_hits("twenty=x", 25)).await;
        let raised = |limit: u32| {
            let limits = LIMITS.replace(
                "requests_per_unit: 20}",
                &format!("requests_per_unit: {limit}}}"),
            );
            limiter.configure(configuration(&limits));
        };
        raised(24);
        assert_eq!(
            ask(&limiter, NOW, descriptor("twenty=x")).await,
            (false, 0, [1, 1, 0, 0, 1, 0, 0])
        );
        raised(30);
        assert_eq!(ask(&limiter, NOW, descriptor("twenty=x")).await.1, 4);
        raised(20);
        assert_eq!(
            ask(&limiter, NOW, descriptor("twenty=x")).await,
            (false, 0, [1, 1, 0, 0, 1, 0, 0])
        );
    })
    .await;
}

#[tokio::test]
async fn limits_that_requests_bring_for_one_counter_are_each_compared_with_it() {
    for_every_store(async |store| {
        let limiter = limiter_with(store, LIMITS, cached());
        let bringing = |requests_per_unit, hits| Descriptor {
            limit: Some(Override {
                requests_per_unit,
                unit: 3,
            }),
            ..with_hits("any=x", hits)
        };
        assert!(!ask(&limiter, NOW, bringing(5, 6)).await.0);
        assert_eq!(
            ask(&limiter, NOW, bringing(5, 1)).await,
            (false, 0, [1, 1, 0, 0, 1, 0, 0])
        );
        assert_eq!(ask(&limiter, NOW, bringing(100, 1)).await.1, 93);
    })
    .await;
}

#[tokio::test]
async fn units_that_jobs_give_back_are_noticed_at_once() {
    for_every_store(async |store| {
        let limiter = limiter_with(store, LIMITS, cached());
        let took = take_at(&limiter, NOW, &[Job::of(&[("twenty=x", 1)], 20)]).await;
        assert!(!ask(&limiter, NOW, descriptor("twenty=x")).await.0);
        took.give_back(&limiter, NOW).await;
        assert_eq!(ask(&limiter, NOW, descriptor("twenty=x")).await.1, 18);
    })
    .await;
}
