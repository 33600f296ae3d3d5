//! One connection: the task that owns a socket, writes commands and reads their replies.

#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::{io, thread};

use bytes::{Buf, BytesMut};
use tokio::io::AsyncWrite;
use tokio::time::Instant;
use tokio_util::io::poll_read_buf;

use super::{
    CloseReason, Deadlines, LinkEvent, LinkId, LinkOwner, LinkReport, PendingReplies, ReadStep,
    ReadySocket, Socket, Stagger, Verdict, Watchdog, count,
};
use crate::batch::Load;
use crate::call::CallGroup;
use crate::outcome::{NotSent, Outcome};
use crate::wire::Decoder;

/// Number of commands in flight from which a turn yields before it writes, so that other ready
/// tasks add commands. With fewer, the wait would only delay callers.
const COALESCE_MIN_COMMANDS: usize = 32;

/// Number of turns before the task yields, so that a busy node cannot starve other tasks of its
/// core.
const MAX_TURNS_PER_POLL: usize = 16;

/// Bytes of one read: 16 KiB are the replies of two thousand counters.
const READ_BYTES: usize = 16 * 1024;

/// Capacity above which an empty buffer is freed: it grew for one large reply or batch.
const MAX_KEPT_BUFFER_BYTES: usize = 1 << 20;

/// The socket of one connection, and the groups whose replies are due.
#[derive(Debug)]
pub(crate) struct Connection<H: LinkOwner> {
    owner: H,
    link: LinkId,
    socket: Socket,
    decoder: Decoder,
    read: BytesMut,
    write: BytesMut,
    /// Whether the socket accepted bytes that it may hold back, as TLS does.
    unflushed: bool,
    /// Bytes that may have left since the connection opened: those that the socket accepted, and
    /// those of a failed write that may have been sent in part.
    written: u64,
    pending: PendingReplies,
    deadlines: Deadlines,
    stagger: Stagger,
    watchdog: Watchdog,
    /// Load that was answered or dropped since the last report to the node.
    released: Load,
    /// Groups from the node that are not yet in `write`. Kept to reuse its memory.
    new_groups: Vec<CallGroup>,
    /// Whether other tasks ran since the last write.
    yielded: bool,
    /// Whether [`Connection::fail`] has run: no more groups are taken.
    ended: bool,
}

/// Result of a turn.
enum TurnResult {
    /// Something was read, taken or written.
    Worked,
    /// Other tasks should run before the next turn.
    Yield,
    /// There was nothing to do.
    Idle,
}

/// Reason why decoding stopped before all replies were delivered.
enum DecodeStop {
    Failed(String),
    Halfway,
}

impl From<String> for DecodeStop {
    fn from(reason: String) -> Self {
        Self::Failed(reason)
    }
}

impl<H: LinkOwner> Connection<H> {
    pub(crate) fn new(owner: H, link: LinkId, ready: ReadySocket) -> Self {
        let ReadySocket {
            socket,
            decoder,
            read,
            ..
        } = ready;
        let watchdog = Watchdog::new(owner.config());
        Self {
            owner,
            link,
            socket,
            decoder,
            read,
            write: BytesMut::new(),
            unflushed: false,
            written: 0,
            pending: PendingReplies::default(),
            deadlines: Deadlines::default(),
            stagger: Stagger::default(),
            watchdog,
            released: Load::default(),
            new_groups: Vec::new(),
            yielded: false,
            ended: false,
        }
    }

    /// Serves groups until the connection breaks, and returns the reason.
    ///
    /// # Cancellation
    /// Dropping the future loses nothing; [`Connection::fail`] must follow.
    pub(crate) async fn serve(&mut self) -> String {
        poll_fn(|cx| self.poll_turns(cx)).await
    }

    fn poll_turns(&mut self, cx: &mut Context<'_>) -> Poll<String> {
        for turn in 0..MAX_TURNS_PER_POLL {
            match self.turn(cx) {
                Ok(TurnResult::Worked) => {}
                Ok(TurnResult::Yield) => break,
                Ok(TurnResult::Idle) => {
                    if turn == 0 {
                        count(&self.owner.counters().empty_wakes, 1);
                    }
                    return self.poll_watchdog(cx);
                }
                Err(reason) => return Poll::Ready(reason),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn turn(&mut self, cx: &mut Context<'_>) -> Result<TurnResult, String> {
        // Reading comes first and continues while a write is stuck: two sides that both only write
        // would wait for ever.
        let read = self.poll_read(cx)?;
        if self.stagger.yields_to_callers() {
            // The yield also lets callers add commands, so a second yield is not needed.
            self.yielded = true;
            return Ok(TurnResult::Yield);
        }
        let filled = self.take_groups(cx).map_err(|reason| reason.to_string())?;
        if filled && !self.yielded && self.pending.commands() > COALESCE_MIN_COMMANDS {
            self.yielded = true;
            return Ok(TurnResult::Yield);
        }
        self.yielded = false;
        let wrote = match self.poll_write(cx) {
            Poll::Ready(wrote) => wrote.map_err(|error| error.to_string())?,
            Poll::Pending => false,
        };
        Ok(if read || filled || wrote {
            TurnResult::Worked
        } else {
            TurnResult::Idle
        })
    }

    /// Reads once and delivers the replies. Returns true if there were bytes, or replies held back.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Result<bool, String> {
        match self.stagger.begin_turn() {
            ReadStep::Read => {}
            ReadStep::WriteFirst => return Ok(true),
            ReadStep::DeliverHeld => return self.deliver_replies().map(|()| true),
        }
        self.read.reserve(READ_BYTES);
        match poll_read_buf(Pin::new(&mut self.socket), cx, &mut self.read) {
            Poll::Pending => return Ok(false),
            Poll::Ready(Ok(0)) => return Err("closed by the server".to_owned()),
            Poll::Ready(Ok(_)) => {}
            Poll::Ready(Err(error)) => return Err(error.to_string()),
        }
        let now = Instant::now();
        if self.watchdog.on_bytes(now) {
            self.owner.report(self.link, LinkEvent::BytesArrived);
        }
        self.expire(now);
        count(&self.owner.counters().reads, 1);
        self.deliver_replies().map(|()| true)
    }

    /// Delivers the replies that were read to their callers.
    fn deliver_replies(&mut self) -> Result<(), String> {
        let mut replies = 0;
        let mut until_half = Stagger::first_half(self.pending.groups());
        let mut last_finished = None;
        let Self {
            decoder,
            read: buffer,
            pending,
            released,
            ..
        } = self;
        let decoded = decoder.decode(buffer, |answer| {
            replies += 1;
            let Some(finished) = pending.on_reply(Outcome::from_answer(answer))? else {
                return Ok(());
            };
            released.add(finished.load);
            last_finished = Some(finished.written_at);
            until_half -= 1;
            if until_half == 0 {
                Err(DecodeStop::Halfway)
            } else {
                Ok(())
            }
        });
        if let Some(since) = last_finished {
            self.watchdog.on_reply(since);
        }
        count(&self.owner.counters().replies, replies);
        self.hand_over_left_behind();
        if matches!(decoded, Err(DecodeStop::Halfway)) {
            self.stagger.hold(&self.read);
        }
        if self.read.is_empty() && self.read.capacity() > MAX_KEPT_BUFFER_BYTES {
            self.read = BytesMut::new();
        }
        match decoded {
            Ok(()) | Err(DecodeStop::Halfway) => Ok(()),
            Err(DecodeStop::Failed(reason)) => Err(reason),
        }
    }

    /// Moves groups from the node into the write buffer. Returns whether there were any.
    fn take_groups(&mut self, cx: &mut Context<'_>) -> Result<bool, CloseReason> {
        let report = LinkReport {
            link: self.link,
            released: std::mem::take(&mut self.released),
            oldest: self.pending.oldest().map(Instant::into_std),
            reply_time: self.watchdog.reply_time(),
            waker: cx.waker(),
        };
        let mut new_groups = std::mem::take(&mut self.new_groups);
        self.owner.take_groups(&report, &mut new_groups)?;
        let filled = !new_groups.is_empty();
        if filled {
            let now = Instant::now();
            let before = self.pending.commands();
            for group in new_groups.drain(..) {
                self.append(group, now);
            }
            count(
                &self.owner.counters().commands,
                self.pending.commands() - before,
            );
            self.expire(now);
        }
        self.new_groups = new_groups;
        Ok(filled)
    }

    /// Adds the commands of a group to the write buffer, unless its caller has left or its deadline
    /// has passed.
    fn append(&mut self, group: CallGroup, now: Instant) {
        let load = group.load();
        let deadline = group.call.deadline;
        if deadline <= now {
            self.released.add(load);
            return group.refuse(NotSent::DeadlineExceeded {
                node: Arc::clone(self.owner.name()),
            });
        }
        if !group.start() {
            self.released.add(load);
            return;
        }
        self.deadlines.add(deadline);
        let start = self.written + self.write.len() as u64;
        let batch = &group.call.batch;
        for units in &group.units().ranges {
            self.write.extend_from_slice(
                &batch.encoded[batch.bytes_of(batch.commands_of(units.clone()))],
            );
        }
        self.pending.push(group, start, now);
    }

    /// Wakes the callers whose deadline has passed. Their replies are still read, so that other
    /// callers get theirs.
    fn expire(&mut self, now: Instant) {
        self.deadlines
            .expire(now, self.pending.deadlines(), CallGroup::expire);
    }

    /// Writes as much as the kernel accepts. Returns true if all was written.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if self.write.is_empty() && !self.unflushed {
            return Poll::Ready(Ok(false));
        }
        while !self.write.is_empty() {
            let result = match ready!(Pin::new(&mut self.socket).poll_write(cx, &self.write)) {
                Ok(0) => Err(io::ErrorKind::WriteZero.into()),
                result => result,
            };
            let wrote = result.inspect_err(|_| self.count_failed_write())?;
            self.write.advance(wrote);
            self.written += wrote as u64;
            self.unflushed = true;
            if !self.write.is_empty() {
                self.watchdog.on_write_progress();
            }
            let counters = self.owner.counters();
            count(&counters.writes, 1);
            count(&counters.bytes_out, wrote);
        }
        ready!(Pin::new(&mut self.socket).poll_flush(cx))?;
        self.unflushed = false;
        if self.write.capacity() > MAX_KEPT_BUFFER_BYTES {
            self.write = BytesMut::new();
        }
        Poll::Ready(Ok(true))
    }

    /// Counts the bytes of a failed write as written if they may have left, because commands that
    /// count as not sent are sent again.
    fn count_failed_write(&mut self) {
        if self.socket.sends_before_it_fails() {
            self.written += self.write.len() as u64;
        }
    }

    /// Polls the watchdog while there is no other work.
    fn poll_watchdog(&mut self, cx: &mut Context<'_>) -> Poll<String> {
        loop {
            let oldest = self.pending.oldest();
            let Some(limit) = self.watchdog.limit(oldest) else {
                return Poll::Pending;
            };
            ready!(
                self.watchdog
                    .poll_timer(self.deadlines.next_check(limit), cx)
            );
            let now = Instant::now();
            self.expire(now);
            match self.watchdog.verdict(now, limit, oldest) {
                Verdict::Wait => {}
                Verdict::Idle if self.owner.may_close(self.link) => {
                    return Poll::Ready(format!("idle for {:?}", self.owner.config().idle_timeout));
                }
                Verdict::Idle => {}
                Verdict::Overdue => self.owner.report(self.link, LinkEvent::ReplyOverdue),
                Verdict::Stalled => {
                    return Poll::Ready(format!(
                        "no reply for {:?}",
                        self.owner.config().stall_timeout
                    ));
                }
            }
            if let Some(limit) = self.watchdog.limit(oldest) {
                self.watchdog.reset_timer(self.deadlines.next_check(limit));
            }
        }
    }

    /// Finishes all groups in flight with the outcomes that are known.
    pub(crate) fn fail(&mut self, reason: &Arc<str>) {
        self.ended = true;
        // Replies that were read are delivered, even though no more are read. Each pass delivers at
        // least half of them.
        while self.stagger.release() {
            if self.deliver_replies().is_err() {
                break;
            }
        }
        count(&self.owner.counters().lost, self.pending.commands());
        self.pending.fail(self.owner.name(), self.written, reason);
        self.hand_over_left_behind();
    }

    fn hand_over_left_behind(&mut self) {
        for batch in self.pending.take_left_behind() {
            self.owner.add_left_behind(batch);
        }
    }
}

impl<H: LinkOwner> Drop for Connection<H> {
    /// Fails the groups if the runtime stops or the task panics: callers on other runtimes must not
    /// wait for replies that no task reads.
    fn drop(&mut self) {
        if !self.ended {
            let reason = "its task was stopped".into();
            self.fail(&reason);
            if thread::panicking() {
                self.owner.detach(self.link, &reason);
            } else {
                self.owner.on_runtime_end(self.link, &reason);
            }
        }
    }
}
