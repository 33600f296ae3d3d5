//! Leased jobs whose inputs are not read yet: as many as one answer may contain, and its maximum
//! size.

use crate::engine::actor::answer::{LeasedJob, ParentResult};
use crate::graph::Graph;
use crate::model::{JobIndex, WorkflowId};

/// Maximum number of bytes of params, outputs and errors in one answer. A thousand jobs with large
/// inputs, or a join of many jobs, would else fill the memory of the server and of the worker.
const MAX_VALUE_BYTES: usize = 32 << 20;
/// Maximum number of bytes of names and JSON syntax in one answer. A thousand jobs with a thousand
/// parents each have a million names.
const MAX_NAME_BYTES: usize = 16 << 20;
/// Bytes of a job in JSON besides names and values: lease, times, numbers, and their keys.
const JOB_OVERHEAD: usize = 512;
/// Bytes of an input in JSON besides names and values.
const INPUT_OVERHEAD: usize = 128;
/// JSON syntax around the name of a parent whose output is left out, in bytes.
const NAME_OVERHEAD: usize = 3;

/// Leased jobs that were not sent to the worker yet. Dropping them returns them to their queues.
#[derive(Debug, Default)]
pub struct LeasedBatch {
    /// Jobs, each with the parents whose output is left out.
    pub(super) jobs: Vec<(WorkflowId, LeasedJob, Vec<JobIndex>)>,
    /// Maximum bytes of params, outputs and errors in JSON.
    value_bytes: usize,
    /// Maximum bytes of everything else in JSON.
    name_bytes: usize,
    /// Whether a job did not fit.
    full: bool,
}

impl LeasedBatch {
    pub(super) fn from_leased(leased: Vec<(WorkflowId, LeasedJob)>) -> Self {
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
        self.value_bytes + self.name_bytes
    }

    pub(super) fn len(&self) -> usize {
        self.jobs.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    /// Adds jobs as long as they fit. The others return to their queues. The first job of all is
    /// always included, if necessary with only some of its inputs.
    pub(super) fn add(&mut self, leased: Vec<(WorkflowId, LeasedJob)>) {
        for (id, mut leased) in leased {
            let (values, names) = job_bytes(&leased);
            let input =
                |input: &ParentResult| (input.max_bytes(), input_bytes(&leased.graph, input));
            let inputs = leased
                .inputs
                .iter()
                .map(input)
                .fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
            let mut omitted = Vec::new();
            if self.has_room(values + inputs.0, names + inputs.1) {
                self.reserve(values + inputs.0, names + inputs.1);
            } else {
                self.full = true;
                if !self.jobs.is_empty() {
                    break;
                }
                self.reserve(values, names);
                omitted = self.include_some_inputs(&mut leased);
            }
            self.jobs.push((id, leased, omitted));
        }
    }

    /// Keeps the inputs that fit. Returns the parents of the others; the answer lists their names
    /// in any case.
    fn include_some_inputs(&mut self, leased: &mut LeasedJob) -> Vec<JobIndex> {
        let mut omitted = Vec::new();
        let LeasedJob { inputs, graph, .. } = leased;
        inputs.retain(|input| {
            let values = input.max_bytes();
            let names = input_bytes(graph, input);
            let fits = self.has_room(values, names);
            if fits {
                self.reserve(values, names);
            } else {
                self.reserve(
                    0,
                    json_len(&graph.jobs[input.job.index()].name) + NAME_OVERHEAD,
                );
                omitted.push(input.job);
            }
            fits
        });
        omitted
    }

    fn has_room(&self, values: usize, names: usize) -> bool {
        self.value_bytes + values <= MAX_VALUE_BYTES && self.name_bytes + names <= MAX_NAME_BYTES
    }

    fn reserve(&mut self, values: usize, names: usize) {
        self.value_bytes += values;
        self.name_bytes += names;
    }
}

/// Bytes of a job without its inputs: its params, and everything else.
fn job_bytes(leased: &LeasedJob) -> (usize, usize) {
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
        JOB_OVERHEAD + names.map(|name| json_len(name)).iter().sum::<usize>(),
    )
}

/// Bytes of an input besides its output and error.
fn input_bytes(graph: &Graph, input: &ParentResult) -> usize {
    let parent = &graph.jobs[input.job.index()];
    INPUT_OVERHEAD + json_len(&parent.name) + json_len(&parent.handler)
}

/// Maximum number of bytes of a text in JSON.
pub(super) fn json_len(text: &str) -> usize {
    text.bytes().map(json_byte_len).sum()
}

/// Maximum number of bytes in JSON of one byte of a text.
pub(super) const fn json_byte_len(byte: u8) -> usize {
    match byte {
        b'"' | b'\\' => 2,
        0..=0x1f => 6,
        _ => 1,
    }
}
