//! Files that are written in full or not at all.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process;

/// Writes a file. A regular file has the old or the new text, even after a crash. Links, pipes and
/// devices are written in place.
///
/// # Errors
/// The file cannot be written. Then no partial file remains.
pub(crate) fn write(file: &Path, text: &str) -> io::Result<()> {
    match fs::symlink_metadata(file) {
        // A hard link to the file would keep the old text after a replacement.
        Ok(old) if !old.is_file() || old.nlink() > 1 => fs::write(file, text),
        Ok(old) => replace(file, Some(old.permissions()), text),
        Err(_) => replace(file, None, text),
    }
}

fn replace(file: &Path, permissions: Option<fs::Permissions>, text: &str) -> io::Result<()> {
    let Some(beside) = beside(file) else {
        return fs::write(file, text);
    };
    let new = match File::create_new(&beside) {
        // A file may be writable in a folder that is not.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && permissions.is_some() => {
            return fs::write(file, text);
        }
        new => new?,
    };
    let written = fill(new, permissions, text).and_then(|()| fs::rename(&beside, file));
    if written.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&beside);
    }
    written
}

fn fill(mut file: File, permissions: Option<fs::Permissions>, text: &str) -> io::Result<()> {
    if let Some(permissions) = permissions {
        file.set_permissions(permissions)?;
    }
    file.write_all(text.as_bytes())?;
    // Some file systems report a full disk only on sync.
    file.sync_all()
}

/// A hidden path in the folder of the file, so that the rename is atomic.
fn beside(file: &Path) -> Option<PathBuf> {
    let mut name = OsString::from(".");
    name.push(file.file_name()?);
    name.push(format!(".{}", process::id()));
    Some(file.with_file_name(name))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_file_is_replaced_and_a_link_is_followed() {
        let folder = std::env::temp_dir().join(format!("tidegate-file-{}", process::id()));
        fs::create_dir(&folder).unwrap();
        let at = |name: &str| folder.join(name);
        let check = |name: &str, text: &str| {
            write(&at(name), text).unwrap();
            assert_eq!(fs::read_to_string(at(name)).unwrap(), text, "{name}");
        };
        check("new", "1");
        fs::set_permissions(at("new"), fs::Permissions::from_mode(0o600)).unwrap();
        check("new", "2");
        assert_eq!(fs::metadata(at("new")).unwrap().mode() & 0o777, 0o600);
        symlink(at("new"), at("link")).unwrap();
        check("link", "3");
        fs::hard_link(at("new"), at("other")).unwrap();
        check("new", "4");
        assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
        assert_eq!(
            ["new", "other"].map(|name| fs::read_to_string(at(name)).unwrap()),
            ["4", "4"]
        );
        assert!(write(&at("none/new"), "5").is_err());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 3);
        fs::remove_dir_all(folder).unwrap();
    }
}
