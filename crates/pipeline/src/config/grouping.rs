//! Which units of a batch travel together.

/// Which units of a batch travel together.
///
/// Older clients group by slot or by key, and then pay a round trip for each group where they send one after the other.
/// Those two are here to be measured against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Grouping {
    /// All that one node owns.
    #[default]
    Node,
    /// All of one hash slot.
    Slot,
    /// All of one key.
    Key,
}
