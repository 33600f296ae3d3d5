//! The part of a batch that goes to one node.

use std::ops::Range;

use smallvec::SmallVec;

use crate::batch::Load;

/// The units of a batch that travel together to one node.
#[derive(Debug, Default)]
pub(crate) struct UnitSet {
    /// Ranges of unit indices, ascending. One range when a batch goes to one node.
    pub(crate) ranges: SmallVec<[Range<u32>; 1]>,
    pub(crate) load: Load,
}

impl UnitSet {
    /// Adds the next unit.
    pub(crate) fn push(&mut self, unit: u32, load: Load) {
        match self.ranges.last_mut() {
            Some(range) if range.end == unit => range.end += 1,
            _ => self.ranges.push(unit..unit + 1),
        }
        self.load.add(load);
    }

    /// The indices of the units, ascending.
    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> + use<> {
        self.ranges.clone().into_iter().flatten()
    }

    pub(crate) fn contains(&self, unit: u32) -> bool {
        self.ranges.iter().any(|range| range.contains(&unit))
    }
}
