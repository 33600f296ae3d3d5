//! Selection of the files in a folder that are checked.

use std::io;
use std::path::{Path, PathBuf};

use crate::rls::reload::{FolderEntry, entries};
use crate::settings::DotFiles;

/// The files of a folder and of its subfolders, sorted.
#[derive(Debug)]
pub(super) enum Folder {
    /// At least one file has limits. The server reads every file of such a folder as limits,
    /// whatever its name is.
    Limits(Vec<PathBuf>),
    /// No file has limits. Only files in YAML and JSON are checked.
    Others(Vec<PathBuf>),
}

impl Folder {
    /// Finds the files. `has_limits` is called with one file at a time.
    ///
    /// # Errors
    /// A folder cannot be read.
    pub(super) fn read(
        path: &Path,
        has_limits: impl Fn(&Path) -> bool,
    ) -> Result<Self, (PathBuf, io::Error)> {
        let visible = files(path, DotFiles::Skip)?;
        if visible
            .iter()
            .filter(|file| is_text(file))
            .any(|file| has_limits(file))
        {
            return files(path, DotFiles::Read).map(Self::Limits);
        }
        Ok(Self::Others(
            visible
                .into_iter()
                .filter(|file| is_yaml_or_json(file))
                .collect(),
        ))
    }
}

/// Whether the extension of a file is one of YAML or JSON.
pub(super) fn is_yaml_or_json(file: &Path) -> bool {
    file.extension()
        .is_some_and(|extension| extension == "yaml" || extension == "yml" || extension == "json")
}

/// Whether a file may have limits by its extension. Other files are not read.
fn is_text(file: &Path) -> bool {
    file.extension().is_none() || is_yaml_or_json(file)
}

fn files(path: &Path, dot_files: DotFiles) -> Result<Vec<PathBuf>, (PathBuf, io::Error)> {
    let mut files = Vec::new();
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in entries(&folder, dot_files).map_err(|error| (folder, error))? {
            match entry {
                // The server logs a warning for a link to a folder, and ignores it.
                FolderEntry::File(file) if file.is_dir() => {}
                FolderEntry::File(file) => files.push(file),
                FolderEntry::Folder(folder) => folders.push(folder),
            }
        }
    }
    files.sort();
    Ok(files)
}
