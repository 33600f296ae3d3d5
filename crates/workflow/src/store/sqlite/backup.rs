//! Backups: copies of a store, even of one that a server has open.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::file;
use super::write::space::can_shrink;
use crate::codec::StoreError;

/// Copies the store at `from`, as it is at one moment, into the new file `to`. Returns the size of
/// the copy in bytes. Servers may write during the copy. `to` has the complete copy, or does not
/// exist.
pub(super) fn backup(from: &Path, to: &Path) -> Result<u64, StoreError> {
    let failed = |error: io::Error| write_failed(to, &error);
    if to.try_exists().map_err(failed)? {
        return Err(write_failed(to, &ErrorKind::AlreadyExists.into()));
    }
    let source = open_source(from)?;
    if !can_shrink(&source)? {
        // The copy can shrink by itself, even if the original cannot.
        source.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    }
    let part = PartialCopy::create_for(to).map_err(failed)?;
    // VACUUM INTO reads in one transaction and copies no free pages. SQLite does not sync the copy.
    source
        .execute("VACUUM INTO ?1", [part.0.to_string_lossy()])
        .map_err(|error| match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DiskFull) => write_failed(to, &ErrorKind::StorageFull.into()),
            _ => error.into(),
        })?;
    part.link_to(to).map_err(failed)
}

fn open_source(from: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let source =
        Connection::open_with_flags(from, flags).map_err(|error| file::open_failed(from, error))?;
    source.busy_timeout(file::LOCK_TIMEOUT)?;
    file::ensure_own_file(&source, from)?;
    Ok(source)
}

/// A copy that is not complete. Dropping it removes its file.
struct PartialCopy(PathBuf);

impl PartialCopy {
    /// Creates an empty file that no other user can read.
    fn create_for(to: &Path) -> io::Result<Self> {
        let mut name = to.as_os_str().to_owned();
        name.push(format!(".{}.part", std::process::id()));
        let part = PathBuf::from(name);
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&part)?;
        Ok(Self(part))
    }

    fn link_to(self, to: &Path) -> io::Result<u64> {
        let copy = File::open(&self.0)?;
        copy.sync_all()?;
        // Unlike a rename, a link never replaces a file that was created in the meantime.
        fs::hard_link(&self.0, to)?;
        let folder = to
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()?;
        Ok(copy.metadata()?.len())
    }
}

impl Drop for PartialCopy {
    fn drop(&mut self) {
        // A file that cannot be removed stays; its name shows its purpose.
        let _ = fs::remove_file(&self.0);
    }
}

fn write_failed(to: &Path, error: &io::Error) -> StoreError {
    StoreError::unavailable(format!("writing the copy {}: {error}", to.display()))
}
