//! What goes to a worker with its jobs: what the jobs before them returned, as much as one answer may carry.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{Claimed, LeaseRef};
use crate::engine::desk::play::{Leased, Returned};
use crate::engine::{Engine, EngineError};
use crate::id::{JobIndex, WorkflowId};
use crate::record::change::ResultField;

/// Bytes of params and inputs in one answer: a thousand jobs with much of both, or a join of many, would fill the memory of the
/// server and of the worker.
const MOST_BYTES: usize = 32 << 20;

/// What a parent returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// The parent.
    pub job: JobIndex,
    /// JSON text.
    pub output: Bytes,
}

impl Engine {
    /// Adds what parents returned, with one read of the store for all that memory does not have.
    pub(super) async fn with_inputs(&self, leased: Vec<(WorkflowId, Leased)>) -> Result<Vec<Claimed>, EngineError> {
        let leased = within(leased, MOST_BYTES);
        let mut wanted: BTreeMap<WorkflowId, Vec<JobIndex>> = BTreeMap::new();
        for (id, (leased, _)) in &leased {
            let missing = leased.inputs.iter().filter(|input| input.output.is_none()).map(|input| input.job);
            for job in missing {
                wanted.entry(*id).or_default().push(job);
            }
        }
        let mut found: BTreeMap<(WorkflowId, JobIndex), Bytes> = BTreeMap::new();
        if !wanted.is_empty() {
            let fields = |jobs: &Vec<JobIndex>| jobs.iter().map(|job| ResultField::Output(*job)).collect();
            let query: Vec<(WorkflowId, Vec<ResultField>)> =
                wanted.iter().map(|(id, jobs)| (*id, fields(jobs))).collect();
            for ((id, jobs), outputs) in wanted.iter().zip(self.store().results(&query).await?) {
                found.extend(jobs.iter().zip(outputs).filter_map(|(job, output)| Some(((*id, *job), output?))));
            }
        }
        let claimed = leased.into_iter().map(|(workflow, (leased, omitted))| {
            let Leased { job, token, expires, attempt, graph, inputs, mut undelivered } = leased;
            undelivered.settle();
            let input = |Returned { job, output, .. }: Returned| {
                let output = output.or_else(|| found.get(&(workflow, job)).cloned())?;
                Some(Input { job, output })
            };
            let inputs = inputs.into_iter().filter_map(input).collect();
            Claimed { lease: LeaseRef { workflow, job, token }, expires, attempt, inputs, omitted, graph }
        });
        Ok(claimed.collect())
    }
}

/// The jobs that fit into one answer, each with the parents whose output is left out. Jobs beyond go back to their queues. The
/// first job always goes: of what its parents returned the beginning fits.
fn within(leased: Vec<(WorkflowId, Leased)>, most: usize) -> Vec<(WorkflowId, (Leased, Vec<JobIndex>))> {
    let mut fitting = Vec::with_capacity(leased.len());
    let mut left = most;
    for (id, mut leased) in leased {
        let params = bytes_of_params(&leased);
        let inputs: usize = leased.inputs.iter().map(|input| input.bytes as usize).sum();
        let mut omitted = Vec::new();
        if params + inputs > left {
            if !fitting.is_empty() {
                break;
            }
            let mut room = left.saturating_sub(params);
            leased.inputs.retain(|input| {
                let fits = input.bytes as usize <= room;
                room = room.saturating_sub(input.bytes as usize);
                omitted.extend((!fits).then_some(input.job));
                fits
            });
        }
        left = left.saturating_sub(params + inputs);
        fitting.push((id, (leased, omitted)));
    }
    fitting
}

fn bytes_of_params(leased: &Leased) -> usize {
    let texts = [&leased.graph.globals, &leased.graph.jobs[leased.job.index()].params];
    texts.into_iter().flatten().map(|json| json.text().len()).sum()
}
