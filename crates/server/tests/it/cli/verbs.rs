//! Each verb, done to a real server.

use serde_json::json;

use super::*;
use crate::support::Limits;

const REPORT: &str = "\
name: report
tags: [daily]
jobs:
  - {name: fetch, handler: http, params: {day: monday}}
  - {name: send, handler: mail, after: [fetch]}
";

/// The one field of the answer of a command that must do as asked.
#[track_caller]
fn field(flows: &Flows, arguments: &[&str], name: &str) -> String {
    let json = tidegate(flows, arguments).expect(DONE).json();
    json[name]
        .as_str()
        .unwrap_or_else(|| panic!("no {name} in {json}"))
        .to_owned()
}

#[test]
fn a_workflow_is_created_and_steered() {
    let flows = Flows::start(&[]);
    let files = Files::new(&[("r.yaml", REPORT)]);
    let file = files.text("r.yaml");
    let create = [
        "workflow", "create", &file, "--manual", "--tag", "t", "--key", "k",
    ];
    let id = field(&flows, &create, "id");
    let again = tidegate(&flows, &create).expect(DONE).json();
    assert_eq!(
        (&again["id"], &again["existing"], &again["status"]),
        (&(*id).into(), &true.into(), &"pending".into())
    );
    let full = tidegate(&flows, &["workflow", "show", &id])
        .expect(DONE)
        .json();
    assert_eq!(
        (&full["tags"][1], &full["jobs"][0]["params"]["day"]),
        (&"t".into(), &"monday".into())
    );
    for (verb, status) in [
        ("start", "running"),
        ("pause", "paused"),
        ("pause", "paused"),
        ("resume", "running"),
        ("cancel", "cancelled"),
        ("cancel", "cancelled"),
        ("retry", "running"),
    ] {
        assert_eq!(
            field(&flows, &["workflow", verb, &id], "status"),
            status,
            "{verb}"
        );
    }
    work(&flows);
    tidegate(&flows, &["workflow", "restart", &id, "fetch", "--cascade"]).expect(DONE);
    assert_eq!(
        field(&flows, &["job", "show", &id, "fetch"], "state"),
        "ready"
    );
    tidegate(&flows, &["workflow", "expire", &id, "--never"]).expect(DONE);
    tidegate(&flows, &["workflow", "expire", &id]).expect(USAGE);
    tidegate(&flows, &["workflow", "cancel", &id]).expect(DONE);
    assert_eq!(
        tidegate(&flows, &["workflow", "rm", &id])
            .expect(DONE)
            .json()["removed"],
        true
    );
    tidegate(&flows, &["workflow", "show", &id]).expect(NOT_FOUND);
}

#[test]
fn jobs_and_queues_are_steered() {
    let flows = Flows::start(&[]);
    let id = failing(&flows);
    work(&flows);
    let state = |job: &str| field(&flows, &["job", "show", &id, job], "state");
    assert_eq!(
        (state("fetch"), state("send")),
        ("failed".to_owned(), "waiting".to_owned())
    );
    let listed = tidegate(&flows, &["job", "list", &id, "--state", "failed"])
        .expect(DONE)
        .json();
    assert_eq!(
        (listed.as_array().unwrap().len(), &listed[0]["name"]),
        (1, &"fetch".into())
    );
    tidegate(&flows, &["job", "retry", &id, "fetch"]).expect(DONE);
    assert_eq!(state("fetch"), "ready");
    tidegate(&flows, &["job", "cancel", &id, "fetch"]).expect(DONE);
    assert_eq!(state("fetch"), "cancelled");
    tidegate(
        &flows,
        &["job", "mark-succeeded", &id, "fetch", "--result", "{"],
    )
    .expect(USAGE)
    .says("--result is not JSON");
    tidegate(&flows, &["job", "retry", &id, "fetch"]).expect(DONE);
    tidegate(
        &flows,
        &[
            "job",
            "mark-succeeded",
            &id,
            "fetch",
            "--result",
            "{\"n\": 1}",
        ],
    )
    .expect(DONE);
    assert_eq!(
        tidegate(&flows, &["job", "show", &id, "fetch"]).json()["output"]["n"],
        1
    );
    tidegate(&flows, &["queue", "pause", "default"]).expect(DONE);
    assert_eq!(
        tidegate(&flows, &["queue", "list"]).expect(DONE).json()[0]["paused"],
        true
    );
    assert_eq!(flows.claim(1), [] as [Value; 0]);
    tidegate(&flows, &["queue", "resume", "default"]).expect(DONE);
    tidegate(&flows, &["job", "skip", &id, "send"]).expect(DONE);
    assert_eq!(state("send"), "skipped");
    tidegate(&flows, &["workflow", "wait", &id, "--timeout", "10s"]).expect(DONE);
}

#[test]
fn the_rule_of_a_job_decides_whether_it_runs_after_a_skipped_one() {
    let flows = Flows::start(&[]);
    let mut body = workflow("w", "a strict<a lenient<a");
    body["jobs"][2]["rule"] = "none_failed".into();
    let id = flows.create(body);
    tidegate(&flows, &["job", "skip", &id, "a"]).expect(DONE);
    let state = |job: &str| field(&flows, &["job", "show", &id, job], "state");
    assert_eq!(
        (state("strict"), state("lenient")),
        ("skipped".to_owned(), "ready".to_owned())
    );
    run(&mut binary(&["job", "skip", "--help"]))
        .expect(DONE)
        .says("with all_success it is skipped");
}

#[test]
fn lists_are_filtered_cut_and_counted() {
    let flows = Flows::start(&[]);
    assert_eq!(tidegate(&flows, &["workflow", "list"]).out, "[]\n");
    tidegate(&flows, &["workflow", "list", "-o", "table"])
        .expect(DONE)
        .says("no workflows");
    let ids: Vec<String> = (0..5).map(|_| flows.create(workflow("w", "a"))).collect();
    failing(&flows);
    work(&flows);
    let count = |arguments: &[&str]| {
        let listed = tidegate(&flows, &[&["workflow", "list"], arguments].concat())
            .expect(DONE)
            .json();
        listed.as_array().unwrap().len()
    };
    assert_eq!(
        (
            count(&[]),
            count(&["--newest", "2"]),
            count(&["--status", "failed"])
        ),
        (6, 2, 1)
    );
    assert_eq!(
        (
            count(&["--name", "w"]),
            count(&["--since", "1h"]),
            count(&["--until", "1h"])
        ),
        (5, 6, 0)
    );
    let oldest = tidegate(&flows, &["workflow", "list", "--oldest", "1"]).json();
    assert_eq!(oldest[0]["id"], *ids[0]);
    tidegate(
        &flows,
        &["workflow", "list", "--newest", "2", "-o", "table"],
    )
    .says("there are more: --newest 20");
    tidegate(&flows, &["workflow", "list", "--since", "yesterday"])
        .expect(USAGE)
        .says("--since 'yesterday'");
    assert_eq!(
        tidegate(&flows, &["workflow", "count"]).json()["by_status"]["succeeded"],
        5
    );
    assert_eq!(
        tidegate(&flows, &["workflow", "count", "--by-name"]).json()["by_name"]["w"]["succeeded"],
        5
    );
    // More names than the server gives at once.
    for some in [0..1_000, 1_000..1_200] {
        let body = |at| workflow(&format!("n{at}"), "a");
        flows.post(
            "/v1/workflows:batch",
            json!({"workflows": some.map(body).collect::<Vec<_>>()}),
        );
    }
    let counted = tidegate(&flows, &["workflow", "count", "--by-name"]).json();
    let names = counted["by_name"].as_object().unwrap();
    assert_eq!(
        (
            names.len(),
            &names["n1199"]["running"],
            &names["w"]["succeeded"]
        ),
        (1_202, &json!(1), &json!(5))
    );
    assert_eq!(
        (&counted["total"], counted.get("next_cursor")),
        (&json!(1_206), None)
    );
}

#[test]
fn graphs_come_in_every_form() {
    let flows = Flows::start(&[]);
    let id = flows.create(workflow("w", "a b<a"));
    for (form, begin) in [
        ("text", "• a"),
        ("svg", "<svg "),
        ("dot", "digraph {"),
        ("mermaid", "flowchart LR"),
        ("json", "{"),
    ] {
        let ended = tidegate(&flows, &["workflow", "graph", &id, "--form", form]).expect(DONE);
        assert!(ended.out.starts_with(begin), "{form}: {ended:?}");
    }
    let files = Files::new(&[]);
    tidegate(
        &flows,
        &[
            "workflow",
            "graph",
            &id,
            "-f",
            "svg",
            "--file",
            &files.text("g.svg"),
        ],
    )
    .expect(DONE);
    assert!(
        std::fs::read_to_string(files.path("g.svg"))
            .unwrap()
            .starts_with("<svg ")
    );
    tidegate(&flows, &["workflow", "graph", &id, "--file", "/nowhere/g"])
        .expect(74)
        .says("/nowhere/g cannot be written");
}

#[test]
fn a_bad_definition_is_refused_with_file_line_and_path() {
    let flows = Flows::start(&[]);
    let check = |name: &str, text: &str, code: i32, parts: &[&str]| {
        let files = Files::new(&[(name, text)]);
        let ended = tidegate(&flows, &["workflow", "create", &files.text(name)]).expect(code);
        assert!(
            ended
                .error
                .contains(&format!("error: {}", files.text(name))),
            "{ended:?}"
        );
        parts
            .iter()
            .for_each(|part| assert!(ended.error.contains(part), "{part} in {}", ended.error));
    };
    check(
        "a.json",
        "{\n\"name\": \"x\" \"jobs\"}",
        USAGE,
        &["a.json:2:13: expected `,` or `}`"],
    );
    check(
        "a.yaml",
        "name: x\njobs:\n  - name: a\n   handler: h\n",
        USAGE,
        &["a.yaml:4:4: "],
    );
    check(
        "a.yaml",
        "- name: x\n",
        USAGE,
        &["a map with `name` and `jobs`"],
    );
    check(
        "a.json",
        "{\"name\":\"x\",\"name\":\"y\"}",
        USAGE,
        &["'name' is there twice"],
    );
    let unknown = "{\"name\": \"x\", \"jobs\": [\n{\"name\": \"a\", \"handlr\": \"h\"}]}";
    check(
        "a.json",
        unknown,
        USAGE,
        &[
            "a.json:2:15: unknown field `handlr`, expected one of",
            "path: jobs[0].handlr",
        ],
    );
    let parent = "name: x\njobs:\n  - name: a\n    handler: h\n    after: [b]\n";
    check(
        "a.yaml",
        parent,
        USAGE,
        &[
            "a.yaml:5:13: ",
            "there is no job 'b'",
            "code: unknown_dependency",
        ],
    );
    let circle = "name: x\njobs:\n  - {name: a, handler: h, after: b}\n  - {name: b, handler: h, after: a}\n";
    check(
        "a.yaml",
        circle,
        USAGE,
        &["a.yaml:2:1: ", "a -> b -> a", "graph_cycle"],
    );
    let span = "name: x\njobs:\n  - {name: a, handler: h, timeout: 5}\n";
    check(
        "a.yaml",
        span,
        USAGE,
        &[
            "a.yaml:3:27: ",
            "the number 5 has no unit",
            "path: jobs[0].timeout",
        ],
    );
    tidegate(&flows, &["workflow", "create", "/nowhere.yaml"])
        .expect(USAGE)
        .says("/nowhere.yaml cannot be read");
    assert_eq!(flows.get("/v1/workflows:count")["total"], 0);
}

#[test]
fn a_definition_is_read_from_standard_input() {
    let flows = Flows::start(&[]);
    let files = Files::new(&[("r", REPORT), ("bad", "name: x\njobs: 7\n")]);
    let create = |name: &str| {
        run(ask(&flows, &["workflow", "create", "-"]).stdin(File::open(files.path(name)).unwrap()))
    };
    assert_eq!(create("r").expect(DONE).json()["name"], "report");
    create("bad")
        .expect(USAGE)
        .says("error: standard input:2:1: ");
}

#[test]
fn the_verbs_of_gush_are_understood() {
    let flows = Flows::start(&[]);
    let files = Files::new(&[("r.yaml", REPORT)]);
    let id = field(&flows, &["create", &files.text("r.yaml")], "id");
    assert_eq!(field(&flows, &["show", &id], "status"), "pending");
    assert_eq!(field(&flows, &["start", &id], "status"), "running");
    assert_eq!(field(&flows, &["stop", &id], "status"), "paused");
    assert_eq!(
        field(&flows, &["workflow", "resume", &id], "status"),
        "running"
    );
    work(&flows);
    tidegate(&flows, &["start", &id, "fetch"]).expect(DONE);
    assert_eq!(
        field(&flows, &["job", "show", &id, "fetch"], "state"),
        "ready"
    );
    let other = field(&flows, &["create_and_start", &files.text("r.yaml")], "id");
    assert_eq!(
        tidegate(&flows, &["list"])
            .expect(DONE)
            .json()
            .as_array()
            .unwrap()
            .len(),
        2
    );
    let jobs = tidegate(
        &flows,
        &[
            "show",
            &other,
            "--skip_overview",
            "--jobs",
            "ready",
            "-o",
            "table",
        ],
    )
    .expect(DONE);
    assert!(
        jobs.out.starts_with("JOB ") && jobs.out.contains("fetch") && !jobs.out.contains("send "),
        "{jobs:?}"
    );
    let none = tidegate(&flows, &["show", &other, "--skip_jobs", "-o", "table"]).expect(DONE);
    assert!(
        none.out.starts_with("workflow ") && !none.out.contains("JOB "),
        "{none:?}"
    );
    tidegate(&flows, &["viz", &other, "--filename", &files.text("g.svg")]).expect(DONE);
    assert!(files.path("g.svg").exists());
    tidegate(&flows, &["workflow", "cancel", &other]).expect(DONE);
    assert_eq!(
        tidegate(&flows, &["rm", &other]).expect(DONE).json()["removed"],
        true
    );
}

#[test]
fn a_drawing_that_does_not_fit_leaves_the_file_as_it_was() {
    let flows = Flows::start(&[]);
    let id = flows.create(workflow("w", "a b<a c<b"));
    let files = Files::new(&[("old.svg", "old")]);
    let draw = |file: &str, most: &str| {
        // A file larger than the limit cannot be written, as on a full disk.
        let script = format!("trap '' XFSZ; ulimit -f {most}; exec \"$@\"");
        let mut shell = Command::new("/bin/bash");
        shell.args([
            "-c",
            &script,
            "-",
            env!("CARGO_BIN_EXE_tidegate"),
            "workflow",
            "graph",
            &id,
            "-f",
            "svg",
            "--file",
        ]);
        run(shell
            .arg(file)
            .env_clear()
            .env("TIDEGATE_SERVER", flows.api().to_string()))
    };
    let names = || {
        let names = std::fs::read_dir(files.path(""))
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    };
    draw(&files.text("new.svg"), "0")
        .expect(OUTPUT)
        .says("new.svg cannot be written: ");
    draw(&files.text("old.svg"), "0").expect(OUTPUT);
    assert_eq!(
        (
            names(),
            std::fs::read_to_string(files.path("old.svg")).unwrap()
        ),
        (vec!["old.svg".into()], "old".into())
    );
    draw(&files.text("old.svg"), "unlimited").expect(DONE);
    draw(&files.text("new.svg"), "unlimited").expect(DONE);
    assert_eq!(names(), ["new.svg", "old.svg"]);
    assert!(
        std::fs::read_to_string(files.path("old.svg"))
            .unwrap()
            .starts_with("<svg ")
    );
    draw("/dev/stdout", "unlimited").expect(DONE).says("<svg ");
}

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
    let limits = serde_json::json!([
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
    let flows = Flows::start(&[]);
    let limits = "limits:\n  - {domain: vendor, entries: [[tenant, $.tenant]]}\n  - {concurrency: 3, of: all}\n";
    let weights =
        r#"{"weights": [{"entries": [["tenant", "gold"], ["region", "eu"]], "weight": 5}]}"#;
    let wrong = limits.replace("3", "0");
    let files = Files::new(&[
        ("l.yaml", limits),
        ("w.json", weights),
        ("wrong.yaml", &wrong),
        ("text", "7"),
    ]);
    let text = |file: &str| files.text(file);
    tidegate(
        &flows,
        &["queue", "limits", "mail", "--set", &text("l.yaml")],
    )
    .expect(DONE);
    tidegate(
        &flows,
        &["handler", "limits", "charge", "--set", &text("l.yaml")],
    )
    .expect(DONE);
    tidegate(
        &flows,
        &[
            "queue",
            "weights",
            "mail",
            "--set",
            &text("w.json"),
            "-o",
            "table",
        ],
    )
    .expect(DONE)
    .says("   5  tenant=gold  region=eu\n");
    for arguments in [["queue", "limits", "mail"], ["handler", "limits", "charge"]] {
        let shown = tidegate(&flows, &[&arguments[..], &["-o", "table"]].concat()).expect(DONE);
        shown.says("1 unit of vendor  tenant=$.tenant\nat most 3 jobs at a time\n");
        assert_eq!(
            tidegate(&flows, &arguments).json()["limits"][1]["concurrency"],
            3
        );
    }
    let wrong = text("wrong.yaml");
    tidegate(&flows, &["queue", "limits", "mail", "--set", &wrong])
        .expect(USAGE)
        .says(&format!("{wrong}:3:6: 0 jobs at the same time"));
    tidegate(&flows, &["queue", "limits", "mail", "--set", &text("text")]).expect(USAGE);
    tidegate(&flows, &["queue", "limits", "mail", "--set", &text("none")])
        .expect(USAGE)
        .says("cannot be read");
    tidegate(
        &flows,
        &[
            "queue",
            "limits",
            "mail",
            "--remove",
            "--set",
            &text("l.yaml"),
        ],
    )
    .expect(USAGE);
    tidegate(
        &flows,
        &["queue", "limits", "mail", "--remove", "-o", "table"],
    )
    .expect(DONE)
    .says("no limits\n");
    tidegate(&flows, &["queue", "weights", "mail", "--remove"]).expect(DONE);
    assert_eq!(
        tidegate(&flows, &["queue", "weights", "mail"]).json()["weights"],
        serde_json::json!([])
    );
    assert_eq!(
        tidegate(&flows, &["handler", "limits", "charge"]).json()["limits"][0]["domain"],
        "vendor"
    );
}

#[test]
fn limits_are_paused_scaled_checked_and_resumed() {
    let limits = Limits::new(
        "domain: vendor\ndescriptors:\n  - key: tenant\n    rate_limit: {unit: hour, requests_per_unit: 10}\n",
    );
    let flows = Flows::start(&[("RUNTIME_ROOT", limits.root())]);
    let limit = |arguments: &[&str]| tidegate(&flows, &[&["limit"], arguments].concat());
    let check = |code: &str| {
        assert_eq!(
            limit(&["check", "vendor", "tenant=acme"])
                .expect(DONE)
                .json()["code"],
            code
        );
    };
    limit(&["overrides", "-o", "table"])
        .expect(DONE)
        .says("nothing is paused");
    check("ok");
    let paused = limit(&[
        "pause",
        "vendor",
        "tenant=acme",
        "--gateway",
        "--for",
        "10m",
        "--reason",
        "r=1",
    ])
    .expect(DONE);
    assert_eq!(
        (&paused.json()["effect"], &paused.json()["reason"]),
        (&json!("paused"), &json!("r=1"))
    );
    check("over_limit");
    limit(&["check", "vendor", "tenant=acme", "-o", "table"])
        .expect(DONE)
        .says("over limit  tenant=acme");
    let scaled = limit(&[
        "scale",
        "--rule",
        "vendor.tenant",
        "--by",
        "0.5",
        "-o",
        "table",
    ]);
    scaled
        .expect(DONE)
        .says("vendor.tenant  scaled by 0.5 for jobs, requests, until it is removed");
    limit(&["overrides", "-o", "table"])
        .expect(DONE)
        .says("vendor  tenant=acme")
        .says("until removed");
    assert_eq!(
        limit(&["overrides", "-o", "name"]).expect(DONE).out,
        "vendor.tenant\nvendor  tenant=acme\n"
    );
    limit(&["resume", "vendor", "tenant=acme"]).expect(DONE);
    check("ok");
    limit(&["resume", "vendor", "tenant=acme"])
        .expect(NOT_FOUND)
        .says("override_not_found");
    limit(&["check", "vendor", "tenant=acme", "-o", "table"])
        .expect(DONE)
        .says("5 per hour  4 left");
    limit(&["top", "-o", "table"])
        .expect(DONE)
        .says("nothing was refused");
    for wrong in [
        &["pause"][..],
        &["pause", "vendor"],
        &["pause", "vendor", "tenant"],
        &["resume", "a", "b=c", "--rule", "d"],
    ] {
        limit(wrong).expect(USAGE);
    }
}
