//! Bounds the bytes that another server sends without a message: a flood of frames must not use up
//! a processor.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes without a message in one window: 60,000 empty frames, which take some tens of
/// milliseconds. Servers send some hundred bytes.
const NOISE: usize = 1 << 20;
/// Time after which the count begins again.
const SPAN: Duration = Duration::from_secs(10);
/// Bytes that may come with each message: frame headers, acknowledgements, and pings.
const BESIDE: usize = 1024;

/// Counts bytes of a server that belong to no message. Clones share the count.
#[derive(Debug, Clone)]
pub(crate) struct OverheadBytes {
    most: usize,
    heard: Arc<AtomicUsize>,
}

impl OverheadBytes {
    /// Creates the count for a server whose messages have at most `message` bytes.
    pub(crate) fn beside(message: usize) -> Self {
        // The bytes of a message count until it is complete, plus a quarter for the headers of
        // small frames.
        let most = message.saturating_add(message / 4).saturating_add(NOISE);
        Self {
            most,
            heard: Arc::default(),
        }
    }

    /// Removes a complete message of `bytes` bytes from the count.
    pub(crate) fn message(&self, bytes: usize) {
        let left = |heard: usize| Some(heard.saturating_sub(bytes).saturating_sub(BESIDE));
        // The update never fails.
        let _ = self.heard.fetch_update(Relaxed, Relaxed, left);
    }

    /// Whether the server sent more overhead than is allowed, so that the connection failed.
    pub(crate) fn is_too_much(&self) -> bool {
        self.heard.load(Relaxed) > self.most
    }

    fn hear(&self, bytes: usize) -> io::Result<()> {
        let heard = self.heard.fetch_add(bytes, Relaxed).saturating_add(bytes);
        if heard <= self.most {
            return Ok(());
        }
        let text = format!(
            "it sends too much that is no message: more than {} KiB in 10 s",
            self.most / 1024
        );
        Err(io::Error::new(io::ErrorKind::InvalidData, text))
    }
}

/// A connection that fails if the server sends too much overhead.
#[derive(Debug)]
pub(super) struct OverheadLimit<I> {
    socket: I,
    noise: OverheadBytes,
    begun: Instant,
}

impl<I> OverheadLimit<I> {
    pub(super) fn new(socket: I, noise: OverheadBytes) -> Self {
        Self {
            socket,
            noise,
            begun: Instant::now(),
        }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for OverheadLimit<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.socket).poll_read(context, buffer))?;
        if self.begun.elapsed() >= SPAN {
            self.begun = Instant::now();
            self.noise.heard.store(0, Relaxed);
        }
        Poll::Ready(self.noise.hear(buffer.filled().len() - before))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for OverheadLimit<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_no_noise_and_what_comes_beside_them_is_bounded() {
        let message = 4 << 20;
        let noise = OverheadBytes::beside(message);
        for _ in 0..100 {
            assert!(
                noise.hear(message).is_ok(),
                "a message that is not there as a whole"
            );
            noise.message(message);
        }
        assert!(noise.hear(NOISE).is_ok());
        assert!(noise.hear(message / 4).is_ok());
        assert!(noise.hear(message).is_ok());
        assert!(
            noise
                .hear(1)
                .unwrap_err()
                .to_string()
                .contains("no message: more than 6144 KiB in 10 s")
        );
        assert!(OverheadBytes::beside(usize::MAX).hear(usize::MAX).is_ok());
    }
}
