//! A server's socket that breaks after a number of bytes, in either direction.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// How many bytes a connection carries before it breaks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    pub(crate) readable: usize,
    pub(crate) writable: usize,
    pub(crate) ending: Ending,
}

/// How a connection breaks. A reset throws away what the client has not read yet, a plain end does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Reset,
    Plain,
}

/// A socket that fails when its budget is used up. Its owner must drop it then.
#[derive(Debug)]
pub(crate) struct Cut {
    stream: TcpStream,
    budget: Budget,
}

impl Cut {
    pub(crate) fn new(stream: TcpStream, budget: Budget) -> Self {
        Self { stream, budget }
    }

    fn fail(&self) -> io::Error {
        if self.budget.ending == Ending::Reset {
            let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
        }
        io::ErrorKind::ConnectionReset.into()
    }
}

impl AsyncRead for Cut {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let cut = self.get_mut();
        if cut.budget.readable == 0 {
            return Poll::Ready(Err(cut.fail()));
        }
        let mut space = vec![0; buffer.remaining().min(cut.budget.readable).min(64 * 1024)];
        let mut part = ReadBuf::new(&mut space);
        let read = Pin::new(&mut cut.stream).poll_read(cx, &mut part);
        cut.budget.readable -= part.filled().len();
        buffer.put_slice(part.filled());
        read
    }
}

impl AsyncWrite for Cut {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let cut = self.get_mut();
        if cut.budget.writable == 0 {
            return Poll::Ready(Err(cut.fail()));
        }
        let wrote = Pin::new(&mut cut.stream)
            .poll_write(cx, &bytes[..bytes.len().min(cut.budget.writable)]);
        if let Poll::Ready(Ok(wrote)) = wrote {
            cut.budget.writable -= wrote;
        }
        wrote
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
