//! Counts of configured limits on one core, by slot.

use std::sync::OnceLock;

use tidegate_ratelimit::LimitDelta;

use crate::telemetry::metrics::limit_counts::{LimitCounts, SharedLimitCounts};

/// Number of slots in the first chunk (64 KiB). Each further chunk doubles it, so slots never move.
const FIRST_CHUNK_SLOTS: usize = 1 << 10;
/// Number of chunks, enough for 2^32 slots.
const CHUNKS: usize = 23;

/// Array that allocates chunks on first use, without a lock.
#[derive(Debug)]
pub(crate) struct Slots([OnceLock<Box<[SharedLimitCounts]>>; CHUNKS]);

impl Default for Slots {
    fn default() -> Self {
        Self([const { OnceLock::new() }; CHUNKS])
    }
}

impl Slots {
    /// Adds to the counts of a slot.
    pub(crate) fn add(&self, slot: u32, delta: &LimitDelta) {
        let (chunk, at) = locate(slot);
        let new = || {
            std::iter::repeat_with(SharedLimitCounts::default)
                .take(FIRST_CHUNK_SLOTS << chunk)
                .collect()
        };
        self.0[chunk].get_or_init(new)[at].add(delta);
    }

    /// Reads the counts of a slot.
    pub(crate) fn read(&self, slot: u32) -> LimitCounts {
        self.get(slot)
            .map(SharedLimitCounts::read)
            .unwrap_or_default()
    }

    /// Resets the counts of a slot.
    pub(crate) fn clear(&self, slot: u32) {
        if let Some(counts) = self.get(slot) {
            counts.clear();
        }
    }

    fn get(&self, slot: u32) -> Option<&SharedLimitCounts> {
        let (chunk, at) = locate(slot);
        self.0[chunk].get().map(|chunk| &chunk[at])
    }
}

/// Index of the chunk of a slot, and of the slot in it.
fn locate(slot: u32) -> (usize, usize) {
    let number = slot as usize + FIRST_CHUNK_SLOTS;
    let chunk = (number.ilog2() - FIRST_CHUNK_SLOTS.ilog2()) as usize;
    (chunk, number - (FIRST_CHUNK_SLOTS << chunk))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_has_a_place_of_its_own() {
        let edge = FIRST_CHUNK_SLOTS as u32;
        for (slot, expected) in [
            (0, (0, 0)),
            (edge - 1, (0, FIRST_CHUNK_SLOTS - 1)),
            (edge, (1, 0)),
            (3 * edge - 1, (1, 2 * FIRST_CHUNK_SLOTS - 1)),
            (3 * edge, (2, 0)),
            (u32::MAX, (22, FIRST_CHUNK_SLOTS - 1)),
        ] {
            assert_eq!(locate(slot), expected, "{slot}");
        }
    }
}
