//! `tidegate check` and what it prints.

use std::process::Command;

use tempfile::TempDir;

/// Runs `tidegate check` in `folder` and returns its exit code and output.
fn run(folder: &TempDir, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let output = command
        .arg("check")
        .args(arguments)
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    (
        output.status.code(),
        String::from_utf8(output.stdout).unwrap(),
    )
}

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

const GOOD: &str =
    "domain: a\ndescriptors:\n  - key: k\n    rate_limit: {unit: day, requests_per_unit: 1}\n";

#[test]
fn good_files_are_summed_up() {
    let files = folder(&[
        ("a.yaml", GOOD),
        ("b.yaml", &GOOD.replace("domain: a", "domain: b")),
        ("..data/c", "x"),
    ]);
    assert_eq!(
        run(&files, &["a.yaml"]),
        (Some(0), "ok: 1 file, 1 domain, 1 limit\n".to_owned())
    );
    assert_eq!(
        run(&files, &["."]),
        (Some(0), "ok: 2 files, 2 domains, 2 limits\n".to_owned())
    );
}

#[test]
fn a_mistake_is_shown_where_it_is() {
    let files = folder(&[("a.yaml", &GOOD.replace("day", "foo"))]);
    let (code, text) = run(&files, &["a.yaml"]);
    assert_eq!(code, Some(1));
    let shown = "\
a.yaml:4:24: error: invalid rate limit unit 'foo'
 4 |     rate_limit: {unit: foo, requests_per_unit: 1}
   |                        ^
   = at: descriptors[0].rate_limit.unit
";
    assert!(text.starts_with(shown), "{text}");
    assert!(text.ends_with("1 error in 1 of 1 file\n"), "{text}");
}

#[test]
fn of_a_long_line_the_part_around_the_mistake_is_shown() {
    let keys: String = (0..10_000).map(|at| format!("{{key: k{at}}}, ")).collect();
    let text = format!("domain: a\ndescriptors: [{keys}{{kee: b}}, {keys}]\n");
    let files = folder(&[("a.yaml", &text)]);
    let (code, shown) = run(&files, &["a.yaml"]);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(code, Some(1), "{shown}");
    assert!(
        lines[1].starts_with(" 2 | ...") && lines[1].ends_with("...") && lines[1].len() < 200,
        "{shown}"
    );
    let caret = lines[2].find('^').unwrap();
    assert!(lines[1][caret..].starts_with("kee: b"), "{shown}");
}

#[test]
fn every_mistake_of_every_file_is_shown() {
    let files = folder(&[
        ("a.yaml", "descriptors: []\n"),
        ("b.yaml", "'''\n"),
        ("c.yaml", GOOD),
        ("d.yaml", GOOD),
    ]);
    let (code, text) = run(
        &files,
        &["a.yaml", "b.yaml", "c.yaml", "d.yaml", "missing.yaml"],
    );
    // A path that is not there was typed wrong.
    assert_eq!(code, Some(64));
    for part in [
        "missing.yaml: error: cannot be read: ",
        "config file cannot have empty domain",
        "b.yaml:",
        "duplicate domain 'a' in config file",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    assert!(text.ends_with("4 errors in 3 of 4 files\n"), "{text}");
}

/// A pipe without a writer, and a device without an end, kept the program waiting.
#[test]
fn what_may_have_no_end_is_not_read() {
    let files = folder(&[("a.yaml", GOOD)]);
    let pipe = files.path().join("b.yaml");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    for path in ["b.yaml", "."] {
        let (code, text) = run(&files, &[path]);
        assert_eq!(code, Some(1), "{text}");
        assert!(
            text.contains("b.yaml: error: cannot be read: this is a named pipe, not a file;"),
            "{text}"
        );
    }
    let (_, text) = run(&files, &["/dev/zero"]);
    assert!(text.contains("this is a device, not a file;"), "{text}");
    let (code, text) = run(&files, &["/dev/stdin"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(!text.contains("cannot be read"), "{text}");
}

#[test]
fn domains_are_merged_when_asked_for() {
    let files = folder(&[
        ("a.yaml", GOOD),
        ("b.yaml", &GOOD.replace("key: k", "key: other")),
    ]);
    assert_eq!(run(&files, &["."]).0, Some(1));
    let merged = run(&files, &["--merge-domain-configs", "."]);
    assert_eq!(
        merged,
        (Some(0), "ok: 2 files, 1 domain, 2 limits\n".to_owned())
    );
}

#[test]
fn a_file_cannot_steer_the_terminal() {
    let name = "\u{1b}[31m\u{202e}.yaml";
    for (key, message) in [
        ("unknown\\e[31m", "unknown key"),
        ("unknown\u{1b}[31m", "control characters are not allowed"),
    ] {
        let files = folder(&[(
            name,
            &format!("domain: a\ndescriptors:\n  - key: k\n    \"{key}\": 1 # \u{202e}\n"),
        )]);
        let (code, text) = run(&files, &[name, "\u{1b}missing"]);
        assert_eq!(code, Some(64));
        assert!(
            text.contains(message) && !text.contains(['\u{1b}', '\u{202e}']),
            "{text:?}"
        );
    }
}

const FLOW: &str =
    "name: w\njobs:\n  - {name: a, handler: h}\n  - name: b\n    handler: h\n    after: [a]\n";

#[test]
fn definitions_of_workflows_are_checked_by_the_rules_of_the_server() {
    let files = folder(&[
        ("a.yaml", GOOD),
        ("flow.yaml", FLOW),
        ("flow.json", r#"{"name": "w", "jobs": []}"#),
    ]);
    assert_eq!(
        run(&files, &["flow.yaml"]),
        (Some(0), "ok: 1 file, 1 workflow definition\n".to_owned())
    );
    let both = "ok: 2 files, 1 domain, 1 limit, 1 workflow definition\n".to_owned();
    assert_eq!(run(&files, &["a.yaml", "flow.yaml"]), (Some(0), both));
    let (code, text) = run(&files, &["a.yaml", "flow.yaml", "flow.json"]);
    assert_eq!(code, Some(1));
    assert!(text.starts_with("flow.json:1:15: error: "), "{text}");
    assert!(text.ends_with("1 error in 1 of 3 files\n"), "{text}");
}

/// The server reads every file of its folder, and one that is not a configuration makes it refuse all limits.
#[test]
fn every_file_beside_limits_must_be_limits() {
    let beside = "the server reads every file of this folder as limits";
    for (name, text) in [
        ("flow.yaml", FLOW),
        ("deep/flow.json", r#"{"name": "w", "jobs": []}"#),
        ("README.md", "# Limits\n"),
        (".shop.yaml.swp", "x"),
        ("worker.py", "import os\n"),
    ] {
        let files = folder(&[("limits/a.yaml", GOOD), (&format!("limits/{name}"), text)]);
        let (code, shown) = run(&files, &["limits"]);
        assert_eq!(code, Some(1), "{name}: {shown}");
        assert!(
            shown.starts_with(&format!("limits/{name}: error: {beside}")),
            "{name}: {shown}"
        );
    }
    let files = folder(&[("deep/a.yaml", GOOD), ("flow.yaml", FLOW)]);
    assert!(run(&files, &["."]).1.contains(beside));
    let files = folder(&[("a.yaml", GOOD), ("b.yaml", "'''\n")]);
    assert!(run(&files, &["."]).1.starts_with("./b.yaml:"));
}

#[test]
fn subfolders_are_checked_as_the_server_reads_them() {
    let bad = GOOD.replace("domain: a", "domain: b").replace("day", "foo");
    let files = folder(&[("config/a.yaml", GOOD), ("config/deep/er/b", &bad)]);
    let (code, text) = run(&files, &["config"]);
    assert_eq!(code, Some(1));
    assert!(
        text.starts_with("config/deep/er/b:4:24: error: invalid rate limit unit"),
        "{text}"
    );
    let flows = folder(&[
        ("flows/a.yaml", FLOW),
        ("flows/README.md", "x"),
        ("flows/more/worker.py", "x"),
    ]);
    assert_eq!(
        run(&flows, &["flows"]),
        (Some(0), "ok: 1 file, 1 workflow definition\n".to_owned())
    );
}

#[test]
fn a_folder_without_a_file_to_check_is_a_mistake() {
    let files = folder(&[("empty/README.md", "x")]);
    let (code, text) = run(&files, &["empty"]);
    assert_eq!(code, Some(1));
    assert!(
        text.starts_with("empty: error: this folder has no file to check"),
        "{text}"
    );
}

#[test]
fn a_mistake_in_a_definition_is_shown_where_it_is() {
    let check = |name: &str, flow: &str, expected: &str| {
        let files = folder(&[(name, flow)]);
        let (code, text) = run(&files, &[name]);
        assert_eq!(code, Some(1), "{text}");
        assert!(text.starts_with(expected), "{text}");
    };
    let parent = "\
flow.yaml:6:13: error: there is no job 'c'
 6 |     after: [c]
   |             ^
   = at: jobs[1].after[0]
";
    check("flow.yaml", &FLOW.replace("[a]", "[c]"), parent);
    let circle = FLOW.replace("handler: h}", "handler: h, after: b}");
    check("flow.yaml", &circle, "flow.yaml:2:1: error: ");
    check(
        "flow.yaml",
        &FLOW.replace("after: [a]", "timeout: 5"),
        "flow.yaml:6:5: error: ",
    );
    let priority = "flow.yaml:6:5: error: invalid value: integer `300`, expected u8\n";
    check(
        "flow.yaml",
        &FLOW.replace("after: [a]", "priority: 300"),
        priority,
    );
    let rule = "flow.yaml:6:5: error: unknown variant `all`, expected one of `all_success`, `all_done`, `any_success`, `any_failed`, `none_failed`\n";
    check("flow.yaml", &FLOW.replace("after: [a]", "rule: all"), rule);
    check("flow.yaml", &FLOW.replace("after:", "after"), "flow.yaml:");
    check(
        "flow.json",
        "{\"name\": \"w\",\n \"jobs\": [{\"nme\": \"a\", \"handler\": \"h\"}]}",
        "flow.json:2:12: error: unknown field `nme`; did you mean `name`?",
    );
}

#[test]
fn json_is_read_as_json() {
    let flow = r#"{"name": "\ud83d\ude00", "x": DEEP, "jobs": [{"name": "é", "handler": "h", "\u0061fter": ["zz"]}]}"#;
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let files = folder(&[
        ("a.json", &flow.replace("\"x\": DEEP, ", "")),
        ("b.json", &flow.replace("DEEP", &deep)),
    ]);
    let (code, text) = run(&files, &["a.json", "b.json"]);
    assert_eq!(code, Some(1));
    assert!(
        text.contains("a.json:1:80: error: there is no job 'zz'"),
        "{text}"
    );
    assert!(
        !text.contains("neither") && text.contains("unknown field `x`"),
        "{text}"
    );
}

#[test]
fn what_is_neither_is_said_to_be_neither() {
    let files = folder(&[
        ("a.yaml", "name: x\n"),
        ("b.json", "{\"a\": 1"),
        ("c.txt", "- a\n"),
    ]);
    let (code, text) = run(&files, &["a.yaml", "b.json", "c.txt"]);
    assert_eq!(code, Some(1));
    assert_eq!(
        text.matches(
            "neither a rate limit configuration, which has `domain` and `descriptors`, nor"
        )
        .count(),
        2,
        "{text}"
    );
    assert!(text.contains("b.json:1:7: error: "), "{text}");
}

#[test]
fn standard_input_is_checked() {
    let files = folder(&[
        ("flow", FLOW),
        ("bad", &FLOW.replace("handler: h\n", "handlr: h\n")),
    ]);
    let check = |name: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let input = std::fs::File::open(files.path().join(name)).unwrap();
        let output = command.args(["check", "-"]).stdin(input).output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
        )
    };
    assert_eq!(
        check("flow"),
        (Some(0), "ok: 1 file, 1 workflow definition\n".to_owned())
    );
    let (code, text) = check("bad");
    assert_eq!(code, Some(1));
    assert!(
        text.starts_with("standard input:5:5: error: ") && text.contains("at: jobs[1].handlr"),
        "{text}"
    );
}
