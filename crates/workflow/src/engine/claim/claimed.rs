//! What a worker gets with a lease.

use std::sync::Arc;

use bytes::Bytes;

use crate::graph::Graph;
use crate::id::JobIndex;
use crate::record::lease::LeaseRef;
use crate::time::Timestamp;

/// A job that a worker has, and all it needs to run it.
#[derive(Debug, Clone)]
pub struct Claimed {
    /// What to report with.
    pub lease: LeaseRef,
    /// When the lease ends unless it is extended.
    pub expires: Timestamp,
    /// Which attempt, from 1.
    pub attempt: u16,
    /// What the parents returned, without those that returned nothing.
    pub inputs: Vec<Input>,
    /// Parents that returned more than fits; what they returned must be read by itself.
    pub omitted: Vec<JobIndex>,
    pub(super) graph: Arc<Graph>,
}

impl Claimed {
    /// The graph that the job is part of.
    #[must_use]
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// What the definition says of the job.
    #[must_use]
    pub fn job(&self) -> &crate::graph::GraphJob {
        &self.graph.jobs[self.lease.job.index()]
    }
}

/// What a parent returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// The parent.
    pub job: JobIndex,
    /// JSON text.
    pub output: Bytes,
}
