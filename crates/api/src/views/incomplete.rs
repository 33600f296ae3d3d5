//! Report of the data that an answer lacks because a part of the store does not answer.

use serde::Serialize;
use tidegate_workflow::MissingPartitions;
#[cfg(test)]
use utoipa::ToSchema;

use crate::http::problem::Problem;

/// Data that this answer lacks, because a part of the store does not answer.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct Incomplete {
    /// The partitions of which nothing is in this answer. Empty when that is not known.
    partitions: Vec<u16>,
    /// Why, in the words of the store.
    reason: String,
}

impl Incomplete {
    /// The store as a whole does not answer.
    pub(crate) fn from_problem(problem: &Problem) -> Self {
        Self {
            partitions: Vec::new(),
            reason: problem.detail().to_owned(),
        }
    }

    /// Returns `None` if the answer is complete.
    pub(crate) fn from_missing(missing: &MissingPartitions) -> Option<Self> {
        let reason = missing.0.values().next()?.to_string();
        Some(Self {
            partitions: missing.0.keys().map(|partition| partition.0).collect(),
            reason,
        })
    }
}
