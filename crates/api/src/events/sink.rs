//! Channel for the texts of one reader.

use std::sync::Arc;

use axum::body::Bytes;
use tokio::sync::{Mutex, mpsc};

use crate::state::feeds::frames::BodyChunk;

/// Bytes of a text that the connection gets at once. Other connections are served in between.
const CHUNK_BYTES: usize = 64 * 1024;

/// Sends texts of several senders to one reader. The text of one sender is sent whole, behind a
/// line that names its topic.
#[derive(Debug, Clone)]
pub(crate) struct EventSink {
    chunks: mpsc::Sender<BodyChunk>,
    /// Topic of the last text. It is locked while a text is sent.
    last_topic: Arc<Mutex<Bytes>>,
    topic: Bytes,
}

impl EventSink {
    pub(crate) fn new(chunks: mpsc::Sender<BodyChunk>) -> Self {
        Self {
            chunks,
            last_topic: Arc::default(),
            topic: Bytes::new(),
        }
    }

    /// Returns a sink of the same reader for texts about another topic, which this event names.
    pub(crate) fn for_topic(&self, topic: Bytes) -> Self {
        Self {
            topic,
            ..self.clone()
        }
    }

    /// Returns when the reader has gone.
    pub(crate) async fn closed(&self) {
        self.chunks.closed().await;
    }

    /// Sends a text to the connection in chunks. False if the reader has gone.
    pub(crate) async fn send(&self, mut text: Bytes) -> bool {
        let mut last_topic = self.last_topic.lock().await;
        if !self.topic.is_empty() && *last_topic != self.topic {
            last_topic.clone_from(&self.topic);
            if self.chunks.send(Ok(self.topic.clone())).await.is_err() {
                return false;
            }
        }
        while !text.is_empty() {
            let chunk = text.split_to(text.len().min(CHUNK_BYTES));
            if self.chunks.send(Ok(chunk)).await.is_err() {
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts of ten megabytes for 256 readers went to their connections at once, and all other
    /// requests waited until they were written.
    #[tokio::test]
    async fn a_long_text_leaves_turns_to_others() {
        let text: Bytes = (0..1_000_000_u32)
            .map(|at| at as u8)
            .collect::<Vec<_>>()
            .into();
        let (pieces, mut receiver) = mpsc::channel(1);
        let outlet = EventSink::new(pieces);
        let read = async {
            let mut read = Vec::new();
            while read.len() < text.len() {
                let piece = receiver.recv().await.unwrap().unwrap();
                assert!(
                    piece.len() <= 64 * 1024 && receiver.len() <= 1,
                    "{} bytes",
                    piece.len()
                );
                read.extend_from_slice(&piece);
            }
            read
        };
        let (handed, read) = tokio::join!(outlet.send(text.clone()), read);
        assert!(handed && read == text);
        drop(receiver);
        assert!(!outlet.send(text).await, "nobody reads");
    }

    #[tokio::test]
    async fn texts_of_several_senders_are_not_mixed_and_have_a_topic() {
        let (pieces, mut receiver) = mpsc::channel(1);
        let outlet = EventSink::new(pieces);
        let one = outlet.for_topic("[1]".into());
        let two = outlet.for_topic("[2]".into());
        let long = |byte: u8| Bytes::from(vec![byte; 3 * CHUNK_BYTES]);
        let sends = async {
            tokio::join!(one.send(long(b'a')), two.send(long(b'b')));
            assert!(two.send("b".into()).await && outlet.send(":".into()).await);
            drop((one, two, outlet));
        };
        let read = async {
            let mut read = Vec::new();
            while let Some(Ok(piece)) = receiver.recv().await {
                read.extend_from_slice(&piece);
            }
            String::from_utf8(read).unwrap()
        };
        let ((), read) = tokio::join!(sends, read);
        let expected = format!(
            "[1]{}[2]{}b:",
            "a".repeat(3 * CHUNK_BYTES),
            "b".repeat(3 * CHUNK_BYTES)
        );
        assert!(read == expected, "{} bytes", read.len());
    }
}
