//! Where configuration files are, and how they are read.

use std::path::{Component, Path, PathBuf};

use tidegate_ratelimit::SameDomain;

use super::read::Values;

/// Where configuration files are, and how they are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// A folder, or a symbolic link to one.
    pub root: PathBuf,
    /// Whether RUNTIME_ROOT is set, or has its default.
    pub root_given: bool,
    /// What to do at start when that folder does not exist.
    pub missing_root: MissingRoot,
    /// A folder under the root.
    pub subdirectory: PathBuf,
    /// A folder under the subdirectory.
    pub app_directory: PathBuf,
    /// Which files are read, and how they are named.
    pub scope: Scope,
    /// What to do with names that start with a dot.
    pub dot_files: DotFiles,
    /// What to do with a second file of the same domain.
    pub same_domain: SameDomain,
    /// When the ports open.
    pub first_load: FirstLoad,
}

/// Which files are read, and how they are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Everything under the subdirectory. Names begin there, and only files whose name starts with the app directory's are used.
    Subdirectory,
    /// Everything under the app directory. Names begin there.
    AppDirectory,
}

/// What to do with names that start with a dot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DotFiles {
    /// Read them.
    Read,
    /// Skip them.
    Skip,
}

/// What to do at start when RUNTIME_ROOT is set, and there is no such folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingRoot {
    /// Do not start: the name is probably wrong.
    Refused,
    /// As envoyproxy/ratelimit: start, and limit nothing until it is there, if it is the folder above that is watched, and that one exists.
    Awaited,
}

/// When the ports open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstLoad {
    /// After the first load, whether it succeeded or not.
    BeforePorts,
    /// At once.
    AfterPorts,
}

impl Files {
    /// The folder of RUNTIME_SUBDIRECTORY.
    #[must_use]
    pub fn subfolder(&self) -> PathBuf {
        join(&[&self.root, &self.subdirectory])
    }

    /// The folder of RUNTIME_APPDIRECTORY.
    #[must_use]
    pub fn app_folder(&self) -> PathBuf {
        join(&[&self.root, &self.subdirectory, &self.app_directory])
    }

    /// The folder that files with limits belong into, as an absolute path.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        let folder = self.app_folder();
        std::path::absolute(&folder).unwrap_or(folder)
    }
}

/// Joins paths as Go's `filepath.Join` does, which envoyproxy/ratelimit uses: a `/` at the start of a later part does not throw the
/// earlier parts away, empty parts are left out, and `.` and `..` are resolved without a look at the disk.
fn join(parts: &[&Path]) -> PathBuf {
    let mut parts = parts
        .iter()
        .filter(|part| !part.as_os_str().is_empty())
        .peekable();
    let Some(first) = parts.peek() else {
        return PathBuf::new();
    };
    let mut joined = PathBuf::from(if first.has_root() { "/" } else { "" });
    for component in parts.flat_map(|part| part.components()) {
        match (component, joined.components().next_back()) {
            (Component::Normal(name), _) => joined.push(name),
            (Component::ParentDir, Some(Component::Normal(_))) => {
                joined.pop();
            }
            (Component::ParentDir, None | Some(Component::ParentDir)) => {
                joined.push(Component::ParentDir)
            }
            // The folder above the root is the root.
            _ => {}
        }
    }
    if joined.as_os_str().is_empty() {
        PathBuf::from(".")
    } else {
        joined
    }
}

pub(super) fn build(values: &Values) -> Files {
    Files {
        root: join(&[values.text("RUNTIME_ROOT").as_ref()]),
        root_given: values.given.contains("RUNTIME_ROOT"),
        missing_root: MissingRoot::Refused,
        subdirectory: values.text("RUNTIME_SUBDIRECTORY").into(),
        app_directory: values.text("RUNTIME_APPDIRECTORY").into(),
        scope: values.either(
            "RUNTIME_WATCH_ROOT",
            Scope::Subdirectory,
            Scope::AppDirectory,
        ),
        dot_files: values.either("RUNTIME_IGNOREDOTFILES", DotFiles::Skip, DotFiles::Read),
        same_domain: values.either("MERGE_DOMAIN_CONFIG", SameDomain::Merge, SameDomain::Refuse),
        first_load: values.either(
            "FORCE_START_WITHOUT_INITIAL_CONFIG",
            FirstLoad::AfterPorts,
            FirstLoad::BeforePorts,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A subdirectory that begins with `/` was taken for a path from the root of the disk, so no limit was loaded and everything passed.
    /// The expected values are what Go's `filepath.Join` returns.
    #[test]
    fn paths_are_joined_as_the_reference_joins_them() {
        let check = |parts: &[&str], expected: &str| {
            let paths: Vec<&Path> = parts.iter().map(Path::new).collect();
            assert_eq!(join(&paths), Path::new(expected), "{parts:?}");
        };
        check(&["/data", "limits", "config"], "/data/limits/config");
        check(&["/data", "/limits", "/config"], "/data/limits/config");
        check(&["/data/", "/limits/", "/config/"], "/data/limits/config");
        check(&["/data", "/", "config"], "/data/config");
        check(&["/data", "", "config"], "/data/config");
        check(&["/data", ".", "./config"], "/data/config");
        check(
            &["/data", "//limits", "config//deep"],
            "/data/limits/config/deep",
        );
        check(
            &["/data/current", "../limits", "config"],
            "/data/limits/config",
        );
        check(&["/data", "../../..", "config"], "/config");
        check(&["data", "../../limits", "config"], "../limits/config");
        check(&["", "limits", "config"], "limits/config");
        check(&["", "/limits", "config"], "/limits/config");
        check(&["/", "limits", "config"], "/limits/config");
        check(&[".", "/limits", ""], "limits");
        check(&[".", "", ""], ".");
        check(&["", "", ""], "");
        check(&["data", "..", ""], ".");
        check(&["../data", "..", ""], "..");
    }
}
