//! Rewrites `:authority` values that are no host names.
//!
//! Envoy sends the name of its cluster as `:authority` unless it is configured otherwise:
//! `outbound|8081||ratelimit` or `extension/ratelimit`. Clients on a Unix socket send its path.
//! Servers in other languages accept any text, but the HTTP/2 library here resets a call whose
//! authority is not valid in a URI. No code here depends on that name, so it is replaced by a valid
//! one before the library reads it.
//!
//! The replacement has the same number of characters and bytes, so the HPACK tables of both sides
//! stay the same.
//!
//! Stream resets are counted here as well, because no other layer sees each frame.

mod block;
mod huffman;

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::bounds::ResetCounter;

/// Bytes of the HTTP/2 connection preface, which precedes the first frame.
const PREFACE_BYTES: usize = 24;
/// Bytes of a frame header.
const FRAME_HEADER_BYTES: usize = 9;
/// The type of a HEADERS frame. Clients send `:authority` in it, and not in a CONTINUATION frame,
/// because it precedes all headers that may be long.
const HEADERS_FRAME: u8 = 1;
/// The largest frame that the library accepts by default, in bytes.
const MAX_FRAME_BYTES: usize = 16 * 1024;

/// A socket with HTTP/2 whose calls have an `:authority` that the library accepts.
#[derive(Debug)]
pub(crate) struct AuthorityRewriter<I> {
    socket: I,
    state: RewriteState,
    resets: ResetCounter,
}

/// The parser state: which bytes come next from the socket, or which bytes are passed on first.
#[derive(Debug)]
enum RewriteState {
    /// This number of bytes are passed on unchanged, because they are no HEADERS payload.
    PassThrough(usize),
    /// A frame header that is not complete yet.
    FrameHeader {
        begun: [u8; FRAME_HEADER_BYTES],
        filled: usize,
    },
    /// The payload of a HEADERS frame that is not complete yet. It is held back until then.
    Headers {
        flags: u8,
        payload: Vec<u8>,
        filled: usize,
    },
    /// A rewritten payload, which is passed on from the byte `passed`.
    Rewritten { payload: Vec<u8>, passed: usize },
}

/// The state before the first byte of a frame.
const FRAME_START: RewriteState = RewriteState::FrameHeader {
    begun: [0; FRAME_HEADER_BYTES],
    filled: 0,
};

impl<I> AuthorityRewriter<I> {
    pub(crate) fn new(socket: I, resets: ResetCounter) -> Self {
        Self {
            socket,
            state: RewriteState::PassThrough(PREFACE_BYTES),
            resets,
        }
    }
}

impl RewriteState {
    /// Rewrites the headers in bytes that were received. Returns how many bytes are passed on at
    /// once; the others are held back.
    fn process(&mut self, bytes: &mut [u8], resets: &mut ResetCounter) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &mut bytes[at..];
            match self {
                Self::PassThrough(left) => {
                    let passed = rest.len().min(*left);
                    *left -= passed;
                    at += passed;
                    if *left == 0 {
                        *self = FRAME_START;
                    }
                }
                Self::FrameHeader { begun, filled } => {
                    // Nearly always the whole frame header has been received.
                    let frame = match rest.first_chunk::<FRAME_HEADER_BYTES>() {
                        Some(frame) if *filled == 0 => {
                            at += FRAME_HEADER_BYTES;
                            *frame
                        }
                        _ => {
                            let taken = rest.len().min(FRAME_HEADER_BYTES - *filled);
                            begun[*filled..*filled + taken].copy_from_slice(&rest[..taken]);
                            *filled += taken;
                            at += taken;
                            if *filled < FRAME_HEADER_BYTES {
                                break;
                            }
                            *filled = 0;
                            *begun
                        }
                    };
                    let [high, middle, low, kind, flags, stream @ ..] = frame;
                    let length = u32::from_be_bytes([0, high, middle, low]) as usize;
                    resets.on_frame(kind, u32::from_be_bytes(stream));
                    let is_headers = kind == HEADERS_FRAME && length <= MAX_FRAME_BYTES;
                    let rest = &mut bytes[at..];
                    if let Some(payload) = rest.get_mut(..length) {
                        if is_headers {
                            block::rewrite(flags, payload);
                        }
                        at += length;
                    } else if is_headers {
                        let mut payload = vec![0; length];
                        payload[..rest.len()].copy_from_slice(rest);
                        *self = Self::Headers {
                            flags,
                            payload,
                            filled: rest.len(),
                        };
                        break;
                    } else {
                        *self = Self::PassThrough(length);
                    }
                }
                Self::Headers { .. } | Self::Rewritten { .. } => break,
            }
        }
        at
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for AuthorityRewriter<I> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self {
            socket,
            state: next,
            resets,
        } = self.get_mut();
        ready!(resets.poll_may_read(context));
        loop {
            match next {
                RewriteState::PassThrough(_) | RewriteState::FrameHeader { .. } => {
                    let before = buffer.filled().len();
                    ready!(Pin::new(&mut *socket).poll_read(context, buffer))?;
                    let received = &mut buffer.filled_mut()[before..];
                    let is_eof = received.is_empty();
                    let passed = next.process(received, resets);
                    buffer.set_filled(before + passed);
                    resets.count()?;
                    // A read of zero bytes would mean the end of the stream.
                    if passed > 0 || is_eof {
                        return Poll::Ready(Ok(()));
                    }
                }
                RewriteState::Headers {
                    flags,
                    payload,
                    filled,
                } => {
                    let mut rest = ReadBuf::new(&mut payload[*filled..]);
                    ready!(Pin::new(&mut *socket).poll_read(context, &mut rest))?;
                    let received = rest.filled().len();
                    *filled += received;
                    if *filled == payload.len() {
                        block::rewrite(*flags, payload);
                    } else if received == 0 {
                        payload.truncate(*filled);
                    } else {
                        continue;
                    }
                    *next = RewriteState::Rewritten {
                        payload: std::mem::take(payload),
                        passed: 0,
                    };
                }
                RewriteState::Rewritten { payload, passed } => {
                    let rest = &payload[*passed..];
                    let length = rest.len().min(buffer.remaining());
                    buffer.put_slice(&rest[..length]);
                    *passed += length;
                    if *passed == payload.len() {
                        *next = FRAME_START;
                    }
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for AuthorityRewriter<I> {
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
    use std::sync::Arc;

    use super::*;
    use crate::net::bounds::ConnState;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    /// A frame of HTTP/2 on stream 1.
    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    /// Headers with this name, in clear text.
    fn headers(name: &str) -> Vec<u8> {
        [
            b"\x83\x86\x41".as_slice(),
            &[name.len() as u8],
            name.as_bytes(),
            b"\x40\x01a\x01b",
        ]
        .concat()
    }

    /// A connection with one call after the other, a name each.
    fn connection(names: &[&str]) -> Vec<u8> {
        let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        sent.extend(frame(4, 0, b""));
        for name in names {
            sent.extend(frame(HEADERS_FRAME, 4, &headers(name)));
            sent.extend(frame(0, 1, b"\x01\x03/|/"));
        }
        sent
    }

    /// What is read of bytes that come in parts of this size, into room for so many.
    async fn read(sent: &[u8], part: usize, room: usize) -> Vec<u8> {
        let (socket, mut peer) = duplex(part);
        let sending = async {
            peer.write_all(sent).await.unwrap();
            drop(peer);
        };
        let mut mended = AuthorityRewriter::new(
            socket,
            ResetCounter::new(Arc::new(ConnState::new(Arc::default()))),
        );
        let mut got = Vec::new();
        let mut bytes = vec![0; room];
        let reading = async {
            loop {
                match mended.read(&mut bytes).await.unwrap() {
                    0 => break,
                    length => got.extend(&bytes[..length]),
                }
            }
        };
        tokio::join!(sending, reading);
        got
    }

    #[tokio::test]
    async fn names_are_replaced_however_the_bytes_are_cut() {
        let sent = connection(&["outbound|8081||a.b", "tidegate:8081", "extension/a/b"]);
        let expected = connection(&["outbound-8081--a.b", "tidegate:8081", "extension-a-b"]);
        for part in 1..=sent.len() {
            for room in [1, 7, 8192] {
                assert_eq!(read(&sent, part, room).await, expected, "{part} {room}");
            }
        }
    }

    #[tokio::test]
    async fn what_is_cut_off_comes_as_it_was_sent() {
        let sent = connection(&["a|b"]);
        for length in 0..sent.len() - 16 {
            let got = read(&sent[..length], 5, 8192).await;
            assert_eq!(got, &sent[..length], "{length}");
        }
    }

    #[tokio::test]
    async fn frames_that_are_too_long_are_not_kept() {
        let mut sent = connection(&[]);
        sent.extend(frame(HEADERS_FRAME, 4, &[b'|'; MAX_FRAME_BYTES + 1]));
        assert_eq!(read(&sent, 1000, 100).await, sent);
    }
}
