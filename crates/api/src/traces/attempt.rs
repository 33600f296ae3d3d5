//! Where attempts are in the trace of their workflow.

use tidegate_workflow::{Claimed, Graph, JobIndex, WorkflowId};

use super::{TraceContext, Traces};

/// Where an attempt is in the trace of its workflow, whose span is that of the creation. None: the trace is not exported, or there is none.
#[must_use]
pub fn attempt_context(
    graph: &Graph,
    (workflow, job): (WorkflowId, JobIndex),
    fence: u64,
) -> Option<(TraceContext, u64)> {
    let creation =
        TraceContext::of_creation(graph).filter(|creation| creation.sampled == Some(true))?;
    let parent = creation.span;
    Some((creation.of_attempt(workflow, job, fence), parent))
}

impl Traces {
    /// The `traceparent` of an attempt for its worker. None: nobody exports its span.
    pub(crate) fn of_attempt(&self, claimed: &Claimed) -> Option<String> {
        self.exporter.as_ref()?;
        let context = attempt_context(
            claimed.graph(),
            (claimed.lease.workflow, claimed.lease.job),
            claimed.fence,
        )?;
        Some(context.0.traceparent())
    }
}
