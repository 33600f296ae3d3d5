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
    check(&["server"], "'serve'");
    let comma = "separate entries with blanks: plan=free api_key=x";
    check(&["limit", "check", "shop", "plan=free,api_key=x"], comma);
    let factor = &["limit", "scale", "shop", "a=b", "--by", "abc"];
    check(factor, "expected a number such as 0.5");
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

/// What bash offers for the last of these words, with the server of `flows`.
fn completed(flows: &Flows, words: &[&str]) -> Vec<String> {
    let folder = Files::new(&[("a-file.yaml", "")]);
    let script = run(&mut binary(&["completion", "bash"])).expect(DONE).out;
    std::fs::write(folder.path("script"), script).unwrap();
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let (last, before) = (words[words.len() - 1], words[words.len() - 2]);
    let text = format!(
        "source ./script; COMP_WORDS=({}); COMP_CWORD={}; COMP_TYPE=9; _clap_complete_tidegate tidegate '{last}' '{before}'; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        quoted.join(" "),
        words.len() - 1
    );
    let program = PathBuf::from(env!("CARGO_BIN_EXE_tidegate"));
    let output = Command::new("/bin/bash")
        .args(["--norc", "-c", &text])
        .current_dir(folder.0.path())
        .env_clear()
        .env("PATH", program.parent().unwrap())
        .env("TIDEGATE_SERVER", flows.api().to_string())
        .output()
        .unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    out.lines()
        .filter(|line| !line.is_empty())
        .map(|word| word.trim().to_owned())
        .collect()
}

#[test]
fn what_the_server_has_is_completed() {
    let flows = Flows::start(&[]);
    let id = flows.create(workflow("report", "fetch mail<fetch"));
    let begin = &id[..8];
    assert_eq!(
        completed(&flows, &["tidegate", "workflow", "show", begin]),
        [&*id]
    );
    assert_eq!(
        completed(&flows, &["tidegate", "workflow", "cancel", "name"]),
        ["name:report"]
    );
    assert_eq!(
        completed(&flows, &["tidegate", "job", "show", &id, "f"]),
        ["fetch"]
    );
    assert_eq!(
        completed(&flows, &["tidegate", "queue", "pause", "d"]),
        ["default"]
    );
    flows.claim(1);
    let workers = completed(&flows, &["tidegate", "worker", "drain", ""]);
    assert!(!workers[0].starts_with('-'), "{workers:?}");
    let rules = completed(&flows, &["tidegate", "limit", "pause", "--rule", ""]);
    assert!(rules[0].starts_with("sample."), "{rules:?}");
}

#[test]
fn values_are_completed_and_files_only_where_files_are_meant() {
    let flows = Flows::start(&[]);
    assert_eq!(
        completed(&flows, &["tidegate", "workflow", "list", "--status", "p"]),
        ["pending", "paused"]
    );
    assert_eq!(
        completed(
            &flows,
            &["tidegate", "workflow", "cancel", "--status", "fa"]
        ),
        ["failed"]
    );
    assert_eq!(
        completed(&flows, &["tidegate", "workflow", "show", "--jobs", "no"]),
        ["none"]
    );
    assert_eq!(
        completed(&flows, &["tidegate", "job", "list", "--state", "r"]),
        ["retrying", "ready", "running"]
    );
    assert_eq!(
        completed(&flows, &["tidegate", "workflow", "list", "-o", "y"]),
        ["yaml"]
    );
    assert_eq!(
        completed(&flows, &["tidegate", "workflow", "graph", "--form", "m"]),
        ["mermaid"]
    );
    for option in ["--name", "--tag", "--since", "--newest"] {
        assert_eq!(
            completed(&flows, &["tidegate", "workflow", "list", option, "a"]),
            [""; 0],
            "{option}"
        );
    }
    assert_eq!(
        completed(
            &flows,
            &["tidegate", "workflow", "list", "--token-file", "a"]
        ),
        ["a-file.yaml"]
    );
}
