//! What is answered: overall code, replaced limits, headers, metadata, errors.

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

const METADATA: &str = "
domain: test-domain
descriptors:
  - key: a
    metadata: {name: one, nested: {x: 1, list: [1]}, 5: number}
    rate_limit: {unit: minute, requests_per_unit: 10}
  - key: b
    detailed_metric: true
    metadata: {name: two, nested: {x: 2, z: true, list: [2]}, more: ~}
    rate_limit: {unit: minute, requests_per_unit: 10}
  - key: c
    value_to_metric: true
    metadata: {c: c}
    rate_limit: {unit: minute, requests_per_unit: 10}
  - {key: over, metadata: {o: o}, rate_limit: {unit: minute, requests_per_unit: 0}}
  - {key: free, metadata: {f: f}, rate_limit: {unlimited: true}}
  - {key: empty, metadata: {}, rate_limit: {unit: minute, requests_per_unit: 10}}
";

async fn metadata(limiter: &Limiter, request: &Request) -> Value {
    let response = check_at(limiter, NOW, request)
        .await
        .response
        .expect("an answer");
    response.dynamic_metadata.expect("metadata is on").into()
}

#[tokio::test]
async fn metadata_of_passing_limits_is_merged_and_never_changed() {
    let limiter = limiter(
        METADATA,
        Options {
            dynamic_metadata: true,
            ..options()
        },
    );
    let table = [
        (
            "a",
            json!({"name": "one", "nested": {"x": 1.0, "list": [1.0]}, "5": "number"}),
        ),
        (
            "a b",
            json!({"name": "one", "nested": {"x": 1.0, "z": true, "list": [1.0]}, "5": "number", "more": null}),
        ),
        // The merge before has left no trace.
        (
            "a",
            json!({"name": "one", "nested": {"x": 1.0, "list": [1.0]}, "5": "number"}),
        ),
        (
            "b",
            json!({"name": "two", "nested": {"x": 2.0, "z": true, "list": [2.0]}, "more": null}),
        ),
        ("c over free", json!({"c": "c"})),
        ("over free none empty", Value::Null),
    ];
    for (keys, expected) in table {
        let metadata = metadata(&limiter, &request(&descriptors(keys))).await;
        assert_eq!(
            metadata.get("metadata").unwrap_or(&Value::Null),
            &expected,
            "{keys}"
        );
    }
}

/// The reference loses it where the name of the limit in statistics depends on the request.
#[tokio::test]
async fn metadata_is_kept_whatever_the_limit_is_called() {
    let limits = "
domain: test-domain
descriptors:
  - {key: detailed, detailed_metric: true, metadata: {m: 1}, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: named, value_to_metric: true, metadata: {m: 2}, rate_limit: {unit: minute, requests_per_unit: 10}}
  - key: above
    value_to_metric: true
    descriptors:
      - {key: below, value_to_metric: true, metadata: {m: 3}, rate_limit: {unit: minute, requests_per_unit: 10}}
      - {key: plain, detailed_metric: true, metadata: {m: 4}, rate_limit: {unit: minute, requests_per_unit: 10}}
";
    let limiter = limiter(
        limits,
        Options {
            dynamic_metadata: true,
            ..options()
        },
    );
    for (entries, number) in [
        ("detailed=x", 1.0),
        ("named=x", 2.0),
        ("above=x below=y", 3.0),
        ("above=x plain=y", 4.0),
        ("named=other", 2.0),
    ] {
        let metadata = metadata(&limiter, &request(&[descriptor(entries)])).await;
        assert_eq!(
            metadata.get("metadata"),
            Some(&json!({"m": number})),
            "{entries}"
        );
    }
}

#[tokio::test]
async fn dynamic_metadata_repeats_the_request() {
    let limiter = limiter(
        METADATA,
        Options {
            dynamic_metadata: true,
            ..options()
        },
    );
    let simple = Request {
        domain: "d".into(),
        descriptors: vec![descriptor("k=v")],
        hits_addend: 5,
    };
    assert_eq!(
        metadata(&limiter, &simple).await,
        json!({"descriptors": [{"entries": ["k=v"]}], "domain": "d", "hitsAddend": 5.0})
    );

    let limits = [(5, 3), (0, 7), (1, 0)].map(|(requests_per_unit, unit)| {
        Some(Override {
            requests_per_unit,
            unit,
        })
    });
    let asked = limits.map(|limit| Descriptor {
        limit,
        hits_addend: Some(0),
        ..descriptor("")
    });
    // The domain is not configured, so a unit of 0 is no error.
    let full = Request {
        domain: "d".into(),
        descriptors: asked.to_vec(),
        hits_addend: 0,
    };
    assert_eq!(
        metadata(&limiter, &full).await,
        json!({"domain": "d", "descriptors": [
            {"entries": [], "limit": "requests_per_unit:5 unit:HOUR", "hitsAddend": 0.0},
            {"entries": [], "limit": "unit:7", "hitsAddend": 0.0},
            {"entries": [], "limit": "requests_per_unit:1", "hitsAddend": 0.0},
        ]})
    );
    assert_eq!(
        ask(&options(), "ok").await.dynamic_metadata,
        None,
        "metadata is off by default"
    );
}

#[tokio::test]
async fn requests_that_make_no_sense_are_refused_in_the_words_of_the_reference() {
    let empty_domain = Request {
        domain: String::new(),
        ..request(&[])
    };
    let overridden = |unit| {
        let limit = Some(Override {
            requests_per_unit: 1,
            unit,
        });
        request(&[
            descriptor("ok=x"),
            Descriptor {
                limit,
                ..descriptor("ok=x")
            },
        ])
    };
    let table = [
        (
            empty_domain,
            Error::EmptyDomain,
            "rate limit domain must not be empty",
        ),
        (
            request(&[]),
            Error::NoDescriptors,
            "rate limit descriptor list must not be empty",
        ),
        (
            overridden(0),
            Error::InvalidOverride {
                descriptor: 1,
                unit: 0,
            },
            "descriptor 1: the limit override has no valid unit: 0 is not one of 1 to 7",
        ),
        (
            overridden(8),
            Error::InvalidOverride {
                descriptor: 1,
                unit: 8,
            },
            "descriptor 1: the limit override has no valid unit: 8 is not one of 1 to 7",
        ),
        (
            overridden(i32::MAX),
            Error::InvalidOverride {
                descriptor: 1,
                unit: i32::MAX,
            },
            "descriptor 1: the limit override has no valid unit: 2147483647 is not one of 1 to 7",
        ),
        (
            overridden(-1),
            Error::InvalidOverride {
                descriptor: 1,
                unit: -1,
            },
            "descriptor 1: the limit override has no valid unit: -1 is not one of 1 to 7",
        ),
    ];
    let limiter = limiter(MODES, options());
    for (request, error, text) in table {
        let checked = check_at(&limiter, NOW, &request).await;
        let found = checked.response.unwrap_err();
        assert_eq!((found.to_string().as_str(), &found), (text, &error));
        assert!(checked.facts.tallies.is_empty());
    }
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
