//! Bodies of requests and answers, with bounds on their bytes and on their time.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::BoxError;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use tonic::Status;

use super::budget::{BodyReservation, ConnectionMemory, OpenStream};
use super::conn_state::{ConnActivity, ConnState};
use super::rate_watch::{RateRule, RateWatch};

/// Bytes before a gRPC message: a flag and the length of the message.
const GRPC_PREFIX_BYTES: usize = 5;
/// Bytes that are reserved at most for the announced length of a message. The reader refuses a
/// message with a larger length.
const MAX_ANNOUNCED_BYTES: usize = 4 * 1024 * 1024;
/// Bytes that a call takes while it waits for its message: its stream, its task and their buffers.
const WAITING_CALL_BYTES: usize = 4 * 1024;
/// Bytes of a frame up to which it is not counted. The number of calls of a connection bounds small
/// answers.
const MAX_UNCOUNTED_BYTES: usize = 1_024;

/// The reason why the rest of a body is not awaited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyRefusal {
    TooSlow,
    NoMemory,
}

impl BodyRefusal {
    /// The error that tells readers of bodies the reason: a status in gRPC, else an I/O error by its
    /// kind.
    fn error(self, framing: Framing) -> BoxError {
        match (framing, self) {
            (Framing::Grpc, Self::TooSlow) => {
                Status::deadline_exceeded("the message did not arrive within 10 s").into()
            }
            (Framing::Grpc, Self::NoMemory) => {
                Status::resource_exhausted("too many bytes of unfinished messages").into()
            }
            (Framing::Plain, Self::TooSlow) => io::Error::new(
                io::ErrorKind::TimedOut,
                "the body arrived too slowly: less than 16 KiB in 10 s, or longer than a minute",
            )
            .into(),
            (Framing::Plain, Self::NoMemory) => io::Error::new(
                io::ErrorKind::QuotaExceeded,
                "too many bytes of unfinished bodies",
            )
            .into(),
        }
    }
}

/// The kind of a body: its minimum rate, and its framing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BodyKind {
    pub(crate) rule: RateRule,
    /// Whether the body begins with the length of a message, for which the reader reserves memory
    /// at once.
    pub(crate) framing: Framing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    Grpc,
    Plain,
}

/// The body of a request. A body that has arrived when it is read is not counted.
#[derive(Debug)]
pub(crate) struct RequestBody {
    body: Incoming,
    kind: BodyKind,
    conn_state: Arc<ConnState>,
    rate_watch: RateWatch,
    reservation: BodyReservation,
    received: usize,
    prefix: [u8; GRPC_PREFIX_BYTES],
}

impl RequestBody {
    pub(crate) fn new(
        body: Incoming,
        kind: BodyKind,
        memory: &Arc<ConnectionMemory>,
        conn_state: &Arc<ConnState>,
    ) -> Self {
        let request_body = Self {
            body,
            kind,
            conn_state: conn_state.clone(),
            rate_watch: RateWatch::new(kind.rule),
            reservation: BodyReservation::new(memory.clone()),
            received: 0,
            prefix: [0; GRPC_PREFIX_BYTES],
        };
        request_body.record_end();
        request_body
    }

    /// Records that an HTTP/1 request has arrived completely.
    fn record_end(&self) {
        if self.kind.framing == Framing::Plain && self.body.is_end_stream() {
            self.conn_state.on_request_complete();
        }
    }

    fn receive(&mut self, bytes: &[u8]) {
        if self.kind.framing == Framing::Grpc && self.received < GRPC_PREFIX_BYTES {
            let part = &bytes[..bytes.len().min(GRPC_PREFIX_BYTES - self.received)];
            self.prefix[self.received..self.received + part.len()].copy_from_slice(part);
        }
        self.received = self.received.saturating_add(bytes.len());
        if !bytes.is_empty() {
            self.conn_state.reset_idle_bytes();
        }
        self.rate_watch.add_bytes(bytes.len());
    }

    /// Bytes that the reader of this body may hold for it.
    fn bytes_held(&self) -> usize {
        if self.kind.framing == Framing::Plain {
            return self.received;
        }
        let [_, length @ ..] = self.prefix;
        let announced = if self.received < GRPC_PREFIX_BYTES {
            0
        } else {
            u32::from_be_bytes(length) as usize
        };
        self.received
            .max(announced.min(MAX_ANNOUNCED_BYTES))
            .max(WAITING_CALL_BYTES)
    }

    /// Waits for more bytes while there is memory and time. Returns the reason of the refusal
    /// otherwise.
    fn poll_wait(&mut self, context: &mut Context<'_>) -> Poll<BodyRefusal> {
        self.conn_state.set_slow(true);
        if !self.reservation.grow(self.bytes_held()) {
            return Poll::Ready(BodyRefusal::NoMemory);
        }
        let too_slow = self.rate_watch.poll_too_slow(context);
        too_slow.map(|()| {
            self.conn_state.count_slow();
            BodyRefusal::TooSlow
        })
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let Poll::Ready(arrived) = Pin::new(&mut this.body).poll_frame(context) else {
            return this
                .poll_wait(context)
                .map(|refusal| Some(Err(refusal.error(this.kind.framing))));
        };
        if let Some(Ok(frame)) = &arrived
            && let Some(bytes) = frame.data_ref()
        {
            this.receive(bytes);
            if this.rate_watch.is_waiting() && !this.reservation.grow(this.bytes_held()) {
                return Poll::Ready(Some(Err(BodyRefusal::NoMemory.error(this.kind.framing))));
            }
        }
        this.record_end();
        Poll::Ready(arrived.map(|frame| frame.map_err(BoxError::from)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if self.rate_watch.is_waiting() {
            self.conn_state.set_slow(false);
        }
    }
}

/// The body of an answer, which counts as unread until its peer has read it.
#[derive(Debug)]
pub(crate) struct ResponseBody<B> {
    body: B,
    reservation: BodyReservation,
    /// The open stream, if the answer has no end. Then only the frame that was returned last is
    /// unread.
    open_stream: Option<OpenStream>,
    is_unread: bool,
}

impl<B> ResponseBody<B> {
    fn new(body: B, reservation: BodyReservation, open_stream: Option<OpenStream>) -> Self {
        let mut response_body = Self {
            body,
            reservation,
            open_stream,
            is_unread: false,
        };
        if response_body.open_stream.is_none() {
            response_body.begin_unread();
        }
        response_body
    }

    /// Counts a part of this answer as unread.
    fn begin_unread(&mut self) {
        if !std::mem::replace(&mut self.is_unread, true) {
            self.reservation.memory().add_unread();
        }
    }

    /// The peer has read the unread part, or never will.
    fn end_unread(&mut self) {
        if std::mem::replace(&mut self.is_unread, false) {
            self.reservation.memory().remove_unread();
        }
    }
}

/// A call whose answer is pending.
pub(crate) struct PendingResponse<F> {
    call: F,
    account: Option<(BodyReservation, Option<OpenStream>)>,
}

impl<F> PendingResponse<F> {
    /// The answer is counted in `memory`. `open_stream` is for an answer without an end.
    pub(crate) fn new(
        call: F,
        memory: &Arc<ConnectionMemory>,
        open_stream: Option<OpenStream>,
    ) -> Self {
        Self {
            call,
            account: Some((BodyReservation::new(memory.clone()), open_stream)),
        }
    }
}

impl<F, B, E> Future for PendingResponse<F>
where
    F: Future<Output = Result<http::Response<B>, E>> + Unpin,
{
    type Output = Result<http::Response<ResponseBody<B>>, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(Pin::new(&mut self.call).poll(context))?;
        let (reservation, open_stream) = self
            .account
            .take()
            .expect("a future is not polled after its end");
        Poll::Ready(Ok(
            answer.map(|body| ResponseBody::new(body, reservation, open_stream))
        ))
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        if this.open_stream.is_some() {
            // The HTTP library polls for another frame when the peer has room.
            this.end_unread();
        }
        let frame = ready!(Pin::new(&mut this.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(bytes) = frame.data_ref()
        {
            this.begin_unread();
            if bytes.len() > MAX_UNCOUNTED_BYTES && !this.reservation.grow(bytes.len()) {
                return Poll::Ready(Some(Err(
                    "the connection holds too many answers that were not read".into(),
                )));
            }
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Drop for ResponseBody<B> {
    fn drop(&mut self) {
        self.end_unread();
    }
}

/// The body of an HTTP/1 answer. Its connection is idle when this is dropped.
#[derive(Debug)]
pub(crate) struct Http1Body<B> {
    body: B,
    conn_state: Arc<ConnState>,
}

impl<B> Http1Body<B> {
    pub(crate) fn new(body: B, conn_state: &Arc<ConnState>) -> Self {
        Self {
            body,
            conn_state: conn_state.clone(),
        }
    }
}

impl<B: Body + Unpin> Body for Http1Body<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Drop for Http1Body<B> {
    fn drop(&mut self) {
        self.conn_state.set_activity(ConnActivity::Idle);
    }
}
