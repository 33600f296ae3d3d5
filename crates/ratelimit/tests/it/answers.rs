//! What is answered: overall code, replaced limits, headers, metadata, errors.

mod metadata;

use serde_json::{Value, json};
use tidegate_ratelimit::{
    Code, Descriptor, Error, Facts, LimitHeaders, Limiter, Options, Override, Request, Response,
    Timestamp,
};

use crate::fixture::{
    NOW, answer, check_at, descriptor, limiter, memory, numbers, options, outline, request,
    with_hits,
};

use Code::{Ok as Pass, OverLimit};

/// Limits that are over at once (0 requests), that never are, and every mode.
const MODES: &str = "
domain: test-domain
descriptors:
  - {key: over, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: ok, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: quota_over, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 0}}
  - {key: quota_ok, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 20}}
  - {key: shadow_over, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 0}}
  - {key: free, rate_limit: {unlimited: true}}
";

fn descriptors(keys: &str) -> Vec<Descriptor> {
    keys.split_whitespace()
        .map(|key| descriptor(&format!("{key}=x")))
        .collect()
}

async fn ask(options: &Options, keys: &str) -> Response {
    answer(&limiter(MODES, options.clone()), &descriptors(keys)).await
}

#[tokio::test]
async fn one_ordinary_refusal_or_all_quotas_refuse_a_request() {
    let per_rule = options();
    let global_quota = Options {
        global_quota_mode: true,
        ..options()
    };
    let table = [
        (&per_rule, "ok", Pass),
        (&per_rule, "over", OverLimit),
        (&per_rule, "ok over ok", OverLimit),
        (&per_rule, "none", Pass),
        (&per_rule, "free", Pass),
        (&per_rule, "shadow_over", Pass),
        (&per_rule, "quota_over", OverLimit),
        (&per_rule, "quota_over quota_over", OverLimit),
        (&per_rule, "quota_over quota_ok", Pass),
        (&per_rule, "quota_over quota_ok over", OverLimit),
        (&per_rule, "quota_over ok", OverLimit),
        (&per_rule, "quota_over none", OverLimit),
        (&per_rule, "quota_over free", OverLimit),
        (&global_quota, "over", OverLimit),
        (&global_quota, "over ok", Pass),
        (&global_quota, "over none", Pass),
        (&global_quota, "over free", OverLimit),
        (&global_quota, "over quota_over", OverLimit),
        (&global_quota, "over shadow_over", Pass),
        (&global_quota, "free", Pass),
        (&global_quota, "none", Pass),
    ];
    for (options, keys, expected) in table {
        let response = ask(options, keys).await;
        assert_eq!(
            response.code, expected,
            "{keys}, global quota: {}",
            options.global_quota_mode
        );
    }
    let statuses = outline(&ask(&per_rule, "quota_over quota_ok").await);
    assert_eq!(
        statuses,
        [(OverLimit, 0), (Pass, 19)],
        "a quota that does not refuse still says that it is over"
    );
}

#[tokio::test]
async fn global_shadow_mode_changes_only_the_overall_code() {
    let options = Options {
        global_shadow_mode: true,
        response_headers: true,
        ..options()
    };
    let limiter = limiter(MODES, options);
    for (keys, flipped) in [("over", true), ("ok", false), ("shadow_over", false)] {
        let checked = check_at(&limiter, NOW, &request(&descriptors(keys))).await;
        let response = checked.response.unwrap();
        assert_eq!(
            (response.code, checked.facts.global_shadow_mode),
            (Pass, flipped),
            "{keys}"
        );
        assert_eq!(response.statuses[0].code == OverLimit, flipped, "{keys}");
        assert!(response.headers.is_some(), "{keys}");
    }
}

#[tokio::test]
async fn a_rule_in_shadow_mode_counts_what_it_would_have_refused() {
    let text = "
domain: test-domain
descriptors: [{key: shadow, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 10}}]";
    let limiter = limiter(text, options());
    // Hits; code and remaining; total, over, near, within, local cache, shadow, refunded.
    let table = [
        (7, 3, [7, 0, 0, 7, 0, 0, 0]),
        (5, 0, [5, 2, 2, 0, 0, 2, 0]),
        (5, 0, [5, 5, 0, 0, 0, 5, 0]),
    ];
    for (hits, remaining, expected) in table {
        let checked = check_at(&limiter, NOW, &request(&[with_hits("shadow=x", hits)])).await;
        let response = checked.response.unwrap();
        assert_eq!(
            (response.code, outline(&response)),
            (Pass, vec![(Pass, remaining)])
        );
        assert!(response.statuses[0].limit.is_some());
        assert_eq!(numbers(&checked.facts.tallies[0]), expected);
    }
}

#[tokio::test]
async fn replaced_limits_are_neither_counted_nor_told() {
    let limiter = limiter(
        "
domain: test-domain
descriptors:
  - {key: a, rate_limit: {unit: minute, requests_per_unit: 10, name: a}}
  - {key: b, rate_limit: {unit: minute, requests_per_unit: 10, name: b, replaces: [{name: a}]}}
  - {key: c, rate_limit: {unit: minute, requests_per_unit: 10, name: c, replaces: [{name: b}, {name: nobody}]}}
  - {key: u, rate_limit: {unlimited: true, name: u, replaces: [{name: a}]}}
  - {key: v, rate_limit: {unit: minute, requests_per_unit: 10, name: v, replaces: [{name: u}]}}
  - {key: x, rate_limit: {unit: minute, requests_per_unit: 10, name: x, replaces: [{name: y}]}}
  - {key: y, rate_limit: {unit: minute, requests_per_unit: 10, name: y, replaces: [{name: x}]}}
",
        options(),
    );
    // Descriptors; which of them are counted.
    let table = [
        ("a", "a"),
        ("a b", "b"),
        ("b a", "b"),
        // A limit that is replaced still replaces.
        ("a b c", "c"),
        // So does an unlimited one, which cannot be replaced itself.
        ("a u", ""),
        ("u v", "v"),
        ("x y", ""),
        ("a c", "a c"),
    ];
    for (keys, counted) in table {
        let checked = check_at(&limiter, NOW, &request(&descriptors(keys))).await;
        let told: Vec<String> = checked
            .stats_keys
            .iter()
            .map(|key| key.replace("test-domain.", ""))
            .collect();
        assert_eq!(told.join(" "), counted, "{keys}");
        let response = checked.response.unwrap();
        let limits = response
            .statuses
            .iter()
            .filter(|status| status.limit.is_some())
            .count();
        assert_eq!((limits, response.code), (told.len(), Pass), "{keys}");
    }
}

#[tokio::test]
async fn replacing_costs_the_same_for_each_of_many_descriptors() {
    // Everybody waits for a core that plans. Pairwise comparisons of these would take minutes.
    let names: Vec<String> = (0..5)
        .map(|number| format!("{{name: other{number}}}"))
        .collect();
    let text = format!(
        "domain: test-domain
descriptors:
  - {{key: a, rate_limit: {{unlimited: true, name: a, replaces: [{}]}}}}
  - {{key: b, rate_limit: {{unit: minute, requests_per_unit: 10, name: other4}}}}
",
        names.join(", ")
    );
    let limiter = limiter(&text, options());
    let mut descriptors = vec![descriptor("a=x"); 100_000];
    descriptors.extend(vec![descriptor("b=x"); 100_000]);
    let asked = std::time::Instant::now();
    let checked = check_at(&limiter, NOW, &request(&descriptors)).await;
    assert!(asked.elapsed().as_secs() < 20, "{:?}", asked.elapsed());
    assert_eq!(
        (
            checked.response.unwrap().statuses.len(),
            checked.facts.tallies.len()
        ),
        (200_000, 0)
    );
}

#[tokio::test]
async fn headers_tell_of_the_tightest_or_the_last_refusing_limit() {
    let headers = Options {
        response_headers: true,
        ..options()
    };
    let global_quota = Options {
        global_quota_mode: true,
        ..headers.clone()
    };
    let table = [
        (&headers, "ok", Some((10, 9, 46))),
        (&headers, "none", None),
        (&headers, "free", None),
        (&headers, "quota_ok ok", Some((10, 9, 46))),
        (&headers, "ok quota_ok", Some((10, 9, 46))),
        (&headers, "over ok", Some((0, 0, 826))),
        (&headers, "ok over none", Some((0, 0, 826))),
        // The first of two that are alike, but the last of those that refuse.
        (
            &headers,
            "shadow_over quota_over quota_ok",
            Some((0, 0, 46)),
        ),
        (&headers, "shadow_over over", Some((0, 0, 826))),
        (&headers, "over shadow_over", Some((0, 0, 826))),
        (&global_quota, "over quota_over", Some((0, 0, 826))),
    ];
    for (options, keys, expected) in table {
        let expected = expected.map(|(limit, remaining, reset)| LimitHeaders {
            limit,
            remaining,
            reset,
        });
        assert_eq!(ask(options, keys).await.headers, expected, "{keys}");
    }
    assert_eq!(
        ask(&options(), "ok").await.headers,
        None,
        "headers are off by default"
    );
}

#[tokio::test]
async fn the_last_of_several_refusals_gives_the_headers() {
    let limiter = limiter(
        MODES,
        Options {
            response_headers: true,
            ..options()
        },
    );
    let mut second = descriptor("over=x");
    second.limit = Some(Override {
        requests_per_unit: 0,
        unit: 1,
    });
    let response = answer(&limiter, &[descriptor("over=x"), second]).await;
    assert_eq!(
        response.headers,
        Some(LimitHeaders {
            limit: 0,
            remaining: 0,
            reset: 1
        })
    );
}

#[tokio::test]
async fn requests_that_make_no_sense_are_refused_in_the_words_of_the_reference() {
    let empty_domain = Request {
        domain: String::new(),
        ..request(&[])
    };
    let empty = "rate limit domain must not be empty";
    check_refused(&empty_domain, Error::EmptyDomain, empty).await;
    let none = "rate limit descriptor list must not be empty";
    check_refused(&request(&[]), Error::NoDescriptors, none).await;
    for unit in [0, 8, i32::MAX, -1] {
        let limit = Override {
            requests_per_unit: 1,
            unit,
        };
        let overridden = Descriptor {
            limit: Some(limit),
            ..descriptor("ok=x")
        };
        let error = Error::InvalidOverride {
            descriptor: 1,
            unit,
        };
        let text = format!(
            "descriptor 1: the limit override has no valid unit: {unit} is not one of 1 to 7"
        );
        check_refused(&request(&[descriptor("ok=x"), overridden]), error, &text).await;
    }
}

/// A request is refused with this error, and charges nothing.
async fn check_refused(request: &Request, error: Error, text: &str) {
    let limiter = limiter(MODES, options());
    let checked = check_at(&limiter, NOW, request).await;
    let Err(found) = checked.response else {
        panic!("it is answered: {text}")
    };
    assert_eq!((found.to_string().as_str(), &found), (text, &error));
    assert!(checked.facts.tallies.is_empty());
    let remaining = outline(&answer(&limiter, &[with_hits("ok=x", 0)]).await);
    assert_eq!(remaining, [(Pass, 10)], "a refused request charges nothing");
}

#[tokio::test]
async fn without_configuration_there_is_no_answer_and_then_there_is() {
    let limiter = Limiter::new(memory(), options());
    let clone = limiter.clone();
    let checked = check_at(&limiter, NOW, &request(&[descriptor("ok=x")])).await;
    assert_eq!(
        checked.response.unwrap_err().to_string(),
        "no rate limit configuration loaded"
    );
    let empty = Request {
        domain: String::new(),
        ..request(&[])
    };
    assert_eq!(
        check_at(&limiter, NOW, &empty).await.response,
        Err(Error::EmptyDomain)
    );
    assert_eq!(
        check_at(&limiter, NOW, &request(&[])).await.response,
        Err(Error::NoDescriptors)
    );

    clone
        .with_store(memory())
        .configure(crate::fixture::configuration(MODES));
    assert_eq!(
        outline(&answer(&limiter, &[descriptor("ok=x")]).await),
        [(Pass, 9)]
    );
    assert!(limiter.configuration().is_some());
}

#[tokio::test]
async fn the_time_to_the_end_of_the_window_is_told() {
    let limiter = limiter(MODES, options());
    // Microseconds; seconds left of the minute.
    for (now, left) in [
        (0, 60),
        (59_999_999, 1),
        (60_000_000, 60),
        (60_999_999, 60),
        (61_000_000, 59),
    ] {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(1);
        let (asked, mut facts) = (request(&[descriptor("ok=x")]), Facts::default());
        let response = limiter
            .check(&asked, Timestamp(now), deadline, &mut facts)
            .await;
        assert_eq!(
            response.unwrap().statuses[0].seconds_until_reset,
            Some(left),
            "at {now} us"
        );
    }
}
