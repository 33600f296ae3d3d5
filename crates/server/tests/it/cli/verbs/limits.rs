//! Limits of jobs, queues and handlers.

use serde_json::json;

use super::super::*;
use super::{command, field};
use crate::support::Limits;

const LIMITED: &str = "\
name: charges
globals: {region: eu}
jobs:
  - handler: charge
    params: {tenant: acme, order: {customer: 17}}
    limits:
      - domain: vendor
        entries: [[tenant, $.tenant], [customer, $.order.customer]]
      - {concurrency: 10, of: workflow, entries: [[region, $.region], [price, $$.x]]}
";

#[test]
fn limits_of_jobs_are_read_and_shown() {
    let flows = Flows::start(&[]);
    let wrong = LIMITED.replace("$.tenant", "$.nobody");
    let unknown = LIMITED.replace("of: workflow", "off: workflow");
    let files = Files::new(&[
        ("c.yaml", LIMITED),
        ("wrong.yaml", &wrong),
        ("unknown.yaml", &unknown),
    ]);
    let id = field(
        &flows,
        &["workflow", "create", &files.text("c.yaml"), "--start"],
        "id",
    );
    let limits = json!([
        {"domain": "vendor", "hits": 1, "entries": [["tenant", "acme"], ["customer", "17"]]},
        {"concurrency": 10, "of": "workflow", "entries": [["region", "eu"], ["price", "$.x"]]},
    ]);
    let job = tidegate(&flows, &["job", "show", &id, "charge"])
        .expect(DONE)
        .json();
    assert_eq!(job["limits"], limits);
    assert_eq!(
        tidegate(&flows, &["workflow", "show", &id])
            .expect(DONE)
            .json()["jobs"][0]["limits"],
        limits
    );
    tidegate(&flows, &["job", "show", &id, "charge", "-o", "table"])
        .expect(DONE)
        .says("limits    1 unit of vendor  tenant=acme  customer=17")
        .says("at most 10 jobs of the workflow at a time  region=eu  price=$.x");
    for (file, place, text) in [
        ("wrong.yaml", ":8:19", "have $.nobody"),
        ("unknown.yaml", ":9:", "`off`"),
    ] {
        let file = files.text(file);
        tidegate(&flows, &["workflow", "create", &file])
            .expect(USAGE)
            .says(&format!("{file}{place}"))
            .says(text);
    }
}

/// A file of limits that is right, and others that are not.
fn files() -> Files {
    let limits = "limits:\n  - {domain: vendor, entries: [[tenant, $.tenant]]}\n  - {concurrency: 3, of: all}\n";
    let weights =
        r#"{"weights": [{"entries": [["tenant", "gold"], ["region", "eu"]], "weight": 5}]}"#;
    let wrong = limits.replace("3", "0");
    Files::new(&[
        ("l.yaml", limits),
        ("w.json", weights),
        ("wrong.yaml", &wrong),
        ("text", "7"),
    ])
}

/// A command with these words, and with this file behind --set.
fn set(flows: &Flows, words: &str, file: &str) -> Ended {
    let words: Vec<&str> = words.split(' ').collect();
    tidegate(flows, &[&words[..], &["--set", file]].concat())
}

#[test]
fn a_creation_warns_of_a_limit_without_a_rule() {
    let flows = Flows::start(&[]);
    let files = Files::new(&[("c.yaml", LIMITED)]);
    let warning = "warning: job 'charge': no rule of this server has the domain 'vendor', so this limits nothing\n";
    let created = tidegate(&flows, &["workflow", "create", &files.text("c.yaml")]).expect(DONE);
    assert_eq!(created.error, warning);
    let run = ["workflow", "run", &files.text("c.yaml"), "--timeout", "1ms"];
    let run = tidegate(&flows, &run).expect(TIMED_OUT);
    assert!(run.error.starts_with(warning), "{run:?}");
}

#[test]
fn limits_and_weights_of_queues_and_handlers_are_set() {
    let (flows, files) = (Flows::start(&[]), files());
    let [limits, weights] = ["l.yaml", "w.json"].map(|file| files.text(file));
    set(&flows, "queue weights mail -o table", &weights)
        .expect(DONE)
        .says("   5  tenant=gold  region=eu\n");
    for words in ["queue limits mail", "handler limits charge"] {
        set(&flows, words, &limits).expect(DONE);
        command(&flows, &format!("{words} -o table"))
            .expect(DONE)
            .says("1 unit of vendor  tenant=$.tenant\nat most 3 jobs at a time\n");
        assert_eq!(command(&flows, words).json()["limits"][1]["concurrency"], 3);
    }
    command(&flows, "queue limits mail --remove -o table")
        .expect(DONE)
        .says("no limits\n");
    command(&flows, "queue weights mail --remove").expect(DONE);
    let weights = command(&flows, "queue weights mail").json();
    assert_eq!(weights["weights"], json!([]));
    let others = command(&flows, "handler limits charge").json();
    assert_eq!(others["limits"][0]["domain"], "vendor");
}

#[test]
fn a_file_of_wrong_limits_is_refused_with_its_place() {
    let (flows, files) = (Flows::start(&[]), files());
    let wrong = files.text("wrong.yaml");
    set(&flows, "queue limits mail", &wrong)
        .expect(USAGE)
        .says(&format!("{wrong}:3:6: 0 jobs at the same time"));
    set(&flows, "queue limits mail", &files.text("text")).expect(USAGE);
    set(&flows, "queue limits mail", &files.text("none"))
        .expect(USAGE)
        .says("cannot be read");
    let limits = files.text("l.yaml");
    set(&flows, "queue limits mail --remove", &limits).expect(USAGE);
}

const RULES: &str = "\
domain: vendor
descriptors:
  - key: tenant
    rate_limit: {unit: hour, requests_per_unit: 10}
";

#[test]
fn limits_are_paused_scaled_checked_and_resumed() {
    let limits = Limits::new(RULES);
    let flows = Flows::start(&[("RUNTIME_ROOT", limits.root())]);
    let limit = |words: &str| command(&flows, &format!("limit {words}"));
    let code = || limit("check vendor tenant=acme").expect(DONE).json()["code"].take();
    limit("overrides -o table")
        .expect(DONE)
        .says("nothing is paused");
    assert_eq!(code(), "ok");
    let pause = "pause vendor tenant=acme --gateway --for 10m --reason r=1";
    let paused = limit(pause).expect(DONE).json();
    assert_eq!(paused["effect"], "paused");
    assert_eq!(paused["reason"], "r=1");
    assert_eq!(code(), "over_limit");
    limit("check vendor tenant=acme -o table")
        .expect(DONE)
        .says("over limit  tenant=acme");
    limit("scale --rule vendor.tenant --by 0.5 -o table")
        .expect(DONE)
        .says("vendor.tenant  scaled by 0.5 for jobs, requests, until it is removed");
    limit("overrides -o table")
        .expect(DONE)
        .says("vendor  tenant=acme")
        .says("until removed");
    let names = limit("overrides -o name").expect(DONE).out;
    assert_eq!(names, "vendor.tenant\nvendor  tenant=acme\n");
    limit("resume vendor tenant=acme").expect(DONE);
    assert_eq!(code(), "ok");
    limit("resume vendor tenant=acme")
        .expect(NOT_FOUND)
        .says("override_not_found");
    limit("check vendor tenant=acme -o table")
        .expect(DONE)
        .says("5 per hour  4 left");
    limit("top -o table")
        .expect(DONE)
        .says("nothing was refused");
    for wrong in [
        "pause",
        "pause vendor",
        "pause vendor tenant",
        "resume a b=c --rule d",
    ] {
        limit(wrong).expect(USAGE);
    }
}

#[test]
fn rules_are_listed_one_on_a_line_and_a_similar_domain_is_named() {
    const RULES: &str = "\
domain: vendor
descriptors:
  - {key: \"a\\nb\", rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: tenant, rate_limit: {unit: day, requests_per_unit: 1}}
";
    let limits = Limits::new(RULES);
    let flows = Flows::start(&[("RUNTIME_ROOT", limits.root())]);
    let names = command(&flows, "limit list -o name").expect(DONE).out;
    assert_eq!(names, "vendor.a\u{FFFD}b\nvendor.tenant\n");
    command(&flows, "limit list vendo")
        .expect(NOT_FOUND)
        .says("no domain 'vendo'; did you mean 'vendor'?");
    command(&flows, "limit list vendor tenan=x")
        .expect(NOT_FOUND)
        .says("no key 'tenan' here; did you mean 'tenant'?");
}
