//! Checks that the open files are still those at their paths. Data written to a file without a name
//! is lost when the process ends, and no other call reports it.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::store::error::StoreError;

/// The files of an open store: the data, and the log of SQLite with the latest writes. A store in
/// memory has none.
#[derive(Default)]
pub(super) struct Presence {
    files: Vec<(PathBuf, Identity)>,
}

/// Device and inode of a file.
type Identity = (u64, u64);

impl Presence {
    /// The files at `path`, which are open already.
    ///
    /// # Errors
    /// One of the files does not exist.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        let log = PathBuf::from(log);
        Ok(Self {
            files: vec![
                (path.to_owned(), identity(path)?),
                (log.clone(), identity(&log)?),
            ],
        })
    }

    /// Compares the open files with those at their paths. Two system calls, about 2 us.
    ///
    /// # Errors
    /// One of the files was renamed, replaced or removed.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let is_there = |(path, opened): &&(PathBuf, Identity)| {
            identity(path).is_ok_and(|found| found == *opened)
        };
        match self.files.iter().find(|file| !is_there(file)) {
            None => Ok(()),
            Some((path, _)) => Err(StoreError::Unavailable {
                reason: format!(
                    "{} was removed or replaced while this server had it open, so nothing more is written: put back the file \
                     itself, or stop the server, restore a backup and start it again",
                    path.display()
                ),
            }),
        }
    }
}

fn identity(path: &Path) -> io::Result<Identity> {
    fs::metadata(path).map(|about| (about.dev(), about.ino()))
}
