//! Chooses the files of a folder of limits that are read, and names them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tidegate_ratelimit::Source;

use super::{FileSet, ReadFailure, parent, read_regular};
use crate::settings::{DotFiles, FileScope, Files};

/// An entry of a folder of limits.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FolderEntry {
    /// A file, or a symbolic link to anything.
    File(PathBuf),
    /// A folder whose files are read, too.
    Folder(PathBuf),
}

/// Returns the entries of `folder` that the server reads.
///
/// # Errors
/// The folder cannot be read.
pub(crate) fn entries(folder: &Path, dot_files: DotFiles) -> io::Result<Vec<FolderEntry>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)?.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        // Kubernetes keeps the versions of a mounted ConfigMap in folders that begin with two dots, and links to their files.
        if name.starts_with("..") || (name.starts_with('.') && dot_files == DotFiles::Skip) {
            continue;
        }
        // The reference follows symbolic links to files, too, and none to folders.
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        found.push(if is_folder {
            FolderEntry::Folder(entry.path())
        } else {
            FolderEntry::File(entry.path())
        });
    }
    Ok(found)
}

/// Reads the files of a folder and of its subfolders.
pub(super) struct FolderWalk<'a> {
    files: &'a Files,
    start: &'a Path,
    prefix: String,
}

impl<'a> FolderWalk<'a> {
    /// Creates a walk in which names of files are relative to `start`.
    pub(super) fn new(files: &'a Files, start: &'a Path) -> Self {
        Self {
            files,
            start,
            prefix: prefix(files),
        }
    }

    /// Adds the files in `folder` to `file_set`.
    pub(super) fn add_folder(&self, folder: &Path, file_set: &mut FileSet) {
        let entries = match entries(folder, self.files.dot_files) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound && !self.is_lost(folder) => {
                return;
            }
            Err(error) => {
                let name = self.name(folder);
                let name = if name.is_empty() { name } else { name + "." };
                return file_set.failures.push(ReadFailure {
                    path: folder.to_owned(),
                    name,
                    error,
                });
            }
        };
        for entry in entries {
            match entry {
                FolderEntry::Folder(path) => {
                    file_set.add_folder(&path);
                    self.add_folder(&path, file_set);
                }
                FolderEntry::File(path) => self.add_file(path, file_set),
            }
        }
    }

    /// Whether a missing folder must exist, because the root, or a link in its path, leads nowhere.
    /// A disk may be unmounted for a moment.
    fn is_lost(&self, folder: &Path) -> bool {
        let dangles =
            |path: &&Path| !path.exists() && (*path == self.files.root || path.is_symlink());
        folder == self.start
            && folder
                .ancestors()
                .take_while(|path| path.starts_with(&self.files.root))
                .any(|path| dangles(&path))
    }

    /// The name of the file at `path`: the names of its folders and its own, joined by dots.
    fn name(&self, path: &Path) -> String {
        dotted(path.strip_prefix(self.start).unwrap_or(path))
    }

    fn add_file(&self, path: PathBuf, file_set: &mut FileSet) {
        let name = self.name(&path);
        if !name.starts_with(&self.prefix) {
            return;
        }
        let relative = path.strip_prefix(self.start).unwrap_or(&path);
        file_set
            .paths
            .insert(name.clone(), relative.to_string_lossy().into_owned());
        match read_regular(&path) {
            Ok(text) => {
                if let Ok(real) = path.canonicalize() {
                    file_set.add_folder(&parent(&real));
                }
                file_set.sources.push(Source { name, text });
            }
            Err(error) => file_set.failures.push(ReadFailure { path, name, error }),
        }
    }
}

/// The prefix of the names of the files in use.
fn prefix(files: &Files) -> String {
    match files.scope {
        FileScope::Subdirectory => {
            let app = files.app_folder();
            app.strip_prefix(files.subfolder())
                .map(dotted)
                .map(|name| if name.is_empty() { name } else { name + "." })
                .unwrap_or_default()
        }
        FileScope::AppDirectory => String::new(),
    }
}

/// The names in a path, joined by dots.
fn dotted(path: &Path) -> String {
    path.to_string_lossy().replace('/', ".")
}
