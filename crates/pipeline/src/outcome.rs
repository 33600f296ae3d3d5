//! What became of a command.

use std::sync::Arc;

use thiserror::Error;

use crate::Reply;

/// What became of one command.
///
/// The five classes answer the one question a caller with a counter has: may I send this again? After [`NotSent`] and
/// [`Rejected`] yes, the server did not run it; after [`Unknown`] only if running it twice does no harm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The server ran the command and answered.
    Reply(Reply),
    /// The server answered with an error that sending again will not change.
    ServerError(ServerError),
    /// The command never left this process.
    NotSent(NotSent),
    /// The server answered that it did not run the command, and the retries that fitted the deadline are used up.
    Rejected(Rejected),
    /// The command was written, and no reply will come.
    Unknown(Unknown),
}

/// An error reply.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct ServerError {
    /// The text as Redis sent it, code first: `WRONGTYPE Operation against a key ..`.
    pub message: Arc<str>,
}

/// Why a command was never sent.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotSent {
    /// The node cannot be reached; retried in the background. A single server says so at once; in a cluster, or behind
    /// sentinels, the call waited for another node to take over.
    #[error("redis at {node} is unavailable: {reason}")]
    Unavailable {
        /// The node's address.
        node: Arc<str>,
        /// The last failure to connect.
        reason: Arc<str>,
    },
    /// The node's queue is full.
    #[error("redis at {node} is overloaded: its queue of waiting commands is full")]
    Overloaded {
        /// The node's address.
        node: Arc<str>,
    },
    /// The deadline passed while the command waited to be written.
    #[error("the deadline passed before the command was sent to redis at {node}")]
    DeadlineExceeded {
        /// The node's address.
        node: Arc<str>,
    },
    /// The connection broke before the command was written.
    #[error("the connection to redis at {node} was lost before the command was sent: {reason}")]
    ConnectionLost {
        /// The node's address.
        node: Arc<str>,
        /// What broke it.
        reason: Arc<str>,
    },
    /// The command cannot run on a shared connection.
    #[error("{command} cannot run on a shared connection")]
    Refused {
        /// The command's name.
        command: &'static str,
    },
    /// The keys of a unit are in different slots.
    #[error("the keys of a unit are in different hash slots")]
    CrossSlot,
    /// No node owns the key's slot, as far as could be learned before the deadline.
    #[error("no redis node is known to own hash slot {slot}")]
    NoOwner {
        /// The slot.
        slot: u16,
    },
    /// An earlier group of the same batch failed, and groups run one after the other.
    #[error("an earlier part of the batch failed")]
    Skipped,
    /// The client was closed.
    #[error("the redis client is closed")]
    Closed,
}

/// How the server said that it did not run a command.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct Rejected {
    /// What it said.
    pub kind: Rejection,
    /// The text as Redis sent it, code first: `LOADING Redis is loading the dataset in memory`.
    pub message: Arc<str>,
}

/// The ways a server says that it did not run a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rejection {
    /// Another node owns the slot.
    Moved {
        /// The slot.
        slot: u16,
        /// The owner, as `host:port`; an empty host means the host that was asked.
        endpoint: Arc<str>,
    },
    /// The slot is moving, and this key is at the other node already.
    Ask {
        /// The slot.
        slot: u16,
        /// The other node, as `host:port`; an empty host means the host that was asked.
        endpoint: Arc<str>,
    },
    /// The slot is moving, and the command's keys are at two nodes now.
    TryAgain,
    /// The cluster has no owner for the slot, or has lost its majority.
    ClusterDown,
    /// The server loads its data.
    Loading,
    /// The replica has lost its primary.
    MasterDown,
    /// The server is a replica now.
    ReadOnly,
    /// A script keeps the server busy.
    Busy,
    /// The server has forgotten who the connection is.
    Unauthenticated,
}

/// Why the fate of a command is unknown.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unknown {
    /// The connection broke after the command was written.
    #[error("the connection to redis at {node} was lost while waiting for the reply: {reason}")]
    ConnectionLost {
        /// The node's address.
        node: Arc<str>,
        /// What broke it.
        reason: Arc<str>,
    },
    /// The deadline passed after the command was written.
    #[error("no reply from redis at {node} before the deadline")]
    DeadlineExceeded {
        /// The node's address.
        node: Arc<str>,
    },
}

/// An outcome that is not a reply, as an error.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CommandError {
    /// See [`Outcome::ServerError`].
    #[error(transparent)]
    Server(#[from] ServerError),
    /// See [`Outcome::NotSent`].
    #[error(transparent)]
    NotSent(#[from] NotSent),
    /// See [`Outcome::Rejected`].
    #[error(transparent)]
    Rejected(#[from] Rejected),
    /// See [`Outcome::Unknown`].
    #[error(transparent)]
    Unknown(#[from] Unknown),
    /// The reply was of another type than the caller asked for.
    #[error("redis answered {reply:?} where {expected} was expected")]
    UnexpectedReply {
        /// The type asked for.
        expected: &'static str,
        /// What came.
        reply: Reply,
    },
}

impl Outcome {
    /// The reply, or the error that says why there is none.
    ///
    /// # Errors
    /// Every outcome but [`Outcome::Reply`].
    pub fn reply(&self) -> Result<&Reply, CommandError> {
        match self {
            Self::Reply(reply) => Ok(reply),
            Self::ServerError(error) => Err(error.clone().into()),
            Self::NotSent(error) => Err(error.clone().into()),
            Self::Rejected(error) => Err(error.clone().into()),
            Self::Unknown(error) => Err(error.clone().into()),
        }
    }

    /// Whether the command did not run, for a reason that may pass within a call.
    pub(crate) fn may_be_sent_again(&self) -> bool {
        match self {
            Self::NotSent(reason) => {
                matches!(reason, NotSent::ConnectionLost { .. } | NotSent::NoOwner { .. } | NotSent::Unavailable { .. })
            }
            Self::Rejected(_) => true,
            Self::Reply(_) | Self::ServerError(_) | Self::Unknown(_) => false,
        }
    }

    /// Whether the server ran the command and said so.
    pub(crate) fn ran(&self) -> bool {
        matches!(self, Self::Reply(_))
    }

    /// The reply as an integer.
    ///
    /// # Errors
    /// As [`Outcome::reply`], and [`CommandError::UnexpectedReply`] for a reply of another type.
    pub fn integer(&self) -> Result<i64, CommandError> {
        match self.reply()? {
            Reply::Integer(value) => Ok(*value),
            other => Err(CommandError::UnexpectedReply { expected: "an integer", reply: other.clone() }),
        }
    }

    /// The reply as bytes; none for a null reply.
    ///
    /// # Errors
    /// As [`Outcome::reply`], and [`CommandError::UnexpectedReply`] for a reply of another type.
    pub fn bytes(&self) -> Result<Option<&[u8]>, CommandError> {
        match self.reply()? {
            Reply::Bulk(bytes) | Reply::Simple(bytes) => Ok(Some(bytes)),
            Reply::Null => Ok(None),
            other => Err(CommandError::UnexpectedReply { expected: "a string", reply: other.clone() }),
        }
    }
}
