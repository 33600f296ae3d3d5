//! Span of a call that creates workflows.

use std::time::Instant;

use axum::http::{HeaderMap, StatusCode};
use tidegate_workflow::Json;

use super::{CallSpan, Creations, Exporter, TraceContext, Traces};

/// Call that creates workflows. By default it has no trace. Dropping it before its end means that
/// the caller has not waited for the answer.
#[derive(Default)]
pub(crate) struct Creating {
    /// Context of the caller.
    caller: Option<TraceContext>,
    /// Span of the call. `None` if no spans are exported.
    span: Option<Open>,
}

/// Span that is exported if it is sampled.
struct Open {
    exporter: Exporter,
    route: &'static str,
    begun: Instant,
    standing: Standing,
}

enum Standing {
    /// The parent is not known yet.
    Undecided,
    NotSampled,
    Sampled {
        context: TraceContext,
        parent: Option<u64>,
    },
}

impl Creating {
    /// Starts a call with these headers.
    pub(crate) fn begin(traces: &Traces, route: &'static str, headers: &HeaderMap) -> Self {
        let open = |exporter: &Exporter| Open {
            exporter: exporter.clone(),
            route,
            begun: Instant::now(),
            standing: Standing::Undecided,
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
        room: impl FnOnce() -> usize,
    ) -> Option<Json> {
        if self.caller.is_none() && self.span.is_none() {
            return None;
        }
        let own = globals.and_then(Json::trace_in);
        let creation = self.decide(|| own.and_then(TraceContext::of_global));
        if own.is_some() {
            return None;
        }
        let with = Json::with_trace(globals, &creation?.global())?;
        (with.text().len() <= room()).then_some(with)
    }

    /// Returns the context of the call. If the headers have none, `fallback` is its parent.
    fn decide(&mut self, other: impl FnOnce() -> Option<TraceContext>) -> Option<&TraceContext> {
        if let Some(span) = &mut self.span {
            if let Standing::Undecided = span.standing {
                let other = if self.caller.is_none() { other() } else { None };
                let caller = self.caller.as_ref().or(other.as_ref());
                span.standing = match (span.exporter.begin)(caller) {
                    Some(context) => Standing::Sampled {
                        context,
                        parent: caller.map(|caller| caller.span),
                    },
                    None => Standing::NotSampled,
                };
            }
            if let Standing::Sampled { context, .. } = &span.standing {
                return Some(context);
            }
        }
        self.caller.as_ref()
    }

    /// Ends the call with the status of its answer.
    pub(crate) fn end(mut self, status: StatusCode, created: Creations<'_>) {
        // A call whose definition could not be read is a child of its caller, too.
        self.decide(|| None);
        self.hand_over(Some(status), created);
    }

    fn hand_over(&mut self, status: Option<StatusCode>, created: Creations<'_>) {
        let Some(Open {
            exporter,
            route,
            begun,
            standing,
        }) = self.span.take()
        else {
            return;
        };
        if let Standing::Sampled { context, parent } = standing {
            (exporter.end)(CallSpan {
                route,
                context,
                parent,
                begun,
                status,
                created,
            });
        }
    }
}

impl Drop for Creating {
    fn drop(&mut self) {
        self.hand_over(None, Creations::None);
    }
}
