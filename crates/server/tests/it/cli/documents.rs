//! What docs/cli.md says, beside what the program says of itself.

use super::*;
use crate::support::{Limits, repository};

fn help(path: &[&str]) -> String {
    run(&mut binary(&[path, &["--help"]].concat()))
        .expect(DONE)
        .out
}

/// Names of the commands below one, as its help lists them.
fn below(path: &[&str]) -> Vec<String> {
    let text = help(path);
    let headings = [
        "Server:",
        "Rate limits:",
        "Workflows:",
        "Maintenance:",
        "Commands:",
    ];
    let mut names = Vec::new();
    let mut is_list = false;
    for line in text.lines() {
        if !line.starts_with(' ') {
            is_list = headings.contains(&line);
        } else if is_list && !line.starts_with("   ") {
            names.extend(line.split_whitespace().next().map(str::to_owned));
        }
    }
    names.retain(|name| name != "help");
    names
}

#[test]
fn every_command_is_documented_with_its_example() {
    let page = std::fs::read_to_string(repository().join("docs/cli.md")).unwrap();
    let mut commands = 0;
    for noun in below(&[]) {
        let verbs = below(&[&noun]);
        let paths = verbs.iter().map(|verb| vec![noun.as_str(), verb]);
        let paths: Vec<Vec<&str>> = if verbs.is_empty() {
            vec![vec![&noun]]
        } else {
            paths.collect()
        };
        for path in paths {
            let text = help(&path);
            let (_, examples) = text
                .split_once("\nExamples:\n")
                .unwrap_or_else(|| panic!("{path:?} has no example:\n{text}"));
            assert!(
                page.contains(&format!("| `{}` |", path.join(" "))),
                "docs/cli.md has no row for {path:?}"
            );
            for example in examples.lines().take_while(|line| !line.is_empty()) {
                assert!(
                    page.contains(example.trim()),
                    "docs/cli.md does not show `{}`",
                    example.trim()
                );
            }
            commands += 1;
        }
    }
    assert_eq!(commands, 62, "commands that the help lists");
    for verb in [
        "create",
        "create_and_start",
        "start",
        "stop",
        "show",
        "rm",
        "list",
        "viz",
        "migrate",
    ] {
        help(&[verb]);
        assert!(
            page.contains(&format!("| `{verb}")),
            "docs/cli.md does not know Gush's {verb}"
        );
    }
}

#[test]
fn every_exit_code_is_documented() {
    let page = std::fs::read_to_string(repository().join("docs/cli.md")).unwrap();
    let text = help(&[]);
    let (_, codes) = text.split_once("Exit codes:\n").unwrap();
    let told: Vec<String> = codes
        .lines()
        .filter_map(|line| line.trim().split_once("  "))
        .map(|(code, meaning)| format!("| {code} | {meaning} |"))
        .collect();
    assert_eq!(told.len(), 11, "{codes}");
    told.iter()
        .for_each(|row| assert!(page.contains(row.as_str()), "docs/cli.md has no row {row}"));
}

const REPORT: &str = "\
name: report
tags: [nightly]
jobs:
  - {name: fetch, handler: bad, queue: default}
  - {name: send, handler: h, after: fetch}
";
const LIMITS: &str = "limits:\n  - {domain: vendor, entries: [[tenant, $.tenant]]}\n";
const WEIGHTS: &str = "weights:\n  - {entries: [[tenant, acme]], weight: 5}\n";
const VENDOR: &str = "domain: vendor\ndescriptors:\n  - {key: tenant, rate_limit: {unit: day, requests_per_unit: 10}}\n";
const SHOP: &str =
    "domain: shop\ndescriptors:\n  - {key: user, rate_limit: {unit: day, requests_per_unit: 1}}\n";

/// The examples of the tables, without those that write or read outside of the test's folder.
fn examples() -> Vec<String> {
    let page = std::fs::read_to_string(repository().join("docs/cli.md")).unwrap();
    let last = page.lines().filter_map(|line| {
        line.strip_suffix("` |")?
            .rsplit_once("| `")
            .map(|(_, example)| example)
    });
    let ours = |example: &&str| example.starts_with("tidegate ") && !example.contains('>');
    // Servers and lists that are watched do not end; they have tests of their own.
    let ends = ["tidegate demo", "tidegate serve"];
    let other = |example: &&str| {
        !example.contains("import gush") && !example.contains("--watch") && !ends.contains(example)
    };
    let alone = page.lines().filter(|line| line.starts_with("tidegate "));
    last.chain(alone)
        .filter(ours)
        .filter(other)
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_example_is_run() {
    let examples = examples();
    assert_eq!(examples.len(), 62, "{examples:?}");
    let files = Files::new(&[
        ("report.yaml", REPORT),
        ("limits.yaml", LIMITS),
        ("weights.yaml", WEIGHTS),
    ]);
    let limits = Limits::new(VENDOR);
    std::fs::create_dir(files.path("config")).unwrap();
    std::fs::write(files.path("config/shop.yaml"), SHOP).unwrap();
    let folder = PathBuf::from(env!("CARGO_BIN_EXE_tidegate"))
        .parent()
        .unwrap()
        .to_owned();
    for example in examples {
        let flows = Flows::start(&[("RUNTIME_ROOT", limits.root())]);
        tidegate(&flows, &["limit", "pause", "vendor", "tenant=acme"]).expect(DONE);
        let mut mail = workflow("mail", "a");
        mail["jobs"][0]["queue"] = "mail".into();
        flows.create(mail);
        let create = [
            "workflow",
            "create",
            &files.text("report.yaml"),
            "--key",
            "report-2026-11-21",
            "-o",
            "name",
        ];
        let id = tidegate(&flows, &create).expect(DONE).out;
        let line = example.replace("01M7Z85C8H08RJZ5Q5JGPKMY04", id.trim());
        let mut shell = Command::new("/bin/bash");
        shell
            .args(["-c", &line])
            .env_clear()
            .env("PATH", &folder)
            .env("HOME", files.path(""))
            .env("TIDEGATE_SERVER", flows.api().to_string())
            .env("HOST", "127.0.0.1")
            .env("PORT", flows.server.http().port().to_string());
        let shell = shell
            .current_dir(files.path(""))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = shell.spawn().unwrap();
        crate::support::await_that(&line, || {
            work(&flows);
            child.try_wait().unwrap().is_some()
        });
        let output = child.wait_with_output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        // The state of a job decides whether a verb applies; that the example is understood does not depend on it.
        let is_question = output.status.code() == Some(USAGE)
            && error.contains("no terminal for the question; add --yes");
        let is_understood = matches!(
            output.status.code(),
            Some(DONE | FAILED | NOT_FOUND | REFUSED)
        ) || is_question;
        assert!(is_understood, "{line}: {:?} {error}", output.status);
    }
}
