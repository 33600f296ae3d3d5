//! Location of the configuration files, and options of the loader.

pub(crate) mod xds;

use std::path::{Component, Path, PathBuf};

use tidegate_ratelimit::SameDomain;

use super::read::Values;

/// Location of the configuration files, and options of the loader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// A folder, or a symbolic link to one.
    pub root: PathBuf,
    /// Whether RUNTIME_ROOT was set explicitly.
    pub root_given: bool,
    /// Handling of a root that does not exist at start.
    pub missing_root: MissingRoot,
    /// A folder under the root.
    pub subdirectory: PathBuf,
    /// A folder under the subdirectory.
    pub app_directory: PathBuf,
    /// Selection of files, and the base of their names.
    pub scope: FileScope,
    /// Handling of names that start with a dot.
    pub dot_files: DotFiles,
    /// Handling of a second file for the same domain.
    pub same_domain: SameDomain,
    /// Order of the first load and the opening of the ports.
    pub first_load: FirstLoad,
}

/// Selection of files, and the base of their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileScope {
    /// All files under the subdirectory, with names relative to it. Only files whose name starts
    /// with that of the app directory are used.
    Subdirectory,
    /// All files under the app directory, with names relative to it.
    AppDirectory,
}

/// Handling of names that start with a dot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DotFiles {
    /// Read these files.
    Read,
    /// Skip these files.
    Skip,
}

/// Handling of a RUNTIME_ROOT that does not exist at start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingRoot {
    /// Refuse to start, since the path is probably wrong.
    Refused,
    /// Start without limits, as envoyproxy/ratelimit does, and wait for the folder. The folder
    /// above must exist and be the one that is watched.
    Awaited,
}

/// Order of the first load and the opening of the ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstLoad {
    /// The ports open after the first load, even if it failed.
    BeforePorts,
    /// The ports open at once.
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

    /// Absolute path of the folder for files with limits.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        let folder = self.app_folder();
        std::path::absolute(&folder).unwrap_or(folder)
    }
}

/// Joins paths by the rules of Go's `filepath.Join`, as envoyproxy/ratelimit does. A later part
/// that starts with `/` does not discard the earlier parts, empty parts are skipped, and `.` and
/// `..` are resolved without access to the disk.
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
            // The parent of the root folder is the root folder.
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
            FileScope::Subdirectory,
            FileScope::AppDirectory,
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

    /// A subdirectory that begins with `/` was taken for a path from the root of the disk, so no
    /// limit was loaded and everything passed. The expected values are what Go's `filepath.Join`
    /// returns.
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
