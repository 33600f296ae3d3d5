//! Notifications to the service manager: systemd's protocol for a unit of `Type=notify`.
//!
//! A message is one datagram to the socket in NOTIFY_SOCKET. Sending never waits, and needs no
//! listener.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::sync::Arc;

use tracing::warn;

/// Client of the service manager. Clones share the socket; without a socket, nothing is sent.
#[derive(Debug, Clone)]
pub(crate) struct Notify(Option<Arc<UnixDatagram>>);

impl Notify {
    /// Creates a client of the manager that listens at `socket`, the value of NOTIFY_SOCKET.
    pub(crate) fn new(socket: Option<&Path>) -> Self {
        Self(socket.and_then(|path| match connect(path) {
            Ok(socket) => Some(Arc::new(socket)),
            Err(error) => {
                warn!(path = %path.display(), %error, "cannot reach the service manager (NOTIFY_SOCKET), and go on without it");
                None
            }
        }))
    }

    /// Reports that the ports are open, or that a requested load of the configuration has ended.
    pub(crate) fn ready(&self) {
        self.send("READY=1\nSTATUS=serving");
    }

    /// Reports that a requested load of the configuration begins.
    pub(crate) fn reloading(&self) {
        self.send("RELOADING=1\nSTATUS=loading the configuration");
    }

    /// Reports that the server drains.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=draining");
    }

    fn send(&self, message: &str) {
        if let Some(socket) = &self.0
            && let Err(error) = socket.send(message.as_bytes())
        {
            warn!(%error, "cannot tell the service manager: {}", message.replace('\n', " "));
        }
    }
}

/// Connects to a path, or to an abstract socket if the path begins with `@`.
fn connect(path: &Path) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    match path.as_os_str().as_bytes().strip_prefix(b"@") {
        Some(name) => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        None => socket.connect(path)?,
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(listener: &UnixDatagram) -> String {
        let mut bytes = [0; 256];
        let length = listener.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    #[test]
    fn a_manager_is_told_at_a_path_and_at_a_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("tidegate-test-{}", std::process::id());
        let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
        let at_name = Path::new("@").with_file_name(format!("@{name}"));
        for (listener, socket) in [
            (UnixDatagram::bind(&path).unwrap(), path.clone()),
            (UnixDatagram::bind_addr(&abstract_name).unwrap(), at_name),
        ] {
            let notify = Notify::new(Some(&socket));
            notify.ready();
            assert_eq!(heard(&listener), "READY=1\nSTATUS=serving");
            notify.clone().stopping();
            assert_eq!(heard(&listener), "STOPPING=1\nSTATUS=draining");
        }
    }

    #[test]
    fn without_a_manager_nothing_is_told() {
        let folder = tempfile::tempdir().unwrap();
        for socket in [None, Some(folder.path().join("nobody"))] {
            let notify = Notify::new(socket.as_deref());
            assert!(notify.0.is_none());
            notify.ready();
        }
    }
}
