//! Units of jobs and hits of requests in one counter, in every store.

use std::time::{Duration, Instant};

use tidegate_pipeline::test_util::RedisServer;
use tidegate_ratelimit::Code::{Ok as Pass, OverLimit};
use tidegate_ratelimit::{Limiter, RedisStore, Store};
use tokio::task::JoinSet;

use super::stores::{for_every_exact_store, for_every_store};
use crate::fixture::{
    NOW, answer, check_at, client, descriptor, limiter_with, numbers, options, outline, request,
    with_hits,
};
use crate::units::{Job, take_at};

const LIMITS: &str = "
domain: test-domain
descriptors:
  - {key: ten, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: twenty, rate_limit: {unit: hour, requests_per_unit: 20}}
  - {key: each_second, rate_limit: {unit: second, requests_per_unit: 2}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: thousand, rate_limit: {unit: hour, requests_per_unit: 1000}}
  - {key: huge, rate_limit: {unit: year, requests_per_unit: 4294967295}}
";

fn job(entries: &str, times: u32) -> Job {
    Job::of(&[(entries, 1)], times)
}

async fn take(limiter: &Limiter, job: Job) -> String {
    take_at(limiter, NOW, &[job]).await.outline().remove(0)
}

async fn left(limiter: &Limiter, entries: &str) -> u32 {
    outline(&answer(limiter, &[with_hits(entries, 0)]).await)[0].1
}

#[tokio::test]
async fn requests_and_jobs_share_a_counter() {
    for_every_store(async |store| {
        let limiter = limiter_with(store, LIMITS, options());
        assert_eq!(
            outline(&answer(&limiter, &[with_hits("ten=x", 4)]).await),
            [(Pass, 6)]
        );
        assert_eq!(take(&limiter, job("ten=x", 3)).await, "3, 3 left");
        assert_eq!(
            outline(&answer(&limiter, &[descriptor("ten=x")]).await),
            [(Pass, 2)]
        );
        assert_eq!(take(&limiter, job("ten=x", 3)).await, "2, limit 0 for 46s");
        assert_eq!(left(&limiter, "ten=x").await, 0);
        assert_eq!(
            outline(&answer(&limiter, &[with_hits("ten=x", 5)]).await),
            [(OverLimit, 0)]
        );
        assert_eq!(take(&limiter, job("ten=x", 3)).await, "0, limit 0 for 46s");
        let later = take_at(&limiter, NOW + 46, &[job("ten=x", 3)]).await;
        assert_eq!(later.outline(), ["3, 7 left"], "the next window");
    })
    .await;
}

#[tokio::test]
async fn all_counters_of_a_call_are_charged_each_for_itself() {
    for_every_store(async |store| {
        let limiter = limiter_with(store, LIMITS, options());
        let jobs = [
            job("ten=x", 4),
            job("each_second=x", 4),
            Job::of(
                &[
                    ("ten=y", 3),
                    ("twenty=y", 4),
                    ("each_second=y", 1),
                    ("shadow=y", 1),
                ],
                9,
            ),
            job("shadow=x", 20),
            job("ten=x", 9),
            job("huge=x", u32::MAX),
        ];
        let took = take_at(&limiter, NOW, &jobs).await;
        let expected = [
            "4, limit 0 for 46s",
            "2, limit 0 for 1s",
            "2, limit 2 for 1s",
            "20, unlimited",
            "6, limit 0 for 46s",
            "4294967295, limit 0 for 30536026s",
        ];
        assert_eq!(took.outline(), expected);
        let counters = [
            "ten=x",
            "ten=y",
            "twenty=y",
            "each_second=x",
            "each_second=y",
            "shadow=y",
            "shadow=x",
        ];
        let mut all = Vec::new();
        for counter in counters {
            all.push(left(&limiter, counter).await);
        }
        assert_eq!(all, [0, 4, 12, 0, 0, 8, 0]);
    })
    .await;
}

#[tokio::test]
async fn units_go_back_to_their_window_and_no_other() {
    for_every_store(async |store| {
        let limiter = limiter_with(store, LIMITS, options());
        let both = Job::of(&[("ten=x", 2), ("twenty=x", 1)], 5);
        let mut took = take_at(&limiter, NOW, std::slice::from_ref(&both)).await;
        assert_eq!(took.outline(), ["5, limit 0 for 46s"]);
        let two = took.split_off(2);
        two.give_back(&limiter, NOW + 1).await;
        assert_eq!(
            (
                left(&limiter, "ten=x").await,
                left(&limiter, "twenty=x").await
            ),
            (4, 17)
        );

        // The minute is over, the hour is not.
        assert_eq!(
            take_at(&limiter, NOW + 46, &[both]).await.outline(),
            ["5, limit 0 for 60s"]
        );
        took.give_back(&limiter, NOW + 46).await;
        assert_eq!(
            (
                left(&limiter, "ten=x").await,
                left(&limiter, "twenty=x").await
            ),
            (4, 15)
        );
        let next = check_at(&limiter, NOW + 46, &request(&[with_hits("ten=x", 0)])).await;
        assert_eq!(outline(&next.response.unwrap()), [(Pass, 0)]);
    })
    .await;
}

/// Asks as a request or a job until nothing is left, and returns how much it got.
async fn use_up(limiter: Limiter, mut seed: u32) -> u64 {
    let mut got = 0;
    for _ in 0..2_000 {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if seed >> 31 == 0 {
            let checked = check_at(&limiter, NOW, &request(&[descriptor("thousand=x")])).await;
            let code = checked.response.expect("an answer").code;
            got += u64::from(code == Pass);
            if code == OverLimit {
                return got;
            }
        } else {
            let (hits, times) = (1 + (seed >> 8) % 3, (seed >> 16) % 8);
            let took = take_at(&limiter, NOW, &[Job::of(&[("thousand=x", hits)], times)]).await;
            got += u64::from(hits) * u64::from(took.times());
        }
    }
    panic!("the limit never ends");
}

#[tokio::test]
async fn requests_and_jobs_that_compete_use_the_limit_up_and_not_more() {
    for_every_exact_store(async |store| {
        let limiter = limiter_with(store.clone(), LIMITS, options());
        let mut tasks = JoinSet::new();
        for seed in 0..8 {
            tasks.spawn(use_up(limiter.with_store(store.clone()), seed));
        }
        let got: u64 = tasks.join_all().await.into_iter().sum();
        assert_eq!(got, 1_000);
    })
    .await;
}

/// Takes for jobs with two limits and gives some back, beside requests to one of the limits. Returns the hits that each limit let
/// pass for good.
async fn with_two_limits(limiter: Limiter, mut seed: u32) -> [u64; 2] {
    let mut kept = [0; 2];
    for _ in 0..60 {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let limits = [
            [("thousand=a", 3), ("thousand=b", 2)],
            [("thousand=b", 7), ("thousand=a", 1)],
        ];
        let jobs = limits.map(|limits| Job::of(&limits, (seed >> 16) % 8));
        let mut took = take_at(&limiter, NOW, &jobs).await;
        let returned = took.split_off((seed >> 8) % 3);
        for (times, limits) in took.each().zip([[3, 2], [1, 7]]) {
            kept[0] += u64::from(times) * limits[0];
            kept[1] += u64::from(times) * limits[1];
        }
        returned.give_back(&limiter, NOW).await;
        if seed >> 30 == 0 {
            let checked = check_at(&limiter, NOW, &request(&[descriptor("thousand=a")])).await;
            kept[0] += u64::from(checked.response.expect("an answer").code == Pass);
        }
    }
    kept
}

#[tokio::test]
async fn jobs_with_two_limits_leave_no_unit_behind() {
    for_every_exact_store(async |store| {
        let limiter = limiter_with(store.clone(), LIMITS, options());
        let mut tasks = JoinSet::new();
        for seed in 0..8 {
            tasks.spawn(with_two_limits(limiter.with_store(store.clone()), seed));
        }
        let all = tasks.join_all().await;
        let [a, b] = [0, 1].map(|limit| all.iter().map(|kept| kept[limit]).sum::<u64>());
        assert!(a <= 1_000 && b <= 1_000, "{a} {b}");
        // What requests were refused stays in the first counter.
        assert!(
            u64::from(left(&limiter, "thousand=a").await) <= 1_000 - a,
            "{a}"
        );
        assert_eq!(u64::from(left(&limiter, "thousand=b").await), 1_000 - b);
    })
    .await;
}

/// As its requests, it counts on what it read before.
#[tokio::test]
async fn memcached_counts_the_jobs_of_one_caller_exactly() {
    let server = tidegate_memcache::test_util::MemcachedServer::start();
    let limiter = limiter_with(
        super::memcached(std::slice::from_ref(&server)),
        LIMITS,
        options(),
    );
    let mut got = 0;
    for times in 1..60 {
        let took = take_at(&limiter, NOW, &[job("thousand=x", times)]).await;
        got += took.times();
    }
    assert_eq!((got, left(&limiter, "thousand=x").await), (1_000, 0));
}

#[tokio::test]
async fn a_store_that_fails_concerns_only_the_jobs_that_need_it() {
    let (main, mut per_second) = (RedisServer::start().await, RedisServer::start().await);
    let store = RedisStore::new(client(&main), Some(client(&per_second)));
    let limiter = limiter_with(Store::Redis(store), LIMITS, options());
    per_second.kill();
    let jobs = [
        job("ten=x", 3),
        Job::of(&[("ten=x", 1), ("each_second=x", 1)], 2),
        job("each_second=x", 1),
        Job::of(&[("ten=x", 1), ("each_second=x", 3)], 2),
    ];
    let took = take_at(&limiter, NOW, &jobs).await;
    assert_eq!(
        took.outline(),
        [
            "3, 7 left",
            "0, limit 1 failed",
            "0, limit 0 failed",
            "0, limit 1 for ever"
        ]
    );
    let tallies: Vec<u64> = took
        .facts
        .counted
        .tallies
        .iter()
        .map(|tally| numbers(tally)[0])
        .collect();
    assert_eq!(tallies, [3, 2, 2, 1, 0, 6]);
    assert!(took.facts.refund_error.is_none());
    assert_eq!(
        left(&limiter, "ten=x").await,
        7,
        "what the other limit granted was given back"
    );
}

#[tokio::test]
async fn what_redis_is_asked_does_not_depend_on_how_many_jobs_there_are() {
    let server = RedisServer::start().await;
    let limiter = limiter_with(
        Store::Redis(RedisStore::new(client(&server), None)),
        LIMITS,
        options(),
    );
    let monitor = server.monitor();
    take_at(
        &limiter,
        NOW,
        &[
            job("ten=x", 4),
            job("ten=x", 9),
            job("ten=y", 2),
            job("shadow=x", 3),
        ],
    )
    .await;
    let _ = server.raw("ECHO end-of-test");
    let commands = monitor.commands_until("end-of-test");
    let asked: Vec<_> = commands
        .iter()
        .filter_map(|command| command.split_once("return {hits, count}\""))
        .collect();
    let arguments: Vec<_> = asked.iter().map(|(_, arguments)| *arguments).collect();
    let expected = [
        r#" "1" "test-domain_ten_x_999960" "10" "10" "1" "60""#,
        r#" "1" "test-domain_ten_y_999960" "2" "10" "1" "60""#,
    ];
    assert_eq!(arguments, expected);
    let lifetimes = ["ten_x_999960", "ten_y_999960", "shadow_x_999960"]
        .map(|key| server.raw(&format!("TTL test-domain_{key}")));
    assert!(
        lifetimes
            .iter()
            .all(|reply| reply == ":60\r\n" || reply == ":59\r\n"),
        "{lifetimes:?}"
    );
}

#[tokio::test]
async fn a_counter_with_a_foreign_value_fails_its_jobs_and_stays_as_it_is() {
    let server = RedisServer::start().await;
    let limiter = limiter_with(
        Store::Redis(RedisStore::new(client(&server), None)),
        LIMITS,
        options(),
    );
    let foreign = [
        "SET test-domain_ten_x_999960 text",
        "SET test-domain_ten_x_999960 -100",
        "DEL test-domain_ten_x_999960\r\nLPUSH test-domain_ten_x_999960 a",
    ];
    for setup in foreign {
        let _ = server.raw(setup);
        let took = take_at(&limiter, NOW, &[job("ten=x", 150), job("ten=y", 0)]).await;
        assert_eq!(
            took.outline(),
            ["0, limit 0 failed", "0, 10 left"],
            "{setup}"
        );
    }
    let _ = server.raw("SET test-domain_ten_x_999960 9223372036854775807");
    assert_eq!(take(&limiter, job("ten=x", 1)).await, "0, limit 0 for 46s");
    assert_eq!(
        server.raw("GET test-domain_ten_x_999960"),
        "$19\r\n9223372036854775807\r\n"
    );
}

#[tokio::test]
async fn a_take_that_is_dropped_leaves_the_hits_that_were_asked_for() {
    let server = RedisServer::start().await;
    let limiter = limiter_with(
        Store::Redis(RedisStore::new(client(&server), None)),
        LIMITS,
        options(),
    );
    server.pause();
    let job = Job::of(&[("ten=x", 2)], 3);
    let mut facts = tidegate_ratelimit::AcquireFacts::default();
    {
        let limits = job.units();
        let wanted = [tidegate_ratelimit::AcquireRequest {
            limits: &limits,
            times: job.times,
        }];
        let now = tidegate_ratelimit::Timestamp(NOW * 1_000_000);
        let taken = limiter.acquire(
            &wanted,
            now,
            Instant::now() + Duration::from_secs(60),
            &mut facts,
        );
        tokio::select! {
            biased;
            _ = taken => panic!("redis does not answer"),
            () = std::future::ready(()) => {}
        }
    }
    assert_eq!(numbers(&facts.counted.tallies[0]), [6, 0, 0, 0, 0, 0, 0]);
}
