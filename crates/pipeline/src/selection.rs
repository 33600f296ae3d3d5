//! Which of a node's connections takes a group: plain functions over their loads.

use crate::call::Load;

/// Whether a connection that carries `load` may take `more` within `cap`.
///
/// An empty connection takes anything: a group larger than the cap would otherwise never be sent.
pub(crate) fn accepts(load: Load, more: Load, cap: Load) -> bool {
    load.commands == 0 || (load.commands + more.commands <= cap.commands && load.bytes + more.bytes <= cap.bytes)
}

/// The first connection, in order of age, that accepts the group.
///
/// Searching in a fixed order keeps load on the first connections: batches grow there, and the rest fall idle.
pub(crate) fn linear(loads: impl IntoIterator<Item = Load>, more: Load, cap: Load) -> Option<usize> {
    loads.into_iter().position(|load| accepts(load, more, cap))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(commands: usize) -> Load {
        Load { commands, bytes: commands * 10 }
    }

    fn check(loads: &[usize], more: usize, expected: Option<usize>) {
        let cap = Load { commands: 10, bytes: 1000 };
        assert_eq!(linear(loads.iter().map(|&commands| load(commands)), load(more), cap), expected, "{loads:?} {more}");
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
    fn bytes_count_as_commands_do() {
        let cap = Load { commands: 10, bytes: 50 };
        assert_eq!(linear([load(4)], load(2), cap), None);
    }
}
