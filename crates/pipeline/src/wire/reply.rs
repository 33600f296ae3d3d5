//! Replies of a server, and error replies.

use std::sync::Arc;

use bytes::Bytes;
use thiserror::Error;

/// Version of the protocol of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// RESP2: every server supports it, and it is decoded three times as fast.
    #[default]
    Resp2,
    /// RESP3, requested with HELLO. If the server refuses it, the connection uses RESP2. Pushed
    /// messages are ignored.
    Resp3,
}

/// A reply that is not an error.
///
/// Types that RESP3 adds are converted to those that a server would use in RESP2: maps and sets to
/// arrays, doubles and big numbers to strings, booleans to 0 and 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// `:1`
    Integer(i64),
    /// `+OK`
    Simple(Bytes),
    /// `$3 foo`
    Bulk(Bytes),
    /// A null bulk string or array.
    Null,
    /// An array. An error inside it belongs to that element alone.
    Array(Vec<Result<Reply, ServerError>>),
}

/// An error reply.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct ServerError {
    /// The text as Redis sent it, code first: `WRONGTYPE Operation against a key ..`.
    pub message: Arc<str>,
}
