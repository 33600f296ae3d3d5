//! Dynamic metadata, and the metadata of rules in it.

use super::*;

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
