//! Counts of configured limits on one core, by slot.

use std::sync::OnceLock;

use tidegate_ratelimit::LimitDelta;

use super::limit_counts::{LimitCounts, SharedLimitCounts};

/// Number of slots in the first chunk (64 KiB). Each further chunk doubles it, so slots never move.
const FIRST: usize = 1 << 10;
/// Number of chunks, enough for 2^32 slots.
const CHUNKS: usize = 23;

/// Array that allocates chunks on first use, without a lock.
#[derive(Debug)]
pub(super) struct Slots([OnceLock<Box<[SharedLimitCounts]>>; CHUNKS]);

impl Default for Slots {
    fn default() -> Self {
        Self([const { OnceLock::new() }; CHUNKS])
    }
}

impl Slots {
    /// Adds to the counts of a slot.
    pub(super) fn add(&self, slot: u32, tally: &LimitDelta) {
        let (chunk, at) = place(slot);
        let new = || {
            std::iter::repeat_with(SharedLimitCounts::default)
                .take(FIRST << chunk)
                .collect()
        };
        self.0[chunk].get_or_init(new)[at].add(tally);
    }

    /// Reads the counts of a slot.
    pub(super) fn read(&self, slot: u32) -> LimitCounts {
        self.get(slot)
            .map(SharedLimitCounts::read)
            .unwrap_or_default()
    }

    /// Resets the counts of a slot.
    pub(super) fn clear(&self, slot: u32) {
        if let Some(counts) = self.get(slot) {
            counts.clear();
        }
    }

    fn get(&self, slot: u32) -> Option<&SharedLimitCounts> {
        let (chunk, at) = place(slot);
        self.0[chunk].get().map(|chunk| &chunk[at])
    }
}

/// Index of the chunk of a slot, and of the slot in it.
fn place(slot: u32) -> (usize, usize) {
    let number = slot as usize + FIRST;
    let chunk = (number.ilog2() - FIRST.ilog2()) as usize;
    (chunk, number - (FIRST << chunk))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_has_a_place_of_its_own() {
        let edge = FIRST as u32;
        for (slot, expected) in [
            (0, (0, 0)),
            (edge - 1, (0, FIRST - 1)),
            (edge, (1, 0)),
            (3 * edge - 1, (1, 2 * FIRST - 1)),
            (3 * edge, (2, 0)),
            (u32::MAX, (22, FIRST - 1)),
        ] {
            assert_eq!(place(slot), expected, "{slot}");
        }
    }
}
