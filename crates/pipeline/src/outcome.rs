//! Outcomes of commands.

use std::sync::Arc;

use thiserror::Error;

use crate::wire::{Reply, ServerError};

/// The outcome of one command.
///
/// The five classes decide whether a command may be sent again. After [`NotSent`] and [`Rejected`]
/// it may, because the server did not run it. After [`Unknown`] it may only if running it twice
/// does no harm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The server ran the command and answered.
    Reply(Reply),
    /// The server answered with an error that sending again will not change.
    ServerError(ServerError),
    /// The command never left this process, or is not sent again.
    NotSent(NotSent),
    /// The server answered that it did not run the command, and the retries that fitted the
    /// deadline are used up.
    Rejected(Rejected),
    /// The command was written, and no reply will come.
    Unknown(Unknown),
}

/// Reason why a command was never sent.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotSent {
    /// The node is unreachable, and connecting is retried in the background. A single server fails
    /// the call at once. In a cluster, or behind sentinels, the call waited for another node to
    /// take over.
    #[error("redis at {node} is unavailable: {reason}")]
    Unavailable {
        /// The node's address.
        node: Arc<str>,
        /// The last failure to connect.
        reason: Arc<str>,
    },
    /// The node's queue is full.
    #[error("too many commands wait in this process for redis at {node}: it is slow or down")]
    Overloaded {
        /// The node's address.
        node: Arc<str>,
    },
    /// The command must be sent again, and too many commands of this client wait for that already.
    /// It did not run: it was never sent, or the server refused it.
    #[error(
        "too many commands wait in this process to be sent to redis again, and this one failed: {last}"
    )]
    RetriesOverloaded {
        /// The last reason why the command did not run.
        last: Arc<str>,
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
        /// The reason of the loss.
        reason: Arc<str>,
    },
    /// The node left the cluster before the command was written, and its new owner was not reached
    /// before the deadline.
    #[error("redis at {node} left the cluster before the command was sent")]
    NodeLeft {
        /// The node's address.
        node: Arc<str>,
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
    #[error("no redis node is known to own hash slot {slot}{}", after_colon(reason.as_deref()))]
    NoOwner {
        /// The slot.
        slot: u16,
        /// The answers of the last servers or sentinels that were queried for the owner. `None` if
        /// none was queried yet, or if some of them named owners. The answer of a sentinel begins
        /// with the word `sentinel`.
        reason: Option<Arc<str>>,
    },
    /// An earlier group of the same batch failed, and groups run one after the other.
    #[error("an earlier part of the batch failed")]
    Skipped,
    /// The client was closed.
    #[error("the redis client is closed")]
    Closed,
}

fn after_colon(reason: Option<&str>) -> String {
    reason
        .map(|reason| format!(": {reason}"))
        .unwrap_or_default()
}

/// Reply by which the server says that it did not run a command.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct Rejected {
    /// The kind of the reply.
    pub kind: Rejection,
    /// The text as Redis sent it, code first: `LOADING Redis is loading the dataset in memory`.
    pub message: Arc<str>,
}

/// Kinds of replies by which a server says that it did not run a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rejection {
    /// Another node owns the slot.
    Moved {
        /// The slot.
        slot: u16,
        /// The owner, as `host:port`. An empty host means the host of the server that answered.
        endpoint: Arc<str>,
    },
    /// The slot is moving, and this key is at the other node already.
    Ask {
        /// The slot.
        slot: u16,
        /// The other node, as `host:port`. An empty host means the host of the server that
        /// answered.
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
    /// The connection is no longer authenticated.
    Unauthenticated,
}

/// Reason why it is unknown whether a command ran.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unknown {
    /// The connection broke after the command was written.
    #[error("the connection to redis at {node} was lost while waiting for the reply: {reason}")]
    ConnectionLost {
        /// The node's address.
        node: Arc<str>,
        /// The reason of the loss.
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
        /// The expected type.
        expected: &'static str,
        /// The reply.
        reply: Reply,
    },
}

impl Outcome {
    /// Classifies the answer to a command.
    #[inline]
    pub(crate) fn from_answer(answer: Result<Reply, ServerError>) -> Self {
        match answer {
            Ok(reply) => Self::Reply(reply),
            Err(error) => Self::from_error(error),
        }
    }

    /// Separates errors of commands that did not run and may be retried from errors that a retry
    /// would not change.
    ///
    /// Only the code, the first word, counts: the rest may quote a user's data.
    fn from_error(error: ServerError) -> Self {
        match rejection(&error.message) {
            Some(kind) => Self::Rejected(Rejected {
                kind,
                message: error.message,
            }),
            None => Self::ServerError(error),
        }
    }

    /// Returns the reply, or the error that says why there is none.
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

    /// Returns whether the command did not run, for a reason that may pass within a call.
    pub(crate) fn may_be_sent_again(&self) -> bool {
        match self {
            Self::NotSent(reason) => matches!(
                reason,
                NotSent::ConnectionLost { .. }
                    | NotSent::NodeLeft { .. }
                    | NotSent::NoOwner { .. }
                    | NotSent::Unavailable { .. }
            ),
            Self::Rejected(_) => true,
            Self::Reply(_) | Self::ServerError(_) | Self::Unknown(_) => false,
        }
    }

    /// Returns whether a repeatable command at the end of its unit is sent again although
    /// [`Outcome::may_be_sent_again`] is false. With `begun`, a command before it may have run:
    /// then a full queue or a failed group does not end it.
    pub(crate) fn may_be_repeated(&self, begun: bool) -> bool {
        match self {
            Self::Unknown(Unknown::ConnectionLost { .. }) => true,
            Self::NotSent(NotSent::Overloaded { .. } | NotSent::Skipped) => begun,
            _ => false,
        }
    }

    /// Returns whether the server ran the command, or may have.
    pub(crate) fn may_have_run(&self) -> bool {
        matches!(self, Self::Reply(_) | Self::Unknown(_))
    }

    /// Returns whether the server answered and a retry would not change the answer.
    pub(crate) fn is_answered(&self) -> bool {
        matches!(self, Self::Reply(_) | Self::ServerError(_))
    }

    /// Returns whether the server ran the command and replied.
    pub(crate) fn ran(&self) -> bool {
        matches!(self, Self::Reply(_))
    }

    /// Returns the reply as an integer.
    ///
    /// # Errors
    /// As [`Outcome::reply`], and [`CommandError::UnexpectedReply`] for a reply of another type.
    pub fn integer(&self) -> Result<i64, CommandError> {
        match self.reply()? {
            Reply::Integer(value) => Ok(*value),
            other => Err(CommandError::UnexpectedReply {
                expected: "an integer",
                reply: other.clone(),
            }),
        }
    }

    /// Returns the reply as bytes. `None` for a null reply.
    ///
    /// # Errors
    /// As [`Outcome::reply`], and [`CommandError::UnexpectedReply`] for a reply of another type.
    pub fn bytes(&self) -> Result<Option<&[u8]>, CommandError> {
        match self.reply()? {
            Reply::Bulk(bytes) | Reply::Simple(bytes) => Ok(Some(bytes)),
            Reply::Null => Ok(None),
            other => Err(CommandError::UnexpectedReply {
                expected: "a string",
                reply: other.clone(),
            }),
        }
    }
}

/// Parses how an error reply says that the command did not run. `None` for other errors.
fn rejection(message: &str) -> Option<Rejection> {
    let mut words = message.split(' ');
    Some(match words.next()? {
        "LOADING" => Rejection::Loading,
        "BUSY" => Rejection::Busy,
        "MASTERDOWN" => Rejection::MasterDown,
        "READONLY" => Rejection::ReadOnly,
        "TRYAGAIN" => Rejection::TryAgain,
        "CLUSTERDOWN" => Rejection::ClusterDown,
        "NOAUTH" => Rejection::Unauthenticated,
        code @ ("MOVED" | "ASK") => {
            let slot = words.next()?.parse().ok()?;
            let endpoint = words.next()?.into();
            match code {
                "MOVED" => Rejection::Moved { slot, endpoint },
                _ => Rejection::Ask { slot, endpoint },
            }
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(message: &str, expected: Outcome) {
        assert_eq!(
            Outcome::from_answer(Err(ServerError {
                message: message.into()
            })),
            expected,
            "{message}"
        );
    }

    #[test]
    fn what_the_server_did_not_run_is_rejected() {
        let moved = |endpoint: &str| Rejection::Moved {
            slot: 3999,
            endpoint: endpoint.into(),
        };
        for (message, kind) in [
            (
                "LOADING Redis is loading the dataset in memory",
                Rejection::Loading,
            ),
            (
                "READONLY You can't write against a read only replica.",
                Rejection::ReadOnly,
            ),
            ("MASTERDOWN Link with MASTER is down", Rejection::MasterDown),
            (
                "TRYAGAIN Multiple keys request during rehashing of slot",
                Rejection::TryAgain,
            ),
            ("TRYAGAIN", Rejection::TryAgain),
            ("CLUSTERDOWN Hash slot not served", Rejection::ClusterDown),
            ("BUSY Redis is busy running a script.", Rejection::Busy),
            (
                "NOAUTH Authentication required.",
                Rejection::Unauthenticated,
            ),
            ("MOVED 3999 127.0.0.1:6381", moved("127.0.0.1:6381")),
            ("MOVED 3999 :6381", moved(":6381")),
            (
                "MOVED 3999 2001:db8::1:6381 and more",
                moved("2001:db8::1:6381"),
            ),
            (
                "ASK 1 host:1",
                Rejection::Ask {
                    slot: 1,
                    endpoint: "host:1".into(),
                },
            ),
        ] {
            check(
                message,
                Outcome::Rejected(Rejected {
                    kind,
                    message: message.into(),
                }),
            );
        }
    }

    #[test]
    fn an_error_is_rejected_only_by_its_code() {
        for message in [
            "ERR LOADING",
            "ERR MOVED 1 a:1",
            "MOVED",
            "MOVED x a:1",
            "MOVED 70000 a:1",
            "ASK 1",
            "MOVEDX 1 a:1",
            "WRONGTYPE Operation",
            "",
            "OOM command not allowed",
            "loading",
            "CROSSSLOT",
        ] {
            check(
                message,
                Outcome::ServerError(ServerError {
                    message: message.into(),
                }),
            );
        }
    }
}
