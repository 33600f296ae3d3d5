//! One server: its queued commands and pending replies. Callers and the task of the connection
//! share it.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::{Buf, BytesMut};
use tidegate_pipeline::Address;
use tokio::sync::{Notify, oneshot};

use crate::charge::{ChangeDirection, Charge};
use crate::pending::{CounterRead, PendingReply, ReplyStep, RetryCharge};
use crate::stats::{Counters, count};
use crate::wire::{self, InvalidReply};

/// One server of the list.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) address: Address,
    max_bytes: usize,
    pub(crate) counters: Arc<Counters>,
    state: Mutex<NodeState>,
    /// Wakes the task of the connection.
    pub(crate) wake: Notify,
    /// Wakes callers of [`Node::flush`] when no reply is pending.
    idle: Notify,
}

#[derive(Debug)]
struct NodeState {
    server_state: ServerState,
    /// Encoded commands that are not written yet.
    output: BytesMut,
    /// Pending replies to all commands, written or not, each with the bytes that it was counted
    /// with.
    pending: VecDeque<(PendingReply, usize)>,
    /// Bytes of `output` and `pending` in all. A command counts until its reply has arrived.
    bytes: usize,
    /// Bytes of an oversized value that are still to be skipped.
    skip_bytes: usize,
    /// Time of the last complete reply, or of the first command after an idle time.
    last_progress: Instant,
}

/// Whether callers may use a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerState {
    /// The server has a connection, or one is being opened.
    Usable,
    /// The server failed. Callers are refused until it answers again.
    Down,
    /// The server was removed from the list. Queued commands are still done.
    Leaving,
}

impl Node {
    pub(crate) fn new(address: Address, max_bytes: usize, counters: Arc<Counters>) -> Self {
        let state = NodeState {
            server_state: ServerState::Usable,
            output: BytesMut::new(),
            pending: VecDeque::new(),
            bytes: 0,
            skip_bytes: 0,
            last_progress: Instant::now(),
        };
        Self {
            address,
            max_bytes,
            counters,
            state: Mutex::new(state),
            wake: Notify::new(),
            idle: Notify::new(),
        }
    }

    /// Requests these keys, which are separated by spaces. The receiver gets the results, or is
    /// closed if there will be no answer. Returns `None` if the queue is full or the server is
    /// down.
    pub(crate) fn request(
        &self,
        keys: Box<[u8]>,
        number: usize,
    ) -> Option<oneshot::Receiver<Vec<CounterRead>>> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.lock();
        if !state.admits(
            2 * keys.len() + number * size_of::<CounterRead>() + 256,
            self.max_bytes,
        ) {
            return None;
        }
        let start = state.output.len();
        wire::get(&mut state.output, &keys);
        self.push_pending(
            &mut state,
            PendingReply::values(keys, number, sender),
            start,
        );
        Some(receiver)
    }

    /// Queues a change of a counter. Drops and counts it if the queue is full or the server is
    /// down.
    pub(crate) fn change(&self, charge: Charge<'_>) {
        let Charge { key, hits, .. } = charge;
        let expiry = charge.expiry.0;
        let mut state = self.lock();
        // A bound for `add` and `incr`, each with the key, and the copy of the key for a retry.
        if !state.admits(3 * key.len() + 256, self.max_bytes) {
            drop(state);
            count(&self.counters.dropped_changes, 1);
            count(&self.counters.failed_changes, 1);
            return;
        }
        match (charge.change, charge.found) {
            (ChangeDirection::Subtract, _) => {
                let start = state.output.len();
                wire::decrement(&mut state.output, key, hits);
                self.push_pending(&mut state, PendingReply::Changed(None), start);
            }
            (ChangeDirection::Add, CounterRead::Count(_) | CounterRead::Foreign) => {
                let retry = RetryCharge {
                    key: key.into(),
                    hits,
                    expiry,
                };
                self.increment(&mut state, key, hits, Some(retry));
            }
            (ChangeDirection::Add, CounterRead::Missing | CounterRead::Unknown) => {
                self.add_and_increment(&mut state, key, hits, expiry)
            }
        }
    }

    /// Queues `add` and `incr`: creates the counter if it is missing, and adds the hits. No order
    /// of other clients' commands between the two loses a hit.
    fn add_and_increment(&self, state: &mut NodeState, key: &[u8], hits: u64, expiry: u64) {
        let start = state.output.len();
        wire::add_zero(&mut state.output, key, expiry);
        self.push_pending(state, PendingReply::Added, start);
        self.increment(state, key, hits, None);
    }

    fn increment(&self, state: &mut NodeState, key: &[u8], hits: u64, retry: Option<RetryCharge>) {
        let start = state.output.len();
        wire::increment(&mut state.output, key, hits);
        self.push_pending(state, PendingReply::Changed(retry), start);
    }

    /// Adds the pending reply to a command, which is the output from `start` on.
    fn push_pending(&self, state: &mut NodeState, pending: PendingReply, start: usize) {
        if state.pending.is_empty() {
            state.last_progress = Instant::now();
        }
        let bytes = state.output.len() - start + pending.bytes();
        state.bytes += bytes;
        self.counters.waiting_bytes.fetch_add(bytes as u64, Relaxed);
        state.pending.push_back((pending, bytes));
        self.wake.notify_one();
    }

    /// Appends the queued commands to `output`.
    pub(crate) fn take_output(&self, output: &mut BytesMut) {
        output.unsplit(self.lock().output.split());
    }

    /// Decodes replies from `input` and matches them to pending commands.
    ///
    /// # Errors
    /// The bytes are not the replies to the pending commands.
    pub(crate) fn on_input(&self, input: &mut BytesMut) -> Result<(), InvalidReply> {
        let mut state = self.lock();
        loop {
            let skipped = state.skip_bytes.min(input.len());
            input.advance(skipped);
            state.skip_bytes -= skipped;
            let Some((reply, used)) = wire::decode(input)? else {
                break;
            };
            let Some((pending, _)) = state.pending.front_mut() else {
                return Err(InvalidReply(format!(
                    "the server sent a reply without a command: {reply:?}"
                )));
            };
            let step = pending.on_reply(reply, &self.counters)?;
            input.advance(used);
            match step {
                ReplyStep::More => {}
                ReplyStep::Skip(bytes) => state.skip_bytes = bytes,
                ReplyStep::Done => self.pop_pending(&mut state),
                ReplyStep::RetryCharge(RetryCharge { key, hits, expiry }) => {
                    self.pop_pending(&mut state);
                    self.add_and_increment(&mut state, &key, hits, expiry);
                }
            }
        }
        self.notify_if_idle(&state);
        Ok(())
    }

    /// Removes the first command, whose reply is complete.
    fn pop_pending(&self, state: &mut NodeState) {
        let bytes = state.pending.pop_front().map_or(0, |(_, bytes)| bytes);
        self.release(state, bytes);
        state.last_progress = Instant::now();
    }

    fn release(&self, state: &mut NodeState, bytes: usize) {
        state.bytes -= bytes;
        self.counters.waiting_bytes.fetch_sub(bytes as u64, Relaxed);
    }

    /// Fails all pending commands.
    pub(crate) fn fail_all(&self) {
        let mut state = self.lock();
        for (pending, _) in std::mem::take(&mut state.pending) {
            pending.fail(&self.counters);
        }
        state.output = BytesMut::new();
        state.skip_bytes = 0;
        let bytes = state.bytes;
        self.release(&mut state, bytes);
        self.notify_if_idle(&state);
    }

    /// Returns the time of the last progress on pending replies. `None` if no reply is pending.
    pub(crate) fn last_progress(&self) -> Option<Instant> {
        let state = self.lock();
        (!state.pending.is_empty()).then_some(state.last_progress)
    }

    pub(crate) fn server_state(&self) -> ServerState {
        self.lock().server_state
    }

    /// Sets the state of the server. A server that is leaving stays so.
    pub(crate) fn set_server_state(&self, server_state: ServerState) {
        let mut state = self.lock();
        if state.server_state != ServerState::Leaving {
            state.server_state = server_state;
        }
        self.wake.notify_one();
    }

    /// Waits until no reply is pending.
    pub(crate) async fn flush(&self) {
        loop {
            let idle = self.idle.notified();
            tokio::pin!(idle);
            idle.as_mut().enable();
            if self.last_progress().is_none() {
                return;
            }
            idle.await;
        }
    }

    fn notify_if_idle(&self, state: &NodeState) {
        if state.pending.is_empty() {
            self.idle.notify_waiters();
        }
    }

    /// No change under the lock can panic half way, so a poisoned lock is safe to use.
    fn lock(&self) -> MutexGuard<'_, NodeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NodeState {
    fn admits(&self, bytes: usize, max_bytes: usize) -> bool {
        self.server_state == ServerState::Usable && self.bytes + bytes <= max_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::charge::Expiry;

    fn node(room: usize) -> Node {
        Node::new("localhost:1".parse().unwrap(), room, Arc::default())
    }

    fn charge(change: ChangeDirection, hits: u64, found: CounterRead) -> Charge<'static> {
        Charge {
            key: b"a",
            change,
            hits,
            found,
            expiry: Expiry(60),
        }
    }

    fn written(node: &Node) -> String {
        let mut output = BytesMut::new();
        node.take_output(&mut output);
        String::from_utf8(output.to_vec()).unwrap()
    }

    fn answer(node: &Node, text: &str) -> Result<(), InvalidReply> {
        node.on_input(&mut BytesMut::from(text))
    }

    #[test]
    fn a_change_depends_on_what_is_known() {
        let node = node(1 << 20);
        for (found, expected) in [
            (CounterRead::Missing, "add a 0 60 1\r\n0\r\nincr a 2\r\n"),
            (CounterRead::Unknown, "add a 0 60 1\r\n0\r\nincr a 2\r\n"),
            (CounterRead::Count(7), "incr a 2\r\n"),
            (CounterRead::Foreign, "incr a 2\r\n"),
        ] {
            node.change(charge(ChangeDirection::Add, 2, found));
            assert_eq!(written(&node), expected, "{found:?}");
            node.change(charge(ChangeDirection::Subtract, 2, found));
            assert_eq!(written(&node), "decr a 2\r\n");
        }
    }

    #[test]
    fn a_counter_that_went_meanwhile_is_made_again() {
        let node = node(1 << 20);
        node.change(charge(ChangeDirection::Add, 2, CounterRead::Count(7)));
        assert_eq!(written(&node), "incr a 2\r\n");
        answer(&node, "NOT_FOUND\r\n").unwrap();
        assert_eq!(written(&node), "add a 0 60 1\r\n0\r\nincr a 2\r\n");
        answer(&node, "STORED\r\n2\r\n").unwrap();
        assert_eq!(node.last_progress(), None);
        assert_eq!(node.counters.read().waiting_bytes, 0);
    }

    #[test]
    fn what_waits_is_bounded_in_bytes() {
        let node = node(10_000);
        for _ in 0..1_000 {
            node.change(charge(ChangeDirection::Add, 1, CounterRead::Missing));
        }
        let stats = node.counters.read();
        assert!(
            stats.waiting_bytes <= 10_000 && stats.dropped_changes > 900,
            "{stats:?}"
        );
        assert!(node.request(vec![b'x'; 9_900].into(), 1).is_none());
        node.fail_all();
        let stats = node.counters.read();
        assert_eq!((stats.waiting_bytes, stats.failed_changes), (0, 1_000));
        assert!(node.request(b"a".as_slice().into(), 1).is_some());
    }

    #[test]
    fn long_values_are_skipped_in_any_pieces() {
        let node = node(1 << 20);
        let mut receiver = node.request(b"a b".as_slice().into(), 2).unwrap();
        let text = format!(
            "VALUE a 0 5000\r\n{}\r\nVALUE b 0 1\r\n7\r\nEND\r\n",
            "x".repeat(5_000)
        );
        let mut input = BytesMut::new();
        for piece in text.as_bytes().chunks(777) {
            input.extend_from_slice(piece);
            node.on_input(&mut input).unwrap();
            assert!(input.len() < 1_000);
        }
        assert_eq!(
            receiver.try_recv().unwrap(),
            [CounterRead::Foreign, CounterRead::Count(7)]
        );
    }

    #[test]
    fn a_reply_without_a_command_is_refused() {
        assert!(answer(&node(1 << 20), "END\r\n").is_err());
    }

    #[test]
    fn a_server_that_is_down_gets_nothing_to_do() {
        let node = node(1 << 20);
        node.set_server_state(ServerState::Down);
        assert!(node.request(b"a".as_slice().into(), 1).is_none());
        node.change(charge(ChangeDirection::Add, 1, CounterRead::Unknown));
        assert_eq!(
            (written(&node), node.counters.read().dropped_changes),
            (String::new(), 1)
        );
    }
}
