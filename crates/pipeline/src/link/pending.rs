//! The pending replies, in the order in which the server sends them.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::time::Instant;

use crate::batch::{Batch, Load};
use crate::call::CallGroup;
use crate::outcome::{NotSent, Outcome, Unknown};

/// The groups whose replies are pending.
///
/// **Invariant:** their order is the order of the bytes on the wire. A group leaves only when all
/// its replies were read or the connection broke, whether or not its caller still waits. So a reply
/// never reaches another caller.
#[derive(Debug, Default)]
pub(crate) struct PendingReplies {
    groups: VecDeque<PendingGroup>,
    commands: usize,
    /// Commands that must be sent although their callers have left, until the connection takes
    /// them.
    left_behind: Vec<Batch>,
}

#[derive(Debug)]
struct PendingGroup {
    group: CallGroup,
    /// Outcomes of its first commands.
    outcomes: Vec<Outcome>,
    commands: usize,
    /// Offset of its first byte in the stream of written bytes.
    start: u64,
    written_at: Instant,
}

/// Result of a group whose last reply was read.
pub(crate) struct FinishedGroup {
    pub(crate) load: Load,
    /// Time at which the group was written.
    pub(crate) written_at: Instant,
}

impl PendingReplies {
    /// Returns the number of groups with pending replies.
    pub(crate) fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Returns the number of pending replies.
    #[inline]
    pub(crate) fn commands(&self) -> usize {
        self.commands
    }

    /// Returns the time at which the oldest pending group was written.
    #[inline]
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.groups.front().map(|head| head.written_at)
    }

    /// Returns the groups with their deadlines.
    #[inline]
    pub(crate) fn deadlines(&self) -> impl Iterator<Item = (Instant, &CallGroup)> {
        self.groups
            .iter()
            .map(|pending| (pending.group.call.deadline, &pending.group))
    }

    /// Adds a group whose first byte is at `start` in the stream of written bytes.
    #[inline]
    pub(crate) fn push(&mut self, group: CallGroup, start: u64, written_at: Instant) {
        let commands = group.load().commands;
        self.commands += commands;
        self.groups.push_back(PendingGroup {
            group,
            outcomes: Vec::with_capacity(commands),
            commands,
            start,
            written_at,
        });
    }

    /// Adds the next reply to its group. Returns the finished group if the reply was its last one.
    ///
    /// # Errors
    /// No reply is pending.
    #[inline]
    pub(crate) fn on_reply(&mut self, outcome: Outcome) -> Result<Option<FinishedGroup>, String> {
        let Some(head) = self.groups.front_mut() else {
            return Err(format!("a reply that no command asked for: {outcome:?}"));
        };
        head.outcomes.push(outcome);
        self.commands -= 1;
        if head.outcomes.len() < head.commands {
            return Ok(None);
        }
        let head = self
            .groups
            .pop_front()
            .expect("the head was just looked at");
        let finished = FinishedGroup {
            load: head.group.load(),
            written_at: head.written_at,
        };
        self.left_behind.extend(head.group.finish(head.outcomes));
        Ok(Some(finished))
    }

    /// Finishes all groups with the outcomes that are known, after the connection to `node` broke
    /// with `written` bytes sent.
    pub(crate) fn fail(&mut self, node: &Arc<str>, written: u64, reason: &Arc<str>) {
        self.commands = 0;
        for PendingGroup {
            group,
            mut outcomes,
            start,
            ..
        } in self.groups.drain(..)
        {
            let missing: Vec<Outcome> = command_ends(&group, start)
                .skip(outcomes.len())
                .map(|end| lost_outcome(end <= written, node, reason))
                .collect();
            outcomes.extend(missing);
            self.left_behind.extend(group.finish(outcomes));
        }
    }

    /// Takes the commands that must be sent although their callers have left.
    #[inline]
    pub(crate) fn take_left_behind(&mut self) -> Vec<Batch> {
        std::mem::take(&mut self.left_behind)
    }
}

/// Returns the outcome of a command without a reply. Redis runs a command only after its last byte
/// has arrived.
fn lost_outcome(all_written: bool, node: &Arc<str>, reason: &Arc<str>) -> Outcome {
    let node = node.clone();
    let reason = reason.clone();
    if all_written {
        Outcome::Unknown(Unknown::ConnectionLost { node, reason })
    } else {
        Outcome::NotSent(NotSent::ConnectionLost { node, reason })
    }
}

/// Returns the end of each command of a group in the stream of written bytes.
fn command_ends(group: &CallGroup, start: u64) -> impl Iterator<Item = u64> {
    let batch = &group.call.batch;
    let commands = group
        .units()
        .ranges
        .iter()
        .flat_map(|units| batch.commands_of(units.clone()));
    commands.scan(start, |end, command| {
        *end += batch.bytes_of(command..command + 1).len() as u64;
        Some(*end)
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::call::{Call, Unanswered, UnitSet};
    use crate::wire::Reply;

    /// The encoded size of a PING.
    const PING: u64 = 14;

    /// Adds a call of `pings` PINGs in one group, which begins at `start` in the stream.
    fn push(pending: &mut PendingReplies, pings: u32, start: u64) -> Arc<Call> {
        let mut batch = Batch::new();
        let mut units = UnitSet::default();
        for unit in 0..pings {
            batch.unit().command("PING", &[]);
            units.push(unit, batch.load_of(unit));
        }
        let call = Call::new(
            batch,
            [units].into_iter().collect(),
            Instant::now() + Duration::from_secs(60),
        );
        pending.push(CallGroup::new(&call, 0), start, Instant::now());
        call
    }

    fn reply(value: i64) -> Outcome {
        Outcome::Reply(Reply::Integer(value))
    }

    fn outcomes(call: &Call) -> Vec<Outcome> {
        call.leave(|_, why| panic!("the group has no outcomes: {why:?}"))
    }

    /// A call has loom's lock, which works inside a model only.
    fn check(test: impl Fn() + Send + Sync + 'static) {
        loom::model(test);
    }

    #[test]
    fn replies_go_to_groups_in_the_order_of_the_bytes() {
        check(|| {
            let mut owed = PendingReplies::default();
            let first = push(&mut owed, 2, 0);
            let second = push(&mut owed, 1, 2 * PING);
            assert_eq!((owed.groups(), owed.commands()), (2, 3));
            assert!(owed.on_reply(reply(1)).unwrap().is_none());
            assert_eq!(
                owed.on_reply(reply(2)).unwrap().unwrap().load,
                Load {
                    commands: 2,
                    bytes: 2 * PING as usize
                }
            );
            assert_eq!((owed.groups(), owed.commands()), (1, 1));
            assert!(owed.on_reply(reply(3)).unwrap().is_some());
            assert_eq!((owed.groups(), owed.commands()), (0, 0));
            assert_eq!(
                (outcomes(&first), outcomes(&second)),
                (vec![reply(1), reply(2)], vec![reply(3)])
            );
        });
    }

    #[test]
    fn a_caller_that_left_still_takes_its_reply_off_the_wire() {
        check(|| {
            let mut owed = PendingReplies::default();
            let left = push(&mut owed, 1, 0);
            let stays = push(&mut owed, 1, PING);
            assert_eq!(left.leave(|_, _: Unanswered| reply(0)), [reply(0)]);
            assert!(owed.on_reply(reply(1)).unwrap().is_some());
            assert!(owed.on_reply(reply(2)).unwrap().is_some());
            assert_eq!(outcomes(&stays), [reply(2)]);
        });
    }

    #[test]
    fn a_reply_without_a_command_is_an_error() {
        check(|| assert!(PendingReplies::default().on_reply(reply(1)).is_err()));
    }

    #[test]
    fn a_break_separates_what_was_written_from_what_was_not() {
        check(|| {
            let mut owed = PendingReplies::default();
            let call = push(&mut owed, 3, 100);
            assert!(owed.on_reply(reply(1)).unwrap().is_none());
            // One byte of the third command is missing.
            owed.fail(&"node".into(), 100 + 3 * PING - 1, &"reset".into());
            let (node, reason): (Arc<str>, Arc<str>) = ("node".into(), "reset".into());
            let unknown = Outcome::Unknown(Unknown::ConnectionLost {
                node: Arc::clone(&node),
                reason: Arc::clone(&reason),
            });
            let not_sent = Outcome::NotSent(NotSent::ConnectionLost { node, reason });
            assert_eq!(outcomes(&call), [reply(1), unknown, not_sent]);
            assert_eq!((owed.groups(), owed.commands()), (0, 0));
        });
    }
}
