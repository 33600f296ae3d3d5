//! The RESP library behind one door.

use bytes::Bytes;

/// A reply that is not an error.
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
    /// An array. Errors inside it are replies of the commands they belong to, not of the array.
    Array(Vec<Element>),
}

/// An element of an array reply.
pub type Element = Result<Reply, crate::ServerError>;
