//! A connection's socket that can move: one thread accepts it, and another one serves it.

use std::io::{self, IoSlice};
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;

/// A socket that is registered with no runtime.
#[derive(Debug)]
pub(crate) enum DetachedSocket {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

/// A socket below TLS that can move between runtimes: the handshake runs on one, and the connection
/// on another.
#[derive(Debug)]
pub(crate) enum MovableSocket {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// A socket between two runtimes. `None` if it was lost there.
    Detached(Option<DetachedSocket>),
}

/// A connection whose handshake is complete.
pub(crate) type TlsSocket = Box<TlsStream<MovableSocket>>;

impl MovableSocket {
    /// Registers a socket with the current runtime.
    pub(crate) fn register(socket: DetachedSocket) -> io::Result<Self> {
        match socket {
            DetachedSocket::Tcp(stream) => TcpStream::from_std(stream).map(Self::Tcp),
            DetachedSocket::Unix(stream) => UnixStream::from_std(stream).map(Self::Unix),
        }
    }

    /// Removes the socket from the current runtime.
    pub(crate) fn detach(&mut self) -> io::Result<()> {
        let detached = match mem::replace(self, Self::Detached(None)) {
            Self::Tcp(stream) => Some(DetachedSocket::Tcp(stream.into_std()?)),
            Self::Unix(stream) => Some(DetachedSocket::Unix(stream.into_std()?)),
            Self::Detached(detached) => detached,
        };
        *self = Self::Detached(detached);
        Ok(())
    }

    fn stream(&mut self) -> io::Result<Pin<&mut dyn Stream>> {
        match self {
            Self::Tcp(stream) => Ok(Pin::new(stream)),
            Self::Unix(stream) => Ok(Pin::new(stream)),
            Self::Detached(_) => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Registers the socket with the current runtime.
    pub(crate) fn attach(&mut self) -> io::Result<()> {
        if let Self::Detached(detached) = self {
            *self = Self::register(detached.take().ok_or(io::ErrorKind::NotConnected)?)?;
        }
        Ok(())
    }
}

/// A socket that a runtime polls.
trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl Stream for TcpStream {}

impl Stream for UnixStream {}

impl AsyncRead for MovableSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.get_mut().stream()?.poll_read(context, buffer)
    }
}

impl AsyncWrite for MovableSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().stream()?.poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut()
            .stream()?
            .poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// There is nothing to flush: the kernel sends the bytes that it took.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().stream()?.poll_shutdown(context)
    }
}
