//! Pending replies of a server, and what each reply means for its command.

use tokio::sync::oneshot;

use crate::stats::{Counters, count};
use crate::wire::{self, InvalidReply, Reply};

/// Result of reading a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CounterRead {
    /// The counter does not exist.
    Missing,
    /// Value of the counter.
    Count(u64),
    /// The key holds a value that is not a number.
    Foreign,
    /// The server gave no answer.
    Unknown,
}

/// The expected replies to one command.
#[derive(Debug)]
pub(crate) enum PendingReply {
    Values(Values),
    /// Reply to `add`.
    Added,
    /// Reply to `incr` or `decr`, with the charge to repeat if the counter is gone.
    Changed(Option<RetryCharge>),
}

/// Results of one `get` so far.
#[derive(Debug)]
pub(crate) struct Values {
    /// The requested keys, separated by spaces.
    keys: Box<[u8]>,
    /// The result for each key so far.
    found: Vec<CounterRead>,
    /// The key after the last one that was answered. A server that answers in the order of the
    /// request continues here.
    next: Cursor,
    /// Number of keys that were answered.
    answered: usize,
    /// Receives the results. `None` after they were sent.
    sender: Option<oneshot::Sender<Vec<CounterRead>>>,
}

/// A position in the list of keys.
#[derive(Debug, Clone, Copy, Default)]
struct Cursor {
    /// Offset in bytes of the start of the key.
    at: usize,
    /// Number of keys before this one.
    index: usize,
}

/// A charge of a counter that existed when it was read.
#[derive(Debug)]
pub(crate) struct RetryCharge {
    pub(crate) key: Box<[u8]>,
    pub(crate) hits: u64,
    pub(crate) expiry: u64,
}

/// Effect of a reply on its command.
#[derive(Debug)]
pub(crate) enum ReplyStep {
    /// More replies to the command follow.
    More,
    /// More replies follow, after this many bytes that must be skipped.
    Skip(usize),
    Done,
    /// The command is complete, and this charge must be repeated.
    RetryCharge(RetryCharge),
}

impl PendingReply {
    pub(crate) fn values(
        keys: Box<[u8]>,
        number: usize,
        sender: oneshot::Sender<Vec<CounterRead>>,
    ) -> Self {
        Self::Values(Values {
            keys,
            found: vec![CounterRead::Missing; number],
            next: Cursor::default(),
            answered: 0,
            sender: Some(sender),
        })
    }

    /// Returns the bytes of memory that this reply holds.
    pub(crate) fn bytes(&self) -> usize {
        let more = match self {
            Self::Values(values) => {
                values.keys.len() + values.found.capacity() * size_of::<CounterRead>()
            }
            Self::Changed(Some(retry)) => retry.key.len(),
            Self::Added | Self::Changed(None) => 0,
        };
        size_of::<Self>() + more
    }

    /// Applies a reply to its command and counts the result.
    ///
    /// # Errors
    /// The reply does not belong to this command. The rest of the stream is invalid, too.
    pub(crate) fn on_reply(
        &mut self,
        reply: Reply<'_>,
        counters: &Counters,
    ) -> Result<ReplyStep, InvalidReply> {
        let counter = match (self, reply) {
            (Self::Values(values), reply) => return values.on_reply(reply, counters),
            (Self::Added, Reply::Stored) => &counters.adds,
            (Self::Added, Reply::NotStored) => &counters.unneeded_adds,
            (Self::Added, Reply::Refused) => &counters.failed_adds,
            (Self::Changed(_), Reply::Number) => &counters.changes,
            (Self::Changed(_), Reply::Refused) => &counters.failed_changes,
            (Self::Changed(retry), Reply::NotFound) => {
                count(&counters.missed_changes, 1);
                return Ok(retry.take().map_or(ReplyStep::Done, ReplyStep::RetryCharge));
            }
            (_, reply) => return Err(unexpected(&reply)),
        };
        count(counter, 1);
        Ok(ReplyStep::Done)
    }

    /// Counts the command as failed: it gets no reply.
    pub(crate) fn fail(self, counters: &Counters) {
        match self {
            // The caller sees that the sender was dropped.
            Self::Values(_) => {}
            Self::Added => count(&counters.failed_adds, 1),
            Self::Changed(_) => count(&counters.failed_changes, 1),
        }
    }
}

impl Values {
    fn on_reply(
        &mut self,
        reply: Reply<'_>,
        counters: &Counters,
    ) -> Result<ReplyStep, InvalidReply> {
        match reply {
            Reply::Value { key, value } => {
                self.record(
                    key,
                    wire::count(value).map_or(CounterRead::Foreign, CounterRead::Count),
                )?;
                Ok(ReplyStep::More)
            }
            Reply::OversizedValue { key, rest } => {
                self.record(key, CounterRead::Foreign)?;
                Ok(ReplyStep::Skip(rest))
            }
            Reply::End => {
                self.send(counters);
                Ok(ReplyStep::Done)
            }
            // No result is sent, so all keys are unknown to the caller.
            Reply::Refused => Ok(ReplyStep::Done),
            other => Err(unexpected(&other)),
        }
    }

    /// Records the value of a key. A server answers in the order of the request; a proxy in front
    /// of several servers answers in any order.
    fn record(&mut self, key: &[u8], found: CounterRead) -> Result<(), InvalidReply> {
        self.answered += 1;
        if self.answered > self.found.len() {
            return Err(InvalidReply(
                "the server answered with more values than keys were asked for".to_owned(),
            ));
        }
        if let Some(place) = self.advance_to(key) {
            self.found[place] = found;
            return Ok(());
        }
        let mut is_requested = false;
        for (requested, place) in self.keys.split(|&byte| byte == b' ').zip(&mut self.found) {
            if requested == key {
                *place = found;
                is_requested = true;
            }
        }
        if is_requested {
            Ok(())
        } else {
            Err(InvalidReply(
                "the server answered with a key that was not asked for".to_owned(),
            ))
        }
    }

    /// Returns the position of a key at or after the cursor, and moves the cursor past it. The
    /// skipped keys were not found, or are answered later.
    fn advance_to(&mut self, key: &[u8]) -> Option<usize> {
        let Cursor { mut at, mut index } = self.next;
        while let Some(rest) = self.keys.get(at..).filter(|rest| !rest.is_empty()) {
            let length = rest
                .iter()
                .position(|&byte| byte == b' ')
                .unwrap_or(rest.len());
            at += length + 1;
            index += 1;
            if rest[..length] == *key {
                self.next = Cursor { at, index };
                return Some(index - 1);
            }
        }
        None
    }

    fn send(&mut self, counters: &Counters) {
        let found = std::mem::take(&mut self.found);
        let number = |wanted| found.iter().filter(|found| **found == wanted).count();
        let missing = number(CounterRead::Missing);
        count(&counters.keys_found, found.len() - missing);
        count(&counters.foreign_values, number(CounterRead::Foreign));
        if let Some(sender) = self.sender.take() {
            // The caller may have stopped waiting.
            let _ = sender.send(found);
        }
    }
}

fn unexpected(reply: &Reply<'_>) -> InvalidReply {
    InvalidReply(format!(
        "the server sent a reply that was not due: {reply:?}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(keys: &str) -> (PendingReply, oneshot::Receiver<Vec<CounterRead>>) {
        let (sender, receiver) = oneshot::channel();
        (
            PendingReply::values(keys.as_bytes().into(), keys.split(' ').count(), sender),
            receiver,
        )
    }

    fn value<'b>(key: &'b str, value: &'b str) -> Reply<'b> {
        Reply::Value {
            key: key.as_bytes(),
            value: value.as_bytes(),
        }
    }

    fn check(keys: &str, replies: &[Reply<'_>], expected: &[CounterRead]) {
        let (mut owed, mut receiver) = values(keys);
        let counters = Counters::default();
        for reply in replies {
            owed.on_reply(*reply, &counters).unwrap();
        }
        assert_eq!(receiver.try_recv().unwrap(), expected, "{keys}");
    }

    #[test]
    fn values_are_matched_to_the_requested_keys() {
        use CounterRead::{Count, Foreign, Missing};
        check("a b c", &[Reply::End], &[Missing, Missing, Missing]);
        check(
            "a b c",
            &[value("b", "7"), Reply::End],
            &[Missing, Count(7), Missing],
        );
        check(
            "a b c",
            &[value("a", "1"), value("c", "x"), Reply::End],
            &[Count(1), Missing, Foreign],
        );
        check(
            "a a",
            &[value("a", "1"), value("a", "1"), Reply::End],
            &[Count(1), Count(1)],
        );
        check(
            "a b",
            &[
                Reply::OversizedValue {
                    key: b"a",
                    rest: 99,
                },
                value("b", "2"),
                Reply::End,
            ],
            &[Foreign, Count(2)],
        );
    }

    /// A proxy in front of several servers, such as twemproxy, answers in the order in which they
    /// do.
    #[test]
    fn values_may_come_in_any_order() {
        use CounterRead::{Count, Foreign, Missing};
        check(
            "a b c",
            &[
                value("c", "3"),
                value("a", "1"),
                value("b", "2"),
                Reply::End,
            ],
            &[Count(1), Count(2), Count(3)],
        );
        check(
            "a b c d",
            &[value("c", "3"), value("a", "1"), Reply::End],
            &[Count(1), Missing, Count(3), Missing],
        );
        check(
            "a aa a",
            &[
                value("aa", "2"),
                value("a", "1"),
                value("a", "1"),
                Reply::End,
            ],
            &[Count(1), Count(2), Count(1)],
        );
        check(
            "a aa",
            &[
                value("aa", "2"),
                Reply::OversizedValue {
                    key: b"a",
                    rest: 99,
                },
                Reply::End,
            ],
            &[Foreign, Count(2)],
        );
    }

    #[test]
    fn a_server_that_answers_something_else_is_not_believed() {
        let counters = Counters::default();
        for replies in [
            &[value("x", "1")][..],
            &[value("", "1")],
            &[value("a b", "1")],
            &[value("b", "1"), value("x", "1")],
            &[value("b", "1"), value("a", "1"), value("a", "1")],
            &[Reply::Stored],
            &[Reply::Number],
        ] {
            let (mut owed, _told) = values("a b");
            let refused = replies
                .iter()
                .any(|reply| owed.on_reply(*reply, &counters).is_err());
            assert!(refused, "{replies:?}");
        }
        for reply in [Reply::End, value("a", "1"), Reply::NotFound] {
            assert!(
                PendingReply::Added.on_reply(reply, &counters).is_err(),
                "{reply:?}"
            );
        }
    }

    #[test]
    fn a_counter_that_is_gone_is_charged_again() {
        let counters = Counters::default();
        let again = RetryCharge {
            key: b"a".as_slice().into(),
            hits: 2,
            expiry: 60,
        };
        let step = PendingReply::Changed(Some(again))
            .on_reply(Reply::NotFound, &counters)
            .unwrap();
        assert!(matches!(
            step,
            ReplyStep::RetryCharge(RetryCharge { hits: 2, .. })
        ));
        let step = PendingReply::Changed(None)
            .on_reply(Reply::NotFound, &counters)
            .unwrap();
        assert!(matches!(step, ReplyStep::Done));
        assert_eq!(counters.read().missed_changes, 2);
    }
}
