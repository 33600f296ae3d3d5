//! Span of a call that creates workflows.

use std::time::Instant;

use axum::http::{HeaderMap, StatusCode};
use tidegate_workflow::Json;

use super::{CallSpan, Creations, Exporter, TraceContext, Traces};

/// Call that creates workflows. By default it has no trace. Dropping it before its end means that
/// the caller has not waited for the answer.
#[derive(Default)]
pub(crate) struct CreationSpan {
    /// Context of the caller.
    caller: Option<TraceContext>,
    /// Span of the call. `None` if no spans are exported.
    span: Option<OpenSpan>,
}

/// Span that is exported if it is sampled.
struct OpenSpan {
    exporter: Exporter,
    route: &'static str,
    started_at: Instant,
    state: SpanState,
}

enum SpanState {
    /// The parent is not known yet.
    Undecided,
    NotSampled,
    Sampled {
        context: TraceContext,
        parent: Option<u64>,
    },
}

impl CreationSpan {
    /// Starts a call with these headers.
    pub(crate) fn begin(traces: &Traces, route: &'static str, headers: &HeaderMap) -> Self {
        let open = |exporter: &Exporter| OpenSpan {
            exporter: exporter.clone(),
            route,
            started_at: Instant::now(),
            state: SpanState::Undecided,
        };
        Self {
            caller: (traces.caller)(headers),
            span: traces.exporter.as_ref().map(open),
        }
    }

    /// Returns the globals of a workflow with the context of this call added to `globals`. They may
    /// have `max_bytes` bytes. `None` if they stay as they are: they have a context, the call has
    /// none, or the result is too large.
    pub(crate) fn globals(
        &mut self,
        globals: Option<&str>,
        max_bytes: impl FnOnce() -> usize,
    ) -> Option<Json> {
        if self.caller.is_none() && self.span.is_none() {
            return None;
        }
        let existing = globals.and_then(Json::trace_in);
        let creation = self.decide(|| existing.and_then(TraceContext::from_global));
        if existing.is_some() {
            return None;
        }
        let extended = Json::with_trace(globals, &creation?.global())?;
        (extended.text().len() <= max_bytes()).then_some(extended)
    }

    /// Returns the context of the call. If the headers have none, `fallback` is its parent.
    fn decide(&mut self, fallback: impl FnOnce() -> Option<TraceContext>) -> Option<&TraceContext> {
        if let Some(span) = &mut self.span {
            if let SpanState::Undecided = span.state {
                let fallback = if self.caller.is_none() {
                    fallback()
                } else {
                    None
                };
                let caller = self.caller.as_ref().or(fallback.as_ref());
                span.state = match (span.exporter.begin)(caller) {
                    Some(context) => SpanState::Sampled {
                        context,
                        parent: caller.map(|caller| caller.span),
                    },
                    None => SpanState::NotSampled,
                };
            }
            if let SpanState::Sampled { context, .. } = &span.state {
                return Some(context);
            }
        }
        self.caller.as_ref()
    }

    /// Ends the call with the status of its answer.
    pub(crate) fn end(mut self, status: StatusCode, created: Creations<'_>) {
        // A call whose definition could not be read is a child of its caller, too.
        self.decide(|| None);
        self.export(Some(status), created);
    }

    fn export(&mut self, status: Option<StatusCode>, created: Creations<'_>) {
        let Some(OpenSpan {
            exporter,
            route,
            started_at,
            state,
        }) = self.span.take()
        else {
            return;
        };
        if let SpanState::Sampled { context, parent } = state {
            (exporter.end)(CallSpan {
                route,
                context,
                parent,
                started_at,
                status,
                created,
            });
        }
    }
}

impl Drop for CreationSpan {
    fn drop(&mut self) {
        self.export(None, Creations::None);
    }
}
