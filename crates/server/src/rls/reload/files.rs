//! Finds and reads the files of the configuration.

mod walk;

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, Metadata};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tidegate_ratelimit::Source;

use crate::base::file;
use crate::settings::{FileScope, Files};
use walk::FolderWalk;
pub(crate) use walk::{FolderEntry, entries};

/// Maximum of bytes of a file: more than hundreds of thousands of limits take.
pub(crate) const MAX_FILE_BYTES: u64 = 64 << 20;

/// The files at one moment.
#[derive(Debug, Default)]
pub(super) struct FileSet {
    /// Sorted by name.
    pub(super) sources: Vec<Source>,
    /// Paths of the files by name, relative to the folder whose names they have.
    pub(super) paths: HashMap<String, String>,
    /// Files and folders that could not be read.
    pub(super) failures: Vec<ReadFailure>,
    /// Differs whenever names, contents or failures differ.
    pub(super) fingerprint: u64,
    /// The folders to watch for changes.
    pub(super) folders: Folders,
}

/// A file or folder that could not be read.
#[derive(Debug)]
pub(super) struct ReadFailure {
    pub(super) path: PathBuf,
    /// The name of the file, or the prefix of the names of all files in the folder.
    name: String,
    pub(super) error: io::Error,
}

impl ReadFailure {
    /// Whether a file of this name could not be read.
    fn concerns(&self, name: &str) -> bool {
        if self.name.is_empty() || self.name.ends_with('.') {
            name.starts_with(&self.name)
        } else {
            name == self.name
        }
    }
}

/// Folders by path with their identity: a folder that is deleted and created again is another one.
pub(super) type Folders = BTreeMap<PathBuf, FolderId>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FolderId {
    device: u64,
    inode: u64,
}

impl From<&Metadata> for FolderId {
    fn from(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
        }
    }
}

/// Reads all files. A folder that does not exist has none.
pub(super) fn read(files: &Files) -> FileSet {
    let mut file_set = FileSet::default();
    let subdirectory = files.subfolder();
    let start = match files.scope {
        FileScope::Subdirectory => subdirectory.clone(),
        FileScope::AppDirectory => files.app_folder(),
    };
    for folder in [
        parent(&files.root),
        files.root.clone(),
        subdirectory,
        start.clone(),
    ] {
        file_set.add_folder(&folder);
    }
    FolderWalk::new(files, &start).add_folder(&start, &mut file_set);

    file_set.sources.sort_by(|a, b| a.name.cmp(&b.name));
    file_set.fingerprint = file_set.fingerprint();
    file_set
}

/// Returns the folder of a path.
pub(super) fn parent(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    absolute.parent().unwrap_or(&absolute).to_owned()
}

/// Reads a file of at most [`MAX_FILE_BYTES`] bytes.
pub(crate) fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    file::read(path, MAX_FILE_BYTES)
}

impl FileSet {
    /// Keeps the texts of `last` whose files cannot be read now. Returns their number.
    pub(super) fn keep_unreadable(&mut self, last: &[Source]) -> usize {
        let before = self.sources.len();
        let hidden = |source: &&Source| {
            let is_read = self.sources[..before]
                .binary_search_by(|other| other.name.cmp(&source.name))
                .is_ok();
            !is_read
                && self
                    .failures
                    .iter()
                    .any(|failure| failure.concerns(&source.name))
        };
        let kept: Vec<_> = last.iter().filter(hidden).cloned().collect();
        self.sources.extend(kept);
        self.sources.sort_by(|a, b| a.name.cmp(&b.name));
        self.sources.len() - before
    }

    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for source in &self.sources {
            (&source.name, &source.text).hash(&mut hasher);
        }
        for failure in &self.failures {
            (&failure.path, failure.error.raw_os_error()).hash(&mut hasher);
        }
        hasher.finish()
    }

    fn add_folder(&mut self, folder: &Path) {
        // The real path: if a link in it changes, another folder must be watched.
        let found = folder
            .canonicalize()
            .and_then(|real| Ok((fs::metadata(&real)?, real)));
        if let Ok((metadata, real)) = found
            && metadata.is_dir()
        {
            self.folders.insert(real, FolderId::from(&metadata));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::settings::{DotFiles, FirstLoad, MissingRoot};

    fn files(root: &Path, scope: FileScope, dot_files: DotFiles) -> Files {
        Files {
            root: root.to_owned(),
            root_given: true,
            missing_root: MissingRoot::Refused,
            subdirectory: "limits".into(),
            app_directory: "config".into(),
            scope,
            dot_files,
            same_domain: tidegate_ratelimit::SameDomain::Refuse,
            first_load: FirstLoad::BeforePorts,
        }
    }

    fn check(files: &Files, expected: &[&str], failures: usize) {
        let file_set = read(files);
        let names: Vec<_> = file_set
            .sources
            .iter()
            .map(|source| source.name.as_str())
            .collect();
        assert_eq!(names, expected);
        assert_eq!(file_set.failures.len(), failures, "{:?}", file_set.failures);
    }

    /// Files that the server reads, and some that it does not read.
    fn tree() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let base = root.path().join("limits");
        for path in [
            "config/a.yaml",
            "config/deep/b.yaml",
            "config/.hidden",
            "config.yaml",
            "other/c.yaml",
        ] {
            let path = base.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        fs::create_dir(base.join("config/..2024")).unwrap();
        fs::write(base.join("config/..2024/a.yaml"), "x").unwrap();
        symlink("..2024", base.join("config/..data")).unwrap();
        symlink("..data/a.yaml", base.join("config/linked.yaml")).unwrap();
        symlink("deep", base.join("config/folder")).unwrap();
        root
    }

    #[test]
    fn files_are_found_and_named_as_the_reference_does() {
        let root = tree();
        check(
            &files(root.path(), FileScope::Subdirectory, DotFiles::Read),
            &[
                "config..hidden",
                "config.a.yaml",
                "config.deep.b.yaml",
                "config.linked.yaml",
                "config.yaml",
            ],
            1,
        );
        check(
            &files(root.path(), FileScope::AppDirectory, DotFiles::Skip),
            &["a.yaml", "deep.b.yaml", "linked.yaml"],
            1,
        );
        for (subdirectory, app_directory) in [
            ("/limits", "/config"),
            ("limits/", "config/"),
            ("./limits", "x/../config"),
        ] {
            let subdirectory = subdirectory.into();
            let app_directory = app_directory.into();
            let files = files(root.path(), FileScope::AppDirectory, DotFiles::Skip);
            let files = Files {
                subdirectory,
                app_directory,
                ..files
            };
            check(&files, &["a.yaml", "deep.b.yaml", "linked.yaml"], 1);
            let files = Files {
                scope: FileScope::Subdirectory,
                ..files
            };
            check(
                &files,
                &[
                    "config.a.yaml",
                    "config.deep.b.yaml",
                    "config.linked.yaml",
                    "config.yaml",
                ],
                1,
            );
        }
    }

    #[test]
    fn a_missing_folder_has_no_files_and_its_parent_is_watched() {
        let root = tempfile::tempdir().unwrap();
        let file_set = read(&files(root.path(), FileScope::AppDirectory, DotFiles::Read));
        assert!(file_set.sources.is_empty() && file_set.failures.is_empty());
        assert!(
            file_set
                .folders
                .contains_key(&root.path().canonicalize().unwrap())
        );
    }

    /// The domain of a file that could not be read was gone.
    #[test]
    fn a_file_that_cannot_be_read_keeps_its_last_text() {
        let root = tempfile::tempdir().unwrap();
        let files = files(root.path(), FileScope::AppDirectory, DotFiles::Read);
        let folder = root.path().join("limits/config");
        fs::create_dir_all(folder.join("deep")).unwrap();
        for (name, text) in [("a", "1"), ("b", "2"), ("deep/c", "3"), ("e", "4")] {
            fs::write(folder.join(name), text).unwrap();
        }
        let names = |file_set: &FileSet| -> Vec<String> {
            let name = |source: &Source| {
                format!("{}={}", source.name, String::from_utf8_lossy(&source.text))
            };
            file_set.sources.iter().map(name).collect()
        };
        let first = read(&files);
        assert_eq!(names(&first), ["a=1", "b=2", "deep.c=3", "e=4"]);

        // Dangling: the file is still named, and cannot be read.
        fs::remove_file(folder.join("a")).unwrap();
        symlink("nowhere", folder.join("a")).unwrap();
        fs::write(folder.join("b"), "5").unwrap();
        let mut second = read(&files);
        assert_eq!(second.keep_unreadable(&first.sources), 1);
        assert_eq!(names(&second), ["a=1", "b=5", "deep.c=3", "e=4"]);

        // A folder that cannot be read hides what is in it, and what is gone is gone.
        fs::remove_file(folder.join("e")).unwrap();
        let mut third = read(&files);
        third.sources.retain(|source| source.name != "deep.c");
        let error = io::Error::from(io::ErrorKind::PermissionDenied);
        third.failures.push(ReadFailure {
            path: folder.join("deep"),
            name: "deep.".to_owned(),
            error,
        });
        third.keep_unreadable(&second.sources);
        assert_eq!(names(&third), ["a=1", "b=5", "deep.c=3"]);

        fs::remove_file(folder.join("a")).unwrap();
        let mut last = read(&files);
        assert_eq!(last.keep_unreadable(&third.sources), 0);
        assert_eq!(names(&last), ["b=5", "deep.c=3"]);
    }

    /// A root on a disk that was not mounted for a moment switched all limits off.
    #[test]
    fn a_root_or_a_link_that_leads_nowhere_keeps_all_texts() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("v1/limits/config");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("a"), "1").unwrap();
        symlink("v1", place.path().join("current")).unwrap();
        let files = files(
            &place.path().join("current"),
            FileScope::AppDirectory,
            DotFiles::Read,
        );
        let first = read(&files);
        fs::rename(place.path().join("v1"), place.path().join("v2")).unwrap();
        let mut second = read(&files);
        assert_eq!(
            (
                second.failures.len(),
                second.keep_unreadable(&first.sources)
            ),
            (1, 1)
        );

        fs::rename(place.path().join("v2"), place.path().join("v1")).unwrap();
        fs::rename(&folder, place.path().join("v1/limits/other")).unwrap();
        symlink("nowhere", &folder).unwrap();
        let mut third = read(&files);
        assert_eq!(
            (third.failures.len(), third.keep_unreadable(&first.sources)),
            (1, 1)
        );

        fs::remove_file(&folder).unwrap();
        let mut last = read(&files);
        assert_eq!(
            (last.failures.len(), last.keep_unreadable(&first.sources)),
            (0, 0),
            "below a root that is there, it is gone"
        );
    }

    /// A file of 20 GB ended the server.
    #[test]
    fn a_file_that_is_too_large_is_not_read() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("limits/config");
        fs::create_dir_all(&folder).unwrap();
        File::create(folder.join("a"))
            .unwrap()
            .set_len(MAX_FILE_BYTES + 1)
            .unwrap();
        check(
            &files(root.path(), FileScope::AppDirectory, DotFiles::Read),
            &[],
            1,
        );
    }

    #[test]
    fn a_pipe_is_not_waited_for() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("limits/config");
        fs::create_dir_all(&folder).unwrap();
        let made = std::process::Command::new("mkfifo")
            .arg(folder.join("pipe"))
            .status()
            .unwrap();
        assert!(made.success());
        check(
            &files(root.path(), FileScope::AppDirectory, DotFiles::Read),
            &[],
            1,
        );
    }

    #[test]
    fn the_fingerprint_follows_names_and_contents() {
        let root = tempfile::tempdir().unwrap();
        let files = files(root.path(), FileScope::AppDirectory, DotFiles::Read);
        let folder = root.path().join("limits/config");
        fs::create_dir_all(&folder).unwrap();
        let mut seen = std::collections::HashSet::new();
        let mut differs = || seen.insert(read(&files).fingerprint);
        assert!(differs());
        fs::write(folder.join("a"), "1").unwrap();
        assert!(differs());
        fs::write(folder.join("a"), "2").unwrap();
        assert!(differs());
        fs::rename(folder.join("a"), folder.join("b")).unwrap();
        assert!(differs());
        fs::write(folder.join("b"), "2").unwrap();
        assert!(!differs());
    }
}
