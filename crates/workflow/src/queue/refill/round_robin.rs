//! Rotation of queues, for reads of the store that cover only some of them.

use std::sync::{Mutex, PoisonError};

/// Position in the rotation of queues, which is ordered by name.
#[derive(Debug, Default)]
pub(crate) struct RoundRobin {
    /// Last name that was returned, empty before the first rotation.
    last_name: Mutex<String>,
}

impl RoundRobin {
    /// Returns at most `limit` of these names. While the names stay unchanged, each is returned
    /// once before any is returned again.
    pub(crate) fn next(&self, mut names: Vec<String>, limit: usize) -> Vec<String> {
        if names.len() > limit {
            names.sort_unstable();
            let mut last = self
                .last_name
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let next = names.partition_point(|name| *name <= *last);
            names.rotate_left(next);
            names.truncate(limit);
            names
                .last()
                .into_iter()
                .for_each(|name| last.clone_from(name));
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_have_their_turn_before_one_has_it_again() {
        let turns = RoundRobin::default();
        let names = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let next = |all: &str| turns.next(names(all), 2).join(" ");
        assert_eq!(
            ["b a", "c b a", "c b a", "c b a"].map(next),
            ["b a", "a b", "c a", "b c"]
        );
        assert_eq!(
            [next("d e f g"), next("f d e g"), next("a z y")],
            ["d e", "f g", "y z"]
        );
    }
}
