//! `ratelimit_config_check`.

use super::Root;

const GOOD: &str =
    "domain: a\ndescriptors:\n  - key: k\n    rate_limit: {unit: minute, requests_per_unit: 5}\n";

fn check(files: &[(&str, &str)], arguments: &[&str], code: i32, expected: &[&str]) {
    let root = Root::new();
    files.iter().for_each(|(name, text)| root.write(name, text));
    let (ended, out, error) = root.run("ratelimit_config_check", arguments);
    assert_eq!(out.lines().collect::<Vec<_>>(), expected, "{error}");
    assert_eq!((ended, error.as_str()), (Some(code), ""), "{out}");
}

#[test]
fn good_files_are_named_in_their_order() {
    let expected = [
        "checking rate limit configs...",
        "loading config directory: limits",
        "opening config file: limits/a.yaml",
        "opening config file: limits/b.yaml",
        "all rate limit configs ok",
    ];
    let other = GOOD.replace("domain: a", "domain: b");
    check(
        &[("limits/b.yaml", &other), ("limits/a.yaml", GOOD)],
        &["-config_dir", "limits"],
        0,
        &expected,
    );
}

#[test]
fn several_files_of_a_domain_are_allowed_only_when_asked_for() {
    let files = [("d/a", GOOD), ("d/b", "domain: a\n")];
    let opened = [
        "checking rate limit configs...",
        "loading config directory: d/",
        "opening config file: d/a",
        "opening config file: d/b",
    ];
    let merged = [&opened[..], &["all rate limit configs ok"]].concat();
    check(
        &files,
        &["--config_dir=d/", "-merge_domain_configs"],
        0,
        &merged,
    );
    let refused = "error loading rate limit configs: d/b: duplicate domain 'a' in config file";
    check(
        &files,
        &["--config_dir=d/", "-merge_domain_configs=false"],
        1,
        &[&opened[..], &[refused]].concat(),
    );
}

/// The reference prints a trace of its stack for the first two.
#[test]
fn mistakes_end_with_code_1_and_a_message() {
    for (text, message) in [
        (
            "'''\n",
            "error loading config file: yaml: line 2: found unexpected end of stream",
        ),
        ("domain: a\nextra: 1\n", "config error, unknown key 'extra'"),
        ("domain: ''\n", "config file cannot have empty domain"),
    ] {
        let line = format!("error loading rate limit configs: d/x.yaml: {message}");
        let expected = [
            "checking rate limit configs...",
            "loading config directory: d",
            "opening config file: d/x.yaml",
            line.as_str(),
        ];
        check(&[("d/x.yaml", text)], &["-config_dir=d"], 1, &expected);
    }
}

#[test]
fn what_cannot_be_read_is_named() {
    let absent = [
        "checking rate limit configs...",
        "loading config directory: nowhere",
        "error opening directory nowhere: open nowhere: no such file or directory",
    ];
    check(&[], &["-config_dir", "nowhere"], 1, &absent);
    let folder = [
        "checking rate limit configs...",
        "loading config directory: d",
        "opening config file: d/deep",
        "error reading file d/deep: read d/deep: is a directory",
    ];
    check(
        &[("d/deep/a.yaml", GOOD)],
        &["-config_dir", "d"],
        1,
        &folder,
    );
}

/// Reading it would wait for a writer.
#[test]
fn what_is_no_regular_file_is_a_mistake_and_a_link_to_a_file_is_none() {
    let root = Root::new();
    let run = || root.run("ratelimit_config_check", &["-config_dir", "d"]);
    root.write("elsewhere", GOOD);
    root.write("d/b.yaml", &GOOD.replace("domain: a", "domain: b"));
    std::os::unix::fs::symlink("../elsewhere", root.path("d/a.yaml")).unwrap();
    assert_eq!(run().0, Some(0));
    let made = std::process::Command::new("mkfifo")
        .arg(root.path("d/c.yaml"))
        .status()
        .unwrap();
    assert!(made.success());
    let (code, out, _) = run();
    let told = "error reading file d/c.yaml: read d/c.yaml: it is not a regular file";
    assert_eq!((code, out.lines().last()), (Some(1), Some(told)));
}
