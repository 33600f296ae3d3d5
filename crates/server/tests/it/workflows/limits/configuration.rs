//! The configuration as a tree, with what each limit counts, and the mistakes of a load that was refused.

use std::fmt::Write as _;
use std::thread::spawn;

use serde_json::{Value, json};

use super::super::{Flows, found, problem};
use super::{claimed, jobs};
use crate::support::{Limits, await_that, post};
use crate::xds::management::{Management, limits, mistaken};

const PATH: &str = "/v1/limits/configuration";
/// More than two answers have room for.
const MANY: usize = 50_000;

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

#[test]
fn the_tree_is_in_the_order_of_the_files_with_the_hits_of_each_limit() {
    let files = Limits::new(SHOP);
    files.write(
        "a.yaml",
        "domain: first\ndescriptors:\n  - {key: k, rate_limit: {unit: second, requests_per_unit: 1}}\n",
    );
    let flows = Flows::start(&[("RUNTIME_ROOT", files.root())]);
    for _ in 0..5 {
        decide(&flows, &[("user", "ada")]);
        decide(&flows, &[("path", "/api/x")]);
    }
    // Statistics have the values of these in their names; the limit counts them all the same.
    for tenant in ["a", "a", "a", "b"] {
        decide(
            &flows,
            &[("plan", "free"), ("region", "eu"), ("tenant", tenant)],
        );
    }
    let shown = asked(&flows, "");
    assert_eq!(
        (&shown["version"], &shown["next_cursor"]),
        (&json!(1), &Value::Null)
    );
    let load = &shown["load"];
    assert_eq!(
        [
            &load["source"],
            &load["place"],
            &load["refused"],
            &load["unreadable"]
        ],
        [
            &json!("files"),
            &json!(files.folder()),
            &Value::Null,
            &json!([])
        ]
    );
    assert_eq!(
        ["files", "domains", "descriptors", "limits"].map(|name| load[name].as_u64().unwrap()),
        [2, 2, 7, 5]
    );
    let domains = shown["domains"].as_array().unwrap();
    assert_eq!(
        (&domains[0]["name"], &domains[1]["name"]),
        (&json!("first"), &json!("shop"))
    );
    assert_eq!(
        (&domains[1]["files"], &domains[1]["limits"]),
        (&json!(["config.limits.yaml"]), &json!(4))
    );

    let [user, path, plan] = [0, 1, 2].map(|at| &domains[1]["descriptors"][at]);
    assert_eq!(
        (&user["key"], &user["value"], &user["line"]),
        (&json!("user"), &json!(""), &json!(3))
    );
    let limit = &user["limit"];
    assert_eq!(
        [
            &limit["rule"],
            &limit["name"],
            &limit["requests_per_unit"],
            &limit["unit"],
            &limit["replaces"]
        ],
        [
            &json!("shop.user"),
            &json!("per-user"),
            &json!(3),
            &json!("hour"),
            &json!(["other"])
        ]
    );
    assert_eq!(counts(limit), [5, 3, 1, 2, 0]);
    assert_eq!(
        (&path["value"], &path["share_threshold"]),
        (&json!("/api/*"), &json!(true))
    );
    assert_eq!(
        (&path["limit"]["shadow_mode"], counts(&path["limit"])),
        (&json!(true), [5, 1, 1, 4, 4])
    );
    assert_eq!(
        [&plan["limit"], &plan["children"], &plan["limits_below"]],
        [&Value::Null, &json!(2), &json!(2)]
    );
    let tenant = &plan["descriptors"][0]["descriptors"][0];
    assert_eq!(
        (&tenant["file"], &tenant["line"]),
        (&json!("config.limits.yaml"), &json!(16))
    );
    assert_eq!(
        (
            &tenant["limit"]["detailed_metric"],
            counts(&tenant["limit"])
        ),
        (&json!(true), [4, 3, 1, 1, 0])
    );
    let admin = &plan["descriptors"][1]["limit"];
    assert_eq!(
        [&admin["unit"], &admin["requests_per_unit"], &admin["use"]],
        [&Value::Null; 3]
    );

    let nested = |limit: usize| {
        let shown = asked(&flows, &format!("?limit={limit}"));
        [0, 1].map(|at| shown["domains"][at]["descriptors"].is_array())
    };
    assert_eq!(
        [nested(2), nested(8), nested(9)],
        [[false; 2], [true, false], [true; 2]],
        "there are nine rows in all"
    );

    assert_eq!(
        level(&flows, "shop", r#"[["plan","free"],["region"]]"#)[0],
        *tenant
    );
    assert_eq!(level(&flows, "shop", "[]")[2], *plan);
    for (wrong, code) in [
        ("?domain=nobody", "descriptor_not_found"),
        (
            "?domain=shop&entries=[[%22user%22,%22ada%22]]",
            "descriptor_not_found",
        ),
        (
            "?domain=shop&entries=[[%22plan_free%22]]",
            "descriptor_not_found",
        ),
        ("?domain=shop&entries=x", "invalid_field"),
        ("?domain=shop&entries=[[]]", "invalid_field"),
        ("?entries=[[%22user%22]]", "invalid_field"),
        ("?limit=1001", "invalid_field"),
        ("?other=1", "invalid_field"),
        ("?find=a&domain=shop", "invalid_field"),
        ("?cursor=x", "invalid_cursor"),
        ("?find=a&cursor=1..2", "invalid_cursor"),
    ] {
        assert_eq!(
            problem(&flows.ask("GET", &format!("{PATH}{wrong}"), &[], "")).1,
            code,
            "{wrong}"
        );
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
        (&json!("config.limits.yaml"), &json!(9)),
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
fn a_large_configuration_is_shown_in_small_answers() {
    let mut text = String::from("domain: many\ndescriptors:\n");
    for number in 0..MANY {
        let _ = write!(
            text,
            "  - {{key: tenant, value: t{number}, rate_limit: {{unit: hour, requests_per_unit: 1}}"
        );
        text.push_str(if number % 100 == 7 {
            ", descriptors: [{key: below}]}\n"
        } else {
            "}\n"
        });
    }
    let files = Limits::new(&text);
    // A character that JSON writes with six.
    let hostile = "\\x01".repeat(500);
    let row = |number: usize| {
        format!(
            "  - {{key: \"{number}{hostile}\", value: \"{hostile}\", rate_limit: {{unit: hour, requests_per_unit: 1, name: \"{hostile}\"}}}}\n"
        )
    };
    files.write(
        "z.yaml",
        &format!(
            "domain: hostile\ndescriptors:\n{}",
            (0..200).map(row).collect::<String>()
        ),
    );
    let flows = Flows::start(&[("RUNTIME_ROOT", files.root())]);
    let ask = |query: &str| {
        let answer = flows.ask("GET", &format!("{PATH}{query}"), &[], "");
        assert!(
            answer.body.len() <= 256 * 1024,
            "{query}: {}",
            answer.body.len()
        );
        found(answer)
    };
    let shown = ask("");
    assert_eq!(
        (&shown["load"]["limits"], &shown["domains"][0]["children"]),
        (&json!(MANY + 200), &json!(MANY))
    );
    assert!(
        shown["domains"][0]["descriptors"].is_null(),
        "there is no room for them"
    );
    for (domain, children, least) in [("many", MANY, 300), ("hostile", 200, 10)] {
        let (mut cursor, mut seen, mut pages) = (String::new(), Vec::new(), 0);
        loop {
            let page = ask(&format!("?domain={domain}&limit=1000{cursor}"));
            let items = page["descriptors"].as_array().unwrap();
            seen.extend(items.iter().map(|item| item["line"].as_u64().unwrap()));
            pages += 1;
            let Some(next) = page["next_cursor"].as_str() else {
                break;
            };
            assert!(items.len() >= least, "{domain}: a page of {}", items.len());
            cursor = format!("&cursor={next}");
        }
        assert_eq!(
            seen,
            (3..children as u64 + 3).collect::<Vec<_>>(),
            "{domain}: each once, in their order"
        );
        assert!(pages > 1, "{domain}");
    }
    // With all room taken by a level, what is below it is asked for by itself.
    let page = ask("?domain=many&limit=8");
    assert!(
        (
            &page["descriptors"][7]["children"],
            &page["descriptors"][7]["descriptors"]
        ) == (&json!(1), &Value::Null)
    );
    assert_eq!(
        level(&flows, "many", r#"[["tenant","t7"]]"#)[0]["key"],
        "below"
    );
    // The second half is looked at by another call.
    let (mut cursor, mut found, mut calls) = (String::new(), Vec::new(), 0);
    loop {
        let page = ask(&format!("?find=9999&limit=1000{cursor}"));
        found.extend(
            page["found"]
                .as_array()
                .unwrap()
                .iter()
                .map(|item| item["descriptor"]["value"].as_str().unwrap().to_owned()),
        );
        calls += 1;
        let Some(next) = page["next_cursor"].as_str() else {
            break;
        };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(
        (found, calls),
        (
            ["9999", "19999", "29999", "39999", "49999"]
                .map(|number| format!("t{number}"))
                .to_vec(),
            2
        )
    );
    assert_eq!(ask("?domain=many&cursor=50001")["descriptors"], json!([]));
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
    assert_eq!(asked(&flows, "")["domains"], shown["domains"]);
    management.publish("v3", &[limits(5)]);
    await_that("it is repaired", || {
        refused().is_null() && asked(&flows, "")["version"] == 2
    });
}
