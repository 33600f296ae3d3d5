//! A connection's socket that detects a peer that does not read, and one that sends without a
//! pause.

use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::yield_now;

use super::conn_state::ConnState;
use super::counts::CloseReason;
use super::rate_watch::{RateRule, RateWatch};
use super::resets::is_core_flooded;

/// The minimum rate at which a peer reads: 3 KiB a second, as on a slow mobile line. A slower peer
/// holds memory without effect.
const MIN_WRITE_RATE: RateRule = RateRule {
    window: Duration::from_secs(20),
    min_bytes: 64 * 1024,
    max_windows: u32::MAX,
};

/// Maximum of reads with bytes in one poll of the connection's task. Then other tasks of the thread
/// run. Each read brings some KiB: a thousand small frames. This also bounds the calls that wait to
/// be begun.
const MAX_READS_PER_POLL: u32 = 4;
/// Bytes of the one read of a poll while early resets flood the core: some ten calls with their
/// messages, so that other connections are served.
const FLOODED_READ_BYTES: usize = 1024;
/// Maximum of bytes without a call or a part of a body between two checks of the connection.
/// Clients send some hundred, and the rest of refused messages.
const MAX_IDLE_BYTES: usize = 8 << 20;

/// Maximum of bytes that are read ahead while a request is answered: one or two further requests.
const MAX_READ_AHEAD_BYTES: usize = 64 * 1024;

/// Bytes of the HTTP/2 preface.
const PREFACE_BYTES: usize = 24;

/// A socket that fails if the peer does not read, or sends many bytes that belong to no call.
#[derive(Debug)]
pub(crate) struct GuardedSocket<I> {
    socket: I,
    conn_state: Arc<ConnState>,
    rate_watch: RateWatch,
    /// The poll of the last read, and the reads with bytes in this poll.
    poll_number: u32,
    reads: u32,
    /// Bytes that are missing from the preface.
    missing_preface_bytes: usize,
    /// Bytes that were received while a request was answered, and are not read yet.
    read_ahead: VecDeque<u8>,
}

impl<I> GuardedSocket<I> {
    pub(crate) fn new(socket: I, conn_state: Arc<ConnState>) -> Self {
        Self {
            socket,
            conn_state,
            rate_watch: RateWatch::new(MIN_WRITE_RATE),
            poll_number: 0,
            reads: 0,
            missing_preface_bytes: PREFACE_BYTES,
            read_ahead: VecDeque::new(),
        }
    }

    fn on_received(&mut self, bytes: usize) -> io::Result<()> {
        if self.missing_preface_bytes > 0 {
            self.missing_preface_bytes = self.missing_preface_bytes.saturating_sub(bytes);
            if self.missing_preface_bytes == 0 {
                self.conn_state.on_preface();
            }
        }
        if self.conn_state.add_idle_bytes(bytes) > MAX_IDLE_BYTES {
            self.conn_state.count_close(CloseReason::IdleBytes);
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the peer sends what is no call",
            ));
        }
        Ok(())
    }

    fn on_written(
        &mut self,
        written: Poll<io::Result<usize>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Ready(Ok(bytes)) => self.rate_watch.add_bytes(*bytes),
            Poll::Ready(Err(_)) => {}
            Poll::Pending => {
                self.conn_state.set_slow(true);
                if self.rate_watch.poll_too_slow(context).is_ready() {
                    self.conn_state.count_close(CloseReason::UnreadAnswers);
                    return Poll::Ready(Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "the peer does not read",
                    )));
                }
            }
        }
        written
    }
}

impl<I: AsyncRead + Unpin> GuardedSocket<I> {
    /// Passes on bytes that were read ahead.
    fn pass_read_ahead(&mut self, buffer: &mut ReadBuf<'_>) {
        let (first, _) = self.read_ahead.as_slices();
        let copied = first.len().min(buffer.remaining());
        buffer.put_slice(&first[..copied]);
        self.read_ahead.drain(..copied);
    }

    /// Starts to count reads anew if the task of the connection is polled again.
    fn begin_poll(&mut self) {
        let poll_number = self.conn_state.poll_number();
        if self.poll_number != poll_number {
            self.poll_number = poll_number;
            self.reads = 0;
        }
    }

    /// Fails if the peer has closed while its request is answered. The HTTP library checks that
    /// itself, but not if it has bytes of a next request, or an empty line.
    fn check_not_closed(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        while self.conn_state.is_request_complete() && self.read_ahead.len() < MAX_READ_AHEAD_BYTES
        {
            // The buffer is created here, because most calls need none.
            let mut bytes = [0; 4 * 1024];
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(&mut self.socket).poll_read(context, &mut buffer) {
                Poll::Pending => break,
                Poll::Ready(read) => read?,
            }
            if buffer.filled().is_empty() {
                return Err(io::Error::new(
                    io::ErrorKind::ConnectionAborted,
                    "the peer left before it was answered",
                ));
            }
            self.read_ahead.extend(buffer.filled());
            self.on_received(buffer.filled().len())?;
        }
        Ok(())
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for GuardedSocket<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.read_ahead.is_empty() {
            self.pass_read_ahead(buffer);
            return Poll::Ready(Ok(()));
        }
        self.begin_poll();
        let is_flooded = is_core_flooded();
        if self.reads >= if is_flooded { 1 } else { MAX_READS_PER_POLL } {
            return yield_task(context);
        }
        let before = buffer.filled().len();
        if is_flooded {
            let mut bytes = [0; FLOODED_READ_BYTES];
            let mut part = ReadBuf::new(&mut bytes[..FLOODED_READ_BYTES.min(buffer.remaining())]);
            ready!(Pin::new(&mut self.socket).poll_read(context, &mut part))?;
            buffer.put_slice(part.filled());
        } else {
            ready!(Pin::new(&mut self.socket).poll_read(context, buffer))?;
        }
        self.reads += 1;
        Poll::Ready(self.on_received(buffer.filled().len() - before))
    }
}

/// Drives a connection whose socket is guarded, and counts the polls of its task in `conn_state`.
///
/// HTTP libraries read on before they begin the calls that wait. After its maximum of reads, a poll
/// finds the socket empty. Otherwise one poll would read everything that a peer sends, and keep all
/// of it.
pub(crate) struct CountPolls<'c, C> {
    pub(crate) conn_state: &'c ConnState,
    pub(crate) connection: Pin<&'c mut C>,
}

impl<C: Future> Future for CountPolls<'_, C> {
    type Output = C::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<C::Output> {
        self.conn_state.begin_poll();
        self.connection.as_mut().poll(context)
    }
}

/// Wakes the task again after all other tasks and after a poll of all sockets. The runtime polls
/// sockets only once in many task polls.
pub(super) fn yield_task<T>(context: &mut Context<'_>) -> Poll<T> {
    let first = pin!(yield_now()).poll(context);
    debug_assert!(first.is_pending(), "a task that yields is pending");
    Poll::Pending
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncWrite for GuardedSocket<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.on_written(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(context, slices);
        self.on_written(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    /// Flushes only after all bytes were written.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.rate_watch.is_waiting() {
            self.rate_watch.end_wait();
            self.conn_state.set_slow(false);
        }
        self.check_not_closed(context)?;
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
