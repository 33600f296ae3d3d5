//! Which of a node's connections takes a group: plain functions over their loads.

use crate::call::Load;

/// Whether a connection that carries `load` may take `more` within `cap`.
///
/// An empty connection takes anything: a group larger than the cap would otherwise never be sent.
pub(crate) fn accepts(load: Load, more: Load, cap: Load) -> bool {
    load.commands == 0 || load.fits(more, cap)
}

/// The first connection, in order of age, that accepts the group.
///
/// Searching in a fixed order keeps load on the first connections: batches grow there, and the rest fall idle.
///
/// A connection that is not to be used has no load.
pub(crate) fn linear(loads: impl IntoIterator<Item = Option<Load>>, more: Load, cap: Load) -> Option<usize> {
    loads.into_iter().position(|load| load.is_some_and(|load| accepts(load, more, cap)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(commands: usize) -> Load {
        Load { commands, bytes: commands * 10 }
    }

    fn check(loads: &[usize], more: usize, expected: Option<usize>) {
        let cap = Load { commands: 10, bytes: 1000 };
        assert_eq!(
            linear(loads.iter().map(|&commands| Some(load(commands))), load(more), cap),
            expected,
            "{loads:?} {more}"
        );
    }

    #[test]
    fn the_first_with_room_is_taken() {
        check(&[], 1, None);
        check(&[0, 0, 0], 1, Some(0));
        check(&[10, 4, 0], 6, Some(1));
        check(&[10, 5, 0], 6, Some(2));
        check(&[10, 10], 1, None);
    }

    #[test]
    fn a_group_beyond_the_cap_needs_an_empty_connection() {
        check(&[1, 0], 11, Some(1));
        check(&[1, 1], 11, None);
    }

    #[test]
    fn a_connection_without_a_load_is_passed_over() {
        let cap = Load { commands: 10, bytes: 1000 };
        assert_eq!(linear([None, Some(load(4))], load(1), cap), Some(1));
    }

    #[test]
    fn bytes_count_as_commands_do() {
        let cap = Load { commands: 10, bytes: 50 };
        assert_eq!(linear([Some(load(4))], load(2), cap), None);
    }
}
