//! Each verb, done to a real server.

mod files;
mod limits;

use serde_json::json;

use super::*;

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

/// A command of words without blanks.
fn command(flows: &Flows, words: &str) -> Ended {
    tidegate(flows, &words.split(' ').collect::<Vec<_>>())
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
        .says("all_success they are skipped");
}

#[test]
fn lists_are_filtered_and_cut() {
    let flows = Flows::start(&[]);
    assert_eq!(command(&flows, "workflow list").out, "[]\n");
    command(&flows, "workflow list -o table")
        .expect(DONE)
        .says("no workflows");
    let ids: Vec<String> = (0..5).map(|_| flows.create(workflow("w", "a"))).collect();
    failing(&flows);
    work(&flows);
    for (filter, expected) in [
        ("", 6),
        (" --newest 2", 2),
        (" --status failed", 1),
        (" --name w", 5),
        (" --since 1h", 6),
        (" --until 1h", 0),
    ] {
        let listed = command(&flows, &format!("workflow list{filter}")).expect(DONE);
        let found = listed.json().as_array().unwrap().len();
        assert_eq!(found, expected, "{filter}");
    }
    let oldest = command(&flows, "workflow list --oldest 1").json();
    assert_eq!(oldest[0]["id"], *ids[0]);
    command(&flows, "workflow list --newest 2 -o table").says("there are more: --newest 20");
    command(&flows, "workflow list --since yesterday")
        .expect(USAGE)
        .says("--since 'yesterday'");
}

#[test]
fn workflows_are_counted_by_status_and_by_name() {
    let flows = Flows::start(&[]);
    for _ in 0..5 {
        flows.create(workflow("w", "a"));
    }
    failing(&flows);
    work(&flows);
    let by_status = command(&flows, "workflow count").json();
    assert_eq!(by_status["by_status"]["succeeded"], 5);
    let by_name = command(&flows, "workflow count --by-name").json();
    assert_eq!(by_name["by_name"]["w"]["succeeded"], 5);
    // More names than the server gives at once.
    for some in [0..1_000, 1_000..1_200] {
        let body = |at| workflow(&format!("n{at}"), "a");
        let batch = json!({"workflows": some.map(body).collect::<Vec<_>>()});
        flows.post("/v1/workflows:batch", batch);
    }
    let counted = command(&flows, "workflow count --by-name").json();
    let names = counted["by_name"].as_object().unwrap();
    assert_eq!(names.len(), 1_202);
    assert_eq!(names["n1199"]["running"], 1);
    assert_eq!(names["w"]["succeeded"], 5);
    assert_eq!(counted["total"], 1_206);
    assert_eq!(counted.get("next_cursor"), None);
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
