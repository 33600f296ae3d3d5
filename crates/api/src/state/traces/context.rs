//! Trace context of W3C: in headers, and in the global of a workflow.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use tidegate_workflow::{Claimed, Graph, JobIndex, WorkflowId};

use super::Traces;

/// Most bytes of `tracestate` that are kept: the minimum that W3C requires. A longer one is left
/// out.
const MAX_TRACESTATE_BYTES: usize = 512;
/// Length of a `traceparent` of version 00.
const TRACEPARENT_LENGTH: usize = 55;

/// Span, and the trace that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    /// Id of the trace; not 0.
    pub trace: u128,
    /// Id of the span; not 0.
    pub span: u64,
    /// Whether the trace is to be exported. `None` if its creator has not decided, which W3C has no
    /// value for.
    pub sampled: Option<bool>,
    /// Value of `tracestate`, unchanged.
    pub state: String,
}

/// Trace context as the global stores it.
#[derive(Serialize, Deserialize)]
struct StoredTrace<'a> {
    #[serde(borrow)]
    traceparent: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    tracestate: Option<Cow<'a, str>>,
}

impl TraceContext {
    /// Parses `VERSION-TRACE-SPAN-FLAGS` in lower-case hex. Later versions may have more. `None` if
    /// the text has another form.
    #[must_use]
    pub fn parse_traceparent(traceparent: &[u8]) -> Option<Self> {
        let (version_00, suffix) = traceparent.split_at_checked(TRACEPARENT_LENGTH)?;
        let dashes = [2, 35, 52].iter().all(|at| version_00[*at] == b'-');
        if !dashes || version_00.iter().any(u8::is_ascii_uppercase) {
            return None;
        }
        match (hex(&version_00[..2])?, suffix) {
            (0xff, _) => return None,
            (0, []) => {}
            (0, _) => return None,
            (_, [] | [b'-', ..]) => {}
            _ => return None,
        }
        let trace = hex(&version_00[3..35]).filter(|id| *id != 0)?;
        let span = hex(&version_00[36..52]).filter(|id| *id != 0)? as u64;
        Some(Self {
            trace,
            span,
            sampled: Some(hex(&version_00[53..])? & 1 == 1),
            state: String::new(),
        })
    }

    /// Returns the context of the creation of a workflow.
    #[must_use]
    pub fn for_creation(graph: &Graph) -> Option<Self> {
        Self::from_global(graph.trace()?)
    }

    /// Returns the context of an attempt, by the number of its lease, in the trace of its workflow.
    /// All servers compute the same ids.
    #[must_use]
    pub fn for_attempt(self, workflow: WorkflowId, job: JobIndex, fence: u64) -> Self {
        let [high, low] = [0, 8]
            .map(|at| u64::from_be_bytes(std::array::from_fn(|byte| workflow.bytes()[at + byte])));
        let span = [high, low, u64::from(job.0), fence]
            .into_iter()
            .fold(0, mix);
        Self {
            span: span.max(1),
            sampled: Some(true),
            ..self
        }
    }

    /// Parses the global. `None` if it cannot be parsed: creators of workflows may set any value.
    pub(crate) fn from_global(trace: &str) -> Option<Self> {
        let StoredTrace {
            traceparent,
            tracestate,
        } = serde_json::from_str(trace).ok()?;
        let mut context = Self::parse_traceparent(traceparent.as_bytes())?;
        context.state = tracestate.map_or_else(String::new, Cow::into_owned);
        if context.state.len() > MAX_TRACESTATE_BYTES
            || !context
                .state
                .bytes()
                .all(|byte| (b' '..=b'~').contains(&byte))
        {
            context.state.clear();
        }
        Some(context)
    }

    /// Returns the global for this context, as JSON.
    pub(crate) fn global(&self) -> String {
        let tracestate = (!self.state.is_empty()).then_some(Cow::Borrowed(&*self.state));
        let stored = StoredTrace {
            traceparent: self.traceparent().into(),
            tracestate,
        };
        serde_json::to_string(&stored).expect("keys are texts")
    }

    /// Returns the header of W3C. Unknown flags are not passed on, as the standard requires.
    #[must_use]
    pub fn traceparent(&self) -> String {
        let mut text = String::with_capacity(TRACEPARENT_LENGTH);
        let flags = u8::from(self.sampled == Some(true));
        write!(
            text,
            "00-{:032x}-{:016x}-{flags:02x}",
            self.trace, self.span
        )
        .expect("a String takes any text");
        text
    }
}

/// Returns the context of an attempt and its parent span, which is that of the creation. `None` if
/// the workflow has no trace, or one that is not exported.
#[must_use]
pub fn attempt_context(
    graph: &Graph,
    workflow: WorkflowId,
    job: JobIndex,
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
            claimed.lease.workflow,
            claimed.lease.job,
            claimed.fence,
        )?;
        Some(context.0.traceparent())
    }
}

/// Parses a number of at most 32 digits.
fn hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number: u128, digit| {
        Some(number << 4 | u128::from((*digit as char).to_digit(16)?))
    })
}

/// Mixes another number into an id with the finalizer of splitmix64,
/// <https://prng.di.unimi.it/splitmix64.c>: every bit counts.
fn mix(id: u64, value: u64) -> u64 {
    let mut mixed = (id ^ value).wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";

    #[test]
    fn a_context_is_read_back_from_its_global() {
        for state in ["", "vendor=1", r#"v="\"#] {
            let read = TraceContext::parse_traceparent(format!("00-{TRACE}-{SPAN}-01").as_bytes())
                .unwrap();
            let context = TraceContext {
                state: state.to_owned(),
                ..read
            };
            assert_eq!(
                TraceContext::from_global(&context.global()),
                Some(context.clone()),
                "{}",
                context.global()
            );
        }
        let undecided = TraceContext {
            trace: 1,
            span: 2,
            sampled: None,
            state: String::new(),
        };
        assert_eq!(
            undecided.global(),
            format!(r#"{{"traceparent":"00-{:032x}-{:016x}-00"}}"#, 1, 2)
        );
    }

    #[test]
    fn whatever_else_is_in_the_global_is_no_context() {
        let valid = format!("00-{TRACE}-{SPAN}-03");
        let read = |text: &str| TraceContext::from_global(text);
        for text in [
            "5",
            "null",
            "[]",
            "{}",
            r#""00""#,
            r#"{"traceparent":7}"#,
            r#"{"traceparent":"00-x"}"#,
        ] {
            assert_eq!(read(text), None, "{text}");
        }
        let with = |state: &str| {
            read(&format!(
                r#"{{"baggage":[1],"traceparent":"{valid}","tracestate":{state}}}"#
            ))
        };
        assert_eq!(with(r#""a=1""#).unwrap().state, "a=1");
        assert_eq!(
            with(&format!("\"{}\"", "a".repeat(MAX_TRACESTATE_BYTES + 1)))
                .unwrap()
                .state,
            ""
        );
        assert_eq!(with(r#""é""#).unwrap().state, "");
        assert_eq!(with("7"), None);
    }

    #[test]
    fn each_attempt_of_each_job_has_a_span_of_its_own() {
        let context =
            TraceContext::parse_traceparent(format!("00-{TRACE}-{SPAN}-01").as_bytes()).unwrap();
        let id = |last: u8| {
            WorkflowId::from_bytes(std::array::from_fn(|at| if at == 15 { last } else { 7 }))
        };
        let span = |workflow: u8, job: u32, fence: u64| {
            context
                .clone()
                .for_attempt(id(workflow), JobIndex(job), fence)
                .span
        };
        let all = (0..10)
            .flat_map(|at| (0..10).flat_map(move |job| (1..10).map(move |fence| (at, job, fence))));
        let mut spans: Vec<u64> = all
            .map(|(workflow, job, fence)| span(workflow, job, fence))
            .collect();
        assert_eq!(span(3, 4, 5), span(3, 4, 5));
        spans.sort_unstable();
        spans.dedup();
        assert_eq!(spans.len(), 900);
        // Servers of different versions must find the same.
        assert_eq!(format!("{:016x}", span(1, 2, 3)), "e4e1a4eedb1ab0d7");
    }
}
