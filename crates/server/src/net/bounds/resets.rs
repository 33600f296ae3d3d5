//! Calls of one connection that are reset before the server could begin them.
//!
//! Callers with a timeout cause some when this process stalls: both the call and its reset wait in
//! the socket then. Such resets are also a cheap attack (CVE-2023-44487). The two cases differ in
//! the work that they cause.

use std::cell::Cell;
use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use super::conn_state::ConnState;
use super::counts::Closed;
use super::socket::give_way;

/// The type of a HEADERS frame, which begins a call.
const HEADERS: u8 = 1;
/// The type of an RST_STREAM frame, which resets a call.
const RESET: u8 = 3;
/// Early resets of one poll after which the task yields to other tasks of the thread: about a
/// millisecond of work.
const MAX_PER_TURN: u32 = 256;
/// Maximum of early resets of a connection between two checks, which are 10 s apart. With more, the
/// connection is closed. A call with its message and its reset takes more than a hundred bytes.
/// Linux keeps 6 MiB of them for a connection, so a stall leaves fewer. Their work is a small part
/// of a core.
const MAX_PER_CHECK: u32 = 65_536;

/// Early resets of all connections of a core that cost no wait: those of a stall of more than a
/// second under full load.
const BURST: u32 = 32_768;
/// Time that each early reset after [`BURST_CALLS`] costs: 20,000 a second, which take about an
/// eighth of a core, 6 us each. New connections share this pace.
const TIME_PER_CALL: Duration = Duration::from_micros(50);
/// The longest wait of a connection.
const MAX_WAIT: Duration = Duration::from_secs(2);
/// Early resets of a connection between two checks that cost it no wait, however many the other
/// connections have.
const FREE_PER_CHECK: u32 = 32;

thread_local! {
    /// The pace of the connections of this core.
    static PACE: ResetPace = const { ResetPace(Cell::new(None)) };
}

/// The time until which the core is busy with early resets, at [`TIME_PER_CALL`] each. `None` if
/// there were none.
struct ResetPace(Cell<Option<Instant>>);

impl ResetPace {
    /// Adds the time for `calls` early resets. Returns how long their connection has to wait.
    fn spend(&self, calls: u32, now: Instant) -> Duration {
        let spent_until = self.0.get().map_or(now, |until| until.max(now)) + TIME_PER_CALL * calls;
        let spent_until = spent_until.min(now + TIME_PER_CALL * BURST + MAX_WAIT);
        self.0.set(Some(spent_until));
        (spent_until - now).saturating_sub(TIME_PER_CALL * BURST)
    }

    /// Whether the next early resets would cost a wait. Reads the clock only after early resets.
    fn is_behind(&self, now: impl FnOnce() -> Instant) -> bool {
        let Some(spent_until) = self.0.get() else {
            return false;
        };
        let left = spent_until.saturating_duration_since(now());
        if left.is_zero() {
            self.0.set(None);
        }
        left > TIME_PER_CALL * BURST
    }
}

/// Whether the early resets on this core exceed its pace, so that connections have to wait. Then
/// each connection reads few bytes in a poll, because an attacker may have thousands of new
/// connections.
pub(super) fn is_core_flooded() -> bool {
    PACE.with(|pace| pace.is_behind(Instant::now))
}

/// Counts the calls of a connection that are reset in the poll in which they came.
#[derive(Debug)]
pub(crate) struct Resets {
    /// The wait before the next read, if there is one.
    wait: Option<Pin<Box<Sleep>>>,
    seat: Arc<ConnState>,
    /// The poll of `first_stream`, `early_resets` and `counted`.
    turn: u32,
    /// The latest call of the connection.
    latest: u32,
    /// The first call of this poll.
    first: Option<u32>,
    /// Calls that came in this poll and were reset in it.
    cut_short: u32,
    /// The part of `early_resets` that `conn_state` has counted.
    counted: u32,
}

impl Resets {
    pub(crate) fn new(seat: Arc<ConnState>) -> Self {
        Self {
            wait: None,
            turn: seat.turn(),
            seat,
            latest: 0,
            first: None,
            cut_short: 0,
            counted: 0,
        }
    }

    /// Waits until more may be read: other tasks of the thread run first, and the core is not
    /// flooded.
    pub(crate) fn poll_may_read(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Some(wait) = &mut self.wait {
            ready!(wait.as_mut().poll(context));
            self.wait = None;
        }
        if self.is_turn_used_up() {
            give_way(context)
        } else {
            Poll::Ready(())
        }
    }

    /// Whether this poll has had [`MAX_RESETS_PER_POLL`] early resets, so that the next poll reads
    /// more.
    fn is_turn_used_up(&mut self) -> bool {
        let turn = self.seat.turn();
        if self.turn != turn {
            self.turn = turn;
            self.first = None;
            self.cut_short = 0;
            self.counted = 0;
        }
        self.cut_short >= MAX_PER_TURN
    }

    /// Counts the frame with this header.
    pub(crate) fn on_frame(&mut self, kind: u8, stream: u32) {
        if kind == HEADERS && stream > self.latest {
            self.latest = stream;
            self.first.get_or_insert(stream);
        } else if kind == RESET && self.first.is_some_and(|first| stream >= first) {
            self.cut_short += 1;
        }
    }

    /// Counts the early resets since the last call, and sets the wait for them.
    ///
    /// # Errors
    /// The connection has too many early resets, and has to be closed.
    pub(crate) fn count(&mut self) -> io::Result<()> {
        let calls = self.cut_short - self.counted;
        self.counted = self.cut_short;
        if calls == 0 {
            return Ok(());
        }
        let of_connection = self.seat.add_cut_short(calls);
        if of_connection > MAX_PER_CHECK {
            self.seat.count(Closed::Resets);
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the peer resets calls at once",
            ));
        }
        let wait = PACE.with(|pace| pace.spend(calls, Instant::now()));
        if of_connection > FREE_PER_CHECK && !wait.is_zero() {
            self.wait = Some(Box::pin(sleep(wait)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn calls_that_are_reset_in_the_turn_of_their_start_are_counted_and_no_others() {
        let seat = Arc::new(ConnState::new(Arc::default()));
        let mut resets = Resets::new(seat.clone());
        let mut check = |frames: &[(u8, u32)], expected: u32| {
            seat.begin_turn();
            assert!(!resets.is_turn_used_up());
            frames
                .iter()
                .for_each(|&(kind, stream)| resets.on_frame(kind, stream));
            assert_eq!(resets.cut_short, expected, "{frames:?}");
        };
        check(&[(RESET, 1)], 0);
        check(&[(HEADERS, 1), (0, 1), (HEADERS, 3), (RESET, 1)], 1);
        // A call of the turn before, also when it has trailers now.
        check(
            &[
                (RESET, 3),
                (HEADERS, 5),
                (RESET, 3),
                (HEADERS, 3),
                (RESET, 3),
                (RESET, 5),
            ],
            1,
        );
        check(&[(HEADERS, 3), (RESET, 3)], 0);
    }

    #[test]
    fn a_flood_of_all_connections_of_a_core_is_slowed_down_and_a_stall_is_not() {
        let pace = ResetPace(Cell::new(None));
        let now = Instant::now();
        assert_eq!(pace.spend(BURST - 1, now), Duration::ZERO);
        assert!(!pace.is_behind(|| now));
        assert_eq!(
            [1, 1_000, 1_000].map(|calls| pace.spend(calls, now)),
            [0, 50, 100].map(Duration::from_millis)
        );
        assert!(pace.is_behind(|| now));
        assert_eq!(pace.spend(1_000_000, now), MAX_WAIT);
        let later = now + MAX_WAIT + TIME_PER_CALL * BURST;
        assert!(!pace.is_behind(|| later));
        assert_eq!(pace.spend(BURST, later), Duration::ZERO, "the time is over");
    }

    #[tokio::test]
    async fn many_end_a_turn_and_too_many_end_the_connection_until_the_next_check() {
        let seat = Arc::new(ConnState::new(Arc::default()));
        let mut resets = Resets::new(seat.clone());
        let mut streams = (1..).step_by(2);
        let mut turn = |resets: &mut Resets| {
            seat.begin_turn();
            while !resets.is_turn_used_up() {
                let stream = streams.next().unwrap();
                resets.on_frame(HEADERS, stream);
                resets.on_frame(RESET, stream);
            }
            resets.count()
        };
        for check in 0..2 {
            for number in 0..MAX_PER_CHECK / MAX_PER_TURN {
                assert!(turn(&mut resets).is_ok(), "turn {number} of check {check}");
            }
            if check == 0 {
                seat.begin_check();
            }
        }
        assert!(turn(&mut resets).is_err());
    }
}
