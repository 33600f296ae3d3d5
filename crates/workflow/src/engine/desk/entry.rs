//! A workflow in memory, with the latest outputs of its jobs.

use bytes::Bytes;
use hashbrown::HashMap;
use quick_cache::Weighter;

use super::answer::Answer;
use crate::id::{JobIndex, WorkflowId};
use crate::record::change::{Later, ResultField};
use crate::store::error::StoreError;
use crate::workflow::Workflow;

/// How many outputs of one workflow are kept for the jobs after them.
const KEPT_OUTPUTS: usize = 64 * 1024;

/// A workflow in memory, and the latest outputs of its jobs.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) workflow: Workflow,
    pub(crate) outputs: HashMap<JobIndex, Bytes>,
    output_bytes: usize,
    weight: u64,
}

/// Measures how much memory an entry uses.
#[derive(Debug, Clone)]
pub(super) struct Weight;

impl Weighter<WorkflowId, Box<Entry>> for Weight {
    fn weight(&self, _: &WorkflowId, entry: &Box<Entry>) -> u64 {
        entry.weight + entry.output_bytes as u64
    }
}

impl Entry {
    pub(super) fn new(workflow: Workflow, graph_bytes: usize) -> Box<Self> {
        let mut entry = Self { workflow, outputs: HashMap::new(), output_bytes: 0, weight: 0 };
        if graph_bytes > 0 {
            entry.weigh(graph_bytes);
        }
        Box::new(entry)
    }

    /// The same entry with a state that another server wrote. Outputs are not kept: their jobs may have run again.
    pub(super) fn rebuilt(&self, workflow: Workflow) -> Box<Self> {
        Box::new(Self { workflow, outputs: HashMap::new(), output_bytes: 0, weight: self.weight })
    }

    /// The state that another server wrote, from what it changed. False: the workflow must be read. Outputs of jobs that changed are not
    /// kept: they may have run again.
    pub(super) fn catch_up(&mut self, later: &Later) -> Result<bool, StoreError> {
        for (job, _) in &later.state.jobs {
            if let Some(output) = self.outputs.remove(job) {
                self.output_bytes -= output.len();
            }
        }
        self.workflow.catch_up(later)
    }

    /// The size in bytes, estimated from the encoded graph: texts are a little larger in memory, and each job has a fixed part.
    pub(super) fn weigh(&mut self, graph_bytes: usize) {
        self.weight = (512 + 2 * graph_bytes + 400 * self.workflow.jobs.len()) as u64;
    }

    /// Fills in outputs of parents that were reported in the same round and are written now.
    pub(super) fn fill_inputs(&self, answer: &mut Answer) {
        for input in answer.leased.iter_mut().flat_map(|leased| &mut leased.inputs) {
            if input.output.is_none() {
                input.output = self.outputs.get(&input.job).cloned();
            }
        }
    }

    pub(super) fn keep_outputs(&mut self, results: &[(ResultField, Vec<u8>)]) {
        for (field, value) in results {
            if let ResultField::Output(job) = field {
                if let Some(old) = self.outputs.remove(job) {
                    self.output_bytes -= old.len();
                }
                if self.output_bytes + value.len() <= KEPT_OUTPUTS {
                    self.output_bytes += value.len();
                    self.outputs.insert(*job, Bytes::from(value.clone()));
                }
            }
        }
    }
}
