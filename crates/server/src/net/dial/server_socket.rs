//! The socket of a connection to another server. It keeps the cause of its failure, and bounds the
//! bytes that the server sends without a message: a flood of frames must not use up a processor.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes without a message in one window: 60,000 empty frames, which take some tens of
/// milliseconds. Servers send some hundred bytes.
const MAX_OVERHEAD_BYTES: usize = 1 << 20;
/// Time after which the count begins again.
const OVERHEAD_WINDOW: Duration = Duration::from_secs(10);
/// Bytes that may come with each message: frame headers, acknowledgements, and pings.
const OVERHEAD_PER_MESSAGE_BYTES: usize = 1024;

/// Counts bytes of a server that belong to no message. Clones share the count.
#[derive(Debug, Clone)]
pub(crate) struct OverheadBytes {
    max_bytes: usize,
    received: Arc<AtomicUsize>,
}

impl OverheadBytes {
    /// Creates the count for a server whose messages have at most `message` bytes.
    pub(crate) fn for_max_message(message: usize) -> Self {
        // The bytes of a message count until it is complete, plus a quarter for the headers of
        // small frames.
        let max_bytes = message
            .saturating_add(message / 4)
            .saturating_add(MAX_OVERHEAD_BYTES);
        Self {
            max_bytes,
            received: Arc::default(),
        }
    }

    /// Removes a complete message of `bytes` bytes from the count.
    pub(crate) fn subtract_message(&self, bytes: usize) {
        let remaining = |received: usize| {
            Some(
                received
                    .saturating_sub(bytes)
                    .saturating_sub(OVERHEAD_PER_MESSAGE_BYTES),
            )
        };
        // The update never fails.
        let _ = self.received.fetch_update(Relaxed, Relaxed, remaining);
    }

    /// Whether the server sent more overhead than is allowed, so that the connection failed.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.received.load(Relaxed) > self.max_bytes
    }

    fn add(&self, bytes: usize) -> io::Result<()> {
        let received = self
            .received
            .fetch_add(bytes, Relaxed)
            .saturating_add(bytes);
        if received <= self.max_bytes {
            return Ok(());
        }
        let text = format!(
            "it sends too much that is no message: more than {} KiB in 10 s",
            self.max_bytes / 1024
        );
        Err(io::Error::new(io::ErrorKind::InvalidData, text))
    }
}

/// The first failure of a socket as text. Empty until the socket fails.
pub(super) type Cause = Arc<OnceLock<String>>;

/// A socket that fails if the server sends too much overhead, and keeps the cause of its failure:
/// HTTP/2 only reports that a connection is closed.
#[derive(Debug)]
pub(super) struct ServerSocket<S> {
    socket: S,
    overhead: OverheadBytes,
    window_started: Instant,
    cause: Cause,
}

impl<S: AsyncRead + Unpin> ServerSocket<S> {
    pub(super) fn new(socket: S, overhead: OverheadBytes) -> (Self, Cause) {
        let cause = Cause::default();
        let socket = Self {
            socket,
            overhead,
            window_started: Instant::now(),
            cause: cause.clone(),
        };
        (socket, cause)
    }

    fn poll_counted_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.socket).poll_read(context, buffer))?;
        if self.window_started.elapsed() >= OVERHEAD_WINDOW {
            self.window_started = Instant::now();
            self.overhead.received.store(0, Relaxed);
        }
        Poll::Ready(self.overhead.add(buffer.filled().len() - before))
    }

    /// Handles the result of a write. A server that refuses a certificate sends an alert and
    /// closes. The alert, which can be read now or soon, is a better cause than the failed write. A
    /// socket that cannot be written to any more wakes its reader.
    fn on_written<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let Poll::Ready(Err(error)) = &written else {
            return written;
        };
        let mut room = [0; 512];
        match ready!(self.poll_counted_read(context, &mut ReadBuf::new(&mut room))) {
            Err(read_error) => self.record_cause(&read_error),
            Ok(()) => self.record_cause(error),
        }
        written
    }

    fn record_cause(&self, error: &io::Error) {
        // Only the first failure is the cause.
        let _ = self.cause.set(super::innermost_cause(error));
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ServerSocket<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let read = this.poll_counted_read(context, into);
        if let Poll::Ready(Err(error)) = &read {
            this.record_cause(error);
        }
        read
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ServerSocket<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.socket).poll_write(context, bytes);
        this.on_written(context, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.socket).poll_write_vectored(context, bytes);
        this.on_written(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.socket).poll_flush(context);
        this.on_written(context, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_no_noise_and_what_comes_beside_them_is_bounded() {
        let message = 4 << 20;
        let overhead = OverheadBytes::for_max_message(message);
        for _ in 0..100 {
            assert!(
                overhead.add(message).is_ok(),
                "a message that is not there as a whole"
            );
            overhead.subtract_message(message);
        }
        assert!(overhead.add(MAX_OVERHEAD_BYTES).is_ok());
        assert!(overhead.add(message / 4).is_ok());
        assert!(overhead.add(message).is_ok());
        assert!(
            overhead
                .add(1)
                .unwrap_err()
                .to_string()
                .contains("no message: more than 6144 KiB in 10 s")
        );
        assert!(
            OverheadBytes::for_max_message(usize::MAX)
                .add(usize::MAX)
                .is_ok()
        );
    }
}
