//! Which of a node's connections takes a group: plain functions over the state of the connections.
//!
//! Every policy except random search puts the load on few connections: batches grow there, and the other connections become
//! idle and are closed. No policy opens a connection. Whether another one is opened depends on how long groups wait, and on a
//! core that is to be filled first.

use std::time::Duration;

use fastrand::Rng;

use crate::batch::load::Load;
use crate::config::selection::Selection;

/// A connection, as selection sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// Whether it has room for the group.
    pub(crate) accepts: bool,
    /// How long the group would wait, for comparison only; lower is better.
    pub(crate) cost: u64,
}

impl Candidate {
    /// A connection that must not take the group.
    pub(crate) const EXCLUDED: Self = Self {
        accepts: false,
        cost: u64::MAX,
    };
}

/// A shorter wait for a connection costs less than another connection. To open one costs Redis as much as some hundred
/// commands, and its caller at least two round trips.
const SOFT_QUEUE_DELAY: Duration = Duration::from_millis(2);

/// From this many connections on, only a share of them is tried at random: each try costs, and a new connection serves too.
const RANDOM_SEARCH_FROM: usize = 64;

/// Whether a connection that carries `load` may take `more` within `cap`.
///
/// An empty connection takes anything: a group larger than the cap would otherwise never be sent.
pub(crate) fn accepts(load: Load, more: Load, cap: Load) -> bool {
    load.commands == 0 || load.fits(more, cap)
}

/// How long a queue will take: each connection answers as much as its cap once per reply time.
///
/// The mean over the connections is right while they answer at different moments, and too low while all answer at once.
/// A connection that has answered nothing yet counts as fast, so that it is used before another one is opened.
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

/// Whether groups wait so long that another connection costs less.
pub(crate) fn is_worth_a_connection(queue_delay: Duration) -> bool {
    queue_delay > SOFT_QUEUE_DELAY
}

impl Selection {
    /// The connection that takes the group, by its place among `candidates`, oldest connection first. None lets it wait.
    #[inline]
    pub(crate) fn select(self, candidates: &[Candidate], rng: &mut Rng) -> Option<usize> {
        match self {
            Self::Linear { space } => {
                let (ordered, rest) = candidates.split_at(space.min(candidates.len()));
                first(ordered).or_else(|| random(rest, rng).map(|at| ordered.len() + at))
            }
            Self::CorePool { size, .. } => within_core(candidates, size, |core| {
                let start = if core.is_empty() {
                    0
                } else {
                    rng.usize(..core.len())
                };
                let turns = (start..core.len()).chain(0..start);
                turns.into_iter().find(|&at| core[at].accepts)
            }),
            Self::PowerOfTwo { core, effort, .. } => {
                let size = if core == 0 { candidates.len() } else { core };
                within_core(candidates, size, |core| power_of_two(core, effort, rng))
            }
        }
    }
}

fn first(candidates: &[Candidate]) -> Option<usize> {
    candidates.iter().position(|candidate| candidate.accepts)
}

/// Draws with replacement, so that the work is bounded in any state of the connections. It may miss one that has room.
fn random(candidates: &[Candidate], rng: &mut Rng) -> Option<usize> {
    let tries = if candidates.len() < RANDOM_SEARCH_FROM {
        candidates.len()
    } else {
        candidates.len() * 3 / 4
    };
    (0..tries)
        .map(|_| rng.usize(..candidates.len()))
        .find(|&at| candidates[at].accepts)
}

fn within_core(
    candidates: &[Candidate],
    size: usize,
    search: impl FnOnce(&[Candidate]) -> Option<usize>,
) -> Option<usize> {
    let (core, overflow) = candidates.split_at(size.min(candidates.len()));
    search(core).or_else(|| first(overflow).map(|at| core.len() + at))
}

fn power_of_two(candidates: &[Candidate], effort: usize, rng: &mut Rng) -> Option<usize> {
    let pairs = match candidates.len() {
        0 => return None,
        1 => return first(candidates),
        2 => 1,
        _ => effort,
    };
    (0..pairs).find_map(|_| {
        let one = rng.usize(..candidates.len());
        let other = (one + rng.usize(1..candidates.len())) % candidates.len();
        let (better, worse) = if candidates[one].cost <= candidates[other].cost {
            (one, other)
        } else {
            (other, one)
        };
        [better, worse]
            .into_iter()
            .find(|&at| candidates[at].accepts)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::selection::Fill;

    /// Connections that accept, by place; all cost the same.
    fn candidates(accepting: &[bool]) -> Vec<Candidate> {
        accepting
            .iter()
            .map(|&accepts| Candidate { accepts, cost: 1 })
            .collect()
    }

    fn draws(policy: Selection, candidates: &[Candidate]) -> Vec<Option<usize>> {
        let mut rng = Rng::with_seed(7);
        let mut draws: Vec<_> = (0..200)
            .map(|_| policy.select(candidates, &mut rng))
            .collect();
        draws.sort_unstable();
        draws.dedup();
        draws
    }

    const LINEAR: Selection = Selection::Linear { space: 10 };

    fn core(size: usize, fill: Fill) -> Selection {
        Selection::CorePool { size, fill }
    }

    fn pairs(core: usize, fill: Fill) -> Selection {
        Selection::PowerOfTwo {
            core,
            effort: 5,
            fill,
        }
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
    fn linear_takes_the_first_with_room() {
        for count in 1..10 {
            assert_eq!(draws(LINEAR, &candidates(&vec![true; count])), [Some(0)]);
        }
        for full in 0..10 {
            let accepting: Vec<bool> = (0..12).map(|at| at >= full).collect();
            assert_eq!(draws(LINEAR, &candidates(&accepting)), [Some(full)]);
        }
        assert_eq!(draws(LINEAR, &candidates(&[false; 9])), [None]);
        assert_eq!(draws(LINEAR, &[]), [None]);
    }

    #[test]
    fn beyond_its_space_linear_draws_at_random() {
        let policy = Selection::Linear { space: 1 };
        let found = draws(policy, &candidates(&[false, true, true, true, true]));
        assert_eq!(found, [Some(1), Some(2), Some(3), Some(4)]);
        // With replacement a free one may be missed: a connection is opened then, although one is free.
        let found = draws(policy, &candidates(&[false, false, false, false, true]));
        assert_eq!(found, [None, Some(4)]);
        assert_eq!(
            draws(Selection::Linear { space: 0 }, &candidates(&[true, true])),
            [Some(0), Some(1)]
        );
        let mut many = candidates(&[false; 200]);
        many[199].accepts = true;
        assert_eq!(
            draws(Selection::Linear { space: 0 }, &many),
            [None, Some(199)]
        );
    }

    #[test]
    fn core_pool_shares_among_the_core_then_spills() {
        let found = draws(core(5, Fill::OnDemand), &candidates(&[true; 10]));
        assert_eq!(found, (0..5).map(Some).collect::<Vec<_>>());
        assert_eq!(
            draws(
                core(5, Fill::OnDemand),
                &candidates(&[false, false, false, false, false, true])
            ),
            [Some(5)]
        );
        assert_eq!(draws(core(5, Fill::OnDemand), &[]), [None]);
    }

    #[test]
    fn a_core_that_fills_first_takes_the_load_meanwhile() {
        for size in 1..10 {
            for policy in [core(size, Fill::First), pairs(size, Fill::First)] {
                assert_eq!(policy.fills_first(), size);
                let found = draws(policy, &candidates(&[true; 5]));
                assert_eq!(
                    found,
                    (0..size.min(5)).map(Some).collect::<Vec<_>>(),
                    "{policy:?}"
                );
            }
            for policy in [
                core(size, Fill::OnDemand),
                pairs(size, Fill::OnDemand),
                LINEAR,
            ] {
                assert_eq!(policy.fills_first(), 0);
            }
        }
    }

    /// Compares the delay in microseconds when `waiting` commands of ten bytes wait and connections take 100 of them.
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

    #[test]
    fn the_cheaper_of_two_is_preferred_and_the_other_is_the_fallback() {
        let mut two = vec![
            Candidate {
                accepts: true,
                cost: 9,
            },
            Candidate {
                accepts: true,
                cost: 3,
            },
        ];
        assert_eq!(draws(pairs(0, Fill::OnDemand), &two), [Some(1)]);
        two[1].accepts = false;
        assert_eq!(draws(pairs(0, Fill::OnDemand), &two), [Some(0)]);
        assert_eq!(draws(pairs(0, Fill::OnDemand), &two[..1]), [Some(0)]);
        let found = draws(pairs(5, Fill::OnDemand), &candidates(&[true; 10]));
        assert_eq!(found, (0..5).map(Some).collect::<Vec<_>>());
        assert_eq!(
            draws(pairs(1, Fill::OnDemand), &candidates(&[false, true])),
            [Some(1)]
        );
    }
}
