//! Units of jobs: what is taken, by which limits, and what is told.

use tidegate_ratelimit::Code::{Ok as Pass, OverLimit};
use tidegate_ratelimit::{Limiter, Options, OverLimitKeys};

use crate::fixture::{
    NOW, answer, check_at, descriptor, limiter, limiter_with, memory, numbers, options, outline,
    request, with_hits,
};
use crate::units::{Job, Took, take_at};

const LIMITS: &str = "
domain: test-domain
descriptors:
  - {key: ten, rate_limit: {unit: minute, requests_per_unit: 10, name: ten}}
  - {key: twenty, rate_limit: {unit: hour, requests_per_unit: 20}}
  - {key: none_at_all, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: small_quota, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: quota, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 5}}
  - {key: shadow_quota, quota_mode: true, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 5}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: instead_of_ten, rate_limit: {unit: hour, requests_per_unit: 100, replaces: [{name: ten}]}}
  - {key: shared, value: a*, share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: a_b, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: a, descriptors: [{key: b, rate_limit: {unit: minute, requests_per_unit: 5}}]}
";

async fn take(limiter: &Limiter, jobs: &[Job]) -> Took {
    take_at(limiter, NOW, jobs).await
}

/// Takes for jobs of one kind after those of another: what each is told.
async fn check(steps: &[(Job, &str)]) {
    let limiter = limiter(LIMITS, options());
    for (job, expected) in steps {
        assert_eq!(
            take(&limiter, std::slice::from_ref(job)).await.outline(),
            [*expected],
            "{job:?}"
        );
    }
}

fn job(entries: &str, times: u32) -> Job {
    Job::of(&[(entries, 1)], times)
}

#[tokio::test]
async fn jobs_are_told_what_they_get_and_when_to_ask_again() {
    check(&[
        (job("ten=x", 0), "0, 10 left"),
        (job("ten=x", 4), "4, 6 left"),
        (Job::of(&[("ten=x", 4)], 1), "1, limit 0 for 46s"),
        (Job::of(&[("ten=x", 2)], 5), "1, limit 0 for 46s"),
        (job("ten=x", 1), "0, limit 0 for 46s"),
        (job("ten=x", 0), "0, limit 0 for 46s"),
        (job("ten=y", 11), "10, limit 0 for 46s"),
        (job("shared=a1", 7), "7, 3 left"),
        (job("shared=a2", 7), "3, limit 0 for 826s"),
        (job("ten=x", u32::MAX), "0, limit 0 for 46s"),
        (
            Job::of(&[("twenty=z", u32::MAX)], u32::MAX),
            "0, limit 0 for ever",
        ),
    ])
    .await;
}

#[tokio::test]
async fn what_has_no_limit_takes_nothing() {
    let elsewhere = job("ten=x", 5).in_domain("elsewhere");
    check(&[
        (Job::of(&[], 5), "5, unlimited"),
        (job("unknown=x", 5), "5, unlimited"),
        (job("free=x", u32::MAX), "4294967295, unlimited"),
        (job("shadow=x", 50), "50, unlimited"),
        (elsewhere.clone(), "5, unlimited"),
        (
            Job::of(&[("ten=x", 1), ("instead_of_ten=x", 1)], 50),
            "50, 50 left",
        ),
        (job("ten=x", 0), "0, 10 left"),
    ])
    .await;
    let limiter = limiter(LIMITS, options());
    let both = Job::of(&[("ten=x", 1), ("ten=y", 1)], 5).in_domain("elsewhere");
    let took = take(&limiter, &[elsewhere, job("ten=x", 1), both]).await;
    assert_eq!(took.facts.unknown_domains, [("elsewhere".to_owned(), 3)]);
    assert_eq!(took.facts.counted.tallies.len(), 1);
}

#[tokio::test]
async fn a_limit_below_one_job_never_has_room() {
    let two = |hits| Job::of(&[("ten=x", 2), ("twenty=x", hits)], 5);
    check(&[
        (job("none_at_all=x", 5), "0, limit 0 for ever"),
        (Job::of(&[("ten=x", 11)], 5), "0, limit 0 for ever"),
        (two(21), "0, limit 1 for ever"),
        (two(20), "1, limit 1 for 826s"),
        (job("ten=x", 0), "0, 8 left"),
    ])
    .await;
}

#[tokio::test]
async fn of_several_limits_all_have_room_or_none_is_charged() {
    check(&[
        (
            Job::of(&[("ten=x", 1), ("twenty=x", 5)], 9),
            "4, limit 1 for 826s",
        ),
        (job("ten=x", 0), "0, 6 left"),
        (job("twenty=x", 0), "0, limit 0 for 826s"),
        (
            Job::of(&[("ten=x", 1), ("twenty=x", 5)], 9),
            "0, limit 1 for 826s",
        ),
        (
            Job::of(&[("ten=x", 3), ("free=x", 1), ("shadow=x", 1)], 9),
            "2, limit 0 for 46s",
        ),
        (job("ten=x", 0), "0, limit 0 for 46s"),
        // Both are used up, and the one that opens last is named.
        (
            Job::of(&[("ten=x", 1), ("twenty=x", 1)], 1),
            "0, limit 1 for 826s",
        ),
    ])
    .await;
    let limiter = limiter(LIMITS, options());
    take(&limiter, &[Job::of(&[("ten=x", 3), ("shadow=x", 1)], 9)]).await;
    let shadow = answer(&limiter, &[with_hits("shadow=x", 0)]).await;
    assert_eq!(
        outline(&shadow),
        [(Pass, 7)],
        "a limit in shadow mode counts those that run"
    );
}

#[tokio::test]
async fn limits_with_one_counter_are_charged_with_the_sum() {
    check(&[
        (
            Job::of(&[("ten=x", 1), ("ten=x", 2)], 9),
            "3, limit 0 for 46s",
        ),
        (job("ten=x", 0), "0, 1 left"),
        (
            Job::of(&[("shared=a1", 6), ("shared=a2", 6)], 1),
            "0, limit 0 for ever",
        ),
        // Two rules whose counters have one name: each has its own limit.
        (Job::of(&[("a_b=c", 1), ("a=b b=c", 1)], 0), "0, 3 left"),
    ])
    .await;
}

#[tokio::test]
async fn what_one_job_cannot_use_others_of_the_call_get() {
    let limiter = limiter(LIMITS, options());
    let tenant =
        |tenant: &str, times| Job::of(&[(&format!("ten={tenant}"), 4), ("twenty=all", 1)], times);
    let jobs = [
        tenant("a", 16),
        tenant("b", 16),
        job("twenty=all", 9),
        tenant("c", 16),
        job("twenty=all", 16),
    ];
    let expected = [
        "2, limit 1 for 826s",
        "2, limit 1 for 826s",
        "9, limit 0 for 826s",
        "2, limit 1 for 826s",
        "5, limit 0 for 826s",
    ];
    assert_eq!(take(&limiter, &jobs).await.outline(), expected);
    let left = answer(
        &limiter,
        &[
            with_hits("ten=a", 0),
            with_hits("ten=c", 0),
            with_hits("twenty=all", 0),
        ],
    )
    .await;
    assert_eq!(outline(&left), [(Pass, 2), (Pass, 2), (Pass, 0)]);
}

#[tokio::test]
async fn what_is_over_is_given_back_before_the_call_ends() {
    let limiter = limiter(LIMITS, options());
    let tenant = |tenant: &str| Job::of(&[(&format!("ten={tenant}"), 5), ("twenty=all", 1)], 16);
    let took = take(&limiter, &[tenant("a"), tenant("b")]).await;
    assert_eq!(took.outline(), ["2, limit 0 for 46s"; 2]);
    assert!(took.facts.refund_error.is_none());
    assert_eq!(
        take(&limiter, &[job("twenty=all", 0)]).await.outline(),
        ["0, 16 left"]
    );
}

#[tokio::test]
async fn quotas_keep_jobs_waiting_when_all_are_used_up() {
    let both = |times| Job::of(&[("small_quota=x", 1), ("quota=x", 1)], times);
    check(&[
        (job("small_quota=y", 5), "3, limit 0 for 46s"),
        (both(2), "2, 3 left"),
        (
            Job::of(&[("ten=x", 5), ("small_quota=x", 1), ("quota=x", 1)], 9),
            "2, limit 0 for 46s",
        ),
        (both(9), "1, limit 0 for 46s"),
        (job("quota=x", 9), "0, limit 0 for 826s"),
        (
            Job::of(&[("quota=x", 1), ("shadow_quota=x", 1)], 9),
            "9, unlimited",
        ),
        (
            Job::of(&[("quota=z", 6), ("small_quota=z", 1)], 9),
            "3, limit 1 for 46s",
        ),
        (
            Job::of(&[("quota=z", 6), ("small_quota=z", 4)], 9),
            "0, limit 0 for ever",
        ),
    ])
    .await;
    let global = limiter(
        LIMITS,
        Options {
            global_quota_mode: true,
            ..options()
        },
    );
    let table = [
        (
            Job::of(&[("ten=x", 1), ("unknown=x", 1)], 15),
            "15, unlimited",
        ),
        (Job::of(&[("ten=x", 1), ("twenty=x", 1)], 15), "15, 5 left"),
        (Job::of(&[("ten=x", 1)], 15), "0, limit 0 for 46s"),
    ];
    for (job, expected) in table {
        assert_eq!(
            take(&global, std::slice::from_ref(&job)).await.outline(),
            [expected],
            "{job:?}"
        );
    }
}

#[tokio::test]
async fn global_shadow_mode_counts_all_and_lets_all_run() {
    let limiter = limiter(
        LIMITS,
        Options {
            global_shadow_mode: true,
            ..options()
        },
    );
    for (times, over, tally) in [
        (8, false, [8, 0, 0, 8, 0, 0, 0]),
        (8, true, [8, 6, 2, 0, 0, 0, 0]),
    ] {
        let took = take(&limiter, &[job("ten=x", times)]).await;
        assert_eq!(took.outline(), [format!("{times}, unlimited")]);
        assert_eq!(numbers(&took.facts.counted.tallies[0]), tally);
        assert_eq!(took.facts.counted.global_shadow_mode, over);
    }
    assert_eq!(
        outline(&answer(&limiter, &[descriptor("ten=x")]).await),
        [(OverLimit, 0)]
    );
}

#[tokio::test]
async fn jobs_count_in_the_statistics_of_their_limits() {
    let limiter = limiter(
        LIMITS,
        Options {
            local_cache_bytes: 1,
            ..options()
        },
    );
    // Total, over, near, within, over with the local cache, shadow, negative.
    let table = [
        (Job::of(&[("ten=x", 1)], 7), vec![[7, 0, 0, 7, 0, 0, 0]]),
        (Job::of(&[("ten=x", 2)], 2), vec![[4, 2, 1, 2, 0, 0, 0]]),
        (
            Job::of(&[("ten=x", 1), ("twenty=x", 3)], 3),
            vec![[3, 2, 1, 1, 0, 0, 0], [3, 0, 0, 3, 0, 0, 0]],
        ),
        (
            Job::of(&[("ten=x", 1), ("twenty=x", 3)], 3),
            vec![[3, 3, 0, 0, 0, 0, 0], [0; 7]],
        ),
        (
            Job::of(&[("twenty=x", 3), ("ten=x", 11)], 3),
            vec![[0; 7], [33, 33, 0, 0, 0, 0, 0]],
        ),
        (Job::of(&[("shadow=x", 6)], 2), vec![[12, 2, 2, 0, 0, 2, 0]]),
        (
            Job::of(&[("shadow=x", 6)], 2),
            vec![[12, 12, 0, 0, 12, 12, 0]],
        ),
        (
            Job::of(&[("small_quota=x", 2), ("quota=x", 1)], 2),
            vec![[4, 2, 0, 2, 0, 0, 0], [2, 0, 0, 2, 0, 0, 0]],
        ),
    ];
    for (job, expected) in table {
        let took = take(&limiter, std::slice::from_ref(&job)).await;
        let tallies: Vec<[u64; 7]> = took.facts.counted.tallies.iter().map(numbers).collect();
        assert_eq!(tallies, expected, "{job:?}");
    }
    let took = take(
        &limiter,
        &[Job::of(
            &[("ten=x", 1), ("unknown=x", 1), ("twenty=x", 1)],
            1,
        )],
    )
    .await;
    assert_eq!(took.stats_keys, ["test-domain.ten", "test-domain.twenty"]);
}

#[tokio::test]
async fn the_local_cache_knows_what_requests_exceeded_and_not_what_jobs_wanted() {
    let cached = Options {
        local_cache_bytes: 1,
        over_limit_keys: OverLimitKeys::StopIncrement,
        ..options()
    };
    let limiter = limiter(LIMITS, cached);
    assert_eq!(
        take(&limiter, &[job("ten=x", 11)]).await.outline(),
        ["10, limit 0 for 46s"]
    );
    let entries = || limiter.local_cache_stats().expect("it is on").entry_count;
    assert_eq!(entries(), 0);

    let checked = check_at(&limiter, NOW, &request(&[descriptor("ten=x")])).await;
    assert_eq!(
        (outline(&checked.response.expect("an answer")), entries()),
        (vec![(OverLimit, 0)], 1)
    );
    let took = take(&limiter, &[Job::of(&[("twenty=x", 1), ("ten=x", 1)], 3)]).await;
    assert_eq!(took.outline(), ["0, limit 1 for 46s"]);
    let tallies: Vec<[u64; 7]> = took.facts.counted.tallies.iter().map(numbers).collect();
    assert_eq!(tallies, [[0; 7], [3, 3, 0, 0, 3, 0, 0]]);
}

#[tokio::test]
async fn units_that_come_back_are_forgotten_by_the_local_cache() {
    let limiter = limiter_with(
        memory(),
        LIMITS,
        Options {
            local_cache_bytes: 1,
            ..options()
        },
    );
    let took = take(&limiter, &[job("ten=x", 10)]).await;
    answer(&limiter, &[descriptor("ten=x")]).await;
    assert_eq!(
        outline(&answer(&limiter, &[descriptor("ten=x")]).await),
        [(OverLimit, 0)]
    );
    took.give_back(&limiter, NOW).await;
    assert_eq!(
        outline(&answer(&limiter, &[descriptor("ten=x")]).await),
        [(Pass, 8)]
    );
}

#[tokio::test]
async fn without_a_configuration_there_is_an_error() {
    let limiter = Limiter::new(memory(), options());
    let mut facts = tidegate_ratelimit::AcquireFacts::default();
    let now = tidegate_ratelimit::Timestamp(0);
    let taken = limiter
        .acquire(&[], now, std::time::Instant::now(), &mut facts)
        .await;
    assert_eq!(
        taken.unwrap_err().to_string(),
        "no rate limit configuration loaded"
    );
}
