//! Checks that the open files are still those at their paths. Data written to a file without a name
//! is lost when the process ends, and no other call reports it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::codec::StoreError;

/// The files of an open store: the data, and the log of SQLite with the latest writes. A store in
/// memory has none.
#[derive(Default)]
pub(crate) struct Presence {
    files: Vec<(PathBuf, FileIdentity)>,
}

/// Device and inode of a file.
type FileIdentity = (u64, u64);

impl Presence {
    /// The files at `path`, which are open already.
    ///
    /// # Errors
    /// One of the files does not exist.
    pub(super) fn for_file(path: &Path) -> io::Result<Self> {
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        let log = PathBuf::from(log);
        Ok(Self {
            files: vec![
                (path.to_owned(), file_identity(path)?),
                (log.clone(), file_identity(&log)?),
            ],
        })
    }

    /// Compares the open files with those at their paths. Two system calls, about 2 us.
    ///
    /// # Errors
    /// One of the files was renamed, replaced or removed.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let is_there = |(path, opened): &&(PathBuf, FileIdentity)| {
            file_identity(path).is_ok_and(|found| found == *opened)
        };
        match self.files.iter().find(|file| !is_there(file)) {
            None => Ok(()),
            Some((path, _)) => Err(StoreError::unavailable(format!(
                "{} was removed or replaced while this server had it open, so nothing more is written: put back the file \
                     itself, or stop the server, restore a backup and start it again",
                path.display()
            ))),
        }
    }
}

fn file_identity(path: &Path) -> io::Result<FileIdentity> {
    fs::metadata(path).map(|about| (about.dev(), about.ino()))
}
