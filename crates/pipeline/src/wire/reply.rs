//! What a server answers: a reply, or an error reply.

use std::sync::Arc;

use bytes::Bytes;
use thiserror::Error;

/// The version of the protocol that a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// Every server understands it, and it is three times as fast to read.
    #[default]
    Resp2,
    /// Requested with HELLO. With a server that refuses, the connection uses RESP2. Messages that a server pushes are ignored.
    Resp3,
}

/// A reply that is not an error.
///
/// The types that RESP3 adds are given as the types of RESP2 that a server without RESP3 would use: maps and sets as arrays,
/// doubles and big numbers as strings, booleans as 0 and 1.
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
