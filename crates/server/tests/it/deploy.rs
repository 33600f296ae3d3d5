//! What is in deploy/ is accepted by the programs that it is for, and fits this server.

mod compose;
mod container;
mod examples;
mod install;
mod kubernetes;
mod monitoring;
mod release;
mod systemd;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair};
use serde_json::Value;

use crate::support::repository;

/// What a thread may take to end after the drain.
const END: Duration = Duration::from_secs(5);

fn deploy(path: &str) -> PathBuf {
    repository().join("deploy").join(path)
}

/// A program of the peers in .venv, which scripts/deps installs.
fn peer(name: &str) -> Command {
    let path = repository().join(".venv").join(name);
    assert!(
        path.exists(),
        "{} is missing: run `scripts/deps test`",
        path.display()
    );
    Command::new(path)
}

/// Runs a program that must succeed, and returns what it printed.
fn succeed(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}: run `scripts/deps test`"));
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{command:?}: {text}");
    text
}

/// The documents of a file in YAML.
fn yaml(path: &Path) -> Vec<Value> {
    const READ: &str = "import json, sys, yaml; json.dump(list(yaml.safe_load_all(open(sys.argv[1]))), sys.stdout)";
    let text = succeed(peer("bin/python").args(["-c", READ]).arg(path));
    serde_json::from_str(&text).unwrap()
}

/// A folder with a certificate for these names, its key, and its authority, under the names that Kubernetes gives them.
fn certificates(names: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let key = KeyPair::generate().unwrap();
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let certificate = CertificateParams::new(names)
        .unwrap()
        .self_signed(&key)
        .unwrap();
    for (name, text) in [
        ("tls.crt", certificate.pem()),
        ("ca.crt", certificate.pem()),
        ("tls.key", key.serialize_pem()),
    ] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

/// The default of a time span, as docs/settings.md has it.
fn default_span(name: &str) -> Duration {
    let page = std::fs::read_to_string(repository().join("docs/settings.md")).unwrap();
    let row = page
        .lines()
        .find(|line| line.starts_with(&format!("| `{name}` |")))
        .unwrap();
    let text = row.split('`').nth(3).unwrap();
    Duration::from_secs(text.strip_suffix('s').unwrap().parse().unwrap())
}

/// How long a server takes at most to end when it is told to: the drain, and its threads.
fn longest_end() -> Duration {
    default_span("TIDEGATE_DRAIN_DELAY") + default_span("TIDEGATE_DRAIN_TIMEOUT") + END
}
