//! Traces: where the creation of a workflow was in the trace of its caller is kept with it, and spans are handed to whoever exports them.
//!
//! What is kept is the global `$trace` of the workflow, so workers get it with the params of each job.

mod attempt;
mod call;
mod context;

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use axum::http::{HeaderMap, StatusCode};
use tidegate_workflow::{Created, WorkflowId};

pub use attempt::attempt_context;
pub(crate) use call::Creating;
pub use context::TraceContext;

/// What the process that serves the API does for traces.
#[derive(Clone)]
pub struct Traces {
    /// Reads from the headers of a call where its caller is in a trace.
    pub caller: fn(&HeaderMap) -> Option<TraceContext>,
    /// None: nobody exports spans.
    pub exporter: Option<Exporter>,
}

/// From where a caller is to where the span of its call is.
type Begin = dyn Fn(Option<&TraceContext>) -> Option<TraceContext> + Send + Sync;

/// Takes spans.
#[derive(Clone)]
pub struct Exporter {
    /// Where the span of a call is whose caller is there; none if the call is not sampled.
    pub begin: Arc<Begin>,
    /// Takes the span of a call that has ended.
    pub end: Arc<dyn Fn(CallSpan<'_>) + Send + Sync>,
}

/// A call that created workflows, or failed to.
#[derive(Debug)]
pub struct CallSpan<'a> {
    /// The path of the API.
    pub route: &'static str,
    /// Where it is in its trace.
    pub context: TraceContext,
    /// The span of its caller.
    pub parent: Option<u64>,
    /// When it began. It ends now.
    pub begun: Instant,
    /// What was answered. None: the caller did not wait for it.
    pub status: Option<StatusCode>,
    /// What it created.
    pub created: Creations<'a>,
}

/// What a call created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Creations<'a> {
    /// Nothing, as far as is known.
    None,
    /// One workflow.
    One {
        /// Its id.
        workflow: WorkflowId,
        /// Its name.
        name: &'a str,
        /// Whether it existed before, with the same idempotency key.
        existing: bool,
    },
    /// A batch.
    Many {
        /// How many were asked for.
        asked: usize,
        /// How many were created now.
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
