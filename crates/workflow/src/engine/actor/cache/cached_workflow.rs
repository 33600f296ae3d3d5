//! A cached workflow, with the latest outputs of its jobs.

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use quick_cache::Weighter;

use crate::codec::{NewerState, ResultField, StoreError};
use crate::engine::actor::answer::LeasedJob;
use crate::graph::{Graph, allocation_bytes};
use crate::machine::Workflow;
use crate::model::{JobIndex, WorkflowId};

/// Most bytes of outputs of one workflow that are cached for the jobs after them.
const MAX_OUTPUT_BYTES: usize = 64 * 1024;
/// Bytes of the cache's tables for one entry: its slot, its key, and a share of free slots.
const ENTRY_OVERHEAD_BYTES: usize = 96;
/// Bytes of the table of outputs for one output, besides its text.
const OUTPUT_OVERHEAD_BYTES: usize = 96;

/// A cached workflow, and the latest outputs of its jobs.
#[derive(Debug)]
pub(crate) struct CachedWorkflow {
    pub(crate) workflow: Workflow,
    pub(crate) outputs: HashMap<JobIndex, Bytes>,
    output_bytes: usize,
    /// Bytes of memory for everything but the outputs.
    rest_bytes: usize,
}

/// Cached value of a workflow.
#[derive(Debug)]
pub(crate) enum CacheValue {
    State(Box<CachedWorkflow>),
    /// Only the graph, which never changes.
    Graph(Box<CachedGraph>),
    /// Placeholder of a state that an actor has taken out. It keeps the entry, so that the tables
    /// of the cache need no change.
    InUse,
}

/// A graph in the cache of states, and the bytes that it uses.
#[derive(Debug)]
pub(crate) struct CachedGraph {
    pub(crate) graph: Arc<Graph>,
    bytes: usize,
}

impl CacheValue {
    pub(super) fn from_graph(graph: &Arc<Graph>) -> Self {
        let bytes = ENTRY_OVERHEAD_BYTES
            + allocation_bytes(size_of::<CachedGraph>() + size_of::<Graph>())
            + graph.allocated_bytes();
        Self::Graph(Box::new(CachedGraph {
            graph: Arc::clone(graph),
            bytes,
        }))
    }

    pub(crate) fn graph(&self) -> Option<&Arc<Graph>> {
        match self {
            Self::State(cached) => Some(&cached.workflow.graph),
            Self::Graph(cached_graph) => Some(&cached_graph.graph),
            Self::InUse => None,
        }
    }
}

/// Measures the memory of cached values, in bytes.
#[derive(Debug, Clone)]
pub(super) struct CacheWeigher;

impl Weighter<WorkflowId, CacheValue> for CacheWeigher {
    fn weight(&self, _: &WorkflowId, value: &CacheValue) -> u64 {
        match value {
            CacheValue::State(cached) => cached.weight() as u64,
            CacheValue::Graph(cached_graph) => cached_graph.bytes as u64,
            CacheValue::InUse => ENTRY_OVERHEAD_BYTES as u64,
        }
    }
}

impl CachedWorkflow {
    pub(crate) fn new(workflow: Workflow) -> Box<Self> {
        let rest_bytes =
            ENTRY_OVERHEAD_BYTES + allocation_bytes(size_of::<Self>()) + workflow.allocated_bytes();
        Box::new(Self {
            workflow,
            outputs: HashMap::new(),
            output_bytes: 0,
            rest_bytes,
        })
    }

    /// Returns the bytes of memory that the workflow uses.
    fn weight(&self) -> usize {
        self.rest_bytes + self.output_bytes + self.outputs.capacity() * OUTPUT_OVERHEAD_BYTES
    }

    /// Returns an entry with a state that another server wrote. Outputs are dropped: their jobs may
    /// have run again.
    pub(crate) fn with_state(&self, workflow: Workflow) -> Box<Self> {
        Box::new(Self {
            workflow,
            outputs: HashMap::new(),
            output_bytes: 0,
            rest_bytes: self.rest_bytes,
        })
    }

    /// Updates the state with changes that other servers wrote. Returns false if the workflow must
    /// be read instead. Outputs of changed jobs are dropped: these jobs may have run again.
    pub(crate) fn rebase(&mut self, newer: &NewerState) -> Result<bool, StoreError> {
        for (job, _) in &newer.state.jobs {
            if let Some(output) = self.outputs.remove(job) {
                self.output_bytes -= output.len();
            }
        }
        self.workflow.rebase(newer)
    }

    /// Fills in outputs of parents that were reported in the same commit and are written now.
    pub(crate) fn fill_inputs(&self, leased: &mut [LeasedJob]) {
        for input in leased.iter_mut().flat_map(|leased| &mut leased.inputs) {
            if input.output.is_none() {
                input.output = self.outputs.get(&input.job).cloned();
            }
        }
    }

    /// Caches the outputs that other jobs get as inputs.
    pub(crate) fn cache_outputs(&mut self, results: &[(ResultField, Vec<u8>)]) {
        for (field, value) in results {
            if let ResultField::Output(job) = field
                && !self.workflow.graph.children(*job).is_empty()
            {
                if let Some(old) = self.outputs.remove(job) {
                    self.output_bytes -= old.len();
                }
                if self.output_bytes + value.len() <= MAX_OUTPUT_BYTES {
                    self.output_bytes += value.len();
                    self.outputs.insert(*job, Bytes::from(value.clone()));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::codec::{Format, decode, encode};
    use crate::graph::{Definition, JobDefinition};
    use crate::machine::WriteOptions;
    use crate::model::{Partition, Timestamp};

    /// Returns `number` workflows of `jobs` jobs each, all of which run after the first.
    fn entries(number: usize, jobs: usize) -> Vec<CachedWorkflow> {
        let job = |at: usize| {
            let after = if at > 0 {
                vec!["job-0".to_owned()]
            } else {
                Vec::new()
            };
            JobDefinition {
                after,
                ..JobDefinition::new(format!("job-{at}"), "some.handler")
            }
        };
        let jobs = (0..jobs).map(job).collect();
        let graph = Graph::build(Definition {
            name: "a workflow".to_owned(),
            jobs,
            ..Definition::default()
        })
        .unwrap();
        let bytes = encode(&graph, Format::LATEST);
        let entry = |at: usize| {
            let graph: Graph = decode(&bytes, String::new).unwrap();
            let id = WorkflowId::new(Timestamp::default(), Partition(0), at as u128);
            let mut workflow = Workflow::new(id, graph.into(), Timestamp::default());
            let style = WriteOptions {
                format: Format::LATEST,
                max_inline: usize::MAX,
            };
            workflow.change(1, style, Timestamp::default()).unwrap();
            workflow.on_applied();
            *CachedWorkflow::new(workflow)
        };
        (0..number).map(entry).collect()
    }

    fn resident() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .unwrap();
        line.trim()
            .trim_end_matches(" kB")
            .parse::<usize>()
            .unwrap()
            * 1024
    }

    /// Environment variable of the process that measures.
    const MEASURE_VARIABLE: &str = "TIDEGATE_WEIGH_ALONE";

    fn weigh() {
        let mut freed_later = Vec::new();
        for (number, jobs) in [(40_000, 2), (4_000, 20), (8, 65_000)] {
            let before = resident();
            let entries = entries(number, jobs);
            let used = resident() - before;
            let weights: usize = entries.iter().map(CachedWorkflow::weight).sum();
            let ratio = weights as f64 / used as f64;
            println!(
                "{number} workflows of {jobs} jobs weigh {weights} and take {used}: {ratio:.2}"
            );
            // Freed memory would be used again for the next workflows.
            freed_later.push(entries);
            assert!(
                (0.85..1.3).contains(&ratio),
                "{number} workflows of {jobs} jobs: {ratio}"
            );
        }
    }

    /// A million small workflows took one and a half times the memory that they were allowed. Other
    /// tests use memory too, so this test runs itself again in a separate process.
    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "nothing else tells the process apart in which it runs itself"
    )]
    fn a_weight_is_near_the_truth() {
        if std::env::var_os(MEASURE_VARIABLE).is_some() {
            return weigh();
        }
        let test = "engine::actor::cache::cached_workflow::tests::a_weight_is_near_the_truth";
        let mut command = Command::new(std::env::current_exe().unwrap());
        let ran = command
            .args(["--exact", test, "--nocapture"])
            .env(MEASURE_VARIABLE, "1")
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&ran.stdout).into_owned()
            + &String::from_utf8_lossy(&ran.stderr);
        assert!(
            ran.status.success()
                && output.contains("1 passed")
                && output.contains("65000 jobs weigh"),
            "{output}"
        );
    }
}
