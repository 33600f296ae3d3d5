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
use super::counts::Closed;
use super::rate_watch::{RateRule, RateWatch};
use super::resets::is_core_flooded;

/// The minimum rate at which a peer reads: 3 KiB a second, as on a slow mobile line. A slower peer
/// holds memory without effect.
const MIN_WRITE_RATE: RateRule = RateRule {
    window: Duration::from_secs(20),
    least: 64 * 1024,
    windows: u32::MAX,
};

/// Maximum of reads with bytes in one poll of the connection's task. Then other tasks of the thread
/// run. Each read brings some KiB: a thousand small frames. This also bounds the calls that wait to
/// be begun.
const READS: u32 = 4;
/// Bytes of the one read of a poll while early resets flood the core: some ten calls with their
/// messages, so that other connections are served.
const FLOODED_READ: usize = 1024;
/// Maximum of bytes without a call or a part of a body between two checks of the connection.
/// Clients send some hundred, and the rest of refused messages.
const MAX_IDLE_BYTES: usize = 8 << 20;

/// Maximum of bytes that are read ahead while a request is answered: one or two further requests.
const AHEAD: usize = 64 * 1024;

/// Bytes of the HTTP/2 preface.
const PREFACE_BYTES: usize = 24;

/// A socket that fails if the peer does not read, or sends many bytes that belong to no call.
#[derive(Debug)]
pub(crate) struct GuardedSocket<I> {
    socket: I,
    seat: Arc<ConnState>,
    pace: RateWatch,
    /// The poll of the last read, and the reads with bytes in this poll.
    turn: u32,
    reads: u32,
    /// Bytes that are missing from the preface.
    ungreeted: usize,
    /// Bytes that were received while a request was answered, and are not read yet.
    ahead: VecDeque<u8>,
}

impl<I> GuardedSocket<I> {
    pub(crate) fn new(socket: I, seat: Arc<ConnState>) -> Self {
        Self {
            socket,
            seat,
            pace: RateWatch::new(MIN_WRITE_RATE),
            turn: 0,
            reads: 0,
            ungreeted: PREFACE_BYTES,
            ahead: VecDeque::new(),
        }
    }

    fn received(&mut self, bytes: usize) -> io::Result<()> {
        if self.ungreeted > 0 {
            self.ungreeted = self.ungreeted.saturating_sub(bytes);
            if self.ungreeted == 0 {
                self.seat.on_preface();
            }
        }
        if self.seat.add_idle_bytes(bytes) > MAX_IDLE_BYTES {
            self.seat.count(Closed::Noise);
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the peer sends what is no call",
            ));
        }
        Ok(())
    }

    fn written(
        &mut self,
        written: Poll<io::Result<usize>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Ready(Ok(bytes)) => self.pace.moved(*bytes),
            Poll::Ready(Err(_)) => {}
            Poll::Pending => {
                self.seat.set_slow(true);
                if self.pace.poll_too_slow(context).is_ready() {
                    self.seat.count(Closed::Unread);
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
    /// Fails if the peer has closed while its request is answered. The HTTP library checks that
    /// itself, but not if it has bytes of a next request, or an empty line.
    fn poll_gone(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        while self.seat.is_answering() && self.ahead.len() < AHEAD {
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
            self.ahead.extend(buffer.filled());
            self.received(buffer.filled().len())?;
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
        if !self.ahead.is_empty() {
            let (first, _) = self.ahead.as_slices();
            let taken = first.len().min(buffer.remaining());
            buffer.put_slice(&first[..taken]);
            self.ahead.drain(..taken);
            return Poll::Ready(Ok(()));
        }
        let turn = self.seat.turn();
        if self.turn != turn {
            self.turn = turn;
            self.reads = 0;
        }
        let flooded = is_core_flooded();
        if self.reads >= if flooded { 1 } else { READS } {
            return give_way(context);
        }
        let before = buffer.filled().len();
        if flooded {
            let mut bytes = [0; FLOODED_READ];
            let mut part = ReadBuf::new(&mut bytes[..FLOODED_READ.min(buffer.remaining())]);
            ready!(Pin::new(&mut self.socket).poll_read(context, &mut part))?;
            buffer.put_slice(part.filled());
        } else {
            ready!(Pin::new(&mut self.socket).poll_read(context, buffer))?;
        }
        self.reads += 1;
        Poll::Ready(self.received(buffer.filled().len() - before))
    }
}

/// Drives a connection whose socket is guarded, and counts the polls of its task in `conn_state`.
///
/// HTTP libraries read on before they begin the calls that wait. After its maximum of reads, a poll
/// finds the socket empty. Otherwise one poll would read everything that a peer sends, and keep all
/// of it.
pub(crate) struct InTurns<'c, C> {
    pub(crate) seat: &'c ConnState,
    pub(crate) connection: Pin<&'c mut C>,
}

impl<C: Future> Future for InTurns<'_, C> {
    type Output = C::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<C::Output> {
        self.seat.begin_turn();
        self.connection.as_mut().poll(context)
    }
}

/// Wakes the task again after all other tasks and after a poll of all sockets. The runtime polls
/// sockets only once in many task polls.
pub(super) fn give_way<T>(context: &mut Context<'_>) -> Poll<T> {
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

    /// Flushes only after all bytes were written.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.pace.is_waiting() {
            self.pace.rest();
            self.seat.set_slow(false);
        }
        self.poll_gone(context)?;
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
