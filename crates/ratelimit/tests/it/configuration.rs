//! What is accepted, and what is told about the rest.

mod malformed;
mod mutations;
mod resources;

use proptest::prelude::*;
use tidegate_ratelimit::{ConfigError, Configuration, SameDomain, Source};

use crate::fixture::{answer, configuration, descriptor, limiter, options, source};

#[track_caller]
fn errors(sources: &[Source], same_domain: SameDomain) -> Vec<ConfigError> {
    Configuration::load(sources, same_domain).expect_err("the files are wrong")
}

#[track_caller]
fn check(name: &str, text: &str, expected: &[&str]) {
    let texts: Vec<String> = errors(&[source(name, text)], SameDomain::Refuse)
        .iter()
        .map(ConfigError::reference_text)
        .collect();
    assert_eq!(texts, expected, "{text}");
}

/// A file, and what the reference says about it after the file's name.
const MISTAKES: &[(&str, &str, &str)] = &[
    (
        "empty_domain.yaml",
        "descriptors: []",
        "config file cannot have empty domain",
    ),
    (
        "empty_key.yaml",
        "domain: d\ndescriptors: [{value: v}]",
        "descriptor has empty key",
    ),
    (
        "duplicate_key.yaml",
        "domain: test-domain\ndescriptors: [{key: key1, value: value1}, {key: key1, value: value1}]",
        "duplicate descriptor composite key 'test-domain.key1_value1'",
    ),
    (
        "nested_duplicate.yaml",
        "domain: d\ndescriptors: [{key: a, descriptors: [{key: b_1}, {key: b, value: 1}]}]",
        "duplicate descriptor composite key 'd.a.b_1'",
    ),
    (
        "bad_limit_unit.yaml",
        "domain: d\ndescriptors: [{key: a, rate_limit: {unit: foo, requests_per_unit: 5}}]",
        "invalid rate limit unit 'foo'",
    ),
    (
        "no_unit.yaml",
        "domain: d\ndescriptors: [{key: a, rate_limit: {requests_per_unit: 5}}]",
        "invalid rate limit unit ''",
    ),
    (
        "unknown_unit.yaml",
        "domain: d\ndescriptors: [{key: a, rate_limit: {unit: unknown}}]",
        "invalid rate limit unit 'unknown'",
    ),
    (
        "replaces_self.yaml",
        "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, name: n, replaces: [{name: n}]}}]",
        "replaces should not contain name of same descriptor",
    ),
    (
        "replaces_empty.yaml",
        "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, replaces: [{name: \"\"}]}}]",
        "should not have an empty replaces entry",
    ),
    (
        "bad_yaml.yaml",
        "'''\n",
        "error loading config file: yaml: line 2: found unexpected end of stream",
    ),
    (
        "misspelled_key.yaml",
        "domain: d\ndescriptors: [{key: a, ratelimit: {unit: day}}]",
        "config error, unknown key 'ratelimit'",
    ),
    (
        "misspelled_key2.yaml",
        "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requestsperunit: 1}}]",
        "config error, unknown key 'requestsperunit'",
    ),
    (
        "non_string_key.yaml",
        "domain: d\n0.25: x\n",
        "config error, key is not of type string: 0.25",
    ),
    (
        "non_map_list.yaml",
        "domain: d\ndescriptors: [a]",
        "config error, yaml file contains list of type other than map: a",
    ),
    (
        "float.yaml",
        "domain: d\ndescriptors: [{key: a, value: 0.5}]",
        "error checking config",
    ),
    (
        "large.yaml",
        "domain: d\ndescriptors: [{key: a, value: 9223372036854775808}]",
        "error checking config",
    ),
    (
        "unlimited_with_unit.yaml",
        "domain: d\ndescriptors: [{key: a, rate_limit: {unlimited: true, unit: day}}]",
        "should not specify rate limit unit when unlimited",
    ),
    (
        "pause.yaml",
        "domain: d\ndescriptors: [{key: a, pause_when_throttled: true}]",
        "pause_when_throttled is of no use without a rate_limit",
    ),
    (
        "share_threshold.yaml",
        "domain: d\ndescriptors: [{key: a, value: b, share_threshold: true}]",
        "share_threshold can only be used with wildcard values (containing '*'), but found key 'a_b'",
    ),
    (
        "metadata.yaml",
        "domain: d\ndescriptors: [{key: a, metadata: {x: .nan}}]",
        "error parsing metadata: NaN is not a finite number",
    ),
    (
        "quoted_number.yaml",
        "domain: d\ndescriptors:\n- key: a\n  rate_limit: {unit: day, requests_per_unit: \"5\"}",
        "error loading config file: yaml: unmarshal errors:\n  line 4: cannot unmarshal !!str `5` into uint32",
    ),
    (
        "negative_number.yaml",
        "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: -5}}]",
        "error loading config file: yaml: unmarshal errors:\n  line 2: cannot unmarshal !!int `-5` into uint32",
    ),
];

#[test]
fn mistakes_are_told_in_the_words_of_the_reference() {
    for (name, text, expected) in MISTAKES {
        check(name, text, &[&format!("{name}: {expected}")]);
    }
}

#[test]
fn a_domain_is_loaded_once_unless_files_are_merged() {
    let basic = source("basic_config.yaml", "domain: test-domain");
    let duplicate = source("duplicate_domain.yaml", "domain: test-domain");
    let found = errors(&[duplicate, basic], SameDomain::Refuse);
    assert_eq!(
        found[0].reference_text(),
        "duplicate_domain.yaml: duplicate domain 'test-domain' in config file",
        "files are read in the order of their names"
    );

    let one = "domain: test-domain\ndescriptors: [{key: key1, value: value1, rate_limit: {unit: minute, requests_per_unit: 10}}]";
    let two = "domain: test-domain\ndescriptors: [{key: key2, value: value2, rate_limit: {unit: minute, requests_per_unit: 20}}]";
    let merged = [
        source("merge_domain_key1.yaml", one),
        source("merge_domain_key2.yaml", two),
    ];
    let merged = Configuration::load(&merged, SameDomain::Merge).unwrap();
    assert_eq!(merged.domain_count(), 1);
    let keys: Vec<&str> = merged.stats_keys().collect();
    assert_eq!(keys, ["test-domain.key1_value1", "test-domain.key2_value2"]);

    let twice = [
        source("merge_domain_key1.yaml", one),
        source("merge_domain_key1.yaml", one),
    ];
    assert_eq!(
        errors(&twice, SameDomain::Merge)[0].reference_text(),
        "merge_domain_key1.yaml: duplicate descriptor composite key 'test-domain.key1_value1'"
    );
}

/// In the reference that is a matter of chance, since the order of its files is.
#[tokio::test]
async fn of_wildcards_in_merged_files_that_of_the_first_name_wins() {
    let text = |value: &str, number: u32| {
        format!(
            "domain: test-domain\ndescriptors: [{{key: k, value: '{value}', rate_limit: {{unit: day, requests_per_unit: {number}}}}}]"
        )
    };
    let [one, two] = [
        source("a.yaml", &text("x*", 10)),
        source("b.yaml", &text("*y", 20)),
    ];
    for files in [[one.clone(), two.clone()], [two, one]] {
        let limiter = limiter("domain: other", options());
        limiter.configure(Configuration::load(&files, SameDomain::Merge).unwrap());
        let answer = answer(&limiter, &[descriptor("k=xy"), descriptor("k=zy")]).await;
        let limits: Vec<u32> = answer
            .statuses
            .iter()
            .map(|status| status.limit.as_ref().unwrap().requests_per_unit)
            .collect();
        assert_eq!(limits, [10, 20]);
    }
}

#[test]
fn all_mistakes_are_told_with_their_place_and_a_hint() {
    let text = "\
domain: d
descriptors:
  - key: a
    rate_limit:
      unit: secnd
      requests_per_unit: many
  - key: b
    ratelimit: {}
  - key: a
    shadow_mode: 'yes'
";
    let found = errors(
        &[source("b.yaml", text), source("a.yaml", "")],
        SameDomain::Refuse,
    );
    let found: Vec<String> = found
        .iter()
        .map(|error| format!("{error}; {}", error.hint().unwrap_or("no hint")))
        .collect();
    assert_eq!(
        found,
        [
            "a.yaml:1:1: config file cannot have empty domain (at domain); add 'domain: ..' at the top of the file",
            "b.yaml:5:13: invalid rate limit unit 'secnd' (at descriptors[0].rate_limit.unit); did you mean 'second'?",
            "b.yaml:6:26: cannot unmarshal !!str `many` into uint32 (at descriptors[0].rate_limit.requests_per_unit); \
             write a whole number from 0 to 4294967295, without quotes",
            "b.yaml:8:5: config error, unknown key 'ratelimit' (at descriptors[1]); did you mean 'rate_limit'?",
            "b.yaml:10:18: cannot unmarshal !!str `yes` into bool (at descriptors[2].shadow_mode); \
             write true or false, without quotes",
        ]
    );
}

#[test]
fn what_only_follows_from_another_mistake_is_not_told() {
    check(
        "a.yaml",
        "domian: d\ndescriptors: [{kye: a}]",
        &[
            "a.yaml: config error, unknown key 'domian'",
            "a.yaml: config error, unknown key 'kye'",
        ],
    );
}

#[test]
fn harmless_oddities_are_accepted() {
    let table = [
        ("empty document", "---\ndomain: d"),
        ("byte order mark", "\u{feff}domain: d"),
        (
            "windows line ends",
            "domain: d\r\ndescriptors:\r\n- key: a\r\n",
        ),
        (
            "only the first document counts",
            "domain: d\n---\nnonsense: [\n",
        ),
        ("the last of two keys wins", "domain: ''\ndomain: d"),
        (
            "a key of another depth",
            "domain: d\nunit: foo\nshadow_mode: 12",
        ),
        (
            "unlimited with a bad unit",
            "domain: d\ndescriptors: [{key: a, rate_limit: {unlimited: true, unit: foo}}]",
        ),
        (
            "null limit",
            "domain: d\ndescriptors: [{key: a, rate_limit: }]",
        ),
        ("null lists", "domain: d\ndescriptors: ~"),
        (
            "null metadata",
            "domain: d\ndescriptors: [{key: a, metadata: ~}]",
        ),
        (
            "free metadata",
            "domain: d\ndescriptors: [{key: a, metadata: {x: [1, 0.5, [], {y: null}], 0.5: z}}]",
        ),
        (
            "numbers and booleans as text",
            "domain: 5\ndescriptors: [{key: true, value: 0x10}]",
        ),
        (
            "anchors and merge keys",
            "domain: d\ndescriptors:\n- &a {key: a, rate_limit: &r {unit: day}}\n- {<<: *a, key: b, rate_limit: *r}",
        ),
        (
            "same key below different parents",
            "domain: d\ndescriptors: [{key: a, descriptors: [{key: x}]}, {key: b, descriptors: [{key: x}]}]",
        ),
        (
            "replaces nothing that exists",
            "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, replaces: [{name: x}]}}]",
        ),
        ("a date is a text", "domain: 2001-01-01"),
    ];
    for (name, text) in table {
        let loaded = Configuration::load(&[source(name, text)], SameDomain::Refuse);
        assert_eq!(loaded.map(|loaded| loaded.domain_count()), Ok(1), "{name}");
    }
}

#[test]
fn scalars_keep_the_text_that_was_written() {
    let limit = "rate_limit: {unit: day, requests_per_unit: 0x10}";
    let text = format!(
        "domain: 0x10\ndescriptors: [{{key: yes, value: 017, {limit}}}, {{key: ~, value: 1_0}}]"
    );
    check("a.yaml", &text, &["a.yaml: descriptor has empty key"]);
    let text = format!("domain: 0x10\ndescriptors: [{{key: yes, value: 017, {limit}}}]");
    assert_eq!(
        configuration(&text).dump(),
        "0x10.yes_017: unit=DAY requests_per_unit=16, shadow_mode: false, quota_mode: false\n"
    );
}

#[test]
fn merge_keys_fill_in_what_the_map_does_not_say() {
    let text = "
domain: d
descriptors:
  - &base {key: a, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 7}}
  - {<<: *base, key: b}
  - {<<: [{key: c}, *base], quota_mode: true}
  - {<<: *base, key: e, rate_limit: {requests_per_unit: 8}}
";
    assert_eq!(
        configuration(text).dump(),
        "d.a: unit=HOUR requests_per_unit=7, shadow_mode: true, quota_mode: false\n\
         d.b: unit=HOUR requests_per_unit=7, shadow_mode: true, quota_mode: false\n\
         d.c: unit=HOUR requests_per_unit=7, shadow_mode: true, quota_mode: true\n\
         d.e: unit=HOUR requests_per_unit=8, shadow_mode: true, quota_mode: false\n"
    );
}

#[test]
fn the_dump_shows_every_limit_sorted() {
    let text = "
domain: d
descriptors:
  - {key: z, rate_limit: {unlimited: true, requests_per_unit: 3}}
  - {key: b, value: x*, quota_mode: true, rate_limit: {unit: week, requests_per_unit: 4294967295}}
  - {key: no_limit, descriptors: [{key: a, shadow_mode: true, rate_limit: {unit: year}}]}
";
    assert_eq!(
        configuration(text).dump(),
        "d.b_x*: unit=WEEK requests_per_unit=4294967295, shadow_mode: false, quota_mode: true\n\
         d.no_limit.a: unit=YEAR requests_per_unit=0, shadow_mode: true, quota_mode: false\n\
         d.z: unit=UNKNOWN requests_per_unit=3, shadow_mode: false, quota_mode: false\n"
    );
}

#[test]
fn a_small_file_cannot_ask_for_much() {
    // Ten levels of ten aliases each: ten thousand million values, if followed.
    let mut bomb = String::from("a0: &a0 {key: x}\n");
    for level in 1..=10 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
    }
    let found = errors(&[source("bomb.yaml", &bomb)], SameDomain::Refuse);
    assert!(
        found[0].message.contains("more than 1000000 values"),
        "{}",
        found[0]
    );

    for deep in [
        "[".repeat(100_000),
        "- ".repeat(100_000),
        "{a: ".repeat(100_000),
        "? ".repeat(100_000),
    ] {
        let found = errors(&[source("deep.yaml", &deep)], SameDomain::Refuse);
        assert!(
            found[0].message.contains("nested more than 200 deep"),
            "{}",
            found[0]
        );
    }

    let anchored = format!(
        "a: &a {}{}\nb: {}*a{}",
        "[".repeat(150),
        "]".repeat(150),
        "[".repeat(100),
        "]".repeat(100)
    );
    let found = errors(&[source("deep.yaml", &anchored)], SameDomain::Refuse);
    assert!(
        found[0].message.contains("nested more than 200 deep"),
        "{}",
        found[0]
    );
}

#[test]
fn a_long_text_cannot_be_copied_without_bound() {
    // A text of 100 kB that a thousand descriptors use, by itself and as a key of a map that they merge.
    let long = "x".repeat(100_000);
    let value = "- {key: a, value: *a}\n".repeat(1_000);
    let merged = "- {<<: *a, key: a}\n".repeat(1_000);
    for text in [
        format!("domain: &a {long}\ndescriptors:\n{value}"),
        format!("domain: d\nmetadata: &a {{? {long} : 1}}\ndescriptors:\n{merged}"),
    ] {
        let found = errors(&[source("copies.yaml", &text)], SameDomain::Refuse);
        assert!(
            found[0].message.contains("more than 1000000 values"),
            "{:.200}",
            found[0].to_string()
        );
    }
}

#[test]
fn eighty_levels_of_descriptors_are_fine() {
    let levels = 80;
    let text = format!(
        "domain: d\ndescriptors: {}[]{}",
        "[{key: a, descriptors: ".repeat(levels),
        "}]".repeat(levels)
    );
    assert_eq!(configuration(&text).domain_count(), 1);
}

/// Text that looks like a configuration, mistakes included.
fn yaml_like() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "domain: ",
        "descriptors:",
        "key: ",
        "value: ",
        "rate_limit:",
        "unit: ",
        "second",
        "requests_per_unit: ",
        "- ",
        "  ",
        "\n",
        "\n  ",
        "\n    ",
        "[",
        "]",
        "{",
        "}",
        ",",
        ":",
        "?",
        "*a",
        "&a ",
        "<<: ",
        "'",
        "\"",
        "!!int ",
        "!x ",
        "|\n",
        ">-\n",
        "#",
        "%YAML 1.2\n",
        "---\n",
        "...\n",
        "5",
        "0.5",
        "~",
        "\t",
        "\u{feff}",
        "\u{85}",
        "é",
        "\0",
        "a",
    ]);
    prop::collection::vec(pieces, 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn no_text_makes_loading_panic(text in yaml_like()) {
        let _ = Configuration::load(&[source("any.yaml", &text)], SameDomain::Refuse);
    }

    #[test]
    fn no_bytes_make_loading_panic(text in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Configuration::load(&[Source { name: "any.yaml".into(), text }], SameDomain::Refuse);
    }
}
