//! `tidegate check` and what it prints.

use std::process::Command;

use tempfile::TempDir;

/// Runs `tidegate check` in `folder` and returns its exit code and output.
fn run(folder: &TempDir, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let output = command.arg("check").args(arguments).current_dir(folder.path()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

const GOOD: &str = "domain: a\ndescriptors:\n  - key: k\n    rate_limit: {unit: day, requests_per_unit: 1}\n";

#[test]
fn good_files_are_summed_up() {
    let files = folder(&[("a.yaml", GOOD), ("b.yaml", &GOOD.replace("domain: a", "domain: b")), (".hidden", "x")]);
    assert_eq!(run(&files, &["a.yaml"]), (Some(0), "ok: 1 file, 1 domain, 1 limit\n".to_owned()));
    assert_eq!(run(&files, &["."]), (Some(0), "ok: 2 files, 2 domains, 2 limits\n".to_owned()));
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
fn every_mistake_of_every_file_is_shown() {
    let files = folder(&[("a.yaml", "descriptors: []\n"), ("b.yaml", "'''\n"), ("c.yaml", GOOD), ("d.yaml", GOOD)]);
    let (code, text) = run(&files, &["a.yaml", "b.yaml", "c.yaml", "d.yaml", "missing.yaml"]);
    assert_eq!(code, Some(1));
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

#[test]
fn domains_are_merged_when_asked_for() {
    let files = folder(&[("a.yaml", GOOD), ("b.yaml", &GOOD.replace("key: k", "key: other"))]);
    assert_eq!(run(&files, &["."]).0, Some(1));
    let merged = run(&files, &["--merge-domain-configs", "."]);
    assert_eq!(merged, (Some(0), "ok: 2 files, 1 domain, 2 limits\n".to_owned()));
}

#[test]
fn a_file_cannot_steer_the_terminal() {
    let files = folder(&[("a.yaml", "domain: a\ndescriptors:\n  - key: k\n    \"unknown\u{1b}[31m\": 1 # \u{7}\n")]);
    let (code, text) = run(&files, &["a.yaml"]);
    assert_eq!(code, Some(1));
    assert!(text.contains("unknown key") && !text.contains(['\u{1b}', '\u{7}']), "{text:?}");
}
