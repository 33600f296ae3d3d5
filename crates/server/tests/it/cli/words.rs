//! What is typed: options, misspelt words, completion, and the one rule for exit codes.

use super::*;

#[test]
fn options_stand_before_or_after_the_command() {
    let flows = Flows::start(&[]);
    let id = flows.create(workflow("w", "a"));
    let server = flows.api().to_string();
    for arguments in [
        ["--server", &server, "-o", "name", "workflow", "list"],
        ["workflow", "--server", &server, "list", "-o", "name"],
        ["workflow", "list", "-o", "name", "--server", &server],
        ["--server", &server, "list", "-o", "name", "--newest=1"],
    ] {
        assert_eq!(
            run(&mut binary(&arguments)).expect(DONE).out,
            format!("{id}\n"),
            "{arguments:?}"
        );
    }
    run(&mut binary(&["--server", &server]))
        .expect(USAGE)
        .says("need a command");
    run(&mut binary(&["settings", "-o", "json"]))
        .expect(USAGE)
        .says("takes no --server");
    run(&mut binary(&["check", ".", "--server", &server]))
        .expect(USAGE)
        .says("asks no server");
}

#[test]
fn misspelt_words_get_a_suggestion() {
    let check = |arguments: &[&str], suggestion: &str| {
        run(&mut binary(arguments)).expect(USAGE).says(suggestion);
    };
    check(&["worflow", "list"], "'workflow'");
    check(&["workflow", "lst"], "'list'");
    check(&["workflow", "list", "--staus", "failed"], "'--status'");
    check(&["workflow", "list", "--status", "faild"], "'failed'");
    check(&["serve"], "Without a command, tidegate starts the server.");
    assert!(!run(&mut binary(&["serve"])).error.contains("store"));
}

#[test]
fn help_and_errors_fit_the_terminal() {
    let long = "x".repeat(60);
    for arguments in [
        &["--help"][..],
        &["workflow", "--help"],
        &["workflow", "cancel", "--help"],
        &["workflow", "show", "--help"],
        &["job", "list", "--help"],
        &["job", "skip", "--help"],
        &["workflow", "show", &long, "--server", "127.0.0.1:1"],
    ] {
        let (_, text) = on_terminal(&mut binary(arguments), 80);
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{arguments:?}: {text}"
        );
    }
}

#[test]
fn what_a_person_typed_wrong_has_one_exit_code() {
    let flows = Flows::start(&[]);
    let id = flows.create(workflow("w", "a"));
    let bad = Files::new(&[(
        "a.yaml",
        "name: w\njobs:\n- {name: a, handler: h, after: b}\n",
    )]);
    let file = bad.text("a.yaml");
    for arguments in [
        &["workflow", "list", "--status", "faild"][..],
        &["workflow", "list", "--since", "yesterday"],
        &["workflow", "cancel", "--status", "running,faild"],
        &["workflow", "show", &id, "--jobs", "faild"],
        &["workflow", "create", &file],
        &["workflow", "wait", &id, "--timeout", "5"],
        &["job", "list", &id, "--state", "faild"],
        &["job", "mark-succeeded", &id, "a", "--result", "{"],
    ] {
        tidegate(&flows, arguments).expect(USAGE);
    }
    for arguments in [&["workflow", "start", &id][..], &["job", "retry", &id, "a"]] {
        tidegate(&flows, arguments).expect(REFUSED);
    }
}

#[test]
fn a_time_span_without_a_unit_is_refused_with_what_to_write() {
    for arguments in [
        &["workflow", "wait", "01M7", "--timeout", "5"][..],
        &["workflow", "expire", "01M7", "--after", "5"],
        &["import", "gush", "--redis", "localhost", "--timeout", "5"],
    ] {
        run(&mut binary(arguments))
            .expect(USAGE)
            .says("write 5s or 5ms");
    }
}

/// What bash offers for the last of these words.
fn completed(words: &[&str]) -> Vec<String> {
    let folder = Files::new(&[("a-file.yaml", "")]);
    let script = run(&mut binary(&["completion", "bash"])).expect(DONE).out;
    std::fs::write(folder.path("script"), script).unwrap();
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let (last, before) = (words[words.len() - 1], words[words.len() - 2]);
    let text = format!(
        "source ./script; COMP_WORDS=({}); COMP_CWORD={}; _tidegate tidegate '{last}' '{before}'; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        quoted.join(" "),
        words.len() - 1
    );
    let output = Command::new("bash")
        .args(["--norc", "-c", &text])
        .current_dir(folder.0.path())
        .output()
        .unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    out.lines()
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}

#[test]
fn values_are_completed_and_files_only_where_files_are_meant() {
    assert_eq!(
        completed(&["tidegate", "workflow", "list", "--status", "p"]),
        ["pending", "paused"]
    );
    assert_eq!(
        completed(&["tidegate", "workflow", "cancel", "--status", "fa"]),
        ["failed"]
    );
    assert_eq!(
        completed(&["tidegate", "workflow", "show", "--jobs", "no"]),
        ["none"]
    );
    assert_eq!(
        completed(&["tidegate", "job", "list", "--state", "r"]),
        ["ready", "running"]
    );
    assert_eq!(
        completed(&["tidegate", "workflow", "list", "-o", "y"]),
        ["yaml"]
    );
    assert_eq!(
        completed(&["tidegate", "workflow", "graph", "--form", "m"]),
        ["mermaid"]
    );
    for option in ["--name", "--tag", "--since", "--newest"] {
        assert_eq!(
            completed(&["tidegate", "workflow", "list", option, "a"]),
            ["a"],
            "{option}"
        );
    }
    assert_eq!(
        completed(&["tidegate", "workflow", "list", "--token-file", "a"]),
        ["a-file.yaml"]
    );
}
