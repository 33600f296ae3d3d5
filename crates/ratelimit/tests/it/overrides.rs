//! What overrides do to requests and jobs, and how they are kept.

mod kept;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_pipeline::test_util::{RedisCluster, RedisServer};
use tidegate_ratelimit::Code::{Ok as Pass, OverLimit};
use tidegate_ratelimit::{
    EffectKind, Factor, LimitOverride, Limiter, Options, OverrideEffect, OverrideError,
    OverrideStore, OverrideTarget, Overrides, Reach, Timestamp,
};

use crate::fixture::{
    NOW, answer, check_at, client, descriptor, entries, limiter, numbers, options, outline, refund,
    request, with_hits,
};
use crate::units::{Job, take_at};

const LIMITS: &str = "
domain: test-domain
descriptors:
  - {key: ten, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: quota, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: other, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: vendor, pause_when_throttled: true, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: agent, pause_when_throttled: true, rate_limit: {unlimited: true}}
  - {key: tenant, value: a, rate_limit: {unit: hour, requests_per_unit: 10}}
";

const JOBS: OverrideEffect = OverrideEffect::Paused(Reach::Jobs);
const ALL: OverrideEffect = OverrideEffect::Paused(Reach::JobsAndRequests);

fn at(second: u64) -> Timestamp {
    Timestamp(second * 1_000_000)
}

fn rule(stats_key: &str) -> OverrideTarget {
    OverrideTarget::Rule {
        stats_key: stats_key.to_owned(),
    }
}

fn key(text: &str) -> OverrideTarget {
    OverrideTarget::Key {
        domain: "test-domain".to_owned(),
        entries: entries(text),
    }
}

fn scaled(factor: f64) -> OverrideEffect {
    OverrideEffect::Scaled(Factor::new(factor).expect("a factor"))
}

fn one(target: OverrideTarget, effect: OverrideEffect, until: Option<u64>) -> LimitOverride {
    let (by, reason) = ("ada".to_owned(), "a test".to_owned());
    LimitOverride {
        target,
        effect,
        until: until.map(at),
        by,
        at: at(NOW),
        reason,
    }
}

fn set(limiter: &Limiter, overrides: impl IntoIterator<Item = LimitOverride>) {
    limiter.set_overrides(Arc::new(Overrides::new(overrides)));
}

async fn take(limiter: &Limiter, second: u64, limits: &[(&str, u32)], times: u32) -> String {
    take_at(limiter, second, &[Job::of(limits, times)])
        .await
        .outline()
        .remove(0)
}

async fn check(limiter: &Limiter, second: u64, text: &str) -> (tidegate_ratelimit::Code, u32) {
    let checked = check_at(limiter, second, &request(&[descriptor(text)])).await;
    outline(&checked.response.expect("an answer"))[0]
}

#[tokio::test]
async fn a_pause_keeps_jobs_waiting_and_requests_if_it_says_so() {
    for target in [rule("test-domain.ten"), key("ten=x")] {
        let limiter = limiter(LIMITS, options());
        set(&limiter, [one(target.clone(), JOBS, Some(NOW + 7))]);
        assert_eq!(
            take(&limiter, NOW, &[("ten=x", 1)], 3).await,
            "0, limit 0 paused for 7s"
        );
        assert_eq!(check(&limiter, NOW, "ten=x").await, (Pass, 9));
        set(&limiter, [one(target.clone(), ALL, None)]);
        assert_eq!(
            take(&limiter, NOW, &[("ten=x", 1)], 3).await,
            "0, limit 0 paused"
        );
        assert_eq!(check(&limiter, NOW, "ten=x").await, (OverLimit, 0));
        set(&limiter, [one(target.clone(), ALL, Some(NOW + 7))]);
        assert_eq!(
            check(&limiter, NOW + 7, "ten=x").await,
            (Pass, 8),
            "it ends by itself, and nothing was charged"
        );
        set(&limiter, []);
        assert_eq!(take(&limiter, NOW, &[("ten=x", 1)], 3).await, "3, 5 left");
    }
}

#[tokio::test]
async fn a_pause_holds_for_its_target_only() {
    let limiter = limiter(LIMITS, options());
    set(
        &limiter,
        [
            one(key("ten=x"), ALL, None),
            one(rule("test-domain.tenant_a"), ALL, None),
        ],
    );
    for (text, code) in [
        ("ten=x", OverLimit),
        ("ten=y", Pass),
        ("tenant=a", OverLimit),
        ("tenant=b", Pass),
    ] {
        assert_eq!(check(&limiter, NOW, text).await.0, code, "{text}");
    }
    let mut elsewhere = request(&[descriptor("ten=x")]);
    elsewhere.domain = "another".to_owned();
    assert_eq!(
        check_at(&limiter, NOW, &elsewhere)
            .await
            .response
            .unwrap()
            .code,
        Pass
    );
}

#[tokio::test]
async fn a_pause_holds_whatever_the_limit_is() {
    for text in ["shadow=x", "free=x", "nobody=x", "quota=x"] {
        let limiter = limiter(LIMITS, options());
        set(&limiter, [one(key(text), ALL, None)]);
        assert_eq!(check(&limiter, NOW, text).await.0, OverLimit, "{text}");
        assert_eq!(
            take(&limiter, NOW, &[(text, 1)], 2).await,
            "0, limit 0 paused",
            "{text}"
        );
        assert_eq!(
            take(&limiter, NOW, &[("ten=x", 1), (text, 1)], 2).await,
            "0, limit 1 paused",
            "{text}"
        );
        assert_eq!(
            check(&limiter, NOW, "ten=x").await,
            (Pass, 9),
            "nothing was charged to the other limit"
        );
    }
    let limiter = limiter(
        LIMITS,
        Options {
            global_shadow_mode: true,
            ..options()
        },
    );
    set(&limiter, [one(key("ten=x"), ALL, None)]);
    let checked = check_at(&limiter, NOW, &request(&[descriptor("ten=x")])).await;
    assert_eq!(checked.response.unwrap().code, Pass);
    assert!(checked.facts.global_shadow_mode);
    assert_eq!(
        take(&limiter, NOW, &[("ten=x", 1)], 2).await,
        "0, limit 0 paused"
    );
}

#[tokio::test]
async fn a_paused_quota_leaves_requests_to_the_others() {
    let limiter = limiter(LIMITS, options());
    set(&limiter, [one(key("quota=x"), ALL, None)]);
    assert_eq!(
        answer(&limiter, &[descriptor("quota=x"), descriptor("other=x")])
            .await
            .code,
        Pass
    );
    assert_eq!(
        take(&limiter, NOW, &[("quota=x", 1), ("other=x", 1)], 2).await,
        "0, limit 0 paused"
    );
}

#[tokio::test]
async fn what_is_paused_counts_as_over_the_limit_and_refunds_are_made() {
    let limiter = limiter(LIMITS, options());
    check(&limiter, NOW, "ten=x").await;
    set(&limiter, [one(key("ten=x"), ALL, None)]);
    let checked = check_at(&limiter, NOW, &request(&[with_hits("ten=x", 3)])).await;
    assert_eq!(numbers(&checked.facts.tallies[0]), [3, 3, 0, 0, 3, 0, 0]);
    let took = take_at(&limiter, NOW, &[Job::of(&[("ten=x", 2)], 2)]).await;
    assert_eq!(
        numbers(&took.facts.counted.tallies[0]),
        [4, 4, 0, 0, 4, 0, 0]
    );
    assert_eq!(
        outline(&answer(&limiter, &[refund("ten=x", 1)]).await),
        [(Pass, 10)]
    );
}

#[tokio::test]
async fn a_limit_is_scaled_for_a_while() {
    let limiter = limiter(LIMITS, options());
    set(
        &limiter,
        [one(rule("test-domain.ten"), scaled(0.55), Some(NOW + 9))],
    );
    assert_eq!(
        check(&limiter, NOW, "ten=x").await,
        (Pass, 4),
        "5.5 is rounded down"
    );
    assert_eq!(
        take(&limiter, NOW, &[("ten=x", 1)], 9).await,
        "4, limit 0 for 9s",
        "the scale ends before the minute"
    );
    assert_eq!(check(&limiter, NOW, "ten=x").await, (OverLimit, 0));
    assert_eq!(
        take(&limiter, NOW, &[("ten=x", 6)], 1).await,
        "0, limit 0 paused for 9s",
        "it fits into the limit as configured"
    );
    assert_eq!(
        take(&limiter, NOW, &[("ten=x", 11)], 1).await,
        "0, limit 0 for ever"
    );
    assert_eq!(
        take(&limiter, NOW + 9, &[("ten=x", 1)], 9).await,
        "4, limit 0 for 37s"
    );
    // That of the key counts, not that of its rule.
    set(
        &limiter,
        [
            one(key("ten=x"), scaled(2.0), None),
            one(rule("test-domain.ten"), scaled(0.0), None),
        ],
    );
    assert_eq!(check(&limiter, NOW, "ten=x").await, (Pass, 9));
    assert_eq!(check(&limiter, NOW, "ten=y").await, (OverLimit, 0));
    assert_eq!(
        take(&limiter, NOW, &[("ten=y", 1)], 1).await,
        "0, limit 0 paused"
    );
}

#[test]
fn a_rule_says_whether_requests_wait_with_a_job_that_was_throttled() {
    let limiter = limiter(LIMITS, options());
    let job = Job::of(
        &[
            ("ten=x", 1),
            ("vendor=x", 2),
            ("agent=x", 1),
            ("free=x", 1),
            ("nobody=x", 1),
        ],
        1,
    );
    let reaches = limiter.reach_when_throttled(&job.units(), at(NOW));
    assert_eq!(
        reaches,
        [
            Reach::Jobs,
            Reach::JobsAndRequests,
            Reach::JobsAndRequests,
            Reach::Jobs,
            Reach::Jobs
        ]
    );
    let elsewhere = job.in_domain("another");
    assert_eq!(
        limiter.reach_when_throttled(&elsewhere.units(), at(NOW)),
        [Reach::Jobs; 5]
    );
    let empty = Limiter::new(crate::fixture::memory(), options());
    assert_eq!(
        empty.reach_when_throttled(&elsewhere.units(), at(NOW)),
        [Reach::Jobs; 5]
    );
}

#[tokio::test]
async fn the_local_cache_does_not_outlive_a_scale() {
    let limiter = limiter(
        LIMITS,
        Options {
            local_cache_bytes: 1 << 20,
            ..options()
        },
    );
    set(&limiter, [one(key("ten=x"), scaled(0.1), Some(NOW + 5))]);
    assert_eq!(
        [
            check(&limiter, NOW, "ten=x").await.0,
            check(&limiter, NOW, "ten=x").await.0
        ],
        [Pass, OverLimit]
    );
    let refused = check_at(&limiter, NOW, &request(&[with_hits("ten=x", 3)])).await;
    assert_eq!(
        numbers(&refused.facts.tallies[0]),
        [3, 3, 0, 0, 3, 0, 0],
        "what is over a scaled limit is remembered"
    );
    assert_eq!(check(&limiter, NOW + 5, "ten=x").await, (Pass, 7));
    let over = check_at(&limiter, NOW + 5, &request(&[with_hits("ten=x", 9)])).await;
    assert_eq!(outline(&over.response.unwrap()), [(OverLimit, 0)]);
    set(&limiter, [one(key("ten=x"), scaled(2.0), None)]);
    assert_eq!(
        check(&limiter, NOW + 5, "ten=x").await,
        (Pass, 7),
        "the cache has it as over the limit of 10"
    );
}

#[tokio::test]
async fn every_core_has_the_overrides_also_before_a_configuration_and_after_another_one() {
    let first = Limiter::new(crate::fixture::memory(), options());
    let second = first.with_store(crate::fixture::memory());
    set(&second, [one(key("ten=x"), ALL, None)]);
    let third = first.with_store(crate::fixture::memory());
    for _ in 0..2 {
        first.configure(crate::fixture::configuration(LIMITS));
        for limiter in [&first, &second, &third] {
            assert_eq!(check(limiter, NOW, "ten=x").await.0, OverLimit);
            assert_eq!(limiter.overrides().len(), 1);
        }
    }
}
