//! A call that creates workflows, on its way.

use std::time::Instant;

use axum::http::{HeaderMap, StatusCode};
use tidegate_workflow::Json;

use super::{CallSpan, Creations, Exporter, TraceContext, Traces};

/// A call that creates workflows; by default, one that nobody traces. Whoever drops it before its end has not waited for the answer.
#[derive(Default)]
pub(crate) struct Creating {
    /// Where its caller is.
    caller: Option<TraceContext>,
    /// None: nobody exports spans.
    span: Option<Open>,
}

/// A span that somebody exports, if it is sampled.
struct Open {
    exporter: Exporter,
    route: &'static str,
    begun: Instant,
    standing: Standing,
}

enum Standing {
    /// It is not known yet whose child it is.
    Undecided,
    NotSampled,
    Sampled {
        context: TraceContext,
        parent: Option<u64>,
    },
}

impl Creating {
    /// Begins a call with these headers.
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

    /// The global of a workflow that says where its creation is. `globals` are the others, and there are `room` bytes for all of them. None: they
    /// stay as they are, because they have a trace of their own, or there is none, or no room for it.
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

    /// Where the call is. Without headers that say it, it is a child of `other`.
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

    /// Says how the call ended.
    pub(crate) fn end(mut self, status: StatusCode, created: Creations<'_>) {
        // A call whose definition could not be read is the child of its caller all the same.
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
