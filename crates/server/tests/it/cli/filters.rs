//! Workflows that are meant without their whole ids: by filter, by the beginning of an id, by key and by name.

use super::*;

/// How many workflows have this status.
fn count(flows: &Flows, status: &str) -> u64 {
    flows.get("/v1/workflows:count")["by_status"][status]
        .as_u64()
        .unwrap()
}

fn tagged(flows: &Flows, tag: &str) -> String {
    let mut body = workflow("w", "a");
    body["tags"] = serde_json::json!([tag]);
    flows.create(body)
}

#[test]
fn a_verb_is_done_to_all_that_a_filter_finds() {
    let flows = Flows::start(&[]);
    let ids: Vec<String> = (0..3).map(|_| tagged(&flows, "x")).collect();
    let other = tagged(&flows, "y");
    let act = |verb: &str, filter: &[&str]| {
        tidegate(&flows, &[&["workflow", verb, "--yes"], filter].concat())
    };
    let dry = act("cancel", &["--tag", "x", "--dry-run"])
        .expect(DONE)
        .json();
    assert_eq!(
        (&dry["matched"], &dry["done"], &dry["dry_run"]),
        (&3.into(), &0.into(), &true.into())
    );
    assert_eq!(count(&flows, "running"), 4);
    assert_eq!(act("pause", &["--tag", "x"]).expect(DONE).json()["done"], 3);
    assert_eq!(
        act("resume", &["--name", "w"]).expect(DONE).json()["done"],
        3
    );
    let cancelled = act("cancel", &["--status", "running", "--tag", "x"])
        .expect(DONE)
        .json();
    assert_eq!(
        (&cancelled["matched"], &cancelled["done"]),
        (&3.into(), &3.into())
    );
    assert_eq!(
        (count(&flows, "cancelled"), count(&flows, "running")),
        (3, 1)
    );
    assert_eq!(
        act("retry", &["--since", "1h", "--tag", "x"])
            .expect(DONE)
            .json()["done"],
        3
    );
    work(&flows);
    assert_eq!(act("rm", &["--tag", "x"]).expect(DONE).json()["done"], 3);
    tidegate(&flows, &["workflow", "show", &ids[0]]).expect(NOT_FOUND);
    tidegate(&flows, &["workflow", "show", &other]).expect(DONE);
    act("cancel", &["--tag", "nothing", "-o", "table"])
        .expect(DONE)
        .says("no workflows");
    act("start", &["--tag", "y", "--status", "succeeded"])
        .expect(USAGE)
        .says("start applies only to workflows");
}

#[test]
fn only_what_can_be_done_is_counted_and_done() {
    let flows = Flows::start(&[]);
    tagged(&flows, "x");
    let act = |verb: &str, filter: &[&str]| {
        tidegate(&flows, &[&["workflow", verb, "--yes"], filter].concat())
    };
    act("rm", &["--status", "running", "--dry-run"])
        .expect(USAGE)
        .says("pending, succeeded, failed, cancelled");
    act("pause", &["--tag", "x", "--dry-run", "-o", "table"])
        .expect(DONE)
        .says("pause: 1 workflow, if this were not a dry run\n");
    act("cancel", &["--tag", "x", "-o", "name"])
        .expect(USAGE)
        .says("workflow list -o name");
    assert_eq!(count(&flows, "running"), 1);
    act("cancel", &["--tag", "x", "-o", "table"])
        .expect(DONE)
        .says("cancel: 1 of 1 workflow\n");
    let dry = act("rm", &["--tag", "x", "--dry-run"]).expect(DONE).json();
    assert_eq!(
        (&dry["action"], &dry["matched"]),
        (&"remove".into(), &1.into())
    );
    act("rm", &["--tag", "x", "-o", "table"])
        .expect(DONE)
        .says("remove: 1 of 1 workflow\n");
}

#[test]
fn workflows_found_by_a_filter_are_kept_as_long_as_said() {
    let flows = Flows::start(&[]);
    let ids = [
        tagged(&flows, "x"),
        tagged(&flows, "x"),
        tagged(&flows, "y"),
    ];
    work(&flows);
    let expires = |id: &str| flows.get(&format!("/v1/workflows/{id}"))["expires_at"].clone();
    tidegate(
        &flows,
        &["workflow", "expire", "--tag", "x", "--never", "--yes"],
    )
    .expect(DONE);
    assert!(
        expires(&ids[0]).is_null() && expires(&ids[1]).is_null() && !expires(&ids[2]).is_null()
    );
    tidegate(&flows, &["workflow", "expire", "--after", "7d"])
        .expect(USAGE)
        .says("ids, or a filter");
    let say = |arguments: &[&str]| {
        tidegate(
            &flows,
            &[&["workflow", "expire", "-o", "table"], arguments].concat(),
        )
        .expect(DONE)
        .out
    };
    let kept = say(&[&ids[0], "--after", "7d"]);
    let until = expires(&ids[0]).as_str().unwrap()[..19].replace('T', " ");
    assert!(
        kept.contains(&format!("  kept until {until}Z  in ")),
        "{kept}"
    );
    let running = tagged(&flows, "z");
    assert_eq!(
        say(&[&running, "--after", "7d"]),
        format!("{running}  kept for 7d after its end\n")
    );
    assert_eq!(
        say(&[&running, "--never"]),
        format!("{running}  kept for ever\n")
    );
}

#[test]
fn filters_and_ids_are_not_mixed() {
    let flows = Flows::start(&[]);
    for arguments in [
        &["cancel"][..],
        &["cancel", "01M7", "--tag", "x"],
        &["cancel", "01M7", "--yes"],
        &["rm", "--dry-run"],
    ] {
        tidegate(&flows, &[&["workflow"], arguments].concat()).expect(USAGE);
    }
    for arguments in [&["cancel"][..], &["cancel", "--dry-run"], &["rm", "--yes"]] {
        tidegate(&flows, &[&["workflow"], arguments].concat())
            .expect(USAGE)
            .says("Give their ids, or a filter");
    }
}

#[test]
fn a_person_is_asked_before_many_workflows_change() {
    let flows = Flows::start(&[]);
    (0..2).for_each(|_| drop(tagged(&flows, "x")));
    let cancel = ["workflow", "cancel", "--tag", "x"];
    let (code, text) = typed(&mut ask(&flows, &cancel), "n\n");
    assert!(
        text.contains("cancel 2 workflows? [y/N] ") && text.contains("nothing was changed"),
        "{text}"
    );
    assert_eq!((code, count(&flows, "running")), (Some(DONE), 2));
    let (code, text) = typed(&mut ask(&flows, &[&cancel[..], &["--yes"]].concat()), "");
    assert!(
        !text.contains('?') && text.contains("cancel: 2 of 2 workflows"),
        "{text}"
    );
    assert_eq!((code, count(&flows, "cancelled")), (Some(DONE), 2));
    let unseen = ask(&flows, &["workflow", "retry", "--tag", "x"])
        .stdin(terminal(80).1)
        .output()
        .unwrap();
    assert_eq!(
        (unseen.status.code(), count(&flows, "cancelled")),
        (Some(USAGE), 2)
    );
    // `tidegate workflow rm --status succeeded | head` in a script removed 246 workflows.
    for verb in ["rm", "retry", "expire"] {
        let more: &[&str] = if verb == "expire" {
            &["--after", "0s"]
        } else {
            &[]
        };
        let refused =
            tidegate(&flows, &[&["workflow", verb, "--tag", "x"], more].concat()).expect(USAGE);
        refused.says("2 workflows found, and there is no terminal for the question; add --yes to");
        assert_eq!(count(&flows, "cancelled"), 2, "{verb}");
    }
    let (code, text) = typed(
        &mut ask(&flows, &["workflow", "retry", "--tag", "x"]),
        "y\n",
    );
    assert!(text.contains("retry 2 workflows? [y/N] "), "{text}");
    assert_eq!((code, count(&flows, "running")), (Some(DONE), 2));
}

#[test]
fn all_failures_of_an_error_are_retried() {
    let flows = Flows::start(&[]);
    (0..3).for_each(|_| drop(tagged(&flows, "x")));
    let kinds = ["CardDeclined", "CardDeclined", "Timeout"];
    let report = |(lease, kind): (serde_json::Value, &str)| {
        let error = serde_json::json!({"kind": kind, "message": "no"});
        serde_json::json!({"lease": lease["lease"], "outcome": "failed", "error": error, "retry": "never"})
    };
    let reports = flows.claim(3).into_iter().zip(kinds).map(report);
    let reports: Vec<_> = reports.collect();
    flows.post("/v1/jobs/report", serde_json::json!({"reports": reports}));
    let retry = |more: &[&str]| {
        tidegate(
            &flows,
            &[&["failure", "retry", "CardDeclined"], more].concat(),
        )
    };
    retry(&[]).expect(USAGE).says(
        "2 workflows found, and there is no terminal for the question; add --yes to retry them",
    );
    assert_eq!(retry(&["--dry-run"]).expect(DONE).json()["matched"], 2);
    retry(&["--handler", "other", "--yes"])
        .expect(NOT_FOUND)
        .says("no failure of kind 'CardDeclined' of the handler 'other'. Kinds: CardDeclined, Timeout");
    // An empty word in a query finds all.
    retry(&["--handler", "", "--yes"]).expect(USAGE);
    tidegate(&flows, &["failure", "retry", "", "--yes"]).expect(USAGE);
    tidegate(&flows, &["workflow", "retry", "--tag", "", "--yes"]).expect(USAGE);
    assert_eq!(count(&flows, "failed"), 3);
    let done = retry(&["--handler", "Handler", "--yes"])
        .expect(DONE)
        .json();
    assert_eq!((&done["done"], count(&flows, "failed")), (&2.into(), 1));
}

#[test]
fn what_is_created_while_a_person_thinks_is_left_alone() {
    let flows = Flows::start(&[]);
    let ids = [tagged(&flows, "x"), tagged(&flows, "x")];
    let mut asking = Asking::start(&mut ask(
        &flows,
        &["workflow", "cancel", "--status", "running", "--tag", "x"],
    ));
    asking.read_until("cancel 2 workflows? [y/N] ");
    // One of the two is over, so the number alone would leave room for the new one.
    flows.post(
        &format!("/v1/workflows/{}:cancel", ids[0]),
        serde_json::json!({}),
    );
    let new = tagged(&flows, "x");
    let (code, text) = asking.answer("y\n");
    assert!(text.contains("cancel: 1 of 1 workflow\n"), "{text}");
    let status = |id: &str| flows.get(&format!("/v1/workflows/{id}"))["status"].clone();
    assert_eq!(
        (code, status(&ids[1]), status(&new)),
        (Some(DONE), "cancelled".into(), "running".into())
    );
}

#[test]
fn an_id_may_be_shortened_where_it_is_the_only_one() {
    let flows = Flows::start(&[]);
    let first = flows.create(workflow("one", "a"));
    let shown = |which: &str| tidegate(&flows, &["workflow", "show", which]);
    assert_eq!(shown(&first[..4]).expect(DONE).json()["id"], *first);
    assert_eq!(
        shown(&first[..10].to_lowercase()).expect(DONE).json()["id"],
        *first
    );
    let ids: Vec<String> = (0..6)
        .map(|number| flows.create(workflow(&format!("n{number}"), "a")))
        .collect();
    let several = shown(&first[..4])
        .expect(USAGE)
        .says("several workflows have ids that begin with");
    assert_eq!(
        several
            .error
            .lines()
            .filter(|line| line.starts_with("  01") || line.starts_with("  0"))
            .count(),
        5
    );
    assert!(several.error.contains("and more"), "{several:?}");
    let unique = (4..26)
        .find(|&length| ids.iter().all(|id| id[..length] != first[..length]))
        .unwrap();
    assert_eq!(shown(&first[..unique]).expect(DONE).json()["id"], *first);
    shown("7ZZZ").expect(NOT_FOUND).says("workflow_not_found");
    shown("report")
        .expect(NOT_FOUND)
        .says("no workflow id begins with 'report'")
        .says("write name:report");
    tidegate(&flows, &["workflow", "cancel", &ids[5][..unique.max(25)]]).expect(DONE);
}

#[test]
fn workflows_are_named_by_key_and_by_name() {
    let flows = Flows::start(&[]);
    let mut body = workflow("report", "a");
    body["idempotency_key"] = "2026/11/21: a b".into();
    let first = flows.create(body);
    let second = flows.create(workflow("report", "a"));
    let id = |which: &str| {
        tidegate(&flows, &["workflow", "show", which, "-o", "name"])
            .expect(DONE)
            .out
    };
    assert_eq!(id("key:2026/11/21: a b"), format!("{first}\n"));
    assert_eq!(id("name:report"), format!("{second}\n"));
    tidegate(&flows, &["job", "show", "key:2026/11/21: a b", "a"]).expect(DONE);
    tidegate(
        &flows,
        &["workflow", "pause", "key:2026/11/21: a b", "name:report"],
    )
    .expect(DONE);
    assert_eq!(count(&flows, "paused"), 2);
    tidegate(&flows, &["workflow", "show", "key:none"]).expect(NOT_FOUND);
    tidegate(&flows, &["workflow", "wait", "name:none"])
        .expect(NOT_FOUND)
        .says("no workflow with the name 'none'");
}
