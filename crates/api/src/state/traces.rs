//! Traces: the context of the call that created a workflow is stored with it, and spans are
//! exported.
//!
//! The context is stored as the global `$trace` of the workflow, so workers get it with the params
//! of each job.

mod call;
mod context;

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use axum::http::{HeaderMap, StatusCode};
use tidegate_workflow::{Created, WorkflowId};

pub(crate) use call::CreationSpan;
pub use context::{TraceContext, attempt_context};

/// Hooks of the embedding server for traces.
#[derive(Clone)]
pub struct Traces {
    /// Reads the trace context of the caller from the headers of a call.
    pub caller: fn(&HeaderMap) -> Option<TraceContext>,
    /// Exporter of spans. `None` if no spans are exported.
    pub exporter: Option<Exporter>,
}

/// Returns the context of a new span from the context of its caller.
type StartSpan = dyn Fn(Option<&TraceContext>) -> Option<TraceContext> + Send + Sync;

/// Exporter of spans.
#[derive(Clone)]
pub struct Exporter {
    /// Starts the span of a call, whose caller has this context. `None` if the call is not sampled.
    pub begin: Arc<StartSpan>,
    /// Exports the span of a call that has ended.
    pub end: Arc<dyn Fn(CallSpan<'_>) + Send + Sync>,
}

/// Span of a call that created workflows, or failed to.
#[derive(Debug)]
pub struct CallSpan<'a> {
    /// Path of the route.
    pub route: &'static str,
    /// Context of the span.
    pub context: TraceContext,
    /// Span of the caller.
    pub parent: Option<u64>,
    /// Start of the call. It ends now.
    pub started_at: Instant,
    /// Status of the answer. `None` if the caller did not wait for it.
    pub status: Option<StatusCode>,
    /// Workflows that the call created.
    pub created: Creations<'a>,
}

/// Workflows that a call created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Creations<'a> {
    /// No workflow, as far as is known.
    None,
    /// One workflow.
    One {
        /// Id of the workflow.
        workflow: WorkflowId,
        /// Name of the workflow.
        name: &'a str,
        /// Whether it existed before, with the same idempotency key.
        existing: bool,
    },
    /// Workflows of a batch.
    Many {
        /// Number of workflows in the request.
        requested: usize,
        /// Number of workflows created now.
        created: usize,
    },
}

impl<'a> Creations<'a> {
    pub(crate) fn one(created: &Created, name: &'a str) -> Self {
        Self::One {
            workflow: created.workflow,
            name,
            existing: created.existing,
        }
    }
}

impl fmt::Debug for Traces {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Traces")
            .field("exported", &self.exporter.is_some())
            .finish_non_exhaustive()
    }
}
