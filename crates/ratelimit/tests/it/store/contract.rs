//! What counting means, whatever the store: every test here runs against all of them, or says what memcached lacks.

use tidegate_ratelimit::Code::{Ok as Pass, OverLimit};
use tidegate_ratelimit::{Code, Descriptor, Limiter, Options, OverLimitKeys, Request};

use super::stores::{for_every_exact_store, for_every_store};
use crate::fixture::{
    NOW, answer, check_at, descriptor, limiter_with, numbers, options, outline, refund, request,
    with_hits,
};
use crate::units::{Job, take_at};

const LIMITS: &str = "
domain: test-domain
descriptors:
  - {key: ten, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: twenty, rate_limit: {unit: hour, requests_per_unit: 20}}
  - {key: each_second, rate_limit: {unit: second, requests_per_unit: 2}}
  - {key: huge, rate_limit: {unit: hour, requests_per_unit: 4294967295}}
  - {key: filled, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 10}}
";

async fn check(limiter: &Limiter, descriptors: &[Descriptor], expected: &[(Code, u32)]) {
    assert_eq!(
        outline(&answer(limiter, descriptors).await),
        expected,
        "{descriptors:?}"
    );
}

#[tokio::test]
async fn hits_add_up_to_the_limit_and_not_beyond() {
    for_every_store(async |store| {
        let limiter = limiter_with(store, LIMITS, options());
        // Hits asked for; code and remaining; over, near, within.
        let table = [
            (0, Pass, 10, [0, 0, 0]),
            (7, Pass, 3, [0, 0, 7]),
            (2, Pass, 1, [0, 1, 2]),
            (1, Pass, 0, [0, 1, 1]),
            (0, Pass, 0, [0, 0, 0]),
            (1, OverLimit, 0, [1, 0, 0]),
            (0, OverLimit, 0, [0, 0, 0]),
            (100, OverLimit, 0, [100, 0, 0]),
        ];
        for (hits, code, remaining, spread) in table {
            let checked = check_at(&limiter, NOW, &request(&[with_hits("ten=x", hits)])).await;
            let tally = numbers(&checked.facts.tallies[0]);
            assert_eq!(
                tally,
                [hits, spread[0], spread[1], spread[2], 0, 0, 0],
                "{hits}"
            );
            let response = checked.response.unwrap();
            assert_eq!(
                (response.code, outline(&response)),
                (code, vec![(code, remaining)]),
                "{hits}"
            );
        }
    })
    .await;
}

#[tokio::test]
async fn a_request_that_is_too_large_uses_up_the_window() {
    for_every_store(async |store| {
        let limiter = limiter_with(store, LIMITS, options());
        check(&limiter, &[with_hits("ten=x", 11)], &[(OverLimit, 0)]).await;
        check(&limiter, &[descriptor("ten=x")], &[(OverLimit, 0)]).await;
    })
    .await;
}

#[tokio::test]
async fn every_window_value_and_descriptor_counts_for_itself() {
    for_every_store(async |store| {
        let limiter = limiter_with(store, LIMITS, options());
        // Second; entries; remaining.
        let table = [
            (NOW, "ten=a", 9),
            (NOW, "ten=b", 9),
            (NOW + 1, "ten=a", 8),
            (NOW + 45, "ten=a", 7),
            (NOW + 46, "ten=a", 9),
            (NOW, "ten=a", 6),
            (NOW, "each_second=a", 1),
            (NOW, "each_second=a", 0),
            (NOW + 1, "each_second=a", 1),
            (NOW + 46, "twenty=a", 19),
            (NOW + 825, "twenty=a", 18),
            (NOW + 826, "twenty=a", 19),
        ];
        for (second, entries, remaining) in table {
            let checked = check_at(&limiter, second, &request(&[descriptor(entries)])).await;
            assert_eq!(
                outline(&checked.response.unwrap()),
                [(Pass, remaining)],
                "{entries} at {second}"
            );
        }
    })
    .await;
}

#[tokio::test]
async fn the_same_counter_twice_in_a_request_is_charged_twice_in_order() {
    for_every_store(async |store| {
        let limiter = limiter_with(store, LIMITS, options());
        let twice = [
            with_hits("ten=x", 6),
            descriptor("twenty=x"),
            with_hits("ten=x", 5),
            with_hits("ten=x", 0),
        ];
        check(
            &limiter,
            &twice,
            &[(Pass, 4), (Pass, 19), (OverLimit, 0), (OverLimit, 0)],
        )
        .await;
    })
    .await;
}

#[tokio::test]
async fn hits_come_from_the_descriptor_then_the_request_then_are_one() {
    for_every_store(async |store| {
        let limiter = limiter_with(store, LIMITS, options());
        for (request_hits, expected) in [(0, [(Pass, 9), (Pass, 17)]), (4, [(Pass, 5), (Pass, 14)])]
        {
            let descriptors = [descriptor("ten=x"), with_hits("twenty=x", 3)];
            let question = Request {
                hits_addend: request_hits,
                ..request(&descriptors)
            };
            let checked = check_at(&limiter, NOW, &question).await;
            assert_eq!(outline(&checked.response.unwrap()), expected);
        }
    })
    .await;
}

#[tokio::test]
async fn a_refund_gives_hits_back_but_not_more_than_were_charged() {
    for_every_store(async |store| {
        let limiter = limiter_with(store, LIMITS, options());
        check(&limiter, &[refund("ten=x", 1)], &[(Pass, 10)]).await;
        check(&limiter, &[refund("ten=x", 5)], &[(Pass, 10)]).await;
        check(&limiter, &[with_hits("ten=x", 12)], &[(OverLimit, 0)]).await;

        let checked = check_at(&limiter, NOW, &request(&[refund("ten=x", 1)])).await;
        assert_eq!(numbers(&checked.facts.tallies[0]), [0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(
            outline(&checked.response.unwrap()),
            [(Pass, 0)],
            "a refund is OK even over the limit"
        );

        check(&limiter, &[refund("ten=x", 4)], &[(Pass, 3)]).await;
        check(&limiter, &[with_hits("ten=x", 1)], &[(Pass, 2)]).await;
        check(&limiter, &[refund("ten=x", i64::MAX as u64)], &[(Pass, 10)]).await;
        check(
            &limiter,
            &[with_hits("ten=x", 1), refund("ten=x", 1)],
            &[(Pass, 9), (Pass, 10)],
        )
        .await;
        check(
            &limiter,
            &[refund("ten=x", 0), with_hits("ten=x", 1)],
            &[(Pass, 10), (Pass, 9)],
        )
        .await;
    })
    .await;
}

/// An error would let the request pass at a gateway that fails open: one client would switch a limit off for all.
#[tokio::test]
async fn a_counter_that_is_full_is_over_its_limit_and_spoils_no_other() {
    for_every_store(async |store| {
        let limiter = limiter_with(store, LIMITS, options());
        let full = [
            with_hits("huge=x", i64::MAX as u64),
            with_hits("filled=x", u64::MAX),
        ];
        check(&limiter, &full, &[(OverLimit, 0), (Pass, 0)]).await;
        let more = [
            descriptor("ten=x"),
            with_hits("huge=x", 5),
            descriptor("ten=x"),
            with_hits("huge=x", u64::MAX),
            with_hits("filled=x", 1 << 63),
        ];
        let expected = [
            (Pass, 9),
            (OverLimit, 0),
            (Pass, 8),
            (OverLimit, 0),
            (Pass, 0),
        ];
        let checked = check_at(&limiter, NOW, &request(&more)).await;
        assert_eq!(outline(&checked.response.expect("an answer")), expected);
        assert_eq!(numbers(&checked.facts.tallies[1]), [5, 5, 0, 0, 0, 0, 0]);

        let jobs = take_at(
            &limiter,
            NOW,
            &[Job::of(&[("filled=x", 1)], 3), Job::of(&[("huge=x", 1)], 3)],
        )
        .await;
        assert_eq!(jobs.each().collect::<Vec<_>>(), [3, 0]);
        assert_eq!(jobs.facts.refund_error, None);
        check(
            &limiter,
            &[descriptor("ten=x"), with_hits("huge=x", 0)],
            &[(Pass, 7), (OverLimit, 0)],
        )
        .await;
        check(&limiter, &[refund("huge=x", u64::MAX)], &[(Pass, u32::MAX)]).await;
        check(&limiter, &[descriptor("huge=x")], &[(Pass, u32::MAX - 1)]).await;
    })
    .await;
}

/// memcached charges after the answer, so the reference ignores the setting there.
#[tokio::test]
async fn what_is_refused_as_a_whole_charges_only_what_is_over() {
    for_every_exact_store(async |store| {
        let stop = Options {
            over_limit_keys: OverLimitKeys::StopIncrement,
            ..options()
        };
        let limiter = limiter_with(store, LIMITS, stop);
        let both = |ten, twenty| [with_hits("ten=x", ten), with_hits("twenty=x", twenty)];
        check(&limiter, &both(9, 5), &[(Pass, 1), (Pass, 15)]).await;

        // Only the first would go over, so only the first is charged; the other's statistics are the reference's.
        let checked = check_at(&limiter, NOW, &request(&both(2, 3))).await;
        let tallies: Vec<[u64; 7]> = checked.facts.tallies.iter().map(numbers).collect();
        assert_eq!(tallies, [[2, 1, 1, 0, 0, 0, 0], [3, 0, 0, 3, 0, 0, 0]]);
        assert_eq!(
            outline(&checked.response.unwrap()),
            [(OverLimit, 0), (Pass, 15)]
        );

        // Neither fits now: both are charged. A refund is done in any case.
        check(&limiter, &both(1, 16), &[(OverLimit, 0), (OverLimit, 0)]).await;
        let mixed = [
            descriptor("ten=x"),
            refund("twenty=x", 2),
            descriptor("each_second=x"),
        ];
        check(&limiter, &mixed, &[(OverLimit, 0), (Pass, 1), (Pass, 2)]).await;
        check(&limiter, &[with_hits("ten=x", 0)], &[(OverLimit, 0)]).await;
        check(&limiter, &[refund("ten=x", 4)], &[(Pass, 1)]).await;
    })
    .await;
}

#[tokio::test]
async fn counters_outlive_a_change_of_configuration() {
    for_every_store(async |store| {
        let limiter = limiter_with(store, LIMITS, options());
        check(&limiter, &[with_hits("ten=x", 9)], &[(Pass, 1)]).await;
        limiter.configure(crate::fixture::configuration(
            &LIMITS.replace("requests_per_unit: 10}", "requests_per_unit: 12}"),
        ));
        check(&limiter, &[descriptor("ten=x")], &[(Pass, 2)]).await;
    })
    .await;
}

#[tokio::test]
async fn prefixes_keep_counters_apart() {
    for_every_store(async |store| {
        let prefixed = Options {
            key_prefix: "other:".into(),
            ..options()
        };
        let limiters = [
            limiter_with(store.clone(), LIMITS, options()),
            limiter_with(store.clone(), LIMITS, prefixed),
        ];
        for limiter in &limiters {
            check(limiter, &[descriptor("ten=x")], &[(Pass, 9)]).await;
        }
        check(
            &limiters[0].with_store(store),
            &[descriptor("ten=x")],
            &[(Pass, 8)],
        )
        .await;
    })
    .await;
}
