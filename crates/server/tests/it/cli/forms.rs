//! Output as YAML and as names. What is written as YAML is read by the reader of definitions.

use std::path::Path;

use super::*;

#[test]
fn names_are_one_on_a_line() {
    let flows = Flows::start(&[]);
    let ids: Vec<String> = (0..2)
        .map(|_| flows.create(workflow("w", "a b<a")))
        .collect();
    let named = |arguments: &[&str]| {
        tidegate(&flows, &[arguments, &["-o", "name"]].concat())
            .expect(DONE)
            .out
    };
    assert_eq!(
        named(&["workflow", "list"]),
        format!("{}\n{}\n", ids[1], ids[0])
    );
    assert_eq!(
        named(&["workflow", "show", &ids[0]]),
        format!("{}\n", ids[0])
    );
    assert_eq!(
        named(&["workflow", "pause", &ids[0]]),
        format!("{}\n", ids[0])
    );
    assert_eq!(named(&["job", "list", &ids[0]]), "a\nb\n");
    assert_eq!(named(&["job", "show", &ids[0], "a"]), "a\n");
    assert_eq!(named(&["queue", "list"]), "default\n");
    assert_eq!(named(&["queue", "pause", "default"]), "default\n");
    assert_eq!(named(&["workflow", "count", "--by-name"]), "w\n");
    assert_eq!(named(&["workflow", "list", "--status", "failed"]), "");
    tidegate(&flows, &["workflow", "count", "-o", "name"])
        .expect(USAGE)
        .says("--by-name");
}

#[test]
fn a_list_that_is_cut_says_so_in_every_form() {
    let flows = Flows::start(&[]);
    (0..3).for_each(|_| drop(flows.create(workflow("w", "a b<a"))));
    for form in ["json", "yaml", "name"] {
        let cut = tidegate(&flows, &["workflow", "list", "--newest", "2", "-o", form]).expect(DONE);
        assert!(
            cut.error.contains("there are more: --newest 20") && !cut.out.contains("more"),
            "{cut:?}"
        );
        let all = tidegate(&flows, &["workflow", "list", "--newest", "3", "-o", form]).expect(DONE);
        assert_eq!(all.error, "");
    }
    let jobs = tidegate(&flows, &["job", "list", "name:w", "--limit", "1"]).expect(DONE);
    assert!(
        jobs.error.contains("there are more: --limit 10"),
        "{jobs:?}"
    );
}

#[test]
fn show_has_only_the_chosen_jobs_in_every_form() {
    let flows = Flows::start(&[]);
    let id = failing(&flows);
    work(&flows);
    let shown = |jobs: &str| {
        tidegate(&flows, &["workflow", "show", &id, "--jobs", jobs])
            .expect(DONE)
            .json()
    };
    let names = |json: &Value| {
        json["jobs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|job| job["name"].clone())
            .collect::<Vec<_>>()
    };
    let failed = shown("failed");
    assert_eq!(
        (
            names(&failed),
            &failed["id"],
            &failed["job_counts"]["total"]
        ),
        (vec!["fetch".into()], &(*id).into(), &2.into())
    );
    assert_eq!(
        (names(&shown("all")).len(), names(&shown("none")).len()),
        (2, 0)
    );
    let yaml = tidegate(
        &flows,
        &["workflow", "show", &id, "--jobs", "failed", "-o", "yaml"],
    )
    .expect(DONE)
    .out;
    assert!(
        yaml.contains("fetch") && !yaml.contains("name: send") && !yaml.contains("name: \"send\""),
        "{yaml}"
    );
}

#[test]
fn a_graph_has_its_own_forms() {
    let flows = Flows::start(&[]);
    let id = flows.create(workflow("w", "a"));
    for form in ["json", "yaml", "name"] {
        tidegate(&flows, &["workflow", "graph", &id, "-o", form])
            .expect(USAGE)
            .says("--form");
    }
    tidegate(&flows, &["workflow", "graph", &id, "-o", "table"]).expect(DONE);
}

#[test]
fn yaml_says_what_json_says() {
    let flows = Flows::start(&[]);
    let mut body = workflow("w", "a b<a");
    body["tags"] = serde_json::json!(["yes", "a: b"]);
    body["jobs"][0]["params"] =
        serde_json::json!({"text": "1\n2", "list": [[], {}, [1, "1"]], "null": null});
    let id = flows.create(body);
    for arguments in [
        &["workflow", "show", &id][..],
        &["workflow", "list"],
        &["job", "list", &id],
        &["queue", "list"],
        &["workflow", "count"],
        &["workflow", "pause", &id],
        &["workflow", "watch", &id, "--timeout", "1ms"],
    ] {
        let form = |form: &str| tidegate(&flows, &[arguments, &["-o", form]].concat());
        let (json, yaml) = (form("json"), form("yaml"));
        assert!(
            yaml.out.starts_with("---\n") && !yaml.out.contains("{\""),
            "{yaml:?}"
        );
        let indented: String = yaml
            .out
            .lines()
            .skip(1)
            .map(|line| format!("  {line}\n"))
            .collect();
        let read = tidegate_cli::Definition::parse(Path::new("x.yaml"), format!("x:\n{indented}"))
            .unwrap()
            .json();
        let (mut read, mut json) = (
            serde_json::from_str::<Value>(&read).unwrap()["x"].clone(),
            json.json(),
        );
        // Each count has a moment of its own, and a second pause is already so.
        for answer in [&mut read, &mut json]
            .into_iter()
            .filter_map(Value::as_object_mut)
        {
            answer.remove("as_of");
            answer.remove("already");
        }
        assert_eq!(read, json, "{}", yaml.out);
    }
}
