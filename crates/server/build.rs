//! Tells the program of which revision of the repository it is built.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let version = env!("CARGO_PKG_VERSION");
    match revision() {
        Some(revision) => println!("cargo::rustc-env=BUILD_VERSION={version}+{revision}"),
        None => println!("cargo::rustc-env=BUILD_VERSION={version}"),
    }
}

/// None without git, and where the sources are not a repository of their own, such as an archive that was unpacked inside of another one.
fn revision() -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)?
        .canonicalize()
        .ok()?;
    if Path::new(&git(&root, &["rev-parse", "--show-toplevel"])?)
        .canonicalize()
        .ok()?
        != root
    {
        return None;
    }
    // Both change with each commit, or when another one is checked out. Cargo would run this each time because of a file that is absent.
    for file in ["HEAD", "logs/HEAD"] {
        let path = root.join(git(&root, &["rev-parse", "--git-path", file])?);
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    git(&root, &["rev-parse", "--short=7", "HEAD"])
}

/// Output of a git command. `None` if it fails.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .current_dir(root)
        .args(arguments)
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
