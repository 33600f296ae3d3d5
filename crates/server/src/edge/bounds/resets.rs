//! Calls that are reset before anything could begin them, of one connection.
//!
//! Callers with a timeout leave some while this process does not run: both the call and its reset wait in the socket then. The same is a cheap attack
//! (CVE-2023-44487). What tells them apart is how much work they make.

use std::io;
use std::sync::Arc;

use super::counts::Closed;
use super::places::Seat;

/// The type of a frame that begins a call.
const HEADERS: u8 = 1;
/// The type of a frame that resets one.
const RESET: u8 = 3;
/// Calls of one turn that were reset in it, after which others of the thread have their turn: about a millisecond of work.
const IN_A_TURN: u32 = 256;
/// The same calls from one look at the connection to the next, which is 10 s; then it ends. A call with its message and its reset takes more than a
/// hundred bytes, and Linux keeps 6 MiB of them for a connection, so that a stall leaves fewer. Their work is a small part of a core.
const IN_ALL: u32 = 65_536;

/// What is seen of the calls of a connection.
#[derive(Debug)]
pub(crate) struct Resets {
    seat: Arc<Seat>,
    turn: u32,
    /// The latest call of all, and the first one of this turn.
    latest: u32,
    first: Option<u32>,
    /// Calls that came in this turn and were reset in it.
    cut_short: u32,
    /// Those of them that the seat has counted.
    counted: u32,
}

impl Resets {
    pub(crate) fn new(seat: Arc<Seat>) -> Self {
        Self { turn: seat.turn(), seat, latest: 0, first: None, cut_short: 0, counted: 0 }
    }

    /// Whether others of the thread should have their turn before more is read.
    pub(crate) fn are_many(&mut self) -> bool {
        let turn = self.seat.turn();
        if self.turn != turn {
            (self.turn, self.first, self.cut_short, self.counted) = (turn, None, 0, 0);
        }
        self.cut_short >= IN_A_TURN
    }

    /// Sees the head of a frame.
    pub(crate) fn see(&mut self, kind: u8, stream: u32) {
        if kind == HEADERS && stream > self.latest {
            self.latest = stream;
            self.first.get_or_insert(stream);
        } else if kind == RESET && self.first.is_some_and(|first| stream >= first) {
            self.cut_short += 1;
        }
    }

    /// Counts what was seen.
    ///
    /// # Errors
    /// There were too many.
    pub(crate) fn count(&mut self) -> io::Result<()> {
        let seen = self.cut_short - self.counted;
        self.counted = self.cut_short;
        if seen > 0 && self.seat.cut_short(seen) > IN_ALL {
            self.seat.count(Closed::Resets);
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the peer resets calls at once"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_are_reset_in_the_turn_of_their_start_are_counted_and_no_others() {
        let seat = Arc::new(Seat::new(Arc::default()));
        let mut resets = Resets::new(seat.clone());
        let mut check = |frames: &[(u8, u32)], expected: u32| {
            seat.begin_turn();
            assert!(!resets.are_many());
            frames.iter().for_each(|&(kind, stream)| resets.see(kind, stream));
            assert_eq!(resets.cut_short, expected, "{frames:?}");
        };
        check(&[(RESET, 1)], 0);
        check(&[(HEADERS, 1), (0, 1), (HEADERS, 3), (RESET, 1)], 1);
        // A call of the turn before, also when it has trailers now.
        check(&[(RESET, 3), (HEADERS, 5), (RESET, 3), (HEADERS, 3), (RESET, 3), (RESET, 5)], 1);
        check(&[(HEADERS, 3), (RESET, 3)], 0);
    }

    #[test]
    fn many_end_a_turn_and_too_many_end_the_connection_until_the_next_look() {
        let seat = Arc::new(Seat::new(Arc::default()));
        let mut resets = Resets::new(seat.clone());
        let mut streams = (1..).step_by(2);
        let mut turn = |resets: &mut Resets| {
            seat.begin_turn();
            while !resets.are_many() {
                let stream = streams.next().unwrap();
                resets.see(HEADERS, stream);
                resets.see(RESET, stream);
            }
            resets.count()
        };
        for look in 0..2 {
            for number in 0..IN_ALL / IN_A_TURN {
                assert!(turn(&mut resets).is_ok(), "turn {number} of look {look}");
            }
            if look == 0 {
                seat.begin_look();
            }
        }
        assert!(turn(&mut resets).is_err());
    }
}
