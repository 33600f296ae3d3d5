//! The file of a Unix socket, and the process that owns it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};

/// The file of a bound socket. Dropping this removes the file, unless another socket has replaced
/// it.
///
/// A lock file, `PATH.lock`, shows that the owner lives. A connect cannot distinguish a socket that
/// is bound and not yet open from one whose process has ended.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
    /// Released after the file is removed.
    _lock: File,
}

impl SocketFile {
    /// Binds a socket to `path`, and replaces the socket of a process that has ended.
    ///
    /// # Errors
    /// The file at `path` is no socket, or its process runs.
    pub(crate) fn bind(path: &Path) -> io::Result<(Socket, Self)> {
        let lock = lock(path)?;
        let address = SockAddr::unix(path)?;
        if let Ok(found) = fs::symlink_metadata(path) {
            if !found.file_type().is_socket() {
                return Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    "there is a file that is not a socket; move it away",
                ));
            }
            if !is_dead(&address) {
                return Err(io::ErrorKind::AddrInUse.into());
            }
            fs::remove_file(path)?;
        }
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address)?;
        let identity = identity(path)?;
        Ok((
            socket,
            Self {
                path: path.to_owned(),
                identity,
                _lock: lock,
            },
        ))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|found| found == self.identity) {
            // Another process may have removed the file in between.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

/// Takes the lock that a process holds while the socket is its own. The lock file stays: if it were
/// removed, two processes could lock two files of one name.
fn lock(path: &Path) -> io::Result<File> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let opened = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(&name);
    // The error names the lock file, which may belong to another user.
    let file = opened
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", name.display())))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(io::ErrorKind::AddrInUse.into()),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Whether no process accepts connections. A process that is too busy to accept them lives.
fn is_dead(address: &SockAddr) -> bool {
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    let connect = |socket: Socket| {
        socket
            .set_nonblocking(true)
            .and_then(|()| socket.connect(address))
    };
    Socket::new(Domain::UNIX, Type::STREAM, None)
        .is_ok_and(|socket| connect(socket).is_err_and(refused))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_in_use(path: &Path) {
        assert_eq!(
            SocketFile::bind(path).unwrap_err().kind(),
            io::ErrorKind::AddrInUse
        );
        assert!(path.exists());
    }

    /// It was removed: connecting to a file that is no socket is refused, too.
    #[test]
    fn a_file_that_is_not_a_socket_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("precious");
        fs::write(&path, "data").unwrap();
        let refused = SocketFile::bind(&path).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).unwrap(), "data");
    }

    /// Between bind and listen a socket refuses connections, as one of a dead process does.
    #[test]
    fn the_socket_of_a_server_that_starts_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let (socket, file) = SocketFile::bind(&path).unwrap();
        check_in_use(&path);
        socket.listen(1).unwrap();
        check_in_use(&path);
        drop((socket, file));
        assert!(!path.exists());
    }

    #[test]
    fn the_socket_of_a_dead_process_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let (_socket, _file) = SocketFile::bind(&path).unwrap();
    }

    #[test]
    fn a_lock_that_cannot_be_opened_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        fs::create_dir(folder.path().join("socket.lock")).unwrap();
        let refused = SocketFile::bind(&path).unwrap_err();
        assert!(refused.to_string().contains("socket.lock"), "{refused}");
    }

    /// At its end a server removed whatever was at the path.
    #[test]
    fn the_socket_of_a_successor_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let (_socket, file) = SocketFile::bind(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let _successor = std::os::unix::net::UnixListener::bind(&path).unwrap();
        drop(file);
        assert!(path.exists());
    }
}
