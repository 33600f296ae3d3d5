//! Traces of workflows: calls that create workflows, and attempts of jobs.

use std::sync::Arc;

use http::StatusCode;
use tidegate_api::{CallSpan, Creations, Exporter, TraceContext, attempt_context};
use tidegate_workflow::{AttemptEnd, AttemptObserver, AttemptOutcome, LeaseEnd, Timestamp};

use super::record::{Record, SpanKind, SpanRecord};
use super::{AttributeValue, Traces, sampler};
use crate::base::clock;

/// Name of the span of an attempt. Names from definitions are in its attributes.
const ATTEMPT_SPAN: &str = "job attempt";
/// Name of the span of a call that creates workflows.
const CREATION_SPAN: &str = "create workflows";
/// Limit of characters of an attempt's error.
const MAX_ERROR_CHARS: usize = 512;

type Attributes = Vec<(&'static str, AttributeValue)>;

impl Traces {
    /// Exporter of the API's spans.
    pub(crate) fn api_exporter(&self) -> Exporter {
        let begins = self.clone();
        let ends = self.clone();
        Exporter {
            begin: Arc::new(move |caller| begins.begin_creation(caller)),
            end: Arc::new(move |call| ends.queue.add(call_record(call))),
        }
    }

    /// Exporter of attempts, for workflows whose creation was sampled.
    pub(crate) fn attempt_exporter(&self) -> AttemptObserver {
        let queue = Arc::clone(&self.queue);
        AttemptObserver::new(move |end| {
            attempt_record(end)
                .into_iter()
                .for_each(|record| queue.add(record))
        })
    }

    /// Context of the span of a call, if it is sampled. The decision of the caller counts, or else
    /// the sampling rate.
    fn begin_creation(&self, caller: Option<&TraceContext>) -> Option<TraceContext> {
        let trace = caller.map_or_else(sampler::random_id, |caller| caller.trace);
        let sampled = caller
            .and_then(|caller| caller.sampled)
            .unwrap_or_else(|| self.sampler.samples(trace));
        sampled.then(|| TraceContext {
            trace,
            span: fastrand::u64(1..),
            sampled: Some(true),
            state: caller.map_or_else(String::new, |caller| caller.state.clone()),
        })
    }
}

/// Record with one span.
fn record(
    name: &'static str,
    context: TraceContext,
    parent: Option<u64>,
    times: [u64; 2],
) -> Record {
    let TraceContext {
        trace,
        span: id,
        state,
        ..
    } = context;
    let [start, end] = times;
    let span = SpanRecord {
        name,
        id,
        parent,
        start,
        end,
        attributes: Vec::new(),
    };
    Record {
        trace,
        has_remote_parent: parent.is_some(),
        state,
        spans: vec![span],
        ..Record::default()
    }
}

fn call_record(call: CallSpan<'_>) -> Record {
    let CallSpan {
        route,
        context,
        parent,
        started_at: begun,
        status,
        created,
    } = call;
    let end = nanos(Timestamp::from_micros(clock::now().0));
    let took = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let mut record = record(
        CREATION_SPAN,
        context,
        parent,
        [end.saturating_sub(took), end],
    );
    record.spans[0].attributes = call_attributes(route, status, created);
    record.failure = match status {
        None => Some("the caller did not wait for the answer".to_owned()),
        Some(status) => status
            .is_server_error()
            .then(|| "the call failed".to_owned()),
    };
    record
}

fn call_attributes(route: &str, status: Option<StatusCode>, created: Creations<'_>) -> Attributes {
    let mut attributes: Attributes = vec![
        ("http.request.method", "POST".into()),
        ("http.route", route.into()),
    ];
    if let Some(status) = status {
        let code = i64::from(status.as_u16());
        attributes.push(("http.response.status_code", code.into()));
    }
    match created {
        Creations::None => {}
        Creations::One {
            workflow,
            name,
            existing,
        } => attributes.extend([
            ("tidegate.workflow.id", workflow.to_string().as_str().into()),
            ("tidegate.workflow.name", name.into()),
            (
                "tidegate.workflow.existing",
                existing.to_string().as_str().into(),
            ),
        ]),
        Creations::Many { requested, created } => attributes.extend([
            ("tidegate.workflows.asked", (requested as i64).into()),
            ("tidegate.workflows.created", (created as i64).into()),
        ]),
    }
    attributes
}

/// Record of an attempt. None if the trace of its workflow is not sampled, or there is none.
fn attempt_record(end: &AttemptEnd<'_>) -> Option<Record> {
    let AttemptEnd {
        workflow,
        graph,
        job,
        during,
        at,
        outcome,
    } = end;
    let (context, parent) = attempt_context(graph, *workflow, *job, during.fence)?;
    let started = during.started_at?;
    let mut record = record(
        ATTEMPT_SPAN,
        context,
        Some(parent),
        [nanos(started), nanos(*at).max(nanos(started))],
    );
    record.side = SpanKind::Producer;
    record.spans[0].attributes = attempt_attributes(end, started);
    record.failure = failure(*outcome);
    Some(record)
}

/// Attributes of an attempt that began at `started`.
fn attempt_attributes(end: &AttemptEnd<'_>, started: Timestamp) -> Attributes {
    let AttemptEnd {
        workflow,
        graph,
        job,
        during,
        outcome,
        ..
    } = end;
    let about = &graph.jobs[job.index()];
    let mut attributes: Attributes = vec![
        ("messaging.system", "tidegate".into()),
        ("messaging.destination.name", (&*about.queue).into()),
        ("tidegate.workflow.id", workflow.to_string().as_str().into()),
        ("tidegate.workflow.name", (&*graph.label.name).into()),
        ("tidegate.job", (&*about.name).into()),
        ("tidegate.handler", (&*about.handler).into()),
        ("tidegate.attempt", i64::from(during.attempt).into()),
        ("tidegate.outcome", outcome_name(*outcome).into()),
    ];
    if let Some(worker) = &during.worker {
        attributes.push(("tidegate.worker", (&**worker).into()));
    }
    if let Some(ready) = during.ready_at {
        let waited = started.since(ready).as_millis();
        let millis = i64::try_from(waited).unwrap_or(i64::MAX);
        attributes.push(("tidegate.waited_ms", millis.into()));
    }
    attributes
}

/// Outcome of an attempt in one word.
const fn outcome_name(outcome: AttemptOutcome<'_>) -> &'static str {
    match outcome {
        AttemptOutcome::Succeeded => "succeeded",
        AttemptOutcome::Failed { .. } => "failed",
        AttemptOutcome::GivenBack => "given_back",
        AttemptOutcome::Throttled => "throttled",
        AttemptOutcome::Crashed => "crashed",
        AttemptOutcome::Revoked(end) => end.word(),
    }
}

/// Error of an attempt, if it failed. Actions of a user that end an attempt are no errors.
fn failure(outcome: AttemptOutcome<'_>) -> Option<String> {
    match outcome {
        AttemptOutcome::Failed { kind, message } => Some(
            format!("{kind}: {message}")
                .chars()
                .take(MAX_ERROR_CHARS)
                .collect(),
        ),
        AttemptOutcome::Revoked(LeaseEnd::Expired) => {
            Some("the worker did not report or extend its lease in time".to_owned())
        }
        AttemptOutcome::Crashed => Some("its process has died".to_owned()),
        AttemptOutcome::Revoked(LeaseEnd::TimedOut) => {
            Some("the attempt took longer than its timeout".to_owned())
        }
        AttemptOutcome::Succeeded
        | AttemptOutcome::GivenBack
        | AttemptOutcome::Throttled
        | AttemptOutcome::Revoked(
            LeaseEnd::Cancelled | LeaseEnd::EndedByHand | LeaseEnd::Restarted,
        ) => None,
    }
}

fn nanos(at: Timestamp) -> u64 {
    at.micros().saturating_mul(1_000)
}
