//! What is seen without changing anything: answers before they are asked for, top keys and refusals.

use std::time::{Duration, Instant};

use tidegate_ratelimit::{
    Caller, Code, Descriptor, KeyMinute, Limiter, Options, OverLimitKeys, Override, Refused,
    Request, Response, Sketch, Timestamp,
};

use crate::fixture::{
    NOW, check_at, descriptor, limiter, limiter_with, memory, options, refund, request, with_hits,
};
use crate::store::for_every_store;
use crate::units::{Job, take_at};

const LIMITS: &str = "
domain: test-domain
descriptors:
  - {key: ten, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: twenty, rate_limit: {unit: minute, requests_per_unit: 20}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: quota, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: many, rate_limit: {unit: hour, requests_per_unit: 4000000000}}
";

async fn peek(limiter: &Limiter, request: &Request) -> Response {
    let deadline = Instant::now() + Duration::from_secs(10);
    limiter
        .peek(request, Timestamp(NOW * 1_000_000), deadline)
        .await
        .expect("an answer")
}

fn requests() -> Vec<Request> {
    let own = Override {
        requests_per_unit: 3,
        unit: 3,
    };
    let brought = Descriptor {
        limit: Some(own),
        ..descriptor("ten=own")
    };
    [
        vec![descriptor("ten=x")],
        vec![
            with_hits("ten=x", 7),
            descriptor("free=x"),
            descriptor("nobody=x"),
        ],
        vec![
            descriptor("ten=x"),
            with_hits("ten=x", 2),
            with_hits("twenty=x", 19),
        ],
        vec![
            with_hits("twenty=x", 2),
            descriptor("ten=x"),
            with_hits("shadow=x", 11),
        ],
        vec![refund("ten=x", 4), with_hits("quota=x", 11)],
        vec![brought.clone(), brought.clone(), brought.clone(), brought],
        vec![with_hits("quota=x", 11), descriptor("twenty=x")],
        vec![with_hits("ten=x", 0)],
    ]
    .map(|descriptors| request(&descriptors))
    .to_vec()
}

#[tokio::test]
async fn what_is_foreseen_is_answered_and_nothing_is_charged() {
    for_every_store(async |store| {
        let options = Options {
            response_headers: true,
            ..options()
        };
        let limiter = limiter_with(store, LIMITS, options);
        for request in requests() {
            let foreseen = peek(&limiter, &request).await;
            assert_eq!(peek(&limiter, &request).await, foreseen, "{request:?}");
            let answered = check_at(&limiter, NOW, &request)
                .await
                .response
                .expect("an answer");
            assert_eq!(answered, foreseen, "{request:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn what_is_foreseen_is_answered_in_other_modes() {
    let spared = Options {
        over_limit_keys: OverLimitKeys::StopIncrement,
        ..options()
    };
    let shadow = Options {
        global_shadow_mode: true,
        ..options()
    };
    let quotas = Options {
        global_quota_mode: true,
        ..options()
    };
    for options in [spared, shadow, quotas] {
        let limiter = limiter(LIMITS, options.clone());
        for request in requests() {
            let foreseen = peek(&limiter, &request).await;
            let answered = check_at(&limiter, NOW, &request)
                .await
                .response
                .expect("an answer");
            assert_eq!(answered, foreseen, "{request:?} with {options:?}");
        }
    }
}

fn sketch(limiter: &Limiter, second: u64) -> Sketch {
    limiter.sketch(Timestamp(second * 1_000_000))
}

fn hits(sketch: &Sketch, value: &str) -> u64 {
    let of_key = sketch
        .top
        .iter()
        .filter(|key| key.entries[0].value == value);
    of_key.map(|key| key.hits).sum()
}

#[tokio::test]
async fn the_keys_with_the_most_hits_are_known_among_many() {
    let first = limiter(LIMITS, options());
    let second = first.with_store(memory());
    let big = request(&[descriptor("many=big")]);
    let paired = request(&[
        with_hits("many=other", 3),
        descriptor("nobody=x"),
        refund("many=back", 100),
    ]);
    for number in 0..20_000 {
        let limiter = if number % 2 == 0 { &first } else { &second };
        let small = request(&[descriptor(&format!("many={number}"))]);
        for request in [&big, &paired, &small] {
            check_at(limiter, NOW, request)
                .await
                .response
                .expect("an answer");
        }
    }
    let seen = sketch(&first, NOW);
    assert_eq!(seen, sketch(&second, NOW));
    assert_eq!(seen.since, Timestamp((NOW - 14 - 60) * 1_000_000));
    assert_eq!(seen.top.len(), 128);
    assert_eq!(
        (
            &*seen.top[0].entries[0].value,
            &*seen.top[1].entries[0].value
        ),
        ("other", "big")
    );
    // After the first 4096 decisions of each core, about 400 samples of each. Six deviations are a third.
    let (big, other) = (hits(&seen, "big"), hits(&seen, "other"));
    assert!(
        (12_000..28_000).contains(&big) && (36_000..84_000).contains(&other),
        "{big} and {other}"
    );
    assert_eq!((hits(&seen, "x"), hits(&seen, "back")), (0, 0));
    assert!(seen.top.iter().all(|key| key.is_estimate));
    assert_eq!(
        hits(&sketch(&first, NOW + 60), "big"),
        big,
        "in the minute after it"
    );
    assert_eq!(sketch(&first, NOW + 120).top, []);
}

/// Seven calls were shown as 128 hits.
#[tokio::test]
async fn hits_are_exact_until_there_are_many_and_in_the_next_quiet_minute() {
    let first = limiter(LIMITS, options());
    let second = first.with_store(memory());
    let me = request(&[descriptor("many=me")]);
    let ask = async |limiter: &Limiter, at: u64, calls: u64| {
        for _ in 0..calls {
            check_at(limiter, at, &me)
                .await
                .response
                .expect("an answer");
        }
    };
    let counted = |at: u64| {
        sketch(&first, at)
            .top
            .iter()
            .map(|key| (key.hits, key.is_estimate))
            .collect::<Vec<_>>()
    };
    ask(&first, NOW, 7).await;
    assert_eq!(counted(NOW), [(7, false)]);
    ask(&second, NOW, 4096).await;
    assert_eq!(counted(NOW), [(4103, false)]);
    ask(&second, NOW, 64).await;
    assert!(counted(NOW)[0].1, "not all of one core were looked at");
    // The decisions that a busy minute would have skipped are counted in the next one.
    ask(&second, NOW + 60, 5).await;
    ask(&second, NOW + 120, 2).await;
    assert_eq!(counted(NOW + 120), [(7, false)]);
}

/// A key that took the place of another one has its hits, too, and one without a place has hits that nobody knows.
#[tokio::test]
async fn of_more_keys_than_there_are_places_only_those_with_a_place_from_the_start_are_exact() {
    let first = limiter(LIMITS, options());
    let second = first.with_store(memory());
    for number in 0..200 {
        let hits = if number == 0 { 3 } else { 1 };
        check_at(
            &first,
            NOW,
            &request(&[with_hits(&format!("many={number}"), hits)]),
        )
        .await
        .response
        .unwrap();
    }
    let seen = sketch(&first, NOW);
    let exact: Vec<_> = seen.top.iter().filter(|key| !key.is_estimate).collect();
    assert!(
        exact
            .iter()
            .all(|key| key.hits == if key.entries[0].value == "0" { 3 } else { 1 }),
        "{exact:?}"
    );
    assert_eq!(seen.top.iter().filter(|key| key.is_estimate).count(), 72);
    check_at(&second, NOW, &request(&[with_hits("many=other", 9)]))
        .await
        .response
        .unwrap();
    let seen = sketch(&first, NOW);
    assert!(
        seen.top
            .iter()
            .any(|key| key.entries[0].value == "other" && key.is_estimate),
        "the first core may have it"
    );
}

#[tokio::test]
async fn the_latest_refusals_are_known_with_who_was_refused() {
    let limiter = limiter(LIMITS, options());
    for second in [NOW, NOW + 1] {
        for _ in 0..100 {
            let over = request(&[descriptor("free=x"), with_hits("ten=x", 11)]);
            assert_eq!(
                check_at(&limiter, second, &over)
                    .await
                    .response
                    .unwrap()
                    .code,
                Code::OverLimit
            );
        }
        take_at(
            &limiter,
            second,
            &[Job::of(&[("twenty=a", 1), ("ten=y", 1)], 12)],
        )
        .await;
        take_at(&limiter, second, &[Job::of(&[("shadow=a", 11)], 1)]).await;
    }
    let seen = sketch(&limiter, NOW + 1);
    let of = |caller, second| {
        let at = Timestamp(second * 1_000_000);
        let refusals = seen
            .refusals
            .iter()
            .filter(move |refusal| (refusal.caller, refusal.at) == (caller, at));
        refusals
            .map(|refusal| &*refusal.entries[0].value)
            .collect::<Vec<_>>()
    };
    for second in [NOW, NOW + 1] {
        assert_eq!(of(Caller::Request, second), ["x"; 16]);
        assert_eq!(of(Caller::Job, second), ["y"]);
    }
    assert_eq!(seen.refusals.len(), 34);
    assert_eq!(seen.refusals[0].at, Timestamp((NOW + 1) * 1_000_000));
    assert_eq!(seen.refusals[0].domain, "test-domain");
    // What jobs got is counted in full.
    assert_eq!((hits(&seen, "y"), hits(&seen, "a")), (10, 10));
    for second in NOW + 2..NOW + 20 {
        for _ in 0..20 {
            check_at(&limiter, second, &request(&[with_hits("ten=x", 11)]))
                .await
                .response
                .unwrap();
        }
    }
    assert_eq!(sketch(&limiter, NOW + 20).refusals.len(), 128);
}

#[tokio::test]
async fn refusals_are_counted_by_key_minute_and_caller() {
    let first = limiter(LIMITS, options());
    let second = first.with_store(memory());
    let over = request(&[descriptor("free=x"), with_hits("ten=x", 11)]);
    for (limiter, second) in [(&first, NOW), (&second, NOW + 1), (&first, NOW + 60)] {
        check_at(limiter, second, &over).await.response.unwrap();
    }
    take_at(&first, NOW + 61, &[Job::of(&[("ten=y", 1)], 12)]).await;
    let [before, now] = first.key_minutes(Timestamp((NOW + 61) * 1_000_000));
    assert_eq!(now.start.0 - before.start.0, 60_000_000);
    let of = |minute: &KeyMinute, value: &str| {
        let key = minute.keys.iter().find(|key| key.entries[0].value == value);
        key.map(|key| (key.hits, key.refused))
    };
    let refused = |count, first, last| Refused {
        count,
        first_at: Timestamp(first * 1_000_000),
        last_at: Timestamp(last * 1_000_000),
    };
    let none = Refused::default();
    assert_eq!(
        of(&before, "x"),
        Some((22, [refused(22, NOW, NOW + 1), none]))
    );
    assert_eq!(
        of(&now, "x"),
        Some((11, [refused(11, NOW + 60, NOW + 60), none]))
    );
    assert_eq!(of(&before, "y"), None);
    assert_eq!(
        of(&now, "y"),
        Some((10, [none, refused(1, NOW + 61, NOW + 61)]))
    );
}
