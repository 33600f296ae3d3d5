//! Clients that public generators make of docs/openapi.json pass strict checks of types, and run a workflow.
//! `scripts/deps test` installs the generators; without them the tests fail.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::Flows;
use crate::support::repository;

/// A folder of its own with the sources of the clients.
fn sources() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let clients = repository().join("crates/server/tests/clients");
    for name in [
        "openapi-python-client.yaml",
        "use.py",
        "use.ts",
        "tsconfig.json",
        "package.json",
    ] {
        std::fs::copy(clients.join(name), folder.path().join(name)).unwrap();
    }
    std::os::unix::fs::symlink(
        clients.join("node_modules"),
        folder.path().join("node_modules"),
    )
    .unwrap();
    folder
}

/// Runs a program, which must succeed.
#[track_caller]
fn run(folder: &Path, program: &Path, arguments: &[&str]) {
    let shown = program.display();
    let output = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .output();
    let output =
        output.unwrap_or_else(|error| panic!("{shown}: {error}; `scripts/deps test` installs it"));
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success(),
        "{shown} {arguments:?}\n{out}\n{err}"
    );
}

fn document() -> String {
    repository()
        .join("docs/openapi.json")
        .to_str()
        .unwrap()
        .to_owned()
}

fn address(flows: &Flows) -> String {
    format!("http://{}", flows.api())
}

#[test]
fn a_generated_python_client_runs_a_workflow() {
    let (flows, folder) = (Flows::start(&[]), sources());
    let tool = |name: &str| repository().join(".venv/bin").join(name);
    let config = [
        "--config",
        "openapi-python-client.yaml",
        "--meta",
        "none",
        "--fail-on-warning",
    ];
    let generate = [
        "generate",
        "--path",
        &document(),
        "--output-path",
        "tidegate_client",
    ];
    run(
        folder.path(),
        &tool("openapi-python-client"),
        &[&generate[..], &config].concat(),
    );
    run(folder.path(), &tool("mypy"), &["--strict", "use.py"]);
    run(
        folder.path(),
        &tool("python"),
        &["use.py", &address(&flows)],
    );
}

#[test]
fn a_generated_typescript_client_runs_a_workflow() {
    let (flows, folder) = (Flows::start(&[]), sources());
    let tool = |name: &str| folder.path().join("node_modules/.bin").join(name);
    run(
        folder.path(),
        &tool("openapi-typescript"),
        &[&document(), "-o", "tidegate.d.ts"],
    );
    run(folder.path(), &tool("tsc"), &["-p", "."]);
    run(
        folder.path(),
        Path::new("node"),
        &["use.js", &address(&flows)],
    );
}
