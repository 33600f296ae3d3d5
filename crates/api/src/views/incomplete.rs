//! Report of the data that an answer lacks because a part of the store does not answer.

use serde::Serialize;
use tidegate_workflow::MissingPartitions;
#[cfg(test)]
use utoipa::ToSchema;

/// Data that this answer lacks, because a part of the store does not answer.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct Incomplete {
    /// The partitions of which nothing is in this answer.
    partitions: Vec<u16>,
    /// Why, in the words of the store.
    reason: String,
}

impl Incomplete {
    /// Returns `None` if the answer is complete.
    pub(crate) fn from_missing(missing: &MissingPartitions) -> Option<Self> {
        let reason = missing.0.values().next()?.to_string();
        Some(Self {
            partitions: missing.0.keys().map(|partition| partition.0).collect(),
            reason,
        })
    }
}
