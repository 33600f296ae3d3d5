//! What a store can do for a partition right now.

use super::error::StoreError;

/// What a store does for a partition, as a question that changes nothing found out. Memory that is full, for example, stops writes and
/// neither reads nor removals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// Reads.
    pub reads: Result<(), StoreError>,
    /// Writes that only remove something.
    pub removals: Result<(), StoreError>,
    /// Writes that add something.
    pub writes: Result<(), StoreError>,
}
