//! One server: its queued commands and pending replies. Callers and the task of the connection
//! share it.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::{Buf, BytesMut};
use tidegate_pipeline::Address;
use tokio::sync::{Notify, oneshot};

use crate::charge::{Change, Charge};
use crate::pending::{CounterRead, PendingReply, RetryCharge, Step};
use crate::stats::{Counters, count};
use crate::wire::{self, Garbage};

/// One server of the list.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) address: Address,
    room: usize,
    pub(crate) counters: Arc<Counters>,
    state: Mutex<State>,
    /// Wakes the task of the connection.
    pub(crate) wake: Notify,
    /// Wakes callers of [`Node::flush`] when no reply is pending.
    settled: Notify,
}

#[derive(Debug)]
struct State {
    standing: ServerState,
    /// Encoded commands that are not written yet.
    output: BytesMut,
    /// Pending replies to all commands, written or not, each with the bytes that it was counted
    /// with.
    owed: VecDeque<(PendingReply, usize)>,
    /// Bytes of `output` and `pending` in all. A command counts until its reply has arrived.
    bytes: usize,
    /// Bytes of an oversized value that are still to be skipped.
    skip: usize,
    /// Time of the last complete reply, or of the first command after an idle time.
    progress: Instant,
}

/// State of a server for its callers.
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
    pub(crate) fn new(address: Address, room: usize, counters: Arc<Counters>) -> Self {
        let state = State {
            standing: ServerState::Usable,
            output: BytesMut::new(),
            owed: VecDeque::new(),
            bytes: 0,
            skip: 0,
            progress: Instant::now(),
        };
        Self {
            address,
            room,
            counters,
            state: Mutex::new(state),
            wake: Notify::new(),
            settled: Notify::new(),
        }
    }

    /// Requests these keys, which are separated by spaces. The receiver gets the results, or is
    /// closed if there will be no answer. Returns `None` if the queue is full or the server is
    /// down.
    pub(crate) fn ask(
        &self,
        keys: Box<[u8]>,
        number: usize,
    ) -> Option<oneshot::Receiver<Vec<CounterRead>>> {
        let (tell, told) = oneshot::channel();
        let mut state = self.lock();
        if !state.admits(
            2 * keys.len() + number * size_of::<CounterRead>() + 256,
            self.room,
        ) {
            return None;
        }
        let start = state.output.len();
        wire::get(&mut state.output, &keys);
        let line = state.output.len() - start;
        self.owe(&mut state, PendingReply::values(keys, number, tell), line);
        Some(told)
    }

    /// Queues a change of a counter. Drops and counts it if the queue is full or the server is
    /// down.
    pub(crate) fn change(&self, charge: Charge<'_>) {
        let Charge {
            key,
            change,
            hits,
            found,
            expiry,
        } = charge;
        let mut state = self.lock();
        // A bound for `add` and `incr`, each with the key, and the copy of the key for a retry.
        if !state.admits(3 * key.len() + 256, self.room) {
            drop(state);
            count(&self.counters.dropped_changes, 1);
            count(&self.counters.failed_changes, 1);
            return;
        }
        match (change, found) {
            (Change::Subtract, _) => {
                let start = state.output.len();
                wire::decrement(&mut state.output, key, hits);
                let line = state.output.len() - start;
                self.owe(&mut state, PendingReply::Changed(None), line);
            }
            (Change::Add, CounterRead::Count(_) | CounterRead::Foreign) => {
                let again = RetryCharge {
                    key: key.into(),
                    hits,
                    expiry: expiry.0,
                };
                self.increment(&mut state, key, hits, Some(again));
            }
            (Change::Add, CounterRead::Missing | CounterRead::Unknown) => {
                self.make(&mut state, key, hits, expiry.0)
            }
        }
    }

    /// Queues `add` and `incr`: creates the counter if it is missing, and adds the hits. No order
    /// of other clients' commands between the two loses a hit.
    fn make(&self, state: &mut State, key: &[u8], hits: u64, expiry: u64) {
        let start = state.output.len();
        wire::add_zero(&mut state.output, key, expiry);
        let line = state.output.len() - start;
        self.owe(state, PendingReply::Added, line);
        self.increment(state, key, hits, None);
    }

    fn increment(&self, state: &mut State, key: &[u8], hits: u64, again: Option<RetryCharge>) {
        let start = state.output.len();
        wire::increment(&mut state.output, key, hits);
        let line = state.output.len() - start;
        self.owe(state, PendingReply::Changed(again), line);
    }

    fn owe(&self, state: &mut State, owed: PendingReply, line: usize) {
        if state.owed.is_empty() {
            state.progress = Instant::now();
        }
        let bytes = line + owed.bytes();
        state.bytes += bytes;
        self.counters.waiting_bytes.fetch_add(bytes as u64, Relaxed);
        state.owed.push_back((owed, bytes));
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
    pub(crate) fn answer(&self, input: &mut BytesMut) -> Result<(), Garbage> {
        let mut state = self.lock();
        loop {
            let skipped = state.skip.min(input.len());
            input.advance(skipped);
            state.skip -= skipped;
            let Some((reply, used)) = wire::decode(input)? else {
                break;
            };
            let Some((owed, _)) = state.owed.front_mut() else {
                return Err(Garbage(format!(
                    "the server sent a reply without a command: {reply:?}"
                )));
            };
            let step = owed.take(reply, &self.counters)?;
            input.advance(used);
            match step {
                Step::More => {}
                Step::Skip(bytes) => state.skip = bytes,
                Step::Done => self.answered(&mut state),
                Step::RetryCharge(RetryCharge { key, hits, expiry }) => {
                    self.answered(&mut state);
                    self.make(&mut state, &key, hits, expiry);
                }
            }
        }
        self.tell_settled(&state);
        Ok(())
    }

    /// Removes the first command, whose reply is complete.
    fn answered(&self, state: &mut State) {
        let bytes = state.owed.pop_front().map_or(0, |(_, bytes)| bytes);
        self.release(state, bytes);
        state.progress = Instant::now();
    }

    fn release(&self, state: &mut State, bytes: usize) {
        state.bytes -= bytes;
        self.counters.waiting_bytes.fetch_sub(bytes as u64, Relaxed);
    }

    /// Fails all pending commands. Returns whether there were any.
    pub(crate) fn fail_all(&self) -> bool {
        let mut state = self.lock();
        let owed = std::mem::take(&mut state.owed);
        let waited = !owed.is_empty();
        owed.into_iter()
            .for_each(|(owed, _)| owed.fail(&self.counters));
        state.output = BytesMut::new();
        state.skip = 0;
        let bytes = state.bytes;
        self.release(&mut state, bytes);
        self.tell_settled(&state);
        waited
    }

    /// Returns the time of the last progress on pending replies. `None` if no reply is pending.
    pub(crate) fn progress(&self) -> Option<Instant> {
        let state = self.lock();
        (!state.owed.is_empty()).then_some(state.progress)
    }

    pub(crate) fn standing(&self) -> ServerState {
        self.lock().standing
    }

    /// Sets the state of the server. A server that is leaving stays so.
    pub(crate) fn set_standing(&self, standing: ServerState) {
        let mut state = self.lock();
        if state.standing != ServerState::Leaving {
            state.standing = standing;
        }
        self.wake.notify_one();
    }

    /// Waits until no reply is pending.
    pub(crate) async fn settle(&self) {
        loop {
            let settled = self.settled.notified();
            tokio::pin!(settled);
            settled.as_mut().enable();
            if self.progress().is_none() {
                return;
            }
            settled.await;
        }
    }

    fn tell_settled(&self, state: &State) {
        if state.owed.is_empty() {
            self.settled.notify_waiters();
        }
    }

    /// No change under the lock can panic half way, so a poisoned lock is safe to use.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn admits(&self, bytes: usize, room: usize) -> bool {
        self.standing == ServerState::Usable && self.bytes + bytes <= room
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::charge::Expiry;

    fn node(room: usize) -> Node {
        Node::new("localhost:1".parse().unwrap(), room, Arc::default())
    }

    fn charge(change: Change, hits: u64, found: CounterRead) -> Charge<'static> {
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

    fn answer(node: &Node, text: &str) -> Result<(), Garbage> {
        node.answer(&mut BytesMut::from(text))
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
            node.change(charge(Change::Add, 2, found));
            assert_eq!(written(&node), expected, "{found:?}");
            node.change(charge(Change::Subtract, 2, found));
            assert_eq!(written(&node), "decr a 2\r\n");
        }
    }

    #[test]
    fn a_counter_that_went_meanwhile_is_made_again() {
        let node = node(1 << 20);
        node.change(charge(Change::Add, 2, CounterRead::Count(7)));
        assert_eq!(written(&node), "incr a 2\r\n");
        answer(&node, "NOT_FOUND\r\n").unwrap();
        assert_eq!(written(&node), "add a 0 60 1\r\n0\r\nincr a 2\r\n");
        answer(&node, "STORED\r\n2\r\n").unwrap();
        assert_eq!(node.progress(), None);
        assert_eq!(node.counters.read().waiting_bytes, 0);
    }

    #[test]
    fn what_waits_is_bounded_in_bytes() {
        let node = node(10_000);
        for _ in 0..1_000 {
            node.change(charge(Change::Add, 1, CounterRead::Missing));
        }
        let stats = node.counters.read();
        assert!(
            stats.waiting_bytes <= 10_000 && stats.dropped_changes > 900,
            "{stats:?}"
        );
        assert!(node.ask(vec![b'x'; 9_900].into(), 1).is_none());
        assert!(node.fail_all());
        let stats = node.counters.read();
        assert_eq!((stats.waiting_bytes, stats.failed_changes), (0, 1_000));
        assert!(node.ask(b"a".as_slice().into(), 1).is_some());
    }

    #[test]
    fn long_values_are_skipped_in_any_pieces() {
        let node = node(1 << 20);
        let mut told = node.ask(b"a b".as_slice().into(), 2).unwrap();
        let text = format!(
            "VALUE a 0 5000\r\n{}\r\nVALUE b 0 1\r\n7\r\nEND\r\n",
            "x".repeat(5_000)
        );
        let mut input = BytesMut::new();
        for piece in text.as_bytes().chunks(777) {
            input.extend_from_slice(piece);
            node.answer(&mut input).unwrap();
            assert!(input.len() < 1_000);
        }
        assert_eq!(
            told.try_recv().unwrap(),
            [CounterRead::Foreign, CounterRead::Count(7)]
        );
    }

    #[test]
    fn a_reply_that_nobody_asked_for_is_refused() {
        assert!(answer(&node(1 << 20), "END\r\n").is_err());
    }

    #[test]
    fn a_server_that_is_down_gets_nothing_to_do() {
        let node = node(1 << 20);
        node.set_standing(ServerState::Down);
        assert!(node.ask(b"a".as_slice().into(), 1).is_none());
        node.change(charge(Change::Add, 1, CounterRead::Unknown));
        assert_eq!(
            (written(&node), node.counters.read().dropped_changes),
            (String::new(), 1)
        );
    }
}
