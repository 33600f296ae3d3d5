//! Reader of server-sent events from the body of a response.

use std::time::Duration;

use bytes::{Buf as _, Bytes};
use http_body_util::BodyExt as _;
use hyper::body::Body;
use tokio::time::timeout;

/// Size limit of an event in bytes. A summary of a workflow has at most a tenth of this.
const MAX_EVENT_BYTES: usize = 1 << 20;
/// Byte order mark. A stream may begin with it; it is not part of the first line.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// A stream of events.
#[derive(Debug)]
pub(crate) struct EventStream<B> {
    body: B,
    /// A stream without any byte for this time counts as lost.
    idle_timeout: Duration,
    /// Bytes that were received and not yet parsed.
    unparsed: Bytes,
    reader: EventParser,
}

/// One event.
#[derive(Debug, PartialEq, Eq, Default)]
pub(crate) struct Event {
    /// Empty if the server gave none.
    pub(crate) name: String,
    pub(crate) data: String,
}

impl<B: Body<Data = Bytes> + Unpin> EventStream<B> {
    pub(crate) fn new(body: B, idle_timeout: Duration) -> Self {
        Self {
            body,
            idle_timeout,
            unparsed: Bytes::new(),
            reader: EventParser::default(),
        }
    }

    /// Returns the next event. Returns `None` at the end of the stream, after a silence, or if one
    /// event is too long. If the future is dropped, the next call returns the event.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.reader.read(&mut self.unparsed) {
                return Some(event);
            }
            if self.reader.size() > MAX_EVENT_BYTES {
                return None;
            }
            let frame = timeout(self.idle_timeout, self.body.frame())
                .await
                .ok()??
                .ok()?;
            self.unparsed = frame.into_data().ok()?;
        }
    }
}

/// Parser of event streams, by the rules of
/// <https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream>.
#[derive(Debug, Default)]
struct EventParser {
    /// The line so far.
    line: Vec<u8>,
    /// The event so far.
    event: Event,
    is_begun: bool,
    /// The last byte was a CR. An LF that follows belongs to that line end, even if it comes in a
    /// later chunk.
    is_after_cr: bool,
}

impl EventParser {
    /// Reads up to the end of an event. If there is no end, all bytes are consumed and kept.
    fn read(&mut self, bytes: &mut Bytes) -> Option<Event> {
        while let Some(length) = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n')) {
            let end = bytes[length];
            let is_second = self.is_after_cr && length == 0 && end == b'\n';
            self.is_after_cr = end == b'\r';
            self.line.extend_from_slice(&bytes[..length]);
            bytes.advance(length + 1);
            if !is_second && let Some(event) = self.end_line() {
                return Some(event);
            }
        }
        self.is_after_cr &= bytes.is_empty();
        self.line.extend_from_slice(bytes);
        bytes.clear();
        None
    }

    fn size(&self) -> usize {
        self.line.len() + self.event.name.len() + self.event.data.len()
    }

    /// Processes the field in the finished line. An empty line ends an event.
    fn end_line(&mut self) -> Option<Event> {
        let line = std::mem::take(&mut self.line);
        let is_first = !std::mem::replace(&mut self.is_begun, true);
        let line = line
            .strip_prefix(BYTE_ORDER_MARK)
            .filter(|_| is_first)
            .unwrap_or(&line);
        if line.is_empty() {
            return self.end_event();
        }
        let line = String::from_utf8_lossy(line);
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.event.name),
            "data" => self.event.data.extend([value, "\n"]),
            // A comment, or a field that is not used here.
            _ => {}
        }
        None
    }

    /// Returns the finished event. An event without data is dropped, as the standard requires.
    fn end_event(&mut self) -> Option<Event> {
        let mut event = std::mem::take(&mut self.event);
        event.data.pop().map(|_| event)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use hyper::body::Frame;

    use super::*;

    /// These parts, one by one, and then nothing more without an end.
    struct Parts(VecDeque<Vec<u8>>);

    impl Body for Parts {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            let part = self.0.pop_front();
            part.map_or(Poll::Pending, |part| {
                Poll::Ready(Some(Ok(Frame::data(part.into()))))
            })
        }
    }

    /// Events, until nothing came for a while.
    async fn read(parts: impl IntoIterator<Item = &[u8]>) -> Vec<(String, String)> {
        let parts = Parts(parts.into_iter().map(<[u8]>::to_vec).collect());
        let mut events = EventStream::new(parts, Duration::from_millis(1));
        let mut all = Vec::new();
        while let Some(Event { name, data }) = events.next().await {
            all.push((name, data));
        }
        all
    }

    async fn check(text: &str, expected: &[(&str, &str)]) {
        let expected: Vec<_> = expected
            .iter()
            .map(|&(name, data)| (name.to_owned(), data.to_owned()))
            .collect();
        for ends in ["\n", "\r\n", "\r"] {
            let text = text.replace('\n', ends);
            assert_eq!(read([text.as_bytes()]).await, expected, "{text:?}");
            assert_eq!(
                read(text.as_bytes().chunks(1)).await,
                expected,
                "{text:?} byte by byte"
            );
        }
    }

    #[tokio::test]
    async fn events_are_read_with_any_ends_of_lines_and_comments_are_not() {
        let text = ": hello\n\nevent: workflow\ndata: {\"a\": 1}\n\n: still here\n\nid: 7\nevent:job\ndata:x\n\nevent: cut";
        check(text, &[("workflow", "{\"a\": 1}"), ("job", "x")]).await;
        check(
            "\u{feff}event: a\ndata: 1\ndata\ndata:  2\n\n\n",
            &[("a", "1\n\n 2")],
        )
        .await;
        check("event: a\n\n\u{feff}data: 1\n\ndata: 2\n\n", &[("", "2")]).await;
    }

    #[tokio::test]
    async fn an_event_without_end_is_not_kept() {
        for endless in ["x", "data: x\n", "event: x\r\ndata: much more\r\n"] {
            let part = endless.repeat(100_000 / endless.len());
            let parts = Parts(std::iter::repeat_n(part.into_bytes(), 100).collect());
            let mut events = EventStream::new(parts, Duration::from_secs(600));
            assert_eq!(events.next().await, None, "{endless:?}");
            assert!(
                events.body.0.len() > 50,
                "{endless:?}: {} parts were not read",
                events.body.0.len()
            );
        }
    }
}
