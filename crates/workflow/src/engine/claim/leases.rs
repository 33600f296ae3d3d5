//! Leased jobs whose inputs are not read yet: as many as one answer may contain, and its maximum
//! size.

use crate::engine::actor::answer::{Leased, Returned};
use crate::graph::Graph;
use crate::id::{JobIndex, WorkflowId};

/// Maximum number of bytes of params, outputs and errors in one answer. A thousand jobs with large
/// inputs, or a join of many jobs, would else fill the memory of the server and of the worker.
const MAX_VALUE_BYTES: usize = 32 << 20;
/// Maximum number of bytes of names and JSON syntax in one answer. A thousand jobs with a thousand
/// parents each have a million names.
const MOST_NAMES: usize = 16 << 20;
/// Bytes of a job in JSON besides names and values: lease, times, numbers, and their keys.
const JOB_OVERHEAD: usize = 512;
/// Bytes of an input in JSON besides names and values.
const AROUND_INPUT: usize = 128;
/// JSON syntax around the name of a parent whose output is left out, in bytes.
const AROUND_NAME: usize = 3;

/// Leased jobs that were not sent to the worker yet. Dropping them returns them to their queues.
#[derive(Debug, Default)]
pub struct LeasedBatch {
    /// Jobs, each with the parents whose output is left out.
    pub(super) jobs: Vec<(WorkflowId, Leased, Vec<JobIndex>)>,
    /// Maximum bytes of params, outputs and errors in JSON.
    values: usize,
    /// Maximum bytes of everything else in JSON.
    names: usize,
    /// Whether a job did not fit.
    full: bool,
}

impl LeasedBatch {
    pub(super) fn of(leased: Vec<(WorkflowId, Leased)>) -> Self {
        let mut leases = Self::default();
        leases.add(leased);
        leases
    }

    /// Whether there are no jobs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Maximum size of the answer as JSON, in bytes. The inputs that are read for it are not
    /// larger.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.values + self.names
    }

    pub(super) fn number(&self) -> usize {
        self.jobs.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    /// Adds jobs as long as they fit. The others return to their queues. The first job of all is
    /// always included, if necessary with only some of its inputs.
    pub(super) fn add(&mut self, leased: Vec<(WorkflowId, Leased)>) {
        for (id, mut leased) in leased {
            let (values, names) = of_job(&leased);
            let input = |input: &Returned| (input.bytes(), of_input(&leased.graph, input));
            let inputs = leased
                .inputs
                .iter()
                .map(input)
                .fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
            let mut omitted = Vec::new();
            if self.has_room(values + inputs.0, names + inputs.1) {
                self.take(values + inputs.0, names + inputs.1);
            } else {
                self.full = true;
                if !self.jobs.is_empty() {
                    break;
                }
                self.take(values, names);
                omitted = self.include_some_inputs(&mut leased);
            }
            self.jobs.push((id, leased, omitted));
        }
    }

    /// Keeps the inputs that fit. Returns the parents of the others; the answer lists their names
    /// in any case.
    fn include_some_inputs(&mut self, leased: &mut Leased) -> Vec<JobIndex> {
        let mut omitted = Vec::new();
        let Leased { inputs, graph, .. } = leased;
        inputs.retain(|input| {
            let values = input.bytes();
            let names = of_input(graph, input);
            let fits = self.has_room(values, names);
            if fits {
                self.take(values, names);
            } else {
                self.take(
                    0,
                    written(&graph.jobs[input.job.index()].name) + AROUND_NAME,
                );
                omitted.push(input.job);
            }
            fits
        });
        omitted
    }

    fn has_room(&self, values: usize, names: usize) -> bool {
        self.values + values <= MAX_VALUE_BYTES && self.names + names <= MOST_NAMES
    }

    fn take(&mut self, values: usize, names: usize) {
        self.values += values;
        self.names += names;
    }
}

/// Bytes of a job without its inputs: its params, and everything else.
fn of_job(leased: &Leased) -> (usize, usize) {
    let job = &leased.graph.jobs[leased.job.index()];
    let params = [
        leased.graph.globals.as_ref(),
        leased.graph.params(leased.job),
    ];
    let params = params
        .into_iter()
        .flatten()
        .map(|json| json.text().len())
        .sum();
    let names = [
        &leased.graph.label.name,
        &job.name,
        &job.handler,
        &job.queue,
    ];
    (
        params,
        JOB_OVERHEAD + names.map(|name| written(name)).iter().sum::<usize>(),
    )
}

/// Bytes of an input besides its output and error.
fn of_input(graph: &Graph, input: &Returned) -> usize {
    let parent = &graph.jobs[input.job.index()];
    AROUND_INPUT + written(&parent.name) + written(&parent.handler)
}

/// Maximum number of bytes of a text in JSON.
pub(super) fn written(text: &str) -> usize {
    text.bytes().map(written_byte).sum()
}

/// Maximum number of bytes in JSON of one byte of a text.
pub(super) const fn written_byte(byte: u8) -> usize {
    match byte {
        b'"' | b'\\' => 2,
        0..=0x1f => 6,
        _ => 1,
    }
}
