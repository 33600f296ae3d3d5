//! Traces of calls, for a collector of OpenTelemetry.
//!
//! A core decides by the headers of a call whether it is sampled. Only then does it make a [`Trace`], which goes into a queue that is
//! bounded in bytes; a thread of its own encodes and sends what is there. Nobody waits for the collector. Calls that create workflows, and
//! attempts of their jobs, go the same way when they have ended.

mod collector;
mod context;
mod export;
mod one_call;
mod otlp;
mod queue;
mod record;
mod sampler;
mod workflows;

use std::io;
use std::sync::Arc;

use http::HeaderMap;
use tracing::warn;

use crate::net::runtime::ThreadRuntime;
use crate::settings;
use crate::supervise::{Supervisor, failpoint};
pub(crate) use context::caller;
use export::Exporter;
pub(crate) use one_call::OneCall;
pub(crate) use queue::Queue;
pub(crate) use record::{Part, SpanId, Trace, Value};
use sampler::Sampler;

/// The thread's name.
const PART: &str = "traces";

/// Begins the traces of one server. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Traces {
    sampler: Sampler,
    queue: Arc<Queue>,
}

impl Traces {
    /// Starts the thread that sends what is traced. At the stop it sends what is left, within a bound.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn start(settings: &settings::Traces, supervisor: &Supervisor) -> io::Result<Self> {
        let (queue, records) = Queue::new();
        let mut exporter = Exporter::new(settings, queue.clone(), records);
        let stop = supervisor.stop.clone();
        supervisor.restarting_thread(PART, move || match ThreadRuntime::new() {
            Ok(runtime) => runtime.block_on(failpoint::with(PART.into(), exporter.run(&stop))),
            // The end of the thread is noticed.
            Err(error) => warn!(%error, "the thread that sends traces cannot wait"),
        })?;
        Ok(Self {
            sampler: Sampler::new(settings.sampling_rate),
            queue,
        })
    }

    /// The trace of a call with these headers, if it is sampled: as its caller decided, else by the ratio.
    pub(crate) fn begin(&self, name: &'static str, headers: &HeaderMap) -> Option<Box<Trace>> {
        let incoming = context::incoming(headers);
        let id = incoming.trace.unwrap_or_else(sampler::random_id);
        if !incoming.sampled.unwrap_or_else(|| self.sampler.takes(id)) {
            return None;
        }
        let state = incoming
            .parent
            .map_or_else(String::new, |_| context::state(headers));
        Some(Trace::begin(
            name,
            id,
            incoming.parent,
            state,
            self.queue.clone(),
        ))
    }

    /// What became of spans: how many were sent, and how many were dropped.
    pub(crate) fn counts(&self) -> [u64; 2] {
        self.queue.counts()
    }
}
