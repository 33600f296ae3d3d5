//! The configuration as a tree, with what each limit counts, and the mistakes of a load that was refused.

mod large;

use std::fmt::Write as _;
use std::thread::spawn;

use serde_json::{Value, json};

use super::super::{Flows, found, problem};
use super::{claimed, jobs};
use crate::support::{Limits, await_that, post};
use crate::xds::management::{Management, limits, mistaken};

const PATH: &str = "/v1/limits/configuration";

const SHOP: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 3, name: per-user, replaces: [{ name: other }] }
  - key: path
    value: /api/*
    share_threshold: true
    shadow_mode: true
    rate_limit: { unit: day, requests_per_unit: 1 }
  - key: plan
    value: free
    descriptors:
      - key: region
        value_to_metric: true
        descriptors:
          - key: tenant
            detailed_metric: true
            rate_limit: { unit: hour, requests_per_unit: 2 }
      - key: admin
        rate_limit: { unlimited: true }
";

fn asked(flows: &Flows, query: &str) -> Value {
    found(flows.ask("GET", &format!("{PATH}{query}"), &[], ""))
}

/// The level below these entries.
fn level(flows: &Flows, domain: &str, entries: &str) -> Value {
    let escaped: String = entries.bytes().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "%{byte:02x}");
        text
    });
    asked(flows, &format!("?domain={domain}&entries={escaped}"))["descriptors"].clone()
}

fn decide(flows: &Flows, entries: &[(&str, &str)]) {
    let entries: Vec<Value> = entries
        .iter()
        .map(|(key, value)| json!({"key": key, "value": value}))
        .collect();
    post(
        flows.server.http(),
        "/json",
        &json!({"domain": "shop", "descriptors": [{"entries": entries}]}).to_string(),
    );
}

/// Hits, those within the limit, near its end and over it, and those let through.
fn counts(limit: &Value) -> [u64; 5] {
    [
        "hits",
        "within_limit",
        "near_limit",
        "over_limit",
        "shadow_mode",
    ]
    .map(|name| limit["use"][name].as_u64().unwrap())
}

/// A server with [`SHOP`] and another domain, after some decisions.
fn decided() -> (Limits, Flows) {
    let files = Limits::new(SHOP);
    let first = "domain: first\ndescriptors:\n  - {key: k, rate_limit: {unit: second, requests_per_unit: 1}}\n";
    files.write("a.yaml", first);
    let flows = Flows::start(&[("RUNTIME_ROOT", files.root())]);
    for _ in 0..5 {
        decide(&flows, &[("user", "ada")]);
        decide(&flows, &[("path", "/api/x")]);
    }
    // Statistics have the values of these in their names; the limit counts them all the same.
    for tenant in ["a", "a", "a", "b"] {
        let entries = [("plan", "free"), ("region", "eu"), ("tenant", tenant)];
        decide(&flows, &entries);
    }
    (files, flows)
}

#[test]
fn each_limit_is_shown_with_its_rates_its_usage_and_its_overrides() {
    let (_files, flows) = decided();
    let paused = json!({"rule": "shop.user", "pause": true, "reason": "they are down"});
    let scaled = json!({"domain": "shop", "entries": [["user", "ada"]], "scale": 2});
    for body in [paused, scaled] {
        let path = "/v1/limits/overrides";
        found(flows.ask("PUT", path, &[], &body.to_string()));
    }
    let user = || asked(&flows, "?domain=shop")["descriptors"][0]["limit"].clone();
    await_that("hits are seen", || {
        decide(&flows, &[("user", "bob")]);
        decide(&flows, &[("user", "ada")]);
        let now = &user()["now"];
        let is_positive = |name: &str| now[name].as_f64().is_some_and(|number| number > 0.0);
        is_positive("refused_per_second") && is_positive("hits_per_second")
    });
    let shown = user();
    let share = shown["now"]["refused_share"].as_f64().unwrap();
    assert!(share > 0.0 && share <= 1.0, "{shown}");
    let usage = &shown["usage"];
    assert!(usage["used"].as_u64().unwrap() >= 6, "{shown}");
    let keys = ["of", "entries", "values", "is_estimate", "read"];
    let expected = json!([6, [["user", "ada"]], 2, false, 2]);
    assert_eq!(members(usage, &keys), expected, "{shown}");
    let overrides = shown["overrides"].as_array().unwrap();
    let decided: Vec<Value> = overrides
        .iter()
        .map(|each| members(each, &["effect", "by", "reason", "until"]))
        .collect();
    let paused = json!(["paused", "anonymous", "they are down", null]);
    assert!(decided.contains(&paused) && decided.len() == 2, "{shown}");
    let admin = level(&flows, "shop", r#"[["plan","free"]]"#)[1]["limit"].clone();
    assert_eq!(
        members(&admin, &["now", "usage", "use"]),
        json!([null, null, null])
    );
}

#[test]
fn the_only_key_of_a_limit_is_read_without_a_hit() {
    let one = "domain: shop\ndescriptors:\n  - {key: path, value: /pay, rate_limit: {unit: day, requests_per_unit: 9}}\n";
    let files = Limits::new(one);
    let flows = Flows::start(&[("RUNTIME_ROOT", files.root())]);
    let queries = ["?domain=shop", "?find=pay"];
    let found = queries.map(|query| asked(&flows, query));
    for shown in [
        &found[0]["descriptors"][0],
        &found[1]["found"][0]["descriptor"],
    ] {
        let names = ["used", "of", "entries", "values", "full"];
        let expected = json!([0, 9, [["path", "/pay"]], 0, 0]);
        assert_eq!(members(&shown["limit"]["usage"], &names), expected);
    }
}

/// These members of a value.
fn members(of: &Value, names: &[&str]) -> Value {
    names.iter().map(|name| of[*name].clone()).collect()
}

#[test]
fn the_tree_is_in_the_order_of_the_files() {
    let (files, flows) = decided();
    let shown = asked(&flows, "");
    let answer = members(&shown, &["version", "next_cursor"]);
    assert_eq!(answer, json!([1, null]));
    let load = members(
        &shown["load"],
        &["source", "place", "refused", "unreadable"],
    );
    assert_eq!(load, json!(["files", files.folder(), null, []]));
    let loaded = ["files", "domains", "descriptors", "limits"];
    assert_eq!(members(&shown["load"], &loaded), json!([2, 2, 7, 5]));
    let [first, shop] = [0, 1].map(|at| &shown["domains"][at]);
    assert_eq!(first["name"], "first");
    let shop = members(shop, &["name", "files", "limits"]);
    assert_eq!(shop, json!(["shop", ["config/limits.yaml"], 4]));
}

#[test]
fn each_limit_is_shown_with_its_place_its_rule_and_its_hits() {
    let (_files, flows) = decided();
    let shown = asked(&flows, "");
    let [user, path, plan] = [0, 1, 2].map(|at| &shown["domains"][1]["descriptors"][at]);
    let place = members(user, &["key", "value", "line"]);
    assert_eq!(place, json!(["user", "", 3]));
    let rule = ["rule", "name", "requests_per_unit", "unit", "replaces"];
    let expected = json!(["shop.user", "per-user", 3, "hour", ["other"]]);
    assert_eq!(members(&user["limit"], &rule), expected);
    assert_eq!(counts(&user["limit"]), [5, 3, 1, 2, 0]);

    let shared = members(path, &["value", "share_threshold"]);
    assert_eq!(shared, json!(["/api/*", true]));
    assert_eq!(path["limit"]["shadow_mode"], true);
    assert_eq!(counts(&path["limit"]), [5, 1, 1, 4, 4]);

    let below = members(plan, &["limit", "children", "limits_below"]);
    assert_eq!(below, json!([null, 2, 2]));
    let tenant = &plan["descriptors"][0]["descriptors"][0];
    let place = members(tenant, &["file", "line"]);
    assert_eq!(place, json!(["config/limits.yaml", 16]));
    assert_eq!(tenant["limit"]["detailed_metric"], true);
    assert_eq!(counts(&tenant["limit"]), [4, 3, 1, 1, 0]);
    let admin = &plan["descriptors"][1]["limit"];
    let unlimited = members(admin, &["unit", "requests_per_unit", "use"]);
    assert_eq!(unlimited, json!([null, null, null]));
}

#[test]
fn a_level_is_asked_for_by_its_entries_and_nested_while_there_is_room() {
    let (_files, flows) = decided();
    let shop = asked(&flows, "")["domains"][1]["descriptors"].take();
    let below = level(&flows, "shop", r#"[["plan","free"],["region"]]"#);
    assert_eq!(below[0], shop[2]["descriptors"][0]["descriptors"][0]);
    assert_eq!(level(&flows, "shop", "[]")[2], shop[2]);
    // There are nine rows in all.
    for (limit, expected) in [(2, [false; 2]), (8, [true, false]), (9, [true; 2])] {
        let shown = asked(&flows, &format!("?limit={limit}"));
        let nested = [0, 1].map(|at| shown["domains"][at]["descriptors"].is_array());
        assert_eq!(nested, expected, "{limit}");
    }
}

#[test]
fn a_part_that_is_not_there_and_wrong_parameters_are_refused() {
    let files = Limits::new(SHOP);
    let flows = Flows::start(&[("RUNTIME_ROOT", files.root())]);
    for (query, code) in [
        ("domain=nobody", "descriptor_not_found"),
        (
            "domain=shop&entries=[[%22user%22,%22ada%22]]",
            "descriptor_not_found",
        ),
        (
            "domain=shop&entries=[[%22plan_free%22]]",
            "descriptor_not_found",
        ),
        ("domain=shop&entries=x", "invalid_field"),
        ("domain=shop&entries=[[]]", "invalid_field"),
        ("entries=[[%22user%22]]", "invalid_field"),
        ("limit=1001", "invalid_field"),
        ("other=1", "invalid_field"),
        ("find=a&domain=shop", "invalid_field"),
        ("cursor=x", "invalid_cursor"),
        ("find=a&cursor=1..2", "invalid_cursor"),
    ] {
        let answer = flows.ask("GET", &format!("{PATH}?{query}"), &[], "");
        assert_eq!(problem(&answer).1, code, "{query}");
    }
}

#[test]
fn descriptors_are_found_by_a_part_of_their_key_or_value() {
    let files = Limits::new(SHOP);
    let flows = Flows::start(&[("RUNTIME_ROOT", files.root())]);
    decide(&flows, &[("user", "ada")]);
    let found = |text: &str| {
        let page = asked(&flows, &format!("?find={text}"));
        assert!(
            page["load"].is_null() && page["domains"].is_null() && page["next_cursor"].is_null(),
            "{page}"
        );
        page["found"].as_array().unwrap().clone()
    };
    let tenant = &found("ten")[0];
    assert_eq!(
        (&tenant["domain"], &tenant["entries"]),
        (
            &json!("shop"),
            &json!([["plan", "free"], ["region", ""], ["tenant", ""]])
        )
    );
    assert_eq!(
        (
            &tenant["descriptor"]["line"],
            &tenant["descriptor"]["limit"]["unit"]
        ),
        (&json!(16), &json!("hour"))
    );
    assert_eq!(counts(&found("user")[0]["descriptor"]["limit"])[0], 1);
    assert_eq!(
        (
            found("plan%3Dfr").len(),
            found("n").len(),
            found("nobody").len()
        ),
        (1, 4, 0)
    );
}

#[test]
fn jobs_count_and_so_do_limits_that_a_reload_kept() {
    let rules = |requests: u32| {
        format!(
            "domain: vendor\ndescriptors:\n  - key: tenant\n    rate_limit: {{unit: hour, requests_per_unit: {requests}}}\n"
        )
    };
    let files = Limits::new(&rules(2));
    let flows = Flows::start(&[("RUNTIME_ROOT", files.root())]);
    let limit = || asked(&flows, "")["domains"][0]["descriptors"][0]["limit"].clone();
    flows.create(jobs("tenant", "acme", 2));
    let mut taken = Vec::new();
    await_that("the jobs are claimed", || {
        taken.extend(claimed(&flows));
        taken.len() == 2
    });
    assert_eq!(limit()["use"]["within_limit"], 2);
    files.write("limits.yaml", &rules(9));
    await_that("the new limit", || limit()["requests_per_unit"] == 9);
    assert_eq!(
        (
            &limit()["use"]["within_limit"],
            &asked(&flows, "")["version"]
        ),
        (&json!(2), &json!(2))
    );
}

#[test]
fn a_load_that_is_refused_is_shown_with_its_places_while_the_one_before_holds() {
    let files = Limits::new(SHOP);
    let flows = Flows::start(&[("RUNTIME_ROOT", files.root())]);
    let before = asked(&flows, "");
    files.write(
        "limits.yaml",
        &SHOP
            .replace("unit: day", "unit: fortnight")
            .replace("unlimited: true", "unlimitd: true"),
    );
    let refused = || asked(&flows, "")["load"]["refused"].clone();
    await_that("the mistakes are shown", || !refused().is_null());
    let shown = refused();
    let mistakes = shown["mistakes"].as_array().unwrap();
    assert_eq!((mistakes.len(), &shown["more"]), (2, &json!(0)), "{shown}");
    assert_eq!(
        (&mistakes[0]["file"], &mistakes[0]["line"]),
        (&json!("config/limits.yaml"), &json!(9)),
        "{shown}"
    );
    assert_eq!(mistakes[0]["text"], "invalid rate limit unit 'fortnight'");
    assert_eq!(mistakes[0]["path"], "descriptors[1].rate_limit.unit");
    assert_eq!(
        (&mistakes[1]["line"], &mistakes[1]["hint"]),
        (&json!(20), &json!("did you mean 'unlimited'?")),
        "{shown}"
    );
    let now = asked(&flows, "");
    assert_eq!(
        (&now["version"], &now["domains"]),
        (&before["version"], &before["domains"]),
        "it is still in force"
    );
    assert_eq!(now["load"]["loaded_at"], before["load"]["loaded_at"]);

    files.write("limits.yaml", &SHOP.replace("unit: day", "unit: week"));
    await_that("the mistakes are gone", || refused().is_null());
    let now = asked(&flows, "");
    assert_eq!(
        (
            &now["version"],
            &now["domains"][0]["descriptors"][1]["limit"]["unit"]
        ),
        (&json!(2), &json!("week"))
    );
}

#[test]
fn mistakes_of_the_first_load_are_shown_without_a_configuration() {
    let long = "x".repeat(100_000);
    let files = Limits::new(&format!(
        "domain: d\ndescriptors:\n  - key: a\n    {long}: 1\n"
    ));
    for number in 0..200 {
        files.write(&format!("f{number:03}.yaml"), "domain: ''\n");
    }
    let flows = Flows::start(&[("RUNTIME_ROOT", files.root())]);
    let answer = flows.ask("GET", PATH, &[], "");
    assert!(answer.body.len() < 100_000, "{}", answer.body.len());
    let shown = found(answer);
    assert_eq!(
        [
            &shown["version"],
            &shown["domains"],
            &shown["load"]["loaded_at"]
        ],
        [&json!(0), &json!([]), &Value::Null]
    );
    let refused = &shown["load"]["refused"];
    assert_eq!(
        (
            refused["mistakes"].as_array().unwrap().len(),
            &refused["more"]
        ),
        (50, &json!(151))
    );
}

#[test]
fn a_file_that_cannot_be_read_is_told_and_keeps_its_text() {
    let files = Limits::new(SHOP);
    let flows = Flows::start(&[("RUNTIME_ROOT", files.root())]);
    let file = files.folder().join("limits.yaml");
    // A link to itself: even those who may read everything cannot read it.
    let link = std::path::Path::new(files.root()).join("link");
    std::os::unix::fs::symlink("limits.yaml", &link).unwrap();
    std::fs::rename(link, &file).unwrap();
    let unreadable = || asked(&flows, "")["load"]["unreadable"].clone();
    await_that("the file is told", || {
        unreadable().as_array().is_some_and(|told| told.len() == 1)
    });
    assert_eq!(unreadable()[0]["file"], json!(file));
    assert_eq!(asked(&flows, "")["domains"][0]["name"], "shop");
    std::fs::remove_file(&file).unwrap();
    files.write("limits.yaml", SHOP);
    await_that("nothing is told any more", || unreadable() == json!([]));
}

#[test]
fn what_a_management_server_sent_is_shown_and_what_was_refused() {
    let management = Management::start();
    management.publish("v1", &[limits(4)]);
    let address = management.address.to_string();
    let start = move || {
        Flows::start(&[
            ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
            ("CONFIG_GRPC_XDS_SERVER_URL", &address),
            ("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", "20ms"),
        ])
    };
    let flows = spawn(start).join().unwrap();
    let shown = asked(&flows, "");
    let place = management.address.to_string();
    assert_eq!(
        (&shown["load"]["source"], &shown["load"]["place"]),
        (&json!("management_server"), &json!(place))
    );
    let user = &shown["domains"][0]["descriptors"][0];
    assert_eq!(
        [
            &user["file"],
            &user["line"],
            &user["limit"]["requests_per_unit"]
        ],
        [&json!("shop limits"), &Value::Null, &json!(4)]
    );
    management.publish("v2", &[mistaken()]);
    let refused = || asked(&flows, "")["load"]["refused"].clone();
    await_that("the mistakes are shown", || !refused().is_null());
    let mistake = &refused()["mistakes"][0];
    assert_eq!(
        (&mistake["file"], &mistake["line"]),
        (&json!("shop limits"), &Value::Null),
        "{mistake}"
    );
    let user = &asked(&flows, "")["domains"][0]["descriptors"][0];
    assert_eq!(user["limit"]["requests_per_unit"], json!(4));
    management.publish("v3", &[limits(5)]);
    await_that("it is repaired", || {
        refused().is_null() && asked(&flows, "")["version"] == 2
    });
}
