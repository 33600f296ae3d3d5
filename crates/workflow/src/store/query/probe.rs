//! The result of a store probe: the kinds of calls that a store serves for a partition now.

use crate::codec::StoreError;

/// The kinds of calls that a store serves for a partition, found by a probe that changes nothing.
/// Full memory, for example, stops writes but neither reads nor removals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// Whether reads succeed.
    pub reads: Result<(), StoreError>,
    /// Whether writes that only remove succeed.
    pub removals: Result<(), StoreError>,
    /// Whether writes that add succeed.
    pub writes: Result<(), StoreError>,
}
