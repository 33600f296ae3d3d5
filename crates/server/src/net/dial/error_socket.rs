//! A socket that keeps the cause of its failure: HTTP/2 only reports that a connection is closed.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The first failure of a socket as text. Empty until the socket fails.
pub(super) type Cause = Arc<OnceLock<String>>;

pub(super) struct ErrorSocket<S> {
    socket: S,
    cause: Cause,
}

impl<S: AsyncRead + Unpin> ErrorSocket<S> {
    pub(super) fn new(socket: S) -> (Self, Cause) {
        let cause = Cause::default();
        (
            Self {
                socket,
                cause: cause.clone(),
            },
            cause,
        )
    }

    /// Handles the result of a write. A server that refuses a certificate sends an alert and
    /// closes. The alert, which can be read now or soon, is a better cause than the failed write. A
    /// socket that cannot be written to any more wakes its reader.
    fn written<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let Poll::Ready(Err(error)) = &written else {
            return written;
        };
        let mut room = [0; 512];
        match ready!(Pin::new(&mut self.socket).poll_read(context, &mut ReadBuf::new(&mut room))) {
            Err(told) => self.note(&told),
            Ok(()) => self.note(error),
        }
        written
    }
}

impl<S> ErrorSocket<S> {
    fn note(&self, error: &io::Error) {
        // Only the first failure is the cause.
        let _ = self.cause.set(super::reason(error));
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ErrorSocket<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let read = Pin::new(&mut this.socket).poll_read(context, into);
        if let Poll::Ready(Err(error)) = &read {
            this.note(error);
        }
        read
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ErrorSocket<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.socket).poll_write(context, bytes);
        this.written(context, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.socket).poll_write_vectored(context, bytes);
        this.written(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.socket).poll_flush(context);
        this.written(context, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(context)
    }
}
