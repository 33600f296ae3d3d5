//! What a server owes: the replies to the commands that it got, in their order.

use tokio::sync::oneshot;

use crate::stats::{Counters, count};
use crate::wire::{self, Garbage, Reply};

/// What is known of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CounterRead {
    /// There is none.
    Missing,
    /// It has this value.
    Count(u64),
    /// Its key holds something else than a number.
    Foreign,
    /// Its server did not say.
    Unknown,
}

/// The replies to one command.
#[derive(Debug)]
pub(crate) enum PendingReply {
    Values(Values),
    /// Of `add`.
    Added,
    /// Of `incr` or `decr`. What is to be done when the counter is gone.
    Changed(Option<RetryCharge>),
}

/// The values of the keys of one `get`.
#[derive(Debug)]
pub(crate) struct Values {
    /// The keys as they were written, with a space between two.
    keys: Box<[u8]>,
    /// The answer for each key so far.
    found: Vec<CounterRead>,
    /// The key after the one that was answered last: a server that answers in the order of the question goes on there.
    next: Cursor,
    /// Number of keys that were answered.
    answered: usize,
    /// None once it was told.
    tell: Option<oneshot::Sender<Vec<CounterRead>>>,
}

/// A place among keys.
#[derive(Debug, Clone, Copy, Default)]
struct Cursor {
    /// The byte at which the key begins.
    at: usize,
    /// The number of keys before it.
    index: usize,
}

/// A charge of a counter that was there a moment ago.
#[derive(Debug)]
pub(crate) struct RetryCharge {
    pub(crate) key: Box<[u8]>,
    pub(crate) hits: u64,
    pub(crate) expiry: u64,
}

/// What a reply means for the command that it answers.
#[derive(Debug)]
pub(crate) enum Step {
    /// There will be more.
    More,
    /// There will be more, after this many bytes without a meaning.
    Skip(usize),
    Done,
    /// That was all, and this is to be done.
    RetryCharge(RetryCharge),
}

impl PendingReply {
    pub(crate) fn values(
        keys: Box<[u8]>,
        number: usize,
        tell: oneshot::Sender<Vec<CounterRead>>,
    ) -> Self {
        Self::Values(Values {
            keys,
            found: vec![CounterRead::Missing; number],
            next: Cursor::default(),
            answered: 0,
            tell: Some(tell),
        })
    }

    /// How much memory waits with it.
    pub(crate) fn bytes(&self) -> usize {
        let more = match self {
            Self::Values(values) => {
                values.keys.len() + values.found.capacity() * size_of::<CounterRead>()
            }
            Self::Changed(Some(again)) => again.key.len(),
            Self::Added | Self::Changed(None) => 0,
        };
        size_of::<Self>() + more
    }

    /// Takes a reply, and counts what it means.
    ///
    /// # Errors
    /// It does not belong to this command: what follows cannot be trusted either.
    pub(crate) fn take(&mut self, reply: Reply<'_>, counters: &Counters) -> Result<Step, Garbage> {
        let counter = match (self, reply) {
            (Self::Values(values), reply) => return values.take(reply, counters),
            (Self::Added, Reply::Stored) => &counters.adds,
            (Self::Added, Reply::NotStored) => &counters.unneeded_adds,
            (Self::Added, Reply::Refused) => &counters.failed_adds,
            (Self::Changed(_), Reply::Number) => &counters.changes,
            (Self::Changed(_), Reply::Refused) => &counters.failed_changes,
            (Self::Changed(again), Reply::NotFound) => {
                count(&counters.missed_changes, 1);
                return Ok(again.take().map_or(Step::Done, Step::RetryCharge));
            }
            (_, reply) => return Err(unexpected(&reply)),
        };
        count(counter, 1);
        Ok(Step::Done)
    }

    /// The command gets no reply.
    pub(crate) fn fail(self, counters: &Counters) {
        match self {
            // Its caller notices that nobody will tell it.
            Self::Values(_) => {}
            Self::Added => count(&counters.failed_adds, 1),
            Self::Changed(_) => count(&counters.failed_changes, 1),
        }
    }
}

impl Values {
    fn take(&mut self, reply: Reply<'_>, counters: &Counters) -> Result<Step, Garbage> {
        match reply {
            Reply::Value { key, value } => {
                self.note(
                    key,
                    wire::count(value).map_or(CounterRead::Foreign, CounterRead::Count),
                )?;
                Ok(Step::More)
            }
            Reply::Long { key, rest } => {
                self.note(key, CounterRead::Foreign)?;
                Ok(Step::Skip(rest))
            }
            Reply::End => {
                self.told(counters);
                Ok(Step::Done)
            }
            // Nobody is told, so the caller knows of no key.
            Reply::Refused => Ok(Step::Done),
            other => Err(unexpected(&other)),
        }
    }

    /// Notes what is known of a key. A server answers in the order of the question; a proxy in front of several answers in any order.
    fn note(&mut self, key: &[u8], found: CounterRead) -> Result<(), Garbage> {
        self.answered += 1;
        if self.answered > self.found.len() {
            return Err(Garbage(
                "the server answered with more values than keys were asked for".to_owned(),
            ));
        }
        if let Some(place) = self.pass_to(key) {
            self.found[place] = found;
            return Ok(());
        }
        let mut known = false;
        for (asked, place) in self.keys.split(|&byte| byte == b' ').zip(&mut self.found) {
            if asked == key {
                *place = found;
                known = true;
            }
        }
        if known {
            Ok(())
        } else {
            Err(Garbage(
                "the server answered with a key that was not asked for".to_owned(),
            ))
        }
    }

    /// The place of a key that is the next one or comes after it. The keys between were not found, or are answered later.
    fn pass_to(&mut self, key: &[u8]) -> Option<usize> {
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

    fn told(&mut self, counters: &Counters) {
        let found = std::mem::take(&mut self.found);
        count(
            &counters.keys_found,
            found
                .iter()
                .filter(|found| **found != CounterRead::Missing)
                .count(),
        );
        count(
            &counters.foreign_values,
            found
                .iter()
                .filter(|found| **found == CounterRead::Foreign)
                .count(),
        );
        if let Some(tell) = self.tell.take() {
            // The caller may have given up.
            let _ = tell.send(found);
        }
    }
}

fn unexpected(reply: &Reply<'_>) -> Garbage {
    Garbage(format!(
        "the server sent a reply that was not due: {reply:?}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(keys: &str) -> (PendingReply, oneshot::Receiver<Vec<CounterRead>>) {
        let (tell, told) = oneshot::channel();
        (
            PendingReply::values(keys.as_bytes().into(), keys.split(' ').count(), tell),
            told,
        )
    }

    fn value<'b>(key: &'b str, value: &'b str) -> Reply<'b> {
        Reply::Value {
            key: key.as_bytes(),
            value: value.as_bytes(),
        }
    }

    fn check(keys: &str, replies: &[Reply<'_>], expected: &[CounterRead]) {
        let (mut owed, mut told) = values(keys);
        let counters = Counters::default();
        for reply in replies {
            owed.take(*reply, &counters).unwrap();
        }
        assert_eq!(told.try_recv().unwrap(), expected, "{keys}");
    }

    #[test]
    fn values_are_matched_to_the_keys_that_were_asked_for() {
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
                Reply::Long {
                    key: b"a",
                    rest: 99,
                },
                value("b", "2"),
                Reply::End,
            ],
            &[Foreign, Count(2)],
        );
    }

    /// A proxy in front of several servers, such as twemproxy, answers in the order in which they do.
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
                Reply::Long {
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
                .any(|reply| owed.take(*reply, &counters).is_err());
            assert!(refused, "{replies:?}");
        }
        for reply in [Reply::End, value("a", "1"), Reply::NotFound] {
            assert!(
                PendingReply::Added.take(reply, &counters).is_err(),
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
            .take(Reply::NotFound, &counters)
            .unwrap();
        assert!(matches!(
            step,
            Step::RetryCharge(RetryCharge { hits: 2, .. })
        ));
        let step = PendingReply::Changed(None)
            .take(Reply::NotFound, &counters)
            .unwrap();
        assert!(matches!(step, Step::Done));
        assert_eq!(counters.read().missed_changes, 2);
    }
}
