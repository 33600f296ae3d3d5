//! Bodies of requests and answers, with bounds on their bytes and on their time.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::BoxError;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};

use super::budget::{BodyReservation, ConnectionMemory, OpenStream};
use super::conn_state::{ConnActivity, ConnState};
use super::rate_watch::{RateRule, RateWatch};

/// Bytes before a gRPC message: a flag and the length of the message.
const PREFIX: usize = 5;
/// Bytes that are reserved at most for the announced length of a message. The reader refuses a
/// message with a larger length.
const LARGEST: usize = 4 * 1024 * 1024;
/// Bytes that a call takes while it waits for its message: its stream, its task and their buffers.
const WAITING: usize = 4 * 1024;
/// Bytes of a frame up to which it is not counted. The number of calls of a connection bounds small
/// answers.
const SMALL: usize = 1_024;

/// The reason why the rest of a body is not awaited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    TooSlow,
    NoRoom,
}

/// The kind of a body: its minimum rate, its framing, and the error for a refusal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) rule: RateRule,
    /// Whether the body begins with the length of a message, for which the reader reserves memory
    /// at once.
    pub(crate) framing: Framing,
    pub(crate) refuse: fn(Refusal) -> BoxError,
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
    kind: Kind,
    seat: Arc<ConnState>,
    pace: RateWatch,
    holding: BodyReservation,
    received: usize,
    prefix: [u8; PREFIX],
}

impl RequestBody {
    pub(crate) fn new(
        body: Incoming,
        kind: Kind,
        tab: &Arc<ConnectionMemory>,
        seat: &Arc<ConnState>,
    ) -> Self {
        let arriving = Self {
            body,
            kind,
            seat: seat.clone(),
            pace: RateWatch::new(kind.rule),
            holding: BodyReservation::new(tab.clone()),
            received: 0,
            prefix: [0; PREFIX],
        };
        arriving.note_end();
        arriving
    }

    /// Records that an HTTP/1 request has arrived completely.
    fn note_end(&self) {
        if self.kind.framing == Framing::Plain && self.body.is_end_stream() {
            self.seat.begin_answer();
        }
    }

    fn receive(&mut self, bytes: &[u8]) {
        if self.kind.framing == Framing::Grpc && self.received < PREFIX {
            let part = &bytes[..bytes.len().min(PREFIX - self.received)];
            self.prefix[self.received..self.received + part.len()].copy_from_slice(part);
        }
        self.received = self.received.saturating_add(bytes.len());
        if !bytes.is_empty() {
            self.seat.reset_idle_bytes();
        }
        self.pace.moved(bytes.len());
    }

    /// Bytes that the reader of this body may hold for it.
    fn held(&self) -> usize {
        if self.kind.framing == Framing::Plain {
            return self.received;
        }
        let [_, length @ ..] = self.prefix;
        let announced = if self.received < PREFIX {
            0
        } else {
            u32::from_be_bytes(length) as usize
        };
        self.received.max(announced.min(LARGEST)).max(WAITING)
    }

    /// Waits for more bytes while there is memory and time. Returns the reason of the refusal
    /// otherwise.
    fn poll_wait(&mut self, context: &mut Context<'_>) -> Poll<Refusal> {
        self.seat.set_slow(true);
        if !self.holding.grow(self.held()) {
            return Poll::Ready(Refusal::NoRoom);
        }
        let too_slow = self.pace.poll_too_slow(context);
        too_slow.map(|()| {
            self.seat.count_slow();
            Refusal::TooSlow
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
                .map(|refusal| Some(Err((this.kind.refuse)(refusal))));
        };
        if let Some(Ok(frame)) = &arrived
            && let Some(bytes) = frame.data_ref()
        {
            this.receive(bytes);
            if this.pace.is_waiting() && !this.holding.grow(this.held()) {
                return Poll::Ready(Some(Err((this.kind.refuse)(Refusal::NoRoom))));
            }
        }
        this.note_end();
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
        if self.pace.is_waiting() {
            self.seat.set_slow(false);
        }
    }
}

/// The body of an answer, which counts as unread until its peer has read it.
#[derive(Debug)]
pub(crate) struct ResponseBody<B> {
    body: B,
    holding: BodyReservation,
    /// The open stream, if the answer has no end. Then only the frame that was returned last is
    /// unread.
    open: Option<OpenStream>,
    unread: bool,
}

impl<B> ResponseBody<B> {
    fn new(body: B, holding: BodyReservation, open: Option<OpenStream>) -> Self {
        let mut leaving = Self {
            body,
            holding,
            open,
            unread: false,
        };
        if leaving.open.is_none() {
            leaving.wait();
        }
        leaving
    }

    /// Counts a part of this answer as unread.
    fn wait(&mut self) {
        if !std::mem::replace(&mut self.unread, true) {
            self.holding.tab().begin();
        }
    }

    /// The peer has read the unread part, or never will.
    fn end(&mut self) {
        if std::mem::replace(&mut self.unread, false) {
            self.holding.tab().end();
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
    pub(crate) fn new(call: F, tab: &Arc<ConnectionMemory>, open: Option<OpenStream>) -> Self {
        Self {
            call,
            account: Some((BodyReservation::new(tab.clone()), open)),
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
        let (holding, open) = self.account.take().expect("a future is not polled after its end");
        Poll::Ready(Ok(answer.map(|body| ResponseBody::new(body, holding, open))))
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
        if this.open.is_some() {
            // The HTTP library polls for another frame when the peer has room.
            this.end();
        }
        let frame = ready!(Pin::new(&mut this.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(bytes) = frame.data_ref()
        {
            this.wait();
            if bytes.len() > SMALL && !this.holding.grow(bytes.len()) {
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
        self.end();
    }
}

/// The body of an HTTP/1 answer. Its connection is idle when this is dropped.
#[derive(Debug)]
pub(crate) struct Http1Body<B> {
    body: B,
    seat: Arc<ConnState>,
}

impl<B> Http1Body<B> {
    pub(crate) fn new(body: B, seat: &Arc<ConnState>) -> Self {
        Self {
            body,
            seat: seat.clone(),
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
        self.seat.set(ConnActivity::Idle);
    }
}
