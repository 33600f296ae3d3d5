//! Trace contexts of attempts.

use tidegate_workflow::{Claimed, Graph, JobIndex, WorkflowId};

use super::{TraceContext, Traces};

/// Returns the context of an attempt and its parent span, which is that of the creation. `None` if
/// the workflow has no trace, or one that is not exported.
#[must_use]
pub fn attempt_context(
    graph: &Graph,
    (workflow, job): (WorkflowId, JobIndex),
    fence: u64,
) -> Option<(TraceContext, u64)> {
    let creation =
        TraceContext::for_creation(graph).filter(|creation| creation.sampled == Some(true))?;
    let parent = creation.span;
    Some((creation.for_attempt(workflow, job, fence), parent))
}

impl Traces {
    /// Returns the `traceparent` of an attempt for its worker. `None` if its span is not exported.
    pub(crate) fn traceparent_for(&self, claimed: &Claimed) -> Option<String> {
        self.exporter.as_ref()?;
        let context = attempt_context(
            claimed.graph(),
            (claimed.lease.workflow, claimed.lease.job),
            claimed.fence,
        )?;
        Some(context.0.traceparent())
    }
}
