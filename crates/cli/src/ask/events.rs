//! Server-sent events, as they come from a socket.

use http_body_util::BodyExt as _;
use hyper::body::Body;

/// Longest line that is kept: a summary of a workflow is a tenth of this at most.
const LONGEST: usize = 1 << 20;

/// A stream of events.
#[derive(Debug)]
pub(crate) struct Events<B> {
    body: B,
    /// Read, and not yet looked at.
    text: Vec<u8>,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Event {
    pub(crate) name: String,
    pub(crate) data: String,
}

impl<B: Body<Data = bytes::Bytes> + Unpin> Events<B> {
    pub(crate) fn new(body: B) -> Self {
        Self { body, text: Vec::new() }
    }

    /// The next event; None at the end of the stream. If the future is dropped, the next call returns the same event.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.take() {
                return Some(event);
            }
            if self.text.len() > LONGEST {
                return None;
            }
            let frame = self.body.frame().await?.ok()?;
            self.text.extend_from_slice(frame.data_ref()?);
        }
    }

    /// An event that has been read to its end.
    fn take(&mut self) -> Option<Event> {
        loop {
            let end = self.text.windows(2).position(|pair| pair == b"\n\n")?;
            let block: Vec<u8> = self.text.drain(..end + 2).collect();
            let mut event = Event::default();
            for line in String::from_utf8_lossy(&block).lines() {
                match line.split_once(':') {
                    Some(("event", name)) => event.name = name.trim_start().to_owned(),
                    Some(("data", data)) => event.data += data.strip_prefix(' ').unwrap_or(data),
                    // A comment, or a field that is not used here.
                    _ => {}
                }
            }
            if !event.name.is_empty() {
                return Some(event);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;

    #[tokio::test]
    async fn events_are_read_and_comments_are_not() {
        let text =
            ": hello\n\nevent: workflow\ndata: {\"a\": 1}\n\n: still here\n\nid: 7\nevent:job\ndata:x\n\nevent: cut";
        let mut events = Events::new(Full::new(bytes::Bytes::from_static(text.as_bytes())));
        let event = |name: &str, data: &str| Some(Event { name: name.to_owned(), data: data.to_owned() });
        assert_eq!(events.next().await, event("workflow", "{\"a\": 1}"));
        assert_eq!(events.next().await, event("job", "x"));
        assert_eq!(events.next().await, None);
    }
}
