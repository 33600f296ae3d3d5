//! What `make dist` publishes.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::succeed;
use crate::support::repository;

fn publish(folder: &Path) -> String {
    let mut dist = Command::new(repository().join("scripts/dist"));
    succeed(
        dist.arg(folder)
            .arg(env!("CARGO_BIN_EXE_tidegate"))
            .env("CARGO_NET_OFFLINE", "true"),
    )
}

fn only(folder: &Path, ending: &str) -> std::path::PathBuf {
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = entries
        .filter(|path| path.to_str().unwrap().ends_with(ending))
        .collect();
    assert_eq!(found.len(), 1, "{ending}: {found:?}");
    found.remove(0)
}

#[test]
fn a_release_has_its_program_its_parts_and_its_notes() {
    let folder = tempfile::tempdir().unwrap();
    let told = publish(folder.path());
    succeed(
        Command::new("sha256sum")
            .args(["--check", "--strict", "SHA256SUMS"])
            .current_dir(folder.path()),
    );
    assert_eq!(told.lines().count(), 3, "{told}");

    let unpacked = folder.path().join("unpacked");
    std::fs::create_dir(&unpacked).unwrap();
    let archive = only(folder.path(), ".tar.gz");
    succeed(
        Command::new("tar")
            .arg("-xzf")
            .arg(&archive)
            .arg("-C")
            .arg(&unpacked)
            .arg("--strip-components=1"),
    );
    let version = succeed(Command::new(unpacked.join("bin/tidegate")).arg("--version"));
    assert_eq!(version.trim(), format!("tidegate {}", tidegate::VERSION));
    assert_eq!(
        std::fs::read_link(unpacked.join("bin/ratelimit")).unwrap(),
        Path::new("tidegate")
    );
    for file in [
        "LICENSE",
        "completions/tidegate.bash",
        "docs/settings.md",
        "deploy/systemd/tidegate.service",
    ] {
        assert!(unpacked.join(file).exists(), "{file}");
    }
    let notes = std::fs::read_to_string(folder.path().join("release-notes.md")).unwrap();
    assert!(
        notes.starts_with(&format!("# Tidegate {}\n", env!("CARGO_PKG_VERSION"))),
        "{notes}"
    );
    assert!(
        notes.lines().filter(|line| line.starts_with("- ")).count() > 1 && !notes.contains("\n## "),
        "{notes}"
    );
}

#[test]
fn the_bill_of_materials_is_that_of_the_lock_file() {
    let folder = tempfile::tempdir().unwrap();
    publish(folder.path());
    let bill: Value =
        serde_json::from_slice(&std::fs::read(only(folder.path(), ".cdx.json")).unwrap()).unwrap();
    let lock = std::fs::read_to_string(repository().join("Cargo.lock")).unwrap();
    let components = bill["components"].as_array().unwrap();
    let text = |component: &Value, field: &str| component[field].as_str().unwrap().to_owned();
    for component in components {
        let (name, version) = (text(component, "name"), text(component, "version"));
        let entry = format!("name = \"{name}\"\nversion = \"{version}\"\n");
        let locked = lock
            .split("[[package]]\n")
            .find(|package| package.starts_with(&entry))
            .expect(&name);
        assert_eq!(
            text(component, "purl"),
            format!("pkg:cargo/{name}@{version}")
        );
        assert!(
            component["licenses"][0]["expression"].is_string(),
            "{component}"
        );
        let is_ours = name.starts_with("tidegate");
        let checksum = component["hashes"][0]["content"].as_str();
        assert!(is_ours || locked.contains(checksum.unwrap()), "{component}");
    }
    let required = |component: &&Value| component["scope"] == "required";
    let inside: BTreeSet<String> = components
        .iter()
        .filter(required)
        .map(|component| text(component, "name"))
        .collect();
    for name in [
        "tokio",
        "hyper",
        "rustls",
        "ring",
        "rusqlite",
        "tidegate-pipeline",
    ] {
        assert!(inside.contains(name), "{name}");
    }
    for name in ["tidegate-bench", "cc", "rcgen", "tempfile"] {
        assert!(!inside.contains(name), "{name} is not in the program");
    }
}
