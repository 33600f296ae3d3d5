//! Trace of the single call of a command line tool.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use tonic::Code;

use super::collector::Collector;
use super::record::{Record, Side, Trace};
use super::{Queue, otlp, sampler};
use crate::settings::Traces;

/// A call in progress, from the view of its client.
pub(crate) struct OneCall {
    trace: Box<Trace>,
    queue: Arc<Queue>,
    records: Receiver<Record>,
}

impl OneCall {
    /// Begins a trace with a call of this name.
    pub(crate) fn begin(name: &'static str) -> Self {
        let (queue, records) = Queue::new();
        let mut trace = Trace::begin(
            name,
            sampler::random_id(),
            None,
            String::new(),
            queue.clone(),
        );
        trace.is_seen_from(Side::Client);
        Self {
            trace,
            queue,
            records,
        }
    }

    /// Header that passes the trace context to the server.
    pub(crate) fn traceparent(&self) -> String {
        self.trace.traceparent()
    }

    /// Records the outcome of the call, and exports the trace once.
    ///
    /// # Errors
    /// The reason why the export failed.
    pub(crate) async fn end(
        self,
        code: Code,
        failure: Option<&str>,
        settings: &Traces,
    ) -> Result<(), String> {
        let Self {
            mut trace,
            queue,
            records,
        } = self;
        trace.answered(code, failure);
        drop(trace);
        let message = otlp::request(&otlp::resource(&settings.service), queue.take(&records));
        let mut collector = Collector::new(settings.collector.clone());
        let body = collector.encode(&message);
        match collector.send(&body).await {
            Ok(taken) if taken.rejected == 0 => Ok(()),
            Ok(taken) => Err(taken.reason),
            Err(refused) => Err(refused.reason),
        }
    }
}
