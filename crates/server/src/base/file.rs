//! Reads regular files that a setting or an argument names. Refuses pipes: opening or reading one
//! blocks until a writer opens or closes it.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

/// Reads a whole file of at most `max_bytes` bytes. Links are followed.
///
/// # Errors
/// The file cannot be read, is larger, or is no regular file.
pub(crate) fn read(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    // The check comes before the open, because opening a pipe may wake its writer.
    check_regular(&fs::metadata(path)?)?;
    let file = open_nonblocking(path)?;
    check_regular(&file.metadata()?)?;
    read_bounded(file, max_bytes)
}

/// Reads at most `max_bytes` bytes up to the end.
///
/// # Errors
/// The source cannot be read, or has more.
pub(crate) fn read_bounded(source: impl io::Read, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(max_bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it has more than {}", size_text(max_bytes)),
        ));
    }
    Ok(bytes)
}

/// Reads text as [`read`] reads bytes.
///
/// # Errors
/// Those of [`read`], or the file is not UTF-8.
pub(crate) fn read_text(path: &Path, max_bytes: u64) -> io::Result<String> {
    String::from_utf8(read(path, max_bytes)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
}

/// Opens a file without blocking, even if a pipe has replaced it.
fn open_nonblocking(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)
}

fn check_regular(found: &Metadata) -> io::Result<()> {
    if found.is_dir() {
        Err(Errno::ISDIR.into())
    } else if found.is_file() {
        Ok(())
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a regular file",
        ))
    }
}

fn size_text(bytes: u64) -> String {
    if bytes < 1 << 20 {
        format!("{} KiB", bytes >> 10)
    } else {
        format!("{} MiB", bytes >> 20)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    /// A pipe made the start wait for ever.
    #[test]
    fn what_is_no_regular_file_is_refused_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        assert!(
            std::process::Command::new("mkfifo")
                .arg(path("pipe"))
                .status()
                .unwrap()
                .success()
        );
        let _socket = UnixListener::bind(path("socket")).unwrap();
        fs::write(path("file"), "text").unwrap();
        for (name, target) in [("link", "file"), ("to-pipe", "pipe"), ("nowhere", "none")] {
            symlink(target, path(name)).unwrap();
        }
        for (name, expected) in [
            ("file", "text"),
            ("link", "text"),
            ("pipe", "it is not a regular file"),
            ("to-pipe", "it is not a regular file"),
            ("socket", "it is not a regular file"),
            (".", "Is a directory (os error 21)"),
            ("nowhere", "No such file or directory (os error 2)"),
        ] {
            let read = read_text(&path(name), 1 << 20).unwrap_or_else(|error| error.to_string());
            assert_eq!(read, expected, "{name}");
        }
    }

    #[test]
    fn a_file_may_be_as_large_as_allowed_and_no_larger() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), vec![b'x'; 2048]).unwrap();
        assert_eq!(read(file.path(), 2048).unwrap().len(), 2048);
        assert_eq!(
            read(file.path(), 2047).unwrap_err().to_string(),
            "it has more than 1 KiB"
        );
        fs::write(file.path(), [0xff]).unwrap();
        assert_eq!(
            read_text(file.path(), 1).unwrap_err().to_string(),
            "it is not UTF-8"
        );
    }
}
