//! Which limit a descriptor finds, and under which name its hits are counted.

use tidegate_ratelimit::{Code, Error, Limiter, Override, Unit};

use crate::fixture::{NOW, check_at, configuration, descriptor, limiter, options, request};

/// The limit that a descriptor should find: hits, unit, stats key.
type Expected<'a> = Option<(u32, Unit, &'a str)>;

async fn check(limiter: &Limiter, entries: &str, expected: Expected<'_>) {
    let checked = check_at(limiter, NOW, &request(&[descriptor(entries)])).await;
    let status = &checked.response.expect("an answer").statuses[0];
    let found = status
        .limit
        .as_ref()
        .map(|limit| (limit.requests_per_unit, limit.unit));
    let stats_key = checked.stats_keys.first().map(String::as_str);
    assert_eq!(
        found,
        expected.map(|(hits, unit, _)| (hits, unit)),
        "{entries}"
    );
    assert_eq!(stats_key, expected.map(|(_, _, key)| key), "{entries}");
}

const BASIC: &str = "
domain: test-domain
descriptors:
  - key: key1
    value: value1
    descriptors:
      - {key: subkey1, rate_limit: {unit: second, requests_per_unit: 5}}
      - {key: subkey1, value: subvalue1, rate_limit: {unit: Second, requests_per_unit: 10}}
  - {key: key2, rate_limit: {unit: minute, requests_per_unit: 20}}
  - {key: key2, value: value2, rate_limit: {unit: MINUTE, requests_per_unit: 30}}
  - {key: key2, value: value3}
  - {key: key3, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: key4, rate_limit: {unit: day, requests_per_unit: 1, name: key4_rate_limit}}
  - {key: key5, value: value5, rate_limit: {unit: day, requests_per_unit: 15}}
  - {key: key6, rate_limit: {unlimited: true}}
  - {key: key7, rate_limit: {unit: minute, requests_per_unit: 70}, detailed_metric: true}
  - {key: key8, rate_limit: {unit: week, requests_per_unit: 8}}
  - {key: key9, rate_limit: {unit: month, requests_per_unit: 9}}
  - {key: key10, rate_limit: {unit: year, requests_per_unit: 10}}
";

#[tokio::test]
async fn the_deepest_and_most_exact_limit_is_found() {
    let limiter = limiter(BASIC, options());
    let table: [(&str, Expected<'_>); 19] = [
        ("", None),
        ("key1=something", None),
        ("key1=value1", None),
        ("key2=value2 subkey=subvalue", None),
        ("key5=value5 subkey5=subvalue", None),
        (
            "key1=value1 subkey1=something",
            Some((5, Unit::Second, "test-domain.key1_value1.subkey1")),
        ),
        (
            "key1=value1 subkey1=subvalue1",
            Some((
                10,
                Unit::Second,
                "test-domain.key1_value1.subkey1_subvalue1",
            )),
        ),
        ("key1=value1 subkey1=subvalue1 more=x", None),
        ("subkey1=something key1=value1", None),
        (
            "key2=something",
            Some((20, Unit::Minute, "test-domain.key2")),
        ),
        ("key2=", Some((20, Unit::Minute, "test-domain.key2"))),
        (
            "key2=value2",
            Some((30, Unit::Minute, "test-domain.key2_value2")),
        ),
        ("key2=value3", None),
        ("key3=foo", Some((1, Unit::Hour, "test-domain.key3"))),
        (
            "key7=unspecified_value",
            Some((70, Unit::Minute, "test-domain.key7_unspecified_value")),
        ),
        (
            "key7=another_value",
            Some((70, Unit::Minute, "test-domain.key7_another_value")),
        ),
        ("key8=x", Some((8, Unit::Week, "test-domain.key8"))),
        ("key9=x", Some((9, Unit::Month, "test-domain.key9"))),
        ("key10=x", Some((10, Unit::Year, "test-domain.key10"))),
    ];
    for (entries, expected) in table {
        check(&limiter, entries, expected).await;
    }
}

#[tokio::test]
async fn a_name_is_told_and_an_unlimited_limit_counts_nothing() {
    let limiter = limiter(BASIC, options());
    let checked = check_at(
        &limiter,
        NOW,
        &request(&[descriptor("key4=foo"), descriptor("key6=foo")]),
    )
    .await;
    let statuses = checked.response.unwrap().statuses;
    assert_eq!(
        &*statuses[0].limit.as_ref().unwrap().name,
        "key4_rate_limit"
    );
    assert_eq!(
        (statuses[1].code, statuses[1].remaining, &statuses[1].limit),
        (Code::Ok, u32::MAX, &None)
    );
    assert_eq!(checked.facts.tallies.len(), 1);
}

#[tokio::test]
async fn an_unknown_domain_limits_nothing_and_is_counted() {
    let limiter = limiter(BASIC, options());
    for (domain, not_found) in [("foo_domain", 2), ("test-domain", 0)] {
        let mut question = request(&[descriptor(""), descriptor("key3=foo")]);
        question.domain = domain.into();
        // Only of a known domain the override is looked at.
        question.descriptors[0].limit = Some(Override {
            requests_per_unit: 1,
            unit: 1,
        });
        let checked = check_at(&limiter, NOW, &question).await;
        assert_eq!(checked.facts.domain_not_found, not_found, "{domain}");
        assert_eq!(checked.facts.tallies.is_empty(), not_found > 0, "{domain}");
    }
}

#[tokio::test]
async fn an_override_replaces_what_is_configured() {
    let limiter = limiter(BASIC, options());
    let table = [
        (
            "key1=value1 subkey1=something",
            10,
            4,
            "test-domain.key1_value1.subkey1_something",
        ),
        (
            "key1=value1 subkey1=something",
            42,
            3,
            "test-domain.key1_value1.subkey1_something",
        ),
        (
            "not=configured empty=",
            1,
            7,
            "test-domain.not_configured.empty",
        ),
        ("", 1, 1, "test-domain."),
        ("key6=foo", 0, 2, "test-domain.key6_foo"),
    ];
    for (entries, requests_per_unit, unit, stats_key) in table {
        let mut asked = descriptor(entries);
        asked.limit = Some(Override {
            requests_per_unit,
            unit,
        });
        let checked = check_at(&limiter, NOW, &request(&[asked])).await;
        let status = &checked.response.unwrap().statuses[0];
        let limit = status.limit.as_ref().unwrap();
        assert_eq!(
            (limit.requests_per_unit, limit.unit.number(), &*limit.name),
            (requests_per_unit, unit, "")
        );
        assert_eq!(checked.stats_keys[0], stats_key);
        assert_eq!(
            status.code == Code::OverLimit,
            requests_per_unit == 0,
            "{entries}"
        );
    }
}

#[tokio::test]
async fn patterns_match_in_the_order_of_the_file() {
    let limiter = limiter(
        "
domain: test-domain
descriptors:
  - {key: noVal, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: wild, value: foo1x, rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: wild, value: foo*, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: wild, value: foo1*, rate_limit: {unit: hour, requests_per_unit: 4}}
  - {key: wild, rate_limit: {unit: hour, requests_per_unit: 5}}
  - {key: noWild, value: foo, rate_limit: {unit: hour, requests_per_unit: 6}}
  - key: nestedWild
    value: val1
    descriptors: [{key: wild, value: goo*, rate_limit: {unit: hour, requests_per_unit: 7}}]
  - {key: midWild, value: bar*b, rate_limit: {unit: hour, requests_per_unit: 8}}
  - {key: multiWild, value: foo*bar*baz, rate_limit: {unit: hour, requests_per_unit: 9}}
  - {key: any*, rate_limit: {unit: hour, requests_per_unit: 10}}
",
        options(),
    );
    let table: [(&str, Expected<'_>); 15] = [
        ("noVal=foo1", Some((1, Unit::Hour, "test-domain.noVal"))),
        (
            "wild=foo1x",
            Some((2, Unit::Hour, "test-domain.wild_foo1x")),
        ),
        ("wild=foo1", Some((3, Unit::Hour, "test-domain.wild_foo*"))),
        ("wild=foo", Some((3, Unit::Hour, "test-domain.wild_foo*"))),
        ("wild=foo*", Some((3, Unit::Hour, "test-domain.wild_foo*"))),
        ("wild=bar", Some((5, Unit::Hour, "test-domain.wild"))),
        ("noWild=foo1", None),
        (
            "nestedWild=val1 wild=goo2",
            Some((7, Unit::Hour, "test-domain.nestedWild_val1.wild_goo*")),
        ),
        ("nestedWild=val1 wild=foo1", None),
        (
            "midWild=bar123b",
            Some((8, Unit::Hour, "test-domain.midWild_bar*b")),
        ),
        ("midWild=bara", None),
        (
            "multiWild=foo123bar456baz",
            Some((9, Unit::Hour, "test-domain.multiWild_foo*bar*baz")),
        ),
        ("multiWild=foobar", None),
        // A pattern without value stands whole in the stats key.
        ("any=bar", Some((10, Unit::Hour, "test-domain.any_any*"))),
        (
            "anything=x",
            Some((10, Unit::Hour, "test-domain.anything_any*")),
        ),
    ];
    for (entries, expected) in table {
        check(&limiter, entries, expected).await;
    }
}

const METRICS: &str = "
domain: domain
descriptors:
  - key: route
    value_to_metric: true
    descriptors:
      - key: http_method
        value_to_metric: true
        descriptors:
          - {key: subject_id, rate_limit: {unit: minute, requests_per_unit: 60}}
          - {key: detailed_id, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 61}}
  - key: user
    value_to_metric: true
    descriptors:
      - key: action
        value: read*
        value_to_metric: true
        descriptors: [{key: resource, rate_limit: {unit: minute, requests_per_unit: 62}}]
  - key: wild
    value: foo*
    descriptors:
      - key: other
        value_to_metric: true
        descriptors: [{key: limit, rate_limit: {unit: minute, requests_per_unit: 63}}]
  - {key: wild2, value: foo*bar*, value_to_metric: true, rate_limit: {unit: minute, requests_per_unit: 64}}
  - key: key_2
    detailed_metric: true
    rate_limit: {unit: minute, requests_per_unit: 65}
    descriptors:
      - {key: key_3, value: v3, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 66}}
  - key: exact
    value: value
    value_to_metric: true
    rate_limit: {unit: minute, requests_per_unit: 67}
";

#[tokio::test]
async fn stats_keys_carry_the_values_that_the_rules_ask_for() {
    let limiter = limiter(METRICS, options());
    let table = [
        (
            "route=draw http_method=GET subject_id=123",
            60,
            "domain.route_draw.http_method_GET.subject_id",
        ),
        (
            "route= http_method=GET subject_id=123",
            60,
            "domain.route.http_method_GET.subject_id",
        ),
        (
            "route=draw http_method=GET detailed_id=123",
            61,
            "domain.route_draw.http_method_GET.detailed_id_123",
        ),
        (
            "route=draw http_method=GET detailed_id=",
            61,
            "domain.route_draw.http_method_GET.detailed_id_",
        ),
        (
            "user=alice action=readfile resource=documents",
            62,
            "domain.user_alice.action_readfile.resource",
        ),
        (
            "wild=foo1 other=bar limit=X",
            63,
            "domain.wild_foo*.other_bar.limit",
        ),
        ("wild2=foo123bar456", 64, "domain.wild2_foo123bar456"),
        (
            "key_2=key-2-value key_3=v3",
            66,
            "domain.key_2_key-2-value.key_3_v3",
        ),
        ("key_2=x", 65, "domain.key_2_x"),
        ("exact=value", 67, "domain.exact_value"),
    ];
    for (entries, requests_per_unit, stats_key) in table {
        let mut question = request(&[descriptor(entries)]);
        question.domain = "domain".into();
        let checked = check_at(&limiter, NOW, &question).await;
        let limit = checked.response.unwrap().statuses[0]
            .limit
            .clone()
            .expect(entries);
        assert_eq!(limit.requests_per_unit, requests_per_unit, "{entries}");
        assert_eq!(checked.stats_keys[0], stats_key, "{entries}");
    }
}

const SHARED: &str = "
domain: test-domain
descriptors:
  - {key: files, value: files/*, share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 100}}
  - key: route
    value: api/*
    share_threshold: true
    value_to_metric: true
    descriptors: [{key: method, rate_limit: {unit: minute, requests_per_unit: 60}}]
  - key: service
    value: svc/*
    share_threshold: true
    descriptors: [{key: endpoint, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 80}}]
  - key: nested
    value: parent
    descriptors:
      - {key: files, value: nested/*, share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 200}}
  - key: files
    value: top/*
    share_threshold: true
    descriptors:
      - {key: files, value: nested/*, share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 300}}
  - key: path
    value: path/*
    share_threshold: true
    descriptors:
      - key: file
        value: file/*
        descriptors: [{key: type, rate_limit: {unit: minute, requests_per_unit: 120}}]
  - key: user
    value: user/*
    share_threshold: true
    descriptors:
      - key: resource
        value: res/*
        share_threshold: true
        descriptors: [{key: action, rate_limit: {unit: minute, requests_per_unit: 150}}]
  - {key: file, value: test1, rate_limit: {unit: minute, requests_per_unit: 50}}
  - {key: file, value: test*, share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 100}}
  - {key: midpath, value: /api*v1, share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 100}}
  - {key: multiroute, value: svc*ep*rpc, share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 50}}
  - key: midroute
    value: /api*v2
    share_threshold: true
    value_to_metric: true
    rate_limit: {unit: minute, requests_per_unit: 80}
  - key: tenant
    value: t*prod
    share_threshold: true
    descriptors:
      - {key: resource, value: res*v2, share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 60}}
";

/// The limit, whether two requests are counted together, the stats key, and the requests.
const SHARING: &str = "\
100 one test-domain.files_files/* | files=files/a.pdf | files=files/b.csv
60 one test-domain.route_api/*.method | route=api/v1 method=GET | route=api/v2 method=GET
60 two test-domain.route_api/*.method | route=api/v1 method=GET | route=api/v1 method=PUT
80 one test-domain.service_svc/*.endpoint_get | service=svc/user endpoint=get | service=svc/x endpoint=get
200 one test-domain.nested_parent.files_nested/* | nested=parent files=nested/1 | nested=parent files=nested/2
300 one test-domain.files_top/*.files_nested/* | files=top/1 files=nested/1 | files=top/2 files=nested/2
120 one test-domain.path_path/*.file_file/*.type | path=path/foo file=file/1 type=pdf | path=path/bar file=file/1 type=pdf
120 two test-domain.path_path/*.file_file/*.type | path=path/foo file=file/1 type=pdf | path=path/foo file=file/2 type=pdf
150 one test-domain.user_user/*.resource_res/*.action | user=user/alice resource=res/1 action=read | user=user/bob resource=res/2 action=read
50 two test-domain.file_test1 | file=test1 | file=test2
100 one test-domain.file_test* | file=test2/test23/test123 | file=test4
100 one test-domain.midpath_/api*v1 | midpath=/api/v1 | midpath=/api-beta-v1
50 one test-domain.multiroute_svc*ep*rpc | multiroute=svcAepBrpc | multiroute=svceprpc
80 one test-domain.midroute_/api*v2 | midroute=/api/v2 | midroute=/api-beta-v2
60 one test-domain.tenant_t*prod.resource_res*v2 | tenant=t1prod resource=resAv2 | tenant=t2prod resource=resBv2";

#[tokio::test]
async fn values_that_share_a_threshold_share_name_and_counter() {
    for row in SHARING.lines() {
        let columns: Vec<&str> = row.split(" | ").collect();
        let limit: Vec<&str> = columns[0].split(' ').collect();
        let [first, second] = [columns[1], columns[2]];
        let expected = (limit[0].parse().unwrap(), Unit::Minute, limit[2]);
        let limiter = limiter(SHARED, options());
        check(&limiter, first, Some(expected)).await;
        let checked = check_at(&limiter, NOW, &request(&[descriptor(second)])).await;
        let status = &checked.response.unwrap().statuses[0];
        let used = status.limit.as_ref().expect(second).requests_per_unit - status.remaining;
        let counters = match used {
            1 => "two",
            2 => "one",
            _ => "?",
        };
        assert_eq!(counters, limit[1], "{row}");
    }
}

/// What the server prints for people to try must be limited.
#[tokio::test]
async fn the_example_of_a_configuration_finds_a_limit() {
    let example = |text: &str| {
        let (domain, entries) = configuration(text).example()?;
        let entries: Vec<_> = entries
            .into_iter()
            .map(|entry| format!("{}={}", entry.key, entry.value))
            .collect();
        Some(format!("{domain}: {}", entries.join(" ")))
    };
    for (text, expected) in [
        (BASIC, Some("test-domain: key1=value1 subkey1=me")),
        (SHARED, Some("test-domain: files=files/me")),
        (
            "domain: d\ndescriptors: [{key: user_id, rate_limit: {unit: day, requests_per_unit: 1}}]",
            Some("d: user_id=me"),
        ),
        (
            "domain: d\ndescriptors: [{key: a, rate_limit: {unlimited: true}}, {key: b}]",
            None,
        ),
        ("domain: d", None),
    ] {
        assert_eq!(example(text).as_deref(), expected, "{text}");
    }
    let (_, entries) = configuration(BASIC).example().unwrap();
    let entries: Vec<_> = entries
        .into_iter()
        .map(|entry| format!("{}={}", entry.key, entry.value))
        .collect();
    check(
        &limiter(BASIC, options()),
        &entries.join(" "),
        Some((5, Unit::Second, "test-domain.key1_value1.subkey1")),
    )
    .await;
}

/// One call kept a core busy for seconds: 1,000 descriptors of 4 KiB with 200 patterns are 800 MiB to search.
#[tokio::test]
async fn values_that_are_too_long_for_many_patterns_are_refused() {
    let patterns: String = (0..200)
        .map(|number| {
            format!("  - {{key: path, value: '*/{number}x*y', rate_limit: {{unit: minute, requests_per_unit: 10}}}}\n")
        })
        .collect();
    let limiter = limiter(
        &format!("domain: test-domain\ndescriptors:\n{patterns}"),
        options(),
    );
    let of_length = |length: usize| {
        let mut descriptor = descriptor("path=x");
        descriptor.entries[0].value = format!("{}y", "/1".repeat(length / 2));
        descriptor
    };
    let answered = check_at(&limiter, NOW, &request(&vec![of_length(60 << 10); 2])).await;
    assert_eq!(answered.response.unwrap().code, Code::Ok);
    let refused = check_at(&limiter, NOW, &request(&vec![of_length(4 << 10); 1_000])).await;
    assert!(refused.facts.tallies.is_empty());
    assert!(
        matches!(
            refused.response,
            Err(Error::LongValues {
                descriptor: 30..=50
            })
        ),
        "{:?}",
        refused.response
    );
}
