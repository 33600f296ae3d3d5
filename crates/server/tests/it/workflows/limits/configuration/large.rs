//! A configuration that is larger than an answer may be.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::super::super::{Flows, found};
use super::{PATH, level};
use crate::support::Limits;

/// More than two answers have room for.
const MANY: usize = 50_000;
/// Number of descriptors with long names.
const LONG: usize = 200;

/// A file with [`MANY`] descriptors, and one whose names are as long as JSON can make them.
fn files() -> Limits {
    let mut text = String::from("domain: many\ndescriptors:\n");
    let limit = "rate_limit: {unit: hour, requests_per_unit: 1";
    for number in 0..MANY {
        let _ = write!(text, "  - {{key: tenant, value: t{number}, {limit}}}");
        text.push_str(match number % 100 {
            7 => ", descriptors: [{key: below}]}\n",
            _ => "}\n",
        });
    }
    let files = Limits::new(&text);
    // A character that JSON writes with six.
    let hostile = "\\x01".repeat(500);
    let mut text = String::from("domain: hostile\ndescriptors:\n");
    for number in 0..LONG {
        let key = format!("key: \"{number}{hostile}\", value: \"{hostile}\"");
        let _ = writeln!(text, "  - {{{key}, {limit}, name: \"{hostile}\"}}}}");
    }
    files.write("z.yaml", &text);
    files
}

/// What a GET with this query answers, which must be small.
fn asked(flows: &Flows, query: &str) -> Value {
    let answer = flows.ask("GET", &format!("{PATH}?{query}"), &[], "");
    let length = answer.body.len();
    assert!(length <= 256 * 1024, "{query}: {length}");
    found(answer)
}

/// All pages of a query.
fn pages(flows: &Flows, query: &str) -> Vec<Value> {
    let mut pages = vec![asked(flows, query)];
    while let Some(next) = pages.last().unwrap()["next_cursor"].as_str() {
        let page = asked(flows, &format!("{query}&cursor={next}"));
        pages.push(page);
    }
    pages
}

#[test]
fn a_large_configuration_is_shown_in_small_answers() {
    let files = files();
    let flows = Flows::start(&[("RUNTIME_ROOT", files.root())]);
    let shown = asked(&flows, "");
    assert_eq!(shown["load"]["limits"], MANY + LONG);
    let many = &shown["domains"][0];
    assert_eq!(many["children"], MANY);
    assert!(many["descriptors"].is_null(), "there is no room for them");
    check_pages(&flows, "many", MANY, 300);
    check_pages(&flows, "hostile", LONG, 10);
    // With all room taken by a level, what is below it is asked for by itself.
    let seventh = &asked(&flows, "domain=many&limit=8")["descriptors"][7];
    assert_eq!(seventh["children"], 1);
    assert!(seventh["descriptors"].is_null(), "{seventh}");
    let below = level(&flows, "many", r#"[["tenant","t7"]]"#);
    assert_eq!(below[0]["key"], "below");
    let beyond = asked(&flows, "domain=many&cursor=50001");
    assert_eq!(beyond["descriptors"], json!([]));

    // The second half is looked at by another call.
    let pages = pages(&flows, "find=9999&limit=1000");
    assert_eq!(pages.len(), 2);
    let found = pages
        .iter()
        .flat_map(|page| page["found"].as_array().unwrap());
    let found: Vec<_> = found.map(|item| &item["descriptor"]["value"]).collect();
    assert_eq!(found, ["t9999", "t19999", "t29999", "t39999", "t49999"]);
}

/// The descriptors of a domain come in pages of at least this many, each once and in their order.
fn check_pages(flows: &Flows, domain: &str, descriptors: usize, least: usize) {
    let pages = pages(flows, &format!("domain={domain}&limit=1000"));
    assert!(pages.len() > 1, "{domain}");
    let pages = pages
        .iter()
        .map(|page| page["descriptors"].as_array().unwrap());
    let lengths: Vec<usize> = pages.clone().map(Vec::len).collect();
    let (_, full) = lengths.split_last().unwrap();
    assert!(
        full.iter().all(|&length| length >= least),
        "{domain}: {lengths:?}"
    );
    let lines = pages.flatten().map(|item| item["line"].as_u64().unwrap());
    assert!(lines.eq(3..descriptors as u64 + 3), "{domain}: {lengths:?}");
}
