//! One connection: the socket, and the replies it owes in order.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::AsyncWrite;
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::io::poll_read_buf;

use crate::batch::load::Load;
use crate::call::group::Group;
use crate::config::Config;
use crate::link::handshake::Greeted;
use crate::link::socket::Socket;
use crate::node::Node;
use crate::node::link::{Gone, LinkId, Turn};
use crate::outcome::{NotSent, Outcome, Unknown};
use crate::stats::count;
use crate::wire::reply::Protocol;
use crate::wire::resp;

/// With this many commands in flight a turn lets other ready tasks add theirs before it writes; with fewer, waiting
/// would only delay a caller.
const COALESCE_FROM: usize = 32;

/// With this many groups owed, and more than half of them answered at once, the server is about to have nothing to do: what
/// the callers of the first half ask next is written before the others hear. Client and server work at the same time
/// then, instead of in turns.
///
/// On two cores 64 callers went from 408 to 561 thousand commands a second, 48 from 292 to 480 thousand; with 32 it is
/// one more write for nothing.
const HALVE_FROM: usize = 48;

/// Turns before the task lets others run, so that a busy node cannot starve the rest of its core.
const TURNS_PER_POLL: usize = 16;

/// One read drains a typical burst of replies: 16 KiB are two thousand counters.
const READ_SIZE: usize = 16 * 1024;

/// Silence of this long, or of ten usual reply times, makes a connection suspect. To end it so soon would turn each pause
/// of a server into a storm of connects.
const SUSPECT_AFTER: Duration = Duration::from_millis(500);

/// A look at the clock that comes so much later than it was due says nothing about the server. A timer is late by a few
/// milliseconds on a busy thread.
const OVERSLEPT: Duration = Duration::from_millis(20);

/// Least time between two searches for calls that are overdue: how late a call may learn that it is.
const EXPIRE_AT_MOST_EVERY: Duration = Duration::from_millis(1);

/// How much the latest read counts in the mean of reply times.
const SHARE_OF_LATEST: f32 = 0.1;

/// A buffer that grew beyond this for one large reply or batch is given back when it is empty.
const KEEP_BUFFER: usize = 1 << 20;

/// The socket of one connection and the groups whose replies it owes.
///
/// The order of `owed` is the order of the bytes on the wire. An entry leaves only when all its replies were read or the
/// connection broke: whether the caller still waits does not matter, so a reply can never reach another caller.
#[derive(Debug)]
pub(crate) struct Connection {
    node: Arc<Node>,
    link: LinkId,
    socket: Socket,
    protocol: Protocol,
    read: BytesMut,
    write: BytesMut,
    /// Bytes that the socket took and may hold back still, as TLS does.
    unflushed: bool,
    /// Bytes the kernel took since the connection opened.
    written: u64,
    owed: VecDeque<Owed>,
    owed_commands: usize,
    /// The earliest deadline of what is owed, or earlier.
    earliest: Option<Instant>,
    released: Load,
    /// Groups taken from the node, not yet in `write`. Kept to reuse its memory.
    taken: Vec<Group>,
    yielded: bool,
    held: Held,
    last_read: Instant,
    /// The node was told that the connection is silent.
    suspected: bool,
    reply_time: Duration,
    watchdog: Pin<Box<Sleep>>,
    /// Whether everything owed was failed, and nothing more will be taken.
    ended: bool,
}

/// Replies that were read and not yet given to their callers. See [`HALVE_FROM`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    Nothing,
    /// The second half, until the callers of the first have had their turn.
    Half,
    /// They had it: after the next write the second half is given out.
    Due,
}

/// Why the replies that were read are not all given to their callers.
enum Stop {
    Failed(String),
    Halfway,
}

impl From<String> for Stop {
    fn from(reason: String) -> Self {
        Self::Failed(reason)
    }
}

/// A group whose replies are due.
#[derive(Debug)]
struct Owed {
    group: Group,
    /// The replies so far.
    outcomes: Vec<Outcome>,
    commands: usize,
    /// Where its first byte is in the stream of written bytes.
    start: u64,
    since: Instant,
}

impl Connection {
    pub(crate) fn new(node: Arc<Node>, link: LinkId, greeted: Greeted) -> Self {
        let Greeted { socket, protocol } = greeted;
        let stall_timeout = node.context.config.stall_timeout;
        Self {
            node,
            link,
            socket,
            protocol,
            read: BytesMut::new(),
            write: BytesMut::new(),
            unflushed: false,
            written: 0,
            owed: VecDeque::new(),
            owed_commands: 0,
            earliest: None,
            released: Load::default(),
            taken: Vec::new(),
            yielded: false,
            held: Held::Nothing,
            last_read: Instant::now(),
            suspected: false,
            reply_time: Duration::ZERO,
            watchdog: Box::pin(sleep(stall_timeout)),
            ended: false,
        }
    }

    /// Carries groups until the connection breaks, and returns why it did.
    ///
    /// # Cancellation
    /// Dropping the future loses nothing; [`Connection::fail`] must follow.
    pub(crate) async fn serve(&mut self) -> String {
        poll_fn(|cx| self.poll_turns(cx)).await
    }

    fn poll_turns(&mut self, cx: &mut Context<'_>) -> Poll<String> {
        for turn in 0..TURNS_PER_POLL {
            // Reading comes first and goes on while a write is stuck: two sides that both only write wait for ever.
            let read = match self.poll_read(cx) {
                Ok(read) => read,
                Err(reason) => return Poll::Ready(reason),
            };
            if self.held == Held::Half {
                // What the callers ask now is waited for here, and need not be waited for again.
                self.yielded = true;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let filled = match self.fill(cx) {
                Ok(filled) => filled,
                Err(Gone::Retired) => return Poll::Ready("replaced".to_owned()),
                Err(Gone::GivenUp) => return Poll::Ready("silent while the server answers others".to_owned()),
            };
            if filled && !self.yielded && self.owed_commands > COALESCE_FROM {
                self.yielded = true;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            self.yielded = false;
            let wrote = match self.poll_write(cx) {
                Poll::Ready(Ok(wrote)) => wrote,
                Poll::Ready(Err(error)) => return Poll::Ready(error.to_string()),
                Poll::Pending => false,
            };
            if !read && !filled && !wrote {
                if turn == 0 {
                    count(&self.node.counters.empty_wakes, 1);
                }
                return self.poll_watchdog(cx);
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Reads once and completes what the bytes answer. True when there were bytes, or replies held back.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Result<bool, String> {
        match std::mem::replace(&mut self.held, Held::Nothing) {
            Held::Nothing => {}
            Held::Half => {
                self.held = Held::Due;
                return Ok(true);
            }
            Held::Due => return self.complete().map(|()| true),
        }
        self.read.reserve(READ_SIZE);
        let read = match poll_read_buf(Pin::new(&mut self.socket), cx, &mut self.read) {
            Poll::Pending => return Ok(false),
            Poll::Ready(Ok(0)) => return Err("closed by the server".to_owned()),
            Poll::Ready(Ok(read)) => read,
            Poll::Ready(Err(error)) => return Err(error.to_string()),
        };
        self.last_read = Instant::now();
        if std::mem::take(&mut self.suspected) {
            self.node.trust(self.link);
        }
        self.expire(self.last_read);
        let counters = &self.node.counters;
        count(&counters.reads, 1);
        count(&counters.bytes_in, read);
        self.complete().map(|()| true)
    }

    /// Gives the replies that were read to their callers.
    fn complete(&mut self) -> Result<(), String> {
        let mut replies = 0;
        let mut until_half = match self.owed.len() {
            many if many >= HALVE_FROM => many.div_ceil(2),
            _ => usize::MAX,
        };
        let mut since = None;
        let Self { read: buffer, owed, owed_commands, released, .. } = self;
        let decoded = resp::decode(self.protocol, buffer, |answer| {
            let outcome = Outcome::of(answer);
            replies += 1;
            let Some(head) = owed.front_mut() else {
                return Err(format!("a reply that no command asked for: {outcome:?}").into());
            };
            head.outcomes.push(outcome);
            *owed_commands -= 1;
            if head.outcomes.len() == head.commands {
                let head = owed.pop_front().expect("the head was just looked at");
                released.add(head.group.load());
                since = Some(head.since);
                head.group.finish(head.outcomes);
                until_half -= 1;
                if until_half == 0 {
                    return Err(Stop::Halfway);
                }
            }
            Ok(())
        });
        let decoded = match decoded {
            Ok(()) => Ok(()),
            Err(Stop::Halfway) => {
                self.held = if self.read.is_empty() { Held::Nothing } else { Held::Half };
                Ok(())
            }
            Err(Stop::Failed(reason)) => Err(reason),
        };
        if let Some(since) = since {
            let latest = (self.last_read - since).mul_f32(SHARE_OF_LATEST);
            self.reply_time = self.reply_time.mul_f32(1.0 - SHARE_OF_LATEST) + latest;
        }
        if self.read.is_empty() && self.read.capacity() > KEEP_BUFFER {
            self.read = BytesMut::new();
        }
        count(&self.node.counters.replies, replies);
        decoded
    }

    /// Moves groups from the node into the write buffer. True when there were any.
    fn fill(&mut self, cx: &mut Context<'_>) -> Result<bool, Gone> {
        let turn = Turn {
            link: self.link,
            released: std::mem::take(&mut self.released),
            oldest: self.owed.front().map(|head| head.since.into_std()),
            reply_time: self.reply_time,
            waker: cx.waker(),
        };
        let mut taken = std::mem::take(&mut self.taken);
        self.node.take(&turn, &mut taken)?;
        let filled = !taken.is_empty();
        if filled {
            let now = Instant::now();
            let before = self.owed_commands;
            for group in taken.drain(..) {
                self.append(group, now);
            }
            count(&self.node.counters.commands, self.owed_commands - before);
            self.expire(now);
        }
        self.taken = taken;
        Ok(filled)
    }

    fn append(&mut self, group: Group, now: Instant) {
        let load = group.load();
        let deadline = group.call.deadline;
        if deadline <= now {
            self.released.add(load);
            return group.refuse(NotSent::DeadlineExceeded { node: Arc::clone(&self.node.name) });
        }
        if !group.start() {
            self.released.add(load);
            return;
        }
        self.earliest = Some(self.earliest.map_or(deadline, |earliest| earliest.min(deadline)));
        let start = self.written + self.write.len() as u64;
        let batch = &group.call.batch;
        for units in &group.units().ranges {
            self.write.extend_from_slice(&batch.encoded[batch.bytes_of(batch.commands_of(units.clone()))]);
        }
        let outcomes = Vec::with_capacity(load.commands);
        self.owed_commands += load.commands;
        self.owed.push_back(Owed { group, outcomes, commands: load.commands, start, since: now });
    }

    /// Tells the callers whose deadline has passed. What they are owed is still read, so that the others get theirs.
    fn expire(&mut self, now: Instant) {
        if self.earliest.is_none_or(|earliest| earliest > now) {
            return;
        }
        let mut earliest: Option<Instant> = None;
        for Owed { group, .. } in &self.owed {
            match group.call.deadline {
                passed if passed <= now => group.expire(),
                next => earliest = Some(earliest.map_or(next, |earliest| earliest.min(next))),
            }
        }
        self.earliest = earliest.map(|earliest| earliest.max(now + EXPIRE_AT_MOST_EVERY));
    }

    /// Writes what the kernel takes. True when all of it went.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if self.write.is_empty() && !self.unflushed {
            return Poll::Ready(Ok(false));
        }
        while !self.write.is_empty() {
            let wrote = ready!(Pin::new(&mut self.socket).poll_write(cx, &self.write))?;
            if wrote == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.write.advance(wrote);
            self.written += wrote as u64;
            self.unflushed = true;
            if !self.write.is_empty() {
                // A long write that goes on is a sign of life: the server cannot answer before it has all of it.
                self.last_read = Instant::now();
            }
            count(&self.node.counters.writes, 1);
            count(&self.node.counters.bytes_out, wrote);
        }
        ready!(Pin::new(&mut self.socket).poll_flush(cx))?;
        self.unflushed = false;
        if self.write.capacity() > KEEP_BUFFER {
            self.write = BytesMut::new();
        }
        Poll::Ready(Ok(true))
    }

    /// Looks at the clock: silence makes the connection suspect, then ends it; idleness ends it when it is not needed.
    fn poll_watchdog(&mut self, cx: &mut Context<'_>) -> Poll<String> {
        let Config { stall_timeout, idle_timeout, .. } = self.node.context.config;
        loop {
            let silent = match self.owed.front() {
                Some(head) => head.since.max(self.last_read) + self.patience(),
                None if idle_timeout.is_zero() => return Poll::Pending,
                None => self.last_read + idle_timeout,
            };
            let limit = self.earliest.map_or(silent, |earliest| earliest.min(silent));
            // The timer is moved only when it fires, or would fire too late: moving it at every turn would cost more than
            // one early wake.
            if self.watchdog.deadline() > limit {
                self.watchdog.as_mut().reset(limit);
            }
            ready!(self.watchdog.as_mut().poll(cx));
            let now = Instant::now();
            self.expire(now);
            if now < silent {
                self.watchdog.as_mut().reset(self.earliest.map_or(silent, |earliest| earliest.min(silent)));
            } else if self.owed.is_empty() {
                if self.node.may_close(self.link) {
                    return Poll::Ready(format!("idle for {idle_timeout:?}"));
                }
                self.watchdog.as_mut().reset(now + idle_timeout);
                // Not before the timer fires again, or there is something to wait for.
                self.last_read = now;
            } else if now - silent > OVERSLEPT {
                // It was this process that did nothing: what is owed may have been written a moment ago.
                self.last_read = now;
            } else if !self.suspected && self.patience() < stall_timeout {
                self.suspected = true;
                self.node.suspect(self.link);
            } else {
                return Poll::Ready(format!("no reply for {stall_timeout:?}"));
            }
        }
    }

    /// How long the connection may be silent now, with a reply due.
    fn patience(&self) -> Duration {
        let stall_timeout = self.node.context.config.stall_timeout;
        match self.suspected {
            true => stall_timeout,
            false => SUSPECT_AFTER.max(self.reply_time * 10).min(stall_timeout),
        }
    }

    /// Tells the callers of everything owed what is known of their commands.
    pub(crate) fn fail(&mut self, reason: &Arc<str>) {
        self.ended = true;
        // What was read is known, also when nothing more will be. Each time at least half of it is given out.
        while self.held != Held::Nothing {
            self.held = Held::Nothing;
            if self.complete().is_err() {
                break;
            }
        }
        let node = &self.node.name;
        count(&self.node.counters.lost, self.owed_commands);
        for owed in self.owed.drain(..) {
            let Owed { group, mut outcomes, start, .. } = owed;
            let ends = command_ends(&group, start);
            // Redis runs a command only after its last byte, and none of these bytes can reach it any more.
            let written = self.written;
            outcomes.extend(
                ends.skip(outcomes.len())
                    .map(|end| match end <= written {
                        true => Outcome::Unknown(Unknown::ConnectionLost {
                            node: Arc::clone(node),
                            reason: Arc::clone(reason),
                        }),
                        false => Outcome::NotSent(NotSent::ConnectionLost {
                            node: Arc::clone(node),
                            reason: Arc::clone(reason),
                        }),
                    })
                    .collect::<Vec<_>>(),
            );
            group.finish(outcomes);
        }
    }
}

impl Drop for Connection {
    /// When the runtime stops, or the task panics, callers on other runtimes must not wait for a clock that stands still.
    fn drop(&mut self) {
        if !self.ended {
            let reason = "its task was stopped".into();
            self.fail(&reason);
            self.node.clone().detach(self.link, &reason);
        }
    }
}

/// Where each command of a group ends in the stream of written bytes.
fn command_ends(group: &Group, start: u64) -> impl Iterator<Item = u64> {
    let batch = &group.call.batch;
    let commands = group.units().ranges.iter().flat_map(|units| batch.commands_of(units.clone()));
    commands.scan(start, |end, command| {
        *end += batch.bytes_of(command..command + 1).len() as u64;
        Some(*end)
    })
}
