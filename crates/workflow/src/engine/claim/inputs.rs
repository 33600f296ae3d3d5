//! The inputs of leased jobs: the outputs of the jobs before them, as much as one answer may contain.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::claimed::{Claimed, Input, OnItsWay};
use crate::engine::Engine;
use crate::engine::desk::answer::{Leased, Returned};
use crate::engine::error::EngineError;
use crate::id::{JobIndex, WorkflowId};
use crate::record::change::ResultField;
use crate::record::lease::LeaseRef;

/// The most bytes of params and inputs in one answer. Without a bound, a thousand jobs with large inputs, or a join of many jobs,
/// would fill the memory of the server and of the worker.
const MOST_BYTES: usize = 32 << 20;

/// The outputs of jobs.
type Outputs = BTreeMap<(WorkflowId, JobIndex), Bytes>;

impl Engine {
    /// Adds the outputs of parents, with one read of the store for all that are not in memory.
    pub(super) async fn with_inputs(&self, leased: Vec<(WorkflowId, Leased)>) -> Result<Vec<OnItsWay>, EngineError> {
        let leased = within(leased, MOST_BYTES);
        let mut missing: BTreeMap<WorkflowId, Vec<JobIndex>> = BTreeMap::new();
        for (id, (leased, _)) in &leased {
            for input in leased.inputs.iter().filter(|input| input.output.is_none()) {
                missing.entry(*id).or_default().push(input.job);
            }
        }
        let found = self.outputs(&missing).await?;
        let claimed = leased.into_iter().map(|(id, (leased, omitted))| claimed(id, leased, omitted, &found));
        Ok(claimed.collect())
    }

    async fn outputs(&self, of: &BTreeMap<WorkflowId, Vec<JobIndex>>) -> Result<Outputs, EngineError> {
        let mut found = Outputs::new();
        if !of.is_empty() {
            let fields = |jobs: &Vec<JobIndex>| jobs.iter().map(|job| ResultField::Output(*job)).collect();
            let query: Vec<(WorkflowId, Vec<ResultField>)> = of.iter().map(|(id, jobs)| (*id, fields(jobs))).collect();
            for ((id, jobs), outputs) in of.iter().zip(self.store().results(&query).await?) {
                found.extend(jobs.iter().zip(outputs).filter_map(|(job, output)| Some(((*id, *job), output?))));
            }
        }
        Ok(found)
    }
}

/// What the worker gets.
fn claimed(workflow: WorkflowId, leased: Leased, omitted: Vec<JobIndex>, found: &Outputs) -> OnItsWay {
    let Leased { job, token, expires, attempt, graph, inputs, undelivered } = leased;
    let input = |Returned { job, output, .. }: Returned| {
        let output = output.or_else(|| found.get(&(workflow, job)).cloned())?;
        Some(Input { job, output })
    };
    let inputs = inputs.into_iter().filter_map(input).collect();
    let claimed = Claimed { lease: LeaseRef { workflow, job, token }, expires, attempt, inputs, omitted, graph };
    OnItsWay { claimed, undelivered }
}

/// The jobs that fit into one answer, each with the parents whose output is left out. The other jobs go back to their queues. The
/// first job is always included, if necessary with only some of its inputs.
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
