//! What the program says of its settings and of its version.

use std::process::Command;

use tidegate::settings::markdown;

use super::parse;
use crate::support::{await_that, get, repository};
use crate::workflows::{Flows, redis, workflow};

#[test]
fn the_binary_ends_with_64_and_tells_no_secret() {
    let tidegate = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command
            .env_clear()
            .args(arguments)
            .env("REDIS_AUTH", "hunter2")
            .env("REDIS_URL", "redis://u:hunter2@h:1:2");
        let output = command.output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(!text.contains("hunter2"), "{text}");
        (output.status.code(), text)
    };
    let (code, text) = tidegate(&[]);
    assert_eq!(code, Some(64), "{text}");
    assert!(text.contains("REDIS_URL='redis://*****@*****'"), "{text}");
    let (code, text) = tidegate(&["settings"]);
    assert_eq!(code, Some(64), "{text}");
    assert!(text.contains("\nREDIS_AUTH=*****\n"), "{text}");
    assert!(
        text.contains(
            "\n  REDIS_URL='redis://*****@*****': expected host:port after the //; write"
        ),
        "{text}"
    );
    let (code, text) = tidegate(&["settings", "--set"]);
    assert_eq!(code, Some(64), "{text}");
    let set = "## Set in the environment\nREDIS_URL=redis://*****@*****\nREDIS_AUTH=*****\n";
    assert!(text.starts_with(set), "{text}");
    let (code, text) = tidegate(&["settings", "--describe", "redis_auth"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.starts_with("REDIS_AUTH (Redis)\n\n") && text.contains("\nvalue    *****\n"),
        "{text}"
    );
    let (code, text) = tidegate(&["settings", "--describe", "REDIS_ULR"]);
    assert_eq!(code, Some(64), "{text}");
    assert!(text.contains("did you mean REDIS_URL?"), "{text}");
    assert_eq!(tidegate(&["settings", "--set", "--markdown"]).0, Some(64));
    assert_eq!(tidegate(&["settings", "--markdown"]).1, markdown());
    assert_eq!(
        tidegate(&["--version"]).1,
        format!("tidegate {}\n", tidegate::VERSION)
    );
}

/// Two builds of one version could not be told apart.
#[test]
fn a_build_of_the_repository_names_its_revision() {
    let revision = tidegate::VERSION.strip_prefix(concat!(env!("CARGO_PKG_VERSION"), "+"));
    let is_revision =
        |text: &str| text.len() >= 7 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert_eq!(
        revision.is_some_and(is_revision),
        repository().join(".git").exists(),
        "{}",
        tidegate::VERSION
    );
    assert!(revision.is_some() || tidegate::VERSION == env!("CARGO_PKG_VERSION"));
    let redis = redis();
    let flows = Flows::on(&redis);
    assert_eq!(flows.get("/v1/version")["version"], tidegate::VERSION);
    flows.create(workflow("w", "a"));
    await_that("the server is among those of its store", || {
        flows.get("/v1/status")["workflows"]["servers"][0]["version"] == tidegate::VERSION
    });
    let build = format!(
        "tidegate_build_info{{version=\"{}\"}} 1\n",
        tidegate::VERSION
    );
    assert!(get(flows.server.debug(), "/metrics").body.contains(&build));
}

/// Names that are not ours cannot be refused, so a misspelt one was ignored in silence.
#[test]
fn names_that_look_misspelt_are_warned_of() {
    let warnings = |pairs: &[(&str, &str)]| parse(pairs).unwrap().warnings;
    assert_eq!(
        warnings(&[
            ("REDIS_ULR", "a:1"),
            ("RUNTIME_SUBDIR", "limits"),
            ("REDIS_PORT_6379_TCP", "tcp://a:1"),
            ("HOME", "/")
        ]),
        [
            "REDIS_ULR is not a setting and has no effect; did you mean REDIS_URL?",
            "RUNTIME_SUBDIR is not a setting and has no effect; did you mean RUNTIME_SUBDIRECTORY?",
        ]
    );
    // The right name is there too: the other one is for another program.
    assert!(warnings(&[("REDIS_URI", "a:1"), ("REDIS_URL", "a:1")]).is_empty());
    // What is missing may be what was misspelt.
    let misspelt = [("REDIS_TYPE", "cluster"), ("REDIS_ULR", "a:1")];
    let error = parse(&misspelt).unwrap_err();
    assert!(
        error.ends_with("\n  REDIS_TYPE='cluster': set REDIS_URL to the addresses of its servers"),
        "{error}"
    );
    for arguments in [&[][..], &["settings"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let output = command
            .env_clear()
            .args(arguments)
            .envs(misspelt)
            .output()
            .unwrap();
        let log = String::from_utf8(output.stderr).unwrap();
        let warning =
            "warning: REDIS_ULR is not a setting and has no effect; did you mean REDIS_URL?";
        assert!(
            log.lines().any(|line| line == warning),
            "a warning is not listed under the error:\n{log}"
        );
    }
}

#[test]
fn the_settings_command_warns_as_the_server_does() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let output = command
        .env_clear()
        .arg("settings")
        .envs([("REDIS_ULR", "a:1"), ("TRACING_ENABLED", "true")])
        .output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(0));
    let log = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        log,
        "warning: REDIS_ULR is not a setting and has no effect; did you mean REDIS_URL?\n"
    );
}

#[test]
fn docs_settings_md_is_not_stale() {
    let page = std::fs::read_to_string(repository().join("docs/settings.md")).unwrap();
    assert!(
        page == markdown(),
        "docs/settings.md is stale: run `make gen`"
    );
}
