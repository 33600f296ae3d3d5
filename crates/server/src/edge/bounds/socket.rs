//! A connection's socket, watched for a peer that does not read.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::pace::{Pace, Rule};
use super::places::Seat;

/// What is written must be taken at 3 KiB a second, which is a slow mobile line: whoever reads less holds memory for nothing.
const TAKEN: Rule = Rule { window: Duration::from_secs(20), least: 64 * 1024, windows: u32::MAX };

/// The length of the HTTP/2 preface.
const GREETING: usize = 24;

/// Fails when the peer does not take what is written.
#[derive(Debug)]
pub(crate) struct Watched<I> {
    socket: I,
    seat: Arc<Seat>,
    pace: Pace,
    /// Bytes that are missing from the greeting.
    ungreeted: usize,
}

impl<I> Watched<I> {
    pub(crate) fn new(socket: I, seat: Arc<Seat>) -> Self {
        Self { socket, seat, pace: Pace::new(TAKEN), ungreeted: GREETING }
    }

    fn written(&mut self, written: Poll<io::Result<usize>>, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Ready(Ok(bytes)) => self.pace.moved(*bytes),
            Poll::Ready(Err(_)) => {}
            Poll::Pending => {
                self.seat.set_slow(true);
                if self.pace.poll_too_slow(context).is_ready() {
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not read")));
                }
            }
        }
        written
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Watched<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.socket).poll_read(context, buffer);
        if self.ungreeted > 0 {
            self.ungreeted = self.ungreeted.saturating_sub(buffer.filled().len() - before);
            if self.ungreeted == 0 {
                self.seat.greet();
            }
        }
        read
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Watched<I> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.written(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(context, slices);
        self.written(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    /// Only what has been written as a whole is flushed.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.pace.is_waiting() {
            self.pace.rest();
            self.seat.set_slow(false);
        }
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
