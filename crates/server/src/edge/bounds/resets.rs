//! Calls that are reset before anything could begin them, of one connection.
//!
//! Callers with a timeout leave some while this process does not run: both the call and its reset wait in the socket then. The same is a cheap attack
//! (CVE-2023-44487). What tells them apart is how much work they make.

use std::cell::Cell;
use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use super::counts::Closed;
use super::places::Seat;
use super::socket::give_way;

/// The type of a frame that begins a call.
const HEADERS: u8 = 1;
/// The type of a frame that resets one.
const RESET: u8 = 3;
/// Calls of one turn that were reset in it, after which others of the thread have their turn: about a millisecond of work.
const IN_A_TURN: u32 = 256;
/// The same calls from one look at the connection to the next, which is 10 s; then it ends. A call with its message and its reset takes more than a
/// hundred bytes, and Linux keeps 6 MiB of them for a connection, so that a stall leaves fewer. Their work is a small part of a core.
const IN_ALL: u32 = 65_536;

/// Such calls of all connections of a core that are taken as they come: those of a stall of more than a second under full load.
const AT_ONCE: u32 = 32_768;
/// The time for each beyond that: 20,000 a second, which take about an eighth of a core, 6 us each. New connections do not get around that.
const EACH: Duration = Duration::from_micros(50);
/// The longest wait of a connection.
const LONGEST: Duration = Duration::from_secs(2);
/// Such calls of a connection in 10 s for which it does not wait, whatever the others do.
const FEW: u32 = 32;

thread_local! {
    /// The pace of the connections of this core.
    static PACE: Pace = const { Pace(Cell::new(None)) };
}

/// When the calls that were reset at once are paid for; none: there were none.
struct Pace(Cell<Option<Instant>>);

impl Pace {
    /// Pays for some calls. Returns how long their connection has to wait.
    fn pay(&self, calls: u32, now: Instant) -> Duration {
        let paid = self.0.get().map_or(now, |paid| paid.max(now)) + EACH * calls;
        let paid = paid.min(now + EACH * AT_ONCE + LONGEST);
        self.0.set(Some(paid));
        (paid - now).saturating_sub(EACH * AT_ONCE)
    }

    /// Whether the next calls would have to wait. Looks at the time only while there is something to pay for.
    fn is_behind(&self, now: impl FnOnce() -> Instant) -> bool {
        let Some(paid) = self.0.get() else { return false };
        let left = paid.saturating_duration_since(now());
        if left.is_zero() {
            self.0.set(None);
        }
        left > EACH * AT_ONCE
    }
}

/// Whether so many calls were reset on this core that its connections have to wait. Those of which nothing is known yet then read little at a time:
/// an attacker may have thousands of them.
pub(super) fn is_core_flooded() -> bool {
    PACE.with(|pace| pace.is_behind(Instant::now))
}

/// What is seen of the calls of a connection.
#[derive(Debug)]
pub(crate) struct Resets {
    /// While the connection waits.
    rest: Option<Pin<Box<Sleep>>>,
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
        Self { rest: None, turn: seat.turn(), seat, latest: 0, first: None, cut_short: 0, counted: 0 }
    }

    /// Waits until more may be read: others of the thread have their turn first, and the core is not flooded.
    pub(crate) fn poll_may_read(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Some(rest) = &mut self.rest {
            ready!(rest.as_mut().poll(context));
            self.rest = None;
        }
        if self.are_many() { give_way(context) } else { Poll::Ready(()) }
    }

    fn are_many(&mut self) -> bool {
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
        if seen == 0 {
            return Ok(());
        }
        let own = self.seat.cut_short(seen);
        if own > IN_ALL {
            self.seat.count(Closed::Resets);
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the peer resets calls at once"));
        }
        let rest = PACE.with(|pace| pace.pay(seen, Instant::now()));
        if own > FEW && !rest.is_zero() {
            self.rest = Some(Box::pin(sleep(rest)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn calls_that_are_reset_in_the_turn_of_their_start_are_counted_and_no_others() {
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
    fn a_flood_of_all_connections_of_a_core_is_slowed_down_and_a_stall_is_not() {
        let pace = Pace(Cell::new(None));
        let now = Instant::now();
        assert_eq!(pace.pay(AT_ONCE - 1, now), Duration::ZERO);
        assert!(!pace.is_behind(|| now));
        assert_eq!([1, 1_000, 1_000].map(|calls| pace.pay(calls, now)), [0, 50, 100].map(Duration::from_millis));
        assert!(pace.is_behind(|| now));
        assert_eq!(pace.pay(1_000_000, now), LONGEST);
        let later = now + LONGEST + EACH * AT_ONCE;
        assert!(!pace.is_behind(|| later));
        assert_eq!(pace.pay(AT_ONCE, later), Duration::ZERO, "that was paid for");
    }

    #[tokio::test]
    async fn many_end_a_turn_and_too_many_end_the_connection_until_the_next_look() {
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
