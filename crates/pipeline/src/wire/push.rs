//! Messages that a server pushes to a subscribed connection.

use bytes::Bytes;

use super::{Answer, Reply};

/// Messages that a server pushes to a subscribed connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Push {
    Subscribed(Bytes),
    /// The end of a subscription: requested, or because the channel's slot moved.
    Unsubscribed(Bytes),
    Message {
        channel: Bytes,
        payload: Bytes,
    },
    /// The answer to PING, which RESP2 gives in this form.
    Pong,
}

impl Push {
    /// Reads the elements of a push. `None` if it is of an unknown kind, as later versions of Redis
    /// may have.
    pub(crate) fn read(fields: &[Answer]) -> Option<Self> {
        let [Ok(Reply::Bulk(kind) | Reply::Simple(kind)), rest @ ..] = fields else {
            return None;
        };
        match (&kind[..], rest) {
            (b"message" | b"smessage", [Ok(Reply::Bulk(channel)), Ok(Reply::Bulk(payload))]) => {
                Some(Self::Message {
                    channel: channel.clone(),
                    payload: payload.clone(),
                })
            }
            (b"subscribe" | b"ssubscribe", [Ok(Reply::Bulk(channel)), ..]) => {
                Some(Self::Subscribed(channel.clone()))
            }
            (b"unsubscribe" | b"sunsubscribe", [Ok(Reply::Bulk(channel)), ..]) => {
                Some(Self::Unsubscribed(channel.clone()))
            }
            (b"pong", _) => Some(Self::Pong),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pushes_are_told_apart_by_their_first_word() {
        let check = |words: &[&'static str], expected: Option<Push>| {
            let fields: Vec<Answer> = words
                .iter()
                .map(|word| Ok(Reply::Bulk((*word).into())))
                .collect();
            assert_eq!(Push::read(&fields), expected, "{words:?}");
        };
        let message = || {
            Some(Push::Message {
                channel: "c".into(),
                payload: "p".into(),
            })
        };
        check(&["message", "c", "p"], message());
        check(&["smessage", "c", "p"], message());
        check(&["subscribe", "c", "1"], Some(Push::Subscribed("c".into())));
        check(
            &["ssubscribe", "c", "1"],
            Some(Push::Subscribed("c".into())),
        );
        check(
            &["sunsubscribe", "c", "0"],
            Some(Push::Unsubscribed("c".into())),
        );
        check(&["pong", ""], Some(Push::Pong));
        check(&["invalidate", "k"], None);
        check(&["message", "c"], None);
        check(&[], None);
    }
}
