//! Configuration that comes as values: it means what a file with the same content means.

use serde_json::{Map, json};
use tidegate_ratelimit::{
    Code, ConfigError, Configuration, Limiter, Options, Resource, ResourceDescriptor,
    ResourceLimit, SameDomain,
};

use crate::fixture::{answer, configuration, descriptor, memory, options};

fn resource(name: &str, domain: &str, descriptors: Vec<ResourceDescriptor>) -> Resource {
    Resource {
        name: name.into(),
        domain: domain.into(),
        descriptors,
    }
}

fn limit(unit: &str, requests_per_unit: u32) -> Option<ResourceLimit> {
    Some(ResourceLimit {
        unit: unit.into(),
        requests_per_unit,
        ..ResourceLimit::default()
    })
}

fn keyed(key: &str, rate_limit: Option<ResourceLimit>) -> ResourceDescriptor {
    ResourceDescriptor {
        key: key.into(),
        rate_limit,
        ..ResourceDescriptor::default()
    }
}

fn valued(key: &str, value: &str, descriptors: Vec<ResourceDescriptor>) -> ResourceDescriptor {
    ResourceDescriptor {
        value: value.into(),
        descriptors,
        ..keyed(key, None)
    }
}

fn texts(errors: Vec<ConfigError>) -> Vec<String> {
    errors.iter().map(ConfigError::reference_text).collect()
}

#[track_caller]
fn refused(resources: Vec<Resource>, same_domain: SameDomain) -> Vec<String> {
    texts(
        Configuration::from_resources(resources, same_domain).expect_err("the resources are wrong"),
    )
}

#[test]
fn a_resource_means_what_its_file_means() {
    let units = ["SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "YEAR"];
    let mut descriptors: Vec<_> = units
        .iter()
        .map(|unit| keyed(unit, limit(unit, 7)))
        .collect();
    let unlimited = ResourceLimit {
        unit: "UNKNOWN".into(),
        unlimited: true,
        ..ResourceLimit::default()
    };
    descriptors.push(keyed("free", Some(unlimited)));
    descriptors.push(ResourceDescriptor {
        shadow_mode: true,
        quota_mode: true,
        detailed_metric: true,
        ..keyed("flags", limit("day", 1))
    });
    descriptors.push(valued(
        "plan",
        "gold*",
        vec![keyed("user", limit("hour", 2))],
    ));
    let made =
        Configuration::from_resources(vec![resource("r", "d", descriptors)], SameDomain::Refuse)
            .unwrap();

    let line = |unit: &&str| {
        format!("  - {{key: {unit}, rate_limit: {{unit: {unit}, requests_per_unit: 7}}}}\n")
    };
    let text = format!(
        "domain: d\ndescriptors:\n{}\
         \x20 - {{key: free, rate_limit: {{unlimited: true}}}}\n\
         \x20 - key: flags\n    shadow_mode: true\n    quota_mode: true\n    detailed_metric: true\n    \
         rate_limit: {{unit: day, requests_per_unit: 1}}\n\
         \x20 - key: plan\n    value: gold*\n    descriptors: [{{key: user, rate_limit: {{unit: hour, requests_per_unit: 2}}}}]\n",
        units.iter().map(line).collect::<String>()
    );
    assert_eq!(made.dump(), configuration(&text).dump());
    assert!(
        made.dump()
            .contains("d.plan_gold*.user: unit=HOUR requests_per_unit=2,"),
        "{}",
        made.dump()
    );
}

#[tokio::test]
async fn names_replacements_and_metadata_of_resources_work() {
    let named = ResourceLimit {
        name: "small".into(),
        ..limit("day", 1).unwrap()
    };
    let large = ResourceLimit {
        replaces: vec!["small".into()],
        ..limit("day", 100).unwrap()
    };
    let metadata: Map<_, _> = json!({"owner": {"team": "a"}, "n": 1.5})
        .as_object()
        .unwrap()
        .clone();
    let large = ResourceDescriptor {
        metadata: metadata.clone(),
        ..keyed("large", Some(large))
    };
    let resources = vec![resource(
        "r",
        "test-domain",
        vec![keyed("small", Some(named)), large],
    )];
    let limiter = Limiter::new(
        memory(),
        Options {
            dynamic_metadata: true,
            ..options()
        },
    );
    limiter.configure(Configuration::from_resources(resources, SameDomain::Refuse).unwrap());
    for _ in 0..2 {
        let response = answer(&limiter, &[descriptor("small=x"), descriptor("large=x")]).await;
        assert_eq!(response.code, Code::Ok, "the small limit is replaced");
        let shown = serde_json::to_string(&response.dynamic_metadata).unwrap();
        assert!(shown.contains(r#""owner":{"team":"a"}"#), "{shown}");
    }
}

#[test]
fn mistakes_have_the_words_of_files_and_the_name_of_the_resource() {
    let named = |name: &str, replaces: &str| ResourceLimit {
        name: name.into(),
        replaces: vec![replaces.into()],
        ..limit("day", 1).unwrap()
    };
    let unlimited = ResourceLimit {
        unlimited: true,
        ..limit("DAY", 0).unwrap()
    };
    for (descriptors, expected) in [
        (vec![keyed("", None)], "descriptor has empty key"),
        (
            vec![keyed("a", None), keyed("a", None)],
            "duplicate descriptor composite key 'd.a'",
        ),
        (
            vec![keyed("a", limit("UNKNOWN", 1))],
            "invalid rate limit unit 'UNKNOWN'",
        ),
        (
            vec![keyed("a", limit("9", 1))],
            "invalid rate limit unit '9'",
        ),
        (
            vec![keyed("a", Some(unlimited))],
            "should not specify rate limit unit when unlimited",
        ),
        (
            vec![keyed("a", Some(named("n", "n")))],
            "replaces should not contain name of same descriptor",
        ),
        (
            vec![keyed("a", Some(named("n", "")))],
            "should not have an empty replaces entry",
        ),
    ] {
        assert_eq!(
            refused(vec![resource("r", "d", descriptors)], SameDomain::Refuse),
            [format!("r: {expected}")]
        );
    }
    let nested = vec![valued("a", "b", vec![keyed("c", limit("", 1))])];
    let [error] =
        &Configuration::from_resources(vec![resource("r", "d", nested)], SameDomain::Refuse)
            .unwrap_err()[..]
    else {
        panic!("one mistake")
    };
    let shown = "r: invalid rate limit unit '' (at descriptors[0].descriptors[0].rate_limit.unit)";
    assert_eq!(error.to_string(), shown, "a resource has no lines");
    let empty = Configuration::from_resources(vec![resource("r", "", vec![])], SameDomain::Refuse)
        .unwrap_err();
    assert_eq!(
        empty[0].to_string(),
        "r: config file cannot have empty domain (at domain)"
    );
}

#[test]
fn resources_are_merged_in_the_order_of_their_names() {
    let both = |first: &str, second: &str| {
        vec![
            resource(
                "b",
                "d",
                vec![valued("k", first, vec![]), keyed("b", limit("day", 1))],
            ),
            resource(
                "a",
                "d",
                vec![valued("k", second, vec![]), keyed("a", limit("day", 2))],
            ),
        ]
    };
    let merged = Configuration::from_resources(both("1", "2"), SameDomain::Merge).unwrap();
    assert_eq!(
        (merged.domain_count(), merged.dump().lines().count()),
        (1, 2)
    );
    assert_eq!(
        refused(both("1", "2"), SameDomain::Refuse),
        ["b: duplicate domain 'd' in config file"]
    );
    assert_eq!(
        refused(both("1", "1"), SameDomain::Merge),
        ["b: duplicate descriptor composite key 'd.k_1'"]
    );
}

#[test]
fn mistakes_of_very_many_resources_are_not_all_kept() {
    let many = (0..5_000)
        .map(|number| resource(&number.to_string(), "", vec![]))
        .collect();
    assert_eq!(refused(many, SameDomain::Refuse).len(), 100);
}
