//! Selects the connection that takes a group: plain functions over the state of the connections.
//!
//! The load goes to the oldest connections, where batches grow. The other connections become idle
//! and are closed. The wait of groups decides whether another connection is opened.

use std::time::Duration;

use fastrand::Rng;

use crate::batch::Load;

/// Wait above which another connection is worth its cost. Opening one costs Redis as much as some
/// hundred commands, and its caller at least two round trips.
const CONNECT_QUEUE_DELAY: Duration = Duration::from_millis(2);

/// Number of connections from which only a share of them is tried at random: each try costs, and a
/// new connection serves too.
const RANDOM_SEARCH_MIN_LINKS: usize = 64;

/// Returns whether a connection that carries `load` may take `more` within `cap`.
///
/// An empty connection takes any group: one larger than the cap would otherwise never be sent.
pub(crate) fn accepts(load: Load, more: Load, cap: Load) -> bool {
    load.commands == 0 || load.fits(more, cap)
}

/// Estimates the time that a queue takes: each connection answers as much as its cap once per reply
/// time.
///
/// The mean over the connections is right while they answer at different times, and too low while
/// all answer at once. A connection without an answer so far counts as fast, so that it is used
/// before another one is opened.
pub(crate) fn queue_delay(
    waiting: Load,
    cap: Load,
    reply_times: impl Iterator<Item = Duration>,
) -> Duration {
    let share = |waiting: usize, cap: usize| waiting as f64 / cap as f64;
    let caps = share(waiting.commands, cap.commands).max(share(waiting.bytes, cap.bytes));
    if caps == 0.0 {
        return Duration::ZERO;
    }
    let caps_a_second: f64 = reply_times.map(|time| 1.0 / time.as_secs_f64()).sum();
    Duration::try_from_secs_f64(caps / caps_a_second).unwrap_or(Duration::MAX)
}

/// Returns whether groups wait so long that another connection costs less.
pub(crate) fn is_worth_a_connection(queue_delay: Duration) -> bool {
    queue_delay > CONNECT_QUEUE_DELAY
}

/// Returns the index of the connection that takes a group, among `links`, oldest first. `None` lets
/// the group wait.
///
/// Takes the first of the oldest `space` that accepts the group, otherwise a random one of the
/// rest. It draws with replacement, so that the work is bounded in any state of the connections: it
/// may miss one that has room.
#[inline]
pub(crate) fn select<L>(
    links: &[L],
    search_space: usize,
    accepts: impl Fn(&L) -> bool,
    rng: &mut Rng,
) -> Option<usize> {
    let (ordered, rest) = links.split_at(search_space.min(links.len()));
    if let Some(at) = ordered.iter().position(&accepts) {
        return Some(at);
    }
    let tries = if rest.len() < RANDOM_SEARCH_MIN_LINKS {
        rest.len()
    } else {
        rest.len() * 3 / 4
    };
    (0..tries)
        .map(|_| rng.usize(..rest.len()))
        .find(|&at| accepts(&rest[at]))
        .map(|at| ordered.len() + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the distinct results of 200 searches among connections. `accepting` says whether
    /// each has room.
    fn draws(space: usize, accepting: &[bool]) -> Vec<Option<usize>> {
        let mut rng = Rng::with_seed(7);
        let mut draws: Vec<_> = (0..200)
            .map(|_| select(accepting, space, |&accepts| accepts, &mut rng))
            .collect();
        draws.sort_unstable();
        draws.dedup();
        draws
    }

    #[test]
    fn load_is_counted_in_commands_and_bytes() {
        let load = |commands, bytes| Load { commands, bytes };
        let cap = load(10, 50);
        assert!(accepts(load(4, 20), load(6, 30), cap));
        assert!(!accepts(load(4, 20), load(7, 1), cap));
        assert!(!accepts(load(4, 20), load(1, 31), cap));
        assert!(accepts(load(0, 0), load(100, 1000), cap));
    }

    #[test]
    fn the_first_with_room_takes_the_group() {
        for count in 1..10 {
            assert_eq!(draws(10, &vec![true; count]), [Some(0)]);
        }
        for full in 0..10 {
            let accepting: Vec<bool> = (0..12).map(|at| at >= full).collect();
            assert_eq!(draws(10, &accepting), [Some(full)]);
        }
        assert_eq!(draws(10, &[false; 9]), [None]);
        assert_eq!(draws(10, &[]), [None]);
    }

    #[test]
    fn outside_the_search_space_one_is_drawn_at_random() {
        let found = draws(1, &[false, true, true, true, true]);
        assert_eq!(found, [Some(1), Some(2), Some(3), Some(4)]);
        // With replacement a free one may be missed: a connection is opened then, although one is
        // free.
        let found = draws(1, &[false, false, false, false, true]);
        assert_eq!(found, [None, Some(4)]);
        assert_eq!(draws(0, &[true, true]), [Some(0), Some(1)]);
        let mut many = [false; 200];
        many[199] = true;
        assert_eq!(draws(0, &many), [None, Some(199)]);
    }

    /// Compares the delay in microseconds when `waiting` commands of ten bytes wait and connections
    /// take 100 of them.
    fn check_delay(waiting: usize, reply_times: &[u64], expected: u64) {
        let load = |commands| Load {
            commands,
            bytes: commands * 10,
        };
        let reply_times = reply_times
            .iter()
            .map(|&micros| Duration::from_micros(micros));
        let delay = queue_delay(load(waiting), load(100), reply_times);
        assert_eq!(delay.as_micros(), u128::from(expected), "{waiting} wait");
    }

    #[test]
    fn the_delay_of_a_queue_grows_with_it_and_falls_with_connections() {
        check_delay(0, &[1_000], 0);
        check_delay(100, &[1_000], 1_000);
        check_delay(900, &[1_000], 9_000);
        check_delay(900, &[1_000; 4], 2_250);
        // One that hangs is not counted on, and one that is new is.
        check_delay(100, &[1_000, 1_000_000], 999);
        check_delay(100, &[1_000, 0], 0);
        check_delay(0, &[], 0);
        assert_eq!(
            queue_delay(
                Load {
                    commands: 1,
                    bytes: 10
                },
                Load {
                    commands: 1,
                    bytes: 1
                },
                [].into_iter()
            ),
            Duration::MAX
        );
        let bytes = queue_delay(
            Load {
                commands: 1,
                bytes: 500,
            },
            Load {
                commands: 100,
                bytes: 100,
            },
            [Duration::from_millis(1)].into_iter(),
        );
        assert_eq!(bytes, Duration::from_millis(5));
    }

    #[test]
    fn a_short_wait_is_not_worth_a_connection() {
        assert!(!is_worth_a_connection(Duration::from_micros(2_000)));
        assert!(is_worth_a_connection(Duration::from_micros(2_001)));
    }
}
