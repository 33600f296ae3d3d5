//! Where configuration files are, and how they are read.

use std::path::PathBuf;

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
    /// The folder that files with limits belong into, as an absolute path.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        let folder = self.root.join(&self.subdirectory).join(&self.app_directory);
        // Through components, because joining an empty folder leaves a slash at the end.
        std::path::absolute(&folder).unwrap_or(folder).components().collect()
    }
}

pub(super) fn build(values: &Values) -> Files {
    Files {
        root: values.text("RUNTIME_ROOT").into(),
        root_given: values.given.contains("RUNTIME_ROOT"),
        missing_root: MissingRoot::Refused,
        subdirectory: values.text("RUNTIME_SUBDIRECTORY").into(),
        app_directory: values.text("RUNTIME_APPDIRECTORY").into(),
        scope: values.either("RUNTIME_WATCH_ROOT", Scope::Subdirectory, Scope::AppDirectory),
        dot_files: values.either("RUNTIME_IGNOREDOTFILES", DotFiles::Skip, DotFiles::Read),
        same_domain: values.either("MERGE_DOMAIN_CONFIG", SameDomain::Merge, SameDomain::Refuse),
        first_load: values.either("FORCE_START_WITHOUT_INITIAL_CONFIG", FirstLoad::AfterPorts, FirstLoad::BeforePorts),
    }
}
