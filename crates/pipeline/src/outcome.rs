//! What became of a command.

use std::sync::Arc;

use thiserror::Error;

use crate::wire::reply::{Reply, ServerError};

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
    /// The command never left this process, or is not sent again.
    NotSent(NotSent),
    /// The server answered that it did not run the command, and the retries that fitted the deadline are used up.
    Rejected(Rejected),
    /// The command was written, and no reply will come.
    Unknown(Unknown),
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
    #[error("too many commands wait in this process for redis at {node}: it is slow or down")]
    Overloaded {
        /// The node's address.
        node: Arc<str>,
    },
    /// The command has to be sent again, and too many commands of this client wait for that already. It did not run: it was
    /// never sent, or the server said so.
    #[error(
        "too many commands wait in this process to be sent to redis again, and this one failed: {last}"
    )]
    RetriesOverloaded {
        /// Why it did not run so far.
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
        /// What broke it.
        reason: Arc<str>,
    },
    /// The node left the cluster before the command was written, and its new owner was not reached before the deadline.
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
        /// The answers of the servers, or sentinels, that were asked for the owner last; none when nobody was asked yet, or
        /// when some of them named owners. The answer of a sentinel begins with the word `sentinel`.
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
    /// What an answer says about its command.
    #[inline]
    pub(crate) fn of(answer: Result<Reply, ServerError>) -> Self {
        match answer {
            Ok(reply) => Self::Reply(reply),
            Err(error) => Self::of_error(error),
        }
    }

    /// Tells errors that say "not run, try again" from those that sending again will not change.
    ///
    /// Only the code, the first word, counts: what follows may quote a user's data.
    fn of_error(error: ServerError) -> Self {
        match rejection(&error.message) {
            Some(kind) => Self::Rejected(Rejected {
                kind,
                message: error.message,
            }),
            None => Self::ServerError(error),
        }
    }

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

    /// Whether a repeatable command that ends its unit should be sent again, for which [`Outcome::may_be_sent_again`] says
    /// no. With `begun`, a command before it may have run: then it is not given up because others were in the way.
    pub(crate) fn may_be_repeated(&self, begun: bool) -> bool {
        match self {
            Self::Unknown(Unknown::ConnectionLost { .. }) => true,
            Self::NotSent(NotSent::Overloaded { .. } | NotSent::Skipped) => begun,
            _ => false,
        }
    }

    /// Whether the server ran the command, or may have.
    pub(crate) fn may_have_run(&self) -> bool {
        matches!(self, Self::Reply(_) | Self::Unknown(_))
    }

    /// Whether the server answered, and sending the command again would not change the answer.
    pub(crate) fn is_answered(&self) -> bool {
        matches!(self, Self::Reply(_) | Self::ServerError(_))
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
            other => Err(CommandError::UnexpectedReply {
                expected: "an integer",
                reply: other.clone(),
            }),
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
            other => Err(CommandError::UnexpectedReply {
                expected: "a string",
                reply: other.clone(),
            }),
        }
    }
}

/// How an error reply says that the command did not run; none when it does not say so.
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
            Outcome::of(Err(ServerError {
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
