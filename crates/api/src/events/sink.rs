//! Channel for the texts of one reader.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Bytes;
use tokio::sync::{Mutex, mpsc};

/// Bytes of a text that the connection gets at once. Other connections are served in between.
const PIECE: usize = 64 * 1024;

/// Chunk of a response body.
pub(crate) type Piece = Result<Bytes, Infallible>;

/// Sends texts of several senders to one reader. The text of one sender is sent whole, behind a
/// line that names its topic.
#[derive(Debug, Clone)]
pub(crate) struct EventSink {
    pieces: mpsc::Sender<Piece>,
    /// Topic of the last text. It is locked while a text is sent.
    last: Arc<Mutex<Bytes>>,
    about: Bytes,
}

impl EventSink {
    pub(crate) fn new(pieces: mpsc::Sender<Piece>) -> Self {
        Self {
            pieces,
            last: Arc::default(),
            about: Bytes::new(),
        }
    }

    /// Returns a sink of the same reader for texts about another topic, which this event names.
    pub(crate) fn about(&self, about: Bytes) -> Self {
        Self {
            about,
            ..self.clone()
        }
    }

    /// Returns when the reader has gone.
    pub(crate) async fn closed(&self) {
        self.pieces.closed().await;
    }

    /// Sends a text to the connection in chunks. False if the reader has gone.
    pub(crate) async fn hand_over(&self, mut text: Bytes) -> bool {
        let mut last = self.last.lock().await;
        if !self.about.is_empty() && *last != self.about {
            last.clone_from(&self.about);
            if self.pieces.send(Ok(self.about.clone())).await.is_err() {
                return false;
            }
        }
        while !text.is_empty() {
            let piece = text.split_to(text.len().min(PIECE));
            if self.pieces.send(Ok(piece)).await.is_err() {
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
        let (handed, read) = tokio::join!(outlet.hand_over(text.clone()), read);
        assert!(handed && read == text);
        drop(receiver);
        assert!(!outlet.hand_over(text).await, "nobody reads");
    }

    #[tokio::test]
    async fn texts_of_several_are_not_mixed_and_say_what_they_are_about() {
        let (pieces, mut receiver) = mpsc::channel(1);
        let outlet = EventSink::new(pieces);
        let one = outlet.about("[1]".into());
        let two = outlet.about("[2]".into());
        let long = |byte: u8| Bytes::from(vec![byte; 3 * PIECE]);
        let tell = async {
            tokio::join!(one.hand_over(long(b'a')), two.hand_over(long(b'b')));
            assert!(two.hand_over("b".into()).await && outlet.hand_over(":".into()).await);
            drop((one, two, outlet));
        };
        let read = async {
            let mut read = Vec::new();
            while let Some(Ok(piece)) = receiver.recv().await {
                read.extend_from_slice(&piece);
            }
            String::from_utf8(read).unwrap()
        };
        let ((), read) = tokio::join!(tell, read);
        let expected = format!("[1]{}[2]{}b:", "a".repeat(3 * PIECE), "b".repeat(3 * PIECE));
        assert!(read == expected, "{} bytes", read.len());
    }
}
