//! Traces of calls, exported to a collector of OpenTelemetry.
//!
//! A core decides by the headers of a call whether to sample it. Only then it creates a [`Trace`],
//! which goes into a queue that is bounded in bytes. A separate thread encodes and sends the queue,
//! so no call waits for the collector. Creations of workflows and attempts of jobs are exported in
//! this way after their end.

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

use crate::settings;
use crate::supervise::runtime::ThreadRuntime;
use crate::supervise::{Supervisor, failpoint};
pub(crate) use context::caller;
use export::Exporter;
pub(crate) use one_call::OneCall;
pub(crate) use queue::Queue;
pub(crate) use record::{AttributeValue, SpanId, SpanPart, Trace};
use sampler::Sampler;

/// Name of the thread.
const THREAD_NAME: &str = "traces";

/// Tracer of one server. Clones share its queue.
#[derive(Debug, Clone)]
pub(crate) struct Traces {
    sampler: Sampler,
    queue: Arc<Queue>,
}

impl Traces {
    /// Starts the thread that exports traces. At the stop, it sends the rest of the queue within a
    /// time limit.
    ///
    /// # Errors
    /// The system refuses to start a thread.
    pub(crate) fn start(
        settings: &settings::TraceSettings,
        supervisor: &Supervisor,
    ) -> io::Result<Self> {
        let (queue, records) = Queue::new();
        let mut exporter = Exporter::new(settings, queue.clone(), records);
        let stop = supervisor.stop.clone();
        supervisor.restarting_thread(THREAD_NAME, move || match ThreadRuntime::new() {
            Ok(runtime) => {
                runtime.block_on(failpoint::with(THREAD_NAME.into(), exporter.run(&stop)))
            }
            // The supervisor notices the end of the thread.
            Err(error) => warn!(%error, "the thread that sends traces cannot wait"),
        })?;
        Ok(Self {
            sampler: Sampler::new(settings.sampling_rate),
            queue,
        })
    }

    /// Begins the trace of a call with these headers, if it is sampled. The decision of the caller
    /// counts, or else the sampling rate.
    pub(crate) fn begin(&self, name: &'static str, headers: &HeaderMap) -> Option<Box<Trace>> {
        let incoming = context::parse_context(headers);
        let id = incoming.trace.unwrap_or_else(sampler::random_id);
        if !incoming.sampled.unwrap_or_else(|| self.sampler.samples(id)) {
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

    /// Number of spans that were exported, and of spans that were dropped.
    pub(crate) fn counts(&self) -> [u64; 2] {
        self.queue.counts()
    }
}
