//! What `make dist` publishes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use serde_json::Value;

use super::succeed;
use crate::support::repository;

/// What was published, and what the command said.
struct Published {
    folder: PathBuf,
    told: String,
}

/// All tests look at what one run made: to pack the program takes twenty seconds.
static PUBLISHED: LazyLock<Published> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dist");
    let _ = std::fs::remove_dir_all(&folder);
    let mut dist = Command::new(repository().join("scripts/dist"));
    let told = succeed(
        dist.arg(&folder)
            .arg(env!("CARGO_BIN_EXE_tidegate"))
            .env("CARGO_NET_OFFLINE", "true"),
    );
    Published { folder, told }
});

fn only(folder: &Path, ending: &str) -> PathBuf {
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
    let Published { folder, told } = &*PUBLISHED;
    succeed(
        Command::new("sha256sum")
            .args(["--check", "--strict", "SHA256SUMS"])
            .current_dir(folder),
    );
    // Cargo may say that it waits for another.
    let is_file = |line: &&str| {
        line.split_once("  ")
            .is_some_and(|(sum, _)| sum.len() == 64)
    };
    assert_eq!(told.lines().filter(is_file).count(), 3, "{told}");

    let unpacked = folder.join("unpacked");
    std::fs::create_dir(&unpacked).unwrap();
    let archive = only(folder, ".tar.gz");
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
    let notes = std::fs::read_to_string(folder.join("release-notes.md")).unwrap();
    assert!(
        notes.starts_with(&format!("# Tidegate {}\n", env!("CARGO_PKG_VERSION"))),
        "{notes}"
    );
    assert!(
        notes.lines().filter(|line| line.starts_with("- ")).count() > 3 && !notes.contains("\n## "),
        "{notes}"
    );
}

#[test]
fn the_bill_of_materials_is_that_of_the_lock_file() {
    let bill = std::fs::read(only(&PUBLISHED.folder, ".cdx.json")).unwrap();
    let bill: Value = serde_json::from_slice(&bill).unwrap();
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
