//! A socket that remembers why it failed: HTTP/2 only tells that a connection is closed.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Why a socket failed first, in words. Empty as long as it did not.
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

    /// What became of a write. Whoever refuses a certificate says so and closes: a write that fails then says less than what waits to be
    /// read, or will in a moment, since a socket that cannot be written to any more wakes its reader.
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
        // Only the first is the cause.
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
