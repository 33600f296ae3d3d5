//! Change notices: messages between servers that jobs became ready, or that a timer is due soon.
//! They replace polling. A notice may get lost, and it may announce more than there is.

pub(crate) mod release;

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::codec::{Change, ReadyRow, TimerMove, Write};
use crate::model::{Partition, Timestamp};

/// The first byte of all notices, which are never stored.
const VERSION: u8 = 1;
/// Number of queues that a notice names. A notice with more of them means all queues: a claim then
/// reads more, and the message stays short.
const MAX_QUEUES: usize = 32;

/// The name of a server among the servers of its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub u64);

impl std::fmt::Display for ServerId {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{:016x}", self.0)
    }
}

impl std::str::FromStr for ServerId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u64::from_str_radix(text, 16).map(Self)
    }
}

/// Queues or lanes with newly ready jobs, each with the highest priority of these jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReadyQueues {
    Queues(Vec<(String, u8)>),
    /// More than [`MAX_QUEUES`] queues.
    AllQueues,
}

/// A notice of one server about changes of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChangeNotice {
    pub(crate) by: ServerId,
    pub(crate) ready: ReadyQueues,
    /// The earliest timer that was written.
    pub(crate) due: Option<Timestamp>,
}

impl ChangeNotice {
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut message = vec![VERSION];
        message.extend_from_slice(&self.by.0.to_be_bytes());
        message.extend_from_slice(&self.due.map_or(u64::MAX, Timestamp::micros).to_be_bytes());
        match &self.ready {
            ReadyQueues::Queues(queues) => {
                message.push(queues.len() as u8);
                for (queue, priority) in queues {
                    message.push(*priority);
                    message.extend_from_slice(queue.as_bytes());
                    message.push(0);
                }
            }
            ReadyQueues::AllQueues => message.push(u8::MAX),
        }
        message
    }

    /// Reads a message. `None` if it has another version.
    pub(crate) fn read(message: &[u8]) -> Option<Self> {
        let (&VERSION, rest) = message.split_first()? else {
            return None;
        };
        let (by, rest) = rest.split_first_chunk()?;
        let (due, rest) = rest.split_first_chunk()?;
        let due = Some(u64::from_be_bytes(*due))
            .filter(|&due| due != u64::MAX)
            .map(Timestamp::from_micros);
        let by = ServerId(u64::from_be_bytes(*by));
        let ready = ReadyQueues::read(rest)?;
        Some(Self { by, ready, due })
    }
}

/// Decides which changes of this server are announced to other servers.
#[derive(Debug)]
pub(crate) struct Notifier {
    pub(crate) server: ServerId,
    /// Whether there may be other servers. True at the start, because no other server knows of a
    /// new one.
    has_peers: AtomicBool,
    /// For each partition a time in microseconds; timers before it are announced. The server that
    /// sweeps the partition finds later ones itself. 0 if this server sweeps it.
    announce_before: Vec<AtomicU64>,
}

impl Notifier {
    pub(crate) fn new(server: ServerId, partitions: u16) -> Self {
        let announce_before = (0..partitions).map(|_| AtomicU64::new(u64::MAX)).collect();
        Self {
            server,
            has_peers: AtomicBool::new(true),
            announce_before,
        }
    }

    pub(crate) fn set_has_peers(&self, has_peers: bool) {
        self.has_peers.store(has_peers, Relaxed);
    }

    pub(crate) fn has_peers(&self) -> bool {
        self.has_peers.load(Relaxed)
    }

    /// Announces the timers of a partition that are due before `before`. `None` if this server
    /// sweeps the partition, so that no timer is announced.
    pub(crate) fn set_announce_before(&self, partition: Partition, before: Option<Timestamp>) {
        if let Some(announce_before) = self.announce_before.get(usize::from(partition.0)) {
            announce_before.store(before.map_or(0, Timestamp::micros), Relaxed);
        }
    }

    /// The notice about changes of a partition. `None` if there is nothing to announce.
    pub(crate) fn notice_for<'a>(
        &self,
        partition: Partition,
        changes: impl IntoIterator<Item = &'a Change>,
    ) -> Option<ChangeNotice> {
        let announce_before = self
            .announce_before
            .get(usize::from(partition.0))
            .map_or(u64::MAX, |announce_before| announce_before.load(Relaxed));
        if !self.has_peers() {
            return None;
        }
        let mut ready = ReadyQueues::Queues(Vec::new());
        let mut due = None;
        for change in changes {
            let Write::Put(put) = &change.write else {
                continue;
            };
            let added = put.ready.add.iter();
            added
                .filter_map(|row| ReadyRow::read(row))
                .for_each(|row| ready.add(row));
            let moves = [put.timer, put.expiry].into_iter();
            let times = moves.filter_map(|timer_move| due_before(timer_move, announce_before));
            due = due.into_iter().chain(times).min();
        }
        let is_empty = ready == ReadyQueues::Queues(Vec::new()) && due.is_none();
        (!is_empty).then_some(ChangeNotice {
            by: self.server,
            ready,
            due,
        })
    }
}

/// The time that a timer moves to, if it is before `end` in microseconds.
fn due_before(timer_move: TimerMove, end: u64) -> Option<Timestamp> {
    match timer_move {
        TimerMove::To(at) if at.micros() < end => Some(at),
        _ => None,
    }
}

impl ReadyQueues {
    fn read(text: &[u8]) -> Option<Self> {
        let (&number, mut rest) = text.split_first()?;
        if number == u8::MAX {
            return Some(Self::AllQueues);
        }
        let mut queues = Vec::new();
        for _ in 0..number {
            let (&priority, name) = rest.split_first()?;
            let end = name.iter().position(|&byte| byte == 0)?;
            queues.push((std::str::from_utf8(&name[..end]).ok()?.to_owned(), priority));
            rest = &name[end + 1..];
        }
        Some(Self::Queues(queues))
    }

    fn add(&mut self, row: ReadyRow<'_>) {
        let Self::Queues(queues) = self else { return };
        let priority = row.key.priority();
        let name = queue_or_lane(row);
        if let Some((_, highest)) = queues.iter_mut().find(|(queue, _)| *queue == *name) {
            *highest = priority.max(*highest);
        } else if queues.len() < MAX_QUEUES {
            queues.push((name.into_owned(), priority));
        } else {
            *self = Self::AllQueues;
        }
    }
}

/// The name of a queue, or of a lane of jobs with limits. A server that waits for a permit of one
/// lane need not read the whole queue. No name contains the separator.
fn queue_or_lane<'a>(row: ReadyRow<'a>) -> Cow<'a, str> {
    match row.limit_key {
        "" => Cow::Borrowed(row.queue),
        limits => Cow::Owned([row.queue, row.handler, limits].join(LANE_SEPARATOR)),
    }
}

const LANE_SEPARATOR: &str = "\u{1}";

/// Splits a name of [`ReadyQueues::Queues`] into its queue and, for a lane, the handler and the key
/// of limits.
pub(crate) fn parse_queue_or_lane(name: &str) -> (&str, Option<(&str, &str)>) {
    let mut parts = name.splitn(3, LANE_SEPARATOR);
    let queue = parts.next().unwrap_or_default();
    (queue, parts.next().zip(parts.next()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Put, ReadyJob, RowChange};
    use crate::model::{JobIndex, WorkflowId};

    const SERVER: ServerId = ServerId(7);

    fn change(queues: &[(&str, u8)], timer: TimerMove) -> Change {
        let workflow = WorkflowId::new(Timestamp::default(), Partition(1), 1);
        let row = |&(queue, priority): &(&str, u8)| {
            let queue = queue.to_owned();
            let handler = String::new();
            let since = Timestamp::default();
            ReadyJob {
                queue,
                handler,
                limit_key: String::new(),
                priority,
                since,
                workflow,
                job: JobIndex(0),
            }
            .row()
        };
        let ready = RowChange {
            add: queues.iter().map(row).collect(),
            remove: Vec::new(),
        };
        let put = Put {
            ready,
            timer,
            ..Put::default()
        };
        Change {
            workflow,
            expected: None,
            small: false,
            write: Write::Put(Box::new(put)),
        }
    }

    fn check(changes: &[Change], ready: &[(&str, u8)], due: Option<u64>) {
        let notifier = Notifier::new(SERVER, 2);
        notifier.set_announce_before(Partition(1), Some(Timestamp::from_micros(100)));
        let notice = notifier.notice_for(Partition(1), changes).unwrap();
        let ready = ready
            .iter()
            .map(|&(queue, priority)| (queue.to_owned(), priority))
            .collect();
        let due = due.map(Timestamp::from_micros);
        let expected = ChangeNotice {
            by: SERVER,
            ready: ReadyQueues::Queues(ready),
            due,
        };
        assert_eq!(notice, expected);
        assert_eq!(ChangeNotice::read(&notice.write()), Some(expected));
    }

    #[test]
    fn a_notice_names_queues_and_timers() {
        let at = |micros| TimerMove::To(Timestamp::from_micros(micros));
        check(
            &[change(&[("a", 0), ("b", 0)], at(200))],
            &[("a", 0), ("b", 0)],
            None,
        );
        let two = [
            change(&[("a", 1)], TimerMove::Remove),
            change(&[("a", 3), ("b", 2)], TimerMove::Unchanged),
        ];
        check(&two, &[("a", 3), ("b", 2)], None);
        check(&[change(&[], at(99)), change(&[], at(50))], &[], Some(50));
        let all: Vec<Change> = (0..40)
            .map(|at| change(&[(&format!("q{at}"), 0)], TimerMove::Unchanged))
            .collect();
        let notice = Notifier::new(SERVER, 2)
            .notice_for(Partition(1), &all)
            .unwrap();
        assert_eq!(notice.ready, ReadyQueues::AllQueues);
        assert_eq!(ChangeNotice::read(&notice.write()), Some(notice));
    }

    #[test]
    fn changes_without_receivers_are_not_announced() {
        let notifier = Notifier::new(SERVER, 2);
        notifier.set_announce_before(Partition(1), None);
        assert_eq!(
            notifier.notice_for(
                Partition(1),
                &[change(&[], TimerMove::To(Timestamp::default()))]
            ),
            None
        );
        assert!(
            notifier
                .notice_for(Partition(1), &[change(&[("a", 0)], TimerMove::Remove)])
                .is_some()
        );
        notifier.set_has_peers(false);
        assert_eq!(
            notifier.notice_for(Partition(1), &[change(&[("a", 0)], TimerMove::Remove)]),
            None
        );
        for message in [&b""[..], b"\x02", b"\x01short", &[1; 17]] {
            assert_eq!(ChangeNotice::read(message), None);
        }
    }
}
