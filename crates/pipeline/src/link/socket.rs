//! A TCP, TLS or Unix stream to Redis.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

use crate::config::{Address, Connector};
use crate::link::dial::dial;

/// An open stream. The memcached client uses it too.
#[derive(Debug)]
pub enum Socket {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over TCP, encrypted.
    Tls(Box<TlsStream<TcpStream>>),
    /// Over a Unix socket.
    Unix(UnixStream),
}

/// Maximum number of plain bytes that TLS may hold back. They count as sent, so the bound is small.
const TLS_BUFFER: usize = 64 * 1024;

impl Socket {
    /// Returns whether a failed write may have sent a part of its bytes. TLS passes several records
    /// to the kernel in one write, and does not count those before the one that failed.
    pub(crate) fn sends_before_it_fails(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Connects. A host name is resolved each time, so that a server that moved is found, and all
    /// of its addresses are tried.
    ///
    /// # Errors
    /// The name is unknown, no server listens there, or the TLS handshake fails.
    pub async fn connect(address: &Address, connector: Option<&Connector>) -> io::Result<Self> {
        match address {
            Address::Tcp { host, port } => {
                let stream = dial(host, *port).await?;
                stream.set_nodelay(true)?;
                set_keepalive(&stream)?;
                let Some(connector) = connector else {
                    return Ok(Self::Tcp(stream));
                };
                let no_name = || io::Error::other(format!("a certificate cannot name {host:?}"));
                let name = connector.name_of(host).ok_or_else(no_name)?;
                let mut stream = connector.current().connect(name, stream).await?;
                stream.get_mut().1.set_buffer_limit(Some(TLS_BUFFER));
                Ok(Self::Tls(Box::new(stream)))
            }
            Address::Unix(path) => Ok(Self::Unix(UnixStream::connect(path).await?)),
        }
    }
}

/// Lets the kernel detect within about 5 s that a peer is gone, even if the peer sent nothing.
fn set_keepalive(stream: &TcpStream) -> io::Result<()> {
    let socket = SockRef::from(stream);
    let second = Duration::from_secs(1);
    socket.set_tcp_keepalive(
        &TcpKeepalive::new()
            .with_time(second)
            .with_interval(second)
            .with_retries(3),
    )?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(5 * second))?;
    Ok(())
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
            // The kernel sends accepted bytes without a flush.
            Self::Tcp(_) | Self::Unix(_) => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
